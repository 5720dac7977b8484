"""An engine with the state of a live cluster, whichever manager runs there: Kueue or pykueue.

Only reads. Objects are read in the newest version that the cluster serves; the options are those of the
manager's configuration. What the user may not read is named, since decisions on a part of the objects could
differ from those of the manager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from pykueue.api import DecodeError, conditions, decode, kueue, resources
from pykueue.api.backfill_policies import BACKFILL_POLICIES
from pykueue.api.budgets import BUDGET_LEDGERS, BUDGETS
from pykueue.api.conversion import ConversionError, convert
from pykueue.api.kueue import V1BETA1, V1BETA2
from pykueue.api.kueue.names import MANAGER_NAMESPACE
from pykueue.api.model import Model
from pykueue.api.objects import Object, get
from pykueue.api.pods import LIVE_PODS
from pykueue.api.preemption_policies import PREEMPTION_POLICIES
from pykueue.api.queue_specs import topology_name
from pykueue.api.reservations import RESERVATIONS
from pykueue.api.resources import CONFIG_MAPS, KUEUE_GROUP, Resource
from pykueue.engine import Engine, Options, Upsert
from pykueue.engine.dump import EngineState, is_state, options_of, restore, state_of
from pykueue.engine.events import Event
from pykueue.engine.flavors.requests import is_extended
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request
from pykueue.manager.configuration import Configuration, ConfigurationError
from pykueue.manager.configuration.loading import parse
from pykueue.manager.install_names import CONFIG_KEY, ENGINE_STATE_PATH
from pykueue.manager.scheduler.engine_options import engine_options

#: Kinds that decisions depend on. Workloads come last, before the state of the engine: it is newer than they.
KINDS: Final = (
    resources.NAMESPACES,
    resources.LIMIT_RANGES,
    resources.RUNTIME_CLASSES,
    resources.TOPOLOGIES,
    resources.RESOURCE_FLAVORS,
    resources.ADMISSION_CHECKS,
    resources.COHORTS,
    resources.CLUSTER_QUEUES,
    resources.LOCAL_QUEUES,
    resources.WORKLOADS,
)

#: Kinds that decisions on workloads with claims of devices depend on.
DEVICES: Final = (
    resources.DEVICE_CLASSES,
    resources.RESOURCE_CLAIM_TEMPLATES,
    resources.RESOURCE_SLICES,
)

#: The ConfigMap that Kueue and pykueue are installed with.
CONFIG_MAP: Final = "kueue-manager-config"


@dataclass
class ClusterState:
    """What was read of a cluster."""

    manifests: list[Object] = field(default_factory=list)
    """In version v1beta2."""
    engine_state: EngineState | None = None
    """What only the engine of pykueue's manager knows."""
    configuration: Configuration | None = None
    """None where the state of the engine, which has its options, was read."""
    unread: list[str] = field(default_factory=list)
    """What could not be read, and why."""
    notes: list[str] = field(default_factory=list)
    further_kinds: tuple[Resource, ...] = ()
    """What was read besides `KINDS`: Nodes and Pods where a flavor has a topology, kinds of devices where
    Workloads have claims."""
    has_own_kinds: bool = True
    """The cluster serves kinds of this project; else Kueue is its manager."""
    refused: dict[str, ApiError] = field(default_factory=dict)
    """The kinds that may not be listed in the namespace of the question either."""

    def options(self) -> Options:
        """The options of the manager, as far as they are known."""
        if self.engine_state is not None:
            return options_of(self.engine_state)
        options = engine_options(self.configuration) if self.configuration is not None else Options()
        return replace(options, hybrid_assignments=self.has_own_kinds)

    @cached_property
    def objects(self) -> list[Model]:
        """What was read. Raises DecodeError for an object that is not valid."""
        return [decode(manifest) for manifest in self.manifests]

    def engine(self) -> Engine:
        """An engine that knows the objects. Raises DecodeError for an object that is not valid."""
        engine = Engine(self.options())
        for obj in self.objects:
            engine.apply(Upsert(obj))
        if self.engine_state is not None:
            restore(engine, self.engine_state)
        return engine

    def workloads(self) -> list[kueue.Workload]:
        """All Workloads, finished ones included."""
        return [obj for obj in self.objects if isinstance(obj, kueue.Workload)]

    def surroundings(self) -> list[Event]:
        """Everything but the Workloads."""
        return [Upsert(obj) for obj in self.objects if not isinstance(obj, kueue.Workload)]


async def read_cluster(
    client: Client,
    *,
    configuration: Configuration | None = None,
    manager_namespace: str = MANAGER_NAMESPACE,
    namespace: str | None = None,
    engine_state: bool = True,
) -> ClusterState:
    """The state of a cluster; `configuration` replaces that of the manager.

    `engine_state`: that of pykueue's manager is read where it is served. Kinds that may be listed in
    `namespace` alone are listed there, and are in `unread` nevertheless.

    Raises ApiError where the cluster does not serve Kueue's kinds, ConnectionError and TimeoutError. What is
    forbidden is in `unread`.
    """
    state = ClusterState(configuration=configuration)
    version, own = await asyncio.gather(_served_version(client), own_kinds(client))
    state.has_own_kinds = bool(own)
    lists = await asyncio.gather(*(_list(client, kind, version, namespace, state) for kind in (*own, *KINDS)))
    state.manifests = [manifest for manifests in lists for manifest in manifests]
    if any(map(topology_name, state.manifests)):
        state.further_kinds += (resources.NODES, resources.PODS)
        nodes = await _list(client, resources.NODES, version, namespace, state)
        pods = await _list(client, resources.PODS, version, namespace, state, LIVE_PODS)
        state.manifests = [*nodes, *pods, *state.manifests]
    if any(map(_has_claims, state.manifests)):
        state.further_kinds += DEVICES
        lists = await asyncio.gather(*(_list(client, kind, version, namespace, state) for kind in DEVICES))
        state.manifests = [*(manifest for manifests in lists for manifest in manifests), *state.manifests]
    elif any(map(_requests_extended, state.manifests)):
        # A user who may not list the classes gets an answer as if none backed an extended resource.
        seen = ClusterState()
        state.manifests[:0] = await _list(client, resources.DEVICE_CLASSES, version, namespace, seen)
        state.notes += [f"could not be read: {each}" for each in seen.unread]
    if configuration is not None:
        return state
    if engine_state:
        try:
            found = await client.call(Request("GET", ENGINE_STATE_PATH))
            if is_state(found):
                state.engine_state = state_of([found])
                return state
        except ApiError:
            pass  # the manager is not pykueue, or the user has no right to read the state of its engine
    await _read_configuration(client, manager_namespace, state)
    return state


async def read_options(client: Client, manager_namespace: str = MANAGER_NAMESPACE) -> ClusterState:
    """The options of the manager, as its configuration says, and no objects. Raises what the client raises.

    What could not be read is in `unread` and `notes`.
    """
    state = ClusterState(has_own_kinds=bool(await own_kinds(client)))
    await _read_configuration(client, manager_namespace, state)
    return state


def typed(obj: Object, kind: Resource) -> Model:
    """An object that was read as that kind, typed. Raises DecodeError and ConversionError."""
    manifest = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
    return decode(convert(manifest, V1BETA2) if kind.api_version == V1BETA1 else manifest)


def _pod_specs(manifest: Object) -> Iterator[Object]:
    if manifest["kind"] == "Workload" and not conditions.is_finished(manifest):
        for pods in get(manifest, "spec", "podSets") or ():
            yield get(pods, "template", "spec") or {}


def _has_claims(manifest: Object) -> bool:
    return any(spec.get("resourceClaims") for spec in _pod_specs(manifest))


def _requests_extended(manifest: Object) -> bool:
    return any(
        is_extended(resource)
        for spec in _pod_specs(manifest)
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        for part in ("requests", "limits")
        for resource in get(container, "resources", part) or ()
    )


async def followed_kinds(client: Client) -> tuple[Resource, ...]:
    """The kinds that decisions depend on, in the versions to follow them in. Raises ApiError."""
    version, own = await asyncio.gather(_served_version(client), own_kinds(client))
    return (*own, *(_in_version(kind, version) for kind in KINDS))


async def own_kinds(client: Client) -> tuple[Resource, ...]:
    """The kinds of this project that decisions depend on, where the cluster serves them."""
    try:
        served = await client.call(Request("GET", f"/apis/{PREEMPTION_POLICIES.api_version}"))
    except ApiError:
        return ()
    names = {each.get("name") for each in served.get("resources") or ()}
    return tuple(
        each
        for each in (PREEMPTION_POLICIES, BACKFILL_POLICIES, RESERVATIONS, BUDGETS, BUDGET_LEDGERS)
        if each.plural in names
    )


def _in_version(kind: Resource, version: str) -> Resource:
    if kind.group != KUEUE_GROUP:
        return kind
    return kind._replace(version=version.rpartition("/")[2])


async def _served_version(client: Client) -> str:
    """The newest served version of Kueue's API that can be read."""
    try:
        group = await client.call(Request("GET", f"/apis/{KUEUE_GROUP}"))
    except ApiError as error:
        if error.not_found:
            raise ApiError(404, "NotFound", f"the cluster does not serve {KUEUE_GROUP}") from None
        raise
    served = [str(each.get("groupVersion")) for each in group.get("versions") or ()]
    for version in (V1BETA2, V1BETA1):
        if version in served:
            return version
    accepted = f"{V1BETA2}, {V1BETA1}"
    raise ApiError(404, "NotFound", f"the cluster serves {', '.join(served)}; accepted: {accepted}")


async def _list(
    client: Client,
    kind: Resource,
    version: str,
    namespace: str | None,
    state: ClusterState,
    field_selector: str | None = None,
) -> list[Object]:
    """All objects of a kind, in version v1beta2; none where the cluster does not serve the kind."""
    kind = _in_version(kind, version)
    name = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
    try:
        items = (await client.list(kind, field_selector=field_selector)).items
    except ApiError as error:
        if error.not_found:
            return []
        if error.code in (401, 403):
            state.unread.append(f"{name}: {error.message}")
            items = await _listed_in(client, kind, namespace, state)
        else:
            raise
    found = []
    for item in items:
        manifest = {"apiVersion": kind.api_version, "kind": kind.kind, **item}
        try:
            found.append(convert(manifest, V1BETA2) if kind.api_version == V1BETA1 else manifest)
        except (ConversionError, DecodeError) as error:
            state.unread.append(f"{name} {get(item, 'metadata', 'name')}: {error}")
    return found


async def _listed_in(
    client: Client, kind: Resource, namespace: str | None, state: ClusterState
) -> list[Object]:
    """The objects of one namespace, as far as they may be listed."""
    if not kind.namespaced or namespace is None:
        return []
    try:
        return (await client.list(kind, namespace)).items
    except ApiError as error:
        state.refused[kind.kind] = error
        return []


async def _read_configuration(client: Client, namespace: str, state: ClusterState) -> None:
    place = f"ConfigMap {namespace}/{CONFIG_MAP}"
    try:
        found = await client.find(CONFIG_MAPS, CONFIG_MAP, namespace)
    except ApiError as error:
        state.unread.append(f"{place}: {error.message}")
        return
    text = (found.get("data") or {}).get(CONFIG_KEY) if found is not None else None
    if text is None:
        state.notes.append(f"there is no {place}: the defaults of Kueue's configuration are assumed")
        text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    try:
        state.configuration = parse(text, place, namespace=namespace)
    except ConfigurationError as error:
        state.unread.append(str(error))
