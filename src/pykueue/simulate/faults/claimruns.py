"""Runs whose pods claim devices, while templates, classes, taints and the devices of nodes come and go.

Some name templates of claims, others request the extended resource of the device class.

Troubles, queues and most of what users do are those of every run. Added is what must hold of claims: quota
is reserved for the devices that a template claims, no device is allocated twice, and no pod runs without its
devices.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pykueue.api.objects import Object, get, replaced
from pykueue.api.pods import is_terminal
from pykueue.api.resources import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NODES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from pykueue.clock import Clock
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.nodes.devices import DEVICES, DeviceGroup, annotation
from pykueue.embedded.nodes.pool import NodePool, Simulation
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.manager.configuration import Configuration

from .causes import Causes
from .invariants import Invariants
from .priority_order import AnyOrder
from .quota import holds_quota
from .realpods import RealPods
from .run import Report, Run, play_run
from .scenario import FLAVOR_LABEL, FLAVORS, NAMESPACE, Scenario, scenario
from .trace import Trace
from .users import AGAIN, Users

DRIVER = "gpu.example.com"
#: What quota calls the devices.
GPUS = "example.com/gpus"
#: What pods may request instead of a claim.
EXTENDED = "example.com/gpu"
#: How many devices the templates claim at first. Quota is enough for the largest job with two for each pod.
TEMPLATES = {"one": 1, "pair": 2}
MOST = 2
_DEVICES = annotation([DeviceGroup(driver=DRIVER, name="gpu", count=16)])
POOLS = [
    NodePool(
        name=f"node-{flavor}",
        count=2,
        labels={FLAVOR_LABEL: flavor},
        allocatable={"cpu": "200", "memory": "200Gi", "pods": "200"},
        devices=[DeviceGroup(driver=DRIVER, name="gpu", count=16)],
        simulation=Simulation(run_time="1s-15s", ready_delay="0s-2s", stop_delay="0s-3s", failure_rate=0.02),
    )
    for flavor in FLAVORS
]
_CLASS: Object = {
    "apiVersion": DEVICE_CLASSES.api_version,
    "kind": DEVICE_CLASSES.kind,
    "metadata": {"name": DRIVER},
    "spec": {
        "selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}],
        "extendedResourceName": EXTENDED,
    },
}


def _template(name: str, count: int, selects: bool) -> Object:
    exactly: Object = {"deviceClassName": DRIVER, "count": count}
    if selects:
        exactly["selectors"] = [{"cel": {"expression": f"device.attributes['{DRIVER}'].index < 100"}}]
    return {
        "apiVersion": RESOURCE_CLAIM_TEMPLATES.api_version,
        "kind": RESOURCE_CLAIM_TEMPLATES.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }


def claim_scenario(rng: random.Random) -> Scenario:
    """A scenario with quota for devices, most of whose Jobs claim some."""
    plan = scenario(rng)
    mapping = f"resources: {{deviceClassMappings: [{{name: {GPUS}, deviceClassNames: [{DRIVER}]}}]}}\n"
    objects = [_with_devices(obj) if obj["kind"] == "ClusterQueue" else obj for obj in plan.objects]
    templates = [_template(name, count, rng.random() < 0.5) for name, count in TEMPLATES.items()]
    jobs = [(at, _claiming(rng, job)) for at, job in plan.jobs]
    return replace(
        plan,
        configuration=plan.configuration + mapping,
        objects=[_CLASS, *templates, *objects],
        jobs=jobs,
        acts=plan.acts + rng.choice((2, 6, 12)),
    )


def _with_devices(queue: Object) -> Object:
    (group,) = queue["spec"]["resourceGroups"]
    flavors = []
    for flavor in group["flavors"]:
        (cpu,) = flavor["resources"]
        devices = {"name": GPUS, "nominalQuota": MOST * cpu["nominalQuota"]}
        flavors.append({**flavor, "resources": [cpu, devices]})
    group = {"coveredResources": ["cpu", GPUS], "flavors": flavors}
    return {**queue, "spec": {**queue["spec"], "resourceGroups": [group]}}


def _claiming(rng: random.Random, job: Object) -> Object:
    """The Job with a claim or an extended resource for each of its pods, or as it is."""
    if job["kind"] != "Job" or rng.random() < 0.25:
        return job
    spec = get(job, "spec", "template", "spec")
    (container,) = spec["containers"]
    if rng.random() < 0.3:
        count = str(rng.randint(1, MOST))
        for path in (("resources", "requests", EXTENDED), ("resources", "limits", EXTENDED)):
            container = replaced(container, path, count)
        return replaced(job, ("spec", "template", "spec"), {**spec, "containers": [container]})
    container = replaced(container, ("resources", "claims"), [{"name": "gpu"}])
    claims = [{"name": "gpu", "resourceClaimTemplateName": rng.choice(list(TEMPLATES))}]
    pod = {**spec, "containers": [container], "resourceClaims": claims}
    return replaced(job, ("spec", "template", "spec"), pod)


class ClaimUsers(Users):
    """Users who also replace templates, delete the class, and taint devices or take them from nodes."""

    def __init__(
        self, client: Client, clock: Clock, rng: random.Random, scenario: Scenario, trace: Trace
    ) -> None:
        super().__init__(client, clock, rng, scenario, trace)
        acts = (self._replace_template, self._delete_template, self._delete_class, self._change_devices)
        taints = (self._taint, self._taint, self._remove_taint)
        self._acts = (*self._acts, *acts * 4, *taints, self._delete_slice, self._delete_claim)

    async def _delete_if_there(self, resource: Any, name: str, namespace: str | None) -> None:
        try:
            await self._client.delete(resource, name, namespace)
        except ApiError as error:
            if not error.not_found:
                raise

    async def _replace_template(self) -> str:
        name, count = self._rng.choice(list(TEMPLATES)), self._rng.randint(1, MOST)
        await self._delete_if_there(RESOURCE_CLAIM_TEMPLATES, name, NAMESPACE)
        await self._client.create(RESOURCE_CLAIM_TEMPLATES, _template(name, count, self._rng.random() < 0.5))
        return f"lets template {name} claim {count}"

    async def _delete_template(self) -> str:
        name = self._rng.choice(list(TEMPLATES))
        await self._delete_if_there(RESOURCE_CLAIM_TEMPLATES, name, NAMESPACE)
        return f"deletes template {name}"

    async def _delete_class(self) -> str:
        await self._delete_if_there(DEVICE_CLASSES, DRIVER, None)
        return "deletes the device class"

    async def _change_devices(self) -> str:
        node, count = await self._one(NODES), self._rng.choice((0, 1, 16))
        if node is None:
            return ""
        devices = annotation([DeviceGroup(driver=DRIVER, name="gpu", count=count)]) if count else None
        await self._patch(NODES, node, {"metadata": {"annotations": {DEVICES: devices}}})
        return f"leaves node {node['metadata']['name']} {count} devices"

    async def _delete_slice(self) -> str:
        found = await self._one(RESOURCE_SLICES)
        if found is None:
            return ""
        await self._client.delete(RESOURCE_SLICES, found["metadata"]["name"], None)
        return f"deletes ResourceSlice {found['metadata']['name']}"

    async def _delete_claim(self) -> str:
        found = await self._one(RESOURCE_CLAIMS)
        if found is None:
            return ""
        await self._client.delete(RESOURCE_CLAIMS, found["metadata"]["name"], NAMESPACE)
        return f"deletes claim {found['metadata']['name']}"

    async def _taint(self) -> str:
        node, effect = await self._one(NODES), self._rng.choice(("NoSchedule", "NoExecute"))
        if node is None:
            return ""
        pool = node["metadata"]["name"]
        taint = {"key": "example.com/broken", "effect": effect}
        rule = {
            "apiVersion": DEVICE_TAINT_RULES.api_version,
            "kind": DEVICE_TAINT_RULES.kind,
            "metadata": {"generateName": "broken-"},
            "spec": {"deviceSelector": {"driver": DRIVER, "pool": pool}, "taint": taint},
        }
        await self._client.create(DEVICE_TAINT_RULES, rule)
        return f"taints the devices of node {pool} with {effect}"

    async def _remove_taint(self) -> str:
        found = await self._one(DEVICE_TAINT_RULES)
        if found is None:
            return ""
        await self._delete_if_there(DEVICE_TAINT_RULES, found["metadata"]["name"], None)
        return f"removes the taint {found['metadata']['name']}"

    async def mend(self) -> None:
        # Queues are gone only after their jobs have run, which need devices.
        for rule in await self._all(DEVICE_TAINT_RULES):
            await self._delete_if_there(DEVICE_TAINT_RULES, rule["metadata"]["name"], None)
        for node in await self._all(NODES):
            await self._patch(NODES, node, {"metadata": {"annotations": {DEVICES: _DEVICES}}})
        for resource, wanted in ((DEVICE_CLASSES, [_CLASS]), (RESOURCE_CLAIM_TEMPLATES, self._templates())):
            for obj in wanted:
                metadata = obj["metadata"]
                while await self._client.find(resource, metadata["name"], metadata.get("namespace")) is None:
                    try:
                        await self._client.create(resource, obj)
                    except ApiError as error:
                        self._trace.note("user", f"{metadata['name']} is refused: {error.message}")
                        await self._clock.sleep(AGAIN)
        await super().mend()

    def _templates(self) -> list[Object]:
        return self._scenario.of_kind(RESOURCE_CLAIM_TEMPLATES.kind)


class ClaimInvariants(Invariants):
    """Quota is reserved for devices as a template said, and each device belongs to one claim."""

    def __init__(
        self, server: Server, clock: Clock, trace: Trace, causes: Causes, configuration: Configuration
    ) -> None:
        super().__init__(server, clock, trace, causes, configuration)
        self._order = AnyOrder(self, configuration)
        #: By template: the numbers of devices that it has claimed.
        self._counts: dict[str, set[int]] = {}
        kind = RESOURCE_CLAIM_TEMPLATES
        server.core.on_stored(f"{kind.group}/{kind.plural}", self._template_stored)
        server.core.on_stored(f"{RESOURCE_CLAIMS.group}/{RESOURCE_CLAIMS.plural}", self._claim_stored)
        for resource in (RESOURCE_CLAIM_TEMPLATES, DEVICE_CLASSES, RESOURCE_SLICES):
            server.core.on_stored(f"{resource.group}/{resource.plural}", self._countability_stored)

    def _countability_stored(self, _new: Any, _old: Any) -> None:
        """Workloads may be counted again, or no more: the manager has to react, so that it is not quiet."""
        self.last_write = self._clock.time()

    def _template_stored(self, new: Any, old: Any) -> None:
        if new is not None:
            (request,) = new.object["spec"]["spec"]["devices"]["requests"]
            counts = self._counts.setdefault(new.object["metadata"]["name"], set())
            counts.add(request["exactly"]["count"])

    def _claim_stored(self, new: Any, old: Any) -> None:
        if new is None or not list(_allocated(new.object)):
            return
        claims: Counter[tuple[str, str]] = Counter()
        for claim in self.objects(RESOURCE_CLAIMS):
            claims.update(_allocated(claim))
        for device, number in claims.items():
            if number > 1:
                self._violate(dict(new.object), f"device {'/'.join(device)} is allocated to {number} claims")

    def _workload(self, before: Object | None, after: Object | None) -> None:
        super()._workload(before, after)
        if after is not None and holds_quota(after) and not (before is not None and holds_quota(before)):
            for template, each in _reserved_devices(after):
                if each not in self._counts.get(template, set()):
                    self._violate(after, f"{each} {GPUS} are reserved for each pod with template {template}")
            for requested, each in _reserved_extended(after):
                if each != requested:
                    self._violate(after, f"{each} {GPUS} are reserved for {requested} {EXTENDED} of each pod")

    def charged(self, job: Object) -> Mapping[str, int]:
        """The extended resource is charged as the devices that stand for it."""
        found = dict(super().charged(job))
        extended = found.pop(EXTENDED, 0)
        return {**found, GPUS: extended} if extended else found

    def waits(self, workload: Object) -> bool:
        """One whose claims cannot be counted stays outside its queue."""
        return super().waits(workload) and all(
            self._can_be_counted(str(claim.get("resourceClaimTemplateName")))
            for pods in get(workload, "spec", "podSets") or ()
            for claim in get(pods, "template", "spec", "resourceClaims") or ()
        )

    def _can_be_counted(self, template: str) -> bool:
        """Whether a template is there, and as many devices as it selects, where it selects any."""
        found = self.find(RESOURCE_CLAIM_TEMPLATES, NAMESPACE, template)
        if found is None:
            return False
        (request,) = get(found, "spec", "spec", "devices", "requests")
        if not request["exactly"].get("selectors"):
            return True
        devices = sum(len(get(one, "spec", "devices") or ()) for one in self.objects(RESOURCE_SLICES))
        return bool(self.objects(DEVICE_CLASSES)) and devices >= int(request["exactly"]["count"])

    def _pod(self, before: Object | None, after: Object | None) -> None:
        super()._pod(before, after)
        if after is None or is_terminal(after) or not get(after, "spec", "nodeName"):
            return
        if before is None or not get(before, "spec", "nodeName"):
            self._has_devices(after)

    def _has_devices(self, pod: Object) -> None:
        """A pod that is bound to a node has devices of that node, by claims that are reserved for it."""
        for name, claimed in _claims(pod):
            claim = self.find(RESOURCE_CLAIMS, NAMESPACE, claimed)
            reserved = get(claim or {}, "status", "reservedFor") or ()
            if claim is None or pod["metadata"]["uid"] not in [user.get("uid") for user in reserved]:
                self._violate(pod, f"runs and {name} is not reserved for it")
            elif {pool for pool, _ in _allocated(claim)} != {get(pod, "spec", "nodeName")}:
                self._violate(pod, f"runs on {get(pod, 'spec', 'nodeName')} without devices of that node")


def _claims(pod: Object) -> Iterator[tuple[str, str]]:
    """What a pod needs devices for, and the name of the claim in its status; empty without one."""
    named = {
        one["name"]: one.get("resourceClaimName") for one in get(pod, "status", "resourceClaimStatuses") or ()
    }
    for one in get(pod, "spec", "resourceClaims") or ():
        yield f"claim {one['name']}", str(named.get(one["name"]) or "")
    if _extended(get(pod, "spec")):
        yield EXTENDED, str(get(pod, "status", "extendedResourceClaimStatus", "resourceClaimName") or "")


def _extended(spec: Mapping[str, Any]) -> int:
    """How much of the extended resource the containers of a pod request."""
    requests = (get(dict(one), "resources", "requests") or {} for one in spec.get("containers") or ())
    return sum(int(each.get(EXTENDED, 0)) for each in requests)


def _allocated(claim: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Pool and name of the devices of a claim; a node's pool has its name."""
    for one in get(dict(claim), "status", "allocation", "devices", "results") or ():
        yield one["pool"], one["device"]


def _reserved_devices(workload: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The templates of its pods, and the devices that are reserved for each pod."""
    for pods, each in _reserved(workload):
        for claim in get(pods, "template", "spec", "resourceClaims") or ():
            yield str(claim.get("resourceClaimTemplateName")), each


def _reserved_extended(workload: Mapping[str, Any]) -> Iterator[tuple[int, float]]:
    """What each pod requests of the extended resource, and the devices that are reserved for it."""
    for pods, each in _reserved(workload):
        if requested := _extended(get(pods, "template", "spec")):
            yield requested, each


def _reserved(workload: Mapping[str, Any]) -> Iterator[tuple[Object, float]]:
    """The pod sets, and the devices that are reserved for each pod."""
    assigned = {
        str(one["name"]): one for one in get(dict(workload), "status", "admission", "podSetAssignments") or ()
    }
    for pods in get(dict(workload), "spec", "podSets") or ():
        given = assigned.get(str(pods["name"]), {})
        amount = int((given.get("resourceUsage") or {}).get(GPUS, 0))
        if count := int(given.get("count") or 0):
            yield pods, amount / count


class ClaimRun(Run):
    """A run of jobs whose pods claim devices."""

    invariants_class = ClaimInvariants
    users_class = ClaimUsers

    def real_pods(self) -> RealPods:
        return RealPods(self.server, self.clock, self._fork(), self.plan.kinds, POOLS)


def play_claims(seed: int) -> Report:
    """Play the run of this seed, in virtual time."""
    rng = random.Random(seed)
    report = play_run(ClaimRun, seed, claim_scenario(rng), rng, True)
    return replace(report, options=" --claims")
