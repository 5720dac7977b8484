"""Which workers a Workload is offered to (docs/reference/admission-checks.md 16.3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass

ALL_AT_ONCE = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
INCREMENTAL = "kueue.x-k8s.io/multikueue-dispatcher-incremental"
#: Seconds of a round of the incremental dispatcher.
ROUND = 300.0


@dataclass(frozen=True)
class Workers:
    """The workers that a Workload can be offered to."""

    #: Of the configuration, in its order.
    configured: Sequence[str]
    connected: Collection[str]
    #: Those that the Workload's status names as nominated.
    nominated: Sequence[str]


@dataclass(frozen=True)
class Nomination:
    """The workers, and seconds until more of them are nominated; None: never by itself."""

    names: Sequence[str]
    again: float | None = None
    #: Whether it has to be these: other parts of the same job run there.
    fixed: bool = False


class Dispatcher(ABC):
    """Nominates workers for Workloads."""

    @abstractmethod
    def nominate(self, uid: str, workers: Workers, now: float) -> Nomination:
        """The workers to offer the Workload of this uid to."""

    def forget(self, uid: str) -> None:  # noqa: B027 - for those that remember something
        """The Workload is not dispatched any more."""


class AllAtOnce(Dispatcher):
    """All workers that are connected."""

    def nominate(self, uid: str, workers: Workers, now: float) -> Nomination:
        return Nomination(sorted(name for name in workers.configured if name in workers.connected))


class Incremental(Dispatcher):
    """`step` more workers each round; those of earlier rounds stay. When a round began is remembered in
    memory only."""

    def __init__(self, step: int, config_order: bool = True) -> None:
        self._step = step
        self._config_order = config_order
        self._began: dict[str, float] = {}

    def nominate(self, uid: str, workers: Workers, now: float) -> Nomination:
        order = workers.configured if self._config_order else sorted(workers.configured)
        kept = [name for name in workers.nominated if name in workers.configured]
        left = [name for name in order if name not in kept]
        began = self._began.get(uid)
        if kept and began is not None and now < began + ROUND:
            return Nomination(kept, began + ROUND - now if left else None)
        if not left:
            return Nomination(kept)
        self._began[uid] = now
        return Nomination([*kept, *left[: self._step]], ROUND if len(left) > self._step else None)

    def forget(self, uid: str) -> None:
        self._began.pop(uid, None)


class External(Dispatcher):
    """Another controller writes the workers into the status."""

    def nominate(self, uid: str, workers: Workers, now: float) -> Nomination:
        return Nomination(list(workers.nominated))


def dispatcher(name: str, step: int, config_order: bool) -> Dispatcher:
    """The dispatcher of that name; a name that is not built in is an external one."""
    if name == ALL_AT_ONCE:
        return AllAtOnce()
    return Incremental(step, config_order) if name == INCREMENTAL else External()
