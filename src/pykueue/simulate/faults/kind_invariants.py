"""What must hold where jobs that are suspended are mixed with kinds whose pods queue in groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykueue.api.objects import Object, is_deleting
from pykueue.api.pods import is_terminal
from pykueue.api.resources import PODS, WORKLOADS
from pykueue.jobs.identifiers import IDENTIFIERS
from pykueue.jobs.pod import is_gated
from pykueue.manager.indexes import is_group_workload

from .invariants import Invariants
from .pod_invariants import PodInvariants
from .quiet import is_to_run


class KindInvariants(PodInvariants):
    """Those of jobs for their Workloads, and those of pods for the Workloads of groups."""

    def _pod(self, before: Object | None, after: Object | None) -> None:
        pod = after or before
        assert pod is not None
        if IDENTIFIERS.group_name(pod):
            super()._pod(before, after)
        else:
            Invariants._pod(self, before, after)

    def _pods_of(self, workload: Mapping[str, Any]) -> list[Object]:
        return super()._pods_of(workload) if is_group_workload(workload) else []

    def _still_runs(self, workload: Object) -> bool:
        kind = PodInvariants if is_group_workload(workload) else Invariants
        return kind._still_runs(self, workload)

    def reclaimable(self, workload: Mapping[str, Any]) -> Mapping[str, int] | None:
        kind = PodInvariants if is_group_workload(workload) else Invariants
        return kind.reclaimable(self, workload)

    def _quota_returned(self, workload: Object) -> None:
        kind = PodInvariants if is_group_workload(workload) else Invariants
        kind._quota_returned(self, workload)

    def unreacted(self) -> list[str]:
        return [*super().unreacted(), *self._misplaced_groups()]

    def _misplaced_groups(self) -> Iterable[str]:
        """Pods of groups that wait although their Workload is admitted, or run although it is not."""
        for pod in self.objects(PODS):
            workload = self._workload_of(pod) if IDENTIFIERS.group_name(pod) else None
            if workload is None or is_deleting(pod) or is_terminal(pod):
                continue
            name = pod["metadata"]["name"]
            if is_gated(pod) and is_to_run(workload):
                yield f"pod {name} is gated and its workload is admitted"
            elif not is_gated(pod) and not is_to_run(workload):
                yield f"pod {name} runs and its workload is not admitted"

    def unsettled(self) -> list[str]:
        """The users have deleted the sets by now: nothing of their groups is left."""
        groups = [w["metadata"]["name"] for w in self.objects(WORKLOADS) if is_group_workload(w)]
        pods = [pod["metadata"]["name"] for pod in self.objects(PODS) if IDENTIFIERS.group_name(pod)]
        return [
            *Invariants.unsettled(self),
            *(f"pod {name} of a deleted set is left" for name in pods),
            *(f"the group {name} of a deleted set is left" for name in groups),
        ]
