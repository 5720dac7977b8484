"""Checks of every request before a page is made, and the headers of every answer.

The Host header must be a known name, so that no other site's name can be bound to this address; requests that
write must come from a page of the dashboard itself.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from aiohttp import web

from pykueue.clock import Clock

from .limits import RateLimit
from .sessions import Session, Sessions

#: Requests per second and in a burst: of one session or address, and attempts to sign in.
REQUESTS, REQUESTS_BURST = 20.0, 100.0
ATTEMPTS, ATTEMPTS_BURST = 0.2, 10.0

#: Names by which every dashboard may be called.
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
#: Answers are made for one user at one time; nothing but the dashboard's own files is loaded.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with `no-referrer` browsers send forms with the origin `null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)


class Guard:
    """The checks of one server. `secure`: it is reached over HTTPS, so that cookies are for HTTPS only."""

    def __init__(
        self, sessions: Sessions, clock: Clock, hosts: Collection[str] = (), secure: bool = False
    ) -> None:
        self._sessions = sessions
        self._hosts = {host.lower() for host in (*LOOPBACK, *hosts)}
        self._secure = secure
        self._requests = RateLimit(clock, REQUESTS, REQUESTS_BURST)
        self._attempts = RateLimit(clock, ATTEMPTS, ATTEMPTS_BURST)
        #: Set when the port is known: browsers send a cookie of one port to all ports of a host.
        self.port = 0

    @property
    def cookie(self) -> str:
        """Name of the cookie of a session."""
        return "__Host-pykueue" if self._secure else f"pykueue-{self.port}"

    def check(self, request: web.Request) -> None:
        """Raise HTTPException for a request that is refused for every client."""
        host = request.headers.get("Host", "").lower()
        if host not in self._hosts and _without_port(host) not in self._hosts:
            raise web.HTTPMisdirectedRequest(
                text=f"Host {host!r} is not a name of this dashboard; see --allowed-host"
            )
        site = request.headers.get("Sec-Fetch-Site")
        origin = request.headers.get("Origin")
        scheme = "https" if self._secure else request.scheme
        writes = request.method not in ("GET", "HEAD")
        # Clients that are not browsers send neither header and no cookie.
        if origin not in (None, f"{scheme}://{host}") or (writes and site not in (None, "same-origin")):
            raise web.HTTPForbidden(text="the request comes from another site")

    def count(self, request: web.Request, session: Session | None) -> None:
        """Count a request. Raises HTTPTooManyRequests beyond the rate limit."""
        if not self._requests.take(id(session) if session is not None else request.remote):
            raise web.HTTPTooManyRequests(text="too many requests", headers={"Retry-After": "2"})

    def count_attempt(self, request: web.Request) -> None:
        """Count an attempt to sign in. Raises HTTPTooManyRequests beyond the rate limit."""
        if not self._attempts.take(request.remote):
            raise web.HTTPTooManyRequests(text="too many attempts to sign in", headers={"Retry-After": "10"})

    def session(self, request: web.Request) -> Session | None:
        """The session of a request's cookie, unless it has ended."""
        secret = request.cookies.get(self.cookie)
        return self._sessions.find(secret) if secret else None

    def check_form(self, session: Session, token: str) -> None:
        """Raise HTTPForbidden unless a form was made for this session."""
        if not hmac.compare_digest(token.encode(), session.csrf.encode()):
            raise web.HTTPForbidden(text="the form is not of this session; reload the page and try again")

    def set_cookie(self, response: web.StreamResponse, secret: str) -> None:
        """Have the browser send the secret of a session, and no script read it."""
        response.set_cookie(
            self.cookie, secret, httponly=True, samesite="Strict", secure=self._secure, path="/"
        )

    def drop_cookie(self, response: web.StreamResponse) -> None:
        """Have the browser forget the session."""
        response.del_cookie(self.cookie, path="/", httponly=True, samesite="Strict", secure=self._secure)


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
