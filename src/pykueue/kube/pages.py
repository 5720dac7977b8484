"""Lists that are read page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from pykueue.api.objects import Object
from pykueue.api.resources import Resource


class ObjectList(NamedTuple):
    """What a list returned; `resource_version` is where a watch goes on."""

    items: list[Object]
    resource_version: str


async def pages(
    read: Callable[[str, str, dict[str, str]], Awaitable[Object]],
    resource: Resource,
    path: str,
    query: dict[str, str],
) -> AsyncIterator[ObjectList]:
    """The pages of a list, all of one version; `read` sends a request with its method, path and query."""
    while True:
        page = await read("GET", path, query)
        metadata = page.get("metadata") or {}
        items = [_with_kind(item, resource) for item in page.get("items") or ()]
        yield ObjectList(items, str(metadata.get("resourceVersion", "")))
        token = metadata.get("continue")
        if not token:
            return
        query = {**query, "continue": token}


def _with_kind(item: Object, resource: Resource) -> Object:
    """The items of a list of a built-in kind do not say what they are (api-machinery 9)."""
    if "kind" in item:
        return item
    return {"apiVersion": resource.api_version, "kind": resource.kind, **item}
