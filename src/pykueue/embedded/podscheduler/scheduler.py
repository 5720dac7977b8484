"""The pod scheduler as a client of the API: watches, decides, binds.

A decision is made at once on the scheduler's own books (the pod is *assumed* to be on its node) and written
in the background through the pod's binding subresource; if the write fails the books are put right and the
pod waits a back-off. Pods of a group (`gangs`) are decided on together. Nothing is kept that the API does not
tell after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from typing import Any

from pykueue.api.objects import Object
from pykueue.api.pods import is_terminal
from pykueue.api.resources import NAMESPACES, NODES, POD_DISRUPTION_BUDGETS, PODS, SERVICES
from pykueue.api.times import parse_time
from pykueue.clock import Clock
from pykueue.embedded.kinds.devices import claims_of
from pykueue.embedded.kinds.podspec import DEFAULT_SCHEDULER
from pykueue.embedded.podscheduler.claims import Claims
from pykueue.embedded.podscheduler.cluster import Cluster, NodeInfo
from pykueue.embedded.podscheduler.gangplacer import GangPlaced, GangPlacer
from pykueue.embedded.podscheduler.gangs import HELD, PLACED, WAITING, Gang, Gangs, Terms, state_of
from pykueue.embedded.podscheduler.modes import SCHEDULERS
from pykueue.embedded.podscheduler.placer import EquivalenceClass, Placed, Placer, Unplaced, placed_at
from pykueue.embedded.podscheduler.podgroups import Membership, PodGroups
from pykueue.embedded.podscheduler.podinfo import PodInfo, PodReader, alike, takes_the_same, unchanged
from pykueue.embedded.podscheduler.queue import Queue
from pykueue.embedded.podscheduler.reports import Reports
from pykueue.embedded.podscheduler.services import Services
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL
from pykueue.kube.informer import InformerFactory
from pykueue.kube.transport import Transport
from pykueue.kube.workqueue import WorkQueue

#: Requests that may be under way at the same time: bindings, and everything else.
BINDERS = 16
REPORTERS = 4
#: Pods placed before other tasks run.
BATCH = 16

log = logging.getLogger(__name__)


class PodScheduler:
    """Places the pods whose `schedulerName` is one of `names`, until cancelled.

    With `native_groups` the PodGroups of Kubernetes itself are heeded too, which are not served by default.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        rng: random.Random,
        *,
        names: Iterable[str] = SCHEDULERS,
        native_groups: bool = False,
    ) -> None:
        self._names = frozenset(names)
        self._clock = clock
        self._client = Client(transport, clock=clock)
        self._informers = InformerFactory(self._client, clock=clock)
        self._reports = Reports(self._client, clock, rng, names)
        self._cluster = Cluster()
        self._services = Services()
        self._placer = Placer(self._cluster, rng)
        self._gang_placer = GangPlacer(self._cluster, self._placer, self._services.spread)
        self._gangs = Gangs()
        self._queue: Queue[PodInfo | Gang, EquivalenceClass] = Queue()
        self._reader = PodReader()
        #: Nodes that may have become able to take more since the queue was last asked.
        self._improved: set[str] = set()
        #: Whether pods came to nodes, and whether pods went, since then.
        self._arrivals = False
        self._departures = False
        self._bindings: WorkQueue[str] = WorkQueue(clock)
        #: Pods on their way to a node: decided, not yet seen in the watch.
        self._assumed: dict[str, PodInfo] = {}
        #: Groups for which nodes are kept.
        self._holding: dict[str, Gang] = {}
        self._wake = asyncio.Event()
        for resource, handler in (
            (NODES, self._on_node),
            (PODS, self._on_pod),
            (SERVICES, self._on_service),
            (NAMESPACES, self._on_namespace),
            (POD_DISRUPTION_BUDGETS, self._on_budget),
        ):
            self._informers.informer(resource).on_event(self._waking(handler))
        self._claims = Claims(
            self._client,
            self._informers,
            self._cluster,
            rng,
            lambda pod: self._on_pod(None, pod),
            self._on_devices,
        )
        self._groups = PodGroups(
            self._client,
            self._informers,
            clock,
            rng,
            self._gangs,
            self._cluster,
            self._reports,
            self._on_group,
            self._on_group_queue,
            native=native_groups,
        )

    async def run(self) -> None:
        """Schedule until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._informers.run())
                group.create_task(self._groups.run())
                for recorder in self._reports.recorders.values():
                    group.create_task(recorder.run())
                for _ in range(BINDERS):
                    group.create_task(self._work(self._bindings, self._bind))
                for _ in range(REPORTERS):
                    group.create_task(self._work(self._reports.queue, self._reports.report))
                group.create_task(self._schedule())
        finally:
            self._bindings.close()
            self._reports.queue.close()

    # Watch events

    def _waking(self, handler: Callable[[Any, Any], None]) -> Callable[[str, Any, Any], None]:
        def handle(_type: str, old: Any, new: Any) -> None:
            handler(old, new)
            self._wake.set()

        return handle

    def _on_node(self, old: Object | None, new: Object | None) -> None:
        if new is None:
            assert old is not None
            self._cluster.remove_node(old["metadata"]["name"])
        elif self._cluster.set_node(new):
            self._improved.add(new["metadata"]["name"])
            self._arrivals = self._departures = True

    def _on_namespace(self, old: Object | None, new: Object | None) -> None:
        if new is None:
            assert old is not None
            self._cluster.set_namespace(old["metadata"]["name"], None)
        elif old is None or old["metadata"].get("labels") != new["metadata"].get("labels"):
            self._cluster.set_namespace(new["metadata"]["name"], new["metadata"].get("labels") or {})
            self._arrivals = self._departures = True

    def _on_budget(self, old: Object | None, new: Object | None) -> None:
        if new is not None:
            self._cluster.budgets.put(new)
        elif old is not None:
            self._cluster.budgets.remove(old["metadata"]["namespace"], old["metadata"]["name"])

    def _on_service(self, old: Object | None, new: Object | None) -> None:
        service = new or old
        assert service is not None
        selector = (new.get("spec") or {}).get("selector") if new is not None else None
        self._services.put(service["metadata"]["namespace"], service["metadata"]["name"], selector)

    def _on_pod(self, old: Object | None, new: Object | None) -> None:
        if new is None or is_terminal(new):
            gone = new or old
            assert gone is not None
            self._gone(gone["metadata"]["uid"])
            self._note_member(gone, None if new is None else state_of(new))
            return
        known = self._cluster.pods.get(new["metadata"]["uid"])
        if new["spec"].get("nodeName"):
            self._on_bound(known, new)
        else:
            self._on_unbound(known, old, new)

    def _on_bound(self, known: PodInfo | None, new: Object) -> None:
        metadata = new["metadata"]
        uid = metadata["uid"]
        if self._assumed.pop(uid, None) is None and known is None:
            self._drop_waiting(uid)
        self._note_member(new, state_of(new))
        if known is not None and unchanged(known, new):
            known.manifest = new
            return
        pod = self._reader.read(new)
        if known is not None and pod is not None and takes_the_same(known, pod):
            known.manifest, known.generation = new, pod.generation
            return
        if known is not None:
            self._cluster.remove_pod(uid)
            self._improved.add(known.node)
            self._departures = True
        if pod is not None:
            self._add(pod)

    def _on_unbound(self, assumed: PodInfo | None, old: Object | None, new: Object) -> None:
        metadata, spec = new["metadata"], new["spec"]
        uid = metadata["uid"]
        if assumed is not None:
            # Decided already; a change on the way is of no account, except that it may be the last.
            assumed.manifest = new
            return
        ours = (spec.get("schedulerName") or DEFAULT_SCHEDULER) in self._names
        lacks = bool(spec.get("resourceClaims")) and not self._claims.ready(new)
        held = lacks or bool(spec.get("schedulingGates"))
        if not ours or held or metadata.get("deletionTimestamp") is not None:
            self._drop_waiting(uid)
            if ours:
                self._note_member(new, HELD)
            return
        pod = self._reader.read(new)
        if pod is None:
            log.warning(
                "pod %s/%s has requests that are not quantities", metadata.get("namespace"), metadata["name"]
            )
            return
        similar = old is not None and alike(old, new)
        if similar and old is not None and spec.get("resourceClaims"):
            similar = claims_of(old) == claims_of(new)  # another one takes the place of a deleted claim
        membership = self._groups.membership(new)
        self._leave_group(uid, membership)
        if membership is not None:
            self._on_waiting_member(membership, pod, similar)
            return
        if pod.nominated and uid not in self._queue:
            self._placer.nominate(pod, pod.nominated)
        if uid in self._queue and similar:
            self._queue.refresh(pod)
        else:
            self._queue.add(pod, self._now())

    def _on_devices(self) -> None:
        """Devices may have become free."""
        now = self._now()
        for group in list(self._queue.groups()):
            example = group.example
            kinds = example.kinds() if isinstance(example, Gang) else (example,)
            if any(self._cluster.devices.concern(pod) for pod in kinds):
                self._queue.wake(group, now)
        self._wake.set()

    def _gone(self, uid: str) -> None:
        self._assumed.pop(uid, None)
        pod = self._cluster.remove_pod(uid)
        if pod is not None:
            self._improved.add(pod.node)
            self._departures = True
        self._drop_waiting(uid)

    def _drop_waiting(self, uid: str) -> None:
        self._queue.remove(uid, self._now())
        self._reports.drop(uid)
        nominated = self._placer.forget(uid)
        if nominated:
            self._improved.add(nominated)

    def _add(self, pod: PodInfo) -> None:
        if self._cluster.add_pod(pod):
            # A new anti-affinity term changes the equivalence classes of the pending pods.
            self._queue.wake_all(self._now())
        self._arrivals = True

    # Groups

    def _note_member(self, pod: Object, state: str | None) -> None:
        """A pod of a group is in `state`, and not waiting; None when it is gone."""
        uid = pod["metadata"]["uid"]
        gang = self._gangs.of(uid)
        if state is None:
            self._gangs.drop(uid)
        elif gang is not None and gang.members[uid].state == state:
            return
        else:
            membership = self._groups.membership(pod)
            if membership is None:
                return
            gang = self._gangs.put(membership.key, uid, state, membership.task)
        if gang is not None:
            gang.promised.pop(uid, None)
            self._seat(gang)

    def _leave_group(self, uid: str, membership: Membership | None) -> None:
        """A waiting pod's labels or annotations may have taken it out of its group."""
        gang = self._gangs.of(uid)
        if gang is None or (membership is not None and membership.key == gang.key):
            return
        self._queue.remove(uid, self._now())
        self._gangs.drop(uid)
        gang.promised.pop(uid, None)
        self._placer.forget(uid)
        self._seat(gang)

    def _on_waiting_member(self, membership: Membership, pod: PodInfo, similar: bool) -> None:
        gang = self._gangs.of(pod.uid)
        if similar and gang is not None and pod.uid in gang.waiting:
            gang.waiting[pod.uid] = pod
            self._queue.refresh(pod)
            return
        new = gang is None
        gang = self._gangs.put(membership.key, pod.uid, WAITING, membership.task, pod)
        if new and pod.nominated:
            # Decided before a restart.
            self._keep_node(gang, pod, pod.nominated)
        if gang.alone and gang.lacking == 0:
            self._queue.add(pod, self._now())
        self._seat(gang)

    def _on_group(self, gang: Gang) -> None:
        """What the group asks for changed."""
        self._seat(gang)
        self._wake.set()

    def _on_group_queue(self) -> None:
        """A queue of groups may take more than before."""
        self._queue.wake_all(self._now())
        self._wake.set()

    def _seat(self, gang: Gang, *, retry: bool = False) -> None:
        """Let the group's waiting members stand in the queue as they should: as one, alone, or not at all."""
        now = self._now()
        self._groups.touch(gang)
        alone = gang.terms is not None and gang.terms.open and gang.lacking == 0
        if alone != gang.alone:
            gang.alone = alone
            for pod in gang.waiting.values():
                if alone:
                    self._queue.add(pod, now)
                else:
                    self._queue.remove(pod.uid, now)
        if alone or gang.terms is None or not gang.terms.open or not gang.waiting or not gang.complete:
            self._queue.remove(gang.uid, now)
        elif retry:
            self._queue.retry(gang, now)
        else:
            assert gang.object is not None
            created = parse_time(gang.object["metadata"]["creationTimestamp"])
            self._queue.add(gang, now, since=now - (self._clock.time() - created))

    def _keep_node(self, gang: Gang, pod: PodInfo, node: str) -> None:
        """Room is made for the member; the group may wait for it as long as its terms say."""
        self._placer.nominate(pod, node)
        if not gang.promised:
            # After a restart the pods may be read before their group.
            terms = gang.terms or Terms(0)
            gang.deadline = self._now() + terms.patience
        gang.promised[pod.uid] = node
        self._holding[gang.uid] = gang

    def _give_back(self, gang: Gang) -> None:
        """Keep nothing for the group any longer."""
        for uid, node in gang.promised.items():
            self._placer.forget(uid)
            self._improved.add(node)
        gang.promised.clear()
        self._holding.pop(gang.uid, None)

    def _end_holds(self) -> None:
        """Release the nodes of groups that waited too long for them."""
        now = self._now()
        for gang in [one for one in self._holding.values() if not one.promised or one.deadline <= now]:
            kept = bool(gang.promised)
            self._give_back(gang)
            if not kept or not gang.waiting:
                continue
            gang.verdict = "the nodes kept for it were not free in time."
            for pod in gang.waiting.values():
                self._reports.enqueue(pod, f"Pod group {gang.tie}: {gang.verdict}", every_time=False)
            self._seat(gang, retry=True)

    # Deciding

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _schedule(self) -> None:
        await self._informers.synced()
        while True:
            for _ in range(BATCH):
                if self._holding:
                    self._end_holds()
                self._wake_helped()
                item = self._queue.pop(self._now())
                if item is None:
                    await self._idle()
                    break
                if isinstance(item, Gang):
                    self._decide_gang(item)
                else:
                    self._decide(item)
            else:
                await self._clock.sleep(0)

    async def _idle(self) -> None:
        """Wait until something happens, or a back-off ends."""
        self._wake.clear()
        times = [gang.deadline for gang in self._holding.values()]
        until = min((one for one in (self._queue.next_time(), *times) if one is not None), default=None)
        if until is None:
            await self._wake.wait()
            return
        timer = self._clock.call_later(until - self._now(), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _wake_helped(self) -> None:
        """Wake the sleeping pods that may fit after what happened since the last time."""
        if not self._improved and not self._arrivals and not self._departures:
            return
        nodes = [node for name in self._improved if (node := self._cluster.node(name)) is not None]
        arrivals, departures = self._arrivals, self._departures
        self._improved.clear()
        self._arrivals = self._departures = False
        now = self._now()
        for group in self._queue.groups():
            example = group.example
            kinds = example.kinds() if isinstance(example, Gang) else (example,)
            if (departures and group.key.repelled_by) or any(
                self._helped(pod, nodes, arrivals, departures) for pod in kinds
            ):
                self._queue.wake(group, now)

    def _helped(self, pod: PodInfo, nodes: list[NodeInfo], arrivals: bool, departures: bool) -> bool:
        """Whether what happened may have opened a node to the pod."""
        relations = pod.relations
        return (
            (arrivals and relations.helped_by_arrivals)
            or (departures and relations.helped_by_departures)
            or any(self._placer.could_help(pod, node) for node in nodes)
        )

    def _decide(self, pod: PodInfo) -> None:
        now = self._now()
        gang = self._gangs.of(pod.uid)
        try:
            refused = self._refused(gang, pod) if gang is not None else None
            outcome = refused or self._placer.place(pod, self._services.spread(pod))
        except Exception:
            log.exception("pod %s cannot be scheduled", pod.key)
            self._queue.retry(pod, now)
            return
        if isinstance(outcome, Placed):
            self._queue.placed(pod.uid, now)
            self._placer.forget(pod.uid)
            assumed = placed_at(pod, outcome.node)
            self._add(assumed)
            self._assume(assumed, gang)
            return
        self._queue.failed(pod.uid, outcome.equivalence, now)
        if outcome.nominated:
            self._placer.nominate(pod, outcome.nominated)
        elif given_up := self._placer.forget(pod.uid):
            self._improved.add(given_up)
        self._reports.enqueue(pod, outcome.message, outcome.nominated, outcome.victims)

    def _refused(self, gang: Gang, pod: PodInfo) -> Unplaced | None:
        """Whether the group may have no more although its minimum is met."""
        message = self._groups.mode(gang).objection(gang, (pod,))
        if not message:
            return None
        return Unplaced(message, EquivalenceClass(pod.shape, gang.key, pod.priority, pod.preempts, ()))

    def _assume(self, pod: PodInfo, gang: Gang | None) -> None:
        """The pod is on the books at its node: have it bound."""
        self._assumed[pod.uid] = pod
        self._reports.drop(pod.uid)
        if gang is not None:
            self._gangs.put(gang.key, pod.uid, PLACED, gang.task_of(pod.uid))
            self._groups.touch(gang)
        self._bindings.add(pod.uid)

    def _decide_gang(self, gang: Gang) -> None:
        now = self._now()
        kept = {node for uid in gang.waiting if (node := self._placer.promised(uid))}
        waited_before = bool(gang.promised)
        try:
            outcome = self._gang_placer.place(gang, self._groups.mode(gang).objection)
        except Exception:
            log.exception("pod group %s cannot be scheduled", gang.tie)
            self._give_back(gang)
            self._queue.retry(gang, now)
            return
        if isinstance(outcome, GangPlaced):
            self._queue.placed(gang.uid, now)
            gang.verdict = ""
            self._give_back(gang)
            self._improved.update(kept)
            for pod in outcome.pods:
                self._assume(pod, gang)
            self._arrivals = True
            if outcome.new_term:
                self._queue.wake_all(now)
            self._seat(gang)
            return
        self._queue.failed(gang.uid, outcome.equivalence, now)
        gang.verdict = outcome.verdict
        gang.promised = {move.pod.uid: move.node for move in outcome.moves}
        self._improved.update(kept.difference(gang.promised.values()))
        if gang.promised:
            if not waited_before:
                assert gang.terms is not None
                gang.deadline = now + gang.terms.patience
            self._holding[gang.uid] = gang
        victims = {move.pod.uid: move.victims for move in outcome.moves}
        for uid, pod in gang.waiting.items():
            node = gang.promised.get(uid, "")
            self._reports.enqueue(pod, outcome.message, node, victims.get(uid, ()), every_time=False)
        self._groups.touch(gang)

    # Writing

    async def _work(self, queue: WorkQueue[str], work: Callable[[str], Any]) -> None:
        while True:
            uid = await queue.get()
            try:
                await work(uid)
            finally:
                queue.done(uid)

    async def _bind(self, uid: str) -> None:
        pod = self._assumed.get(uid)
        if pod is None:
            return
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": pod.node},
        }
        try:
            await self._claims.write(pod)
            await self._client.create(PODS, binding, name=pod.name, subresource="binding", given=True)
        except (ApiError, ConnectionError, TimeoutError) as error:
            log.info("pod %s could not be bound to node %s: %s", pod.key, pod.node, error)
            if not await self._is_bound(pod):
                if uid not in self._assumed:
                    await self._claims.discard(pod)
                return
        self._bindings.forget(uid)
        self._reports.event(pod, NORMAL, "Scheduled", f"Successfully assigned {pod.key} to {pod.node}")

    async def _is_bound(self, pod: PodInfo) -> bool:
        """After a binding that seems to have failed: whether it was carried out nevertheless.

        Until that is known the pod stays assumed, or the place would be given to another pod as well.
        """
        try:
            stored = await self._client.get(PODS, pod.name, pod.namespace)
        except (ApiError, ConnectionError, TimeoutError) as error:
            if isinstance(error, ApiError) and error.not_found:
                self._unbind(pod)
            else:
                self._bindings.add_rate_limited(pod.uid)
            return False
        if stored["metadata"]["uid"] == pod.uid and stored["spec"].get("nodeName"):
            return bool(stored["spec"]["nodeName"] == pod.node)
        self._unbind(pod)
        return False

    def _unbind(self, pod: PodInfo) -> None:
        """The pod did not get its node: take it off the books, and try again unless it is gone."""
        if self._assumed.pop(pod.uid, None) is None:
            return
        self._cluster.remove_pod(pod.uid)
        self._improved.add(pod.node)
        self._departures = True
        self._wake.set()
        manifest = self._informers.informer(PODS).get(pod.namespace, pod.name)
        if manifest is None or manifest["metadata"]["uid"] != pod.uid or is_terminal(manifest):
            return
        waiting = self._reader.read(manifest)
        if waiting is None or waiting.node or waiting.terminating:
            return
        gang = self._gangs.of(pod.uid)
        if gang is not None:
            self._gangs.put(gang.key, pod.uid, WAITING, gang.task_of(pod.uid), waiting)
            self._seat(gang, retry=True)
        if gang is None or gang.alone:
            self._queue.retry(waiting, self._now())
