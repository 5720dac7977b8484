"""Follows a cluster with watches and compares each decision of its manager as it is written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pykueue.api import DecodeError
from pykueue.api.conversion import ConversionError
from pykueue.api.objects import key_of
from pykueue.api.resources import KUEUE_GROUP, Resource
from pykueue.clock import Clock
from pykueue.engine import Options
from pykueue.kube.client import Client
from pykueue.kube.informer import Informer, InformerFactory
from pykueue.questions.cluster_state import typed
from pykueue.questions.shadow.changes import Change, version_of
from pykueue.questions.shadow.comparison import overdue
from pykueue.questions.shadow.decisions import Observed
from pykueue.questions.shadow.followers import ChangeFollower, Follower, LogFile, LogFollower
from pykueue.questions.shadow.report import DecisionKind, Difference, Report, Tallies

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
        log: LogFile | None = None,
    ) -> None:
        """`kinds` are followed in the versions given, in the order in which the engine should know them.

        `log`: that of Kueue's manager, if it can be read.
        """
        self._clock = clock or Clock()
        self._settings = settings or Settings()
        self._caches = InformerFactory(client, clock=self._clock)
        self._kinds = [(kind, self._caches.informer(kind, optional=True)) for kind in kinds]
        self._follower: Follower = (
            ChangeFollower(options, self._settings.window, self._compared)
            if log is None
            else LogFollower(options, log, self._compared)
        )
        self._on_compared = on_compared
        self._started: float | None = None
        self._changes = 0
        self._tallies = Tallies()
        self._last_change = 0.0
        self._last_version = 0
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
        self._started = self._last_change = self._clock.time()
        found = [
            change
            for kind, informer in self._kinds
            for obj in informer.list()
            if (change := self._change(kind, None, obj)) is not None
        ]
        self._follower.begin(found, self._started)
        for kind, informer in self._kinds:
            self._follow(kind, informer)
        log.info("following the decisions of the manager")

    def _follow(self, kind: Resource, informer: Informer) -> None:
        known = {key_of(obj): obj["metadata"].get("resourceVersion") for obj in informer.list()}

        def on_event(_type: str, before: Any, after: Any) -> None:
            obj = before if after is None else after
            if before is None and known.pop(key_of(obj), None) == obj["metadata"].get("resourceVersion"):
                return  # part of the state at the start
            change = self._change(kind, before, after)
            if change is not None:
                self._follower.add(change)
                self._changes += 1
                self._last_change, self._checked_overdue = change.received, False
                self._last_version = max(self._last_version, change.version)

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
        for number, _ in enumerate(self._follower.work(before), 1):
            if number % _BATCH == 0:
                await asyncio.sleep(0)
        now = self._clock.time()
        quiet = not self._follower.waiting() and now - self._last_change > self._settings.patience
        if quiet and not self._checked_overdue:
            self._checked_overdue = True
            for difference in overdue(self._follower.engine, self._last_version, now):
                if difference.workload not in self._overdue:
                    self._overdue.add(difference.workload)
                    self._count("Overdue", difference)

    def _compared(self, about: Observed, difference: Difference | None) -> None:
        self._overdue.discard(about.workload)
        self._count(about.kind, difference)

    def _count(self, kind: DecisionKind, difference: Difference | None) -> None:
        self._tallies.count(kind, difference)
        if self._on_compared is not None:
            self._on_compared(kind, difference)

    def report(self) -> Report:
        """What was compared so far."""
        now = self._clock.time()
        report = self._tallies.report(self._started if self._started is not None else now, now)
        report.cycles, report.late_changes = self._follower.cycles, self._follower.late
        report.changes = self._changes
        report.unread = [f"{what}: {why}" for what, why in self._unread.items()]
        return report
