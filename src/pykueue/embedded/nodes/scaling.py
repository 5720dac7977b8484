"""Node pools that follow their declaration: they grow, shrink, and replace nodes that went.

The declaration is the ConfigMap `kube-system/node-pools`, in the form of a node pool file. Where there is
none nothing is done. Every node it speaks of is created when the declaration is new or has changed, and when
this program starts; a node that is deleted otherwise stays away, unless its pool says when it is replaced.
Nodes of pools that no longer speak of them are drained, and deleted when nothing runs on them any more.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection
from typing import Any

import msgspec
import yaml

from pykueue.api.objects import Object, controller_of, is_deleting
from pykueue.api.pods import is_terminal
from pykueue.api.resources import CONFIG_MAPS, NODES, PODS
from pykueue.clock import Clock
from pykueue.embedded.nodes.annotations import DOMAIN
from pykueue.embedded.nodes.outages import read
from pykueue.embedded.nodes.pool import POOL_LABEL, NodePool, PoolError, ensure_nodes, parse_pools
from pykueue.embedded.nodes.registration import LAST_LEASE_DURATION, is_ready, renew, runs_processes
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.kube.informer import InformerFactory
from pykueue.kube.transport import Transport

NAMESPACE, NAME, FIELD = "kube-system", "node-pools", "pools.yaml"
#: The nodes of a new cluster for which none are declared.
DEFAULT_POOLS = [NodePool(name="node", count=3, allocatable={"cpu": "16", "memory": "64Gi", "pods": "110"})]
#: Taint of a node that is being removed.
REMOVED = DOMAIN + "removed"
#: Seconds between looks at the pods of a node that is being removed, and after a budget said no.
POLL = 2.0
REFUSED_DELAY = 5.0
WORKERS = 4
#: The key that stands for all nodes; no node has such a name.
_ALL = ""

log = logging.getLogger(__name__)


def declaration(pools: list[NodePool]) -> str:
    """The text of a node pool file that declares these pools."""
    shown = []
    for pool in pools:
        specified = msgspec.to_builtins(pool)
        shown.append({key: value for key, value in specified.items() if value != {} and key != "seed"})
    seed = next((pool.seed for pool in pools if pool.seed), "")
    document = {**({"seed": seed} if seed else {}), "pools": shown}
    return yaml.safe_dump(document, sort_keys=False)


async def declare(transport: Transport, clock: Clock, pools: list[NodePool]) -> None:
    """Keep the pools as what is wanted from now on, and create their nodes. Raises ApiError."""
    client = Client(transport, clock=clock)
    data = {FIELD: declaration(pools)}
    try:
        found = await client.get(CONFIG_MAPS, NAME, NAMESPACE)
    except ApiError as error:
        if not error.not_found:
            raise
        await ensure_nodes(transport, clock, pools)
        names = {"name": NAME, "namespace": NAMESPACE}
        await client.create(
            CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": names, "data": data}
        )
        return
    await ensure_nodes(transport, clock, pools, _read((found.get("data") or {}).get(FIELD, "")))
    await client.patch(CONFIG_MAPS, NAME, NAMESPACE, {"data": data})


async def declare_default(transport: Transport, clock: Clock) -> bool:
    """Declare `DEFAULT_POOLS` in a cluster that has neither nodes nor a declaration; whether it had none.

    Raises ApiError.
    """
    client = Client(transport, clock=clock)
    if (await client.list(NODES)).items:
        return False
    try:
        await client.get(CONFIG_MAPS, NAME, NAMESPACE)
    except ApiError as error:
        if not error.not_found:
            raise
        await declare(transport, clock, DEFAULT_POOLS)
        return True
    return False


def _read(text: str) -> list[NodePool]:
    """The pools of a declaration, none where it cannot be used."""
    try:
        return parse_pools(text, FIELD)
    except PoolError:
        return []


class NodePools:
    """Creates and deletes the nodes of declared pools; run by `run`. `runtimes`: those that can run pods."""

    def __init__(
        self, transport: Transport, clock: Clock, runtimes: Collection[str] = ("simulated",)
    ) -> None:
        self._runtimes = runtimes
        self._transport = transport
        self._clock = clock
        self._client = Client(transport, clock=clock)
        self._informers = InformerFactory(self._client, clock=clock)
        self._nodes = self._informers.informer(NODES)
        self._maps = self._informers.informer(CONFIG_MAPS, NAMESPACE, field_selector=f"metadata.name={NAME}")
        self._recorder = EventRecorder(self._client, clock, "node-pools")
        #: The pools by name; None while nothing is declared.
        self._pools: dict[str, NodePool] | None = None
        #: The pools whose nodes were last seen to.
        self._before: list[NodePool] = []
        self._work: Controller[str] = Controller(
            "node pools", self._sync, clock=clock, workers=WORKERS, wait_for=(self._informers.synced,)
        )
        self._maps.on_event(self._on_map)
        self._nodes.on_event(self._on_node)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for component in (self._informers, self._recorder, self._work):
                group.create_task(component.run())

    def _on_map(self, type_: str, old: Object | None, new: Object | None) -> None:
        if new is None:
            self._pools = None
            return
        text = (new.get("data") or {}).get(FIELD, "")
        if old is not None and (old.get("data") or {}).get(FIELD, "") == text:
            return
        try:
            self._pools = {pool.name: self._checked(pool) for pool in parse_pools(text, FIELD)}
        except PoolError as error:
            self._recorder.event(new, WARNING, "InvalidNodePools", f"{error}; the pools stay as they are")
            log.warning("ConfigMap %s/%s: %s", NAMESPACE, NAME, error)
            return
        self._work.queue.add(_ALL)

    def _checked(self, pool: NodePool) -> NodePool:
        """The pool. PoolError when its runtime is not available."""
        if pool.runtime not in self._runtimes:
            raise PoolError(
                f"{FIELD}: pool {pool.name}: runtime {pool.runtime} must be in the file with which"
                " the cluster is started (pykueue up --nodes)"
            )
        return pool

    def _on_node(self, type_: str, old: Object | None, new: Object | None) -> None:
        node = new or old
        assert node is not None
        name = node["metadata"]["name"]
        if new is not None:
            if old is None and (self._is_surplus(new) or self._is_unowned(new)):
                self._work.queue.add(name)
            return
        after = read(node["metadata"].get("annotations") or {})[0].replace_after
        if self._wanted(name) is not None and after is not None:
            self._work.queue.add_after(name, after.draw(random.Random(node["metadata"]["uid"])))

    def _wanted(self, name: str) -> Object | None:
        """The node of that name as its pool wants it, None if none does, or leaves it to the autoscaler."""
        pool = (self._pools or {}).get(name.rpartition("-")[0])
        number = pool.number_of(name) if pool is not None else None
        return pool.node(number) if pool is not None and number is not None and number < pool.size else None

    def _is_surplus(self, node: Object) -> bool:
        """Whether the node is one that a pool has made and none can have."""
        name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
        pool, _, number = name.rpartition("-")
        if self._pools is None or labels.get(POOL_LABEL) != pool or not number.isdigit():
            return False
        found = self._pools.get(pool)
        return found is None or found.number_of(name) is None

    def _is_unowned(self, node: Object) -> bool:
        """Whether it takes a program to run the node's pods that is not running here."""
        return runs_processes(node) and "process" not in self._runtimes

    async def _sync(self, name: str) -> float | None:
        node: Object | None = self._nodes.get(None, name)
        if node is not None and self._is_unowned(node):
            # Its Lease may last long, and is not renewed any more.
            await renew(self._client, node, None, self._clock.time(), LAST_LEASE_DURATION)
        if self._pools is None:
            return None
        if name == _ALL:
            pools = list(self._pools.values())
            await ensure_nodes(self._transport, self._clock, pools, self._before)
            self._before = pools
            for one in self._nodes.list():
                if self._is_surplus(one) or _is_removed(one):
                    self._work.queue.add(one["metadata"]["name"])
            return None
        if node is not None:
            if self._is_surplus(node):
                return await self._remove(node)
            if _is_removed(node):
                await self._keep(node)
            return None
        wanted = self._wanted(name)
        if wanted is not None:
            try:
                await self._client.create(NODES, wanted)
            except ApiError as error:
                if not error.already_exists:
                    raise
        return None

    # Removing

    async def _remove(self, node: Object) -> float | None:
        """One step of taking a node out; seconds until the next."""
        metadata = node["metadata"]
        name = metadata["name"]
        if not _is_removed(node):
            taint = {"key": REMOVED, "effect": "NoSchedule"}
            await self._set_taints(node, [*((node.get("spec") or {}).get("taints") or ()), taint])
            self._recorder.event(node, NORMAL, "RemovingNode", f"Node {name} is no longer part of its pool")
            return 0.0
        pods = (await self._client.list(PODS, field_selector=f"spec.nodeName={name}")).items
        left = [pod for pod in pods if not _is_left_alone(pod)]
        wait = POLL
        for pod in left:
            if not is_deleting(pod) and not await self._evict(pod):
                wait = REFUSED_DELAY
        if left and is_ready(node):
            return wait
        try:
            await self._client.delete(NODES, name, uid=metadata["uid"])
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise
        return None

    async def _evict(self, pod: Object) -> bool:
        """Ask for the pod to go; False when its budget does not allow it now."""
        metadata = pod["metadata"]
        names = {"name": metadata["name"], "namespace": metadata["namespace"]}
        body: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": names}
        body["deleteOptions"] = {"preconditions": {"uid": metadata["uid"]}}
        try:
            await self._client.create(PODS, body, name=metadata["name"], subresource="eviction")
        except ApiError as error:
            if error.code == 429:
                return False
            if not error.not_found and not error.conflict:
                raise
        return True

    async def _keep(self, node: Object) -> None:
        """The node is wanted again after all."""
        taints = [one for one in node["spec"]["taints"] if one.get("key") != REMOVED]
        await self._set_taints(node, taints)

    async def _set_taints(self, node: Object, taints: list[Object]) -> None:
        metadata = node["metadata"]
        patch = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "spec": {"taints": taints or None},
        }
        self._nodes.note(await self._client.patch(NODES, metadata["name"], None, patch))


def _is_removed(node: Object) -> bool:
    return any(one.get("key") == REMOVED for one in (node.get("spec") or {}).get("taints") or ())


def _is_left_alone(pod: Object) -> bool:
    """Whether a pod need not be gone before its node: it has ended, or belongs to the node."""
    owner = controller_of(pod)
    return is_terminal(pod) or (owner is not None and owner.get("kind") in ("DaemonSet", "Node"))
