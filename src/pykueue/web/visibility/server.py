"""The visibility API of `pykueue manager`: an HTTPS server behind a cluster's aggregation layer.

Every replica answers, leading or not: all of them know the queues.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pykueue.kube.errors import ApiError
from pykueue.manager.install_names import VISIBILITY_GROUP as GROUP
from pykueue.manager.replica import Replica
from pykueue.manager.serving.access import Access
from pykueue.manager.serving.listener import Listener
from pykueue.manager.serving.messages import Request, Response, document, plain, refusal

from .api import GATE, VERSIONS, VisibilityApi, group_versions
from .proxy import FrontProxy

if TYPE_CHECKING:
    from pykueue.simulate.live.forecasts import Forecasts

log = logging.getLogger(__name__)

#: Seconds for which a verdict is cached: as in other aggregated servers.
VERDICT_TIME = 10.0

#: Paths that need no authentication: health checks.
_OPEN = ("/healthz", "/livez", "/readyz")


def _forecasts(replica: Replica) -> Forecasts:
    """The forecasts of a replica, which dry runs of jobs show too."""
    from pykueue.simulate.live.advice import StartAdvice
    from pykueue.simulate.live.forecasts import Forecasts
    from pykueue.simulate.live.kept import ConfigMapStore

    store = ConfigMapStore(replica.client, replica.configuration.namespace)
    found = Forecasts(replica.manager, store=store)
    replica.manager.advice = StartAdvice(replica.manager, found)
    return found


class VisibilityServer:
    """One replica's server, on the configured address, with the replica's certificate."""

    def __init__(self, replica: Replica, forecasts: bool = False) -> None:
        """With `forecasts` it says when pending workloads start."""
        self._replica = replica
        self._forecasts = _forecasts(replica) if forecasts else None
        self._api = VisibilityApi(replica.manager, self._forecasts)
        self._access = Access(replica.client, VERDICT_TIME, VERDICT_TIME)
        self._tls = replica.tls.asking_clients()
        self._proxy = FrontProxy(replica.client, replica.clock, self._tls)
        self.port = 0
        #: Set once it can be asked.
        self.started = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled; not at all without the feature gate.

        Raises OSError for an address that cannot be bound.
        """
        configuration = self._replica.configuration
        if not configuration.gates[GATE]:
            return
        where = configuration.visibility_server
        await self._tls.ready.wait()
        await self._proxy.refresh()
        listener = Listener({}, others=self._handle)
        try:
            await listener.open(where.bind_address, where.bind_port, self._tls.context)
            self.port = listener.port
            self.started.set()
            log.info("serving: visibility on %d", self.port)
            await self._proxy.run()
        finally:
            await listener.close()
            if self._forecasts is not None:
                await self._forecasts.stop()

    async def _handle(self, request: Request) -> Response:
        if request.path.rstrip("/") in _OPEN:
            return plain("ok")
        try:
            user = self._proxy.user_of(request) or await self._access.user_of(request)
            if user is None:
                return refusal(401, "Unauthorized")
            attributes, text = _asked(request.path)
            if not await self._access.lets(user, attributes):
                return refusal(403, f'forbidden: User "{user.get("username")}" cannot {text}')
        except (ApiError, ConnectionError, TimeoutError) as error:
            return refusal(503, f"the user cannot be authenticated: {error}")
        try:
            as_table = "as=Table" in request.headers.get("Accept").partition(",")[0]
            found = await self._document(request.path, request.query, user, as_table)
        except ApiError as error:
            return _status(error)
        return document(found)

    async def _may(self, user: dict[str, Any], verb: str, group: str, resource: str, namespace: str) -> bool:
        """Whether a user may do something; refused where that cannot be found out."""
        attributes = {"group": group, "resource": resource, "namespace": namespace, "verb": verb}
        try:
            return await self._access.lets(user, {"resourceAttributes": attributes})
        except (ApiError, ConnectionError, TimeoutError):
            return False

    async def _document(
        self, path: str, query: Mapping[str, str], user: dict[str, Any], as_table: bool
    ) -> Any:
        parts = path.strip("/").split("/")
        match parts:
            case ["apis"]:
                return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group_versions()]}
            case ["apis", group] if group == GROUP:
                return {"kind": "APIGroup", "apiVersion": "v1", **group_versions()}
            case ["apis", group, version] if group == GROUP and version in VERSIONS:
                return {
                    "kind": "APIResourceList",
                    "apiVersion": "v1",
                    "groupVersion": f"{GROUP}/{version}",
                    "resources": self._api.resources(version),
                }
            case ["openapi", "v2"]:
                return {
                    "swagger": "2.0",
                    "info": {"title": "pykueue visibility", "version": "v1"},
                    "paths": {},
                }
            case ["openapi", "v3"]:
                paths = [f"apis/{GROUP}/{version}" for version in VERSIONS]
                return {"paths": {one: {"serverRelativeURL": f"/openapi/v3/{one}"} for one in paths}}
            case ["openapi", "v3", "apis", group, version] if group == GROUP and version in VERSIONS:
                return self._api.openapi(version)
            case ["apis", group, version, _, *_] if group == GROUP and version in VERSIONS:
                return await self._api.answer("GET", path, query, partial(self._may, user), as_table)
        raise ApiError(404, "NotFound", "the server could not find the requested resource")


def _asked(path: str) -> tuple[dict[str, Any], str]:
    """What a request at a path does, as attributes of a SubjectAccessReview and in words."""
    parts = path.strip("/").split("/")
    if len(parts) < 4 or parts[0] != "apis":
        return {"nonResourceAttributes": {"path": path, "verb": "get"}}, f'get path "{path}"'
    group, version, rest = parts[1], parts[2], parts[3:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    subresource = "/".join(rest[2:])
    verb = "get" if len(rest) > 1 else "list"
    attributes = {
        "group": group,
        "version": version,
        "resource": rest[0],
        "subresource": subresource,
        "namespace": namespace,
        "name": rest[1] if len(rest) > 1 else "",
        "verb": verb,
    }
    resource = f"{rest[0]}/{subresource}" if subresource else rest[0]
    text = f'{verb} resource "{resource}" in API group "{group}"'
    return {"resourceAttributes": attributes}, f'{text} in the namespace "{namespace}"' if namespace else text


def _status(error: ApiError) -> Response:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "details": error.details,
        "code": error.code,
    }
    headers = {} if error.retry_after is None else {"Retry-After": str(int(error.retry_after))}
    return document(status, error.code, headers)
