"""How a request reaches an API server: the one seam between controllers and any cluster.

A transport carries decoded objects, not bytes, so that a server in the same process needs no encoding at all.
Objects that come out of a transport are shared and must never be changed in place: build a new one, or patch.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

JSON = "application/json"
#: A list or object as the table that kubectl prints, where the server can make one.
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


@dataclass(slots=True)
class Request:
    """One API request. `body` is a JSON-able value, or None for no body; `accept` the form of the answer.

    With `given` the body, and all in it, is never changed again, and no list in it holds an object with a
    null: a server in the same process may keep it.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    content_type: str = JSON
    accept: str = JSON
    given: bool = False


class WatchEvent(NamedTuple):
    """One frame of a watch: ADDED, MODIFIED, DELETED or BOOKMARK. An ERROR frame is raised as ApiError."""

    type: str
    object: dict[str, Any]


class Transport(Protocol):
    """Carries requests to one API server, as one user."""

    async def call(self, request: Request) -> Any:
        """The decoded answer. Raises ApiError for a Status, ConnectionError when the server is not there."""
        ...

    def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        """Events until the server ends the watch. Close the generator (`aclosing`) to leave early."""
        ...

    async def close(self) -> None:
        """Give back connections. No request may be under way."""
        ...
