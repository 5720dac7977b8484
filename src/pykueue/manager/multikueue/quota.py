"""Quota of a manager's ClusterQueues that follows the quota of its workers (gate
MultiKueueManagerQuotaAutomation). Source: docs/reference/admission-checks.md 20.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pykueue.api import quantity
from pykueue.api.kueue import names
from pykueue.api.meta import set_condition
from pykueue.api.objects import Object, condition_of, get, key_of, replaced, spec_differs
from pykueue.api.queue_specs import parameters_name
from pykueue.clock import Clock
from pykueue.kube.controller import Controller
from pykueue.kube.informer import Informer
from pykueue.manager.cluster import Cluster

from .remote import Session

#: Type of the condition of ClusterQueues, also of those whose quota is not automated.
CONDITION = "MultiKueueManagerQuotaAutomation"


class _State(NamedTuple):
    """Status, reason and message of the condition."""

    status: str
    reason: str
    message: str


_AUTOMATED = _State("True", "QuotaAutomated", "The quota is that of the MultiKueue workers")
_NOT_REQUESTED = _State("False", "NotRequested", "The MultiKueueConfig does not request automated quota")


def _unsupported(message: str) -> _State:
    return _State("False", "UnsupportedConfiguration", message)


class QuotaAutomation:
    """Writes the sum of the workers' nominal quotas into ClusterQueues with a MultiKueue check."""

    def __init__(
        self,
        cluster: Cluster,
        sessions: Callable[[], Mapping[str, Session]],
        configs: Informer,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._writer = cluster.connection.writer
        self._sessions = sessions
        self._configs = configs
        self._clock = clock
        self.controller: Controller[str] = Controller(
            "multikueue quota controller", self._reconcile, clock=clock, wait_for=[cluster.synced]
        )
        for informer in (cluster.cluster_queues, cluster.local_queues, cluster.checks, configs):
            informer.on_event(self._on_event)

    def _on_event(self, type_: str, old: Any, new: Any) -> None:
        if spec_differs(old, new):
            self.add_all()

    def add_all(self) -> None:
        """Reconcile all ClusterQueues: few change, and seldom."""
        for queue in self._cluster.cluster_queues.list():
            self.controller.queue.add(queue["metadata"]["name"])

    async def _reconcile(self, name: str) -> float | None:
        queue = self._cluster.cluster_queues.get("", name)
        if queue is None:
            return None
        check = self._cluster.check_of(queue, names.MULTIKUEUE_CONTROLLER)
        if check is None:
            await self._write_state(name, None)
            return None
        config = self._configs.get("", parameters_name(check))
        if config is None:
            await self._write_state(name, _unsupported("The MultiKueueConfig is not found"))
        elif get(config, "spec", "quotaManagement") != "Automated":
            await self._write_state(name, _NOT_REQUESTED)
        else:
            await self._write_quota(queue, list(get(config, "spec", "clusters") or ()))
        return None

    async def _write_quota(self, queue: Object, workers: Sequence[str]) -> None:
        name = queue["metadata"]["name"]
        groups = get(queue, "spec", "resourceGroups") or []
        if len(groups) != 1 or len(groups[0].get("flavors") or ()) != 1:
            text = "spec.resourceGroups must have one group with one flavor"
            await self._write_state(name, _unsupported(text))
            return
        total = self._total(name, workers)
        covered = groups[0].get("coveredResources") or ()
        missing = sorted(total.keys() - set(covered))
        if missing:
            text = f"coveredResources lacks resources of workers: {', '.join(missing)}"
            await self._write_state(name, _unsupported(text))
            return
        zero = quantity.parse("0")
        resources = [
            {"name": resource, "nominalQuota": str(total.get(resource, zero))} for resource in covered
        ]

        def step(current: Object) -> Object:
            (group,) = get(current, "spec", "resourceGroups")
            (flavor,) = group["flavors"]
            if _amounts(flavor["resources"]) == _amounts(resources):
                return current
            changed = [{**group, "flavors": [{**flavor, "resources": resources}]}]
            return replaced(current, ("spec", "resourceGroups"), changed)

        await self._writer.update(self._cluster.cluster_queues, ("", name), step, "")
        await self._write_state(name, _AUTOMATED)

    def _total(self, name: str, workers: Sequence[str]) -> dict[str, quantity.Quantity]:
        """The nominal quota of the worker queues behind LocalQueues of the same names, by resource."""
        keys = {key_of(local) for local in self._cluster.local_queues.by_index("clusterQueue", name)}
        total: dict[str, quantity.Quantity] = {}
        sessions = self._sessions()
        for worker in workers:
            session = sessions.get(worker)
            if session is None or session.local_queues is None or session.cluster_queues is None:
                continue
            behind = {
                get(local, "spec", "clusterQueue")
                for local in session.local_queues.list()
                if key_of(local) in keys
            }
            for queue in session.cluster_queues.list():
                if queue["metadata"]["name"] in behind:
                    _add_nominal(total, queue)
        return total

    async def _write_state(self, name: str, state: _State | None) -> None:
        """Write the condition; None removes it."""

        def step(current: Object) -> Object:
            conditions = get(current, "status", "conditions") or []
            if state is None:
                left = [one for one in conditions if one["type"] != CONDITION]
                return current if left == conditions else replaced(current, ("status", "conditions"), left)
            known = condition_of(current.get("status"), CONDITION) or {}
            if tuple(known.get(field) for field in _State._fields) == state:
                return current
            generation = int(get(current, "metadata", "generation") or 0)
            changed = set_condition(conditions, CONDITION, *state, self._clock.time(), generation)
            return replaced(current, ("status", "conditions"), changed)

        await self._writer.update(self._cluster.cluster_queues, ("", name), step)


def _add_nominal(total: dict[str, quantity.Quantity], queue: Mapping[str, Any]) -> None:
    for group in get(queue, "spec", "resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for resource in flavor.get("resources") or ():
                value = quantity.parse(resource.get("nominalQuota") or "0")
                name = resource["name"]
                total[name] = total[name] + value if name in total else value


def _amounts(resources: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Resources as they are compared: limits of borrowing and lending are no part of automated quota."""
    return [
        (one["name"], quantity.parse(one.get("nominalQuota") or "0"), sorted(one.keys())) for one in resources
    ]
