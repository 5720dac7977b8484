"""Workers that cannot be reached: for how long, and when they count as lost.

Source: docs/reference/admission-checks.md 17.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pykueue.clock import Clock

from .remote import RemoteCluster

#: Seconds for which a choice among workers waits for those that a manager connects to, as after its start.
CONNECTING: Final = 1.0
#: Seconds; a shorter rest of a time-out counts as none.
_MOMENT: Final = 0.001


class Losses:
    """How long each worker has not been reached. A worker counts as lost after `timeout` seconds."""

    def __init__(self, remotes: Mapping[str, RemoteCluster], timeout: float, clock: Clock) -> None:
        self.timeout = timeout
        self._remotes = remotes
        self._clock = clock
        #: Since when workers that no MultiKueueCluster describes were missed.
        self._missed: dict[str, float] = {}

    def described(self, name: str) -> None:
        """A MultiKueueCluster describes a worker: it is not missed any more."""
        self._missed.pop(name, None)

    def connecting(self, names: Iterable[str]) -> float:
        """Seconds for which workers that are being connected may still tell that they admitted a Workload."""
        remotes = [self._remotes[name] for name in names if name in self._remotes]
        waits = [one.lost_for() for one in remotes if one.session is None and one.problem is None]
        left = CONNECTING - min(waits, default=CONNECTING)
        return left if left > _MOMENT else 0.0

    def left(self, name: str) -> float:
        """Seconds until a worker that is not connected counts as lost; 0 where it does."""
        left = self.timeout - self._lost_for(name)
        # The difference of two sums may be too small to be waited for.
        return left if left > _MOMENT else 0.0

    def _lost_for(self, name: str) -> float:
        """Seconds since the connection to a worker was lost."""
        remote = self._remotes.get(name)
        if remote is not None:
            return remote.lost_for()
        now = self._clock.monotonic()
        missed = now - self._missed.setdefault(name, now)
        # It may be one of those that cannot be reached, by another name.
        others = (one.lost_for() for one in self._remotes.values() if one.session is None)
        return min((missed, *others))
