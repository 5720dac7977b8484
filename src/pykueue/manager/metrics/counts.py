"""One walk over all Workloads for everything that a scrape counts among them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pykueue.api import conditions
from pykueue.api.objects import get, key_of
from pykueue.api.variants import has_variants, parent_reference
from pykueue.engine import Engine
from pykueue.manager.cluster import Cluster

from .labels import CustomLabels

#: Reasons that stand for conditions that are not there yet.
NO_RESERVATION = "NoReservation"

#: Namespace and name of a LocalQueue.
Local = tuple[str, str]
Values = tuple[str, ...]


class Counts:
    """Counts of Workloads as they are now.

    The last three tell workloads apart by their custom labels, and are empty where there are none.
    """

    def __init__(self, cluster: Cluster, engine: Engine, custom: CustomLabels) -> None:
        #: Finished ones that are kept, by ClusterQueue and by LocalQueue.
        self.finished: Counter[str] = Counter()
        self.finished_local: Counter[Local] = Counter()
        #: Those neither admitted nor finished, by ClusterQueue, reason and underlying cause; the same by
        #: LocalQueue.
        self.unadmitted: Counter[tuple[str, str, str]] = Counter()
        self.unadmitted_local: Counter[tuple[Local, str, str, str]] = Counter()
        self.pending: Counter[tuple[str, str, Values]] = Counter()
        self.admitted: Counter[tuple[str, Values]] = Counter()
        self.admitted_local: Counter[tuple[Local, Values]] = Counter()
        apart = bool(custom.names("Workload"))
        targets: dict[Local, str] = {}
        for workload in cluster.workloads.list():
            local = (workload["metadata"].get("namespace") or "", workload["spec"].get("queueName") or "")
            is_variant = parent_reference(workload) is not None
            if conditions.is_finished(workload):
                if is_variant:
                    continue  # its parent is counted
                self.finished[conditions.cluster_queue(workload)] += 1
                self.finished_local[local] += 1
            elif conditions.is_admitted(workload):
                if apart and not has_variants(workload):
                    values = custom.workload(workload)
                    self.admitted[conditions.cluster_queue(workload), values] += 1
                    self.admitted_local[local, values] += 1
            else:
                if local not in targets:
                    targets[local] = str(
                        get(cluster.local_queues.get(*local) or {}, "spec", "clusterQueue") or ""
                    )
                if not is_variant:
                    self._count_unadmitted(workload, local, targets[local])
                if apart:
                    self._count_pending(workload, engine, custom)

    def _count_unadmitted(self, workload: Any, local: Local, cluster_queue: str) -> None:
        reason = conditions.reason(workload, conditions.ADMITTED) or NO_RESERVATION
        cause = conditions.reason(workload, conditions.QUOTA_RESERVED) or conditions.PENDING_EVALUATION
        self.unadmitted[cluster_queue, reason, cause] += 1
        self.unadmitted_local[local, cluster_queue, reason, cause] += 1

    def _count_pending(self, workload: Any, engine: Engine, custom: CustomLabels) -> None:
        view = engine.workload("/".join(key_of(workload)))
        if view is not None and view.state in ("active", "inadmissible"):
            self.pending[view.cluster_queue, view.state, custom.workload(workload)] += 1
