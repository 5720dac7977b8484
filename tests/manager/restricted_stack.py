"""A manager with the rights of its role and no others, each of its components with those it declares.

The API server refuses what the role does not grant. What a component reads from watch caches, subscribes to
and writes is compared with its declaration.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from manager_stack import Stack

from pykueue.jobs.kinds import BUILT_IN
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import Informer
from pykueue.kube.transport import Request, Transport, WatchEvent
from pykueue.manager.components import Component, Context, Runnable
from pykueue.manager.components.builtin import components
from pykueue.manager.install.roles import component_rules

_ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "manager"}
_BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "manager"},
    "roleRef": _ROLE,
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "manager"}],
}
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}

#: The component that runs.
_CURRENT: ContextVar[Component | None] = ContextVar("component", default=None)


class _Attributed:
    """Runs a component with its requests attributed to it."""

    def __init__(self, component: Component, inner: Runnable) -> None:
        self._component, self._inner = component, inner

    async def run(self) -> None:
        _CURRENT.set(self._component)
        await self._inner.run()


def attributed(component: Component) -> Component:
    def build(context: Context) -> Runnable:
        token = _CURRENT.set(component)
        try:
            return _Attributed(component, component.build(context))
        finally:
            _CURRENT.reset(token)

    return replace(component, build=build)


class _Audit:
    """A transport that notes what is refused, and what a component asks for that it does not declare."""

    def __init__(self, inner: Transport, found: set[str]) -> None:
        self._inner, self._found = inner, found

    async def call(self, request: Request) -> Any:
        component, right = _CURRENT.get(), right_of(request)
        if component is not None and right is not None and right not in declared(component):
            self._found.add(f"{component.name}: {' '.join(right)}")
        try:
            return await self._inner.call(request)
        except ApiError as error:
            if error.code == 403:
                self._found.add(f"refused: {error.message}")
            raise

    async def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        try:
            async for event in self._inner.watch(request):
                yield event
        except ApiError as error:
            if error.code == 403:
                self._found.add(f"refused: {error.message}")
            raise

    async def close(self) -> None:
        await self._inner.close()


def right_of(request: Request) -> tuple[str, str, str] | None:
    """Group, resource and verb of a request about one object; None for lists, which caches ask for."""
    _, prefix, *parts = request.path.split("/")
    group = parts.pop(0) if prefix == "apis" else ""
    parts.pop(0)  # the version
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    if request.method == "GET" and len(parts) == 1:
        return None
    return group, "/".join([parts[0], *parts[2:]]), _VERBS[request.method]


def declared(component: Component) -> set[tuple[str, str, str]]:
    return {
        (rule.group, resource, verb)
        for rule in component.rules
        for resource in rule.resources
        for verb in rule.verbs
    }


class RestrictedStack(Stack):
    """`excess` has what was refused, and what components did that they do not declare."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.excess: set[str] = set()
        self.kinds = BUILT_IN
        self._patches = ExitStack()
        #: More components, beside those of the configuration.
        self.more: tuple[Component, ...] = ()

    async def start_manager(self) -> None:
        everything = self.server.transport()
        rules = [rule.object() for rule in self.rules()]
        role = {"kind": "ClusterRole", "metadata": {"name": "manager"}, "rules": rules}
        role["apiVersion"] = _BINDING["apiVersion"]
        for plural, obj in (("clusterroles", role), ("clusterrolebindings", _BINDING)):
            await everything.call(Request("POST", f"{_RBAC}/{plural}", {}, obj))
        self._watch_reads()
        await super().start_manager()

    async def stop(self) -> None:
        self._patches.close()
        await super().stop()

    def manager_transport(self) -> Transport:
        return _Audit(self.server.transport("manager", ()), self.excess)

    def _own(self) -> list[Component]:
        kinds = self.kinds.enabled(self.configuration.integrations.frameworks)
        return list(components(self.configuration, kinds))

    def rules(self) -> Iterable[Any]:
        kinds = self.kinds.enabled(self.configuration.integrations.frameworks)
        return [*component_rules(self.configuration, kinds), *(r for one in self.more for r in one.rules)]

    def components(self) -> Iterable[Component]:
        return map(attributed, [*self._own(), *self.more])

    def _watch_reads(self) -> None:
        excess = self.excess

        def check(informer: Informer) -> None:
            component = _CURRENT.get()
            if component is not None and informer.resource not in (
                *component.watches,
                *component.own_namespace,
            ):
                excess.add(f"{component.name}: reads {informer.resource.plural}")

        def reading(name: str) -> Callable[..., Any]:
            inner = getattr(Informer, name)

            def read(self: Informer, *args: Any) -> Any:
                check(self)
                return inner(self, *args)

            return read

        on_event = Informer.on_event

        def subscribe(self: Informer, handler: Callable[..., None], order: int = 0) -> None:
            check(self)
            component = _CURRENT.get()

            def handle(*args: Any) -> None:
                token = _CURRENT.set(component)
                try:
                    handler(*args)
                finally:
                    _CURRENT.reset(token)

            on_event(self, handle, order)

        for name in ("get", "list", "by_index"):
            self._patches.enter_context(patch.object(Informer, name, reading(name)))
        self._patches.enter_context(patch.object(Informer, "on_event", subscribe))
