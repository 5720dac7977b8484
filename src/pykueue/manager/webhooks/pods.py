"""Admission rules of pods and of the kinds whose pods queue one by one or as a group.

Source: docs/reference/kueue-integrations.md 9.4, "Pod", "Deployment" and "StatefulSet".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykueue.api.jobkinds import JobKind
from pykueue.api.kueue import names
from pykueue.api.objects import Object, get, labels_of, replaced, section
from pykueue.api.resources import STATEFUL_SETS
from pykueue.api.validation.fields import FORBIDDEN, INVALID, FieldError
from pykueue.jobs import workload as construction
from pykueue.jobs.kinds import JobKinds
from pykueue.jobs.pod import POD, PlainPod, gated, role_hash, suspending_parent, with_role
from pykueue.jobs.pod_owners import STATEFUL_SET
from pykueue.manager.configuration import Configuration

from .jobs import JobRules, Lookups, common_errors, immutable, label_path

_TEMPLATE = ("spec", "template")


class PodRules(JobRules):
    """Pods: every pod of the cluster is reviewed, so most must be admitted at little cost.

    Only those that wait or waited in a queue are checked; they are labelled when they are created.
    """

    checked: Mapping[str, Any] | None = {"matchLabels": {names.MANAGED_LABEL: "true"}}
    #: Network plug-ins and the like must start while the manager is down.
    by_queue = True

    def __init__(self, configuration: Configuration, lookups: Lookups) -> None:
        super().__init__(PlainPod(), configuration, lookups)
        self._alone = POD.framework in configuration.integrations.frameworks

    def default(self, obj: Object) -> Object:
        if suspending_parent(obj):
            return with_role(gated(obj))
        namespace = str(get(obj, "metadata", "namespace") or "")
        if not self._alone or not self._lookups.takes_namespace(namespace):
            return obj
        return super().default(obj)

    def validate(self, obj: Object, old: Object | None) -> Iterable[FieldError]:
        if self._alone or suspending_parent(obj):
            yield from super().validate(obj, old)

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
        self._framework = kind.framework

    def default(self, obj: Object) -> Object:
        namespace = str(get(obj, "metadata", "namespace") or "")
        owned = self._has_managed_owner(obj)
        job = self._queued(obj, namespace, owned)
        if not self._is_managed(job, namespace, owned):
            return job
        template = replaced(
            section(job, *_TEMPLATE),
            ("metadata", "annotations", names.POD_SUSPENDING_PARENT_ANNOTATION),
            self._framework,
        )
        said = {
            names.MANAGED_LABEL: "true",
            names.QUEUE_LABEL: construction.queue_name(job) or None,
            names.PRIORITY_CLASS_LABEL: labels_of(job).get(names.PRIORITY_CLASS_LABEL),
        }
        for label, value in said.items():
            if value is not None:
                template = replaced(template, ("metadata", "labels", label), value)
        return replaced(job, _TEMPLATE, template)

    def validate(self, obj: Object, old: Object | None) -> Iterable[FieldError]:
        if obj.get("kind") == "Scale":
            yield from self._scale_errors(obj, old or obj)
            return
        queued = construction.queue_name(obj) or (old is not None and construction.queue_name(old))
        if not queued and not self._manages_all():
            return
        yield from common_errors(obj, self._integration.kind)
        if old is not None:
            yield from self._changes(obj, old)

    def _scale_errors(self, obj: Object, old: Object) -> Iterable[FieldError]:
        metadata = obj["metadata"]
        stored = self._lookups.stateful_set(str(metadata.get("namespace") or ""), str(metadata.get("name")))
        if stored is not None and construction.queue_name(stored):
            yield from _size_errors(obj, old)

    def _changes(self, obj: Object, old: Object) -> Iterable[FieldError]:
        queue, before = construction.queue_name(obj), construction.queue_name(old)
        if before and not queue:
            yield FieldError(label_path(names.QUEUE_LABEL), FORBIDDEN, detail="cannot be removed")
        elif queue != before and get(old, "status", "readyReplicas"):
            yield immutable(names.QUEUE_LABEL, queue)
        if self.resource == STATEFUL_SETS and before:
            yield from _stateful_set_changes(obj, old)


def _stateful_set_changes(obj: Object, old: Object) -> Iterable[FieldError]:
    """Its Workload stands for all its pods: they come and go together, and stay of one shape."""
    yield from _size_errors(obj, old)
    if role_hash(section(obj, *_TEMPLATE, "spec")) != role_hash(section(old, *_TEMPLATE, "spec")):
        text = "requests, ports and placement cannot change while the StatefulSet is managed by a queue"
        yield FieldError("spec.template.spec", FORBIDDEN, detail=text)


def _size_errors(obj: Mapping[str, Any], old: Mapping[str, Any]) -> Iterable[FieldError]:
    new, was = (int(get(one, "spec", "replicas") or 0) for one in (obj, old))
    if new != was and new and was:
        text = "replicas can only change from or to 0 while the StatefulSet is managed by a queue"
        yield FieldError("spec.replicas", INVALID, new, text)


def pod_rules(configuration: Configuration, lookups: Lookups, kinds: JobKinds) -> list[JobRules]:
    """The rules of pods and of the kinds that make them."""
    owners = [ServingRules(each.kind, configuration, lookups) for each in kinds.pod_owners.values()]
    return [PodRules(configuration, lookups), *owners] if POD.framework in kinds.jobs else []
