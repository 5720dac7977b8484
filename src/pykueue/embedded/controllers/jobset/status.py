"""The next status of a JobSet, built new from the last one, and what is to be told of it.

Source: reference/cluster-workloads.md 2.4 and 2.5.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pykueue.api.times import format_time, parse_time
from pykueue.kube.events import NORMAL

Object = dict[str, Any]

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
    """One pass over a JobSet changes the status through this; `notes` are told once it is written."""

    def __init__(self, status: Object, now: float) -> None:
        self.status = status
        self.now = now
        self.notes: list[Note] = []

    @property
    def ended_at(self) -> float | None:
        """When the set completed or failed, in seconds since 1970; None while it has not."""
        for one in self.status.get("conditions") or ():
            if one["type"] in (COMPLETED, FAILED) and one["status"] == "True":
                return parse_time(one["lastTransitionTime"])
        return None

    def is_true(self, type_: str) -> bool:
        """Whether the condition holds."""
        known = self._condition(type_)
        return known is not None and known["status"] == "True"

    def _condition(self, type_: str) -> Object | None:
        for one in self.status.get("conditions") or ():
            if one["type"] == type_:
                found: Object = one
                return found
        return None

    def put(self, field: str, value: Any) -> None:
        """Set a field of the status."""
        if self.status.get(field) != value:
            self.status = {**self.status, field: value}

    def affirm(self, type_: str, reason: str, message: str, event: str = NORMAL) -> None:
        """The condition is True, and that is told."""
        self._set(type_, True, reason, message, event)

    def deny(self, type_: str, reason: str, message: str, event: str | None = NORMAL) -> None:
        """The condition is False; one that never was is not added. Without `event` nobody is told."""
        if self._condition(type_) is not None:
            self._set(type_, False, reason, message, event)

    def _set(self, type_: str, value: bool, reason: str, message: str, event: str | None) -> None:
        text = "True" if value else "False"
        known = self._condition(type_)
        if known is not None and (known["status"], known["reason"], known["message"]) == (
            text,
            reason,
            message,
        ):
            return
        same = known is not None and known["status"] == text
        new = {
            "type": type_,
            "status": text,
            "lastTransitionTime": known["lastTransitionTime"]
            if known is not None and same
            else format_time(self.now),
            "reason": reason,
            "message": message,
        }
        conditions = [new if one is known else one for one in self.status.get("conditions") or ()]
        if known is None:
            conditions.append(new)
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
