"""Flavors for pods of a hybrid assignment that lost theirs, of workloads that go on meanwhile.

Like failed nodes they come before all other entries of a cycle, and preempt no others. The flavors stay that
the other pods run on. Source of the rules: docs/reference/policies.md 5.
"""

from __future__ import annotations

from msgspec.structs import replace

from pykueue.api import kueue
from pykueue.api.hybrid import HybridRequest, Part, parts_of
from pykueue.api.hybrid_losses import lost_flavors_of, missing_pods, split_otherwise
from pykueue.engine import capacity
from pykueue.engine.cycle.evaluation import Evaluator
from pykueue.engine.flavors.plan import Option, Plan, Step
from pykueue.engine.flavors.scheduling_class import PodSetClass
from pykueue.engine.queues.cluster_queue import PODS
from pykueue.engine.quota import capacity as quota
from pykueue.engine.workload import WorkloadInfo


class PodReplacement:
    """The search for flavors of one workload."""

    def __init__(self, info: WorkloadInfo, evaluator: Evaluator) -> None:
        assert info.queue is not None
        assert info.scheduling_class is not None
        assert info.admission is not None
        self._info = info
        self._plan: Plan = evaluator.plan(info.scheduling_class, info.queue)
        self._class = info.scheduling_class
        self._lost = lost_flavors_of(info.obj)
        #: Amount by FlavorResource that pod sets before take.
        self._assumed: dict[int, int] = {}

    def find(self) -> kueue.Admission | str:
        """The admission with flavors for as many of the pods as have room, or why none has."""
        info = self._info
        assert info.admission is not None
        given = list(info.admission.pod_set_assignments)
        reasons = []
        for index, missing in missing_pods(info.obj):
            found = self._parts(index, given[index], missing)
            if isinstance(found, str):
                reasons.append(found)
            else:
                given[index] = split_otherwise(given[index], found)
        if given == info.admission.pod_set_assignments:
            return "; ".join(reasons)
        return self._within_capacities(replace(info.admission, pod_set_assignments=given))

    def _parts(self, index: int, given: kueue.PodSetAssignment, missing: int) -> list[Part] | str:
        text = f"{missing} pods of pod set {given.name} lost their flavor"
        step = self._step(index)
        if step is None or step.split is None or step.split.request is None:
            return f"{text}, and the ClusterQueue does not permit others"
        pods = self._class.pod_sets[index]
        kept = {part.flavor: part.pods for part in parts_of(given)}
        request = step.split.request
        added, why = self._added(pods, step, kept, missing)
        if not added:
            return f"{text}, and no other flavor has room: {', '.join(why)}"
        total = {name: kept.get(name, 0) + added.get(name, 0) for name in _order(request, kept)}
        return [Part(name, pods) for name, pods in total.items() if pods]

    def _step(self, index: int) -> Step | None:
        for group in self._plan.groups:
            if list(group.members) == [index]:
                return next((step for step in group.steps if step.split is not None), None)
        return None

    def _added(
        self, pods: PodSetClass, step: Step, kept: dict[str, int], missing: int
    ) -> tuple[dict[str, int], list[str]]:
        """Pods by flavor that have room, and what the other flavors lack."""
        assert step.split is not None
        request = step.split.request
        assert request is not None
        size = request.slice_size
        total = sum(kept.values()) + missing
        bounds = {
            flavor.name: (least * size, most * size)
            for flavor, (least, most) in zip(request.flavors, request.bounds(total), strict=True)
        }
        lacking = {name: max(0, least - kept.get(name, 0)) for name, (least, _) in bounds.items()}
        added: dict[str, int] = {}
        left, why = missing, []
        for option in step.split.options:
            name = option.flavor
            if name in self._lost:
                why.append(f"{name} is lost")
                continue
            others = sum(amount for other, amount in lacking.items() if other != name)
            room = self._room(pods, step, option)
            most = min(room, bounds[name][1] - kept.get(name, 0), left - others)
            count = max(0, most) // size * size
            if count:
                added[name] = count
                left -= count
                lacking[name] = max(0, lacking[name] - count)
                self._assume(pods, step, option, count)
            else:
                why.append(f"{name} has room for {max(0, room)}")
        return added, why

    def _room(self, pods: PodSetClass, step: Step, option: Option) -> int:
        if option.blocker:
            return 0
        room = 2**31
        for resource, usage in zip(step.resources, option.flavor_usages, strict=True):
            amount = 1 if resource == PODS else pods.per_pod.get(resource, 0)
            if amount:
                free = quota.available(usage) - self._assumed.get(usage.flavor_resource, 0)
                room = min(room, free // amount)
        return room

    def _assume(self, pods: PodSetClass, step: Step, option: Option, count: int) -> None:
        for resource, usage in zip(step.resources, option.flavor_usages, strict=True):
            amount = 1 if resource == PODS else pods.per_pod.get(resource, 0)
            known = self._assumed.get(usage.flavor_resource, 0)
            self._assumed[usage.flavor_resource] = known + amount * count

    def _within_capacities(self, admission: kueue.Admission) -> kueue.Admission | str:
        """The admission if shared capacities such as Budgets allow it beside what others hold."""
        info = self._info
        requests = tuple([each for each in info.shared_requests if each[0].flavors is None])
        if not requests:
            return admission
        capacity.release(info.shared)
        try:
            lacking = capacity.lacking(capacity.demands(requests, capacity.assigned_by(admission)))
            texts = [shared.explain(demand) for shared, demand in lacking]
        finally:
            capacity.reserve(info.shared)
        return "; ".join(texts) if texts else admission


def _order(request: HybridRequest, kept: dict[str, int]) -> list[str]:
    """All flavors in the order of preference; those that the request does not name any more at the end."""
    names = [flavor.name for flavor in request.flavors]
    return [*names, *(name for name in kept if name not in names)]
