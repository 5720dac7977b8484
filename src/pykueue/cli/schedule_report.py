"""The outcome of a run beyond its decisions: what is wrong with queues, what an override changes, what fails.

The fields are part of the public interface; `schedule.schema.json` describes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any, Final

from pykueue import package_data
from pykueue.api import pending_reasons
from pykueue.api.cohorts import COHORT_CYCLE, cycle_message, find_cycle
from pykueue.api.objects import get
from pykueue.engine import Engine

Report = dict[str, Any]

#: The package's data file.
SCHEMA: Final = "schedule.schema.json"

#: What `--fail-on` can name.
CONDITIONS: Final = ("pending", "misconfigured", "warnings")

#: Problems of queues that are no fault of their configuration.
_INTENDED: Final = frozenset({"Stopped", "Terminating", "AdmissionCheckInactive"})


@cache
def schema_text() -> str:
    """The JSON Schema of a report."""
    return package_data.read(__package__, SCHEMA).decode()


def problems(engine: Engine, manifests: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """What keeps queues and cohorts from taking part, whether workloads are in them or not, by object."""
    objects = list(manifests)
    parents = {
        each["metadata"]["name"]: str(get(each, "spec", "parentName") or "")
        for each in objects
        if each["kind"] == "Cohort"
    }
    queues = {each["metadata"]["name"] for each in objects if each["kind"] == "ClusterQueue"}
    found: list[tuple[str, str, str]] = []
    for each in objects:
        name, namespace = each["metadata"]["name"], each["metadata"].get("namespace")
        match each["kind"]:
            case "ClusterQueue":
                view = engine.cluster_queue(name)
                for reason, text in view.problems if view is not None else ():
                    found.append((f"ClusterQueue {name}", reason, text))
            case "LocalQueue":
                wanted = str(get(each, "spec", "clusterQueue") or "")
                if wanted not in queues:
                    text = pending_reasons.not_found("ClusterQueue", wanted).message
                    found.append((f"LocalQueue {namespace}/{name}", "ClusterQueueDoesNotExist", text))
            case "Cohort":
                if cycle := find_cycle(name, lambda each: parents.get(each, "")):
                    found.append((f"Cohort {name}", COHORT_CYCLE, cycle_message(cycle)))
    return [{"object": obj, "reason": reason, "message": text} for obj, reason, text in sorted(found)]


def changes(before: Report, after: Report) -> list[dict[str, Any]]:
    """Workloads that are decided on otherwise, by key; `before` or `after` is null for one that is not there.

    A message alone is no change: amounts in it depend on everything else in the queue.
    """
    old, new = before["workloads"], after["workloads"]
    return [
        {"workload": key, "before": old.get(key), "after": new.get(key)}
        for key in sorted({*old, *new})
        if _decision(old.get(key)) != _decision(new.get(key))
    ]


def _decision(workload: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if workload is None:
        return None
    return {field: value for field, value in workload.items() if field != "message"}


def failures(report: Report, fail_on: Collection[str], warnings: int) -> list[str]:
    """Which of the conditions hold, in words."""
    workloads = report["workloads"].values()
    pending = sum(each["state"] == "Pending" for each in workloads)
    misconfigured = sum(each["reason"] == "Misconfigured" for each in workloads)
    wrong = sum(each["reason"] not in _INTENDED for each in report["problems"])
    found = {
        "pending": _count(pending, "workload") + " pending" if pending else "",
        "misconfigured": ", ".join(
            text
            for text in (
                _count(misconfigured, "workload") + " misconfigured" if misconfigured else "",
                _count(wrong, "problem") + " of queues" if wrong else "",
            )
            if text
        ),
        "warnings": _count(warnings, "warning") if warnings else "",
    }
    return [f"--fail-on {name}: {text}" for name, text in found.items() if text and name in fail_on]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
