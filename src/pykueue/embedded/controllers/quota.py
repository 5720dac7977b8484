"""ResourceQuotas: their status says what their namespace uses.

The server adds to the usage when it admits an object; this controller recounts when a quota or what it counts
changes. Source: docs/reference/cluster-workloads.md, 4.8.
"""

from __future__ import annotations

from typing import Any

from pykueue.api.objects import Key, Object
from pykueue.api.quantity import Quantity
from pykueue.api.resources import PERSISTENT_VOLUME_CLAIMS, RESOURCE_QUOTAS, SERVICES
from pykueue.api.times import parse_time
from pykueue.clock import Clock
from pykueue.embedded.admission.amounts import Amounts, plus
from pykueue.embedded.admission.quota_usage import (
    COUNTED,
    applies,
    claim_usage,
    count_name,
    is_counted,
    pod_usage,
    service_usage,
    texts,
)
from pykueue.embedded.controllers.inventory import Entry, Inventory
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import Informer

#: Seconds between a change and the count, so that many changes cost one.
BATCH_DELAY = 0.1
#: Seconds until a pod that vanishes by its clock, not by an event, is noticed.
RESYNC = 300.0

WORKERS = 5


class QuotaController:
    """Keyed by namespace and name; run by `run`, beside its informers and inventory."""

    def __init__(
        self, client: Client, quotas: Informer, pods: Informer, inventory: Inventory, clock: Clock
    ) -> None:
        self._client = client
        self._quotas = quotas
        self._pods = pods
        self._inventory = inventory
        self._clock = clock
        self._names: dict[str, set[str]] = {}
        self._controller: Controller[Key] = Controller(
            "resourcequota",
            self._sync,
            clock=clock,
            workers=WORKERS,
            wait_for=[quotas.synced, pods.synced, inventory.synced],
        )
        quotas.on_event(self._quota_changed)
        pods.on_event(self._pod_changed)
        inventory.on_change(self._content_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _quota_changed(self, _: str, old: Any, new: Any) -> None:
        meta = (new or old)["metadata"]
        names = self._names.setdefault(meta["namespace"], set())
        if new is None:
            names.discard(meta["name"])
            return
        names.add(meta["name"])
        if old is None or old.get("spec") != new.get("spec"):
            self._controller.queue.add((meta["namespace"], meta["name"]))

    def _pod_changed(self, _: str, old: Any, new: Any) -> None:
        """A pod that ends counts no longer; others come and go with their inventory entries."""
        if new is None or old is None:
            self._changed((new or old)["metadata"]["namespace"])
        elif (old.get("status") or {}).get("phase") != (new.get("status") or {}).get("phase"):
            self._changed(new["metadata"]["namespace"])

    def _content_changed(self, old: Entry | None, new: Entry | None) -> None:
        if old is None or new is None:
            entry = new or old
            assert entry is not None
            self._changed(entry.namespace)

    def _changed(self, namespace: str) -> None:
        for name in self._names.get(namespace, ()):
            self._controller.queue.add_after((namespace, name), BATCH_DELAY)

    async def _sync(self, key: Key) -> float | None:
        namespace, name = key
        quota = self._quotas.get(namespace, name)
        if quota is None:
            return None
        hard: dict[str, str] = (quota.get("spec") or {}).get("hard") or {}
        found = await self._used(quota, set(hard))
        zero = Quantity.of(0)
        used = texts({resource: found.get(resource, zero) for resource in hard})
        status = quota.get("status") or {}
        if status.get("hard") != hard or status.get("used") != used:
            changed = {**quota, "status": {"hard": hard, "used": used}}
            try:
                await self._client.update(RESOURCE_QUOTAS, changed, subresource="status")
            except ApiError as error:
                if error.conflict:  # another object was admitted meanwhile
                    return BATCH_DELAY
                if not error.not_found:
                    raise
        return RESYNC

    async def _used(self, quota: Object, wanted: set[str]) -> Amounts:
        namespace = quota["metadata"]["namespace"]
        total: Amounts = {}
        now = self._clock.time()
        for pod in self._pods.list(namespace):
            deletion = pod["metadata"].get("deletionTimestamp")
            deleted_at = parse_time(deletion) if deletion else None
            if is_counted(pod, now, deleted_at) and applies(quota, True, pod):
                total = plus(total, pod_usage(pod))
        if not applies(quota, False, {}):
            return total
        counts: dict[str, int] = {}
        for entry in self._inventory.content(namespace):
            group, plural = entry.resource.group, entry.resource.plural
            names = [count_name(group, plural)]
            if not group and plural in COUNTED and plural != "pods":
                names.append(plural)
            for one in names:
                counts[one] = counts.get(one, 0) + 1
        total.update({one: Quantity.of(count) for one, count in counts.items()})
        if any("storage" in one for one in wanted):
            for claim in (await self._client.list(PERSISTENT_VOLUME_CLAIMS, namespace)).items:
                total = plus(total, {**claim_usage(claim), "persistentvolumeclaims": Quantity.of(0)})
        if any(one.startswith("services.") for one in wanted):
            for service in (await self._client.list(SERVICES, namespace)).items:
                total = plus(total, {**service_usage(service), "services": Quantity.of(0)})
        return total
