"""Where a workload is, and the only way to move it.

| place | meaning |
|---|---|
| out | in no queue and without quota |
| active | pending, considered in the next cycles |
| inadmissible | pending, considered again only after something it needs may have changed |
| in flight | taken out of its queue for the cycle that is running |
| reserved | has a quota reservation |

Every move is recorded in the undo log as the move back, so a fork undoes all moves in the same way.
Source of the rules: docs/reference/kueue-semantics.md 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pykueue.engine.undo_log import UndoLog
from pykueue.engine.workload import ACTIVE, IN_FLIGHT, INADMISSIBLE, OUT, RESERVED

if TYPE_CHECKING:
    from pykueue.engine.queues.cluster_queue import ClusterQueue
    from pykueue.engine.workload import WorkloadInfo

#: Places a workload can move to, by the place it is in.
TRANSITIONS: Final[Mapping[str, frozenset[str]]] = {
    OUT: frozenset({ACTIVE, INADMISSIBLE, RESERVED}),
    ACTIVE: frozenset({OUT, IN_FLIGHT}),
    INADMISSIBLE: frozenset({OUT, ACTIVE}),
    IN_FLIGHT: frozenset({ACTIVE, INADMISSIBLE, RESERVED}),
    RESERVED: frozenset({OUT}),
}

#: Does what entering or leaving a place means for the workload's queue (`info.queue`).
Step = Callable[["WorkloadInfo"], None]


class Places:
    """Moves the workloads of one engine."""

    __slots__ = ("_back", "_steps", "_undo_log")

    def __init__(self, undo_log: UndoLog, enter: Mapping[str, Step], leave: Mapping[str, Step]) -> None:
        self._undo_log = undo_log
        #: What leaving one place and entering another does, by both; only moves of `TRANSITIONS` are in it.
        self._steps: dict[str, dict[str, tuple[Step | None, Step | None]]] = {
            at: {to: (leave.get(at), enter.get(to)) for to in targets} for at, targets in TRANSITIONS.items()
        }
        #: The moves back, which only an undo makes.
        self._back = {
            (to, at): (leave.get(to), enter.get(at)) for at, targets in TRANSITIONS.items() for to in targets
        }

    def move(self, info: WorkloadInfo, to: str, queue: ClusterQueue | None = None) -> None:
        """Move a workload to another place, of `queue` or else of the queue it is in.

        Raises ValueError for a move that is not in `TRANSITIONS`.
        """
        at = info.place
        steps = self._steps[at].get(to)
        if steps is None:
            raise ValueError(f"workload {info.key} cannot move from {at} to {to}")
        if self._undo_log.on:
            self._undo_log.record_undo(self._move_back, info, at, info.queue)
        leave, enter = steps
        if leave is not None:
            leave(info)
        info.place = to
        if queue is not None:
            info.queue = queue
        if enter is not None:
            enter(info)

    def _move_back(self, info: WorkloadInfo, to: str, queue: ClusterQueue | None) -> None:
        """Undo a move: to the place and the queue before it."""
        leave, enter = self._back[info.place, to]
        if leave is not None:
            leave(info)
        info.place = to
        info.queue = queue
        if enter is not None:
            enter(info)
