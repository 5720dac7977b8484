"""A certificate mounted from outside: two files in a directory, read again when they change."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from pykueue.clock import Clock
from pykueue.manager.install_names import CERTIFICATE, KEY

from .lifetimes import Use

#: Seconds between two looks at the files.
PERIOD = 10.0

log = logging.getLogger(__name__)


class MountedCertificates:
    """Follows the pair of files in a directory."""

    def __init__(self, directory: Path, clock: Clock, use: Use) -> None:
        self._directory = directory
        self._clock = clock
        self._use = use
        self._used: tuple[bytes, bytes] | None = None
        self._complaint = ""

    async def run(self) -> None:
        """Follow them until cancelled."""
        while True:
            self._look()
            await self._clock.sleep(PERIOD)

    def _look(self) -> None:
        """Take the pair when it is another; one that is missing or does not fit leaves the last in use.

        The two files are not exchanged at once, so a pair may not fit until the next look.
        """
        try:
            found = self._pair()
            if found != self._used:
                self._use(*found)
                log.info("certificate taken from %s", self._directory)
                self._used = found
            self._complaint = ""
        except (OSError, ssl.SSLError, ValueError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("the certificate in %s cannot be used: %s", self._directory, error)

    def _pair(self) -> tuple[bytes, bytes]:
        return (self._directory / CERTIFICATE).read_bytes(), (self._directory / KEY).read_bytes()
