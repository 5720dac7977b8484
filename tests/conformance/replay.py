"""Replays recorded scenarios of kinds `cycle`, `stable` and `steps` (`data/README.md` has the format)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pykueue.api import KINDS, decode, decode_as, encode, kueue
from pykueue.api.meta import find_condition, parse_time
from pykueue.api.quantity import parse
from pykueue.api.topologies import expand
from pykueue.engine import Admit, Assign, Decision, Delay, Evict, Options, Preempt, Requeue, Upsert
from pykueue.engine.driver import Driver
from pykueue.engine.workload import needs_second_pass
from pykueue.manager.configuration import parse as parse_configuration
from pykueue.manager.scheduler.engine_options import engine_options

Manifest = dict[str, Any]

_STRATEGIES = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]


def options_of(scenario: Manifest) -> Options:
    """The configuration a scenario was recorded with."""
    document: Manifest = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        **(scenario.get("config") or {}),
    }
    if scenario.get("fairSharing"):
        strategies = scenario.get("fairSharingStrategies") or _STRATEGIES
        document["fairSharing"] = {"preemptionStrategies": strategies, **document.get("fairSharing", {})}
    if scenario.get("resourceTransformations"):
        document["resources"] = {"transformations": scenario["resourceTransformations"]}
    options = engine_options(parse_configuration(json.dumps(document)))
    return dataclasses.replace(options, gates=scenario.get("featureGates") or {})


def start(scenario: Manifest) -> Driver:
    """A driver with the objects of a scenario."""
    release = "manual" if scenario.get("release") == "manual" else "at once"
    driver = Driver(options_of(scenario), parse_time(scenario["now"]), release)
    driver.apply(*(Upsert(decode(item)) for item in _manifests(scenario)))
    driver.engine.check()
    return driver


def _manifests(scenario: Manifest) -> Iterator[Manifest]:
    objects = scenario["objects"]
    if not any(item["kind"] == "Namespace" for item in objects):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    names = set()
    for number, item in enumerate(objects):
        if (item["apiVersion"], item["kind"]) not in KINDS:
            continue
        names.add((item["kind"], item["metadata"]["name"]))
        # Workloads without times and uids: the order of the input decides.
        yield {**item, "metadata": {"uid": f"{number:06d}", **item["metadata"]}}
    for item in objects:
        if item["kind"] != "ClusterQueue":
            continue
        strategy = item["spec"].get("admissionChecksStrategy") or {}
        for rule in strategy.get("admissionChecks", ()):
            if ("AdmissionCheck", rule["name"]) not in names:
                names.add(("AdmissionCheck", rule["name"]))
                yield _active_check(rule["name"])


def _active_check(name: str) -> Manifest:
    condition = {
        "type": "Active",
        "status": "True",
        "reason": "Active",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return {
        "apiVersion": kueue.V1BETA2,
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": "example.com/check"},
        "status": {"conditions": [condition]},
    }


def holding(driver: Driver, decisions: Iterable[Decision] = ()) -> dict[str, kueue.Admission]:
    """Admissions of all workloads that hold quota, by decisions that are not carried out too."""
    found = {
        key: workload.status.admission
        for key, workload in driver.workloads.items()
        if workload.condition_is("QuotaReserved")
        and not workload.condition_is("Finished")
        and workload.status.admission is not None
    }
    return found | {each.key: each.admission for each in decisions if isinstance(each, Admit | Assign)}


def in_queues(driver: Driver) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """(active, inadmissible): sorted keys by queue, empty queues left out."""
    active: dict[str, list[str]] = {}
    parked: dict[str, list[str]] = {}
    for name in driver.engine.cluster_queues():
        first, second = driver.engine.in_line(name)
        if first:
            active[name] = sorted(first)
        if second:
            parked[name] = sorted(second)
    return active, parked


def admission_view(admission: Manifest, with_usage: bool) -> Manifest:
    """What is compared of an admission."""
    return {
        "clusterQueue": admission["clusterQueue"],
        "podSets": {
            given["name"]: (
                given.get("count"),
                dict(sorted((given.get("flavors") or {}).items())),
                _nanos(given.get("resourceUsage") or {}) if with_usage else None,
                _domains(given.get("topologyAssignment")),
                given.get("delayedTopologyRequest"),
            )
            for given in admission["podSetAssignments"]
        },
    }


def _domains(assignment: Manifest | None) -> Any:
    """The levels of a topology assignment and its domains in order, however they are written."""
    if assignment is None:
        return None
    return assignment["levels"], [
        tuple(each) for each in expand(decode_as(kueue.TopologyAssignment, assignment))
    ]


def _nanos(amounts: Mapping[str, Any]) -> dict[str, int]:
    return {name: parse(amount).nanos for name, amount in sorted(amounts.items())}


def _not_empty(queues: Mapping[str, list[str]] | None) -> dict[str, list[str]]:
    return {name: sorted(keys) for name, keys in (queues or {}).items() if keys}


# --- kinds cycle and stable ---------------------------------------------------------------------------------


def outcome(scenario: Manifest) -> tuple[Manifest, Manifest]:
    """(what was decided, what was recorded), comparable."""
    driver = start(scenario)
    cycles: list[list[Decision]] = []
    if scenario["kind"] == "stable":
        for decisions in driver.until_stable():
            cycles.append(decisions)
            if driver.cycles == 1:
                _flush_of_new_queues(driver)
    else:
        cycles.append(driver.cycle())
        if scenario.get("suite") == "random":
            _flush_of_new_queues(driver)
    driver.engine.check()
    expected = scenario["expected"]
    generated = "events" not in expected
    kept = holding(driver, cycles[-1] if cycles else ())
    if not generated and scenario["suite"].startswith("tas"):
        # Workloads that held quota before are left out of the record.
        shown = _decided_keys(cycles) | _second_pass(scenario)
        kept = {key: each for key, each in kept.items() if key in shown}
    active, inadmissible = in_queues(driver)
    got: Manifest = {
        "reserved": {
            key: admission_view(encode(admission), not generated) for key, admission in kept.items()
        },
        "active": active,
        "inadmissible": inadmissible,
    }
    wanted: Manifest = {
        "reserved": {
            key: admission_view(admission, not generated) for key, admission in expected["reserved"].items()
        },
        "active": _not_empty(expected["active"]),
        "inadmissible": _not_empty(expected["inadmissible"]),
    }
    if generated:
        got |= _decided(cycles)
        got["cycles"] = driver.cycles if scenario["kind"] == "stable" else expected["cycles"]
        wanted |= _recorded(expected)
        wanted["cycles"] = expected["cycles"]
        wanted["reasons"] = expected["reasons"] or {}
        if scenario.get("suite") is None and "unhealthy" in expected:
            wanted["unhealthy"] = expected["unhealthy"]
            got["unhealthy"] = {
                key: [node.name for node in workload.status.unhealthy_nodes]
                for key, workload in driver.workloads.items()
                if workload.status.unhealthy_nodes
            }
        got["reasons"] = _reasons(scenario, cycles)
        if expected.get("admitted") is not None:
            wanted["admitted"] = sorted(expected["admitted"])
            got["admitted"] = _admitted(driver)
    else:
        got |= _events(cycles)
        wanted["preempted"] = expected["preempted"]
        wanted["events"] = sorted((it["object"], it["reason"]) for it in expected["events"])
        wanted["reasons"] = {
            key: it["reason"] for key, it in expected["quotaReserved"].items() if it["status"] == "False"
        }
    return got, wanted


def _decided_keys(cycles: Iterable[list[Decision]]) -> set[str]:
    return {each.key for decisions in cycles for each in decisions if isinstance(each, Admit)}


def _second_pass(scenario: Manifest) -> set[str]:
    """Workloads that hold quota and wait for nodes."""
    found = set()
    replaces_nodes = options_of(scenario).enabled("TASFailedNodeReplacement")
    for item in scenario["objects"]:
        if item["kind"] == "Workload":
            workload = decode(item)
            if needs_second_pass(workload, replaces_nodes):
                found.add(workload.metadata.key)
    return found


def _flush_of_new_queues(driver: Driver) -> None:
    """Queues were created just before the first cycle: the flush this causes came while its heads were in
    flight, which puts them back in line (docs/reference/kueue-semantics.md 4.5)."""
    driver.engine.flush()


def _decided(cycles: Iterable[list[Decision]]) -> Manifest:
    admissions, preemptions, replaced = [], [], []
    for number, decisions in enumerate(cycles, 1):
        for decision in decisions:
            if isinstance(decision, Admit):
                admissions.append((number, decision.key))
            elif isinstance(decision, Preempt | Evict):
                preemptions.append((number, decision.key, decision.reason))
            elif isinstance(decision, Assign):
                replaced.append((number, decision.key))
    decided = {"admissions": admissions, "preemptions": preemptions, "replaced": replaced}
    return {name: sorted(found) for name, found in decided.items()}


def _recorded(entry: Manifest) -> Manifest:
    return {
        "admissions": sorted((it.get("cycle", 0), it["workload"]) for it in entry.get("admissions") or ()),
        "preemptions": sorted(
            (it.get("cycle", 0), it["workload"], it["reason"]) for it in entry.get("preemptions") or ()
        ),
        "replaced": sorted((it.get("cycle", 0), it["workload"]) for it in entry.get("replaced") or ()),
    }


def _events(cycles: Iterable[list[Decision]]) -> Manifest:
    """Events that the decisions cause, and the reasons of those that wait."""
    events: list[tuple[str, str]] = []
    reasons, preempted = {}, {}
    for decision in (each for decisions in cycles for each in decisions):
        match decision:
            case Admit(key=key):
                events.append((key, "QuotaReserved"))
                if decision.replaces:
                    events.append((decision.replaces, "WorkloadSliceReplaced"))
                if decision.admitted:
                    events.append((key, "Admitted"))
            case Preempt(key=key):
                preempted[key] = decision.reason
                events += [(key, "EvictedDueToPreempted"), (key, "Preempted")]
                events.append((decision.preemptor, "PreemptedWorkload"))
            case Assign(key=key):
                if any(pods.delayed_topology_request for pods in decision.admission.pod_set_assignments):
                    events.append((key, "Admitted"))
            case Delay(key=key):
                events.append((key, "SecondPassFailed"))
            case Evict(key=key):
                events.append((key, f"EvictedDueTo{decision.reason}"))
            case Requeue(key=key):
                reasons[key] = decision.reason
                events.append((key, decision.reason))
    return {"events": sorted(events), "reasons": reasons, "preempted": preempted}


def _reasons(scenario: Manifest, cycles: Iterable[list[Decision]]) -> dict[str, str]:
    """Reasons of QuotaReserved=False: those of the input, and what cycles made of them."""
    found = {}
    for item in scenario["objects"]:
        if item["kind"] == "Workload":
            workload = decode(item)
            known = find_condition(workload.status.conditions, "QuotaReserved")
            if known is not None and known.status == "False":
                found[workload.metadata.key] = known.reason
    for decision in (each for decisions in cycles for each in decisions):
        if isinstance(decision, Requeue):
            found[decision.key] = decision.reason
        elif isinstance(decision, Admit):
            found.pop(decision.key, None)
        elif (
            isinstance(decision, Preempt | Evict)
            and scenario["kind"] == "stable"
            and scenario.get("suite") != "random"
        ):
            found[decision.key] = "PendingEvaluation"  # it gave its quota back
    return found


def _admitted(driver: Driver) -> list[str]:
    views = {key: driver.engine.workload(key) for key in driver.workloads}
    return sorted(key for key, view in views.items() if view is not None and view.admitted)
