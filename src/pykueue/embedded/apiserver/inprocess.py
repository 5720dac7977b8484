"""A client's way in from the same process: decoded, shared objects, nothing encoded."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from pykueue.embedded.apiserver.handlers.decoding import own_copy
from pykueue.embedded.apiserver.handlers.reads import Listing
from pykueue.embedded.apiserver.pipeline import Pipeline
from pykueue.embedded.apiserver.registry.call import Answer, Call, User, resolve
from pykueue.embedded.apiserver.watch.watches import watch_objects
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request, WatchEvent


class InProcessTransport:
    """A `kube.transport.Transport` to a server in this process, as one user.

    Bodies are copied, so callers may go on using theirs, unless they are given away. Answers are the stored
    objects themselves: shared, never to be changed.
    """

    def __init__(self, pipeline: Pipeline, user: User) -> None:
        self._pipeline = pipeline
        self._user = user
        self._agent = user.name[:128]

    def _call(self, request: Request) -> Call | None:
        target = resolve(self._pipeline.core.registry, request.path)
        if target is None:
            return None
        call = Call(
            request.method, target, request.query, self._user, None, request.content_type, self._agent
        )
        if request.given:
            call.body, call.body_nulls = request.body, False
        elif request.body is not None:
            call.body, call.body_nulls = own_copy(request.body)
        return call

    async def call(self, request: Request) -> Any:
        call = self._call(request)
        if call is None:
            if self._pipeline.aggregation.extension(request.path) is not None:
                return await self._pipeline.extended(
                    request.method, request.path, request.query or {}, self._user
                )
            return self._pipeline.document(request.path)
        answer = await self._pipeline.handle(call)
        if isinstance(answer, Listing):
            return answer.object(call.endpoint)
        assert isinstance(answer, Answer)
        return answer.object(call.endpoint)

    def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        return watch_objects(self._pipeline.core, lambda: self._watched(request))

    def _watched(self, request: Request) -> Call:
        query = {**request.query, "watch": "true"}
        call = self._call(Request("GET", request.path, query))
        if call is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        self._pipeline.authorize(call)
        return call

    async def close(self) -> None:
        """Nothing to give back."""
