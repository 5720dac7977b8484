"""The controller of concurrent admission: makes the variants of Workloads, and admits these as they are.

The rules are in `variants.rules`; this is the loop that applies them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykueue.api import conditions, variants
from pykueue.api.decoding import DecodeError, decode_as
from pykueue.api.kueue import ConcurrentAdmissionPolicy
from pykueue.api.kueue.names import RESOURCE_IN_USE_FINALIZER
from pykueue.api.objects import Key, Object, get, is_deleting, key_of, spec_differs, without_finalizer
from pykueue.clock import Clock
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, EventRecorder
from pykueue.manager.cluster import Cluster
from pykueue.manager.workloads.reservations import Reservations
from pykueue.manager.writes import UnansweredWrites, Writer

from . import rules
from .family import Change, Event, Family, flavor_of


class VariantController:
    """Reconciles all Workloads of ClusterQueues with concurrent admission, with their variants."""

    def __init__(
        self,
        cluster: Cluster,
        writer: Writer,
        reservations: Reservations,
        recorder: EventRecorder,
        clock: Clock,
        workers: int = 8,
    ) -> None:
        self._cluster = cluster
        self._writer = writer
        self._reservations = reservations
        self._recorder = recorder
        self._clock = clock
        self._is_on = cluster.configuration.gates[variants.GATE]
        self._waits = cluster.configuration.wait_for_pods_ready is not None
        #: Changes of a parent or its variants that were not answered, by parent.
        self._unanswered: UnansweredWrites[Key] = UnansweredWrites(writer)
        self.controller: Controller[Key] = Controller(
            "variant controller", self.reconcile, clock=clock, workers=workers, wait_for=[cluster.synced]
        )
        cluster.workloads.on_event(self._workload_changed)
        cluster.cluster_queues.on_event(self._cluster_queue_changed)
        cluster.local_queues.on_event(self._local_queue_changed)
        reservations.on_agreement(self._add)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    # What leads to work

    def _workload_changed(self, type_: str, old: Any, new: Any) -> None:
        self._add(old if new is None else new)

    def _add(self, workload: Mapping[str, Any]) -> None:
        parent = variants.parent_reference(workload)
        if parent is not None:
            self.controller.queue.add((key_of(workload)[0], str(parent.get("name"))))
        elif variants.has_variants(workload) or (
            self._is_on
            and not conditions.is_finished(workload)
            and _policy(self._queue(workload)) is not None
        ):
            self.controller.queue.add(key_of(workload))

    def _cluster_queue_changed(self, type_: str, old: Any, new: Any) -> None:
        queue = old if new is None else new
        if not spec_differs(old, new):
            return
        for local in self._cluster.local_queues.by_index("clusterQueue", queue["metadata"]["name"]):
            self._local_queue_changed("", None, local)

    def _local_queue_changed(self, type_: str, old: Any, new: Any) -> None:
        queue = old if new is None else new
        if not spec_differs(old, new):
            return
        for workload in self._cluster.workloads.by_index("queue", key_of(queue)):
            self._add(workload)

    # The work

    async def reconcile(self, key: Key) -> float | None:
        """Take the next step of one parent and its variants."""
        await self._unanswered.learn_outcomes(key, self._cluster.workloads)
        parent = self._cluster.workload(key)
        uid = None if parent is None else parent["metadata"].get("uid")
        owned = self._cluster.workloads.by_index("owner", (key[0], "Workload", key[1]))
        for orphan in [each for each in owned if (variants.parent_reference(each) or {}).get("uid") != uid]:
            await self._drop_finalizer(orphan)  # its parent is gone, whose job has stopped
        if parent is None or is_deleting(parent) or self._reservations.lost(key) is not None:
            return None
        members = [each for each in owned if (variants.parent_reference(each) or {}).get("uid") == uid]
        # Where its LocalQueue is gone, the variants say which queue it is admitted by.
        queue = next(filter(None, map(self._queue, (parent, *members))), None)
        policy = _policy(queue)
        if not self._is_on or (policy is None and queue is not None):
            await self._dissolve(self._family(parent, members, queue or {}, policy))
            return None
        if conditions.is_finished(parent):
            if not self._cluster.runs(parent):
                await self._carry_out(key, rules.finished(self._family(parent, members, queue or {}, policy)))
                for variant in filter(is_deleting, members):
                    await self._drop_finalizer(variant)
            return None
        if queue is None:  # until it is known which queue it competes in
            for variant in members:
                if is_deleting(variant) and not conditions.has_quota(variant):
                    await self._drop_finalizer(variant)
            return None
        if not variants.has_variants(parent):
            if rules.becomes_parent(parent):
                await self._writer.change(self._cluster.workloads, parent, rules.marked(parent, True))
            return None
        return await self._step(self._family(parent, members, queue, policy))

    def _family(
        self,
        parent: Object,
        members: Iterable[Object],
        queue: Mapping[str, Any],
        policy: ConcurrentAdmissionPolicy | None,
    ) -> Family:
        order = variants.flavor_order(queue.get("spec") or {})
        last = len(order)
        position = {flavor: index for index, flavor in enumerate(order)}
        return Family(
            parent,
            sorted(members, key=lambda each: position.get(flavor_of(each), last)),
            order,
            policy,
            self._clock.time(),
            self._cluster.configuration.workload_name_limit,
            self._waits,
        )

    async def _step(self, family: Family) -> float | None:
        plan = rules.next_changes(family)
        for variant in plan.created:
            await self._create(family.parent, variant)
        for variant in plan.deleted:
            await self._writer.delete(self._cluster.workloads, variant)
            text = f"Deleted the variant {key_of(variant)[1]} for the flavor {flavor_of(variant)}"
            self._recorder.event(family.parent, NORMAL, "DeletedVariant", text)
        await self._carry_out(key_of(family.parent), plan.changes)
        return None if plan.wake is None else max(0.0, plan.wake - self._clock.time())

    async def _create(self, parent: Object, variant: Object) -> None:
        try:
            await self._writer.create(self._cluster.workloads, variant)
        except ApiError as error:
            if not error.already_exists:
                raise
            await self._writer.reread(self._cluster.workloads, key_of(variant))
            return
        text = f"Created the variant {key_of(variant)[1]} for the flavor {flavor_of(variant)}"
        self._recorder.event(parent, NORMAL, "CreatedVariant", text)

    async def _carry_out(self, parent: Key, changes: Iterable[Change]) -> None:
        for change in list(changes):
            taken: list[bool] = []

            def step(current: Object, change: Change = change, taken: list[bool] = taken) -> Object | None:
                desired = change.step(current)
                taken[:] = [desired is not None and desired != current]
                return desired

            with self._unanswered.remembered(parent, change.key):
                written = await self._writer.update(
                    self._cluster.workloads, change.key, step, subresource=change.subresource
                )
            if written is not None and change.event is not None and taken[0]:
                self._record(written, change.event)

    def _record(self, workload: Object, event: Event) -> None:
        self._recorder.event(workload, NORMAL, event.reason, event.note)

    async def _dissolve(self, family: Family) -> None:
        """Delete the variants of a Workload that competes itself again.

        With the gate off at once: the quota of the job is then counted with the parent. Otherwise a variant
        that holds quota gives it back first, after its job has stopped.
        """
        parent = family.parent
        left = False
        for variant in family.members:
            if self._is_on and conditions.has_quota(variant) and not conditions.is_finished(variant):
                left = True
                continue
            await self._drop_finalizer(variant)
            if not is_deleting(variant):
                await self._writer.delete(self._cluster.workloads, variant)
        if left:
            await self._carry_out(key_of(parent), rules.withdrawals(family))
        elif variants.has_variants(parent) and not conditions.is_finished(parent):
            await self._writer.change(self._cluster.workloads, parent, rules.marked(parent, False))

    async def _drop_finalizer(self, variant: Object) -> None:
        desired = without_finalizer(variant, RESOURCE_IN_USE_FINALIZER)
        if desired is not variant:
            await self._writer.change(self._cluster.workloads, variant, desired)

    # The queue of a Workload

    def _queue(self, workload: Mapping[str, Any]) -> Object | None:
        """The ClusterQueue that a Workload holds quota of, or competes in; None where that is unknown."""
        name = conditions.cluster_queue(workload)
        if not name:
            namespace = key_of(workload)[0]
            local = self._cluster.local_queues.get(namespace, str(get(workload, "spec", "queueName") or ""))
            name = str(get(local, "spec", "clusterQueue") or "") if local is not None else ""
        return self._cluster.cluster_queues.get("", name) if name else None


def _policy(queue: Mapping[str, Any] | None) -> ConcurrentAdmissionPolicy | None:
    """How the variants of Workloads of a ClusterQueue compete; None where they have none."""
    found = get(queue, "spec", "concurrentAdmissionPolicy") if queue is not None else None
    if not found:
        return None
    try:
        return decode_as(ConcurrentAdmissionPolicy, found)
    except DecodeError:
        return None  # as of a later version
