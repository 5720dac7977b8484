"""Admission fair sharing: what LocalQueues used before, fading with time.

Amounts are kept in nanos (10^-9 of a core, byte or piece). Source: docs/reference/kueue-semantics.md 10.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from pykueue.engine.options import Options
from pykueue.engine.queues.local_queue import LocalQueue
from pykueue.engine.quota.flavor_resources import FlavorResources
from pykueue.engine.quota.usage import to_quantity
from pykueue.engine.undo_log import UndoLog

_NANO = 10**9


class UsageHistory:
    """Computes past usage of LocalQueues."""

    def __init__(self, options: Options, flavor_resources: FlavorResources, undo_log: UndoLog) -> None:
        enabled = options.enabled("AdmissionFairSharing")
        self._settings = options.admission_fair_sharing if enabled else None
        self._flavor_resources = flavor_resources
        self._undo_log = undo_log

    @property
    def on(self) -> bool:
        """Whether admission fair sharing is configured."""
        return self._settings is not None

    def fade(self, seconds: float) -> float:
        """Share of the present in a sample taken after that time (10.2)."""
        settings = self._settings
        if settings is None or settings.usage_half_life <= 0:
            return 0.0
        return float(1 - 0.5 ** (seconds / settings.usage_half_life))

    def usage(self, local: LocalQueue) -> float:
        """What orders a LocalQueue among the others of its ClusterQueue."""
        settings = self._settings
        if settings is None:
            return 0.0
        if local.weight <= 0:
            return inf
        amounts = dict(local.consumed)
        for penalty in local.penalties.values():
            for resource, amount in penalty.items():
                amounts[resource] = amounts.get(resource, 0) + amount
        total = 0.0
        for resource in sorted(amounts):
            total += settings.resource_weights.get(resource, 1.0) * (amounts[resource] / _NANO)
        return total / local.weight

    def penalize(self, local: LocalQueue, key: str, requests: Iterable[tuple[str, int]]) -> None:
        """A workload got quota: its requests (nanos) count before they are sampled (10.3)."""
        settings = self._settings
        if settings is None:
            return
        share = self.fade(settings.sampling_interval)
        penalty: dict[str, int] = {}
        for resource, amount in requests:
            penalty[resource] = penalty.get(resource, 0) + int(amount * share)
        self._undo_log.put(local.penalties, key, penalty)

    def forgive(self, local: LocalQueue, key: str) -> None:
        """The penalty is void."""
        self._undo_log.drop(local.penalties, key)

    def settle(self, local: LocalQueue, key: str, now: float) -> None:
        """The workload was admitted: its penalty becomes past usage."""
        penalty = local.penalties.get(key)
        if penalty is None:
            return
        self.sample(local, now)
        consumed = dict(local.consumed)
        for resource, amount in penalty.items():
            consumed[resource] = consumed.get(resource, 0) + amount
        self._undo_log.set(local, "consumed", consumed)
        self.forgive(local, key)

    def due(self, local: LocalQueue, now: float) -> bool:
        """Whether it is time for a sample."""
        settings = self._settings
        if settings is None:
            return False
        return local.sampled is None or now >= local.sampled + settings.sampling_interval

    def next_sample(self, local: LocalQueue) -> float | None:
        """When the next sample is due."""
        if self._settings is None or local.sampled is None:
            return None
        return local.sampled + self._settings.sampling_interval

    def sample(self, local: LocalQueue, now: float) -> None:
        """Mixes the present usage by admitted workloads into the past (10.2)."""
        settings = self._settings
        if settings is None:
            return
        if local.sampled is not None:
            now = max(now, local.sampled)
        elapsed = 0.0 if local.sampled is None else now - local.sampled
        self._undo_log.set(local, "sampled", now)
        if settings.usage_half_life <= 0:
            self._undo_log.set(local, "consumed", {})
            return
        share = self.fade(elapsed)
        mixed = {resource: int(amount * (1 - share)) for resource, amount in local.consumed.items()}
        for resource, amount in self._used(local).items():
            mixed[resource] = mixed.get(resource, 0) + int(amount * share)
        self._undo_log.set(local, "consumed", mixed)

    def _used(self, local: LocalQueue) -> dict[str, int]:
        """What admitted workloads of a LocalQueue use, in nanos by resource."""
        used: dict[str, int] = {}
        for flavor_resource, amount in local.usage_counts.used.items():
            if amount:
                resource = self._flavor_resources.resource(flavor_resource)
                used[resource] = used.get(resource, 0) + to_quantity(resource, amount).nanos
        return used
