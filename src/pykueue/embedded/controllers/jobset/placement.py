"""Exclusive placement: pods that landed outside their Job's topology domain go.

The pods of a Job follow its first one, which affinity keeps alone in its domain. When that one is placed
again, elsewhere, the others must follow (docs/reference/cluster-workloads.md 2.11).
"""

from __future__ import annotations

from typing import Any

from pykueue.api.objects import Key, Object, is_deleting
from pykueue.api.resources import NODES
from pykueue.clock import Clock
from pykueue.embedded.controllers.disruption import disrupt, disruption
from pykueue.embedded.jobset.admission import exclusive_topology
from pykueue.embedded.jobset.names import COMPLETION_INDEX, JOB_KEY
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.informer import Informer

_BY_JOB = "exclusive placement by job"


class PlacementController:
    """Keyed by Job; run by `run`."""

    def __init__(self, client: Client, pods: Informer, clock: Clock) -> None:
        self._client = client
        self._pods = pods
        self._clock = clock
        self._controller: Controller[Key] = Controller(
            "jobset-placement", self._sync, clock=clock, wait_for=[pods.synced]
        )
        pods.add_index(_BY_JOB, _job_of, of_metadata=True)
        pods.on_event(self._on_pod)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _on_pod(self, type_: str, old: Any, new: Any) -> None:
        if new is not None:
            for key in _job_of(new):
                self._controller.queue.add(key)

    async def _sync(self, key: Key) -> None:
        pods = self._pods.by_index(_BY_JOB, key)
        leaders = [pod for pod in pods if _is_leader(pod) and pod["spec"].get("nodeName")]
        if not leaders:
            return
        topology = exclusive_topology(leaders[0]) or ""
        domain = await self._domain(leaders[0]["spec"]["nodeName"], topology)
        followers = [pod for pod in pods if not _is_leader(pod)]
        if all((pod["spec"].get("nodeSelector") or {}).get(topology) == domain for pod in followers):
            return
        for pod in followers:
            await self._evict(pod)

    async def _domain(self, node: str, topology: str) -> str | None:
        found = await self._client.find(NODES, node)
        labels: dict[str, str] = found["metadata"].get("labels") or {} if found is not None else {}
        return labels.get(topology)

    async def _evict(self, pod: Object) -> None:
        message = "the pod is in another topology domain than the first pod of its Job"
        condition = disruption("ExclusivePlacementViolation", message, self._clock.time())
        await disrupt(self._client, pod, {"conditions": [condition]})


def _is_leader(pod: Object) -> bool:
    return (pod["metadata"].get("labels") or {}).get(COMPLETION_INDEX) == "0"


def _job_of(pod: Object) -> list[Key]:
    """The Job of a pod that is placed exclusively and is not on its way out."""
    metadata = pod["metadata"]
    key = (metadata.get("labels") or {}).get(JOB_KEY)
    if key is None or is_deleting(pod) or exclusive_topology(pod) is None:
        return []
    return [(metadata["namespace"], key)]
