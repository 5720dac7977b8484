"""The part of a kubelet that speaks for its node, for all nodes of one kind: registering, Leases, failing.

What runs the pods queries the state of a node here, and is notified when it changes. All state follows from
the API: failures from annotations and seeds, notice of a reclaim from a taint.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from pykueue.api.objects import Object
from pykueue.api.resources import LEASES, NODES
from pykueue.api.times import format_time, parse_time
from pykueue.clock import Clock
from pykueue.embedded.nodes.addresses import Addresses
from pykueue.embedded.nodes.outages import (
    CRASH,
    NOT_READY,
    NOTICE,
    RECLAIMED,
    UNREACHABLE,
    Outages,
    health,
    notice_given,
    read,
)
from pykueue.embedded.nodes.registration import (
    LAST_LEASE_DURATION,
    LEASE_DURATION,
    LEASE_NAMESPACE,
    has_condition,
    internal_address,
    is_ready,
    register,
    renew,
)
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.kube.informer import Informer, InformerFactory

#: Where nodes have their addresses; each keeper of a cluster needs a network of its own.
SIMULATED_NETWORK = "172.16.0.0/13"
PROCESS_NETWORK = "172.24.0.0/13"
WORKERS = 4
#: Seconds before the node is deleted by which the end of its pods is reported.
_LAST_REPORT = 1.0
_SHUTTING_DOWN = "node is shutting down"
_BROKEN = "container runtime network not ready: the node has a failure annotation"


class NodeState(NamedTuple):
    """What matters of a node to its pods. Times are seconds since 1970."""

    #: UNREACHABLE, CRASH, NOT_READY or "".
    failure: str = ""
    #: Since when it fails.
    since: float = 0.0
    #: When notice was given that the node goes, None if it was not, and by when its pods must have ended.
    notice: float | None = None
    last_call: float = inf

    @property
    def silent(self) -> bool:
        """Whether the node does not report."""
        return self.failure in (UNREACHABLE, CRASH)


class NodeKeeper:
    """Keeps the nodes for which `owned` says so; run by `run`.

    `changed` is called with the name of a node whose state has changed, or is known for the first time.
    `network` is where the nodes get addresses that have none, `lease_duration` is in seconds.
    """

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        clock: Clock,
        owned: Callable[[Object], bool],
        changed: Callable[[str], None],
        recorder: EventRecorder | None = None,
        *,
        network: str = SIMULATED_NETWORK,
        lease_duration: int = LEASE_DURATION,
    ) -> None:
        self._client = client
        self._clock = clock
        self._owned = owned
        self._changed = changed
        self._recorder = recorder
        self._lease_duration = lease_duration
        self._nodes: Informer = informers.informer(NODES)
        self._leases: Informer = informers.informer(LEASES, LEASE_NAMESPACE)
        self._addresses = Addresses(network)
        self._states: dict[str, NodeState] = {}
        #: What the annotations of a node said when they were last read.
        self._outages: dict[str, tuple[Object, Outages]] = {}
        self._work: Controller[str] = Controller(
            "node agent", self._sync, clock=clock, workers=WORKERS, wait_for=(informers.synced,)
        )
        self._nodes.on_event(self._on_node)
        self._leases.on_event(self._on_lease)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._work.run()

    def state(self, name: str) -> NodeState | None:
        """How a node is; None while that is not known."""
        return self._states.get(name)

    def _on_node(self, type_: str, old: Object | None, new: Object | None) -> None:
        node = new or old
        assert node is not None
        name = node["metadata"]["name"]
        if new is None:
            self._addresses.release(internal_address(node))
            self._outages.pop(name, None)
            self._states.pop(name, None)
            return
        address = internal_address(new)
        if address:
            self._addresses.reserve(address)
        self._work.queue.add(name)

    def _on_lease(self, type_: str, old: Object | None, new: Object | None) -> None:
        if new is None and old is not None:
            self._work.queue.add(old["metadata"]["name"])

    async def _sync(self, name: str) -> float | None:
        node: Object | None = self._nodes.get(None, name)
        if node is None or not self._owned(node):
            return None
        now = self._clock.time()
        outages = self._read(node)
        found = health(node, outages, now)
        if notice_given(node) is None and found.reclaim_at <= now:
            node = await self._give_notice(node, outages, now)
        notice = notice_given(node)
        notes = NOTICE if outages.reclaim_notice is None else outages.reclaim_notice
        goes_at = inf if notice is None else notice + notes
        if goes_at <= now:
            await self._go(node)
            return None
        lease: Object | None = self._leases.get(LEASE_NAMESPACE, name)
        since = found.since
        if since is None:
            since = self._last_heard(lease, now) if found.failure else 0.0
        state = NodeState(found.failure, since, notice, max(notice or 0.0, goes_at - _LAST_REPORT))
        if state.silent:
            again = await self._fall_silent(node, lease, now)
        else:
            trouble = _SHUTTING_DOWN if notice is not None else _BROKEN if found.failure == NOT_READY else ""
            await self._register(node, trouble, now)
            again = await renew(self._client, node, lease, now, self._lease_duration)
        if self._states.get(name) != state and self._nodes.get(None, name) is not None:
            self._states[name] = state
            self._changed(name)
        return min(again, found.until - now, found.reclaim_at - now if notice is None else inf, goes_at - now)

    def _read(self, node: Object) -> Outages:
        name, annotations = node["metadata"]["name"], node["metadata"].get("annotations") or {}
        known = self._outages.get(name)
        if known is not None and known[0] == annotations:
            return known[1]
        outages, wrong = read(annotations)
        for text in wrong:
            self._tell(node, WARNING, "InvalidSimulation", text)
        self._outages[name] = (annotations, outages)
        return outages

    def _last_heard(self, lease: Object | None, now: float) -> float:
        """When a node that was ordered to fail did so: at its last Lease renewal."""
        spec = (lease or {}).get("spec") or {}
        if spec.get("leaseDurationSeconds") == LAST_LEASE_DURATION and spec.get("renewTime"):
            return parse_time(spec["renewTime"])
        return now

    async def _fall_silent(self, node: Object, lease: Object | None, now: float) -> float:
        lasts = ((lease or {}).get("spec") or {}).get("leaseDurationSeconds")
        if lasts is None or lasts > LAST_LEASE_DURATION:
            await renew(self._client, node, None, now, LAST_LEASE_DURATION)
        return inf

    async def _register(self, node: Object, trouble: str, now: float) -> None:
        address = internal_address(node)
        taken = "" if address else self._addresses.take()
        try:
            written = await register(self._client, node, address or taken, now, trouble=trouble)
        except BaseException:
            self._addresses.release(taken)
            raise
        if written is None:
            return
        self._nodes.note(written)
        if has_condition(node, "Ready") and is_ready(node) != is_ready(written):
            name, now_is = node["metadata"]["name"], "NodeReady" if is_ready(written) else "NodeNotReady"
            self._tell(node, NORMAL, now_is, f"Node {name} status is now: {now_is}")

    # Being taken back

    async def _give_notice(self, node: Object, outages: Outages, now: float) -> Object:
        metadata, spec = node["metadata"], node.get("spec") or {}
        taint = {"key": RECLAIMED, "effect": "NoSchedule", "timeAdded": format_time(now)}
        patch = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "spec": {"taints": [*(spec.get("taints") or ()), taint]},
        }
        written = await self._client.patch(NODES, metadata["name"], None, patch)
        self._nodes.note(written)
        notes = NOTICE if outages.reclaim_notice is None else outages.reclaim_notice
        text = f"Node {metadata['name']} is taken back in {notes:g} s"
        self._tell(node, WARNING, "NodeReclaimed", text)
        return written

    async def _go(self, node: Object) -> None:
        metadata = node["metadata"]
        text = f"Deleting node {metadata['name']} because it has been taken back"
        self._tell(node, NORMAL, "DeletingNode", text)
        try:
            await self._client.delete(NODES, metadata["name"], uid=metadata["uid"])
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise

    def _tell(self, node: Object, type_: str, reason: str, text: str) -> None:
        if self._recorder is not None:
            self._recorder.event(node, type_, reason, text)
