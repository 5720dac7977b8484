"""The next status of a JobSet, built new from the last one, and the events to emit.

Source: docs/reference/cluster-workloads.md 2.4 and 2.5.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pykueue.api.meta import set_condition
from pykueue.api.objects import Object, condition_of, true_condition
from pykueue.api.times import parse_time
from pykueue.kube.events import NORMAL

COMPLETED = "Completed"
FAILED = "Failed"
SUSPENDED = "Suspended"
STARTING = "StartupPolicyInProgress"
STARTED = "StartupPolicyCompleted"
RESTARTING = "RestartingJobSet"


class Note(NamedTuple):
    """An event about the set."""

    type: str
    reason: str
    message: str


class Progress:
    """The status changes of one pass over a JobSet, and the events to record once they are written."""

    def __init__(self, status: Object, now: float) -> None:
        self.status = status
        self.now = now
        self.notes: list[Note] = []

    @property
    def ended_at(self) -> float | None:
        """When the set completed or failed, in seconds since 1970; None while it has not."""
        end = true_condition(self.status, COMPLETED, FAILED)
        return parse_time(end["lastTransitionTime"]) if end is not None else None

    def is_true(self, type_: str) -> bool:
        """Whether the condition holds."""
        return true_condition(self.status, type_) is not None

    def put(self, field: str, value: Any) -> None:
        """Set a field of the status."""
        if self.status.get(field) != value:
            self.status = {**self.status, field: value}

    def affirm(self, type_: str, reason: str, message: str, event: str = NORMAL) -> None:
        """Set the condition to True and record an event."""
        self._set(type_, True, reason, message, event)

    def deny(self, type_: str, reason: str, message: str, event: str | None = NORMAL) -> None:
        """Set the condition to False if it exists; record an event of type `event`, if given."""
        if condition_of(self.status, type_) is not None:
            self._set(type_, False, reason, message, event)

    def _set(self, type_: str, value: bool, reason: str, message: str, event: str | None) -> None:
        text = "True" if value else "False"
        known = condition_of(self.status, type_)
        if known is not None and (known["status"], known["reason"], known["message"]) == (
            text,
            reason,
            message,
        ):
            return
        present = self.status.get("conditions") or ()
        conditions = set_condition(present, type_, text, reason, message, self.now)
        self.status = {**self.status, "conditions": conditions}
        if event is not None:
            self.notes.append(Note(event, reason, message))

    def end(self, type_: str, reason: str, message: str, event: str) -> None:
        """The set has completed or failed."""
        self.affirm(type_, reason, message, event)
        self.put("terminalState", type_)
        self.deny(RESTARTING, f"JobSet{type_}", f"jobset is {type_.lower()}", None)

    def order(self, in_progress: bool) -> None:
        """How far a start in order is: in progress and completed exclude each other."""
        if in_progress:
            reason, text = "InOrderStartupPolicyInProgress", "in order startup policy is in progress"
            self.affirm(STARTING, reason, text)
            self.deny(STARTED, reason, text, None)
        else:
            reason, text = "InOrderStartupPolicyCompleted", "in order startup policy has completed"
            self.affirm(STARTED, reason, text)
            self.deny(STARTING, reason, text, None)
