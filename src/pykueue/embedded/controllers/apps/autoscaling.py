"""HorizontalPodAutoscalers: the bounds are kept, and why nothing else is done is said.

This cluster measures no use of CPU or memory. A HorizontalPodAutoscaler therefore shows what it shows on a
cluster without a metrics server: its target is brought between minReplicas and maxReplicas, and the condition
ScalingActive is False.
"""

from __future__ import annotations

from typing import Any

from pykueue.api.objects import Key, Object, key_of
from pykueue.api.resources import AUTOSCALERS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS
from pykueue.clock import Clock
from pykueue.embedded.controllers.apps.conditions import with_condition
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.kube.informer import Informer

#: Seconds after which a target is looked at again.
PERIOD = 15.0
_TARGETS = {resource.kind: resource for resource in (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS)}
_NO_METRICS = (
    "the HPA was unable to compute the replica count: unable to get metrics: "
    "this cluster does not measure its pods"
)


class AutoscalerController:
    """Keyed by namespace and name; run by `run`."""

    def __init__(self, client: Client, autoscalers: Informer, recorder: EventRecorder, clock: Clock) -> None:
        self._client = client
        self._autoscalers = autoscalers
        self._recorder = recorder
        self._clock = clock
        self._controller: Controller[Key] = Controller(
            "horizontal-pod-autoscaler", self._sync, clock=clock, wait_for=[autoscalers.synced]
        )
        autoscalers.on_event(self._changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _changed(self, type_: str, old: Any, new: Any) -> None:
        if new is not None:
            self._controller.queue.add(key_of(new))

    async def _sync(self, key: Key) -> float | None:
        autoscaler = self._autoscalers.get(*key)
        if autoscaler is None:
            return None
        spec, old = autoscaler["spec"], autoscaler.get("status") or {}
        target = spec["scaleTargetRef"]
        resource = _TARGETS.get(target["kind"])
        name = str(target["name"])
        try:
            found = None if resource is None else await self._client.get(resource, name, key[0])
        except ApiError as error:
            if not error.not_found:
                raise
            found = None
        now = self._clock.time()
        if resource is None or found is None:
            text = f"the HPA controller was unable to get the target's current scale: {target['kind']} {name}"
            status = with_condition(old, "AbleToScale", "False", "FailedGetScale", text, now)
            await self._write(autoscaler, status, "FailedGetScale", text)
            return PERIOD
        current = int(found["spec"].get("replicas") or 0)
        wanted = min(max(current, int(spec.get("minReplicas") or 1)), int(spec["maxReplicas"]))
        text = "the HPA controller was able to get the target's current scale"
        status = with_condition(old, "AbleToScale", "True", "SucceededGetScale", text, now)
        status = {**status, "currentReplicas": current, "desiredReplicas": wanted if current else 0}
        if not current:
            text = "scaling is disabled since the replica count of the target is zero"
            status = with_condition(status, "ScalingActive", "False", "ScalingDisabled", text, now)
            await self._write(autoscaler, status)
            return PERIOD
        reason = "FailedGetResourceMetric"
        status = with_condition(status, "ScalingActive", "False", reason, _NO_METRICS, now)
        if wanted != current:
            patch = {"spec": {"replicas": wanted}}
            await self._client.patch(resource, name, key[0], patch, subresource="scale")
            why = "above Spec.MaxReplicas" if wanted < current else "below Spec.MinReplicas"
            text = f"New size: {wanted}; reason: Current number of replicas {why}"
            self._recorder.event(autoscaler, NORMAL, "SuccessfulRescale", text)
        await self._write(autoscaler, status, reason, _NO_METRICS)
        return PERIOD

    async def _write(self, autoscaler: Object, status: Object, reason: str = "", text: str = "") -> None:
        """Write the status where it changed; the event goes with a new reason."""
        old = autoscaler.get("status") or {}
        if status == old:
            return
        if reason and reason not in [one.get("reason") for one in old.get("conditions") or ()]:
            self._recorder.event(autoscaler, WARNING, reason, text)
        written = await self._client.update(
            AUTOSCALERS, {**autoscaler, "status": status}, subresource="status"
        )
        self._autoscalers.note(written)
