"""What disruption budgets have left.

A budget counts the healthy pods it selects against how many there must be; evictions spend the difference
(`apiserver/eviction.py`). Where a budget speaks of a part of the pods, or of how many may be missing, what
owns them says how many there should be. Source: the Kubernetes documentation, "Specifying a Disruption
Budget for your Application".
"""

from __future__ import annotations

import math
from typing import Any

from pykueue.api.meta import new_condition
from pykueue.api.objects import Key, Object, condition_of, controller_of, is_deleting, key_of
from pykueue.api.pods import is_ready
from pykueue.api.resources import DEPLOYMENTS, POD_DISRUPTION_BUDGETS, REPLICA_SETS
from pykueue.api.times import parse_time
from pykueue.clock import Clock
from pykueue.embedded.controllers.inventory import Inventory
from pykueue.embedded.podscheduler.terms import label_selector
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.kube.informer import Informer

#: Seconds within which an evicted pod must be on its way out; else it counts as healthy again.
DELETION_TIMEOUT = 120.0
#: Seconds until a budget whose pods' owners cannot be read is tried again.
RETRY_DELAY = 30.0


class _UncountableError(Exception):
    """The expected number of pods is unknown; the text names the controller that has no scale."""


class DisruptionController:
    """Keyed by budget; run by `run`."""

    def __init__(
        self,
        client: Client,
        budgets: Informer,
        pods: Informer,
        inventory: Inventory,
        events: EventRecorder,
        clock: Clock,
    ) -> None:
        self._client = client
        self._budgets = budgets
        self._pods = pods
        self._inventory = inventory
        self._events = events
        self._clock = clock
        self._controller: Controller[Key] = Controller(
            "disruption", self._sync, clock=clock, wait_for=[budgets.synced, pods.synced, inventory.synced]
        )
        budgets.on_event(self._on_budget)
        pods.on_event(self._on_pod)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _on_budget(self, type_: str, old: Any, new: Any) -> None:
        if new is not None:
            self._controller.queue.add(key_of(new))

    def _on_pod(self, type_: str, old: Any, new: Any) -> None:
        if not len(self._budgets):
            return
        shown = [one for one in (old, new) if one is not None]
        for budget in self._budgets.list(shown[0]["metadata"]["namespace"]):
            if any(_selects(budget, pod) for pod in shown):
                self._controller.queue.add(key_of(budget))

    async def _sync(self, key: Key) -> float | None:
        budget: Object | None = self._budgets.get(*key)
        if budget is None:
            return None
        now = self._clock.time()
        pods = [pod for pod in self._pods.list(key[0]) if _selects(budget, pod)]
        again: float | None = None
        try:
            expected, desired = await self._wanted(budget, pods)
        except _UncountableError as error:
            text = f"Failed to calculate the number of expected pods: {error}"
            self._events.event(budget, WARNING, "CalculateExpectedPodCountFailed", text)
            status = self._failed(budget, str(error), now)
            again = RETRY_DELAY
        else:
            if not pods:
                self._events.event(budget, NORMAL, "NoPods", "No matching pods found")
            unconfirmed, again = self._unconfirmed(budget, pods, now)
            healthy = sum(_is_healthy(pod, unconfirmed) for pod in pods)
            status = _status(budget, expected, desired, healthy, unconfirmed, now)
        if status == (budget.get("status") or {}):
            return again
        patched = {key: value for key, value in status.items() if key != "disruptedPods"}
        known = (budget.get("status") or {}).get("disruptedPods") or {}
        kept = status.get("disruptedPods") or {}
        patched["disruptedPods"] = {**dict.fromkeys(known), **kept} or None
        metadata = budget["metadata"]
        try:
            written = await self._client.patch(
                POD_DISRUPTION_BUDGETS,
                metadata["name"],
                metadata["namespace"],
                {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": patched},
                subresource="status",
            )
        except ApiError as error:
            if error.not_found:
                return None
            raise
        self._budgets.note(written)
        return again

    def _failed(self, budget: Object, text: str, now: float) -> Object:
        """Nothing may be evicted as long as it is not known what would be left."""
        status = budget.get("status") or {}
        condition = _condition(budget, "False", "SyncFailed", text, now)
        return {
            "expectedPods": 0,
            "desiredHealthy": 0,
            "currentHealthy": 0,
            **status,
            "disruptionsAllowed": 0,
            "observedGeneration": budget["metadata"].get("generation", 0),
            "conditions": [condition],
        }

    def _unconfirmed(
        self, budget: Object, pods: list[Object], now: float
    ) -> tuple[dict[str, str], float | None]:
        """Evictions that are not yet seen in their pods, and when to look at them again."""
        names = {pod["metadata"]["name"]: pod for pod in pods}
        kept: dict[str, str] = {}
        waits: list[float] = []
        for name, stamp in ((budget.get("status") or {}).get("disruptedPods") or {}).items():
            pod = names.get(name)
            if pod is None or is_deleting(pod):
                continue
            left = parse_time(stamp) + DELETION_TIMEOUT - now
            if left > 0:
                kept[name] = stamp
                waits.append(left)
            else:
                where = "/".join(key_of(budget))
                text = f"Pod was expected by PDB {where} to be deleted but it wasn't"
                self._events.event(pod, WARNING, "NotDeleted", text)
        return kept, min(waits, default=None)

    # How many there should be

    async def _wanted(self, budget: Object, pods: list[Object]) -> tuple[int, int]:
        """How many pods there should be, and how many of them must be healthy."""
        spec = budget.get("spec") or {}
        least, missing = spec.get("minAvailable"), spec.get("maxUnavailable")
        if missing is not None:
            expected = await self._expected(budget, pods)
            return expected, max(0, expected - _part(missing, expected))
        if isinstance(least, str):
            expected = await self._expected(budget, pods)
            return expected, _part(least, expected)
        return len(pods), int(least or 0)

    async def _expected(self, budget: Object, pods: list[Object]) -> int:
        """The sum of what the pods' owners want."""
        owners: dict[str, Object] = {}
        unmanaged: list[str] = []
        for pod in pods:
            owner = controller_of(pod)
            if owner is None:
                unmanaged.append(pod["metadata"]["name"])
            else:
                owners[owner["uid"]] = owner
        if unmanaged:
            text = (
                f"Pods selected by this PodDisruptionBudget are unmanaged: {', '.join(unmanaged)}."
                " They are left out of the number of expected pods, which may result in undefined behavior."
            )
            self._events.event(budget, WARNING, "UnmanagedPods", text)
        namespace = budget["metadata"]["namespace"]
        scales: dict[str, int] = {}
        for owner in owners.values():
            uid, replicas = await self._scale(owner, namespace)
            scales[uid] = replicas
        return sum(scales.values())

    async def _scale(self, owner: Object, namespace: str) -> tuple[str, int]:
        """Uid and wanted replicas of what decides over pods of this owner."""
        resource = self._inventory.resource_of(owner["apiVersion"], owner["kind"])
        if resource is None:
            raise _UncountableError(f"{owner['kind']} of {owner['apiVersion']} is not known")
        try:
            if resource == REPLICA_SETS:
                found = await self._client.get(REPLICA_SETS, owner["name"], namespace)
                above = controller_of(found)
                if above is not None and above["kind"] == DEPLOYMENTS.kind:
                    owner, resource = above, DEPLOYMENTS
            scale = await self._client.get(resource, owner["name"], namespace, subresource="scale")
        except ApiError as error:
            if not error.not_found and error.code != 405:
                raise
            named = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
            text = f"{named} does not implement the scale subresource"
            raise _UncountableError(text) from None
        return owner["uid"], (scale.get("spec") or {}).get("replicas", 0)


def _part(amount: int | str, whole: int) -> int:
    """A number, or the percentage of the whole, rounded up."""
    return math.ceil(int(amount[:-1]) * whole / 100) if isinstance(amount, str) else amount


def _status(
    budget: Object, expected: int, desired: int, healthy: int, unconfirmed: dict[str, str], now: float
) -> Object:
    allowed = max(0, healthy - desired) if expected > 0 else 0
    reason = "SufficientPods" if allowed else "InsufficientPods"
    status: Object = {
        "conditions": [_condition(budget, "True" if allowed else "False", reason, "", now)],
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "expectedPods": expected,
        "observedGeneration": budget["metadata"].get("generation", 0),
    }
    if unconfirmed:
        status["disruptedPods"] = unconfirmed
    return status


def _condition(budget: Object, value: str, reason: str, text: str, now: float) -> Object:
    old = condition_of(budget.get("status"), "DisruptionAllowed")
    generation = budget["metadata"].get("generation", 0)
    return new_condition(old, "DisruptionAllowed", value, reason, text, now, observedGeneration=generation)


def _selects(budget: Object, pod: Object) -> bool:
    """Whether a budget is about the pod; one without a selector is about none."""
    selector = label_selector((budget.get("spec") or {}).get("selector"))
    return selector is not None and selector.matches(pod["metadata"].get("labels") or {})


def _is_healthy(pod: Object, unconfirmed: dict[str, str]) -> bool:
    if is_deleting(pod) or pod["metadata"]["name"] in unconfirmed:
        return False
    return is_ready(pod)
