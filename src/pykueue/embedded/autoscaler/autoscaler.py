"""The cluster autoscaler: answers ProvisioningRequests, adds nodes for pending pods, removes empty ones.

It scales the pools of the node pool file that have `scaling`, as a cloud's cluster autoscaler does: the
cheapest pool first; nodes take time to start or fail to start, and a pool does not grow in a stock-out.
State that is not in the API (nodes that are starting, since when a node is empty) is lost at a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any

from pykueue.api.kueue.names import CONSUME_PROVISIONING_REQUEST_ANNOTATION
from pykueue.api.meta import ConditionStatus
from pykueue.api.objects import Object, condition_of, get, is_deleting, key_of, section
from pykueue.api.pods import is_terminal
from pykueue.api.resources import CONFIG_MAPS, NODES, POD_TEMPLATES, PODS, PROVISIONING_REQUESTS
from pykueue.api.times import format_time, parse_time
from pykueue.clock import Clock
from pykueue.embedded.autoscaler import requests
from pykueue.embedded.autoscaler.capacity import Capacity, NewNode
from pykueue.embedded.autoscaler.pools import Pools
from pykueue.embedded.nodes.annotations import DOMAIN
from pykueue.embedded.nodes.durations import parse_duration
from pykueue.embedded.nodes.pool import PoolError, parse_pools
from pykueue.embedded.nodes.registration import is_ready
from pykueue.embedded.nodes.scaling import FIELD, NAME, NAMESPACE
from pykueue.embedded.podscheduler.podinfo import PodReader
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, EventRecorder
from pykueue.kube.informer import Informer, InformerFactory
from pykueue.kube.transport import Transport

#: Least seconds between two scans of the cluster, unless something is due earlier.
INTERVAL = 10.0
#: Taint of a node that is being removed, and label of one that was added for a request.
REMOVED = "ToBeDeletedByClusterAutoscaler"
REQUEST_LABEL = DOMAIN + "provisioning-request"
#: Key of a request's provisioningClassDetails: the value of that label.
REQUEST_DETAIL = "ProvisioningRequest"
_NOT_FOUND = "CapacityIsNotFound"
_LATER = "Capacity is not found, the autoscaler will try to find it later."

log = logging.getLogger(__name__)


class Autoscaler:
    """Run by `run`; idle while nothing changes and nothing is due."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._clock = clock
        self._client = Client(transport, clock=clock)
        self._informers = InformerFactory(self._client, clock=clock)
        informer = self._informers.informer
        self._requests = informer(PROVISIONING_REQUESTS, optional=True)
        self._maps = informer(CONFIG_MAPS, NAMESPACE, field_selector=f"metadata.name={NAME}")
        # Pods change often: these are watched only where there is something to scale or to answer.
        self._nodes = Informer(self._client, NODES, clock=clock)
        self._pods = Informer(self._client, PODS, clock=clock)
        self._templates = Informer(self._client, POD_TEMPLATES, clock=clock)
        self._is_watching = False
        self._recorder = EventRecorder(self._client, clock, "cluster-autoscaler")
        self._reader = PodReader()
        self._pools = Pools()
        #: Nodes that are starting for a request, by its uid.
        self._growing: dict[str, set[str]] = {}
        #: Why a request failed, until that is in its status, by its uid.
        self._failed: dict[str, str] = {}
        #: Since when a node is empty, in seconds since 1970.
        self._empty: dict[str, float] = {}
        self._changed = asyncio.Event()
        for each in (self._nodes, self._pods, self._requests, self._templates, self._maps):
            each.on_event(self._on_change)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informers.run())
            tasks.create_task(self._recorder.run())
            await self._informers.synced()
            while True:
                if not self._is_watching and (self._pools.pools or len(self._requests)):
                    self._is_watching = True
                    for each in (self._nodes, self._pods, self._templates):
                        tasks.create_task(each.run())
                        await each.synced()
                self._changed.clear()
                try:
                    wake = await self._look()
                except (ApiError, ConnectionError, TimeoutError) as error:
                    log.info("cluster autoscaler: %s; trying again", error)
                    wake = self._clock.time() + INTERVAL
                await self._sleep(wake)

    async def _sleep(self, wake: float) -> None:
        """Until something is due at `wake`, or INTERVAL has passed and something has changed."""
        ready = self._clock.time() + INTERVAL
        while (now := self._clock.time()) < wake:
            if self._changed.is_set():
                if now >= ready:
                    return
                await self._clock.sleep(min(ready, wake) - now)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(None if wake == inf else wake - now):
                    await self._changed.wait()

    def _on_change(self, type_: str, old: Any, new: Any) -> None:
        obj = old if new is None else new
        if obj.get("kind") == CONFIG_MAPS.kind and new is not None:
            try:
                pools = parse_pools(section(new, "data").get(FIELD, ""), FIELD)
            except PoolError:
                return  # NodePools reports it
            self._pools.declare(pools, parse_time(new["metadata"]["creationTimestamp"]))
        self._changed.set()

    # One scan

    async def _look(self) -> float:
        """Do what is due; returns when something is due next, in seconds since 1970."""
        now = self._clock.time()
        if not self._is_watching:
            return inf
        await self._start_nodes(now)
        capacity = self._capacity()
        found = sorted(
            (one for one in self._requests.list() if not is_deleting(one)),
            key=lambda one: (one["metadata"]["creationTimestamp"], key_of(one)),
        )
        uids = {one["metadata"]["uid"] for one in found}
        self._growing = {uid: nodes for uid, nodes in self._growing.items() if uid in uids}
        wakes = [self._book(capacity, found, now)]
        for request in found:
            if requests.is_booked(request):
                wakes.append(await self._keep(request, now))
        blocked = False
        for request in found:
            if requests.is_open(request):
                queued = requests.class_of(request) == requests.QUEUED
                answered = await self._answer(request, capacity, blocked and queued, now)
                blocked = blocked or (queued and not answered)
                wakes.append(requests.expires_at(request))
        self._add_nodes(capacity, now)
        wakes.append(await self._remove_nodes(capacity, now))
        wakes.append(self._pools.next_change(now))
        return min((at for at in wakes if at > now), default=inf)

    async def _start_nodes(self, now: float) -> None:
        """Create the nodes that have started; one that could not be started fails its request."""
        for one in self._pools.due(now):
            uid = next((uid for uid, names in self._growing.items() if one.node.name in names), "")
            if one.fails:
                log.info("cluster autoscaler: node %s could not be started", one.node.name)
                if uid:
                    del self._growing[uid]
                    self._failed[uid] = f"Node {one.node.name} could not be started"
                continue
            node = one.node.pool.node(one.node.number)
            request = next((one for one in self._requests.list() if one["metadata"]["uid"] == uid), None)
            if request is not None:
                node["metadata"]["labels"][REQUEST_LABEL] = request["metadata"]["name"][:63]
            try:
                self._nodes.note(await self._client.create(NODES, node))
            except ApiError as error:
                if not error.already_exists:
                    raise

    def _capacity(self) -> Capacity:
        """Nodes that exist or are starting, with the pods on them."""
        capacity = Capacity(self._reader)
        for node in self._nodes.list():
            capacity.add_node(node)
        for one in self._pools.starting.values():
            capacity.add_node(one.node.pool.node(one.node.number))
        capacity.add_pods(self._pods.list())
        return capacity

    def _book(self, capacity: Capacity, found: Sequence[Object], now: float) -> float:
        """Occupy what is booked and not used yet; returns when the first booking ends."""
        consumers = requests.consumers(self._pods.list())
        ends = inf
        for request in found:
            growing = request["metadata"]["uid"] in self._growing
            if not growing and not requests.is_booked(request):
                continue
            used = 0 if growing else consumers[key_of(request)]
            for pod in self._pods_of(request, used) or ():
                capacity.place([pod])
            if not growing:
                ends = min(ends, requests.provisioned_at(request) + requests.BOOKING)
        return ends

    def _pods_of(self, request: Object, used: int = 0) -> list[Object] | None:
        try:
            return requests.pods(request, self._templates.get, used)
        except LookupError:
            return None

    # Requests

    async def _keep(self, request: Object, now: float) -> float:
        """End the booking of a request when it is over; returns when something is due."""
        revoked = requests.revoked_at(request)
        if revoked <= now:
            await self._write(
                request,
                requests.CAPACITY_REVOKED,
                "True",
                "RunDurationExceeded",
                "The run duration is over",
                now,
            )
            for node in self._nodes_of(request):
                patch = {"metadata": {"annotations": {DOMAIN + "reclaim": "true"}}}
                self._nodes.note(await self._client.patch(NODES, node["metadata"]["name"], None, patch))
            return inf
        ends = requests.provisioned_at(request) + requests.BOOKING
        if requests.class_of(request) != requests.QUEUED and ends <= now:
            text = "Capacity reservation time is over"
            await self._write(request, requests.BOOKING_EXPIRED, "True", "BookingExpired", text, now)
            return inf
        return min(at for at in (revoked, ends, inf) if at > now)

    def _nodes_of(self, request: Object) -> list[Object]:
        """The nodes that were added for a request."""
        name = request["metadata"]["name"][:63]
        return [one for one in self._nodes.list() if get(one, "metadata", "labels", REQUEST_LABEL) == name]

    async def _answer(self, request: Object, capacity: Capacity, blocked: bool, now: float) -> bool:
        """Answer an open request as far as that is possible; False while it waits for capacity.

        `blocked`: an earlier request of its queue waits too.
        """
        uid = request["metadata"]["uid"]
        if condition_of(section(request, "status"), requests.ACCEPTED) is None:
            text = "ProvisioningRequest is accepted"
            request = await self._write(request, requests.ACCEPTED, "True", "Accepted", text, now)
        if uid in self._failed:
            await self._fail(request, _NOT_FOUND, self._failed.pop(uid), now)
            return True
        if uid in self._growing:
            return await self._follow(request, self._growing[uid], now)
        if requests.expires_at(request) <= now:
            await self._fail(request, "Expired", "ProvisioningRequest is expired", now)
            return True
        if blocked:
            await self._not_yet(request, "Earlier requests of the queue wait for capacity", now)
            return False
        pods = self._pods_of(request)
        if pods is None:
            return False
        atomic = requests.class_of(request) != requests.CHECK_CAPACITY
        rooms = self._pools.rooms(self._names(), now) if atomic else ()
        new = capacity.place(pods, rooms)
        if new is None:
            if requests.is_tried_once(request):
                await self._fail(request, _NOT_FOUND, "The autoscaler could not find requested capacity", now)
                return True
            await self._not_yet(request, self._shortage(now) if atomic else _LATER, now)
            return False
        self._pools.request(new, now)
        self._growing[uid] = {one.name for one in new}
        return await self._follow(request, self._growing[uid], now)

    def _shortage(self, now: float) -> str:
        out = [one.name for one in self._pools.pools if self._pools.unavailable_until(one, now) > now]
        return f"{_LATER} Out of stock or backing off: {', '.join(out)}." if out else _LATER

    async def _follow(self, request: Object, names: set[str], now: float) -> bool:
        """Report when the nodes of a request are expected, or that all of them are ready."""
        coming = [self._pools.starting[name] for name in sorted(names) if name in self._pools.starting]
        if coming:
            at = max(one.at for one in coming)
            text = f"{len(coming)} of {len(names)} nodes are starting, expected at {format_time(at)}"
            await self._not_yet(request, text, now, "CapacityIsStarting")
            return True
        found = [self._nodes.get(None, name) for name in names]
        if any(node is None for node in found):
            del self._growing[request["metadata"]["uid"]]
            return True  # one was deleted before all were ready: the request is answered again
        if not all(is_ready(node) for node in found if node is not None):
            return True
        del self._growing[request["metadata"]["uid"]]
        reason = "CapacityIsProvisioned" if names else "CapacityIsFound"
        text = "Capacity is provisioned." if names else "Capacity is found in the cluster."
        details = {REQUEST_DETAIL: request["metadata"]["name"][:63]} if names else {}
        await self._write(request, requests.PROVISIONED, "True", reason, text, now, details)
        return True

    async def _not_yet(self, request: Object, text: str, now: float, reason: str = _NOT_FOUND) -> None:
        await self._write(request, requests.PROVISIONED, "False", reason, text, now)

    async def _fail(self, request: Object, reason: str, text: str, now: float) -> None:
        await self._write(request, requests.FAILED, "True", reason, text, now)

    async def _write(
        self,
        request: Object,
        kind: str,
        status: ConditionStatus,
        reason: str,
        text: str,
        now: float,
        details: Mapping[str, str] | None = None,
    ) -> Object:
        """Write a condition of a request, and details of its class."""
        namespace, name = key_of(request)
        newest = self._requests.get(namespace, name) or request
        conditions = requests.with_condition(newest, kind, status, reason, text, now)
        if conditions == (get(newest, "status", "conditions") or []):
            return newest
        change: Object = {
            "conditions": conditions,
            **({"provisioningClassDetails": details} if details else {}),
        }
        patch = {"metadata": {"resourceVersion": newest["metadata"]["resourceVersion"]}, "status": change}
        written = await self._client.patch(
            PROVISIONING_REQUESTS, name, namespace, patch, subresource="status"
        )
        self._requests.note(written)
        return written

    # Nodes

    def _names(self) -> set[str]:
        return {node["metadata"]["name"] for node in self._nodes.list()}

    def _add_nodes(self, capacity: Capacity, now: float) -> None:
        """Request nodes for pods that the scheduler found no place for."""
        waiting = [pod for pod in self._pods.list() if _is_unschedulable(pod)]
        if not waiting:
            return
        rooms = self._pools.rooms(self._names(), now)
        for pod in sorted(waiting, key=lambda one: (one["metadata"]["creationTimestamp"], key_of(one))):
            new = capacity.place([pod], rooms)
            if new is None:
                text = "Pod didn't trigger scale-up: no pool can get a node that it fits on"
                self._recorder.event(pod, NORMAL, "NotTriggerScaleUp", text)
            elif new:
                self._pools.request(new, now)
                text = f"Pod triggered scale-up: {_counts(new)}"
                self._recorder.event(pod, NORMAL, "TriggeredScaleUp", text)

    async def _remove_nodes(self, capacity: Capacity, now: float) -> float:
        """Remove nodes that were empty for long enough; returns when the next one is due."""
        due = inf
        empty: dict[str, float] = {}
        for node in sorted(self._nodes.list(), key=lambda one: str(one["metadata"]["name"])):
            name = node["metadata"]["name"]
            pool = self._pools.pool_of(name)
            number = None if pool is None else pool.number_of(name)
            if pool is None or pool.scaling is None or number is None or number < pool.size:
                continue
            if not capacity.is_empty(name):
                if _is_being_removed(node):
                    await self._taint(node, False)
                continue
            since = self._empty.get(name, now)
            at = since + parse_duration(str(pool.scaling.scale_down_after))
            if at > now:
                empty[name], due = since, min(due, at)
            elif not _is_being_removed(node):
                # Pods that are bound meanwhile are seen by the next scan.
                await self._taint(node, True)
                empty[name], due = since, min(due, now + INTERVAL)
            else:
                self._recorder.event(node, NORMAL, "ScaleDownEmpty", f"Removing empty node {name}")
                await self._client.delete(NODES, name, uid=node["metadata"]["uid"])
        self._empty = empty
        return due

    async def _taint(self, node: Object, removed: bool) -> None:
        taints = [one for one in get(node, "spec", "taints") or () if one.get("key") != REMOVED]
        if removed:
            taints.append({"key": REMOVED, "effect": "NoSchedule"})
        metadata = node["metadata"]
        patch = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "spec": {"taints": taints or None},
        }
        self._nodes.note(await self._client.patch(NODES, metadata["name"], None, patch))


def _is_unschedulable(pod: Mapping[str, Any]) -> bool:
    """Whether the scheduler found no node for it, and it does not use the capacity of a request."""
    found = condition_of(section(pod, "status"), "PodScheduled")
    return (
        found is not None
        and found.get("reason") == "Unschedulable"
        and not get(pod, "spec", "nodeName")
        and not is_terminal(pod)
        and not is_deleting(pod)
        and CONSUME_PROVISIONING_REQUEST_ANNOTATION not in section(pod, "metadata", "annotations")
    )


def _is_being_removed(node: Mapping[str, Any]) -> bool:
    return any(one.get("key") == REMOVED for one in get(node, "spec", "taints") or ())


def _counts(nodes: Sequence[NewNode]) -> str:
    """The nodes that are new, by pool."""
    names = [one.pool.name for one in nodes]
    return ", ".join(f"{name} +{names.count(name)}" for name in dict.fromkeys(names))
