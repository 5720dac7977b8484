"""The flight recorder as a component: it records while the replica leads, and never stops the manager."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from pykueue.clock import Clock
from pykueue.engine import Engine
from pykueue.manager.components.component import Component, Context
from pykueue.prometheus import Counters, Gauges, Registry

from .files import Limits, SegmentWriter

#: Seconds between flushes: what a crash loses at most.
FLUSH_SECONDS = 5.0
#: Seconds after which a recording that failed is begun again.
RETRY_SECONDS = 600.0
#: Seconds between looks at what has become too old.
CLEANUP_SECONDS = 3600.0

log = logging.getLogger(__name__)


def component(folder: Path, limits: Limits) -> Component:
    """The component that records into a directory, which exists."""
    return Component(
        "flight-recorder",
        "Records events and decisions of the engine in files, for pykueue replay.",
        partial(_build, folder, limits),
    )


def _build(folder: Path, limits: Limits, context: Context) -> FlightRecorder:
    return FlightRecorder(folder, limits, context.engine, context.clock, context.metrics.registry)


class FlightRecorder:
    """Records the engine while it runs; a gap between two runs is marked in the files."""

    def __init__(
        self, folder: Path, limits: Limits, engine: Engine, clock: Clock, registry: Registry
    ) -> None:
        self._folder = folder
        self._limits = limits
        self._engine = engine
        self._clock = clock
        self._writer: SegmentWriter | None = None
        self._active = Gauges(
            "pykueue_flight_recorder_active",
            "1 while events and decisions are recorded.",
            (),
            registry,
        )
        self._errors = Counters(
            "pykueue_flight_recorder_errors_total",
            "Number of times the flight recorder stopped because of an error, such as a full disk.",
            (),
            registry,
        )
        self._entries = Counters(
            "pykueue_flight_recorder_entries_total", "Number of recorded entries.", (), registry
        )
        self._bytes = Counters(
            "pykueue_flight_recorder_written_bytes_total",
            "Number of compressed bytes written.",
            (),
            registry,
        )

    async def run(self) -> None:
        """Record until cancelled."""
        cleaned = self._clock.monotonic()
        try:
            while True:
                if not self._start():
                    await self._clock.sleep(RETRY_SECONDS)
                    continue
                await self._clock.sleep(FLUSH_SECONDS)
                if self._clock.monotonic() - cleaned >= CLEANUP_SECONDS:
                    cleaned = self._clock.monotonic()
                    self._remove_old()
                if not self._flush():
                    await self._clock.sleep(RETRY_SECONDS)
        finally:
            self._stop()

    def _start(self) -> bool:
        """Whether it records now: begun if it was not."""
        if self._writer is not None:
            return True
        try:
            self._writer = SegmentWriter(self._folder, self._limits, self._engine, self._clock.time())
        except OSError as error:
            self._failed(error)
            return False
        self._engine.recorder = self._writer
        self._active.set(1)
        return True

    def _flush(self) -> bool:
        """Whether everything recorded so far could be written."""
        writer = self._writer
        if writer is None:
            return False
        writer.flush()
        self._count(writer)
        if writer.error is None:
            return True
        self._engine.recorder = self._writer = None
        self._failed(writer.error)
        return False

    def _remove_old(self) -> None:
        writer = self._writer
        if writer is None:
            return
        try:
            writer.remove_old(self._clock.time())
        except OSError as error:
            log.warning("%s: %s; segments that are too old stay", self._folder, error.strerror)

    def _count(self, writer: SegmentWriter) -> None:
        self._entries.inc(amount=writer.entries)
        self._bytes.inc(amount=writer.bytes_written)
        writer.entries = writer.bytes_written = 0

    def _failed(self, error: OSError) -> None:
        self._active.set(0)
        self._errors.inc()
        log.error(
            "%s: %s; nothing is recorded for %g minutes", self._folder, error.strerror, RETRY_SECONDS / 60
        )

    def _stop(self) -> None:
        writer, self._writer = self._writer, None
        self._engine.recorder = None
        self._active.set(0)
        if writer is not None:
            writer.close()
            self._count(writer)
