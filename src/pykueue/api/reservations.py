# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""The kind Reservation (pykueue.io/v1alpha1): quota that is kept free in advance.

Source of the rules: docs/reference/policies.md 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal, NamedTuple

from pykueue.api.cronschedule import Schedule, ScheduleError, time_zone
from pykueue.api.kueue.common import Conditions, ObjectName
from pykueue.api.meta import ObjectMeta, parse_time
from pykueue.api.model import DEFAULTED, REQUIRED, Cel, Model, Rule, checked, map_by
from pykueue.api.preemption_policies import Duration, seconds
from pykueue.api.quantity import Quantity
from pykueue.api.resources import OWN_GROUP, Resource

RESERVATIONS: Final = Resource(OWN_GROUP, "v1alpha1", "reservations", "Reservation", False)

#: Windows of one Reservation that are planned ahead.
WINDOWS_MAX: Final = 16
#: Characters of the line that says what is reserved.
TEXT_MAX: Final = 1024


class ReservedResource(Model):
    """An amount of one resource."""

    name: Annotated[str, Rule(minLength=1, maxLength=317)]
    """Name of the resource."""
    quantity: Quantity
    """How much of it is reserved."""


class ReservedFlavor(Model):
    """What is reserved of one flavor."""

    name: ObjectName
    """Name of the ResourceFlavor."""
    resources: Annotated[list[ReservedResource], map_by("name", minItems=1, maxItems=64), REQUIRED] = []
    """Amounts by resource."""


@checked(
    Cel("has(self.clusterQueue) != has(self.cohort)", "exactly one of clusterQueue and cohort must be set"),
    Cel("has(self.start) != has(self.schedule)", "exactly one of start and schedule must be set"),
)
class ReservationSpec(Model):
    """The reserved quota, the queue or cohort it is kept for, and the times."""

    cluster_queue: ObjectName | None = None
    """ClusterQueue whose quota is reserved."""
    cohort: ObjectName | None = None
    """Cohort whose quota is reserved, with the quota of all below it."""
    purpose: Annotated[Literal["Capacity", "Maintenance"], DEFAULTED] = "Capacity"
    """Capacity: for workloads of the ClusterQueue, or below the cohort. Maintenance: for no workload."""
    flavors: Annotated[list[ReservedFlavor], map_by("name", minItems=1, maxItems=64), REQUIRED] = []
    """Amounts by flavor."""
    start: Annotated[str | None, Rule(format="date-time")] = None
    """When the only window begins."""
    schedule: Annotated[str | None, Rule(minLength=1, maxLength=256)] = None
    """When windows begin, in the format of a CronJob's schedule."""
    time_zone: Annotated[str, Rule(maxLength=64), DEFAULTED] = "UTC"
    """Time zone of the schedule, by its name in the IANA database."""
    duration: Duration
    """How long a window lasts."""


class ReservationStatus(Model):
    """Observed state of a Reservation."""

    conditions: Conditions = []
    """Active says whether the Reservation is in force."""
    window_start: str | None = None
    """When the current or next window begins."""
    window_end: str | None = None
    """When it ends."""
    next_start: str | None = None
    """When the window after that one begins."""
    state: Annotated[str, Rule(maxLength=16)] = ""
    """Upcoming, Open, Over or Invalid."""
    printed: Annotated[str, Rule(maxLength=TEXT_MAX)] = ""
    """What is reserved, as `kubectl get` prints it."""


class Reservation(Model):
    """Quota that is kept free in advance. Only administrators should be able to write it."""

    metadata: ObjectMeta
    spec: ReservationSpec
    status: ReservationStatus = ReservationStatus()


class Window(NamedTuple):
    """A time during which quota is reserved, in seconds since 1970."""

    start: float
    end: float


def windows(spec: ReservationSpec, now: float) -> list[Window]:
    """The current and next windows of a Reservation, in order; none where its times are invalid."""
    length = seconds(spec.duration)
    if length <= 0:
        return []
    if spec.start is not None:
        try:
            begin = parse_time(spec.start)
        except ValueError:
            return []
        return [Window(begin, begin + length)] if begin + length > now else []
    try:
        schedule = Schedule(spec.schedule or "", time_zone(spec.time_zone))
    except ScheduleError:
        return []
    found: list[Window] = []
    at = schedule.next(now - length)
    while at is not None and len(found) < WINDOWS_MAX:
        if at + length > now:
            found.append(Window(at, at + length))
        at = schedule.next(at)
    return found


def state_of(found: Sequence[Window], now: float) -> Literal["Upcoming", "Open", "Over"]:
    """Whether the first of the current and next windows is open."""
    if not found:
        return "Over"
    return "Open" if found[0].start <= now else "Upcoming"


def amounts_text(spec: ReservationSpec) -> str:
    """What is reserved, in one line."""
    return "; ".join(
        f"{flavor.name}: " + ", ".join(f"{each.quantity} {each.name}" for each in flavor.resources)
        for flavor in spec.flavors
    )
