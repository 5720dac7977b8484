"""The API server put together: kinds, store, request path, and the ways in.

`Server(store, clock, rng)` runs on any event loop, in virtual time too (with a MemoryStore). `transport()` is
the way in for clients of this process, `serve()` opens a TLS port for all others.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from pykueue.api.objects import Object
from pykueue.clock import Clock
from pykueue.embedded.admission.priority import GROUP as PRIORITY_GROUP
from pykueue.embedded.admission.priority import PLURAL as PRIORITY_PLURAL
from pykueue.embedded.admission.priority import system_classes
from pykueue.embedded.apiserver.auth.aggregated_roles import AggregatedRoles
from pykueue.embedded.apiserver.auth.builtin_roles import builtin_roles, completed
from pykueue.embedded.apiserver.auth.rules import GROUP as RBAC_GROUP
from pykueue.embedded.apiserver.crd.endpoints import GROUP as CRD_GROUP
from pykueue.embedded.apiserver.crd.endpoints import PLURAL as CRD_PLURAL
from pykueue.embedded.apiserver.crd.endpoints import CustomResources, GroupConversion
from pykueue.embedded.apiserver.discovery.aggregation import Aggregation
from pykueue.embedded.apiserver.handlers.expiry import EventExpiry, HistoryExpiry
from pykueue.embedded.apiserver.http.listening import Address, Listener
from pykueue.embedded.apiserver.inprocess import InProcessTransport
from pykueue.embedded.apiserver.pipeline import Pipeline
from pykueue.embedded.apiserver.registry.call import (
    Call,
    Target,
    User,
)
from pykueue.embedded.apiserver.registry.core import Core
from pykueue.embedded.apiserver.registry.endpoints import Endpoint, Registry
from pykueue.embedded.apiserver.webhooks.admission import Admission
from pykueue.embedded.apiserver.webhooks.configurations import Webhooks
from pykueue.embedded.apiserver.webhooks.services import Services
from pykueue.embedded.kinds.base import Kind
from pykueue.embedded.kinds.builtin import VIEWS, builtin_kinds
from pykueue.embedded.schema.builtin import builtin_schema
from pykueue.embedded.store.memory import MemoryStore
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import APPLY_PATCH

log = logging.getLogger(__name__)

#: Namespaces every cluster starts with.
_FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")

#: The user the server itself acts as.
SYSTEM = User("system:apiserver", ("system:masters", "system:authenticated"))


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
        self.admission = Admission(self.core)
        #: Where webhooks and other extending programs are reached.
        self.services = Services(self.core)
        self.aggregation = Aggregation(self.core, self.services, self._spawn)
        #: Carries requests out.
        self.pipeline = Pipeline(self.core, self.admission, self.aggregation)
        self._custom = CustomResources(self.core, self.pipeline.deletion, self.services, self._spawn)
        self._aggregated_roles = AggregatedRoles(self.core)
        decide = self.pipeline.authorizer.decide_expression
        self._webhooks = Webhooks(self.core, self.admission, self.services, decide)
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
        self._webhooks.load()
        self.aggregation.load()
        for name in _FIRST_NAMESPACES:
            if self.core.find("", "namespaces", "", name) is None:
                namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                await self.pipeline.handle(self._own_call("POST", "", "v1", "namespaces", body=namespace))
        self._aggregated_roles.load()
        self.pipeline.builtin.complete()
        for one in system_classes():
            if self.core.find(PRIORITY_GROUP, PRIORITY_PLURAL, "", one["metadata"]["name"]) is None:
                await self.pipeline.handle(
                    self._own_call("POST", PRIORITY_GROUP, "v1", PRIORITY_PLURAL, body=one)
                )
        await asyncio.gather(*map(self._keep_role, builtin_roles(self._feature_gates)))
        await self.store.settle()
        self.pipeline.health.serving = True

    async def _keep_role(self, role: Object) -> None:
        """Create a built-in role or binding, or add what the stored one lacks of it."""
        plural, meta = f"{role['kind'].lower()}s", role["metadata"]
        namespace, name = meta.get("namespace", ""), meta["name"]
        stored = self.core.find(RBAC_GROUP, plural, namespace, name)
        body = role if stored is None else completed(stored, role)
        if body is None:
            return
        method, named = ("POST", "") if stored is None else ("PUT", name)
        await self.pipeline.handle(self._own_call(method, RBAC_GROUP, "v1", plural, named, body, namespace))

    async def serve(self, host: str = "127.0.0.1", port: int = 0, directory: Path | None = None) -> Address:
        """Open a TLS port. Keys, tokens and the kubeconfig are kept in `directory` (a temporary one if None).

        Raises OSError when the address cannot be had.
        """
        listener = Listener(self.pipeline, directory)
        self._listeners.append(listener)
        return await listener.open(host, port)

    async def stop(self) -> None:
        """End everything the server started and close the store."""
        self.pipeline.health.serving = False
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
            await self.pipeline.handle(call)

    def register_conversion(self, group: str, conversion: GroupConversion) -> None:
        """Convert custom objects of a group between versions with `conversion(obj, api_version)`."""
        self._custom.register_conversion(group, conversion)

    def transport(
        self, user: str = "system:admin", groups: Iterable[str] = ("system:masters",)
    ) -> InProcessTransport:
        """A transport for a client in this process."""
        return InProcessTransport(self.pipeline, User(user, (*groups, "system:authenticated")))

    def token_transport(self, token: str) -> InProcessTransport:
        """A transport for a client in this process, as the user of a bearer token. Raises ApiError (401)."""
        user = self.pipeline.user_of_token(token)
        if user is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return InProcessTransport(self.pipeline, user)

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
