"""Handlers of events of objects other than Workloads: quotas, flavors, checks and namespaces.

Source of the rules: docs/reference/kueue-semantics.md 3.6, 3.9, 4.6 and 4.10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from pykueue.api import kueue
from pykueue.api.backfill_policies import BackfillPolicy
from pykueue.api.budgets import Budget, BudgetLedger
from pykueue.api.core import LimitRange, Namespace, Node, Pod, RuntimeClass
from pykueue.api.devices.types import DeviceClass, ResourceClaimTemplate, ResourceSlice
from pykueue.api.hybrid import is_permitted
from pykueue.api.kueue.names import MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER
from pykueue.api.meta import condition_is, parse_time
from pykueue.api.model import Model
from pykueue.api.preemption_policies import PreemptionPolicy
from pykueue.api.reservations import Reservation
from pykueue.engine import workload_events
from pykueue.engine.events import Removed
from pykueue.engine.flavors.devices import Dependency
from pykueue.engine.flavors.requests import Limits
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.quota.tree import fair_weight
from pykueue.engine.state import State
from pykueue.engine.workload import RESERVED, WorkloadInfo


class EventHandlers:
    """Turns events into moves of the state."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.limit_ranges: dict[str, dict[str, LimitRange]] = {}
        self._limits_made = 0
        self._environments = 0
        self._devices_number = 0
        #: The key of each BudgetLedger, by its name.
        self._ledger_keys: dict[str, tuple[str, str]] = {}
        self._upsert: dict[type, Callable[[Any], None]] = {
            kueue.Workload: partial(workload_events.upsert, state),
            kueue.ClusterQueue: self._cluster_queue,
            kueue.Cohort: lambda obj: self._cohort(obj.metadata.name, obj),
            kueue.LocalQueue: self._local_queue,
            kueue.ResourceFlavor: lambda obj: self._flavor(obj.metadata.name, obj),
            kueue.AdmissionCheck: lambda obj: self._check(obj.metadata.name, obj),
            kueue.Topology: lambda obj: self._topology(obj.metadata.name, obj),
            Reservation: lambda obj: self._reservation(obj.metadata.name, obj),
            BackfillPolicy: lambda obj: self._backfill_policy(obj.metadata.name, obj),
            Budget: lambda obj: self._budget(obj.metadata.name, obj),
            BudgetLedger: lambda obj: self._ledger(obj.metadata.name, obj),
            PreemptionPolicy: lambda obj: self._preemption_policy(obj.metadata.name, obj),
            Namespace: lambda obj: self._namespace(obj.metadata.name, obj),
            LimitRange: lambda obj: self._limit_range(obj.metadata.namespace, obj.metadata.name, obj),
            RuntimeClass: lambda obj: self._runtime_class(obj.metadata.name, obj),
            DeviceClass: lambda obj: self._device_class(obj.metadata.name, obj),
            ResourceClaimTemplate: lambda obj: self._claim_template(obj.metadata.key, obj),
            ResourceSlice: lambda obj: self._slice(obj.metadata.name, obj),
            Node: lambda obj: self._node(obj.metadata.name, obj),
            Pod: lambda obj: self._pod(obj.metadata.namespace, obj.metadata.name, obj),
        }
        self._removed: dict[str, Callable[[str, str], None]] = {
            "Workload": self._workload_removed,
            "ClusterQueue": lambda _, name: self._cluster_queue_removed(name),
            "Cohort": lambda _, name: self._cohort(name, None),
            "LocalQueue": self._local_queue_removed,
            "ResourceFlavor": lambda _, name: self._flavor(name, None),
            "AdmissionCheck": lambda _, name: self._check(name, None),
            "Topology": lambda _, name: self._topology(name, None),
            "Reservation": lambda _, name: self._reservation(name, None),
            "BackfillPolicy": lambda _, name: self._backfill_policy(name, None),
            "Budget": lambda _, name: self._budget(name, None),
            "BudgetLedger": lambda _, name: self._ledger(name, None),
            "PreemptionPolicy": lambda _, name: self._preemption_policy(name, None),
            "Namespace": lambda _, name: self._namespace(name, None),
            "LimitRange": lambda namespace, name: self._limit_range(namespace, name, None),
            "RuntimeClass": lambda _, name: self._runtime_class(name, None),
            "DeviceClass": lambda _, name: self._device_class(name, None),
            "ResourceClaimTemplate": lambda namespace, name: self._claim_template(
                f"{namespace}/{name}", None
            ),
            "ResourceSlice": lambda _, name: self._slice(name, None),
            "Node": lambda _, name: self._node(name, None),
            "Pod": lambda namespace, name: self._pod(namespace, name, None),
        }

    def upsert(self, obj: Model) -> None:
        """An object appeared or changed; kinds that decide nothing are ignored.

        Raises TypeError for what is not a typed object.
        """
        handler = self._upsert.get(type(obj))
        if handler is not None:
            handler(obj)
        elif not isinstance(obj, Model):
            raise TypeError(
                f"Upsert.obj is of type {type(obj).__name__}; accepted: an object of pykueue.api, as "
                "pykueue.api.decode makes it of a manifest"
            )

    def removed(self, event: Removed) -> None:
        """An object is gone; kinds that decide nothing are ignored.

        Raises TypeError for anything but text.
        """
        for field in ("kind", "namespace", "name"):
            value = getattr(event, field)
            if not isinstance(value, str):
                raise TypeError(f"Removed.{field} is of type {type(value).__name__}; accepted: str")
        handler = self._removed.get(event.kind)
        if handler is not None:
            handler(event.namespace, event.name)

    def place(self, info: WorkloadInfo) -> None:
        """Lets a workload that is in no queue wait, if it may."""
        workload_events.place(self.state, info)

    def restore_slice(self, info: WorkloadInfo) -> None:
        """The replacement of a slice failed: the slice counts again."""
        workload_events.restore_slice(self.state, info)

    # --- workloads and LocalQueues ----------------------------------------------------------------------

    def _workload_removed(self, namespace: str, name: str) -> None:
        info = self.state.workloads.get(f"{namespace}/{name}")
        if info is not None:
            workload_events.forget_workload(self.state, info)

    def _local_queue(self, obj: kueue.LocalQueue) -> None:
        state = self.state
        local = state.local(obj.metadata.namespace, obj.metadata.name)
        before = (local.cluster_queue, local.is_open)
        first = local.obj is None
        state.undo_log.set(local, "obj", obj)
        weight = fair_weight(obj.spec.fair_sharing)
        if weight != local.weight:
            state.undo_log.set(local, "weight", weight)
            if local.cluster_queue:
                state.wake(state.queue(local.cluster_queue))
        if first:
            self._restore_history(obj)
        if (local.cluster_queue, local.is_open) != before:
            if state.budgets.on:
                state.budgets_changed()
            self._place_again(local.workloads.values())

    def _restore_history(self, obj: kueue.LocalQueue) -> None:
        """Takes past usage up where the status left it (10.4)."""
        status = obj.status.fair_sharing
        past = status.admission_fair_sharing_status if status is not None else None
        if past is None or not self.state.history.on:
            return
        local = self.state.local(obj.metadata.namespace, obj.metadata.name)
        consumed = {resource: quantity.nanos for resource, quantity in past.consumed_resources.items()}
        self.state.undo_log.set(local, "consumed", consumed)
        if past.last_update:
            self.state.undo_log.set(local, "sampled", parse_time(past.last_update))

    def _local_queue_removed(self, namespace: str, name: str) -> None:
        local = self.state.local(namespace, name)
        self.state.undo_log.set(local, "obj", None)
        self._place_again(local.workloads.values())

    def _place_again(self, workloads: Iterable[WorkloadInfo]) -> None:
        """The way into the queue changed: waiting workloads leave and, if they may, come in again."""
        for info in list(workloads):
            if info.place != RESERVED:
                self.state.dequeue(info)
                self.state.record_undo(info)
                workload_events.place(self.state, info)

    # --- quotas -----------------------------------------------------------------------------------------

    def _cluster_queue(self, obj: kueue.ClusterQueue) -> None:
        state = self.state
        queue = state.queue(obj.metadata.name)
        old = queue.obj
        same = old is not None and old.spec == obj.spec and _terminating(old) == _terminating(obj)
        if same and queue.splits == is_permitted(obj.metadata.annotations):
            state.undo_log.set(queue, "obj", obj)
            return
        self._configure(queue, obj)
        state.forest.link(queue, obj.spec.cohort_name or "")
        state.forest.touch(queue)
        state.regroup(queue, queue.fair_by_usage and state.history.on, queue.pending.by_run_time)
        self._refresh_activity(queue)
        state.request_flush(queue)
        state.wake(queue)

    def _cluster_queue_removed(self, name: str) -> None:
        state = self.state
        queue = state.queues.get(name)
        if queue is None:
            return
        for other in queue.tree.queues:
            if other is not queue:
                state.request_flush(other)
        self._configure(queue, None)
        state.forest.link(queue, "")
        state.forest.touch(queue)
        self._refresh_activity(queue)

    def _configure(self, queue: ClusterQueue, obj: kueue.ClusterQueue | None) -> None:
        """Take the rules from the object; without variants the workloads themselves are queued."""
        had_variants = queue.variants is not None
        queue.configure(obj)
        if self.state.concurrent and had_variants != (queue.variants is not None):
            for local in list(self.state.locals.values()):
                if local.cluster_queue == queue.name:
                    self._place_again(local.workloads.values())

    def _cohort(self, name: str, obj: kueue.Cohort | None) -> None:
        state = self.state
        node = state.forest.cohorts.get(name)
        if node is not None and node.obj is not None and obj is not None and node.obj.spec == obj.spec:
            state.undo_log.set(node, "obj", obj)
            return
        state.forest.set_cohort(name, obj)
        node = state.forest.cohorts.get(name)
        if node is not None:
            state.undo_log.put(state.cohorts_to_flush, node, None)

    def _preemption_policy(self, name: str, obj: PreemptionPolicy | None) -> None:
        state = self.state
        if state.damping.set(name, obj):
            for queue in state.queues.values():
                state.request_flush(queue)
                state.wake(queue)

    def _reservation(self, name: str, obj: Reservation | None) -> None:
        state = self.state
        if state.backfill.set_reservation(name, obj):
            for queue in state.queues.values():
                state.set_backfill_rules(queue)
                state.request_flush(queue)
                state.wake(queue)

    def _backfill_policy(self, name: str, obj: BackfillPolicy | None) -> None:
        state = self.state
        if state.backfill.set(name, obj):
            for queue in state.queues.values():
                state.set_backfill_rules(queue)
                state.wake(queue)

    # --- budgets ----------------------------------------------------------------------------------------

    def _budget(self, name: str, obj: Budget | None) -> None:
        if self.state.budgets.set_budget(name, obj):
            self.state.budgets_changed()

    def _ledger(self, name: str, obj: BudgetLedger | None) -> None:
        """A ledger is known by its Budget and value; its name only finds it again when it is deleted."""
        state = self.state
        known = self._ledger_keys.get(name)
        key = (obj.spec.budget, obj.spec.value) if obj is not None else known
        state.undo_log.replace(self._ledger_keys, name, key if obj is not None else None)
        if key is not None and state.budgets.set_ledger(key, obj) and state.budgets.on:
            state.capacity_changed(state.budgets)

    # --- what makes queues active -----------------------------------------------------------------------

    def _flavor(self, name: str, obj: kueue.ResourceFlavor | None) -> None:
        state = self.state
        old = state.flavors.get(name)
        state.undo_log.replace(state.flavors, name, obj)
        if old is not None and obj is not None and old.spec == obj.spec:
            return
        if state.nodes is not None and state.nodes.set_flavor(name, obj):
            state.nodes_changed()
        for queue in state.queues.values():
            if name in queue.all_flavors:
                state.forest.touch(queue)  # what was found out about its flavors is void
                self._refresh_activity(queue)
                state.request_flush(queue)

    def _check(self, name: str, obj: kueue.AdmissionCheck | None) -> None:
        state = self.state
        state.undo_log.replace(state.checks, name, obj)
        for queue in state.queues.values():
            if any(rule == name for rule, _ in queue.check_rules) and self._refresh_activity(queue):
                state.request_flush(queue)

    def _topology(self, name: str, obj: kueue.Topology | None) -> None:
        state = self.state
        state.undo_log.replace(state.topologies, name, obj)
        if state.nodes is not None and state.nodes.set_topology(name, obj):
            state.nodes_changed()
            for queue in state.queues.values():
                if any(self._topology_of(flavor) == name for flavor in queue.all_flavors):
                    state.forest.touch(queue)  # its levels decide which flavors a workload can use
        for queue in state.queues.values():
            if self._refresh_activity(queue):
                state.request_flush(queue)

    def _topology_of(self, flavor: str) -> str:
        obj = self.state.flavors.get(flavor)
        return obj.spec.topology_name or "" if obj is not None else ""

    # --- nodes and the pods that run outside workloads --------------------------------------------------

    def _node(self, name: str, obj: Node | None) -> None:
        nodes = self.state.nodes
        if nodes is not None and nodes.set_node(name, obj):
            self.state.capacity_changed(nodes)

    def _pod(self, namespace: str, name: str, obj: Pod | None) -> None:
        nodes = self.state.nodes
        if nodes is not None and nodes.set_pod(f"{namespace}/{name}", obj):
            self.state.capacity_changed(nodes)

    def _refresh_activity(self, queue: ClusterQueue) -> bool:
        """Compute whether a queue is active (3.9); returns whether that changed."""
        problems = tuple(self._problems(queue))
        if problems == queue.inactive:
            return False
        self.state.undo_log.set(queue, "inactive", problems)
        self.state.wake(queue)
        return True

    def _problems(self, queue: ClusterQueue) -> Iterable[tuple[str, str]]:
        state = self.state
        obj = queue.obj
        if obj is None:
            yield "NotFound", "the ClusterQueue does not exist"
            return
        if _terminating(obj):
            yield "Terminating", "the ClusterQueue is being deleted"
        if obj.spec.stop_policy != "None":
            yield "Stopped", "it is stopped"
        missing = sorted(name for name in queue.all_flavors if name not in state.flavors)
        if missing:
            yield "FlavorNotFound", f"references missing ResourceFlavor(s): {', '.join(missing)}"
        names = [name for name, _ in queue.check_rules]
        absent = sorted(name for name in names if name not in state.checks)
        if absent:
            yield "AdmissionCheckNotFound", f"references missing AdmissionCheck(s): {', '.join(absent)}"
        present = [name for name in names if name in state.checks]
        idle = sorted(
            name for name in present if not condition_is(state.checks[name].status.conditions, "Active")
        )
        if idle:
            yield "AdmissionCheckInactive", f"references inactive AdmissionCheck(s): {', '.join(idle)}"
        by_controller = {name: state.checks[name].spec.controller_name for name in present}
        remote = sorted(
            name for name, controller in by_controller.items() if controller == MULTIKUEUE_CONTROLLER
        )
        if len(remote) > 1:
            yield (
                "MultipleMultiKueueAdmissionChecks",
                f"uses more than one MultiKueue check: {', '.join(remote)}",
            )
        per_flavor = sorted(name for name, on in queue.check_rules if on and name in remote)
        if per_flavor:
            yield (
                "MultiKueueAdmissionCheckAppliedPerFlavor",
                f"applies MultiKueue checks to single flavors: {', '.join(per_flavor)}",
            )
        if remote and any(controller == PROVISIONING_CONTROLLER for controller in by_controller.values()):
            yield "MultiKueueWithProvisioningRequest", "MultiKueue and provisioning checks exclude each other"
        topologies = {
            flavor.spec.topology_name
            for name in queue.all_flavors
            if (flavor := state.flavors.get(name)) is not None and flavor.spec.topology_name
        }
        lost = sorted(name for name in topologies if name not in state.topologies)
        if lost and not remote:  # otherwise the workers choose the nodes
            yield "TopologyNotFound", f"references missing Topology(s): {', '.join(lost)}"

    # --- namespaces and defaults ------------------------------------------------------------------------

    def _namespace(self, name: str, obj: Namespace | None) -> None:
        state = self.state
        old = state.namespaces.get(name)
        if obj is None:
            state.undo_log.drop(state.namespaces, name)
            return
        labels = obj.metadata.labels
        state.undo_log.put(state.namespaces, name, labels)
        if old is not None and dict(old) == labels:
            return
        for queue in state.queues.values():
            if queue.pending.inadmissible and queue.selector is not None and queue.selector.matches(labels):
                state.flush(queue)

    def _limit_range(self, namespace: str, name: str, obj: LimitRange | None) -> None:
        ranges = dict(self.limit_ranges.get(namespace, {}))
        ranges.pop(name, None)
        if obj is not None:
            ranges[name] = obj
        self.state.undo_log.put(self.limit_ranges, namespace, ranges)
        self._limits_made += 1
        limits = Limits([ranges[name] for name in sorted(ranges)], self._limits_made)
        self.state.undo_log.put(self.state.limits, namespace, limits)
        self._read_again(info for info in self.state.workloads.values() if info.namespace == namespace)

    def _runtime_class(self, name: str, obj: RuntimeClass | None) -> None:
        scheduling_classes, undo_log = self.state.scheduling_classes, self.state.undo_log
        undo_log.replace(scheduling_classes.runtime_classes, name, obj)
        self._environment_changed()

    def _environment_changed(self) -> None:
        self._environments += 1  # never the same again, also after a fork
        self.state.undo_log.set(self.state.scheduling_classes, "environment", self._environments)
        self._read_again(self.state.workloads.values())

    # --- devices ----------------------------------------------------------------------------------------

    def _device_class(self, name: str, obj: DeviceClass | None) -> None:
        classes = self.state.scheduling_classes.devices.classes
        old = classes.get(name)
        if old and obj and old.spec == obj.spec and old.metadata.uid == obj.metadata.uid:
            return
        self._devices_changed(classes, name, obj)
        self._costs_changed({("DeviceClass", name)})
        if any(each is not None and each.spec.extended_resource_name for each in (old, obj)):
            self._environment_changed()  # pods without claims may request its devices

    def _claim_template(self, key: str, obj: ResourceClaimTemplate | None) -> None:
        templates = self.state.scheduling_classes.devices.templates
        old = templates.get(key)
        if old is None or obj is None or old.spec != obj.spec:
            self._devices_changed(templates, key, obj)
            self._costs_changed({("ResourceClaimTemplate", key)})

    def _slice(self, name: str, obj: ResourceSlice | None) -> None:
        devices = self.state.scheduling_classes.devices
        old = devices.slices.get(name)
        if old is None or obj is None or old.spec != obj.spec:
            # A slice may complete its pool, or bring it to a new generation.
            changed = devices.of_pools(old, obj)
            self._devices_changed(devices.slices, name, obj)
            self._costs_changed(changed | devices.of_pools(old, obj))

    def _devices_changed(self, objects: dict[str, Any], key: str, obj: Any) -> None:
        """One of the objects changed that decide what claims cost."""
        state = self.state
        state.undo_log.replace(objects, key, obj)
        self._devices_number += 1  # never the same again, also after a fork
        state.undo_log.set(state.scheduling_classes.devices, "number", self._devices_number)

    def _costs_changed(self, changed: set[Dependency]) -> None:
        """Workloads are read again if what their claims cost depends on what has changed."""
        state = self.state
        for each in changed:
            state.undo_log.put(state.scheduling_classes.devices.revisions, each, self._devices_number)
        self._read_again(
            info
            for info in (state.workloads.values() if changed else ())
            if info.scheduling_class is not None
            and not changed.isdisjoint(info.scheduling_class.dependencies)
        )

    def _read_again(self, workloads: Iterable[WorkloadInfo]) -> None:
        """What pod templates mean changed: waiting workloads are read again."""
        for info in list(workloads):
            if info.place != RESERVED:
                self.state.record_undo(info)
                workload_events.read_again(self.state, info)


def _terminating(obj: kueue.ClusterQueue) -> bool:
    return obj.metadata.deletion_timestamp is not None
