"""Follows a cluster with watches and compares each decision of its manager as it is written."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pykueue.api import DecodeError
from pykueue.api.conversion import ConversionError
from pykueue.api.meta import format_time
from pykueue.api.objects import key_of
from pykueue.api.resources import KUEUE_GROUP, Resource
from pykueue.clock import Clock
from pykueue.engine import Engine, Options
from pykueue.kube.client import Client
from pykueue.kube.informer import Informer, InformerFactory
from pykueue.questions.cluster_state import typed
from pykueue.questions.shadow.changes import Change, ChangeQueue, version_of
from pykueue.questions.shadow.comparison import Comparison
from pykueue.questions.shadow.decisions import observed
from pykueue.questions.shadow.report import TIMING, DecisionKind, Difference, Report, Tally

#: Differences that a report lists.
DIFFERENCES_MAX: Final = 1000
#: Changes between two looks at the clock and other tasks.
_BATCH: Final = 50

log = logging.getLogger(__name__)

#: Called with the kind of a decision and the difference; None if the engine decides the same.
OnCompared = Callable[[str, Difference | None], None]


@dataclass(frozen=True)
class Settings:
    """Times of a shadow, in seconds."""

    settle: float = 2.0
    """How long a change is held back, so that changes with lower versions arrive before it is compared."""
    window: float = 5.0
    """How long before its write a decision may have been made."""
    patience: float = 10.0
    """How long a state is unchanged before decisions that the manager does not make are reported."""


class Shadow:
    """Compares the decisions of a cluster's manager with the engine's."""

    def __init__(
        self,
        client: Client,
        options: Options,
        kinds: tuple[Resource, ...],
        settings: Settings | None = None,
        clock: Clock | None = None,
        on_compared: OnCompared | None = None,
    ) -> None:
        """`kinds` are followed in the versions given, in the order in which the engine should know them."""
        self._clock = clock or Clock()
        self._settings = settings or Settings()
        self._caches = InformerFactory(client, clock=self._clock)
        self._kinds = [(kind, self._caches.informer(kind, optional=True)) for kind in kinds]
        self._comparison = Comparison(Engine(options), self._settings.window)
        self._queue = ChangeQueue()
        self._on_compared = on_compared
        self._started: float | None = None
        self._changes = 0
        self._tallies: dict[str, Tally] = {}
        self._differences: deque[Difference] = deque(maxlen=DIFFERENCES_MAX)
        self._omitted = 0
        self._last_change = 0.0
        self._checked_overdue = True
        self._overdue: set[str] = set()
        self._unread: dict[str, str] = {}

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        following = asyncio.create_task(self._caches.run())
        try:
            await self._caches.synced()
            self._begin()
            while True:
                await self._clock.sleep(min(0.5, self._settings.settle / 2))
                await self._work(self._clock.time() - self._settings.settle)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    def _begin(self) -> None:
        for kind, informer in self._kinds:
            for obj in informer.list():
                change = self._change(kind, None, obj)
                if change is not None:
                    self._comparison.apply(change)
            self._follow(kind, informer)
        self._started = self._last_change = self._clock.time()
        log.info("following the decisions of the manager")

    def _follow(self, kind: Resource, informer: Informer) -> None:
        known = {key_of(obj): obj["metadata"].get("resourceVersion") for obj in informer.list()}

        def on_event(_type: str, before: Any, after: Any) -> None:
            obj = before if after is None else after
            if before is None and known.pop(key_of(obj), None) == obj["metadata"].get("resourceVersion"):
                return  # part of the state at the start
            change = self._change(kind, before, after)
            if change is not None:
                self._queue.add(change)

        informer.on_event(on_event)
        known.clear()

    def _change(self, kind: Resource, before: Any, after: Any) -> Change | None:
        obj = before if after is None else after
        namespace, name = key_of(obj)
        try:
            return Change(
                version_of(obj),
                kind.kind,
                namespace,
                name,
                None if before is None else typed(before, kind),
                None if after is None else typed(after, kind),
                self._clock.time(),
            )
        except (ConversionError, DecodeError) as error:
            what = f"{kind.plural}.{kind.group}" if kind.group == KUEUE_GROUP else kind.plural
            self._unread[f"{what} {namespace}/{name}"] = str(error)
            return None

    async def _work(self, before: float) -> None:
        for number, change in enumerate(self._queue.settled(before)):
            self._take(change)
            if number % _BATCH == _BATCH - 1:
                await asyncio.sleep(0)
        now = self._clock.time()
        quiet = not len(self._queue) and now - self._last_change > self._settings.patience
        if quiet and not self._checked_overdue:
            self._checked_overdue = True
            for difference in self._comparison.overdue(now):
                if difference.workload not in self._overdue:
                    self._overdue.add(difference.workload)
                    self._count("Overdue", difference)

    def _take(self, change: Change) -> None:
        decision = observed(change)
        if decision is not None:
            self._overdue.discard(decision.workload)
            self._count(decision.kind, self._comparison.compare(decision, self._queue.following()))
        self._comparison.apply(change)
        self._changes += 1
        self._last_change, self._checked_overdue = change.received, False

    def _count(self, kind: DecisionKind, difference: Difference | None) -> None:
        tally = self._tallies.setdefault(kind, Tally())
        tally.decisions += 1
        if difference is None:
            tally.equal += 1
        else:
            tally.causes[difference.cause] = tally.causes.get(difference.cause, 0) + 1
            self._omitted += len(self._differences) == DIFFERENCES_MAX
            self._differences.append(difference)
        if self._on_compared is not None:
            self._on_compared(kind, difference)

    def report(self) -> Report:
        """What was compared so far."""
        now = self._clock.time()
        made = {kind: tally for kind, tally in self._tallies.items() if kind != "Overdue"}
        decisions = sum(tally.decisions for tally in made.values())
        equal = sum(tally.equal for tally in made.values())
        overdue = self._tallies.get("Overdue", Tally())
        timing = sum(tally.causes.get(cause, 0) for tally in made.values() for cause in TIMING)
        causes: dict[str, int] = {}
        for tally in self._tallies.values():
            for cause, count in tally.causes.items():
                causes[cause] = causes.get(cause, 0) + count
        return Report(
            start=format_time(self._started if self._started is not None else now),
            end=format_time(now),
            decisions=decisions,
            equal=equal,
            share_equal=equal / decisions if decisions else 1.0,
            share_in_cycle=(equal + causes.get("Snapshot", 0)) / decisions if decisions else 1.0,
            share_same=(equal + timing) / decisions if decisions else 1.0,
            kinds=made,
            overdue=overdue.decisions,
            causes=causes,
            differences=list(self._differences),
            omitted=self._omitted,
            changes=self._changes,
            late_changes=self._queue.late,
            unread=[f"{what}: {why}" for what, why in self._unread.items()],
        )
