"""Delegated authentication and authorization: TokenReview and SubjectAccessReview of the API server.

The answers are cached for a while, as in every delegating server, so that a scrape every few seconds
does not cost two requests each time. Source: docs/reference/kueue-api.md 6.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from pykueue.api.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError

from .messages import Handler, Request, Response, refusal

#: Seconds for which the user of a token, a permission and a refusal are cached.
KNOWN_TIME, ALLOWED_TIME, DENIED_TIME = 60.0, 300.0, 30.0
#: Answers that are kept at most.
KEPT = 1024
#: Characters of a token; longer ones are invalid.
TOKEN_LIMIT = 16 * 1024

V = TypeVar("V")


class _Answers(Generic[V]):
    """Answers by question, each for its time."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[float, V]] = {}

    def get(self, question: Hashable) -> V | None:
        found = self._kept.get(question)
        if found is None or found[0] <= asyncio.get_running_loop().time():
            return None
        return found[1]

    def keep(self, question: Hashable, answer: V, seconds: float) -> None:
        self._kept.pop(question, None)
        if len(self._kept) >= KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[question] = (asyncio.get_running_loop().time() + seconds, answer)


class Access:
    """Asks the API server who a client is and what it may do."""

    def __init__(self, client: Client, allowed: float = ALLOWED_TIME, denied: float = DENIED_TIME) -> None:
        """Verdicts are cached for `allowed` and `denied` seconds."""
        self._client = client
        self._times = (denied, allowed)
        self._users: _Answers[dict[str, Any]] = _Answers()
        self._verdicts: _Answers[bool] = _Answers()

    def guarded(self, handler: Handler) -> Handler:
        """The handler, for those only who may `get` the path of the request."""

        async def handle(request: Request) -> Response:
            try:
                user = await self.user_of(request)
                if user is None:
                    return refusal(401, "Unauthorized")
                if not await self.lets(
                    user, {"nonResourceAttributes": {"path": request.path, "verb": "get"}}
                ):
                    name = user.get("username")
                    return refusal(403, f'forbidden: User "{name}" cannot get path "{request.path}"')
            except (ApiError, ConnectionError, TimeoutError) as error:
                return refusal(503, f"the user cannot be authenticated: {error}")
            return await handler(request)

        return handle

    async def user_of(self, request: Request) -> dict[str, Any] | None:
        """The user of a request's token by TokenReview; None when the token is invalid.

        Raises what the client raises.
        """
        token = _token(request)
        if not token or len(token) > TOKEN_LIMIT:
            return None
        question = hashlib.sha256(token.encode()).digest()
        known = self._users.get(question)
        if known is None:
            review = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": token},
            }
            status = (await self._client.create(TOKEN_REVIEWS, review)).get("status") or {}
            if not status.get("authenticated"):
                return None
            known = status.get("user") or {}
            self._users.keep(question, known, KNOWN_TIME)
        return known

    async def lets(self, user: dict[str, Any], attributes: dict[str, Any]) -> bool:
        """Whether a user may do something: the attributes of a SubjectAccessReview.

        Raises what the client raises.
        """
        groups = user.get("groups") or []
        who = (user.get("username"), user.get("uid"), tuple(groups), str(user.get("extra")))
        question = (*who, str(attributes))
        verdict = self._verdicts.get(question)
        if verdict is None:
            spec = {
                "user": user.get("username") or "",
                "uid": user.get("uid") or "",
                "groups": groups,
                "extra": user.get("extra") or {},
                **attributes,
            }
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
            status = (await self._client.create(SUBJECT_ACCESS_REVIEWS, review)).get("status") or {}
            verdict = bool(status.get("allowed")) and not status.get("denied")
            self._verdicts.keep(question, verdict, self._times[verdict])
        return verdict


def _token(request: Request) -> str | None:
    scheme, _, token = request.headers.get("Authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
