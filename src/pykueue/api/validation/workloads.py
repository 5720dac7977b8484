"""Rules for Workloads, and for how they may change. Source: docs/reference/kueue-api.md 1.6 and 2.4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pykueue.api.core import Container, PodTemplateSpec, ResourceRequirements
from pykueue.api.decoding import DecodeError, encode
from pykueue.api.hybrid import parts_of
from pykueue.api.kueue import Admission, PodSet, PodSetAssignment, PodSetUpdate, Workload
from pykueue.api.kueue.names import (
    ADMISSION_GATED_BY_ANNOTATION,
    ADMITTED,
    ELASTIC_JOB_ANNOTATION,
    PRIORITY_BOOST_ANNOTATION,
    QUOTA_RESERVED,
    WORKLOAD_SLICE_REPLACEMENT_ANNOTATION,
)
from pykueue.api.sameness import says_the_same
from pykueue.api.validation.fields import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    NOT_FOUND,
    REQUIRED,
    FieldError,
)
from pykueue.api.validation.gates import Gates, on
from pykueue.api.validation.syntax import (
    annotation_errors,
    label_errors,
    qualified_name,
    toleration_errors,
)

_IMMUTABLE = "field is immutable"
_NO_GROWTH = "a pod set that is split over flavors may only shrink while quota is reserved"
_MAX_GATE = 63


def workload_errors(workload: Workload, old: Workload | None, gates: Gates) -> list[FieldError]:
    """What is wrong with a Workload, or with its change from `old`."""
    errors = [
        *_annotation_errors(workload, old, gates),
        *_pod_sets_errors(workload, gates),
        *_priority_errors(workload),
        *_admission_errors(workload, old),
        *_reclaimable_errors(workload, gates),
        *_check_errors(workload),
        *_cluster_errors(workload, old),
    ]
    if old is not None:
        errors += _change_errors(workload, old, gates)
    return errors


def is_elastic(workload: Workload, gates: Gates) -> bool:
    """Whether the workload may be resized by slices."""
    return workload.metadata.annotations.get(ELASTIC_JOB_ANNOTATION) == "true" and on(
        gates, "ElasticJobsViaWorkloadSlices"
    )


def admission_gates(value: str) -> list[str]:
    """The names in an admission-gated-by annotation; none for an empty text."""
    return value.split(",") if value else []


def admission_gated_by_errors(annotations: Mapping[str, str], path: str) -> list[FieldError]:
    """What is wrong with the text of an admission-gated-by annotation, on a job or a Workload."""
    value = annotations.get(ADMISSION_GATED_BY_ANNOTATION)
    if value is None:
        return []
    at = f"{path}[{ADMISSION_GATED_BY_ANNOTATION}]"
    errors: list[FieldError] = []
    seen: set[str] = set()
    for name in admission_gates(value):
        if not name:
            errors.append(FieldError(at, INVALID, value, "gate names must not be empty"))
        elif name != name.strip() or " " in name:
            errors.append(FieldError(at, INVALID, name, "gate names must not contain blanks"))
        elif len(name) > _MAX_GATE:
            errors.append(FieldError(at, INVALID, name, f"gate names have at most {_MAX_GATE} characters"))
        elif "/" not in name or qualified_name(name):
            errors.append(FieldError(at, INVALID, name, "a gate is named domain/path, as example.com/gate"))
        elif name in seen:
            errors.append(FieldError(at, DUPLICATE, name))
        seen.add(name)
    return errors


def admission_gated_by_change_errors(
    annotations: Mapping[str, str], old: Mapping[str, str], path: str
) -> list[FieldError]:
    """Gates can only be taken away, on a job or a Workload."""
    now = admission_gates(annotations.get(ADMISSION_GATED_BY_ANNOTATION, ""))
    before = admission_gates(old.get(ADMISSION_GATED_BY_ANNOTATION, ""))
    added = [name for name in now if name not in before]
    if not added:
        return []
    detail = f"gates can only be removed after creation; added: {', '.join(added)}"
    return [FieldError(f"{path}[{ADMISSION_GATED_BY_ANNOTATION}]", FORBIDDEN, None, detail)]


def _annotation_errors(workload: Workload, old: Workload | None, gates: Gates) -> list[FieldError]:
    path = "metadata.annotations"
    annotations = workload.metadata.annotations
    errors: list[FieldError] = []
    if on(gates, "AdmissionGatedBy"):
        errors += admission_gated_by_errors(annotations, path)
        if old is not None:
            errors += admission_gated_by_change_errors(annotations, old.metadata.annotations, path)
    boost = annotations.get(PRIORITY_BOOST_ANNOTATION)
    if boost is not None and on(gates, "PriorityBoost") and not _is_int32(boost):
        errors.append(
            FieldError(
                f"{path}[{PRIORITY_BOOST_ANNOTATION}]", INVALID, boost, "must be a signed 32-bit integer"
            )
        )
    return errors


def _is_int32(text: str) -> bool:
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isascii() and digits.isdigit() and len(digits) < 20 and -(2**31) <= int(text) < 2**31


def _pod_sets_errors(workload: Workload, gates: Gates) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    variable = 0
    for index, pod_set in enumerate(workload.spec.pod_sets):
        path = f"spec.podSets[{index}]"
        if pod_set.name in names:
            errors.append(FieldError(f"{path}.name", DUPLICATE, pod_set.name))
        names.add(pod_set.name)
        if pod_set.min_count is not None:
            variable += 1
            if pod_set.min_count > pod_set.count:
                detail = f"must not exceed count {pod_set.count}"
                errors.append(FieldError(f"{path}.minCount", INVALID, pod_set.min_count, detail))
            if is_elastic(workload, gates):
                detail = "cannot be used with elastic jobs"
                errors.append(FieldError(f"{path}.minCount", FORBIDDEN, None, detail))
        errors += _topology_errors(pod_set, f"{path}.topologyRequest", gates)
        errors += _template_errors(pod_set, f"{path}.template", gates)
    if variable > 1:
        errors.append(FieldError("spec.podSets", INVALID, variable, "at most one podSet can use minCount"))
    return errors


def _topology_errors(pod_set: PodSet, path: str, gates: Gates) -> list[FieldError]:
    request = pod_set.topology_request
    if request is None or not on(gates, "TASValidateWorkloadSliceSize"):
        return []
    errors: list[FieldError] = []
    topology, size = request.pod_set_slice_required_topology, request.pod_set_slice_size
    if topology and size is None:
        detail = "is needed with podSetSliceRequiredTopology"
        errors.append(FieldError(f"{path}.podSetSliceSize", REQUIRED, None, detail))
    if size is not None and not topology:
        detail = "is needed with podSetSliceSize"
        errors.append(FieldError(f"{path}.podSetSliceRequiredTopology", REQUIRED, None, detail))
    if size is not None and size < 1:
        detail = "must be greater than or equal to 1"
        errors.append(FieldError(f"{path}.podSetSliceSize", INVALID, size, detail))
    for index, layer in enumerate(request.podset_slice_required_topology_constraints):
        if layer.size < 1:
            at = f"{path}.podsetSliceRequiredTopologyConstraints[{index}].size"
            errors.append(FieldError(at, INVALID, layer.size, "must be greater than or equal to 1"))
    return errors


def _template_errors(pod_set: PodSet, path: str, gates: Gates) -> list[FieldError]:
    try:
        template = pod_set.pod_template
    except DecodeError as error:
        return [FieldError(path, INVALID, None, error.why)]
    errors: list[FieldError] = []
    if on(gates, "WorkloadValidationForPodSetMetadata"):
        errors += label_errors(template.metadata.labels, f"{path}.metadata.labels")
        errors += annotation_errors(template.metadata.annotations, f"{path}.metadata.annotations")
    if on(gates, "WorkloadValidateResourcesAreNonNegative"):
        for at, resources in _requirements(template, path):
            errors += _amount_errors(resources, at)
    return errors


def _requirements(template: PodTemplateSpec, path: str) -> Iterable[tuple[str, ResourceRequirements]]:
    spec = template.spec
    lists: tuple[tuple[str, Sequence[Container]], ...] = (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
    )
    for field, containers in lists:
        for index, container in enumerate(containers):
            yield f"{path}.spec.{field}[{index}].resources", container.resources
    if spec.resources is not None:
        yield f"{path}.spec.resources", spec.resources


def _amount_errors(resources: ResourceRequirements, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for field, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        for name, amount in amounts.items():
            at = f"{path}.{field}[{name}]"
            if name == "pods":
                detail = "the resource name pods is reserved for counting pods"
                errors.append(FieldError(at, INVALID, name, detail))
            if amount.nanos < 0:
                errors.append(FieldError(at, INVALID, str(amount), "must be greater than or equal to 0"))
    return errors


def _priority_errors(workload: Workload) -> list[FieldError]:
    if workload.spec.priority_class_ref is None or workload.spec.priority is not None:
        return []
    return [FieldError("spec.priority", REQUIRED, None, "is needed with priorityClassRef")]


def _admission_errors(workload: Workload, old: Workload | None) -> list[FieldError]:
    admission = workload.status.admission
    if admission is None:
        reserved = workload.condition_is(QUOTA_RESERVED)
        was_so = old is not None and old.condition_is(QUOTA_RESERVED) and old.status.admission is None
        if reserved and not was_so:
            detail = "is needed while QuotaReserved is True"
            return [FieldError("status.admission", REQUIRED, None, detail)]
        return []
    errors: list[FieldError] = []
    counts = {pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets}
    for index, assignment in enumerate(admission.pod_set_assignments):
        path = f"status.admission.podSetAssignments[{index}]"
        if assignment.name not in counts:
            errors.append(
                FieldError(f"{path}.name", NOT_FOUND, assignment.name, "no such podSet in the spec")
            )
        count = assignment.count if assignment.count is not None else counts.get(assignment.name, 0)
        parts = parts_of(assignment)
        together = sum(part.pods for part in parts)
        # Once it is admitted, pods that lost their flavor have none until there is another one for them.
        if parts and (together > count or (together < count and not _was_split(old, assignment.name))):
            text = f"the flavors must have {count} pods together, the count of the podSet"
            errors.append(FieldError(f"{path}.topologyAssignment", INVALID, parts, text))
        if count < 1:
            continue
        for resource, amount in assignment.resource_usage.items():
            if (amount.milli() if resource == "cpu" else amount.value()) % count:
                detail = f"must be divisible by the count {count}"
                errors.append(FieldError(f"{path}.resourceUsage[{resource}]", INVALID, str(amount), detail))
    return errors


def _was_split(old: Workload | None, pod_set: str) -> bool:
    admission = old.status.admission if old is not None else None
    return admission is not None and any(
        each.name == pod_set and parts_of(each) for each in admission.pod_set_assignments
    )


def _reclaimable_errors(workload: Workload, gates: Gates) -> list[FieldError]:
    counts = {pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets}
    errors: list[FieldError] = []
    for index, pods in enumerate(workload.status.reclaimable_pods):
        path = f"status.reclaimablePods[{index}]"
        if pods.name not in counts:
            accepted = sorted(counts)
            errors.append(
                FieldError(f"{path}.name", NOT_FOUND, pods.name, f"the podSets are {', '.join(accepted)}")
            )
        elif pods.count > counts[pods.name] and not is_elastic(workload, gates):
            detail = f"must not exceed the count {counts[pods.name]} of the podSet"
            errors.append(FieldError(f"{path}.count", INVALID, pods.count, detail))
    return errors


def _check_errors(workload: Workload) -> list[FieldError]:
    names = {pod_set.name for pod_set in workload.spec.pod_sets}
    errors: list[FieldError] = []
    for index, check in enumerate(workload.status.admission_checks):
        for at, update in enumerate(check.pod_set_updates):
            path = f"status.admissionChecks[{index}].podSetUpdates[{at}]"
            if update.name not in names:
                errors.append(
                    FieldError(f"{path}.name", NOT_FOUND, update.name, "no such podSet in the spec")
                )
            errors += _update_errors(update, path)
    return errors


def _update_errors(update: PodSetUpdate, path: str) -> list[FieldError]:
    return [
        *label_errors(update.labels, f"{path}.labels"),
        *annotation_errors(update.annotations, f"{path}.annotations"),
        *label_errors(update.node_selector, f"{path}.nodeSelector"),
        *toleration_errors(update.tolerations, f"{path}.tolerations"),
    ]


def _cluster_errors(workload: Workload, old: Workload | None) -> list[FieldError]:
    status = workload.status
    path = "status.clusterName"
    errors: list[FieldError] = []
    if status.cluster_name and status.nominated_cluster_names:
        detail = "clusterName and nominatedClusterNames are mutually exclusive"
        errors.append(FieldError(path, INVALID, status.cluster_name, detail))
    if old is None or not status.cluster_name or old.status.cluster_name == status.cluster_name:
        return errors
    if old.status.cluster_name:
        errors.append(FieldError(path, INVALID, status.cluster_name, _IMMUTABLE))
    elif (
        status.cluster_name not in old.status.nominated_cluster_names
        and WORKLOAD_SLICE_REPLACEMENT_ANNOTATION not in workload.metadata.annotations
    ):
        detail = "must be one of the nominatedClusterNames before"
        errors.append(FieldError(path, INVALID, status.cluster_name, detail))
    return errors


def _change_errors(workload: Workload, old: Workload, gates: Gates) -> list[FieldError]:
    errors: list[FieldError] = []
    if old.condition_is(QUOTA_RESERVED):
        if not _same_pod_sets(workload, old, gates):
            errors.append(
                FieldError("spec.podSets", FORBIDDEN, None, "field is immutable while quota is reserved")
            )
        if workload.condition_is(QUOTA_RESERVED):
            errors += _held_errors(workload, old)
    if old.condition_is(ADMITTED) and workload.condition_is(ADMITTED):
        before, now = old.spec.maximum_execution_time_seconds, workload.spec.maximum_execution_time_seconds
        if before != now:
            detail = "field is immutable while admitted"
            errors.append(FieldError("spec.maximumExecutionTimeSeconds", INVALID, now, detail))
    errors += _admission_change_errors(workload.status.admission, old.status.admission, gates)
    before_checks = {check.name: check for check in old.status.admission_checks}
    for index, check in enumerate(workload.status.admission_checks):
        previous = before_checks.get(check.name)
        if (
            previous is not None
            and previous.state == check.state == "Ready"
            and previous.pod_set_updates != check.pod_set_updates
        ):
            at = f"status.admissionChecks[{index}].podSetUpdates"
            errors.append(FieldError(at, FORBIDDEN, None, "field is immutable while the check is Ready"))
    return errors


def _same_pod_sets(workload: Workload, old: Workload, gates: Gates) -> bool:
    now, before = workload.spec.pod_sets, old.spec.pod_sets
    if now == before:
        return True
    if len(now) != len(before):
        return False
    may_shrink = is_elastic(workload, gates)
    return all(
        (a.count == b.count or (may_shrink and a.count < b.count)) and _same_but_count(a, b)
        for a, b in zip(now, before, strict=True)
    )


def _same_but_count(now: PodSet, before: PodSet) -> bool:
    return (
        now.name == before.name
        and now.min_count == before.min_count
        and now.topology_request == before.topology_request
        and says_the_same(now.template, before.template)
    )


def _held_errors(workload: Workload, old: Workload) -> list[FieldError]:
    """What must stay as it is as long as quota is held without a break."""
    errors: list[FieldError] = []
    spec, was = workload.spec, old.spec
    held = "field is immutable while quota is reserved"
    if spec.queue_name != was.queue_name:
        errors.append(FieldError("spec.queueName", INVALID, spec.queue_name, held))
    ref, ref_was = spec.priority_class_ref, was.priority_class_ref
    if (ref is None) != (ref_was is None):
        errors.append(FieldError("spec.priorityClassRef", FORBIDDEN, None, held))
    elif ref is not None and ref_was is not None:
        if ref.group != ref_was.group:
            errors.append(FieldError("spec.priorityClassRef.group", INVALID, ref.group, held))
        if ref.kind != ref_was.kind:
            errors.append(FieldError("spec.priorityClassRef.kind", INVALID, ref.kind, held))
        if ref.kind == "PriorityClass" and ref.name != ref_was.name:
            errors.append(FieldError("spec.priorityClassRef.name", INVALID, ref.name, held))
    now = {pods.name: pods.count for pods in workload.status.reclaimable_pods}
    for pods in old.status.reclaimable_pods:
        path = f"status.reclaimablePods[{pods.name}]"
        if pods.name not in now:
            errors.append(FieldError(path, REQUIRED, None, "cannot be removed while quota is reserved"))
        elif now[pods.name] < pods.count:
            detail = f"cannot be less than {pods.count} while quota is reserved"
            errors.append(FieldError(f"{path}.count", INVALID, now[pods.name], detail))
    return errors


def _admission_change_errors(
    now: Admission | None, before: Admission | None, gates: Gates
) -> list[FieldError]:
    """An admission can be set and cleared, but not changed; topology may be filled in or repaired."""
    if now is None or before is None or now == before:
        return []
    if on(gates, "TopologyAwareScheduling") and _without_topology(now) == _without_topology(before):
        pairs = zip(now.pod_set_assignments, before.pod_set_assignments, strict=True)
        return [
            FieldError(f"status.admission.podSetAssignments[{index}].count", INVALID, item.count, _NO_GROWTH)
            for index, (item, was) in enumerate(pairs)
            if (item.count or 0) > (was.count or 0)
        ]
    return [FieldError("status.admission", FORBIDDEN, encode(now), _IMMUTABLE)]


def _without_topology(admission: Admission) -> tuple[object, ...]:
    return (admission.cluster_queue, [_fixed(item) for item in admission.pod_set_assignments])


def _fixed(item: PodSetAssignment) -> tuple[object, ...]:
    """What of a pod set stays as it was admitted; one that is split may get other flavors, and shrink."""
    if not parts_of(item) or not item.count:
        return item.name, item.flavors, item.resource_usage, item.count
    per_pod = {resource: amount.nanos // item.count for resource, amount in item.resource_usage.items()}
    return item.name, sorted(item.flavors), per_pod
