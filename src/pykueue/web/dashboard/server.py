"""The HTTP server of the dashboard: routes, and what every request goes through."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote

import orjson
from aiohttp import web
from yarl import URL

from pykueue.api.kueue.names import MANAGER_NAMESPACE
from pykueue.clock import Clock
from pykueue.engine import Options
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError

from .pages.base import DeniedError, NotFoundError, Page, View, denied
from .pages.builtin import PAGES
from .pages.objects import raw_object
from .render import Renderer
from .security.guard import HEADERS, Guard
from .security.reviews import Need, TokenEndedError
from .security.sessions import CODE_TIME, TOKEN_MAX, FullError, Session, Sessions
from .state.board import Board
from .state.trends import Trends
from .stream import Streams
from .texts import yaml_text
from .writes import Writes

#: Bytes of a request's body.
BODY_MAX: Final = 64 * 1024
#: Seconds that requests under way have to end when the server is closed.
CLOSING_TIME: Final = 1.0
#: Seconds for which a page, and any other request, waits for the first list of the cluster.
PAGE_WAIT, FIRST_LIST = 0.7, 10.0
#: Seconds after which a browser asks again for a page that is not there yet.
REFRESH: Final = 1
_STATIC: Final = {"dashboard.css": "text/css", "dashboard.js": "text/javascript", "icon.svg": "image/svg+xml"}
_THEMES: Final = ("auto", "light", "dark")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Serving:
    """Where a dashboard is reached."""

    host: str = "127.0.0.1"
    port: int = 0
    tls: ssl.SSLContext | None = None
    behind_tls: bool = False
    """Something in front of it ends TLS."""
    names: Collection[str] = ()
    """Accepted in the Host header, beside those of loopback."""

    @property
    def secure(self) -> bool:
        """Whether browsers reach it over HTTPS."""
        return self.tls is not None or self.behind_tls


class Dashboard:
    """One dashboard. `client` reads the cluster; `sessions` are those of its users.

    `options` are those of the manager where they are known; else its configuration is read in
    `manager_namespace`. `pages` are shown beside those of `pages.builtin`.
    """

    def __init__(
        self,
        client: Client,
        sessions: Sessions,
        clock: Clock | None = None,
        *,
        manager_namespace: str = MANAGER_NAMESPACE,
        options: Options | None = None,
        serving: Serving | None = None,
        pages: Sequence[Page] = (),
    ) -> None:
        self._clock = clock or Clock()
        self._serving = serving or Serving()
        self.board = Board(client, self._clock, manager_namespace, options)
        self.trends = Trends()
        self.sessions = sessions
        self.pages = (*PAGES, *pages)
        self._guard = Guard(self.sessions, self._clock, self._serving.names, self._serving.secure)
        self._streams = Streams(self.board, self.sessions, self._clock)
        self._writes = Writes(self._guard)
        self._renderer = Renderer()
        self._assets = _assets()
        #: Contents of pages by what they depend on: users with the same rights share them.
        self._made: dict[tuple[object, ...], tuple[int, float, str]] = {}
        #: In shared contents in place of the token of each session.
        self._csrf_mark = secrets.token_urlsafe(16)
        self._wanted = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.sessions.on_sign_in(self._wanted.set)

    # --- running ----------------------------------------------------------------------------------------

    async def open(self, listener: socket.socket | None = None) -> str:
        """Start to serve on a listening socket, or on a new one; returns the address. Raises OSError."""
        app = web.Application(middlewares=[self._answer], client_max_size=BODY_MAX)
        self._add_routes(app.router)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=CLOSING_TIME, handler_cancellation=True
        )
        await self._runner.setup()
        where = self._serving
        if listener is not None:
            await web.SockSite(self._runner, listener, ssl_context=where.tls).start()
        else:
            await web.TCPSite(self._runner, where.host, where.port, ssl_context=where.tls).start()
        port = self._runner.addresses[0][1]
        self._guard.port = port
        host = f"[{where.host}]" if ":" in where.host else where.host
        return f"http{'s' if where.tls is not None else ''}://{host}:{port}"

    async def run(self, at_once: bool = False) -> None:
        """Follow the cluster until cancelled: from the first sign-in on, or at once."""
        if not at_once:
            await self._wanted.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.board.run())
            group.create_task(self.trends.run(self.board))

    async def close(self) -> None:
        """End all sessions and streams, and stop serving."""
        await self.sessions.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _add_routes(self, router: web.UrlDispatcher) -> None:
        for page in self.pages:
            router.add_get(page.route, self._signed_in(self._page_handler(page)))
        router.add_get("/stream", self._signed_in(self._stream))
        router.add_get("/api/{type}/{name}", self._signed_in(self._raw))
        router.add_post("/actions/{action}", self._signed_in(self._act))
        router.add_post("/sign-out", self._signed_in(self._sign_out))
        router.add_get("/sign-in", self._sign_in_page)
        router.add_post("/sign-in", self._sign_in)
        router.add_post("/sign-in/codes", self._new_code)
        router.add_post("/theme", self._theme)
        router.add_get("/auth/status", self._auth_status)
        router.add_get("/healthz", self._healthy)
        router.add_get("/static/{name}", self._asset)

    # --- every request ----------------------------------------------------------------------------------

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.path != "/healthz":  # probes of the kubelet name the address of the pod
                self._guard.check(request)
            response = await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                response = web.Response(status=error.status, headers={"Location": error.headers["Location"]})
            else:
                response = self._failure(request, error.status, error.text or error.reason)
                if "Retry-After" in error.headers:
                    response.headers["Retry-After"] = error.headers["Retry-After"]
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("%s %s", request.method, request.path)
            response = self._failure(request, 500, "Internal error; the log of the dashboard has details.")
        if not response.prepared:
            response.headers.setdefault("Cache-Control", "no-store")
            response.headers.update(HEADERS)
        return response

    def _signed_in(self, handler: Callable[[web.Request, Session], Awaitable[web.StreamResponse]]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            session = self._guard.session(request)
            self._guard.count(request, session)
            if session is None:
                if request.method == "GET" and _accepts_pages(request):
                    raise web.HTTPSeeOther(f"/sign-in?next={quote(request.path_qs, safe='')}")
                raise web.HTTPUnauthorized(text="sign in first")
            try:
                return await handler(request, session)
            except TokenEndedError:
                await self.sessions.end(session)
                if request.method == "GET" and _accepts_pages(request):
                    raise web.HTTPSeeOther("/sign-in?ended=1") from None
                raise web.HTTPUnauthorized(text="the token of the session has ended") from None
            except DeniedError as error:
                raise web.HTTPForbidden(text=str(error)) from None
            except NotFoundError as error:
                raise web.HTTPNotFound(text=str(error)) from None
            except (ApiError, ConnectionError, TimeoutError) as error:
                raise web.HTTPServiceUnavailable(text=f"The cluster cannot be reached: {error}") from None

        return handle

    def _failure(self, request: web.Request, status: int, text: str) -> web.Response:
        if not _accepts_pages(request):
            return web.json_response({"code": status, "message": text}, status=status)
        titles = {403: "Not allowed", 404: "Not found", 429: "Too many requests", 503: "Not available"}
        context = {"status": status, "text": text, "title": titles.get(status, "Error")}
        session = self._guard.session(request) if request.path != "/healthz" else None
        return self._html(request, "error.html", context, session, status)

    # --- pages ------------------------------------------------------------------------------------------

    def _page_handler(self, page: Page) -> Callable[[web.Request, Session], Awaitable[web.Response]]:
        async def handle(request: web.Request, session: Session) -> web.Response:
            params = dict(request.match_info)
            try:
                await self._first_list(PAGE_WAIT)
            except TimeoutError as error:
                return self._not_listed(request, session, str(error))
            context = await self._context(page, params, dict(request.query), session)
            stream = f"/stream?path={quote(request.path_qs, safe='')}" if page.live else ""
            context = {**context, "stream": stream, "page": page}
            return self._html(request, page.template, context, session)

        return handle

    async def _context(
        self, page: Page, params: Mapping[str, str], query: Mapping[str, str], session: Session
    ) -> dict[str, Any]:
        """What the template of a page is given. Raises DeniedError, NotFoundError and TokenEndedError."""
        view = await self._view(page, params, query, session)
        context = dict(await page.build(view))
        return {**context, **self._common(view, page), "csrf": session.csrf}

    async def _view(
        self, page: Page, params: Mapping[str, str], query: Mapping[str, str], session: Session
    ) -> View:
        await self._first_list()
        needs = page.needs(params)
        grants = await session.reviews.grants(needs, self._namespaces(query))
        return View(
            self.board, self.trends, grants, params, query, self._clock.time(), session.user, session.client
        )

    def _namespaces(self, query: Mapping[str, str]) -> list[str]:
        """Namespaces in which rights are reviewed: those that there are, the one that is asked for first."""
        known = self.board.namespaces()
        first = query.get("namespace", "")
        return [first, *(each for each in known if each != first)] if first in known else known

    def _common(self, view: View, page: Page) -> dict[str, Any]:
        return {
            "now": view.now,
            "grants": view.grants,
            "query": view.query,
            "params": view.params,
            "notes": [*self.board.notes, *self.board.unread.values()][:20],
            "truncated": view.grants.truncated,
            "title": page.title.format(**view.params),
            "user": view.user,
        }

    def _not_listed(self, request: web.Request, session: Session, why: str) -> web.Response:
        """A page in place of one that needs the first list: browsers ask again until that is there."""
        if "cluster" in self.board.unread:
            raise TimeoutError(why)
        context = {"status": "", "title": "Reading the cluster", "text": f"{why}."}
        response = self._html(request, "error.html", context, session, 503)
        response.headers["Refresh"] = response.headers["Retry-After"] = str(REFRESH)
        return response

    async def _first_list(self, seconds: float = FIRST_LIST) -> None:
        """Wait for what the cluster has, for a moment. Raises TimeoutError."""
        if not self.board.ready.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self.board.ready.wait()
            except TimeoutError:
                why = self.board.unread.get(
                    "cluster",
                    "The objects of the cluster are being listed; this page appears when they are there",
                )
                raise TimeoutError(why) from None

    def _html(
        self,
        request: web.Request,
        template: str,
        context: Mapping[str, Any],
        session: Session | None,
        status: int = 200,
    ) -> web.Response:
        frame = {
            "theme": self._theme_of(request),
            "assets": {name: digest for name, (_, digest) in self._assets.items()},
            "nav": [(page.section, page.route) for page in self.pages if page.section] if session else [],
            "path": request.path,
            "path_qs": request.path_qs,
            "csrf": session.csrf if session else "",
            "user": session.user if session else "",
            "stream": "",
            "page": None,
            "notes": [],
            "truncated": False,
            "done": request.query.get("done", ""),
        }
        text = self._renderer.page(template, {**frame, **context})
        return web.Response(text=text, content_type="text/html", status=status)

    # --- streams ----------------------------------------------------------------------------------------

    async def _stream(self, request: web.Request, session: Session) -> web.StreamResponse:
        target = request.query.get("path", "/")
        found = _resolve(self.pages, target)
        if found is None:
            raise web.HTTPNotFound(text="there is no such page")
        page, params, query = found
        first = page.needs(params)[0]
        watch = Need("watch", first.resource, first.namespace)

        async def make() -> str | None:
            await session.reviews.verify()
            return await self._content(page, params, query, session, watch)

        return await self._streams.serve(request, session, make, page.seconds)

    async def _content(
        self, page: Page, params: Mapping[str, str], query: Mapping[str, str], session: Session, watch: Need
    ) -> str | None:
        """The content of a page, made once for all users with the same rights; None for those with none."""
        view = await self._view(page, params, query, session)
        watching = await session.reviews.grants([watch], self._namespaces(query))
        if not watching.some(watch.verb, watch.resource):
            return None
        key = (page.route, tuple(params.items()), tuple(query.items()), view.grants)
        await self._streams.turn()
        known = self._made.get(key)
        now = self._clock.monotonic()
        if known is not None and known[0] == self.board.revision and now - known[1] < 1.0:
            self._streams.made(0.0)
            return known[2].replace(self._csrf_mark, session.csrf)
        revision = self.board.revision
        try:
            context = {**(await page.build(view)), **self._common(view, page), "csrf": self._csrf_mark}
        except DeniedError:
            return None
        except NotFoundError as error:
            context = {**self._common(view, page), "text": str(error), "status": 404}
            return self._renderer.content("error.html", context)
        context |= {"page": page, "done": ""}
        content = self._renderer.content(page.template, context)
        self._made = {key: one for key, one in self._made.items() if now - one[1] < 1.0}
        self._made[key] = (revision, now, content)
        self._streams.made(self._clock.monotonic() - now)
        return content.replace(self._csrf_mark, session.csrf)

    # --- objects and writes -----------------------------------------------------------------------------

    async def _raw(self, request: web.Request, session: Session) -> web.Response:
        await self._first_list()
        kind, name = request.match_info["type"], request.match_info["name"]
        namespace = request.query.get("namespace", "")
        resource, obj = raw_object(self.board, kind, namespace, name)
        if not await session.reviews.allows(Need("get", resource, namespace or None)):
            raise DeniedError(denied(session.user, "get", resource, namespace))
        if obj is None:
            raise NotFoundError(f"There is no {resource.kind} {f'{namespace}/' if namespace else ''}{name}.")
        if request.query.get("output") == "yaml":
            return web.Response(text=yaml_text(obj), content_type="application/yaml")
        return web.Response(body=orjson.dumps(obj), content_type="application/json")

    async def _act(self, request: web.Request, session: Session) -> web.Response:
        target = await self._writes.act(request, session)
        raise web.HTTPSeeOther(target)

    # --- signing in and out -----------------------------------------------------------------------------

    async def _sign_in_page(self, request: web.Request) -> web.Response:
        self._guard.count(request, None)
        context = {
            "title": "Sign in",
            "ended": "ended" in request.query,
            "next": local_path(request.query.get("next", "/")),
            "problem": "",
        }
        return self._html(request, "sign_in.html", context, None)

    async def _sign_in(self, request: web.Request) -> web.Response:
        self._guard.count_attempt(request)
        form = await request.post()
        code, token = str(form.get("code", "")), str(form.get("token", "")).strip()
        target = local_path(str(form.get("next", "/")))
        if code:
            token = self.sessions.token_of(code) or ""
        problem = ""
        if not token or len(token) > TOKEN_MAX:
            problem = (
                f"The link has been used, or is older than {CODE_TIME:g} seconds. Print a new one with "
                "`pykueue dashboard link`, or sign in with a token."
                if code
                else "Enter a token."
            )
        else:
            try:
                secret, session = await self.sessions.begin(token)
            except TokenEndedError:
                problem = "The API server does not accept this token."
            except FullError:
                problem = "Too many users are signed in; try again later."
            except (ApiError, ConnectionError, TimeoutError) as error:
                problem = f"The API server cannot be asked: {error}"
            else:
                log.info("%s signed in from %s", session.user, request.remote)
                response = web.Response(status=303, headers={"Location": target})
                self._guard.set_cookie(response, secret)
                return response
        context = {"title": "Sign in", "ended": False, "next": target, "problem": problem}
        return self._html(request, "sign_in.html", context, None, 401)

    async def _new_code(self, request: web.Request) -> web.Response:
        """A code for the bearer token of a request: how commands make links that sign in."""
        self._guard.count_attempt(request)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > TOKEN_MAX:
            raise web.HTTPUnauthorized(text="a bearer token is needed")
        return web.json_response({"code": self.sessions.code_for(token), "seconds": CODE_TIME}, status=201)

    async def _sign_out(self, request: web.Request, session: Session) -> web.Response:
        form = await request.post()
        self._guard.check_form(session, str(form.get("csrf", "")))
        await self.sessions.end(session)
        response = web.Response(status=303, headers={"Location": "/sign-in"})
        self._guard.drop_cookie(response)
        return response

    # --- small things -----------------------------------------------------------------------------------

    async def _theme(self, request: web.Request) -> web.Response:
        self._guard.count(request, None)
        form = await request.post()
        theme = str(form.get("theme", ""))
        if theme not in _THEMES:
            raise web.HTTPBadRequest(text=f"theme: {theme!r}; accepted values: {', '.join(_THEMES)}")
        response = web.Response(status=303, headers={"Location": local_path(str(form.get("next", "/")))})
        response.set_cookie("pykueue-theme", theme, max_age=31_536_000, samesite="Strict", path="/")
        return response

    @staticmethod
    def _theme_of(request: web.Request) -> str:
        found = request.cookies.get("pykueue-theme", "auto")
        return found if found in _THEMES else "auto"

    async def _auth_status(self, request: web.Request) -> web.Response:
        self._guard.count(request, None)
        session = self._guard.session(request)
        return web.json_response({"mode": "Token", "authenticated": session is not None})

    async def _healthy(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _asset(self, request: web.Request) -> web.Response:
        found = self._assets.get(request.match_info["name"])
        if found is None:
            raise web.HTTPNotFound(text="there is no such file")
        content, digest = found
        fresh = request.query.get("v") == digest
        headers = {"Cache-Control": "public, max-age=31536000, immutable" if fresh else "no-cache"}
        kind = _STATIC[request.match_info["name"]]
        return web.Response(body=content, content_type=kind, charset="utf-8", headers=headers)


def _assets() -> dict[str, tuple[bytes, str]]:
    """The files that browsers load, and a digest of each."""
    folder = files("pykueue.web.dashboard") / "static"
    contents = {name: (folder / name).read_bytes() for name in _STATIC}
    return {name: (text, hashlib.sha256(text).hexdigest()[:16]) for name, text in contents.items()}


def _accepts_pages(request: web.Request) -> bool:
    return "text/html" in request.headers.get("Accept", "")


def local_path(target: str) -> str:
    """A path of the dashboard; the start page in place of anything that leads elsewhere."""
    bad = not target.startswith("/") or target.startswith(("//", "/\\")) or not target.isprintable()
    return "/" if bad else target


def _resolve(pages: Sequence[Page], target: str) -> tuple[Page, dict[str, str], dict[str, str]] | None:
    """The page of a path with its parameters and query."""
    url = URL(local_path(target), encoded=True)
    parts = [part for part in url.raw_path.split("/") if part]
    for page in pages:
        pattern = [part for part in page.route.split("/") if part]
        if page.live and len(pattern) == len(parts):
            params = {
                name[1:-1]: URL(f"/{part}", encoded=True).path[1:]
                for name, part in zip(pattern, parts, strict=True)
                if name.startswith("{")
            }
            if all(name.startswith("{") or name == part for name, part in zip(pattern, parts, strict=True)):
                return page, params, dict(url.query)
    return None
