"""Usage, nominal quota and entitlements of one run over time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from pykueue.api import kueue
from pykueue.api.hybrid import parts_of, shares_of
from pykueue.engine import Engine, Removed, Upsert
from pykueue.engine.events import Event
from pykueue.questions.share import entitlements
from pykueue.simulate.measures import Outcome, Share, ShareKey, Usage, UsageKey
from pykueue.simulate.plan import Plan

_NANO = 1e-9


class _Owner(NamedTuple):
    """A ClusterQueue or Cohort."""

    kind: str
    name: str


class UsageAccounting:
    """Writes amounts over time into the outcome of a run. Times are seconds from the start."""

    def __init__(self, outcome: Outcome, plan: Plan) -> None:
        self._outcome = outcome
        self._plan = plan
        #: Nominal quota by the object that has it.
        self._quotas: dict[_Owner, list[tuple[UsageKey, float]]] = {}
        #: When shares are sampled next.
        self.next_sample = plan.warm_up if plan.detail else math.inf
        self._sampled = plan.warm_up

    def change(self, key: UsageKey, by: float, now: float) -> None:
        """From now on usage is higher by that much."""
        self._series(self._outcome.usage, key).change(by, now)

    def apply(self, events: Iterable[Event], now: float) -> None:
        """From now on ClusterQueues and Cohorts have the nominal quota that these events give them."""
        for event in events:
            match event:
                case Upsert(kueue.ClusterQueue() | kueue.Cohort() as queue):
                    name = queue.metadata.name if isinstance(queue, kueue.ClusterQueue) else ""
                    self._quota(_Owner(type(queue).__name__, queue.metadata.name), name, queue, now)
                case Removed(kind="ClusterQueue" | "Cohort", name=name):
                    self._quota(_Owner(event.kind, name), "", None, now)

    def _quota(
        self, owner: _Owner, queue: str, obj: kueue.ClusterQueue | kueue.Cohort | None, now: float
    ) -> None:
        quota = self._outcome.quota
        for key, amount in self._quotas.pop(owner, ()):
            self._series(quota, key).change(-amount, now)
        groups = obj.spec.resource_groups if obj is not None else ()
        self._quotas[owner] = [
            (UsageKey(queue, flavor.name, one.name), one.nominal_quota.nanos * _NANO)
            for group in groups
            for flavor in group.flavors
            for one in flavor.resources
        ]
        for key, amount in self._quotas[owner]:
            self._series(quota, key).change(amount, now)

    def sample_shares(self, engine: Engine, now: float) -> None:
        """What each queue is entitled to and has counts for the time since the last sample."""
        self.next_sample = (now // self._plan.interval + 1) * self._plan.interval
        since, self._sampled = self._sampled, now
        if now <= since:
            return
        for (kind, name, resource), one in entitlements(engine).items():
            if kind == "ClusterQueue" and one.demand:
                share = self._outcome.shares.setdefault(ShareKey(name, resource), Share())
                share.add(resource, one, now - since)

    def close(self, engine: Engine, now: float) -> None:
        """The run is over: all series end now, and have intervals of the same width."""
        if self._plan.detail:
            self.sample_shares(engine, now)
        every = (*self._outcome.usage.values(), *self._outcome.quota.values())
        for usage in every:
            usage.until(now)
        widest = max((usage.width for usage in every), default=0.0)
        for usage in every:
            while usage.width < widest:
                usage.halve()

    def _series(self, all: dict[UsageKey, Usage], key: UsageKey) -> Usage:
        usage = all.get(key)
        if usage is None:
            usage = all[key] = Usage(self._plan.interval, since=self._plan.warm_up)
        return usage


def amounts_of(admission: kueue.Admission) -> tuple[tuple[UsageKey, float], ...]:
    """Quota that an admission uses, in base units."""
    assignments = admission.pod_set_assignments
    if len(assignments) == 1 and not parts_of(assignments[0]):
        one = assignments[0]
        return tuple(
            (UsageKey(admission.cluster_queue, one.flavors[name], name), amount.nanos * _NANO)
            for name, amount in one.resource_usage.items()
            if name in one.flavors
        )
    sums: Counter[UsageKey] = Counter()
    for each in assignments:
        parts, pods = parts_of(each), each.count or 1
        for name, amount in each.resource_usage.items():
            for part in shares_of(parts, each.flavors[name], pods, pods) if name in each.flavors else ():
                key = UsageKey(admission.cluster_queue, part.flavor, name)
                sums[key] += amount.nanos * part.pods // pods * _NANO  # type: ignore[assignment]
    return tuple(sums.items())
