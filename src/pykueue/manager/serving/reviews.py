"""Reviews of objects that are written, and conversions between versions, as the API server asks for them.

Nothing here trusts the body: it is bounded in size and in time, read only when it says that it is JSON, and
what does not fit is answered with a Status, never with a trace.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from pykueue.api.conversion import ConversionError, convert
from pykueue.api.decoding import DecodeError
from pykueue.api.objects import Object
from pykueue.kube.tracing import tracing
from pykueue.manager.configuration import parse_duration
from pykueue.manager.webhooks import Registration

from .messages import Handler, Request, Response, document, refusal

log = logging.getLogger(__name__)

#: Bytes of one review: two objects of the largest size that a server stores, and room. Of one conversion:
#: servers convert what they list in one go.
REVIEW_LIMIT, CONVERSION_LIMIT = 8 * 1024 * 1024, 32 * 1024 * 1024
#: Bytes of all bodies that are being read or worked on; more wait their turn.
ALL_BODIES = 64 * 1024 * 1024
#: Seconds in which a body must have come.
BODY_TIME = 10.0
#: Seconds a review may wait for the caches where the API server does not say how long it waits.
REVIEW_TIME = 10.0
#: Seconds that must be left of that for the answer to be on its way.
ANSWER_TIME = 1.0

#: A code and a text.
Refused = tuple[int, str]
Answer = Callable[[Request, Object], Awaitable[Object | Refused]]


class Bodies:
    """Bounds what all request bodies take together; first come, first served.

    Bytes are counted as they arrive, not as they are announced: a client that announces much and sends little
    takes no memory from others.
    """

    def __init__(self, limit: int = ALL_BODIES) -> None:
        self._free = limit
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        """Wait until so many bytes are free and take them; `give_back` frees them."""
        if not self._waiting and size <= self._free:
            self._free -= size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove(entry)
                self.give_back(0)
            else:
                self.give_back(size)
            raise

    def give_back(self, size: int) -> None:
        """So many bytes are free again."""
        self._free += size
        while self._waiting and self._waiting[0][0] <= self._free:
            wanted, turn = self._waiting.popleft()
            self._free -= wanted
            turn.set_result(None)


class _Body:
    """One request's body as it comes."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.data = bytearray()

    def __enter__(self) -> _Body:
        return self

    def __exit__(self, *_error: object) -> None:
        self._bodies.give_back(len(self.data))

    async def read(self, request: Request, limit: int) -> Refused | None:
        """Take it in; why not, where it is not taken."""
        try:
            async with asyncio.timeout(BODY_TIME):
                async for chunk in request.body.parts():
                    if len(self.data) + len(chunk) > limit:
                        return 413, f"the body is larger than {limit} bytes"
                    await self._bodies.take(len(chunk))
                    self.data += chunk
        except TimeoutError:
            return 408, f"the body did not come within {BODY_TIME:g} s"
        return None


class Reviews:
    """Handlers of the webhook server.

    `synced` waits until the caches that rules look into are filled. Whatever is asked at `unused` is allowed:
    kinds without rules are not to be stopped by webhooks of another configuration.
    """

    def __init__(
        self,
        hooks: Sequence[Registration],
        synced: Callable[[], Awaitable[None]],
        unused: Iterable[str] = (),
    ) -> None:
        self._hooks = hooks
        self._synced = synced
        self._unused = unused
        self._bodies = Bodies()

    def handlers(self, convert_path: str) -> dict[str, Handler]:
        """A handler for every path."""
        allowing = self._handler("AdmissionReview", REVIEW_LIMIT, _allow)
        found: dict[str, Handler] = dict.fromkeys(self._unused, allowing)
        found |= {hook.path: self._reviewer(hook) for hook in self._hooks}
        found[convert_path] = self._handler("ConversionReview", CONVERSION_LIMIT, self._convert)
        return found

    def _reviewer(self, hook: Registration) -> Handler:
        async def review(request: Request, body: Object) -> Object | Refused:
            obj = body["request"].get("object")
            if not isinstance(obj, Mapping) or not isinstance(obj.get("metadata"), Mapping):
                return 400, "not an AdmissionReview: request.object with metadata is required"
            # A rule that does not know the cluster would let through what it should stop.
            try:
                async with asyncio.timeout(_patience(request)):
                    await self._synced()
            except TimeoutError:
                return 503, "the cluster has not been read yet"
            return await hook.review(body)

        return self._handler("AdmissionReview", REVIEW_LIMIT, review)

    def _handler(
        self,
        kind: str,
        limit: int,
        answer: Answer,
    ) -> Handler:
        async def handle(request: Request) -> Response:
            if request.content_type != "application/json" or request.headers.get("Content-Encoding"):
                return refusal(415, "the body must be application/json, not encoded otherwise")
            size = request.content_length
            if size is not None and size > limit:
                return refusal(413, f"the body has {size} bytes; accepted: at most {limit}")
            with _Body(self._bodies) as received:
                problem = await received.read(request, limit)
                if problem is not None:
                    return refusal(*problem)
                found = await self._answered(request, received.data, kind, answer)
            if isinstance(found, tuple):
                return refusal(*found)
            return document(found)

        return handle

    async def _answered(self, request: Request, data: bytearray, kind: str, answer: Answer) -> Any:
        """The answer to a body, or why there is none."""
        try:
            body = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            return 400, f"the body is not JSON: {error}"
        if malformed := _malformed(body, kind):
            return 400, f"not a {kind}: {malformed}"
        with tracing(requestID=body["request"]["uid"]):
            try:
                return await answer(request, body)
            except (KeyError, TypeError, AttributeError, ValueError, DecodeError) as error:
                log.info("%s: the object cannot be read: %r", request.path, error)
                return 400, f"the object cannot be read: {type(error).__name__}: {error}"

    async def _convert(self, request: Request, body: Object) -> Object | Refused:
        """ConversionReview v1: every object in the version asked for, or why not."""
        asked = body["request"]
        version, objects = asked.get("desiredAPIVersion"), asked.get("objects")
        if not isinstance(version, str) or not isinstance(objects, list):
            return 400, "not a ConversionReview: desiredAPIVersion and objects are required"
        response: Object = {"uid": asked["uid"]}
        try:
            response["convertedObjects"] = [convert(obj, version) for obj in objects]
            response["result"] = {"status": "Success"}
        except (ConversionError, DecodeError) as error:
            response["convertedObjects"] = []
            response["result"] = {"status": "Failure", "message": str(error)}
        return {"apiVersion": body["apiVersion"], "kind": body["kind"], "response": response}


async def _allow(_request: Request, body: Object) -> Object:
    response = {"uid": body["request"]["uid"], "allowed": True}
    return {"apiVersion": body["apiVersion"], "kind": body["kind"], "response": response}


def _malformed(body: Any, kind: str) -> str | None:
    if not isinstance(body, Mapping) or body.get("kind") != kind or not body.get("apiVersion"):
        return f"kind {kind} and its apiVersion are required"
    request = body.get("request")
    if not isinstance(request, Mapping) or not isinstance(request.get("uid"), str):
        return "request.uid is required"
    return None


def _patience(request: Request) -> float:
    """Seconds in which the API server wants its answer, less what the way takes."""
    try:
        seconds = parse_duration(request.query["timeout"])
    except (KeyError, TypeError, ValueError):
        seconds = REVIEW_TIME
    return max(0.0, min(seconds, 30.0) - ANSWER_TIME)
