"""The API server put together: kinds, store, request path, and the ways in.

`Server(store, clock, rng)` runs on any event loop, in virtual time too (with a MemoryStore). `transport()` is
the way in for clients of this process, `serve()` opens a TLS port for everyone else.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pykueue.api.objects import Object
from pykueue.clock import Clock
from pykueue.embedded.admission.priority import GROUP as PRIORITY_GROUP
from pykueue.embedded.admission.priority import PLURAL as PRIORITY_PLURAL
from pykueue.embedded.admission.priority import system_classes
from pykueue.embedded.apiserver.auth.aggregated_roles import AggregatedRoles
from pykueue.embedded.apiserver.auth.authentication import Authenticator
from pykueue.embedded.apiserver.auth.builtin_roles import builtin_roles, completed
from pykueue.embedded.apiserver.auth.escalation import Escalation
from pykueue.embedded.apiserver.auth.rbac import Authorizer, forbidden
from pykueue.embedded.apiserver.auth.reviews import Reviews
from pykueue.embedded.apiserver.auth.rules import GROUP as RBAC_GROUP
from pykueue.embedded.apiserver.auth.rules import Access
from pykueue.embedded.apiserver.crd.endpoints import GROUP as CRD_GROUP
from pykueue.embedded.apiserver.crd.endpoints import PLURAL as CRD_PLURAL
from pykueue.embedded.apiserver.crd.endpoints import CustomResources, GroupConversion
from pykueue.embedded.apiserver.discovery.aggregation import Aggregation, access_of
from pykueue.embedded.apiserver.discovery.documents import Discovery
from pykueue.embedded.apiserver.http.exec import Enter, Session, Wanted
from pykueue.embedded.apiserver.http.health import Health
from pykueue.embedded.apiserver.http.listening import Address, Listener
from pykueue.embedded.apiserver.http.metrics import Metrics
from pykueue.embedded.apiserver.inprocess import InProcessTransport
from pykueue.embedded.apiserver.registry.call import (
    Answer,
    Call,
    DeleteOptions,
    Target,
    User,
    delete_options,
    write_options,
)
from pykueue.embedded.apiserver.registry.core import Core
from pykueue.embedded.apiserver.registry.decoding import decode, subresource_body
from pykueue.embedded.apiserver.registry.deletion import Deletion
from pykueue.embedded.apiserver.registry.endpoints import Endpoint, Registry
from pykueue.embedded.apiserver.registry.eviction import Evictions
from pykueue.embedded.apiserver.registry.expiry import EventExpiry, HistoryExpiry
from pykueue.embedded.apiserver.registry.logs import LogSource, no_lines, pod_logs
from pykueue.embedded.apiserver.registry.reads import Listing, Reads, call_filter
from pykueue.embedded.apiserver.registry.subresources import Subresources, scale_of
from pykueue.embedded.apiserver.registry.writes import Writes
from pykueue.embedded.apiserver.webhooks.builtin import BuiltinAdmission
from pykueue.embedded.apiserver.webhooks.configurations import Webhooks
from pykueue.embedded.apiserver.webhooks.services import Services
from pykueue.embedded.kinds.base import Kind
from pykueue.embedded.kinds.builtin import VIEWS, builtin_kinds
from pykueue.embedded.objects.errors import internal_error, method_not_allowed
from pykueue.embedded.schema.builtin import builtin_schema
from pykueue.embedded.store.memory import MemoryStore, StoreError
from pykueue.embedded.store.records import Record
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import APPLY_PATCH

log = logging.getLogger(__name__)

#: Objects of a collection that are deleted together.
DELETED_TOGETHER = 100

#: Namespaces every cluster starts with.
_FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")

#: Groups whose kinds are questions, answered and never stored.
REVIEW_GROUPS = ("authentication.k8s.io", "authorization.k8s.io")

_NO_PROGRAM = "programs in pods, where there are any, cannot be entered or reached from here"
#: Subresources that need what this cluster does not have: asked for, they say what.
NOT_HERE = {
    ("pods", "exec"): f"exec is not available: {_NO_PROGRAM}",
    ("pods", "attach"): f"attach is not available: {_NO_PROGRAM}",
    ("pods", "portforward"): f"port-forward is not available: {_NO_PROGRAM}",
    ("pods", "ephemeralcontainers"): f"ephemeral containers are not available: {_NO_PROGRAM}",
    ("pods", "resize"): "resize is not available: pods keep the resources they were created with",
}

#: The user the server itself acts as.
SYSTEM = User("system:apiserver", ("system:masters", "system:authenticated"))


async def _no_entry(_pod: Object, _wanted: Wanted) -> Session:
    raise ApiError(501, "NotImplemented", NOT_HERE["pods", "exec"])


class Server:
    """An API server over one store. `feature_gates` are the open ones of alpha kinds."""

    def __init__(
        self,
        store: MemoryStore | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        *,
        feature_gates: Collection[str] = (),
    ) -> None:
        self._feature_gates = feature_gates
        self.store = store or MemoryStore()
        self.clock = clock or Clock()
        self.core = Core(self.store, Registry(), self.clock, rng or random.Random())
        self.admission = self.core.admission
        self._reads = Reads(self.core)
        self.authorizer = Authorizer(self.core)
        self._builtin = BuiltinAdmission(self.core)
        self._writes = Writes(self.core, self._builtin, Escalation(self.authorizer))
        self._deletion = Deletion(self.core)
        self._subresources = Subresources(self.core, self._writes)
        self._evictions = Evictions(self.core, self._writes, self._deletion)
        #: Where webhooks and other extending programs are reached.
        self.services = Services(self.core)
        self._custom = CustomResources(self.core, self._deletion, self.services, self._spawn)
        self._aggregated_roles = AggregatedRoles(self.core)
        self.aggregation = Aggregation(self.core, self.services, self._spawn)
        self.discovery = Discovery(self.core.registry, self.aggregation)
        self._own_discovery = Discovery(self.core.registry)
        self._reviews = Reviews(self.authorizer)
        self.webhooks = Webhooks(self.core, self.services, self.authorizer.decide_expression)
        self._authenticator: Authenticator | None = None
        self.metrics = Metrics(self.core.registry, self.store)
        self.health = Health(self.store, self.clock)
        #: Whether there are controllers and nodes beside the server. Alone it publishes nothing for pods.
        self.runs_pods = False
        #: Where the logs of pods come from; set by the nodes that run the pods.
        self.log_source: LogSource = no_lines
        #: Starts commands in containers; set by the nodes that run the pods.
        self.enter: Enter = _no_entry
        self._listeners: list[Listener] = []
        self._expiry = EventExpiry(self.core)
        self._history = HistoryExpiry(self.core)
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- life

    async def start(self) -> None:
        """Open the store and make everything in it available. Raises StoreError."""
        await self.store.open()
        self._add_builtin_kinds()
        self._custom.load()
        self._expiry.load()
        self.webhooks.load()
        self.aggregation.load()
        for name in _FIRST_NAMESPACES:
            if self.core.find("", "namespaces", "", name) is None:
                namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                await self.handle(self._own_call("POST", "", "v1", "namespaces", body=namespace))
        self._aggregated_roles.load()
        self._builtin.complete()
        for one in system_classes():
            if self.core.find(PRIORITY_GROUP, PRIORITY_PLURAL, "", one["metadata"]["name"]) is None:
                await self.handle(self._own_call("POST", PRIORITY_GROUP, "v1", PRIORITY_PLURAL, body=one))
        await asyncio.gather(*map(self._keep_role, builtin_roles(self._feature_gates)))
        await self.store.settle()
        self.health.serving = True

    async def _keep_role(self, role: Object) -> None:
        """Create a built-in role or binding, or add what the stored one lacks of it."""
        plural, meta = f"{role['kind'].lower()}s", role["metadata"]
        namespace, name = meta.get("namespace", ""), meta["name"]
        stored = self.core.find(RBAC_GROUP, plural, namespace, name)
        body = role if stored is None else completed(stored, role)
        if body is None:
            return
        method, named = ("POST", "") if stored is None else ("PUT", name)
        await self.handle(self._own_call(method, RBAC_GROUP, "v1", plural, named, body, namespace))

    async def serve(self, host: str = "127.0.0.1", port: int = 0, directory: Path | None = None) -> Address:
        """Open a TLS port. Keys, tokens and the kubeconfig are kept in `directory` (a temporary one if None).

        Raises OSError when the address cannot be had.
        """
        listener = Listener(self, directory)
        self._listeners.append(listener)
        return await listener.open(host, port)

    def use_authenticator(self, authenticator: Authenticator) -> None:
        """Check and sign tokens with this one."""
        self._authenticator = self._reviews.authenticator = authenticator

    def publish_authority(self, certificate: str) -> None:
        """Tell pods, if any, how to reach the server: the authority's certificate (PEM), and tokens."""
        if self.runs_pods:
            self._builtin.publish_authority(certificate)

    async def stop(self) -> None:
        """End everything the server started and close the store."""
        self.health.serving = False
        for listener in self._listeners:
            await listener.close()
        self._listeners.clear()
        self._expiry.close()
        self._history.close()
        self.core.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.services.close()
        await self.aggregation.close()
        await self.store.close()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a background task failed", exc_info=task.exception())

    def _add_builtin_kinds(self) -> None:
        registry = self.core.registry
        stored: dict[type[Kind], Endpoint] = {}
        for kind in builtin_kinds(self._feature_gates):
            table = self.store.table(f"{kind.group}/{kind.plural}")
            schema = partial(builtin_schema, kind.group, kind.version, kind.kind)
            stored[type(kind)] = Endpoint(kind, schema, table)
            registry.add(stored[type(kind)])
        for view in VIEWS:
            kind, storage = view.kind(), stored[view.stored]
            published = view.schema_version or kind.version
            schema = partial(builtin_schema, kind.group, published, kind.kind)
            registry.add(Endpoint(kind, schema, storage.table, storage, view.to_stored, view.from_stored))

    # -- set-up by the embedding program

    async def install_crds(self, definitions: Iterable[Object]) -> None:
        """Apply CustomResourceDefinitions: what they say holds, and others may say the rest."""
        for crd in definitions:
            call = self._own_call("PATCH", CRD_GROUP, "v1", CRD_PLURAL, crd["metadata"]["name"], crd)
            call.content_type = APPLY_PATCH
            call.query = {"fieldManager": SYSTEM.name, "force": "true"}
            await self.handle(call)

    def register_conversion(self, group: str, conversion: GroupConversion) -> None:
        """Convert custom objects of a group between versions with `conversion(obj, api_version)`."""
        self._custom.register_conversion(group, conversion)

    def transport(
        self, user: str = "system:admin", groups: Iterable[str] = ("system:masters",)
    ) -> InProcessTransport:
        """A transport for a client in this process."""
        return InProcessTransport(self, User(user, (*groups, "system:authenticated")))

    def _own_call(
        self,
        method: str,
        group: str,
        version: str,
        plural: str,
        name: str = "",
        body: Any = None,
        namespace: str = "",
    ) -> Call:
        endpoint = self.core.registry.find(group, version, plural)
        assert endpoint is not None, plural
        return Call(method, Target(endpoint, namespace, name, ""), {}, SYSTEM, body)

    # -- requests

    async def authorize(self, call: Call) -> None:
        """Refuse what the user may not do (403)."""
        self.authorizer.check(call)

    def authorize_path(self, user: User, verb: str, path: str) -> None:
        """Refuse a path that is not a resource to those who may not read it (403)."""
        access = Access(verb, path=path)
        if not self.authorizer.decide(user, access).allowed:
            raise forbidden(user, access)

    def document(self, path: str) -> Any:
        """A document that is not an object: discovery, version, OpenAPI, of this server alone."""
        found = self._own_discovery.document(path)
        if found is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        return found

    async def extended(self, method: str, path: str, query: Mapping[str, str], user: User) -> Any:
        """The answer of the extension that a path belongs to, as the user may have it. Raises ApiError."""
        extension = self.aggregation.extension(path)
        access = access_of(method, path, query)
        if extension is None or access is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        if not self.authorizer.decide(user, access).allowed:
            raise forbidden(user, access)
        return await extension.answer(method, path, query)

    async def handle(self, call: Call) -> Answer | Listing:
        """Carry out one request (anything but a watch)."""
        loop, code = asyncio.get_running_loop(), 500
        start = loop.time()
        try:
            answer = await self._decided(call)
            if call.endpoint.fetch is not None:
                await call.endpoint.ready(answer.stored())
            code = 200 if isinstance(answer, Listing) else answer.code
            return answer
        except ApiError as error:
            code = error.code
            raise
        except StoreError as error:
            raise internal_error(str(error)) from error
        finally:
            verb = "apply" if call.content_type == APPLY_PATCH and call.method == "PATCH" else call.verb()
            self.metrics.request(call, verb, code, loop.time() - start)

    async def _decided(self, call: Call) -> Answer | Listing:
        """The answer, once what it rests on is settled. Raises StoreError when that was lost."""
        try:
            return await self._handle(call)
        except ApiError:
            # Writes see what is not settled yet; reads do not.
            if call.method != "GET":
                await self.store.settle()
            raise

    async def _handle(self, call: Call) -> Answer | Listing:
        await self.authorize(call)
        endpoint, target = call.endpoint, call.target
        if endpoint.deprecation:
            call.warnings.append(endpoint.deprecation)
        if target.subresource and target.subresource != "status":
            return await self._handle_subresource(call)
        verb = call.verb()
        if verb not in (endpoint.subresources["status"].verbs if target.subresource else endpoint.kind.verbs):
            raise method_not_allowed()
        match verb:
            case "get":
                return await self._reads.get(call)
            case "list":
                return await self._reads.listing(call)
            case "create":
                if target.name:
                    raise method_not_allowed()
                if endpoint.group in REVIEW_GROUPS:
                    options = write_options(call, "CreateOptions")
                    return self._reviews.answer(call, await decode(endpoint, call.body, options, call))
                return await self._writes.create(call)
            case "update":
                return await self._writes.update(call)
            case "patch":
                if not target.name:
                    raise method_not_allowed()
                return await self._writes.patch(call)
            case "delete":
                return await self._deletion.delete(call)
            case "deletecollection":
                return await self._delete_collection(call)
        raise method_not_allowed()

    async def _handle_subresource(self, call: Call) -> Answer:
        name, verb = call.target.subresource, call.verb()
        if verb not in call.endpoint.subresources[name].verbs:
            raise method_not_allowed()
        if (call.endpoint.plural, name) in NOT_HERE:
            await self._reads.get(Call("GET", call.target._replace(subresource=""), {}, call.user))
            raise ApiError(501, "NotImplemented", NOT_HERE[call.endpoint.plural, name])
        match name, verb:
            case "scale", "get":
                answer = await self._reads.get(call)
                await call.endpoint.ready(answer.stored())
                return Answer(200, None, scale_of(call.endpoint, answer.object(call.endpoint)))
            case "scale", _:
                return await self._subresources.write_scale(call)
            case "binding", "create":
                return await self._subresources.bind(call)
            case "eviction", "create":
                return await self._evictions.evict(call)
            case "finalize", "update":
                return await self._subresources.finalize(call)
            case "token", "create":
                return await self._issue_token(call)
        raise method_not_allowed()

    async def _issue_token(self, call: Call) -> Answer:
        if self._authenticator is None:
            raise method_not_allowed("the server signs no tokens before it listens")
        request = subresource_body(call, {} if call.body is None else call.body)
        account = (await self._reads.get(call)).object(call.endpoint)
        return Answer(201, None, self._authenticator.issue(account, request))

    async def _delete_collection(self, call: Call) -> Listing:
        options = delete_options(call)
        selection = call_filter(call)
        endpoint = call.endpoint
        if selection.selective:
            await endpoint.ready(one.peek() for one in endpoint.table.records(selection.namespace))
        wanted = [
            record
            for record in endpoint.table.records(selection.namespace)
            if not selection.selective or selection.matches(endpoint.from_storage(record.object))
        ]
        deleted: list[Record] = []
        for start in range(0, len(wanted), DELETED_TOGETHER):
            # Together, so that they become durable together.
            some = wanted[start : start + DELETED_TOGETHER]
            gone = await asyncio.gather(*(self._delete_one(call, options, record) for record in some))
            deleted += [record for record, done in zip(some, gone, strict=True) if done]
            await asyncio.sleep(0)
        return Listing(deleted, str(self.store.settled_revision))

    async def _delete_one(self, call: Call, options: DeleteOptions, record: Record) -> bool:
        """Delete one object of a collection; False when it is gone already."""
        current = call.endpoint.table.get(record.key)
        while current is not None:
            if await self._deletion.remove(call, options, current) is not None:
                return True
            current = call.endpoint.table.get(record.key)
        return False

    # -- what is not an object

    async def entered(self, call: Call) -> Object:
        """The pod in which a command is to be started. Raises ApiError if the user may not.

        It takes the right to create, as starting programs is more than reading, whatever the method is.
        """
        await self.authorize(Call("POST", call.target, {}, call.user))
        answer = await self._reads.get(Call("GET", call.target._replace(subresource=""), {}, call.user))
        pod: Object = answer.object(call.endpoint)
        return pod

    async def logs(self, call: Call) -> AsyncIterator[bytes]:
        """The lines of a container's log. 400 when the query names no container that has one."""
        answer = await self._reads.get(call)
        return pod_logs(answer.object(call.endpoint), call.query, self.log_source)

    def metrics_text(self) -> bytes:
        """Everything counted, in Prometheus' text format."""
        return self.metrics.text()
