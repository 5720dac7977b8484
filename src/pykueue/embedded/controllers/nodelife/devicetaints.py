"""Pods leave devices whose NoExecute taints their claims do not tolerate, or no longer.

Taints are those of ResourceSlices and of DeviceTaintRules; tolerations are those with which a device was
allocated. Source: the Kubernetes documentation of device taints and tolerations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import Any, Final, NamedTuple

from pykueue.api.decoding import decode_as
from pykueue.api.devices.taints import NO_EXECUTE, DeviceId, selects, tolerated_seconds
from pykueue.api.devices.types import DeviceTaint, DeviceTaintRule, DeviceToleration
from pykueue.api.meta import new_condition
from pykueue.api.objects import Key, Object, is_deleting, key_of
from pykueue.api.pods import is_terminal
from pykueue.api.resources import DEVICE_TAINT_RULES
from pykueue.api.times import parse_time
from pykueue.clock import Clock
from pykueue.embedded.controllers.disruption import disrupt, disruption
from pykueue.embedded.kinds.devices import claims_of, extended_claim_of
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.events import NORMAL, EventRecorder
from pykueue.kube.informer import Informer

REASON: Final = "DeletionByDeviceTaintManager"
MESSAGE: Final = "Device Taint manager: deleting due to NoExecute taint"
EVENT: Final = "DeviceTaintManagerEviction"
IN_PROGRESS: Final = "EvictionInProgress"
WORKERS: Final = 4
#: Seconds between two writes of a rule's status.
STATUS_PERIOD: Final = 10.0

_BY_POOL: Final = "pool"


class _Due(NamedTuple):
    """When a pod must go, and the uids of the rules that make it go."""

    at: float
    rules: frozenset[str]


class DeviceTaintEviction:
    """Its keys are ("pod" or "rule", (namespace, name)); run by `run`."""

    def __init__(
        self,
        client: Client,
        pods: Informer,
        claims: Informer,
        slices: Informer,
        rules: Informer,
        events: EventRecorder,
        clock: Clock,
    ) -> None:
        self._client = client
        self._pods = pods
        self._claims = claims
        self._slices = slices
        self._rules = rules
        self._events = events
        self._clock = clock
        #: Pods that must go later, by uid.
        self._planned: set[str] = set()
        #: How many pods went for each rule, by its uid.
        self._evicted: dict[str, int] = {}
        self._controller: Controller[tuple[str, Key]] = Controller(
            "device-taint-eviction",
            self._sync,
            clock=clock,
            workers=WORKERS,
            wait_for=[pods.synced, claims.synced, slices.synced, rules.synced],
        )
        claims.add_index(_BY_POOL, lambda claim: {(driver, pool) for (driver, pool, _), _ in _results(claim)})
        slices.add_index(_BY_POOL, lambda item: [_pool_of(item)])
        pods.on_event(self._on_pod)
        claims.on_event(self._on_claim)
        slices.on_event(self._on_slice)
        rules.on_event(self._on_rule)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    # Events

    def _on_pod(self, _type: str, old: Any, new: Any) -> None:
        if new is None:
            self._planned.discard(old["metadata"]["uid"])
            return
        bound = new["spec"].get("nodeName") and not (old or {"spec": {}})["spec"].get("nodeName")
        if bound and (claims_of(new) or extended_claim_of(new)):
            self._controller.queue.add(("pod", key_of(new)))

    def _on_claim(self, _type: str, old: Any, new: Any) -> None:
        statuses = [(one or {}).get("status") or {} for one in (old, new)]
        if statuses[0] != statuses[1]:
            for one in (old, new):
                if one is not None:
                    self._queue_users(one)

    def _on_slice(self, _type: str, old: Any, new: Any) -> None:
        if _evicting(old) != _evicting(new):
            for claim in self._claims.by_index(_BY_POOL, _pool_of(new or old)):
                self._queue_users(claim)

    def _on_rule(self, _type: str, old: Any, new: Any) -> None:
        if old is not None and new is not None and old["spec"] == new["spec"]:
            return
        if new is None:
            self._evicted.pop(old["metadata"]["uid"], None)
        else:
            self._controller.queue.add(("rule", key_of(new)))
        for claim in self._claims.list():
            self._queue_users(claim)

    def _queue_users(self, claim: Object) -> None:
        for user in (claim.get("status") or {}).get("reservedFor") or ():
            if user.get("resource") == "pods" and not user.get("apiGroup"):
                self._controller.queue.add(("pod", (claim["metadata"]["namespace"], user["name"])))

    # Pods

    async def _sync(self, key: tuple[str, Key]) -> float | None:
        if key[0] == "rule":
            return await self._sync_rule(key[1])
        pod: Object | None = self._pods.get(*key[1])
        if pod is None:
            return None
        uid, now = pod["metadata"]["uid"], self._clock.time()
        due = self._due(pod)
        if due is None:
            if uid in self._planned:
                self._planned.discard(uid)
                if not is_deleting(pod):
                    self._events.event(pod, NORMAL, EVENT, "Cancelling deletion")
            return None
        if due.at > now:
            self._planned.add(uid)
            return due.at - now
        self._events.event(pod, NORMAL, EVENT, "Marking for deletion")
        await disrupt(self._client, pod, {"conditions": [disruption(REASON, MESSAGE, now)]})
        self._planned.discard(uid)
        for rule in self._rules.list():
            if rule["metadata"]["uid"] in due.rules:
                self._evicted[rule["metadata"]["uid"]] = self._evicted.get(rule["metadata"]["uid"], 0) + 1
                self._controller.queue.add(("rule", key_of(rule)))
        return None

    def _due(self, pod: Object) -> _Due | None:
        """When a pod must go for the taints of its devices; None if it may stay."""
        if not pod["spec"].get("nodeName") or is_terminal(pod) or is_deleting(pod):
            return None
        extended = extended_claim_of(pod)
        at, rules = inf, set()
        for key in (*(claims_of(pod) or ()), *((extended,) if extended else ())):
            claim = self._claims.get(*key)
            users = ((claim or {}).get("status") or {}).get("reservedFor") or ()
            if not any(one.get("uid") == pod["metadata"]["uid"] for one in users):
                continue
            for device, tolerations in _results(claim):
                for taint, rule in self._taints(device):
                    seconds = tolerated_seconds(taint, tolerations)
                    if seconds == inf:
                        continue
                    at = min(at, parse_time(taint.time_added) + seconds)
                    rules.add(rule)
        return None if at == inf else _Due(at, frozenset(rules - {""}))

    def _taints(self, device: DeviceId) -> Iterator[tuple[DeviceTaint, str]]:
        """The NoExecute taints of a device, and the uid of the rule that each comes from, or ""."""
        driver, pool, name = device
        slices = self._slices.by_index(_BY_POOL, (driver, pool))
        newest = max((item["spec"]["pool"].get("generation") or 0 for item in slices), default=0)
        for item in slices:
            if (item["spec"]["pool"].get("generation") or 0) == newest:
                for taint in _evicting(item).get(name, ()):
                    yield decode_as(DeviceTaint, taint), ""
        for rule in self._rules.list():
            decoded = decode_as(DeviceTaintRule, rule)
            if decoded.spec.taint.effect == NO_EXECUTE and selects(decoded, device):
                yield decoded.spec.taint, rule["metadata"]["uid"]

    # Rules

    async def _sync_rule(self, key: Key) -> float | None:
        """Show the progress of a rule in its status."""
        rule: Object | None = self._rules.get(None, key[1])
        if rule is None:
            return None
        now = self._clock.time()
        known: Object = next(
            (one for one in (rule.get("status") or {}).get("conditions") or () if one["type"] == IN_PROGRESS),
            {},
        )
        generation = rule["metadata"].get("generation")
        if known.get("observedGeneration") == generation:
            left = parse_time(known["lastTransitionTime"]) + STATUS_PERIOD - now
            if left > 0:
                return left
        status, reason, message = self._progress(rule)
        if (known.get("status"), known.get("reason"), known.get("message")) == (status, reason, message):
            return None
        condition = new_condition(None, IN_PROGRESS, status, reason, message, now)
        condition["observedGeneration"] = generation
        metadata = {"resourceVersion": rule["metadata"]["resourceVersion"]}
        patch = {"metadata": metadata, "status": {"conditions": [condition]}}
        await self._client.patch(DEVICE_TAINT_RULES, key[1], None, patch, subresource="status")
        return STATUS_PERIOD if status == "True" else None

    def _progress(self, rule: Object) -> tuple[str, str, str]:
        """Status, reason and message of the condition of a rule."""
        uid, effect = rule["metadata"]["uid"], rule["spec"]["taint"]["effect"]
        if effect != NO_EXECUTE:
            reason = "NoEffect" if effect == "None" else "OtherEffect"
            return "False", reason, "Eviction only happens for the NoExecute effect."
        evicted = self._evicted.get(uid, 0)
        so_far = f"{_pods(evicted)} evicted since starting the controller." if evicted else ""
        pending = [
            pod for pod in self._using_devices() if (due := self._due(pod)) is not None and uid in due.rules
        ]
        if not pending:
            return "False", "Completed" if evicted else "NotStarted", so_far
        namespaces = len({pod["metadata"]["namespace"] for pod in pending})
        where = "1 namespace" if namespaces == 1 else f"{namespaces} different namespaces"
        need = "needs" if len(pending) == 1 else "need"
        message = f"{_pods(len(pending))} {need} to be evicted in {where}."
        return "True", "PodsPendingEviction", f"{message} {so_far}".rstrip()

    def _using_devices(self) -> list[Object]:
        users = {
            (claim["metadata"]["namespace"], user["name"])
            for claim in self._claims.list()
            for user in (claim.get("status") or {}).get("reservedFor") or ()
            if user.get("resource") == "pods"
        }
        return [pod for key in sorted(users) if (pod := self._pods.get(*key)) is not None]


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _pool_of(item: Object) -> tuple[str, str]:
    return item["spec"]["driver"], item["spec"]["pool"]["name"]


def _evicting(item: Object | None) -> dict[str, list[Object]]:
    """The NoExecute taints in a slice, by device."""
    return {
        device["name"]: taints
        for device in (item or {}).get("spec", {}).get("devices") or ()
        if (taints := [one for one in device.get("taints") or () if one.get("effect") == NO_EXECUTE])
    }


def _results(claim: Object | None) -> Iterable[tuple[DeviceId, list[DeviceToleration]]]:
    """The devices of a claim, each with the tolerations with which it was allocated."""
    allocation = ((claim or {}).get("status") or {}).get("allocation") or {}
    return [
        (
            (one["driver"], one["pool"], one["device"]),
            [decode_as(DeviceToleration, each) for each in one.get("tolerations") or ()],
        )
        for one in (allocation.get("devices") or {}).get("results") or ()
    ]
