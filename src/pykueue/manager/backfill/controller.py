"""Writes the status of BackfillPolicies: whether they are in force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api.backfill_policies import BackfillPolicy
from pykueue.api.objects import Object, get, replaced, spec_differs
from pykueue.api.validation.backfill_policies import backfill_policy_errors
from pykueue.clock import Clock
from pykueue.kube.controller import Controller
from pykueue.manager.cluster import Cluster
from pykueue.manager.policies import with_active
from pykueue.manager.writes import Writer


class BackfillPolicies:
    """Reconciles BackfillPolicies."""

    def __init__(self, cluster: Cluster, writer: Writer, clock: Clock, workers: int) -> None:
        self._writer = writer
        self._clock = clock
        self._informer = cluster.backfill_policies
        self.controller: Controller[str] = Controller(
            "backfill policies", self._reconcile, clock=clock, workers=workers, wait_for=[cluster.synced]
        )
        self._informer.on_event(self._changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _changed(self, type_: str, old: Any, new: Any) -> None:
        if spec_differs(old, new):
            for each in self._informer.list():
                self.controller.queue.add(each["metadata"]["name"])

    async def _reconcile(self, name: str) -> float | None:
        await self._writer.update(self._informer, ("", name), self._judged)
        return None

    def _judged(self, obj: Object) -> Mapping[str, Any]:
        conditions = with_active(
            BackfillPolicy, obj, self._informer.list(), backfill_policy_errors, self._clock.time()
        )
        if conditions == list(get(obj, "status", "conditions") or ()):
            return obj
        return replaced(obj, ("status", "conditions"), conditions)
