"""Writes the status of PreemptionPolicies: whether they are in force, and the preemptions under them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api import conditions
from pykueue.api.objects import Object, get, key_of, replaced, spec_differs
from pykueue.api.preemption_policies import PreemptionPolicy
from pykueue.api.validation.preemption_policies import preemption_policy_errors
from pykueue.clock import Clock
from pykueue.engine import Engine
from pykueue.engine.preemption.damping import preemption_paths, preemptor_uid
from pykueue.kube.controller import Controller
from pykueue.manager.cluster import Cluster
from pykueue.manager.policies import with_active
from pykueue.manager.writes import Writer

from .ledger import with_preemptions

#: Seconds in which preemptions are collected before they are written.
_BATCH = 1.0


class PreemptionPolicies:
    """Reconciles PreemptionPolicies."""

    def __init__(self, cluster: Cluster, engine: Engine, writer: Writer, clock: Clock, workers: int) -> None:
        self._cluster = cluster
        self._engine = engine
        self._writer = writer
        self._clock = clock
        self._informer = cluster.preemption_policies
        #: Preemptions to be written, by policy.
        self._found: dict[str, list[Object]] = {}
        self.controller: Controller[str] = Controller(
            "preemption policies", self._reconcile, clock=clock, workers=workers, wait_for=[cluster.synced]
        )
        self._informer.on_event(self._policy_changed)
        cluster.workloads.on_event(self._workload_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    # What leads to work

    def _policy_changed(self, type_: str, old: Any, new: Any) -> None:
        if spec_differs(old, new):
            for each in self._informer.list():
                self.controller.queue.add(each["metadata"]["name"])
        if old is None and new is not None:
            # What was preempted before this replica led may not be in the status yet.
            for workload in self._cluster.workloads.list():
                self._workload_changed("", None, workload)

    def _workload_changed(self, type_: str, old: Any, new: Any) -> None:
        """Notes a preemption that the ledger may not have."""
        if new is None or not self._engine.has_preemption_policies:
            return
        preempted = conditions.condition(new, conditions.PREEMPTED)
        if preempted is None or preempted.get("status") != "True":
            return
        if old is not None and conditions.condition(old, conditions.PREEMPTED) == preempted:
            return
        paths = preemption_paths(preempted.get("message") or "")
        policy = self._engine.preemption_policy_of(paths[0]) if paths is not None else ""
        if paths is None or not policy:
            return
        namespace, name = key_of(new)
        time = str(preempted.get("lastTransitionTime"))
        found: Object = {
            "time": time,
            "workload": f"{namespace}/{name}",
            "clusterQueue": paths[1][-1],
            "preemptorUID": preemptor_uid(preempted.get("message") or ""),
            "preemptorClusterQueue": paths[0][-1],
            "reason": str(preempted.get("reason")),
            "lostResourceSeconds": self._engine.lost_work(f"{namespace}/{name}", time),
        }
        self._found.setdefault(policy, []).append(found)
        self.controller.queue.add_after(policy, _BATCH)

    # Work

    async def _reconcile(self, name: str) -> float | None:
        found = self._found.pop(name, [])
        try:
            await self._writer.update(self._informer, ("", name), lambda obj: self._judged(obj, found))
        except BaseException:
            self._found[name] = found + self._found.get(name, [])
            raise
        return None

    def _judged(self, obj: Object, found: list[Object]) -> Mapping[str, Any]:
        known = get(obj, "status", "conditions") or ()
        changed = with_active(
            PreemptionPolicy, obj, self._informer.list(), preemption_policy_errors, self._clock.time()
        )
        status = with_preemptions(obj.get("status") or {}, found)
        if changed != list(known):
            status["conditions"] = changed
        return replaced(obj, ("status",), status) if status else obj
