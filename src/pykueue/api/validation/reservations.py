"""Rules of Reservations beyond their schema."""

from __future__ import annotations

from pykueue.api.cronschedule import Schedule, ScheduleError, time_zone
from pykueue.api.preemption_policies import seconds
from pykueue.api.reservations import Reservation
from pykueue.api.validation.fields import INVALID, FieldError


def reservation_errors(reservation: Reservation) -> list[FieldError]:
    """What is wrong with the times of a Reservation."""
    spec = reservation.spec
    errors: list[FieldError] = []
    if (spec.cluster_queue is None) == (spec.cohort is None):
        why = "exactly one of clusterQueue and cohort must be set"
        errors.append(FieldError("spec", INVALID, None, why))
    if (spec.start is None) == (spec.schedule is None):
        errors.append(FieldError("spec", INVALID, None, "exactly one of start and schedule must be set"))
    if seconds(spec.duration) <= 0:
        errors.append(FieldError("spec.duration", INVALID, spec.duration, "must be more than 0s"))
    try:
        zone = time_zone(spec.time_zone)
    except ScheduleError as error:
        return [*errors, FieldError("spec.timeZone", INVALID, spec.time_zone, str(error))]
    if spec.schedule is not None:
        try:
            Schedule(spec.schedule, zone)
        except ScheduleError as error:
            errors.append(FieldError("spec.schedule", INVALID, spec.schedule, str(error)))
    return errors
