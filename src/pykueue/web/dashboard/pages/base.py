"""What pages have in common: the description of a page, what it is made from, lists in parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

from pykueue.api.resources import Resource
from pykueue.kube.client import Client
from pykueue.web.dashboard.security.reviews import Grants, Need
from pykueue.web.dashboard.state.board import Board
from pykueue.web.dashboard.state.trends import Trends

#: Rows of one part of a list.
PART: Final = 50

T = TypeVar("T")


class NotFoundError(Exception):
    """There is no such object; the message says which."""


class DeniedError(Exception):
    """The user may not see the page; the message says which right is missing."""


@dataclass(frozen=True)
class View:
    """What a page is made from."""

    board: Board
    trends: Trends
    grants: Grants
    params: Mapping[str, str]
    """Of the path."""
    query: Mapping[str, str]
    now: float
    """In seconds since 1970."""
    user: str
    client: Client
    """Sends requests with the token of the user."""

    @property
    def namespace(self) -> str:
        """The namespace of the path; empty where it has none."""
        return self.params.get("namespace", "")

    @property
    def name(self) -> str:
        """The name of the path."""
        return self.params["name"]

    def require(self, verb: str, resource: Resource, namespace: str = "") -> None:
        """Raise DeniedError unless the user may do it."""
        if not self.grants.may(verb, resource, namespace):
            raise DeniedError(denied(self.user, verb, resource, namespace))

    def require_some(self, resource: Resource) -> None:
        """Raise DeniedError unless the user may list objects of a kind in any namespace."""
        if not self.grants.some("list", resource):
            raise DeniedError(denied(self.user, "list", resource, ""))


def denied(user: str, verb: str, resource: Resource, namespace: str) -> str:
    """Which right is missing, as the API server writes it."""
    where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
    if resource.namespaced and not namespace:
        where = " in any namespace"
    return f'User "{user}" cannot {verb} resource "{resource.plural}" in API group "{resource.group}"{where}.'


Build = Callable[[View], Awaitable[Mapping[str, Any]]]
Needs = Callable[[Mapping[str, str]], Sequence[Need]]


@dataclass(frozen=True)
class Page:
    """One page. Its stream needs the verb `watch` on the resource of its first need."""

    route: str
    title: str
    """Of the page, with parameters of the path in braces."""
    template: str
    build: Build
    """Raises NotFoundError and DeniedError."""
    needs: Needs
    """What is reviewed before the page is made, by the parameters of the path; its subject comes first."""
    section: str = ""
    """Title of its entry in the navigation; empty for none."""
    parent: str = ""
    """Route of the page whose entry is marked."""
    live: bool = True
    """Whether it is made again after changes."""
    seconds: float = 0.0
    """Least time between two versions that are pushed, beside that of the server."""


@dataclass
class Part(Generic[T]):
    """A part of a list, and how to get to the others."""

    items: Sequence[T]
    number: int
    """Of the part, from 1."""
    count: int
    """Of all items."""
    size: int = PART
    path: str = ""
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return max(1, -(-self.count // self.size))

    @property
    def first(self) -> int:
        """Number of the first item shown, from 1; 0 if there is none."""
        return (self.number - 1) * self.size + 1 if self.count else 0

    @property
    def last(self) -> int:
        """Number of the last item shown."""
        return min(self.number * self.size, self.count)

    def link(self, number: int) -> str:
        """The address of another part."""
        rest = {key: value for key, value in self.query.items() if key != "page" and value}
        text = urlencode({**rest, "page": str(number)})
        return f"{self.path}?{text}"


def part_of(items: Sequence[T], view: View, path: str, size: int = PART) -> Part[T]:
    """The part of a list that the query's `page` names; the last if there are fewer."""
    text = view.query.get("page", "1")
    number = int(text) if text.isdecimal() and len(text) < 9 else 1
    number = min(max(1, number), max(1, -(-len(items) // size)))
    return Part(items[(number - 1) * size : number * size], number, len(items), size, path, view.query)


def link(*parts: str) -> str:
    """An address of names, each escaped."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def everywhere(*resources: Resource) -> list[Need]:
    """The right to list objects of some kinds, wherever."""
    return [Need("list", resource) for resource in resources]
