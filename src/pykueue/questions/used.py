# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""Resource-hours over a window, from the Workloads that exist: running, and finished but not yet deleted.

A Workload's status shows the time of its last admission and of its end. Earlier admissions of a Workload that
was evicted and admitted again are not in its status and are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Final

from pykueue.api import kueue
from pykueue.api.meta import find_condition, format_time, parse_time
from pykueue.api.quantity import Quantity
from pykueue.questions.answers import Answer

#: What use can be grouped by, and the group of a Workload.
GROUPS: Final[dict[str, Callable[[kueue.Workload], str]]] = {
    "clusterqueue": lambda each: each.status.admission.cluster_queue if each.status.admission else "",
    "localqueue": lambda each: f"{each.metadata.namespace}/{each.spec.queue_name or ''}",
    "namespace": lambda each: each.metadata.namespace,
    "priority": lambda each: str(each.spec.priority or 0),
}
#: Prefix of a group by the value of a label.
LABEL: Final = "label="


class Use(Answer, kw_only=True):
    """What one group used."""

    group: str
    workloads: int
    """Those that held quota at any time of the window."""
    hours: dict[str, float] = {}
    """Resource-hours by resource: core-hours of cpu, byte-hours of memory."""


class Used(Answer, kw_only=True):
    """Resource-hours by group over a window."""

    by: str
    start: str
    end: str
    covered_from: str
    """The earliest admission that is known: of what was used before, no Workload is left. Empty for none."""
    groups: list[Use]
    """By name."""
    unread: list[str] = []
    notes: list[str] = []


def used(workloads: Iterable[kueue.Workload], by: str, start: float, end: float) -> Used:
    """Resource-hours between two times (seconds since 1970), by a key of `GROUPS` or `label=KEY`.

    Raises ValueError for another group, or a window that does not end after its start.
    """
    if end <= start:
        raise ValueError("the window must end after its start")
    group_of = _grouping(by)
    found: dict[str, Use] = {}
    nanos: dict[str, dict[str, int]] = {}
    first: float | None = None
    for workload in workloads:
        held = held_between(workload, end)
        if held is None:
            continue
        since, until = held
        first = since if first is None else min(first, since)
        seconds = min(until, end) - max(since, start)
        if seconds <= 0:
            continue
        name = group_of(workload)
        use = found.setdefault(name, Use(group=name, workloads=0))
        use.workloads += 1
        amounts = nanos.setdefault(name, {})
        for resource, quantity in _amounts(workload).items():
            amounts[resource] = amounts.get(resource, 0) + quantity.nanos * round(seconds)
    for name, use in found.items():
        use.hours = {
            resource: float(Decimal(value) / 10**9 / 3600) for resource, value in sorted(nanos[name].items())
        }
    return Used(
        by=by,
        start=format_time(int(start)),
        end=format_time(int(end)),
        covered_from=format_time(int(first)) if first is not None else "",
        groups=[found[name] for name in sorted(found)],
    )


def _grouping(by: str) -> Callable[[kueue.Workload], str]:
    if by.startswith(LABEL) and len(by) > len(LABEL):
        key = by.removeprefix(LABEL)
        return lambda each: each.metadata.labels.get(key, "")
    if by not in GROUPS:
        raise ValueError(f"{by!r} is no group; accepted: {', '.join(GROUPS)}, {LABEL}KEY")
    return GROUPS[by]


def held_between(workload: kueue.Workload, now: float) -> tuple[float, float] | None:
    """When a Workload was last admitted, and until when (seconds since 1970); None if it never was."""
    conditions = workload.status.conditions
    admitted = find_condition(conditions, "Admitted")
    finished = find_condition(conditions, "Finished")
    if admitted is None or not admitted.last_transition_time or workload.status.admission is None:
        return None
    if admitted.status != "True":
        return None
    until = now
    if finished is not None and finished.status == "True" and finished.last_transition_time:
        until = parse_time(finished.last_transition_time)
    return parse_time(admitted.last_transition_time), until


def _amounts(workload: kueue.Workload) -> dict[str, Quantity]:
    """What a Workload was admitted with."""
    total: dict[str, Quantity] = {}
    admission = workload.status.admission
    for given in admission.pod_set_assignments if admission is not None else ():
        for resource, quantity in given.resource_usage.items():
            total[resource] = total.get(resource, Quantity(0)) + quantity
    return total
