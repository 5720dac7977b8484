"""What a manager writes about its decisions, where the client that writes it has a limit.

The limit is a token bucket that serves requests in the order in which they are made, as that of client-go.
Kueue's manager writes admissions beside its scheduling cycles, but preemptions, and why workloads wait,
within them: a cycle ends when these are written, which is after everything that its client had to write
before.
pykueue's manager writes all beside its cycles, and why workloads wait after everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pykueue.engine import Decision, Requeue
from pykueue.engine.explain.render import message


@dataclass(frozen=True, slots=True)
class Limit:
    """Of a client, and the requests that it makes."""

    per_second: float
    burst: float = 0.0
    """Requests that an idle client makes at once."""
    per_admission: float = 1.0
    per_preemption: float = 1.0
    per_pending: float = 1.0
    """For each reason why a workload waits that differs from the last one written, where `cycles_wait`."""
    cycles_wait: bool = False
    """A cycle ends when its preemptions are written, and why workloads wait."""


class Writes:
    """When each write is made, in seconds from the start."""

    def __init__(self, limit: Limit | None) -> None:
        self._limit = limit
        #: When the requests made so far would be sent by a client that allows no bursts.
        self._sent = 0.0
        #: When the last preemption is written.
        self._preempted = 0.0
        #: What was written last of each workload that waits, by key.
        self._reasons: dict[str, tuple[str, str]] = {}
        #: Requests so far.
        self.requests = 0.0

    def admission(self, now: float) -> float:
        """When an admission that is decided now has been written."""
        return now if self._limit is None else self._send(self._limit, self._limit.per_admission, now)

    def preemption(self, now: float) -> float:
        """When a preemption that is decided now has been written."""
        if self._limit is None:
            return now
        self._preempted = self._send(self._limit, self._limit.per_preemption, now)
        return self._preempted

    def cycle(self, decisions: Sequence[Decision], now: float) -> float:
        """When a cycle ends that decided this now; its preemptions have been passed to `preemption`."""
        limit = self._limit
        if limit is None or not limit.cycles_wait:
            return now
        # Preemptions of earlier cycles were written before this one began.
        end = max(now, self._preempted)
        for decision in decisions:
            if isinstance(decision, Requeue):
                reason = (decision.reason, message(decision))
                if self._reasons.get(decision.key) != reason:
                    self._reasons[decision.key] = reason
                    end = self._send(limit, limit.per_pending, now)
        return end

    def forget(self, key: str) -> None:
        """A workload waits no longer."""
        self._reasons.pop(key, None)

    def _send(self, limit: Limit, requests: float, now: float) -> float:
        self.requests += requests
        self._sent = max(self._sent, now) + requests / limit.per_second
        return round(max(now, self._sent - limit.burst / limit.per_second), 6)
