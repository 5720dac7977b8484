"""A LocalQueue: the door of a namespace to a ClusterQueue, and what came through it."""

from __future__ import annotations

from pykueue.api import kueue
from pykueue.engine.queues.cluster_queue import UsageCounts
from pykueue.engine.workload import WorkloadInfo


class LocalQueue:
    """One LocalQueue, or a name that workloads use and that has no object yet."""

    __slots__ = (
        "consumed",
        "key",
        "namespace",
        "obj",
        "penalties",
        "sampled",
        "usage_counts",
        "weight",
        "workloads",
    )

    def __init__(self, key: str, namespace: str) -> None:
        self.key = key
        self.namespace = namespace
        self.obj: kueue.LocalQueue | None = None
        #: Unfinished workloads that name it, by key.
        self.workloads: dict[str, WorkloadInfo] = {}
        self.usage_counts = UsageCounts()
        # Admission fair sharing (10): past usage by resource in nanos, when it was sampled, what is not in
        # it yet.
        self.consumed: dict[str, int] = {}
        self.sampled: float | None = None
        self.penalties: dict[str, dict[str, int]] = {}
        self.weight = 1.0

    def __repr__(self) -> str:
        return f"<LocalQueue {self.key}>"

    @property
    def cluster_queue(self) -> str:
        """Name of its ClusterQueue; empty without an object."""
        return self.obj.spec.cluster_queue if self.obj is not None else ""

    @property
    def is_open(self) -> bool:
        """Whether its workloads may wait in the ClusterQueue (4.1)."""
        obj = self.obj
        return obj is not None and obj.spec.stop_policy == "None" and not self.is_terminating

    @property
    def is_terminating(self) -> bool:
        """Whether the LocalQueue is being deleted."""
        return self.obj is not None and self.obj.metadata.deletion_timestamp is not None
