"""Plain pods, each a job of its own (docs/reference/kueue-integrations.md 9.4, "Pod").

A pod waits by a scheduling gate instead of a suspend field, and cannot be stopped but by deleting it. What
several pods make together is in `podgroup`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from pykueue.api.jobkinds import JobKind
from pykueue.api.kueue import names
from pykueue.api.kueue.names import HYBRID_ASSIGNMENT_ANNOTATION
from pykueue.api.objects import Object, annotations_of, get, is_deleting, labels_of, replaced, true_condition
from pykueue.api.pods import CLASS_FIELDS, has_gate, is_ready, is_terminal
from pykueue.api.resources import PODS
from pykueue.api.validation.fields import FORBIDDEN, INVALID, REQUIRED, FieldError, not_supported
from pykueue.api.validation.syntax import integer, subdomain

from .base import JobIntegration, Outcome, Reader, Write
from .identifiers import IDENTIFIERS, Identifiers
from .podsets import PodSetInfo, injected, pod_set

_GATE = {"name": names.ADMISSION_GATE}
#: Gates that go at admission; the second one stays until the pod gets its domain, if its pod set has domains
#: (docs/reference/topology-aware-scheduling.md 3.2).
_TOPOLOGY_GATE = {"name": names.TOPOLOGY_GATE}
_GATES_UNTIL_ADMISSION = (_GATE, _TOPOLOGY_GATE)
#: How topology-aware scheduling ranks the pods of a pod set.
RANKS = {"podIndexLabel": names.POD_GROUP_POD_INDEX_LABEL}
_HASH_DIGITS = 8
#: Fields of a pod's spec that belong to its own life and not to what it asks for.
_OWN_FIELDS = ("nodeName", "schedulingGates")


def is_gated(pod: Mapping[str, Any]) -> bool:
    """Whether it still waits for admission."""
    return has_gate(pod, names.ADMISSION_GATE)


def runs_remotely(pod: Mapping[str, Any]) -> bool:
    """Whether the status of a gated pod, which is that of its copy on a worker cluster, says that it runs."""
    return is_gated(pod) and get(pod, "status", "phase") == "Running"


def gated(pod: Mapping[str, Any], topology: bool = False) -> Object:
    """The pod with the gate; with `topology` also with the one that is removed when it gets its domain."""
    present = get(pod, "spec", "schedulingGates") or ()
    wanted = (_GATE, _TOPOLOGY_GATE) if topology else (_GATE,)
    missing = [gate for gate in wanted if gate not in present]
    return replaced(pod, ("spec", "schedulingGates"), [*present, *missing]) if missing else dict(pod)


def ungated(pod: Mapping[str, Any], info: PodSetInfo) -> Object:
    """The pod as it must be to run as admitted. Raises PodSetConflictError when that is impossible."""
    present = get(pod, "spec", "schedulingGates") or ()
    gates = [gate for gate in present if gate not in _GATES_UNTIL_ADMISSION or gate in info.scheduling_gates]
    # Gates cannot be added to a pod.
    kept = replace(info, scheduling_gates=tuple([gate for gate in info.scheduling_gates if gate in present]))
    return injected(replaced(pod, ("spec", "schedulingGates"), gates or None), kept)


def is_stopped_by_us(pod: Mapping[str, Any]) -> bool:
    """Whether its deletion was the manager's doing."""
    return true_condition(pod.get("status"), names.TERMINATION_TARGET) is not None


def suspending_parent(pod: Mapping[str, Any]) -> str:
    """The framework whose object makes the pod wait; empty for pods that queue by themselves."""
    return annotations_of(pod).get(names.POD_SUSPENDING_PARENT_ANNOTATION, "")


def total_count(pod: Mapping[str, Any]) -> int | None:
    """How many pods its group is to have; None where that is not said, or is no number above 0."""
    count = integer(annotations_of(pod).get(names.POD_GROUP_TOTAL_COUNT_ANNOTATION, ""))
    return count if count is not None and count > 0 else None


def role_hash(spec: Mapping[str, Any]) -> str:
    """The role of a pod in its group: eight digits of a hash of the pod spec's shape."""

    def containers(field: str) -> list[Any]:
        return [[get(one, "resources", "requests"), one.get("ports")] for one in spec.get(field) or ()]

    shape = {
        "containers": containers("containers"),
        "initContainers": containers("initContainers"),
        **{field: spec[field] for field in CLASS_FIELDS if spec.get(field)},
    }
    data = orjson.dumps(shape, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(data).hexdigest()[:_HASH_DIGITS]


def template_of(pod: Mapping[str, Any]) -> Object:
    """The pod as the template of a pod set: what it asks for, without what became of it."""
    spec = {key: value for key, value in (pod.get("spec") or {}).items() if key not in _OWN_FIELDS}
    gates = [g for g in get(pod, "spec", "schedulingGates") or () if g not in _GATES_UNTIL_ADMISSION]
    if gates:
        spec["schedulingGates"] = gates
    metadata = {key: pod["metadata"][key] for key in ("labels", "annotations") if pod["metadata"].get(key)}
    if HYBRID_ASSIGNMENT_ANNOTATION in (metadata.get("annotations") or {}):
        # Each pod gets the flavor of its pod set when it starts: it cannot get that of a part.
        metadata["annotations"] = dict(metadata["annotations"])
        del metadata["annotations"][HYBRID_ASSIGNMENT_ANNOTATION]
    return {"metadata": metadata, "spec": spec} if metadata else {"spec": spec}


POD = JobKind(
    framework="pod",
    resource=PODS,
    suspend=None,
    selector=f"{names.MANAGED_LABEL}=true",
    custom=False,
    writes_status=True,
)


class PlainPod:
    """Pods are suspended by a scheduling gate; each is one pod set, `main`, of one."""

    kind = POD

    def __init__(self, identifiers: Identifiers = IDENTIFIERS) -> None:
        self._identifiers = identifiers

    def bound(self, read: Reader) -> JobIntegration:
        return self

    def is_suspended(self, job: Mapping[str, Any]) -> bool:
        return is_gated(job)

    def is_stopping(self, job: Mapping[str, Any]) -> bool:
        """Never: it is stopped by deleting it."""
        return False

    def runs(self, job: Mapping[str, Any]) -> bool:
        return not (is_gated(job) or is_terminal(job) or is_deleting(job))

    def suspend_requested(self, job: Mapping[str, Any]) -> bool:
        return is_gated(job)

    def suspended(self, job: Mapping[str, Any]) -> Object:
        return gated(job)

    def pod_sets(self, job: Mapping[str, Any]) -> list[Object]:
        return [pod_set(template_of(job), 1, ranks=RANKS)]

    def started(self, job: Mapping[str, Any], infos: Sequence[PodSetInfo]) -> Object:
        (info,) = infos
        return ungated(job, info)

    def stop(self, job: Mapping[str, Any], originals: Sequence[Mapping[str, Any]] | None) -> Write | None:
        if is_gated(job) or is_terminal(job) or is_deleting(job):
            return None
        return Write(dict(job), delete=True)

    def has_record(self, job: Mapping[str, Any]) -> bool:
        """Never: a pod that was started is not queued again."""
        return False

    def original(self, job: Mapping[str, Any]) -> Object:
        return dict(job)

    def queued(self, job: Mapping[str, Any], originals: Sequence[Mapping[str, Any]] | None) -> Object:
        """As it is: a gated pod cannot be given its template back."""
        return dict(job)

    def is_active(self, job: Mapping[str, Any]) -> bool:
        """Only on a worker cluster: a pod that is being deleted here does not run again, so what it holds may
        be given away."""
        return runs_remotely(job)

    def pods_ready(self, job: Mapping[str, Any]) -> bool:
        return is_ready(job) or get(job, "status", "phase") == "Succeeded"

    def outcome(self, job: Mapping[str, Any]) -> Outcome | None:
        if not is_terminal(job):
            return None
        succeeded = get(job, "status", "phase") == "Succeeded"
        text = "Pod succeeded" if succeeded else "Pod failed"
        return Outcome(succeeded, str(get(job, "status", "message") or text))

    def on_hold(self, job: Mapping[str, Any]) -> str:
        return ""

    def shrunk(self, job: Mapping[str, Any], counts: Mapping[str, int]) -> Object:
        return dict(job)

    def reclaimable(self, job: Mapping[str, Any]) -> dict[str, int]:
        return {}

    def priority_class(self, job: Mapping[str, Any]) -> str:
        return str(get(job, "spec", "priorityClassName") or "")

    def default(self, job: Mapping[str, Any]) -> Object:
        """Labelled as managed, held back from vanishing uncounted, and with its role."""
        result = replaced(job, ("metadata", "labels", names.MANAGED_LABEL), "true")
        finalizers = get(job, "metadata", "finalizers") or []
        if names.MANAGED_FINALIZER not in finalizers:
            result = replaced(result, ("metadata", "finalizers"), [*finalizers, names.MANAGED_FINALIZER])
        return with_role(result)

    def validate(self, job: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterable[FieldError]:
        value = labels_of(job).get(names.MANAGED_LABEL)
        if value not in (None, "true"):
            yield not_supported(f"metadata.labels[{names.MANAGED_LABEL}]", value, ("true",))
        yield from _group_errors(job, self._identifiers)
        if old is not None:
            yield from _group_changes(job, old, self._identifiers)


def with_role(pod: Mapping[str, Any]) -> Object:
    """The pod with its role and, where it names a label for it, its rank in the group."""
    result = dict(pod)
    if not annotations_of(pod).get(names.ROLE_HASH_ANNOTATION):
        path = ("metadata", "annotations", names.ROLE_HASH_ANNOTATION)
        result = replaced(result, path, role_hash(pod.get("spec") or {}))
    rank_label = annotations_of(pod).get(names.POD_GROUP_POD_INDEX_LABEL_ANNOTATION)
    rank = labels_of(pod).get(rank_label) if rank_label else None
    if rank is not None:
        result = replaced(result, ("metadata", "labels", names.POD_GROUP_POD_INDEX_LABEL), rank)
    return result


_TOTAL_PATH = f"metadata.annotations[{names.POD_GROUP_TOTAL_COUNT_ANNOTATION}]"
_RETRIABLE_PATH = f"metadata.annotations[{names.RETRIABLE_IN_GROUP_ANNOTATION}]"


def _group_errors(pod: Mapping[str, Any], identifiers: Identifiers) -> Iterable[FieldError]:
    name = identifiers.group_name(pod)
    name_path = identifiers.path(pod, names.POD_GROUP_NAME_LABEL)
    total = annotations_of(pod).get(names.POD_GROUP_TOTAL_COUNT_ANNOTATION)
    if name and total is None:
        yield FieldError(
            _TOTAL_PATH, REQUIRED, detail="both the name and the total count of a group are needed"
        )
    elif total is not None and not name:
        yield FieldError(
            name_path, REQUIRED, detail="both the name and the total count of a group are needed"
        )
    if name and (problem := subdomain(name)):
        yield FieldError(name_path, INVALID, name, problem)
    if total is not None and total_count(pod) is None:
        yield FieldError(_TOTAL_PATH, INVALID, total, "must be a whole number greater than 0")
    prebuilt = identifiers.prebuilt_name(pod)
    if name and prebuilt and prebuilt != name:
        path = identifiers.path(pod, names.PREBUILT_WORKLOAD_LABEL)
        yield FieldError(path, INVALID, prebuilt, "must be the name of the pod group")


def _group_changes(
    pod: Mapping[str, Any], old: Mapping[str, Any], identifiers: Identifiers
) -> Iterable[FieldError]:
    name, before = identifiers.group_name(pod), identifiers.group_name(old)
    if before and name != before:
        path = identifiers.path(pod, names.POD_GROUP_NAME_LABEL)
        yield FieldError(path, INVALID, name, "field is immutable")
    was, now = (annotations_of(one).get(names.RETRIABLE_IN_GROUP_ANNOTATION) for one in (old, pod))
    if was == "false" and now != "false":
        yield FieldError(_RETRIABLE_PATH, FORBIDDEN, detail="unretriable pods cannot become retriable again")
