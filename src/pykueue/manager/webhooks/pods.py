"""Admission rules of pods and of the kinds whose pods queue one by one or as a group.

Source: docs/reference/kueue-integrations.md 9.4, "Pod", "Deployment", "StatefulSet" and
"LeaderWorkerSet".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykueue.api.jobkinds import (
    LEADER_WORKER_SET,
    JobKind,
    field_path,
    pod_set_slots,
    value_at,
    with_value,
)
from pykueue.api.jobkinds.leaderworkerset import SIZE, WORKER
from pykueue.api.kueue import names
from pykueue.api.objects import Object, annotations_of, get, labels_of, replaced
from pykueue.api.validation.fields import FORBIDDEN, INVALID, FieldError, new_errors
from pykueue.jobs import workload as construction
from pykueue.jobs.hybrid import pod_refusals, refusals
from pykueue.jobs.kinds import JobKinds
from pykueue.jobs.leaderworkerset import is_part
from pykueue.jobs.pod import POD, PlainPod, gated, role_hash, suspending_parent, with_role
from pykueue.jobs.pod_owners import DEPLOYMENT, STATEFUL_SET, replicas
from pykueue.jobs.structure import structure_errors
from pykueue.jobs.topology import pod_errors, topology_errors
from pykueue.manager.configuration import Configuration

from .jobs import JobRules, Lookups
from .metadata import (
    elastic_errors,
    gate_changes,
    gate_errors,
    immutable,
    label_path,
    priority_changes,
    queue_errors,
)

#: Most groups of a LeaderWorkerSet, as Kueue has it: each has a Workload.
MAX_GROUPS = 1_000_000


class PodRules(JobRules):
    """Pods: every pod of the cluster is reviewed, so most must be admitted at little cost.

    Only those that wait or waited in a queue are checked; they are labelled when they are created.
    """

    checked: Mapping[str, Any] | None = {"matchLabels": {names.MANAGED_LABEL: "true"}}
    #: Network plug-ins and the like must start while the manager is down.
    by_queue = True

    def __init__(self, configuration: Configuration, lookups: Lookups) -> None:
        super().__init__(PlainPod(configuration.identifiers), configuration, lookups)
        self._alone = POD.framework in configuration.integrations.frameworks

    def default(self, obj: Object) -> Object:
        if suspending_parent(obj):
            return with_role(gated(obj, self._gates["TopologyAwareScheduling"]))
        namespace = str(get(obj, "metadata", "namespace") or "")
        if not self._alone or not self._lookups.takes_namespace(namespace):
            return obj
        return super().default(obj)

    def _of_kind(self, job: Object) -> Object:
        return gated(super()._of_kind(job), self._gates["TopologyAwareScheduling"])

    def validate(self, obj: Object, old: Object | None) -> Iterable[FieldError]:
        if self._alone or suspending_parent(obj):
            yield from super().validate(obj, old)

    def _topology_errors(self, job: Mapping[str, Any]) -> Iterable[FieldError]:
        yield from pod_errors(job, self._gates["TASMultiLayerTopology"])
        if labels_of(job).get(names.MANAGED_LABEL) == "true":
            yield from pod_refusals(job)

    def warnings(self, obj: Object, old: Object | None) -> Iterable[str]:
        yield from super().warnings(obj, old)
        if old is None and labels_of(obj).get(names.MANAGED_LABEL) == "true" and self._has_managed_owner(obj):
            yield f"the label {names.MANAGED_LABEL} has no effect on pods whose owner is managed by a queue"


class ServingRules(JobRules):
    """Kinds that do not queue: their pods do, so what they say about queues goes to the template."""

    defaults = ("CREATE", "UPDATE")
    by_queue = True

    def __init__(self, kind: JobKind, configuration: Configuration, lookups: Lookups) -> None:
        super().__init__(PlainPod(), configuration, lookups)
        self.resource = kind.resource
        # An API server asks about a change of size apart from the object, and shows the size alone.
        self.subresources = ("scale",) if kind is STATEFUL_SET else ()
        self._kind = kind

    def default(self, obj: Object) -> Object:
        namespace = str(get(obj, "metadata", "namespace") or "")
        owned = self._has_managed_owner(obj) or is_part(obj)
        job = self._queued(obj, namespace, owned)
        if not self._is_managed(job, namespace, owned):
            return job
        for slot in pod_set_slots(job, self._kind):
            template = value_at(job, slot.template)
            if isinstance(template, dict):
                job = with_value(job, slot.template, self._marked(template, job))
        return self._with_offset(job) if self._kind is LEADER_WORKER_SET else job

    def _marked(self, template: Object, job: Object) -> Object:
        """The pod template with what makes its pods queue."""
        parent = ("metadata", "annotations", names.POD_SUSPENDING_PARENT_ANNOTATION)
        result = replaced(template, parent, self._kind.framework)
        labels = {
            names.MANAGED_LABEL: "true",
            names.QUEUE_LABEL: construction.queue_name(job) or None,
            names.PRIORITY_CLASS_LABEL: labels_of(job).get(names.PRIORITY_CLASS_LABEL),
        }
        for label, value in labels.items():
            if value is not None:
                result = replaced(result, ("metadata", "labels", label), value)
        return result

    @staticmethod
    def _with_offset(job: Object) -> Object:
        """Workers with a leader of another template are ranked from 1 on, unless they are placed with it."""
        *_, workers = pod_set_slots(job, LEADER_WORKER_SET)
        annotations = (*workers.template, "metadata", "annotations")
        known = value_at(job, annotations) or {}
        if workers.name != WORKER or {
            names.POD_SET_GROUP_NAME_ANNOTATION,
            names.POD_INDEX_OFFSET_ANNOTATION,
        } & set(known):
            return job
        offset: Object = with_value(job, (*annotations, names.POD_INDEX_OFFSET_ANNOTATION), "1")
        return offset

    def validate(self, obj: Object, old: Object | None) -> Iterable[FieldError]:
        if obj.get("kind") == "Scale":
            yield from self._scale_errors(obj, old or obj)
            return
        if is_part(obj):
            return
        yield from queue_errors(obj)
        yield from elastic_errors(obj, self._kind)
        yield from new_errors(lambda one: refusals(one, self._kind), obj, old)
        yield from gate_errors(annotations_of(obj).get(names.ADMISSION_GATED_BY_ANNOTATION))
        if self._kind is LEADER_WORKER_SET:
            yield from self._set_errors(obj, old)
        if old is not None:
            yield from self._changes(obj, old)

    def _set_errors(self, obj: Object, old: Object | None) -> Iterable[FieldError]:
        """The number and the pods of groups, each of which gets a Workload; old errors stay."""
        number = get(obj, "spec", "replicas")
        if isinstance(number, int) and number > MAX_GROUPS:
            yield FieldError("spec.replicas", INVALID, number, f"must be at most {MAX_GROUPS}")
        queued = construction.queue_name(obj) or (old is not None and construction.queue_name(old))
        layers = self._gates["TASMultiLayerTopology"]
        yield from new_errors(lambda one: topology_errors(one, self._kind, layers), obj, old)
        if queued or self._manages_all():
            yield from new_errors(lambda one: structure_errors(one, self._kind), obj, old)

    def _scale_errors(self, obj: Object, old: Object) -> Iterable[FieldError]:
        metadata = obj["metadata"]
        stored = self._lookups.stateful_set(str(metadata.get("namespace") or ""), str(metadata.get("name")))
        if stored is not None and construction.queue_name(stored):
            # In a Scale, zero is left out.
            new, was = (int(get(one, "spec", "replicas") or 0) for one in (obj, old))
            yield from _size_errors(new, was, int(get(stored, "status", "replicas") or 0))

    def _changes(self, obj: Object, old: Object) -> Iterable[FieldError]:
        queue, before = construction.queue_name(obj), construction.queue_name(old)
        idle = not get(old, "status", "readyReplicas")
        if before and not queue:
            yield FieldError(label_path(names.QUEUE_LABEL), FORBIDDEN, detail="cannot be removed")
        elif queue != before and not idle:
            yield immutable(names.QUEUE_LABEL, queue)
        yield from priority_changes(obj, old, idle)
        yield from gate_changes(obj, old)
        namespace = str(get(obj, "metadata", "namespace") or "")
        if not self._is_managed(obj, namespace, self._has_managed_owner(obj)):
            return
        if self._kind is STATEFUL_SET:
            yield from _size_errors(replicas(obj), replicas(old), int(get(obj, "status", "replicas") or 0))
        if self._kind is not DEPLOYMENT:
            yield from _shape_errors(obj, old, self._kind)
        if self._kind is LEADER_WORKER_SET and self._gates["LWSImmutableGroupSize"]:
            size = value_at(obj, SIZE)
            if (size or 1) != (value_at(old, SIZE) or 1):
                text = "the size of a group cannot change while the LeaderWorkerSet is managed by a queue"
                yield FieldError(field_path(SIZE), INVALID, size, text)


def _shape_errors(obj: Object, old: Object, kind: JobKind) -> Iterable[FieldError]:
    """A Workload stands for several pods, which come and go together and stay of one shape."""
    text = f"requests, ports and placement cannot change while the {kind.resource.kind} is managed by a queue"
    before = {slot.template: slot for slot in pod_set_slots(old, kind)}
    for slot in pod_set_slots(obj, kind):
        place = (*slot.template, "spec")
        now, was = (value_at(one, place) or {} for one in (obj, old))
        if slot.template not in before or role_hash(now) != role_hash(was):
            yield FieldError(field_path(place), FORBIDDEN, detail=text)
    if len(before) > len(list(pod_set_slots(obj, kind))):
        yield FieldError(field_path(next(iter(before))), FORBIDDEN, detail=text)


def _size_errors(new: int, was: int, pods: int) -> Iterable[FieldError]:
    """A StatefulSet has all its pods or none, of `new` and before of `was`; `pods` are there now."""
    if new != was and new and was:
        text = "replicas can only change from or to 0 while the StatefulSet is managed by a queue"
        yield FieldError("spec.replicas", INVALID, new, text)
    if new and not was and pods:
        yield FieldError("spec.replicas", FORBIDDEN, detail="the pods of before are still being deleted")


def pod_rules(configuration: Configuration, lookups: Lookups, kinds: JobKinds) -> list[JobRules]:
    """The rules of pods and of the kinds that make them."""
    owners = [ServingRules(each.kind, configuration, lookups) for each in kinds.pod_owners.values()]
    return [PodRules(configuration, lookups), *owners] if POD.framework in kinds.jobs else []
