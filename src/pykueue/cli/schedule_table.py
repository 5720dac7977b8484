"""Decisions as a table for people: what starts and where, what it displaces, what waits and for what."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pykueue.api.hybrid import parts_in, parts_text
from pykueue.cli import schedule_nodes

_STYLES = {
    "Admitted": "green",
    "QuotaReserved": "cyan",
    "Preempted": "red",
    "Evicted": "red",
    "Pending": "yellow",
    "Inactive": "dim",
    "Finished": "dim",
}
_ORDER = tuple(_STYLES)


def show(report: dict[str, Any], console: Console) -> None:
    """Prints a report: the workloads, or with an override those that are decided otherwise, and problems."""
    workloads: dict[str, dict[str, Any]] = report["workloads"]
    if "changes" in report:
        _show_changes(report, console)
    elif workloads:
        _show_workloads(workloads, console)
        schedule_nodes.show(report["placements"], console)
    if report["problems"]:
        _show_problems(report["problems"], console)
    if not workloads:
        console.print("No workloads.")
        return
    counts = [
        f"{sum(workload['state'] == state for workload in workloads.values())} {state.lower()}"
        for state in _ORDER
        if any(workload["state"] == state for workload in workloads.values())
    ]
    cycles = report["cycles"]
    console.print(f"{', '.join(counts)} after {cycles} cycle{'' if cycles == 1 else 's'}.")


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles[:-1]:
        table.add_column(title, no_wrap=True)
    table.add_column(titles[-1], overflow="fold")
    return table


def _show_workloads(workloads: dict[str, dict[str, Any]], console: Console) -> None:
    displaced: dict[str, list[str]] = {}
    for key, workload in workloads.items():
        if workload["preemptedBy"]:
            displaced.setdefault(workload["preemptedBy"], []).append(key)
    table = _table("WORKLOAD", "QUEUE", "STATE", "FLAVORS", "WHY")
    ranked = sorted(
        workloads.items(),
        key=lambda item: (item[1]["clusterQueue"], _ORDER.index(item[1]["state"]), item[0]),
    )
    for key, workload in ranked:
        state = workload["state"]
        table.add_row(
            key,
            workload["clusterQueue"] or "-",
            Text(state, style=_STYLES[state]),
            _flavors(workload["admission"]),
            _why(key, workload, displaced),
        )
    console.print(table)
    console.print()


def _show_changes(report: dict[str, Any], console: Console) -> None:
    """What objects were overridden, and what becomes of workloads before and after."""
    for effect in report["overrides"]:
        console.print(effect)
    console.print()
    changes: list[dict[str, Any]] = report["changes"]
    if not changes:
        console.print("No workload is decided otherwise.\n")
        return
    table = _table("WORKLOAD", "BEFORE", "AFTER", "WHY")
    for change in changes:
        before, after = change["before"], change["after"]
        why = _why(change["workload"], after, {}) if after is not None else ""
        table.add_row(change["workload"], _standing(before), _standing(after), why)
    console.print(table)
    console.print()


def _standing(workload: dict[str, Any] | None) -> Text:
    """State and flavors of a workload in one cell."""
    if workload is None:
        return Text("-")
    flavors = _flavors(workload["admission"])
    state = workload["state"]
    return Text(state if flavors == "-" else f"{state}: {flavors}", style=_STYLES[state])


def _show_problems(problems: list[dict[str, str]], console: Console) -> None:
    table = _table("OBJECT", "PROBLEM", "MESSAGE")
    for problem in problems:
        table.add_row(problem["object"], Text(problem["reason"], style="red"), problem["message"])
    console.print(table)
    console.print()


def _flavors(admission: dict[str, Any] | None) -> str:
    """`cpu: spot, memory: spot` for each pod set; the pod set is named where there are several."""
    if not admission:
        return "-"
    given = admission.get("podSetAssignments") or []
    parts = []
    for pods in given:
        flavors = pods.get("flavors") or {}
        amounts = pods.get("resourceUsage") or {}
        split = parts_in(pods)
        text = ", ".join(
            f"{resource} {amounts.get(resource, '')} on "
            f"{parts_text(split) if split and split[0].flavor == flavor else flavor}"
            for resource, flavor in flavors.items()
        )
        parts.append(f"{pods.get('name', 'main')}: {text}" if len(given) > 1 else text)
    return "\n".join(part or "-" for part in parts)


def _why(key: str, workload: dict[str, Any], displaced: dict[str, list[str]]) -> str:
    parts = []
    if workload["state"] in ("Admitted", "QuotaReserved"):
        if workload["message"]:
            parts.append(workload["message"])
    elif workload["preemptedBy"]:
        parts.append(f"preempted by {workload['preemptedBy']} ({workload['preemptionReason']})")
    if workload["state"] not in ("Admitted", "QuotaReserved", "Preempted", "Evicted"):
        reason, text = workload["reason"], workload["message"]
        parts.append(f"{reason}: {text}" if reason and text else reason or text)
    if key in displaced:
        parts.append(f"displaces {', '.join(displaced[key])}")
    return "\n".join(part for part in parts if part)
