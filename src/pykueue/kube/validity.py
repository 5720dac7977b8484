"""A warning where the wall clock is outside the validity of certificates that are served with."""

from __future__ import annotations

import logging
from datetime import datetime

from pykueue.clock import Clock, Recheck

#: Seconds between two checks while the wall clock does not jump.
PERIOD = 3600.0

log = logging.getLogger(__name__)


class ValidityWatch:
    """Warns when certificates, valid from `begins` to `ends`, are not yet valid or have expired.

    TLS libraries end such connections without a word to the server: the cause shows in its log alone. Warns
    once for each time the certificates become invalid, within JUMP_CHECK seconds of a jump.
    """

    def __init__(self, clock: Clock, what: str, begins: datetime, ends: datetime) -> None:
        self._clock = clock
        self._what = what
        self._begins = begins
        self._ends = ends
        self._valid = True
        self._timer: Recheck | None = None

    def start(self) -> None:
        """Check now, and until `close`."""
        now = self._clock.now()
        valid = self._begins <= now <= self._ends
        if self._valid and not valid:
            state = "are not valid before" if now < self._begins else "expired at"
            limit = self._begins if now < self._begins else self._ends
            log.warning(
                "%s: certificates %s %s, and the wall clock of this machine shows %s: TLS connections fail; "
                "set the clock, or remove the certificates and start again to have new ones issued",
                self._what,
                state,
                f"{limit:%Y-%m-%dT%H:%M:%SZ}",
                f"{now:%Y-%m-%dT%H:%M:%SZ}",
            )
        elif valid and not self._valid:
            log.info("%s: certificates are valid again", self._what)
        self._valid = valid
        self._timer = self._clock.recheck_later(PERIOD, self.start)

    def close(self) -> None:
        """Check no longer."""
        if self._timer is not None:
            self._timer.cancel()
