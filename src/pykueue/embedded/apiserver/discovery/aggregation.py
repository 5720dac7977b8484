"""API aggregation: groups that another server answers for, registered by APIService objects.

Requests to them are passed on with the user's identity in X-Remote-* headers, behind this server's own client
certificate. What this server serves itself it never passes on; neither groups that an extension in this
process answers for.
Source: docs/reference/kubernetes-api-machinery.md, section 18.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import aiohttp
import orjson
from yarl import URL

from pykueue.api.meta import set_condition
from pykueue.api.objects import Object
from pykueue.embedded.apiserver.auth.certificates import Authority, write_private
from pykueue.embedded.apiserver.auth.rules import Access
from pykueue.embedded.apiserver.registry.call import User, is_set
from pykueue.embedded.apiserver.registry.core import Core
from pykueue.embedded.apiserver.webhooks.services import Services, UnreachableError, connection_fault
from pykueue.embedded.objects.errors import bad_request
from pykueue.embedded.objects.metadata import new_uid
from pykueue.embedded.objects.selectors import required_name
from pykueue.embedded.store.records import Record
from pykueue.kube.errors import ApiError

GROUP, PLURAL = "apiregistration.k8s.io", "apiservices"

#: Seconds between two looks at a server that answers, and at one that does not.
_PERIOD, _RETRY = 30.0, 5.0
#: Seconds a discovery request may take, and connecting for any other one.
_PROBE_TIME = 5.0
#: Seconds a forwarded request may take, as on a cluster; a watch may take longer.
REQUEST_TIME = 60.0
#: Bytes of a response that is not a stream.
RESPONSE_LIMIT = 32 << 20

#: Seconds OpenAPI v2 documents are kept.
_OPENAPI_AGE = 60.0

#: The common name of the certificate shown to aggregated servers.
_OWN_NAME = "front-proxy-client"

_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}

GroupVersion = tuple[str, str]


#: Whether the user of a request may do something else: (verb, group, resource, namespace), the empty
#: namespace for all of them.
May = Callable[[str, str, str, str], Awaitable[bool]]


class Extension(Protocol):
    """What answers for a group in this process, in place of another server."""

    def resources(self, version: str) -> list[Object]:
        """The resources of a version, in APIResourceList form."""
        ...

    def openapi(self, version: str) -> Object:
        """The OpenAPI v3 document of a version."""
        ...

    async def answer(
        self, method: str, path: str, query: Mapping[str, str], may: May, as_table: bool = False
    ) -> Object:
        """The answer to a request that its user may make, as a Table if it has one. Raises ApiError."""
        ...


class Aggregation:
    """Knows which groups are passed on, whether they answer, and passes requests on."""

    def __init__(
        self, core: Core, services: Services, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    ) -> None:
        self._core = core
        self._services = services
        self._spawn = spawn
        self._session: aiohttp.ClientSession | None = None
        self._extensions: dict[GroupVersion, Extension] = {}
        self._registered: dict[GroupVersion, Object] = {}
        #: The resources each answered with last, None while it does not answer.
        self._resources: dict[GroupVersion, list[Object] | None] = {}
        #: Where each says its OpenAPI v3 document is, if it has one.
        self._described: dict[GroupVersion, str] = {}
        #: OpenAPI v2 documents of aggregated servers by media type: from when they are, and themselves.
        self._described_v2: dict[str, tuple[int, float, list[bytes]]] = {}
        core.on_stored(f"{GROUP}/{PLURAL}", self._on_stored)
        core.on_lost(self._retry)

    def load(self) -> None:
        """Take the stored registrations."""
        for service in self._core.all_settled(GROUP, PLURAL):
            self._register(service)

    async def identify(self, authority: Authority, directory: Path) -> None:
        """Take a client certificate, and publish how aggregated servers tell this server's requests by it."""
        certificate, key = authority.client(_OWN_NAME, ())
        path = directory / "front-proxy.pem"
        write_private(path, certificate + key)
        self._services.identity = path
        bundle = authority.certificate.decode()
        data = {
            "client-ca-file": bundle,
            "requestheader-allowed-names": orjson.dumps([_OWN_NAME]).decode(),
            "requestheader-client-ca-file": bundle,
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-username-headers": '["X-Remote-User"]',
        }
        storage = self._core.registry.storage("", "configmaps")
        assert storage is not None
        meta: Object = {"name": "extension-apiserver-authentication", "namespace": "kube-system"}
        record = storage.table.get((meta["namespace"], meta["name"]))
        if record is not None:
            if record.object.get("data") == data:
                return
            meta = dict(record.object["metadata"])
        else:
            meta |= {"uid": new_uid(self._core.rng), "creationTimestamp": self._core.now_text()}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
        new = self._core.store.put(storage.table, (meta["namespace"], meta["name"]), body)
        await self._core.store.settled(new.revision)

    async def close(self) -> None:
        """Give back connections."""
        if self._session is not None:
            await self._session.close()

    # -- in this process

    async def extend(self, group: str, versions: Sequence[str], extension: Extension) -> None:
        """Let an extension answer for a group, and show that by APIService objects, as on a cluster."""
        for place, version in enumerate(versions):
            self._extensions[group, version] = extension
            self._show(group, version, 100 - place)
        self._core.registry.changes += 1
        await self._core.store.settle()

    def _show(self, group: str, version: str, priority: int) -> None:
        core, name = self._core, f"{version}.{group}"
        storage = core.registry.storage(GROUP, PLURAL)
        if storage is None or storage.table.get(("", name)) is not None:
            return
        service = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "APIService",
            "metadata": {
                "name": name,
                "uid": new_uid(core.rng),
                "creationTimestamp": core.now_text(),
            },
            "spec": {
                "group": group,
                "version": version,
                "groupPriorityMinimum": 100,
                "versionPriority": priority,
            },
        }
        core.store.put(storage.table, ("", name), service)

    def extension(self, path: str) -> Extension | None:
        """The extension that answers for a path below /apis/GROUP/VERSION/."""
        parts = path.split("/", 4)
        if len(parts) < 5 or parts[1] != "apis" or not parts[4]:
            return None
        return self._extensions.get((parts[2], parts[3]))

    # -- registrations

    def _on_stored(self, new: Record | None, old: Record | None) -> None:
        before = old.object if old is not None else None
        after = new.object if new is not None else None
        if before is not None and (after is None or _spec(after) != _spec(before)):
            self._registered.pop(_group_version(before), None)
            self._resources.pop(_group_version(before), None)
            self._described.pop(_group_version(before), None)
            self._core.registry.changes += 1
        if after is not None and (before is None or _spec(after) != _spec(before)):
            self._register(after)

    def _register(self, service: Object) -> None:
        if _is_local(service):
            self._tell_local(service)
            return
        key = _group_version(service)
        self._registered[key] = service
        self._resources[key] = None
        self._core.registry.changes += 1
        self._spawn(self._follow(key, service))

    async def _follow(self, key: GroupVersion, service: Object) -> None:
        """Look again and again whether the server answers, until it is no longer registered this way."""
        name = service["metadata"]["name"]
        while self._registered.get(key) is service:
            fault, resources = await self._probe(key, service)
            if self._registered.get(key) is not service:
                return
            described = await self._find_openapi(key, service) if fault is None else ""
            if self._registered.get(key) is not service:
                return
            if resources != self._resources.get(key) or described != self._described.get(key, ""):
                self._resources[key], self._described[key] = resources, described
                self._core.registry.changes += 1
            reason = fault[0] if fault else "Passed"
            self._tell(name, fault is None, reason, fault[1] if fault else "all checks passed")
            await self._core.clock.sleep(_RETRY if fault else _PERIOD)

    async def _probe(
        self, key: GroupVersion, service: Object
    ) -> tuple[tuple[str, str] | None, list[Object] | None]:
        """Reason and text of what is wrong, or the resources the server has."""
        reference, path = _spec(service)["service"], f"/apis/{key[0]}/{key[1]}"
        try:
            host, port = self._services.address(reference)
        except UnreachableError as error:
            missing = "ServiceNotFound" if "not found" in str(error) else "MissingEndpoints"
            return (missing, str(error)), None
        try:
            document = orjson.loads(await self._fetch(path, service, "application/json"))
            resources = document.get("resources")
            if document.get("kind") != "APIResourceList" or not isinstance(resources, list):
                raise ValueError("the answer is not an APIResourceList")
        except (aiohttp.ClientError, OSError, ValueError, TimeoutError) as error:
            why = connection_fault(error) if isinstance(error, aiohttp.ClientConnectorError) else error
            text = f"failing or missing response from https://{host}:{port}{path}: {why or 'timeout'}"
            return ("FailedDiscoveryCheck", text), None
        return None, resources

    async def _find_openapi(self, key: GroupVersion, service: Object) -> str:
        """Where the server says its OpenAPI v3 document is; empty when it has none."""
        try:
            found = orjson.loads(await self._fetch("/openapi/v3", service, "application/json"))
            place = found["paths"][f"apis/{key[0]}/{key[1]}"]["serverRelativeURL"]
        except (
            aiohttp.ClientError,
            OSError,
            ValueError,
            TimeoutError,
            KeyError,
            TypeError,
            UnreachableError,
        ):
            return ""
        return place if isinstance(place, str) else ""

    async def _fetch(self, path: str, service: Object, accept: str) -> bytes:
        async with (
            asyncio.timeout(_PROBE_TIME),
            self._request("GET", path, service, DESCRIBER, {"Accept": accept}) as response,
        ):
            body = await read_response(response)
        if response.status != 200:
            raise ValueError(f"it answered {response.status}")
        return body

    def _tell_local(self, service: Object) -> None:
        self._tell(service["metadata"]["name"], True, "Local", "Local APIServices are always available")

    def _retry(self) -> None:
        """Write the conditions of local APIServices again; remote ones are written after their next probe."""
        for service in list(self._core.all_settled(GROUP, PLURAL)):
            if _is_local(service):
                self._tell_local(service)

    def _tell(self, name: str, available: bool, reason: str, message: str) -> None:
        """Write the condition Available, if it is news."""
        core = self._core
        storage = core.registry.storage(GROUP, PLURAL)
        record = storage.table.get(("", name)) if storage is not None else None
        if storage is None or record is None:
            return
        service = record.object
        status = service.get("status") or {}
        conditions = status.get("conditions") or []
        written = set_condition(
            conditions, "Available", "True" if available else "False", reason, message, core.clock.time()
        )
        if written == conditions:
            return
        changed = {
            **service,
            "metadata": dict(service["metadata"]),
            "status": {**status, "conditions": written},
        }
        core.store.put(storage.table, record.key, changed)

    # -- what discovery says

    def group_versions(self) -> list[GroupVersion]:
        """What extensions answer for or is passed on, but for what this server serves itself."""
        own = {(one.group, one.version) for one in self._core.registry}
        return [key for key in {**self._extensions, **self._registered} if key not in own]

    def resources(self, group: str, version: str) -> list[Object] | None:
        """The resources in APIResourceList form; None when the server does not answer."""
        extension = self._extensions.get((group, version))
        return self._resources.get((group, version)) if extension is None else extension.resources(version)

    def own_document(self, group: str, version: str) -> Object | None:
        """The OpenAPI v3 document of a group that an extension answers for."""
        extension = self._extensions.get((group, version))
        return None if extension is None else extension.openapi(version)

    def _passed_on(self) -> list[GroupVersion]:
        return [key for key in self.group_versions() if key not in self._extensions]

    def openapi(self) -> dict[str, str]:
        """OpenAPI v3 documents of the aggregated servers that have one: path in the index, and place."""
        return {
            f"apis/{group}/{version}": self._described[group, version]
            for group, version in self._passed_on()
            if self._described.get((group, version))
        }

    def own_openapi(self) -> dict[str, str]:
        """The same of the groups that extensions answer for."""
        found = {}
        for group, version in self._extensions:
            path = f"apis/{group}/{version}"
            content = orjson.dumps(self.own_document(group, version), option=orjson.OPT_SORT_KEYS)
            mark = hashlib.sha256(content).hexdigest()[:32].upper()
            found[path] = f"/openapi/v3/{path}?hash={mark}"
        return found

    async def openapi_v2(self, accept: str) -> list[bytes]:
        """The OpenAPI v2 documents of the aggregated servers that answer, each as it came."""
        changes, now = self._core.registry.changes, self._core.clock.monotonic()
        kept = self._described_v2.get(accept)
        if kept is not None and kept[0] == changes and now < kept[1] + _OPENAPI_AGE:
            return kept[2]
        servers: dict[tuple[str, int], Object] = {}
        for key in self._passed_on():
            if self._resources.get(key) is not None:
                service = self._registered[key]
                servers.setdefault(self._services.address(_spec(service)["service"]), service)
        asked = [self._fetch("/openapi/v2", service, accept) for service in servers.values()]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        found = [one for one in answers if isinstance(one, bytes)]
        self._described_v2[accept] = (changes, now, found)
        return found

    # -- requests

    def find_openapi(self, path: str) -> Object | None:
        """The registration whose server has the OpenAPI v3 document at a path."""
        parts = path.split("/")
        if len(parts) != 6 or path.removeprefix("/openapi/v3/") not in self.openapi():
            return None
        return self._registered[parts[4], parts[5]]

    def find(self, path: str) -> Object | None:
        """The registration a path belongs to, if it is to be passed on."""
        parts = path.split("/", 4)
        if len(parts) < 4 or parts[1] != "apis" or (parts[2], parts[3]) not in self._registered:
            return None
        key = (parts[2], parts[3])
        return self._registered[key] if key in self._passed_on() else None

    def request(
        self, method: str, target: str, service: Object, user: User, headers: Mapping[str, str], body: bytes
    ) -> aiohttp.client._RequestContextManager:
        """The request passed on. Raises ApiError (503) when its server is known not to answer."""
        if self._resources.get(_group_version(service)) is None:
            raise unavailable()
        try:
            return self._request(method, target, service, user, headers, body)
        except (UnreachableError, ValueError) as error:
            raise unavailable(str(error)) from error

    def _request(
        self,
        method: str,
        target: str,
        service: Object,
        user: User,
        headers: Mapping[str, str],
        body: bytes = b"",
    ) -> aiohttp.client._RequestContextManager:
        if self._session is None:
            self._session = aiohttp.ClientSession(auto_decompress=False)
        spec = _spec(service)
        reference = spec["service"]
        host, port = self._services.address(reference)
        unchecked = bool(spec.get("insecureSkipTLSVerify"))
        sent = [*headers.items(), *_identity(user)]
        return self._session.request(
            method,
            # As it was authorized: nothing of the path is resolved on the way.
            URL(f"https://{host}:{port}{target}", encoded=True),
            headers=sent,
            data=body or None,
            ssl=self._services.context(spec.get("caBundle") or "", unchecked, identified=True),
            server_hostname=None if unchecked else f"{reference['name']}.{reference['namespace']}.svc",
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, connect=_PROBE_TIME),
        )


#: Whom discovery and OpenAPI are asked for.
DESCRIBER = User("system:kube-aggregator", ("system:masters",))


async def read_response(response: aiohttp.ClientResponse) -> bytes:
    """The whole body. ValueError when it is larger than `RESPONSE_LIMIT`."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > RESPONSE_LIMIT:
            raise ValueError(f"the response is larger than {RESPONSE_LIMIT} bytes")
    return bytes(body)


def unavailable(detail: str = "") -> ApiError:
    """503: the server behind does not answer."""
    text = f"service unavailable: {detail}" if detail else "service unavailable"
    return ApiError(503, "ServiceUnavailable", text, None, 1)


def _is_local(service: Object) -> bool:
    return _spec(service).get("service") is None


def _spec(service: Object) -> Object:
    """The spec of an APIService; one without any names no server, and is served here."""
    return service.get("spec") or {}


def _group_version(service: Object) -> GroupVersion:
    spec = _spec(service)
    return spec.get("group") or "", spec.get("version") or ""


def _identity(user: User) -> list[tuple[str, str]]:
    fields = [("X-Remote-User", user.name), *(("X-Remote-Group", group) for group in user.groups)]
    if user.uid:
        fields.append(("X-Remote-Uid", user.uid))
    for key, values in user.extra.items():
        fields += [(f"X-Remote-Extra-{quote(key, safe='')}", value) for value in values]
    return fields


def access_of(method: str, path: str, query: Mapping[str, str]) -> Access | None:
    """What a request to an aggregated resource does, for RBAC; None for discovery paths.

    400 for a path that is not what it says: the server behind could resolve it to another one.
    """
    parts = path.strip("/").split("/")
    if "." in parts or ".." in parts:
        raise bad_request(f"path {path!r}: may not contain the segments '.' and '..'")
    group, rest = parts[1], parts[3:]
    if not rest:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        rest = rest[2:] or rest
    resource = rest[0]
    name = rest[1] if len(rest) > 1 else ""
    verb = _VERBS.get(method, method.lower())
    if verb == "get" and not name:
        verb = "watch" if is_set(query, "watch") else "list"
        name = required_name(query.get("fieldSelector", ""))
    if verb == "delete" and not name:
        verb = "deletecollection"
    return Access(verb, group, resource, rest[2] if len(rest) > 2 else "", namespace, name)
