"""Taking in objects other than workloads: quotas, flavors, checks, namespaces and what they change.

Source of the rules: reference/kueue-semantics.md 3.6, 3.9, 4.6 and 4.10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pykueue.api import kueue
from pykueue.api.core import LimitRange, Namespace, RuntimeClass
from pykueue.api.meta import condition_is, parse_time
from pykueue.engine import intake_workload
from pykueue.engine.cluster_queue import ClusterQueue
from pykueue.engine.requests import Limits
from pykueue.engine.state import State
from pykueue.engine.tree import fair_weight
from pykueue.engine.workload import HOLDING, Record

_MULTIKUEUE = "kueue.x-k8s.io/multikueue"
_PROVISIONING = "kueue.x-k8s.io/provisioning-request"


class Intake:
    """Turns events into moves of the state."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._limit_ranges: dict[str, dict[str, LimitRange]] = {}
        self._limits_made = 0
        self._environments = 0
        self._upsert: dict[type, Callable[[Any], None]] = {
            kueue.Workload: lambda obj: intake_workload.upsert(state, obj),
            kueue.ClusterQueue: self._cluster_queue,
            kueue.Cohort: lambda obj: self._cohort(obj.metadata.name, obj),
            kueue.LocalQueue: self._local_queue,
            kueue.ResourceFlavor: lambda obj: self._flavor(obj.metadata.name, obj),
            kueue.AdmissionCheck: lambda obj: self._check(obj.metadata.name, obj),
            kueue.Topology: lambda obj: self._topology(obj.metadata.name, obj),
            Namespace: lambda obj: self._namespace(obj.metadata.name, obj),
            LimitRange: lambda obj: self._limit_range(obj.metadata.namespace, obj.metadata.name, obj),
            RuntimeClass: lambda obj: self._runtime_class(obj.metadata.name, obj),
        }
        self._removed: dict[str, Callable[[str, str], None]] = {
            "Workload": self._workload_removed,
            "ClusterQueue": lambda _, name: self._cluster_queue_removed(name),
            "Cohort": lambda _, name: self._cohort(name, None),
            "LocalQueue": self._local_queue_removed,
            "ResourceFlavor": lambda _, name: self._flavor(name, None),
            "AdmissionCheck": lambda _, name: self._check(name, None),
            "Topology": lambda _, name: self._topology(name, None),
            "Namespace": lambda _, name: self._namespace(name, None),
            "LimitRange": lambda namespace, name: self._limit_range(namespace, name, None),
            "RuntimeClass": lambda _, name: self._runtime_class(name, None),
        }

    def upsert(self, obj: Any) -> None:
        """An object appeared or changed; kinds that decide nothing are ignored."""
        take = self._upsert.get(type(obj))
        if take is not None:
            take(obj)

    def removed(self, kind: str, namespace: str, name: str) -> None:
        """An object is gone."""
        take = self._removed.get(kind)
        if take is not None:
            take(namespace, name)

    def place(self, record: Record) -> None:
        """Lets a workload that is in no queue wait, if it may."""
        intake_workload.place(self.state, record)

    def restore_slice(self, record: Record) -> None:
        """The replacement of a slice failed: the slice counts again."""
        intake_workload.restore_slice(self.state, record)

    # --- workloads and LocalQueues ----------------------------------------------------------------------

    def _workload_removed(self, namespace: str, name: str) -> None:
        record = self.state.records.get(f"{namespace}/{name}")
        if record is not None:
            intake_workload.forget_workload(self.state, record)

    def _local_queue(self, obj: kueue.LocalQueue) -> None:
        state = self.state
        local = state.local(obj.metadata.namespace, obj.metadata.name)
        before = (local.cluster_queue, local.is_open)
        first = local.obj is None
        state.journal.set(local, "obj", obj)
        weight = fair_weight(obj.spec.fair_sharing)
        if weight != local.weight:
            state.journal.set(local, "weight", weight)
            if local.cluster_queue:
                state.wake(state.queue(local.cluster_queue))
        if first:
            self._restore_history(obj)
        if (local.cluster_queue, local.is_open) != before:
            self._place_again(local.records.values())

    def _restore_history(self, obj: kueue.LocalQueue) -> None:
        """Takes past usage up where the status left it (10.4)."""
        status = obj.status.fair_sharing
        past = status.admission_fair_sharing_status if status is not None else None
        if past is None or not self.state.history.on:
            return
        local = self.state.local(obj.metadata.namespace, obj.metadata.name)
        consumed = {resource: quantity.nanos for resource, quantity in past.consumed_resources.items()}
        self.state.journal.set(local, "consumed", consumed)
        if past.last_update:
            self.state.journal.set(local, "sampled", parse_time(past.last_update))

    def _local_queue_removed(self, namespace: str, name: str) -> None:
        local = self.state.local(namespace, name)
        self.state.journal.set(local, "obj", None)
        self._place_again(local.records.values())

    def _place_again(self, records: Iterable[Record]) -> None:
        """The way into the queue changed: waiting workloads leave and, if they may, come in again."""
        for record in list(records):
            if record.place != HOLDING:
                self.state.dequeue(record)
                self.state.keep(record)
                intake_workload.place(self.state, record)

    # --- quotas -----------------------------------------------------------------------------------------

    def _cluster_queue(self, obj: kueue.ClusterQueue) -> None:
        state = self.state
        queue = state.queue(obj.metadata.name)
        old = queue.obj
        if old is not None and old.spec == obj.spec and _terminating(old) == _terminating(obj):
            state.journal.set(queue, "obj", obj)
            return
        queue.configure(obj)
        state.forest.link(queue, obj.spec.cohort_name or "")
        state.forest.touch(queue)
        queue.pending.regroup(queue.fair_by_usage and state.history.on)
        self._reconsider(queue)
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
        queue.configure(None)
        state.forest.link(queue, "")
        state.forest.touch(queue)
        self._reconsider(queue)

    def _cohort(self, name: str, obj: kueue.Cohort | None) -> None:
        state = self.state
        node = state.forest.cohorts.get(name)
        if node is not None and node.obj is not None and obj is not None and node.obj.spec == obj.spec:
            state.journal.set(node, "obj", obj)
            return
        state.forest.set_cohort(name, obj)
        node = state.forest.cohorts.get(name)
        if node is not None:
            state.journal.put(state.cohorts_to_flush, node, None)

    # --- what makes queues active -----------------------------------------------------------------------

    def _flavor(self, name: str, obj: kueue.ResourceFlavor | None) -> None:
        state = self.state
        old = state.flavors.get(name)
        if obj is None:
            state.journal.drop(state.flavors, name)
        else:
            state.journal.put(state.flavors, name, obj)
        if old is not None and obj is not None and old.spec == obj.spec:
            return
        for queue in state.queues.values():
            if name in queue.all_flavors:
                state.forest.touch(queue)  # what was found out about its flavors is void
                self._reconsider(queue)
                state.request_flush(queue)

    def _check(self, name: str, obj: kueue.AdmissionCheck | None) -> None:
        state = self.state
        if obj is None:
            state.journal.drop(state.checks, name)
        else:
            state.journal.put(state.checks, name, obj)
        for queue in state.queues.values():
            if any(rule == name for rule, _ in queue.check_rules) and self._reconsider(queue):
                state.request_flush(queue)

    def _topology(self, name: str, obj: kueue.Topology | None) -> None:
        state = self.state
        if obj is None:
            state.journal.drop(state.topologies, name)
        else:
            state.journal.put(state.topologies, name, obj)
        for queue in state.queues.values():
            if self._reconsider(queue):
                state.request_flush(queue)

    def _reconsider(self, queue: ClusterQueue) -> bool:
        """Derives anew whether a queue is active (3.9); tells whether that changed."""
        problems = tuple(self._problems(queue))
        if problems == queue.inactive:
            return False
        self.state.journal.set(queue, "inactive", problems)
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
            yield "Stopped", "the ClusterQueue is stopped"
        missing = sorted(name for name in queue.all_flavors if name not in state.flavors)
        if missing:
            yield "FlavorNotFound", f"ResourceFlavors not found: {', '.join(missing)}"
        names = [name for name, _ in queue.check_rules]
        absent = sorted(name for name in names if name not in state.checks)
        if absent:
            yield "AdmissionCheckNotFound", f"AdmissionChecks not found: {', '.join(absent)}"
        present = [name for name in names if name in state.checks]
        idle = sorted(
            name for name in present if not condition_is(state.checks[name].status.conditions, "Active")
        )
        if idle:
            yield "AdmissionCheckInactive", f"AdmissionChecks not active: {', '.join(idle)}"
        by_controller = {name: state.checks[name].spec.controller_name for name in present}
        remote = sorted(name for name, controller in by_controller.items() if controller == _MULTIKUEUE)
        if len(remote) > 1:
            yield "MultipleMultiKueueAdmissionChecks", f"more than one MultiKueue check: {', '.join(remote)}"
        per_flavor = sorted(name for name, on in queue.check_rules if on and name in remote)
        if per_flavor:
            yield (
                "MultiKueueAdmissionCheckAppliedPerFlavor",
                f"MultiKueue checks apply to whole queues only: {', '.join(per_flavor)}",
            )
        if remote and any(controller == _PROVISIONING for controller in by_controller.values()):
            yield "MultiKueueWithProvisioningRequest", "MultiKueue and provisioning checks exclude each other"
        topologies = {
            flavor.spec.topology_name
            for name in queue.all_flavors
            if (flavor := state.flavors.get(name)) is not None and flavor.spec.topology_name
        }
        lost = sorted(name for name in topologies if name not in state.topologies)
        if lost:
            yield "TopologyNotFound", f"Topologies not found: {', '.join(lost)}"

    # --- namespaces and defaults ------------------------------------------------------------------------

    def _namespace(self, name: str, obj: Namespace | None) -> None:
        state = self.state
        old = state.namespaces.get(name)
        if obj is None:
            state.journal.drop(state.namespaces, name)
            return
        labels = obj.metadata.labels
        state.journal.put(state.namespaces, name, labels)
        if old is not None and dict(old) == labels:
            return
        for queue in state.queues.values():
            if queue.pending.lone and queue.selector is not None and queue.selector.matches(labels):
                state.flush(queue)

    def _limit_range(self, namespace: str, name: str, obj: LimitRange | None) -> None:
        ranges = dict(self._limit_ranges.get(namespace, {}))
        ranges.pop(name, None)
        if obj is not None:
            ranges[name] = obj
        self.state.journal.put(self._limit_ranges, namespace, ranges)
        self._limits_made += 1
        limits = Limits([ranges[name] for name in sorted(ranges)], self._limits_made)
        self.state.journal.put(self.state.limits, namespace, limits)
        self._read_again(record for record in self.state.records.values() if record.namespace == namespace)

    def _runtime_class(self, name: str, obj: RuntimeClass | None) -> None:
        shapes, journal = self.state.shapes, self.state.journal
        if obj is None:
            journal.drop(shapes.runtime_classes, name)
        else:
            journal.put(shapes.runtime_classes, name, obj)
        self._environments += 1  # never the same again, also after a fork
        journal.set(shapes, "environment", self._environments)
        self._read_again(self.state.records.values())

    def _read_again(self, records: Iterable[Record]) -> None:
        """What pod templates mean changed: waiting workloads are read again."""
        for record in list(records):
            if record.place != HOLDING:
                self.state.keep(record)
                intake_workload.read_again(self.state, record)


def _terminating(obj: kueue.ClusterQueue) -> bool:
    return obj.metadata.deletion_timestamp is not None
