"""Runs whose queues have a ProvisioningRequest check, and an autoscaler that provides, fails and takes back.

Troubles, queues and what users do are those of every run; what must hold of requests is added. Source:
docs/reference/admission-checks.md 11.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pykueue.api import conditions
from pykueue.api.kueue import names
from pykueue.api.objects import Object, controller_of, get, key_of
from pykueue.api.resources import PROVISIONING_REQUEST_CONFIGS, PROVISIONING_REQUESTS, WORKLOADS
from pykueue.api.times import format_time
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError

from .checks import CheckController
from .invariants import Invariants
from .run import Report, Run, play_run
from .scenario import CHECK, Scenario, scenario
from .stage import objects_of
from .writers import independent_task

_CONFIG: Object = {
    "apiVersion": PROVISIONING_REQUEST_CONFIGS.api_version,
    "kind": PROVISIONING_REQUEST_CONFIGS.kind,
    "metadata": {"name": "config"},
    "spec": {
        "provisioningClassName": "check-capacity.autoscaling.x-k8s.io",
        "retryStrategy": {"backoffLimitCount": 3, "backoffBaseSeconds": 1, "backoffMaxSeconds": 5},
    },
}

#: By state of the check: the conditions of a request that may lead to it.
_CAUSES = {
    "Ready": {"Provisioned"},
    "Retry": {"Failed", "BookingExpired"},
    "Rejected": {"Failed", "BookingExpired", "CapacityRevoked"},
}


def provisioning_scenario(rng: random.Random) -> Scenario:
    """A scenario in which jobs of all queues wait for a ProvisioningRequest."""
    plan = scenario(rng)
    objects = [obj for obj in plan.objects if obj["kind"] != "AdmissionCheck"]
    for queue in (obj for obj in objects if obj["kind"] == "ClusterQueue"):
        queue["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": CHECK}]}
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": PROVISIONING_REQUEST_CONFIGS.kind, "name": "config"}
    check: Object = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": CHECK},
        "spec": {"controllerName": names.PROVISIONING_CONTROLLER, "parameters": parameters},
    }
    first = next(i for i, obj in enumerate(objects) if obj["kind"] == "ClusterQueue")
    return replace(plan, objects=[*objects[:first], check, *objects[first:]])


class Autoscaler(CheckController):
    """Answers every request, and collects those whose Workload is gone, as the garbage collector would.

    The check's controller is the manager.
    """

    #: How many times each condition was set.
    answers: Counter[str]

    async def activate(self) -> None:
        """Create the configuration that the check names."""
        await self._client.create(PROVISIONING_REQUEST_CONFIGS, _CONFIG)

    def workload_stored(self, before: Object | None, after: Object | None) -> None:
        """Collect the requests of a deleted Workload: another one of its name cannot use them."""
        if before is not None and after is None:
            self._begin(self._collect(before))

    def request_stored(self, before: Object | None, after: Object | None) -> None:
        """Called in the step of the write."""
        if before is None and after is not None:
            self._begin(self._serve(after))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = independent_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _collect(self, workload: Object) -> None:
        # Also what a manager creates that does not know of the deletion yet.
        for _ in range(20):
            await self._clock.sleep(self._rng.uniform(0.1, 2.0))
            for request in (await self._client.list(PROVISIONING_REQUESTS)).items:
                if (controller_of(request) or {}).get("uid") != workload["metadata"]["uid"]:
                    continue
                namespace, name = key_of(request)
                with suppress(ApiError):
                    await self._client.delete(PROVISIONING_REQUESTS, name, namespace)

    async def _serve(self, request: Object) -> None:
        rng = self._rng
        if rng.random() < 0.5:
            await self._say(request, "Accepted", 2.0)
        if rng.random() < 0.2:
            await self._say(request, "Failed", 4.0)
            return
        await self._say(request, "Provisioned", 4.0)
        if rng.random() < 0.2:
            end = rng.choice(("BookingExpired", "BookingExpired", "CapacityRevoked"))
            await self._say(request, end, 15.0)

    async def _say(self, request: Object, kind: str, patience: float) -> None:
        """Set a condition within so many seconds, if the request still exists."""
        await self._clock.sleep(self._rng.uniform(0.1, patience))
        namespace, name = key_of(request)
        condition = {"type": kind, "status": "True", "reason": kind, "message": f"it is {kind}"}
        condition["lastTransitionTime"] = format_time(self._clock.time())
        while True:
            try:
                found = await self._client.get(PROVISIONING_REQUESTS, name, namespace)
                if found["metadata"]["uid"] != request["metadata"]["uid"]:
                    return
                patch = {
                    "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
                    "status": {"conditions": [*(get(found, "status", "conditions") or ()), condition]},
                }
                await self._client.patch(PROVISIONING_REQUESTS, name, namespace, patch, subresource="status")
                self.answers[kind] += 1
                return
            except ApiError as error:
                if error.not_found:
                    return
                if not error.conflict and error.code < 500:
                    raise
            await self._clock.sleep(0.1)


class ProvisioningInvariants(Invariants):
    """A check is answered only as a request of its Workload allows."""

    #: All requests that there were, by uid.
    requests: dict[str, Object]

    def _workload(self, before: Object | None, after: Object | None) -> None:
        super()._workload(before, after)
        if after is None:
            return
        was, now = _state(before), _state(after)
        if now in ("", "Pending", was):
            return
        shown = {
            str(condition["type"])
            for request in self._seen(after)
            for condition in get(request, "status", "conditions") or ()
        }
        if not shown & _CAUSES[now]:
            causes = " or ".join(sorted(_CAUSES[now]))
            self._violate(after, f"the check is {now}, and no request was {causes}")

    def _seen(self, workload: Object) -> list[Object]:
        """The requests of a Workload, as they were last, also those that are gone by now."""
        uid = workload["metadata"]["uid"]
        return [one for one in self.requests.values() if (controller_of(one) or {}).get("uid") == uid]


def _state(workload: Object | None) -> str:
    for check in get(workload or {}, "status", "admissionChecks") or ():
        if check.get("name") == CHECK:
            return str(check.get("state"))
    return ""


class ProvisioningRun(Run):
    """A run with ProvisioningRequests."""

    invariants_class = ProvisioningInvariants
    checks: Autoscaler

    def check_controller(self, client: Client) -> CheckController:
        core, requests = self.server.core, PROVISIONING_REQUESTS
        autoscaler = Autoscaler(client, self.clock, self._fork())
        autoscaler.answers = self.faults
        assert isinstance(self.invariants, ProvisioningInvariants)
        seen = self.invariants.requests = {}

        def stored(new: object, old: object) -> None:
            before, after = objects_of(old, new)  # type: ignore[arg-type]
            if after is not None:
                seen[after["metadata"]["uid"]] = after
            autoscaler.request_stored(before, after)

        core.on_stored(f"{requests.group}/{requests.plural}", stored)
        return autoscaler

    async def _settle(self) -> None:
        await super()._settle()
        client = Client(self.server.transport("user"), clock=self.clock)
        requests = (await client.list(PROVISIONING_REQUESTS)).items
        for workload in (await client.list(WORKLOADS)).items:
            uid = workload["metadata"]["uid"]
            owned = [one for one in requests if (controller_of(one) or {}).get("uid") == uid]
            if conditions.is_finished(workload) and owned:
                self.trace.violate(f"workload {key_of(workload)[1]} has finished and has a request")


def play_provisioning(seed: int) -> Report:
    """Play the run of this seed, in virtual time."""
    rng = random.Random(seed)
    report = play_run(ProvisioningRun, seed, provisioning_scenario(rng), rng, False)
    return replace(report, options=" --provisioning")
