"""Lowers the priority of Workloads admitted for longer than an interval, so that others can preempt them.

It sets a negative `kueue.x-k8s.io/priority-boost` after an interval of admission, and removes it when the
Workload is not admitted any more. Source: docs/reference/kueue-api.md 8.4.
"""

from __future__ import annotations

from typing import Any

from pykueue.api import conditions
from pykueue.api.kueue.names import PRIORITY_BOOST_ANNOTATION
from pykueue.api.objects import Key, Object, annotations_of, get, is_deleting, key_of, labels_of
from pykueue.api.resources import WORKLOADS
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.events import NORMAL, EventRecorder
from pykueue.kube.informer import Informer
from pykueue.manager.components import Component, Context
from pykueue.manager.satellites import PRIORITY_BOOSTER

from .configuration import BoosterConfiguration

#: The name under which it emits events, and of its Lease.
NAME = PRIORITY_BOOSTER.name


class PriorityBooster:
    """Keyed by Workload. No other controller may write the annotation."""

    def __init__(
        self,
        configuration: BoosterConfiguration,
        client: Client,
        recorder: EventRecorder,
        clock: Clock,
        workloads: Informer,
        workers: int = 1,
    ) -> None:
        self._configuration = configuration
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._workloads = workloads
        self._controller: Controller[Key] = Controller(
            NAME, self._reconcile, clock=clock, workers=workers, wait_for=[workloads.synced]
        )
        workloads.on_event(self._changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _changed(self, type_: str, old: Any, new: Any) -> None:
        if new is not None:
            self._controller.queue.add(key_of(new))

    async def _reconcile(self, key: Key) -> float | None:
        workload = self._workloads.get(*key)
        if workload is None or is_deleting(workload):
            return None
        present = annotations_of(workload).get(PRIORITY_BOOST_ANNOTATION, "")
        if not self._in_scope(workload):
            # A boost that is not negative was set by another client, and stays.
            if _number(present) < 0:
                await self._write(workload, None)
            return None
        boost, again = self._boost(workload)
        if present != boost:
            await self._write(workload, boost or None)
        return again

    def _in_scope(self, workload: Object) -> bool:
        configuration = self._configuration
        if configuration.workloads is not None and not configuration.workloads.matches(labels_of(workload)):
            return False
        most = configuration.max_priority
        return most is None or int(get(workload, "spec", "priority") or 0) <= most

    def _boost(self, workload: Object) -> tuple[str, float | None]:
        """The annotation's value, empty for none, and the seconds until it changes by itself."""
        if self._configuration.interval <= 0 or not conditions.is_true(workload, "Admitted"):
            return "", None
        elapsed = self._clock.time() - conditions.since(workload, "Admitted")
        if elapsed < self._configuration.interval:
            return "", self._configuration.interval - elapsed
        boost = -self._configuration.negative_boost
        return (str(boost) if boost else ""), None

    async def _write(self, workload: Object, boost: str | None) -> None:
        """Set or remove the annotation. Raises ApiError."""
        namespace, name = key_of(workload)
        patch = {"metadata": {"annotations": {PRIORITY_BOOST_ANNOTATION: boost}}}
        await self._client.patch(WORKLOADS, name, namespace, patch)
        if boost is not None:
            note = f"Set {PRIORITY_BOOST_ANNOTATION}={boost} after time-sharing window"
            self._recorder.event(workload, NORMAL, "PriorityBoostSet", note)
        else:
            note = "workload not in scope, not admitted, or feature disabled"
            note = f"Cleared {PRIORITY_BOOST_ANNOTATION} ({note})"
            self._recorder.event(workload, NORMAL, "PriorityBoostCleared", note)


def component(configuration: BoosterConfiguration) -> Component:
    """The booster as a part of a manager (`Manager.add`)."""

    def build(context: Context) -> PriorityBooster:
        return PriorityBooster(
            configuration,
            context.connection.client,
            context.recorder(NAME),
            context.clock,
            context.connection.informer(WORKLOADS),
            context.workers,
        )

    return Component(
        PRIORITY_BOOSTER.command,
        "Lowers the priority of Workloads admitted for longer than an interval.",
        build,
        watches=PRIORITY_BOOSTER.watches,
        writes=PRIORITY_BOOSTER.writes,
    )


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return 0
