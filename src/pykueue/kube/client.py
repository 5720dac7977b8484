"""Requests to a Kubernetes API, in terms of resources and objects."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from pykueue.api.objects import Object
from pykueue.api.resources import Resource
from pykueue.clock import Clock
from pykueue.kube.errors import ApiError
from pykueue.kube.limiter import Limiter
from pykueue.kube.pages import ObjectList, pages
from pykueue.kube.transport import APPLY_PATCH, JSON, MERGE_PATCH, Request, Transport, WatchEvent

#: Objects per page of a list, as every client of a large cluster asks for them.
PAGE_SIZE = 500
#: How often a request is sent again because the server asked to retry later (429 or 5xx with Retry-After).
PATIENCE = 10

log = logging.getLogger(__name__)


class Client:
    """Sends requests over a transport, within a limit, and retries when the server asks for it.

    Errors: ApiError when the server refuses, ConnectionError when it is not there. Watches are not limited.
    """

    def __init__(
        self,
        transport: Transport,
        limiter: Limiter | None = None,
        *,
        clock: Clock | None = None,
        page_size: int | None = PAGE_SIZE,
    ) -> None:
        self.transport = transport
        self._limiter = limiter
        self._clock = clock or Clock()
        self._page_size = page_size

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> Object:
        """One object as it is now."""
        return await self._object("GET", resource.path(namespace, name, subresource))

    async def find(self, resource: Resource, name: str, namespace: str | None = None) -> Object | None:
        """One object as it is now; None when there is none."""
        try:
            return await self.get(resource, name, namespace)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> ObjectList:
        """All matching objects, read page by page; one namespace, or all of them when none is given."""
        items: list[Object] = []
        version = ""
        async for page in self.pages(
            resource, namespace, label_selector=label_selector, field_selector=field_selector
        ):
            items.extend(page.items)
            version = page.resource_version
        return ObjectList(items, version)

    def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> AsyncIterator[ObjectList]:
        """What `list` returns, page by page: all of them are of one version."""
        query = selectors(label_selector, field_selector)
        if self._page_size:
            query["limit"] = str(self._page_size)
        return pages(self._object, resource, resource.path(namespace), query)

    async def create(
        self,
        resource: Resource,
        obj: Object,
        *,
        subresource: str | None = None,
        name: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
        given: bool = False,
    ) -> Object:
        """Create the object in its namespace; `name` and `subresource` are for things like pods/eviction.

        With `given` nothing in the object is changed afterwards (`kube.transport.Request`).
        """
        path = resource.path((obj.get("metadata") or {}).get("namespace"), name, subresource)
        return await self._object("POST", path, write_options(dry_run, field_manager), obj, given=given)

    async def update(
        self,
        resource: Resource,
        obj: Object,
        *,
        subresource: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> Object:
        """Replace the object; a conflict when its resourceVersion is no longer the stored one."""
        metadata = obj["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"], subresource)
        return await self._object("PUT", path, write_options(dry_run, field_manager), obj)

    async def patch(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        patch: Any,
        *,
        content_type: str = MERGE_PATCH,
        subresource: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
        given: bool = False,
    ) -> Object:
        """Change parts of an object; `content_type` is one of the patch kinds of `kube.transport`.

        With `given` nothing in the patch is changed afterwards (`kube.transport.Request`).
        """
        path = resource.path(namespace, name, subresource)
        query = write_options(dry_run, field_manager)
        return await self._object("PATCH", path, query, patch, content_type, given)

    async def apply(
        self,
        resource: Resource,
        obj: Object,
        *,
        field_manager: str,
        force: bool = False,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Server-side apply: `field_manager` states the fields it wants; `force` takes them from others."""
        metadata = obj["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"], subresource)
        query = write_options(dry_run, field_manager)
        if force:
            query["force"] = "true"
        return await self._object("PATCH", path, query, obj, APPLY_PATCH)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        propagation: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period: int | None = None,
    ) -> Object:
        """Delete one object: `propagation` is Background, Foreground or Orphan, `grace_period` is in seconds.

        With `uid` or `resource_version` the delete conflicts unless the stored object has that one.
        """
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if propagation is not None:
            options["propagationPolicy"] = propagation
        if grace_period is not None:
            options["gracePeriodSeconds"] = grace_period
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        given = {key: value for key, value in preconditions.items() if value is not None}
        if given:
            options["preconditions"] = given
        return await self._object("DELETE", resource.path(namespace, name), body=options)

    async def delete_collection(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        propagation: str | None = None,
    ) -> None:
        """Delete all matching objects of one namespace, or of a cluster-scoped resource."""
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if propagation is not None:
            options["propagationPolicy"] = propagation
        query = selectors(label_selector, field_selector)
        await self._object("DELETE", resource.path(namespace), query, options)

    async def modify(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        change: Callable[[Object], Object | None],
        *,
        subresource: str | None = None,
        attempts: int = 5,
    ) -> Object:
        """Read, change, write; again from the start when another client wrote in between.

        `change` returns the new object built from the one it gets, or None when there is nothing to do.
        """
        for attempt in range(1, attempts + 1):
            stored = await self.get(resource, name, namespace)
            wanted = change(stored)
            if wanted is None:
                return stored
            try:
                return await self.update(resource, wanted, subresource=subresource)
            except ApiError as error:
                if not error.conflict or attempt == attempts:
                    raise
        raise ValueError(f"attempts must be at least 1, not {attempts}")

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        resource_version: str | None = None,
        initial_events: bool = False,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes after `resource_version`, bookmarks included; leave it early through `aclosing`.

        With `initial_events` the objects that exist come first, ended by a bookmark that carries the
        annotation `k8s.io/initial-events-end`; servers that cannot do it refuse with an ApiError.
        """
        query = selectors(label_selector, field_selector)
        query["watch"] = "true"
        query["allowWatchBookmarks"] = "true"
        if resource_version is not None:
            query["resourceVersion"] = resource_version
        if initial_events:
            query["sendInitialEvents"] = "true"
            query["resourceVersionMatch"] = "NotOlderThan"
        return self.transport.watch(Request("GET", resource.path(namespace), query))

    async def call(self, request: Request) -> Any:
        """Send any request, within the limit; again when the server asks to retry later."""
        for attempt in range(PATIENCE + 1):
            if self._limiter is not None:
                await self._limiter.acquire()
            try:
                return await self.transport.call(request)
            except ApiError as error:
                patient = error.code == 429 or error.code >= 500
                if not patient or error.retry_after is None or attempt == PATIENCE:
                    raise
                seconds = error.retry_after
            log.debug("%s %s: the server asks to wait %g s", request.method, request.path, seconds)
            await self._clock.sleep(seconds)
        raise AssertionError("the last attempt returns or raises")

    def _object(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        given: bool = False,
    ) -> Awaitable[Object]:
        return self.call(Request(method, path, query or {}, body, content_type, given=given))


def selectors(label_selector: str | None, field_selector: str | None) -> dict[str, str]:
    """The query parameters of a selection."""
    given = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in given.items() if value}


def write_options(dry_run: bool, field_manager: str | None) -> dict[str, str]:
    """The query parameters of a write."""
    query = {"dryRun": "All"} if dry_run else {}
    if field_manager:
        query["fieldManager"] = field_manager
    return query
