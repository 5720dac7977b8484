"""A small API server behind a transport, with faults on demand: what the kube tests talk to.

It keeps objects by path, one version counter and a history, and can drop watches, forget history and refuse.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import unquote

from pykueue.api.resources import Resource
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request, WatchEvent

Object = dict[str, Any]


class FakeApi:
    """Transport and server in one."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.history: list[tuple[int, str, WatchEvent]] = []
        self.version = 0
        self.oldest = 0
        self.requests: list[Request] = []
        self.refusals: list[Exception] = []
        self.streams_lists = False
        self._uids = itertools.count(1)
        self._watches: list[asyncio.Queue[WatchEvent | Exception | None]] = []

    # What tests do behind the client's back

    def put(self, resource: Resource, name: str, namespace: str | None = None, **fields: Any) -> Object:
        """Create or change an object."""
        path = resource.path(namespace, name)
        known = self.objects.get(path)
        metadata: Object = {"name": name, **fields.pop("metadata", {})}
        if namespace:
            metadata["namespace"] = namespace
        metadata["uid"] = known["metadata"]["uid"] if known else f"uid-{next(self._uids)}"
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}
        self._store(path, obj, "MODIFIED" if known else "ADDED")
        return self.objects[path]

    def remove(self, resource: Resource, name: str, namespace: str | None = None) -> None:
        """Delete an object."""
        path = resource.path(namespace, name)
        self._store(path, self.objects[path], "DELETED")

    def drop_watches(self, error: Exception | None = None) -> None:
        """End every open watch, cleanly or with an error."""
        for queue in self._watches:
            queue.put_nowait(error)

    def bookmark(self, resource: Resource) -> None:
        """Tell every watch the current version."""
        for queue in self._watches:
            queue.put_nowait(WatchEvent("BOOKMARK", self._bookmark(resource)))

    def forget_history(self) -> None:
        """Answer 410 to watches that begin before now."""
        self.oldest = self.version

    @property
    def watching(self) -> int:
        """Open watches."""
        return len(self._watches)

    # Transport

    async def call(self, request: Request) -> Any:
        self.requests.append(request)
        await asyncio.sleep(0)
        if self.refusals:
            raise self.refusals.pop(0)
        path = request.path
        if request.method == "POST":
            path += f"/{request.body['metadata']['name']}"
            if path in self.objects:
                raise ApiError(409, "AlreadyExists", f"{path} exists")
            self._store(path, self._with_uid(request.body), "ADDED")
            return self.objects[path]
        if request.method == "GET" and path not in self.objects and _is_collection(path):
            return self._page(request)
        if path not in self.objects:
            raise ApiError(404, "NotFound", f"{path} not found")
        stored = self.objects[path]
        if request.method == "GET":
            return stored
        if request.method == "DELETE":
            self._store(path, stored, "DELETED")
            return {"kind": "Status", "status": "Success"}
        wanted = request.body if request.method == "PUT" else merged(stored, request.body)
        given = wanted["metadata"].get("resourceVersion")
        if given is not None and given != stored["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        self._store(path, wanted, "MODIFIED")
        return self.objects[path]

    async def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        self.requests.append(request)
        await asyncio.sleep(0)
        if self.refusals:
            raise self.refusals.pop(0)
        prefix = request.path + "/"
        initial = request.query.get("sendInitialEvents") == "true"
        if initial and not self.streams_lists:
            raise ApiError(422, "Invalid", "sendInitialEvents is forbidden")
        queue: asyncio.Queue[WatchEvent | Exception | None] = asyncio.Queue()
        if initial:
            for path in sorted(path for path in self.objects if path.startswith(prefix)):
                queue.put_nowait(WatchEvent("ADDED", self.objects[path]))
            end = self._bookmark(None)
            end["metadata"]["annotations"] = {"k8s.io/initial-events-end": "true"}
            queue.put_nowait(WatchEvent("BOOKMARK", end))
        elif "resourceVersion" not in request.query:
            for path in sorted(path for path in self.objects if path.startswith(prefix)):
                queue.put_nowait(WatchEvent("ADDED", self.objects[path]))
        else:
            since = int(request.query["resourceVersion"])
            if since < self.oldest:
                raise ApiError(410, "Expired", f"too old resource version: {since}")
            for version, path, event in self.history:
                if version > since and path.startswith(prefix):
                    queue.put_nowait(event)
        queue.prefix = prefix  # type: ignore[attr-defined]
        self._watches.append(queue)
        try:
            while (event_or_end := await queue.get()) is not None:
                if isinstance(event_or_end, Exception):
                    raise event_or_end
                yield event_or_end
        finally:
            self._watches.remove(queue)

    async def close(self) -> None:
        pass

    # Storage

    def _store(self, path: str, obj: Object, type_: str) -> None:
        self.version += 1
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        if type_ == "DELETED":
            del self.objects[path]
        else:
            self.objects[path] = stored
        event = WatchEvent(type_, stored)
        self.history.append((self.version, path, event))
        for queue in self._watches:
            if path.startswith(queue.prefix):  # type: ignore[attr-defined]
                queue.put_nowait(event)

    def _with_uid(self, obj: Object) -> Object:
        return {**obj, "metadata": {**obj["metadata"], "uid": f"uid-{next(self._uids)}"}}

    def _bookmark(self, resource: Resource | None) -> Object:
        return {"kind": resource.kind if resource else "", "metadata": {"resourceVersion": str(self.version)}}

    def _page(self, request: Request) -> Object:
        prefix = request.path + "/"
        names = sorted(path for path in self.objects if path.startswith(prefix))
        start = int(unquote(request.query.get("continue", "0")))
        limit = int(request.query.get("limit", len(names) or 1))
        metadata: Object = {"resourceVersion": str(self.version)}
        if start + limit < len(names):
            metadata["continue"] = str(start + limit)
        return {
            "kind": "List",
            "metadata": metadata,
            "items": [self.objects[path] for path in names[start : start + limit]],
        }


def _is_collection(path: str) -> bool:
    parts = path.split("/namespaces/")[-1].split("/")
    return len(parts) == 2 if "/namespaces/" in path else True


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
