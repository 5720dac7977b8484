"""Sign-in codes and sessions. Both live in memory: a restart of the dashboard signs everyone out."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import orjson

from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.transport import Transport

from .reviews import Reviews

#: Seconds for which a sign-in code can be used, once.
CODE_TIME: Final = 60.0
#: Codes that are valid at the same time; the oldest are dropped.
CODES_MAX: Final = 1000
#: Seconds a session lasts at most, and without a request or stream.
SESSION_TIME, IDLE_TIME = 12 * 3600.0, 3600.0
#: Sessions at the same time; more are refused.
SESSIONS_MAX: Final = 2000
#: Characters of a token; longer ones are refused.
TOKEN_MAX: Final = 16 * 1024

#: Gives the transport of a user by bearer token.
TransportOf = Callable[[str], Transport]


@dataclass(eq=False)
class Session:
    """One browser that is signed in. Its token never leaves the server."""

    user: str
    client: Client
    reviews: Reviews
    expires: float
    """Monotonic time at which it ends: the token's, where that says so, else SESSION_TIME."""
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    used: float = 0.0
    streams: int = 0
    ended: bool = False


class FullError(Exception):
    """There are too many sessions."""


class Sessions:
    """All codes and sessions. Secrets are kept as hashes."""

    def __init__(self, transport_of: TransportOf, clock: Clock) -> None:
        self._transport_of = transport_of
        self._clock = clock
        self._codes: dict[bytes, tuple[float, str]] = {}
        self._sessions: dict[bytes, Session] = {}
        self._signed_in: Callable[[], None] | None = None

    def on_sign_in(self, callback: Callable[[], None]) -> None:
        """Call back whenever a session begins."""
        self._signed_in = callback

    def code_for(self, token: str) -> str:
        """A new code that signs in as the user of a token, once and within CODE_TIME."""
        now = self._clock.monotonic()
        self._codes = {key: one for key, one in self._codes.items() if one[0] > now}
        while len(self._codes) >= CODES_MAX:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(24)
        self._codes[_hash(code)] = (now + CODE_TIME, token)
        return code

    def sign_in_link(self, url: str, token: str) -> str:
        """A link that signs in once, within CODE_TIME. The code is in the fragment, which is never sent."""
        return f"{url}/sign-in#{self.code_for(token)}"

    def token_of(self, code: str) -> str | None:
        """The token of a code that has not been used yet; None for any other. The code is used up."""
        until, token = self._codes.pop(_hash(code), (float("-inf"), ""))
        return token if until > self._clock.monotonic() else None

    async def begin(self, token: str) -> tuple[str, Session]:
        """The secret of a new session, and the session.

        Raises TokenEndedError for a token that is not accepted, FullError, and what the client raises.
        """
        now = self._clock.monotonic()
        self._drop_ended(now)
        if len(self._sessions) >= SESSIONS_MAX:
            raise FullError
        transport = self._transport_of(token)
        client = Client(transport, clock=self._clock)
        reviews = Reviews(client, self._clock)
        try:
            user = await reviews.user()
        except BaseException:
            await transport.close()
            raise
        expires = now + SESSION_TIME
        left = expiry(token)
        if left is not None:
            expires = min(expires, now + left - self._clock.time())
        session = Session(user, client, reviews, expires, used=now)
        secret = secrets.token_urlsafe(32)
        self._sessions[_hash(secret)] = session
        if self._signed_in is not None:
            self._signed_in()
        return secret, session

    def find(self, secret: str) -> Session | None:
        """The session of a secret, unless it has ended. Finding it counts as use."""
        session = self._sessions.get(_hash(secret))
        if session is None or not self.lasts(session):
            return None
        session.used = self._clock.monotonic()
        return session

    def lasts(self, session: Session) -> bool:
        """Whether a session has not ended."""
        now = self._clock.monotonic()
        idle = not session.streams and now - session.used > IDLE_TIME
        return not session.ended and now < session.expires and not idle

    async def end(self, session: Session) -> None:
        """End a session; its streams end too."""
        session.ended = True
        self._drop_ended(self._clock.monotonic())
        await session.client.transport.close()

    def _drop_ended(self, now: float) -> None:
        self._sessions = {key: one for key, one in self._sessions.items() if self.lasts(one)}

    async def close(self) -> None:
        """End all sessions."""
        for session in list(self._sessions.values()):
            await self.end(session)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def expiry(token: str) -> float | None:
    """When a token says that it ends, in seconds since 1970; None for one that does not say.

    The signature is the API server's to check: a wrong time can only end the session too early.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (ValueError, KeyError, TypeError):
        return None
