"""Reviews of the rights of the user who signed in.

Every review is a SelfSubjectAccessReview sent with the user's own token (decision 16): the API server decides
as for any request of the user, a token that has ended is refused at once, and the dashboard needs no right to
ask about others. A verdict holds for REVIEW_TIME.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pykueue.api.objects import Object
from pykueue.api.resources import SELF_SUBJECT_ACCESS_REVIEWS, SELF_SUBJECT_REVIEWS, Resource
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError

#: Seconds for which a verdict holds.
REVIEW_TIME: Final = 30.0
#: Namespaces whose rights are reviewed for a user who has none in the whole cluster, the first by name.
NAMESPACES_MAX: Final = 500
#: Reviews of one user under way at the same time.
CONCURRENT: Final = 16


class TokenEndedError(Exception):
    """The API server no longer accepts the token of the session."""


class Need(NamedTuple):
    """A right that a page shows something by."""

    verb: str
    resource: Resource
    namespace: str | None = None
    """None: in the whole cluster, else in each namespace."""


Right = tuple[str, str, str]


def _right(verb: str, resource: Resource) -> Right:
    return verb, resource.group, resource.plural


@dataclass(frozen=True)
class Grants:
    """What a user may do, as far as it was reviewed. Equal grants show equal pages."""

    everywhere: frozenset[Right] = frozenset()
    """(verb, group, plural) in the whole cluster."""
    namespaces: frozenset[tuple[Right, str]] = frozenset()
    """The same in one namespace."""
    truncated: bool = False
    """There are more namespaces than were reviewed."""

    def may(self, verb: str, resource: Resource, namespace: str = "") -> bool:
        """Whether the user may do it; in all namespaces, if none is given."""
        right = _right(verb, resource)
        return right in self.everywhere or (right, namespace) in self.namespaces

    def lists(self, resource: Resource, namespace: str = "") -> bool:
        """Whether the user may list objects of a kind."""
        return self.may("list", resource, namespace)

    def some(self, verb: str, resource: Resource) -> bool:
        """Whether the user may do it anywhere."""
        right = _right(verb, resource)
        return right in self.everywhere or any(each == right for each, _ in self.namespaces)


@dataclass
class Reviews:
    """Verdicts about one token."""

    client: Client
    clock: Clock
    _verdicts: dict[tuple[Right, str], tuple[float, bool]] = field(default_factory=dict)
    _limit: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENT))
    _checked: float = float("-inf")

    async def user(self) -> str:
        """Name of the token's user. Raises TokenEndedError, and what the client raises."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            found = await self._create(SELF_SUBJECT_REVIEWS, review)
        except ApiError as error:
            if error.code not in (403, 404):
                raise
            await self.verify(force=True)  # the server has no such review: any other request shows the same
            return "unknown user"
        name = (found.get("status") or {}).get("userInfo", {}).get("username", "")
        if not name or name == "system:anonymous":
            raise TokenEndedError
        return str(name)

    async def verify(self, force: bool = False) -> None:
        """Raise TokenEndedError if the token has ended, at most REVIEW_TIME ago."""
        if force or self.clock.monotonic() - self._checked >= REVIEW_TIME:
            await self._review(("get", "", "namespaces"), "")

    async def grants(self, needs: Iterable[Need], namespaces: Iterable[str]) -> Grants:
        """What of some needs the user may do.

        Where a namespaced resource is not granted in the whole cluster, it is reviewed in each of
        `namespaces`. Raises TokenEndedError, and what the client raises.
        """
        await self.verify()
        known = list(namespaces)
        wanted = list(dict.fromkeys(needs))
        everywhere: set[Right] = set()
        within: set[tuple[Right, str]] = set()
        wide = [need for need in wanted if need.namespace is None]
        for need, allowed in zip(
            wide, await self._all((_right(n.verb, n.resource), "") for n in wide), strict=True
        ):
            if allowed:
                everywhere.add(_right(need.verb, need.resource))
        narrow = [
            (_right(need.verb, need.resource), need.namespace)
            for need in wanted
            if need.namespace is not None
        ]
        narrow += [
            (_right(need.verb, need.resource), namespace)
            for need in wide
            if need.resource.namespaced and _right(need.verb, need.resource) not in everywhere
            for namespace in known[:NAMESPACES_MAX]
        ]
        for one, allowed in zip(narrow, await self._all(narrow), strict=True):
            if allowed:
                within.add(one)
        return Grants(frozenset(everywhere), frozenset(within), len(known) > NAMESPACES_MAX)

    async def allows(self, need: Need) -> bool:
        """Whether one right is granted."""
        return await self._review(_right(need.verb, need.resource), need.namespace or "")

    async def _all(self, rights: Iterable[tuple[Right, str]]) -> list[bool]:
        return list(await asyncio.gather(*(self._review(*one) for one in rights)))

    async def _review(self, right: Right, namespace: str) -> bool:
        known = self._verdicts.get((right, namespace))
        now = self.clock.monotonic()
        if known is not None and now - known[0] < REVIEW_TIME:
            return known[1]
        verb, group, plural = right
        attributes = {"verb": verb, "group": group, "resource": plural, "namespace": namespace}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        async with self._limit:
            found = await self._create(SELF_SUBJECT_ACCESS_REVIEWS, review)
        status = found.get("status") or {}
        allowed = bool(status.get("allowed")) and not status.get("denied")
        self._checked = now
        self._verdicts[right, namespace] = (now, allowed)
        return allowed

    async def _create(self, resource: Resource, review: Object) -> Object:
        try:
            return await self.client.create(resource, review)
        except ApiError as error:
            if error.code == 401:
                raise TokenEndedError from None
            raise
