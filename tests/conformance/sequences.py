"""Replays recorded scenarios of kind `steps`: events and cycles in turn (`data/README.md` has the format)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from replay import admission_view, holding, in_queues, start

from pykueue.api import decode, encode
from pykueue.api.kueue import V1BETA2
from pykueue.api.meta import format_time, parse_time
from pykueue.api.quantity import parse
from pykueue.embedded.objects.patch import merge_patch
from pykueue.engine import Admit, Decision, Evict, Preempt, Removed, Upsert
from pykueue.engine.driver import Change
from pykueue.engine.families import flavor, is_parent, parent_key
from pykueue.engine.lifecycle import with_condition

Manifest = dict[str, Any]

#: Cycles in a row that decide nothing, and cycles in all, after which a step `untilStable` ends.
_IDLE_CYCLES = 3
_CYCLES_MAX = 40

_TYPE = {"apiVersion": V1BETA2, "kind": "Workload"}
#: What a step's entry lists besides `cycles` and what queues hold, each sorted by cycle and key.
_CHANGES = {"Evicted": "evictions", "Withdrawn": "withdrawn", "Finished": "finished"}


def outcome(scenario: Manifest) -> tuple[Manifest, Manifest]:
    """(what was decided, what was recorded), comparable."""
    expected = scenario["expected"] or {"steps": []}  # the reference gave no answer
    reasons = expected.get("reasons") or {}
    replay = Replay(scenario)
    got: Manifest = {f"step {n}": replay.step(step) for n, step in enumerate(scenario["steps"])}
    got |= replay.end(reasons)
    wanted: Manifest = {f"step {n}": _recorded(entry) for n, entry in enumerate(expected["steps"])}
    if "reserved" in expected:  # the end is not recorded of every minimal sequence
        wanted["reserved"] = {
            key: admission_view(admission, True) for key, admission in expected["reserved"].items()
        }
        wanted["admitted"] = sorted(expected["admitted"] or ())
        wanted["reasons"] = reasons
    if "consumed" in expected:
        wanted["consumed"] = {
            # Products of floating-point numbers: the last digit may differ.
            local: {
                name: pytest.approx(parse(it).nanos, rel=0, abs=2)
                for name, it in amounts.items()
                if it != "0"
            }
            for local, amounts in expected["consumed"].items()
        }
    return {key: value for key, value in got.items() if key in wanted}, wanted


def _recorded(entry: Manifest) -> Manifest:
    """An entry of `expected.steps`, comparable."""
    wanted: Manifest = {key: entry[key] for key in ("cycles", "waiting") if entry.get(key)}
    for name in ("admissions", "preemptions", "evictions"):
        if entry.get(name):
            wanted[name] = sorted(
                (it.get("cycle", 0), it["workload"], _detail(it.get("admission") or it.get("reason")))
                for it in entry[name]
            )
    for name in ("withdrawn", "finished", "holding"):
        if entry.get(name):
            wanted[name] = sorted(it if isinstance(it, str) else it["workload"] for it in entry[name])
    for name in ("active", "inadmissible"):
        queues = {queue: sorted(keys) for queue, keys in (entry.get(name) or {}).items() if keys}
        if queues:
            wanted[name] = queues
    return wanted


def _detail(value: Any) -> Any:
    return repr(admission_view(value, True)) if isinstance(value, Mapping) else value


class Replay:
    """One scenario, step by step."""

    def __init__(self, scenario: Manifest) -> None:
        self.driver = start(scenario)
        self.driver.follow()
        self.driver.engine.check()
        #: Of variants and their parents: the name in the record, empty for parents, by key.
        self._recorded: dict[str, str] = {}
        self._objects = {
            (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item
            for item in scenario["objects"]
        }

    def step(self, step: Manifest) -> Manifest:
        """Does one step, and returns its entry."""
        driver, entry = self.driver, {}
        driver.advance(parse_time(step["at"]))
        if step["do"] in ("cycles", "untilStable"):
            driver.follow()
            entry = self._cycles(step.get("cycles"))
        else:
            changes = self._event(step) + driver.follow()
            self._list_changes(entry, changes, 0)
        driver.engine.check()
        keys = self._names(holding(driver))
        active, inadmissible = (
            {queue: self._names(keys) for queue, keys in queues.items()} for queues in in_queues(driver)
        )
        found = {"holding": keys, "active": active, "inadmissible": inadmissible}
        return {
            name: sorted(value) if isinstance(value, list) else value for name, value in entry.items()
        } | {name: value for name, value in found.items() if value}

    def _cycles(self, exactly: int | None) -> Manifest:
        driver, entry, idle, count = self.driver, {}, 0, 0
        while count < (exactly if exactly is not None else _CYCLES_MAX):
            if exactly is None and (idle == _IDLE_CYCLES or not driver.engine.any_in_line()):
                break
            count += 1
            decisions = driver.cycle()
            idle = 0 if any(isinstance(each, Admit | Preempt | Evict) for each in decisions) else idle + 1
            self._list_decisions(entry, decisions, count)
            self._list_changes(entry, driver.carry_out() + driver.follow(), count)
            driver.engine.check()
            driver.advance(driver.now + 1)
            driver.follow()
        if count:
            entry["cycles"] = count
        return entry

    def _list_decisions(self, entry: Manifest, decisions: Iterable[Decision], cycle: int) -> None:
        for each in decisions:
            if isinstance(each, Admit):
                item = (cycle, self._name(each.key), _detail(encode(each.admission)))
                entry.setdefault("admissions", []).append(item)
            elif isinstance(each, Preempt):
                entry.setdefault("preemptions", []).append((cycle, self._name(each.key), each.reason))

    def _list_changes(self, entry: Manifest, changes: Iterable[Change], cycle: int) -> None:
        for kind, key, reason in changes:
            if name := self._name(key):
                item = (cycle, name, reason) if kind == "Evicted" else name
                entry.setdefault(_CHANGES[kind], []).append(item)

    def _name(self, key: str) -> str:
        """The name of a workload in the record: `parent@flavor` for a variant, empty for a parent."""
        workload = self.driver.workloads.get(key)
        if workload is not None:
            parent = parent_key(workload)
            name = f"{parent}@{flavor(workload)}" if parent else "" if is_parent(workload) else key
            self._recorded[key] = name
        return self._recorded.get(key, key)

    def _names(self, keys: Iterable[str]) -> list[str]:
        return sorted(name for key in keys if (name := self._name(key)))

    def _key(self, name: str) -> str:
        """The key of a workload of the record."""
        return next((key for key, known in self._recorded.items() if known == name), name)

    def _event(self, step: Manifest) -> list[Change]:
        driver, do = self.driver, step["do"]
        match do:
            case "create":
                item = step["object"]
                self._objects[
                    item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]
                ] = item
                driver.apply(Upsert(decode(item)))
            case "patch":
                driver.apply(Upsert(self._patched(step)))
            case "delete":
                driver.apply(Removed(step["kind"], step.get("namespace") or "", step["name"]))
            case "finish":
                driver.finish(step["workload"])
                return [Change("Finished", step["workload"], "Succeeded")]
            case "release":
                return driver.release(step["workload"])
            case _:
                driver.apply(Upsert(self._with_status(step)))
        return []

    def _patched(self, step: Manifest) -> Any:
        name = (step["kind"], step.get("namespace") or "", step["name"])
        item = self._objects[name]
        if step["kind"] == "Workload":
            # Its status is what the decisions made of it.
            workload = self.driver.workloads[f"{name[1]}/{name[2]}"]
            item = {**encode(workload), **_TYPE}
        new = merge_patch(item, step["patch"])
        if new.get("spec") != item.get("spec"):
            generation = item["metadata"].get("generation", 0) + 1
            new = {**new, "metadata": {**new["metadata"], "generation": generation}}
        self._objects[name] = new
        return decode(new)

    def _with_status(self, step: Manifest) -> Any:
        """The workload of a step with the status that the step gives it."""
        now = self.driver.now
        workload = self.driver.workloads[self._key(step["workload"])]
        status, stamp = encode(workload.status), format_time(now)
        match step["do"]:
            case "podsReady":
                return with_condition(workload, "PodsReady", True, "Started", now)
            case "reclaim":
                pods = step["pods"]
                counts = (
                    pods if isinstance(pods, list) else [{"name": n, "count": c} for n, c in pods.items()]
                )
                status["reclaimablePods"] = counts
            case "check":
                state = {
                    "name": step["check"],
                    "state": step["state"],
                    "lastTransitionTime": stamp,
                    "message": "",
                }
                states = {it["name"]: it for it in status.get("admissionChecks") or ()}
                status["admissionChecks"] = list((states | {step["check"]: state}).values())
            case "gate":
                gate = {"name": step["gate"], "position": step["position"], "lastTransitionTime": stamp}
                gates = {it["name"]: it for it in status.get("preemptionGates") or ()}
                status["preemptionGates"] = list((gates | {step["gate"]: gate}).values())
            case unknown:
                raise ValueError(f"unknown step {unknown!r}")
        return decode({**encode(workload), **_TYPE, "status": status})

    def end(self, recorded: Mapping[str, str]) -> Manifest:
        """What there is after the last step; `recorded` are the reasons that were recorded."""
        driver = self.driver
        views = {self._name(key): driver.engine.workload(key) for key in driver.workloads if self._name(key)}
        consumed = {}
        for kind, namespace, name in self._objects:
            if kind == "LocalQueue" and (local := driver.engine.local_queue(namespace, name)) is not None:
                amounts = {name: amount.nanos for name, amount in local.consumed.items() if amount}
                if local.sampled is not None:
                    consumed[f"{namespace}/{name}"] = amounts
        return {
            "reserved": {
                self._name(key): admission_view(encode(admission), True)
                for key, admission in holding(driver).items()
                if self._name(key)
            },
            "admitted": sorted(key for key, view in views.items() if view is not None and view.admitted),
            "reasons": {
                key: driver.engine.pending_reason(self._key(key))[0]
                for key, view in views.items()
                if view is not None
                and view.state != "reserved"
                and (key in recorded or (view.reason and not view.bypassed))
            },
            "consumed": consumed,
        }
