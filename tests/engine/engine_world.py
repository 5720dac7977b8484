"""A small world for engine tests: objects by short names, decisions carried out in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pykueue.api import decode, encode
from pykueue.api.kueue import V1BETA2
from pykueue.api.meta import format_time
from pykueue.engine import Admit, DecisionLog, Engine, Options, Preempt, Removed, Requeue, Upsert
from pykueue.engine.capacity import SharedCapacity
from pykueue.engine.driver import Driver
from pykueue.engine.policies import NO_POLICIES, Policies

#: When the world begins; workloads are created after it.
START = 1_700_000_000.0
FUNGIBILITY = {"MS": "MayStopSearch", "TN": "TryNextFlavor"}
PREFERENCES = {"BoP": "BorrowingOverPreemption", "PoB": "PreemptionOverBorrowing"}


def quota(text: Any) -> dict[str, str]:
    """`4`, or `4 BL 2 LL 1`: nominal quota, borrowing limit, lending limit."""
    words = str(text).split()
    result = {"nominalQuota": words[0]}
    for name, value in zip(words[1::2], words[2::2], strict=True):
        result[{"BL": "borrowingLimit", "LL": "lendingLimit"}[name]] = value
    return result


def groups(quotas: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Resource groups of {flavor: {resource: quota}}, or of a list of such; {resource: quota} means flavor
    f."""
    result = []
    for group in quotas if isinstance(quotas, list) else [quotas]:
        if not all(isinstance(value, Mapping) for value in group.values()):
            group = {"f": group}
        result.append(
            {
                "coveredResources": list(next(iter(group.values()))),
                "flavors": [
                    {
                        "name": flavor,
                        "resources": [{"name": name, **quota(text)} for name, text in amounts.items()],
                    }
                    for flavor, amounts in group.items()
                ],
            }
        )
    return result


class World:
    """An engine, the objects applied to it, and its decisions."""

    def __init__(
        self,
        options: Options | None = None,
        namespace: bool = True,
        log: DecisionLog | None = None,
        capacities: Sequence[SharedCapacity] = (),
        policies: Policies = NO_POLICIES,
    ) -> None:
        self.driver = Driver(
            options, START, release="manual", log=log, capacities=capacities, policies=policies
        )
        #: All objects in the order they appeared or changed.
        self.events: list[Upsert] = []
        self.admitted: list[tuple[int, str]] = []
        self.preempted: list[tuple[int, str, str]] = []
        self.reasons: dict[str, str] = {}
        self.last: dict[str, Any] = {}
        self._serial = 0
        if namespace:
            self.namespace("default", {"kubernetes.io/metadata.name": "default"})

    # --- objects ------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        return self.driver.engine

    @property
    def workloads(self) -> dict[str, dict[str, Any]]:
        """Manifests of all workloads as they are now, by name."""
        return {
            obj.metadata.name: {"apiVersion": V1BETA2, "kind": "Workload", **encode(obj)}
            for obj in self.driver.workloads.values()
        }

    def apply(self, manifest: dict[str, Any]) -> None:
        event = Upsert(decode(manifest))
        self.events.append(event)
        self.driver.apply(event)
        self.engine.check()

    def namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        metadata = {"name": name, "labels": dict(labels or {})}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def _kueue(
        self, kind: str, name: str, spec: Mapping[str, Any], namespace: str = "", **more: Any
    ) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": name, "uid": name}
        if namespace:
            metadata["namespace"] = namespace
        return {"apiVersion": V1BETA2, "kind": kind, "metadata": metadata, "spec": dict(spec), **more}

    def flavor(self, name: str = "f", **spec: Any) -> None:
        """`labels`, `taints` (key=value), `tolerations` (keys), `topology`."""
        built: dict[str, Any] = {"nodeLabels": spec.get("labels", {})}
        built["nodeTaints"] = [
            {"key": text.partition("=")[0], "value": text.partition("=")[2], "effect": "NoSchedule"}
            for text in spec.get("taints", ())
        ]
        built["tolerations"] = [{"key": key, "operator": "Exists"} for key in spec.get("tolerations", ())]
        self.apply(self._kueue("ResourceFlavor", name, built))

    def cohort(self, name: str, parent: str = "", quotas: Any = None, weight: Any = None) -> None:
        spec: dict[str, Any] = {"resourceGroups": groups(quotas) if quotas else []}
        if parent:
            spec["parentName"] = parent
        if weight is not None:
            spec["fairSharing"] = {"weight": str(weight)}
        self.apply(self._kueue("Cohort", name, spec))

    def queue_manifest(
        self,
        name: str,
        quotas: Any,
        cohort: str = "",
        strict: bool = False,
        within: str = "Never",
        reclaim: str = "Never",
        borrow: Any = None,
        fungibility: Any = (),
        stop: str = "None",
        weight: Any = None,
        selector: Any = None,
        **spec: Any,
    ) -> dict[str, Any]:
        built: dict[str, Any] = {
            "resourceGroups": groups(quotas),
            "namespaceSelector": {} if selector is None else selector,
            "queueingStrategy": "StrictFIFO" if strict else "BestEffortFIFO",
            "preemption": {"withinClusterQueue": within, "reclaimWithinCohort": reclaim},
            "stopPolicy": stop,
            **spec,
        }
        if selector == "nothing":
            del built["namespaceSelector"]
        if cohort:
            built["cohortName"] = cohort
        if borrow is not None:
            threshold = {} if borrow == "LowerPriority" else {"maxPriorityThreshold": borrow}
            built["preemption"]["borrowWithinCohort"] = {"policy": "LowerPriority", **threshold}
        if fungibility:
            first, second, *rest = fungibility
            built["flavorFungibility"] = {
                "whenCanBorrow": FUNGIBILITY[first],
                "whenCanPreempt": FUNGIBILITY[second],
                **({"preference": PREFERENCES[rest[0]]} if rest else {}),
            }
        if weight is not None:
            built["fairSharing"] = {"weight": str(weight)}
        return self._kueue("ClusterQueue", name, built)

    def queue(self, name: str, quotas: Any, **more: Any) -> None:
        """A ClusterQueue and a LocalQueue of the same name."""
        local = more.pop("local", True)
        self.apply(self.queue_manifest(name, quotas, **more))
        if local:
            self.local(name, name)

    def local(self, name: str, cluster_queue: str, namespace: str = "default", **spec: Any) -> None:
        if "weight" in spec:
            spec["fairSharing"] = {"weight": str(spec.pop("weight"))}
        self.apply(self._kueue("LocalQueue", name, {"clusterQueue": cluster_queue, **spec}, namespace))

    def check(self, name: str, active: bool = True) -> None:
        status = {"conditions": [self.condition("Active", active, "Active")]}
        spec = {"controllerName": "example.com/check"}
        self.apply(self._kueue("AdmissionCheck", name, spec, status=status))

    def condition(self, type: str, status: bool, reason: str, at: float | None = None) -> dict[str, Any]:
        return {
            "type": type,
            "status": "True" if status else "False",
            "reason": reason,
            "message": "",
            "lastTransitionTime": format_time(START + at if at is not None else self.now),
        }

    def workload(
        self,
        name: str,
        queue: str,
        requests: Any = None,
        prio: int = 0,
        created: float | None = None,
        count: int = 1,
        min_count: int | None = None,
        pods: Mapping[str, Any] | None = None,
        namespace: str = "default",
        annotations: Mapping[str, str] | None = None,
        status: Mapping[str, Any] | None = None,
        template: Mapping[str, Any] | None = None,
        owner: str = "",
        **spec: Any,
    ) -> None:
        """A waiting workload. `requests` per pod: cpu, or amounts by resource; `pods` are several pod
        sets."""
        self._serial += 1
        stamp = START + (created if created is not None else self._serial)
        sets = (
            pods
            if pods is not None
            else {"main": {"requests": requests, "count": count, "min": min_count, "template": template}}
        )
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": namespace,
            "uid": f"{name}-{self._serial:04d}",
            "creationTimestamp": format_time(stamp),
            "annotations": dict(annotations or {}),
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": each, "uid": each, "controller": True}
                for each in [owner]
                if each
            ],
        }
        manifest = {
            "apiVersion": V1BETA2,
            "kind": "Workload",
            "metadata": metadata,
            "spec": {
                "queueName": queue,
                "priority": prio,
                "podSets": [pod_set(name, item) for name, item in sets.items()],
                **spec,
            },
            "status": dict(status or {}),
        }
        self.put(manifest)

    def running(
        self,
        name: str,
        queue: str,
        requests: Any,
        prio: int = 0,
        reserved: float | None = None,
        flavor: str = "f",
        evicted: bool = False,
        cluster_queue: str = "",
        count: int = 1,
        admitted: bool = True,
        **more: Any,
    ) -> None:
        """An admitted workload. `requests` per pod."""
        self.workload(name, queue, requests, prio, count=count, **more)
        manifest = self.workloads[name]
        amounts = per_resource(requests)
        conditions = [self.condition("QuotaReserved", True, "QuotaReserved", reserved)]
        if admitted:
            conditions.append(self.condition("Admitted", True, "Admitted", reserved))
        if evicted:
            conditions.append(self.condition("Evicted", True, "Preempted"))
        status = {
            "conditions": conditions,
            "admission": {
                "clusterQueue": cluster_queue or queue,
                "podSetAssignments": [
                    {
                        "name": "main",
                        "count": count,
                        "flavors": dict.fromkeys(amounts, flavor),
                        "resourceUsage": {key: times(text, count) for key, text in amounts.items()},
                    }
                ],
            },
        }
        self.put({**manifest, "status": status})

    def put(self, manifest: dict[str, Any]) -> None:
        self.apply(manifest)

    def change(self, name: str, **spec: Any) -> None:
        """Changes fields of a workload's spec."""
        manifest = self.workloads[name]
        self.put({**manifest, "spec": {**manifest["spec"], **spec}})

    def status(self, name: str, **fields: Any) -> None:
        """Changes fields of a workload's status."""
        manifest = self.workloads[name]
        self.put({**manifest, "status": {**manifest["status"], **fields}})

    def finish(self, *names: str) -> None:
        """Workloads end."""
        for name in names:
            self.driver.apply(Removed("Workload", self.key(name).partition("/")[0], name))
        self.engine.check()

    def release(self, name: str, *more: dict[str, Any]) -> None:
        """An evicted workload gives its quota back; `more` conditions may say why."""
        conditions = [
            self.condition("QuotaReserved", False, "Pending"),
            self.condition("Admitted", False, "NoReservation"),
            *more,
        ]
        workload = self.driver.workloads[self.key(name)]
        if workload.condition_is("Evicted") and not more:
            self.driver.release(self.key(name))
            self.engine.check()
        else:
            self.put({**self.workloads[name], "status": {"conditions": conditions}})

    # --- time ---------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.driver.now

    @now.setter
    def now(self, value: float) -> None:
        self.driver.now = value

    @property
    def cycles(self) -> int:
        return self.driver.cycles

    def cycle(self, carry_out: bool = True) -> list[Any]:
        """One cycle; decisions become visible in the API unless told otherwise."""
        decisions = self.driver.cycle()
        self.engine.check()
        for decision in decisions:
            name = decision.key.partition("/")[2]
            self.last[name] = decision
            match decision:
                case Admit():
                    self.admitted.append((self.cycles, name))
                    self.reasons.pop(name, None)
                case Preempt():
                    self.preempted.append((self.cycles, name, decision.reason))
                case Requeue():
                    self.reasons[name] = decision.reason
        if carry_out:
            self.driver.carry_out()
            self.engine.check()
        self.now += 1
        return decisions

    def stable(self, most: int = 50) -> None:
        """Cycles, carrying out preemptions, until nothing more happens."""
        while self.engine.has_heads():
            assert self.cycles < most, "it does not become stable"
            for decision in self.cycle():
                if isinstance(decision, Preempt):
                    self.release(decision.key.partition("/")[2])

    # --- answers ------------------------------------------------------------------------------------

    def reserved(self) -> set[str]:
        """Names of workloads that hold quota."""
        found = ((key, self.engine.workload(key)) for key in self.driver.workloads)
        return {key.partition("/")[2] for key, view in found if view is not None and view.state == "reserved"}

    def where(self, name: str) -> str:
        keys = [key for key in self.driver.workloads if key.endswith(f"/{name}")]
        view = self.engine.workload(keys[0]) if keys else None
        return view.state if view is not None else "unknown"

    def key(self, name: str) -> str:
        return next(key for key in self.driver.workloads if key.endswith(f"/{name}"))

    def flavors(self, name: str) -> dict[str, dict[str, str]]:
        """Flavors by pod set and resource."""
        view = self.engine.workload(self.key(name))
        assert view is not None
        assert view.admission is not None
        return {given.name: dict(given.flavors) for given in view.admission.pod_set_assignments}

    def counts(self, name: str) -> dict[str, int | None]:
        view = self.engine.workload(self.key(name))
        assert view is not None
        assert view.admission is not None
        return {given.name: given.count for given in view.admission.pod_set_assignments}

    def usage(self, queue: str) -> dict[str, str]:
        """Reserved amounts of a queue: {"flavor/resource": amount}."""
        view = self.engine.cluster_queue(queue)
        assert view is not None
        return {f"{item.flavor}/{item.resource}": str(item.total) for item in view.reservation if item.total}


def per_resource(requests: Any) -> dict[str, str]:
    if isinstance(requests, Mapping):
        return {name: str(amount) for name, amount in requests.items()}
    return {"cpu": str(requests)} if requests is not None else {}


def times(amount: str, count: int) -> str:
    from pykueue.api.quantity import parse

    return str(parse(amount) * count)


def pod_set(name: str, item: Any) -> dict[str, Any]:
    if not isinstance(item, Mapping):
        item = {"requests": item}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "resources": {"requests": per_resource(item.get("requests"))}}],
    }
    spec.update(item.get("template") or {})
    result: dict[str, Any] = {"name": name, "count": item.get("count", 1), "template": {"spec": spec}}
    if item.get("annotations"):
        result["template"]["metadata"] = {"annotations": item["annotations"]}
    if item.get("min") is not None:
        result["minCount"] = item["min"]
    return result
