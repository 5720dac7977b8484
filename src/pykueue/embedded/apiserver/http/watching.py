"""Watches over HTTP: the events of a watch as a stream of frames, with bookmarks and an end."""

from __future__ import annotations

import asyncio

from pykueue.embedded.apiserver.pipeline import Pipeline
from pykueue.embedded.apiserver.registry.call import Call
from pykueue.embedded.apiserver.watch.delivery import Delivery, Rounds
from pykueue.embedded.apiserver.watch.selection import Shown
from pykueue.embedded.apiserver.watch.watches import Watch, bookmark
from pykueue.embedded.objects.errors import to_status
from pykueue.embedded.store.records import Batch
from pykueue.kube.errors import ApiError

from .encoding import OBJECT_VIEWS, FrameEncoder, fields_of
from .exchange import Exchange, Request
from .negotiation import PLAIN, choose

#: Seconds between bookmarks of a watch that allows them.
_BOOKMARK_INTERVAL = 60.0
#: Seconds a watch may last when its client says nothing: chosen at random between these.
_WATCH_TIME = (1800.0, 3600.0)
#: Initial events written between two pauses for the connection to take them.
_SLICE = 500


class WatchStreams:
    """The watches that clients have open."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        #: Set to end a watch.
        self._open: set[asyncio.Event] = set()
        self._rounds = Rounds()

    def end(self) -> None:
        """End all of them."""
        for ended in self._open:
            ended.set()

    async def answer(self, request: Request, exchange: Exchange, call: Call) -> None:
        """Answer with a stream of events, until either side ends it."""
        pipeline = self._pipeline
        pipeline.authorize(call)
        form = choose(request.header(b"accept"), OBJECT_VIEWS)
        if form.media != "application/json":
            form = PLAIN
        watch = Watch(pipeline.core, call)
        encoder = FrameEncoder(call, form, exchange, watch.selection.key)
        ended = asyncio.Event()
        waiting: list[tuple[list[Shown], Batch | None]] = []
        early = True
        clock = pipeline.clock

        def deliver(shown: list[Shown], batch: Batch | None) -> None:
            if early:
                waiting.append((shown, batch))
                return
            delivery.send(encoder.part(shown, batch, clock))

        def let_go() -> None:
            watch.stop()
            exchange.abort()

        delivery = Delivery(exchange.output, self._rounds, let_go)

        def fail(error: ApiError) -> None:
            delivery.flush()
            exchange.send(encoder.frame("ERROR", to_status(error)))
            ended.set()

        self._open.add(ended)
        try:
            exchange.begin(fields_of(form))
            try:
                initial = await watch.start(deliver, fail)
            except ApiError as error:
                exchange.send(encoder.frame("ERROR", to_status(error)))
                exchange.end()
                return
            for start in range(0, len(initial), _SLICE):
                exchange.send(encoder.frames(initial[start : start + _SLICE], clock.time()))
                await exchange.drain()
            if watch.options.marks_end:
                mark = bookmark(watch.endpoint, watch.start_revision, True)
                exchange.send(encoder.bookmark(mark))
            early = False
            for shown, batch in waiting:
                delivery.send(encoder.part(shown, batch, clock))
            await self._keep_watching(watch, encoder, delivery, exchange, ended)
            watch.stop()
            delivery.flush()
            exchange.end()
        finally:
            watch.stop()
            delivery.close()
            self._open.discard(ended)

    async def _keep_watching(
        self,
        watch: Watch,
        encoder: FrameEncoder,
        delivery: Delivery,
        exchange: Exchange,
        ended: asyncio.Event,
    ) -> None:
        loop = asyncio.get_running_loop()
        duration = watch.options.timeout or self._pipeline.core.rng.uniform(*_WATCH_TIME)
        deadline = loop.time() + duration
        while (left := deadline - loop.time()) > 0:
            try:
                async with asyncio.timeout(min(left, _BOOKMARK_INTERVAL)):
                    await ended.wait()
                    return
            except TimeoutError:
                pass
            if watch.options.bookmarks:
                delivery.flush()
                exchange.send(encoder.bookmark(bookmark(watch.endpoint, watch.revision)))
