"""Quota of running jobs that the status of their Workload no longer shows.

Quota goes back when a job has stopped, not when a status says so. A Workload that was admitted and whose
status is edited (cleared, marked Finished, without its admission) or that vanishes keeps its quota until its
job has stopped; `WorkloadController` writes its status back. Pods count as reclaimable only as far as the
job says so. See docs/decisions/0009-edited-statuses.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from pykueue.api import conditions
from pykueue.api.objects import Key, Object, get, key_of
from pykueue.jobs.slices import REPLACED, replaced_key
from pykueue.manager.cluster import Cluster
from pykueue.manager.indexes import job_uid

from . import transitions


class Reservations:
    """Decides which changes of Workloads give quota back; one per manager, fed by the scheduler."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: Workloads whose quota is kept, as they were when their status last showed it.
        self._kept: dict[Key, Object] = {}
        #: Those of them whose status is being written back.
        self._restoring: set[Key] = set()
        #: Workloads whose quota is being given back, their job having stopped.
        self._releasing: set[Key] = set()
        self._handlers: list[Callable[[Object], None]] = []
        self._restored_handlers: list[Callable[[Key], None]] = []
        self._undone_handlers: list[Callable[[str, Object | None], None]] = []
        self._problem_handlers: list[Callable[[Object], None]] = []
        self._additions: list[Callable[[Object], Object]] = []

    def on_reserving(self, addition: Callable[[Object], Object]) -> None:
        """Let `addition` complete each Workload that gets quota, which saves a separate write."""
        self._additions.append(addition)

    def completed(self, workload: Object) -> Object:
        """The Workload as it is written with its new reservation."""
        for addition in self._additions:
            workload = addition(workload)
        return workload

    def on_agreement(self, handler: Callable[[Object], None]) -> None:
        """Call `handler` with each kept Workload once its status and job agree again: no event says so."""
        self._handlers.append(handler)

    def off_agreement(self, handler: Callable[[Object], None]) -> None:
        """Call a handler of `on_agreement` no longer."""
        self._handlers = [one for one in self._handlers if one != handler]

    def on_restored(self, handler: Callable[[Key], None]) -> None:
        """Call `handler` with each Workload whose status is no longer being written back."""
        self._restored_handlers.append(handler)

    def is_restoring(self, key: Key) -> bool:
        """Whether a write of its status is under way, or ended without an answer."""
        return key in self._restoring

    def begin_restore(self, key: Key) -> None:
        """Keep the quota whatever the job does until `end_restore`: the write cannot be taken back."""
        self._restoring.add(key)

    def end_restore(self, key: Key) -> None:
        """The write of the status was made, or will not be."""
        if key in self._restoring:
            self._restoring.remove(key)
            for handler in self._restored_handlers:
                handler(key)

    @contextmanager
    def releasing(self, key: Key) -> Iterator[None]:
        """While the manager gives the quota back, nothing that is written on the stopped job keeps it."""
        self._releasing.add(key)
        try:
            yield
        finally:
            self._releasing.discard(key)

    def on_undone(self, handler: Callable[[str, Object | None], None]) -> None:
        """Call `handler` when an admission failed, which no event reports.

        With the ClusterQueue of the admission, and the Workload as it is now, if it still exists.
        """
        self._undone_handlers.append(handler)

    def undone(self, cluster_queue: str, workload: Object | None) -> None:
        """The scheduler took back an admission that could not be written."""
        for handler in self._undone_handlers:
            handler(cluster_queue, workload)

    def on_problem(self, handler: Callable[[Object], None]) -> None:
        """Call `handler` with each Workload that the scheduler leaves pending because of a problem.

        The problem is not quota, but what the Workload or its queue specifies.
        It may have left its queue, or be back in it, and no event reports that: where its ClusterQueue does
        not exist, its reason stays the same whether its claims of devices can be counted or not.
        """
        self._problem_handlers.append(handler)

    def problem_found(self, workload: Object) -> None:
        """The scheduler decided that a Workload stays pending because of a problem."""
        for handler in self._problem_handlers:
            handler(workload)

    def __bool__(self) -> bool:
        return bool(self._kept)

    def keys(self) -> Iterable[Key]:
        """The Workloads whose quota is kept against their status."""
        return list(self._kept)

    def lost(self, key: Key) -> Object | None:
        """The Workload as it was before its status lost its quota; None where status and quota agree."""
        return self._kept.get(key)

    def recover(self) -> Iterator[Object]:
        """Keep the quota of Workloads marked as finished whose job runs; yields each as it was before.

        For a manager that has just read everything: it has seen no edit, but knows that this one is wrong.
        """
        for workload in self._cluster.workloads_of_running_jobs():
            key = key_of(workload)
            if conditions.is_finished(workload) and key not in self._kept and not self._is_replaced(workload):
                last = transitions.without_condition(workload, conditions.FINISHED)
                if _shows_admission(last):
                    self._kept[key] = last
                    yield last

    def counted(self, workload: Object) -> Object:
        """The Workload as its quota is counted: with no more reclaimable pods than its job says."""
        if not get(workload, "status", "reclaimablePods"):
            return workload
        counts = self._cluster.reclaimable(workload)
        return workload if counts is None else transitions.reclaimable_at_most(workload, counts)

    def keeps(self, key: Key, old: Object | None, new: Object | None) -> bool:
        """Whether a Workload keeps its quota although `new`, which follows `old`, does not show it."""
        last = self._kept.get(key, old)
        if last is None or new is None or not _is_same(last, new):
            self._restoring.discard(key)
        if (
            last is not None
            and _shows_admission(last)
            and not (new is not None and _is_same(last, new) and _shows_admission(new))
            and key not in self._releasing
            and not (new is not None and self._is_replaced(new))
            and (key in self._restoring or self._cluster.runs(last))
        ):
            self._kept[key] = last
            return True
        if self._kept.pop(key, None) is not None and last is not None:
            for handler in self._handlers:
                handler(last)
        return False

    def _is_replaced(self, workload: Object) -> bool:
        """Whether another slice of its elastic job took over its quota."""
        if conditions.reason(workload, conditions.FINISHED) != REPLACED:
            return False
        others = self._cluster.unfinished_of(job_uid(workload))
        return any(
            conditions.has_quota(other) or replaced_key(other) == key_of(workload)
            for other in others
            if not _is_same(other, workload)
        )


def _shows_admission(workload: Object) -> bool:
    """Whether it has quota and is, or with other answers of its checks would be, admitted."""
    holding = conditions.holding(workload)
    if not holding & conditions.HOLDS_QUOTA or holding & conditions.IS_FINISHED:
        return False
    if not get(workload, "status", "admission"):
        return False
    checks = get(workload, "status", "admissionChecks") or ()
    if replaced_key(workload) is not None:
        return True  # its elastic job runs on while the checks of its growth are answered
    return bool(holding & conditions.IS_ADMITTED) or any(check.get("state") != "Ready" for check in checks)


def _is_same(one: Object, other: Object) -> bool:
    return bool(one["metadata"].get("uid") == other["metadata"].get("uid"))
