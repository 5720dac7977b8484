"""Reading and replaying the recorded scenarios of the reference implementation (their README has the
format)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pykueue.api import KINDS, decode, kueue
from pykueue.api.kueue import Workload
from pykueue.api.meta import Condition, format_time, parse_time
from pykueue.api.quantity import parse
from pykueue.engine import Admit, Engine, Options, Pend, Preempt, Transformation, Upsert
from pykueue.engine.preemption import Need

DATA = Path(__file__).parents[3] / "shared" / "conformance"

#: Conditions a release writes: quota is gone and the workload may queue again.
_RELEASED = ("QuotaReserved", "Admitted")


@cache
def load(file: str) -> list[dict[str, Any]]:
    """All scenarios of one file."""
    with (DATA / file).open() as lines:
        return [json.loads(line) for line in lines]


def options_of(scenario: dict[str, Any]) -> Options:
    """The configuration a scenario was recorded with."""
    more: dict[str, Any] = {}
    if scenario.get("fairSharingStrategies"):
        more["preemption_strategies"] = tuple(scenario["fairSharingStrategies"])
    transformations = tuple(
        Transformation(
            input=rule["input"],
            outputs={name: parse(factor) for name, factor in rule.get("outputs", {}).items()},
            strategy=rule.get("strategy", "Retain"),
            multiply_by=rule.get("multiplyBy", ""),
        )
        for rule in scenario.get("resourceTransformations") or ()
    )
    return Options(
        gates=scenario.get("featureGates") or {},
        fair_sharing=bool(scenario.get("fairSharing")),
        transformations=transformations,
        **more,
    )


class Replay:
    """An engine filled with a scenario's objects, and the API objects as decisions change them."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        self.scenario = scenario
        self.now = parse_time(scenario["now"])
        self.engine = Engine(options_of(scenario))
        self.workloads: dict[str, Workload] = {}
        self.reserved: dict[str, Any] = {}
        self.preempted: list[tuple[int, str, str]] = []
        self.admitted: list[tuple[int, str]] = []
        self.reasons: dict[str, str] = {}
        #: (workload, reason) of the events these decisions cause.
        self.events: list[tuple[str, str]] = []
        self.cycles = 0
        for manifest in self._manifests():
            obj = decode(manifest)
            if isinstance(obj, Workload):
                self.workloads[key(obj)] = obj
                if obj.condition_is("QuotaReserved") and obj.status.admission is not None:
                    self.reserved[key(obj)] = obj.status.admission
            self.engine.apply(Upsert(obj))
        self.engine.check()

    def _manifests(self) -> Iterator[dict[str, Any]]:
        objects = self.scenario["objects"]
        if not any(item["kind"] == "Namespace" for item in objects):
            yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
        names = set()
        for number, item in enumerate(objects):
            if (item["apiVersion"], item["kind"]) not in KINDS:
                continue
            metadata = dict(item["metadata"])
            # Equal timestamps are decided by the order of the input.
            metadata.setdefault("uid", f"{number:06d}")
            names.add((item["kind"], metadata["name"]))
            item = {**item, "metadata": metadata}
            if item.get("spec", {}).get("queueName") == "incoming":
                item.pop(
                    "status", None
                )  # one recording gave the incoming workload a reservation it did not have
            if item["kind"] == "ClusterQueue" and self.scenario["kind"] == "preemption":
                item["spec"] = _with_quotas(item["spec"])
            yield item
        for item in objects:
            if item["kind"] != "ClusterQueue":
                continue
            strategy = item["spec"].get("admissionChecksStrategy") or {}
            for rule in strategy.get("admissionChecks", ()):
                if ("AdmissionCheck", rule["name"]) not in names:
                    names.add(("AdmissionCheck", rule["name"]))
                    yield _active_check(rule["name"])

    def cycle(self) -> list[Any]:
        """One cycle."""
        self.cycles += 1
        decisions = self.engine.cycle(self.now)
        self.engine.check()
        if self.scenario["suite"] == "random" and self.cycles == 1:
            # Recorded right after the queues were created: the flush this causes came while the heads of the
            # first cycle were in flight, which puts them back in line (reference/kueue-semantics.md 4.5).
            self.engine.flush()
        for decision in decisions:
            if isinstance(decision, Admit):
                self.reserved[decision.key] = decision.admission
                self.admitted.append((self.cycles, decision.key))
                self.reasons.pop(decision.key, None)
                self.events.append((decision.key, "QuotaReserved"))
                if decision.replaces:
                    self.events.append((decision.replaces, "WorkloadSliceReplaced"))
                if decision.admitted:
                    self.events.append((decision.key, "Admitted"))
            elif isinstance(decision, Preempt):
                self.preempted.append((self.cycles, decision.key, decision.reason))
                self.events += [(decision.key, "EvictedDueToPreempted"), (decision.key, "Preempted")]
                self.events.append((decision.preemptor, "PreemptedWorkload"))
            elif isinstance(decision, Pend):
                self.reasons[decision.key] = decision.reason
                self.events.append((decision.key, decision.reason))
        return decisions

    def until_stable(self) -> None:
        """Cycles, carrying out preemptions, until nothing is in line or three cycles changed nothing."""
        idle = 0
        while idle < 3 and any(self.queues()[0].values()) and self.cycles < 1000:
            decisions = self.cycle()
            changed = False
            for decision in decisions:
                if isinstance(decision, Admit):
                    changed = True
                    self._show(decision.key, holds=True)
                elif isinstance(decision, Preempt):
                    changed = True
            for decision in decisions:
                if isinstance(decision, Preempt):
                    self._show(decision.key, holds=False)
            self.now += 1
            idle = 0 if changed else idle + 1

    def _show(self, name: str, holds: bool) -> None:
        """The API shows that a workload got quota, or gave it back and queues again at its old place."""
        old = self.workloads[name]
        admission = self.reserved[name] if holds else None
        if not holds:
            del self.reserved[name]
        stamp = format_time(self.now)
        conditions = [
            Condition(
                type=type,
                status="True" if holds else "False",
                reason="QuotaReserved" if holds else "Pending",
                message="",
                last_transition_time=stamp,
            )
            for type in _RELEASED
        ]
        status = kueue.WorkloadStatus(conditions=conditions, admission=admission)
        new = Workload(metadata=old.metadata, spec=old.spec, status=status)
        self.workloads[name] = new
        self.engine.apply(Upsert(new))
        self.engine.check()

    def queues(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """(active, inadmissible) by queue, empty ones left out."""
        active, parked = {}, {}
        for item in self.scenario["objects"]:
            if item["kind"] == "ClusterQueue":
                name = item["metadata"]["name"]
                active[name], parked[name] = self.engine.in_line(name)
        return (
            {name: keys for name, keys in active.items() if keys},
            {name: keys for name, keys in parked.items() if keys},
        )


def key(obj: Workload) -> str:
    return f"{obj.metadata.namespace}/{obj.metadata.name}"


def _active_check(name: str) -> dict[str, Any]:
    return {
        "apiVersion": kueue.V1BETA2,
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": "example.com/check"},
        "status": {
            "conditions": [
                {
                    "type": "Active",
                    "status": "True",
                    "reason": "Active",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ]
        },
    }


def _with_quotas(spec: dict[str, Any]) -> dict[str, Any]:
    """Some recordings leave out quotas of 0, which the API does not allow."""
    groups = []
    for group in spec.get("resourceGroups") or ({"flavors": [{"name": "default"}]},):
        covered = group.get("coveredResources") or ["cpu", "memory"]
        flavors = [
            {
                "name": flavor["name"],
                "resources": flavor.get("resources")
                or [{"name": name, "nominalQuota": "0"} for name in covered],
            }
            for flavor in group["flavors"]
        ]
        groups.append({"coveredResources": covered, "flavors": flavors})
    return {**spec, "resourceGroups": groups}


def admission_view(admission: Any, with_usage: bool) -> dict[str, Any]:
    """What is compared of an admission."""
    return {
        "clusterQueue": admission.cluster_queue,
        "podSets": {
            given.name: (
                given.count,
                dict(sorted(given.flavors.items())),
                {name: amount.nanos for name, amount in sorted(given.resource_usage.items())}
                if with_usage
                else None,
            )
            for given in admission.pod_set_assignments
        },
    }


def expected_admission(manifest: dict[str, Any], with_usage: bool) -> dict[str, Any]:
    return {
        "clusterQueue": manifest["clusterQueue"],
        "podSets": {
            given["name"]: (
                given.get("count"),
                dict(sorted((given.get("flavors") or {}).items())),
                {
                    name: parse(amount).nanos
                    for name, amount in sorted((given.get("resourceUsage") or {}).items())
                }
                if with_usage
                else None,
            )
            for given in manifest["podSetAssignments"]
        },
    }


def targets(scenario: dict[str, Any]) -> dict[str, str]:
    """Workloads (and why) that are preempted for the pending one, given the flavors it was assumed to get."""
    replay = Replay(scenario)
    engine = replay.engine
    state, evaluator = engine._state, engine._evaluator
    state.settle()
    record = next(
        record
        for record in state.records.values()
        if record.local is not None and record.local.key.endswith("/incoming")
    )
    queue, shape = record.queue, record.shape
    assert queue is not None
    assert shape is not None
    assumed = scenario["assumedAssignment"]
    requests: dict[int, int] = {}
    needed: set[int] = set()
    for index, pods in enumerate(shape.pod_sets):
        for resource, amount in pods.total.items():
            if "flavor" in assumed:
                flavor, mode = assumed["flavor"], 1
            else:
                choice = assumed[index]["Flavors"].get(resource)
                if choice is None:
                    continue
                flavor, mode = choice["Name"], choice["Mode"]
            pair = state.pairs.number(flavor, resource)
            if amount:
                requests[pair] = requests.get(pair, 0) + amount
            if mode == 1:
                needed.add(pair)
    need = Need(
        record,
        queue,
        [(queue.cells[pair], amount) for pair, amount in requests.items()],
        needed,
        evaluator.usage_of,
    )
    chosen, _ = evaluator.search(need)
    engine.check()
    # The recordings list what is evicted anew.
    return {record.key: reason for record, reason in chosen if not record.evicted}


def expected_targets(scenario: dict[str, Any]) -> dict[str, str]:
    found = {}
    for target in scenario["expected"]["targets"]:
        if isinstance(target, str):
            name, _, reason = target.rpartition(":")
            found[name if not name.startswith("/") else f"default{name}"] = reason
        else:
            found[target["workload"]] = target["reason"]
    return found


def outcome(scenario: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what the engine did, what was recorded), comparable."""
    replay = Replay(scenario)
    if scenario["kind"] == "stable":
        replay.until_stable()
    else:
        replay.cycle()
    expected = scenario["expected"]
    generated = scenario["suite"] == "random"
    active, parked = replay.queues()
    got: dict[str, Any] = {
        "reserved": {name: admission_view(it, not generated) for name, it in replay.reserved.items()},
        "active": _sorted(active),
        "inadmissible": _sorted(parked),
        "reasons": replay.reasons,
    }
    wanted: dict[str, Any] = {
        "reserved": {
            name: expected_admission(it, not generated) for name, it in expected["reserved"].items()
        },
        "active": _sorted(expected["active"]),
        "inadmissible": _sorted(expected["inadmissible"]),
    }
    if generated:
        got["preemptions"] = sorted(replay.preempted)
        got["admissions"] = sorted(replay.admitted)
        got["cycles"] = replay.cycles if scenario["kind"] == "stable" else expected["cycles"]
        wanted["preemptions"] = sorted(
            (it["cycle"], it["workload"], it["reason"]) for it in expected["preemptions"] or ()
        )
        wanted["admissions"] = sorted((it["cycle"], it["workload"]) for it in expected["admissions"] or ())
        wanted["cycles"] = expected["cycles"]
        wanted["reasons"] = expected["reasons"]
    else:
        got["preempted"] = {name: reason for _, name, reason in replay.preempted}
        wanted["preempted"] = expected["preempted"]
        wanted["reasons"] = {
            name: it["reason"] for name, it in expected["quotaReserved"].items() if it["status"] == "False"
        }
        got["events"] = sorted(replay.events)
        wanted["events"] = sorted((it["object"], it["reason"]) for it in expected["events"])
    return got, wanted


def _sorted(queues: dict[str, list[str]] | None) -> dict[str, list[str]]:
    return {name: sorted(keys) for name, keys in (queues or {}).items() if keys}
