"""Which Jobs are refused, and which changes of one.

Source: docs/reference/cluster-workloads.md, 1.3, 1.9 to 1.14.
"""

from __future__ import annotations

import re
from typing import Any

from pykueue.api.objects import Object, true_condition
from pykueue.embedded.kinds.jobindexes import parse_indexes
from pykueue.embedded.kinds.podvalidation import validate_label_selector, validate_pod_spec
from pykueue.embedded.objects.errors import (
    Cause,
    duplicate,
    immutable,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from pykueue.embedded.objects.metadata import label_value_fault, qualified_name_fault
from pykueue.embedded.objects.selectors import selector_matches

MAX_PARALLELISM_INDEXED = 100_000
MAX_FAILED_INDEXES = 100_000
#: Above this many completions, a limit per index needs these stricter bounds.
MANY_COMPLETIONS = 100_000
MAX_PARALLELISM_MANY = 10_000
MAX_FAILED_INDEXES_MANY = 10_000
MAX_POLICY_RULES = 20
MAX_EXIT_CODES = 255
MAX_CONDITION_PATTERNS = 20
MAX_INDEX_TEXT = 64 * 1024
MAX_MANAGED_BY = 63

NOT_NEGATIVE = "must be greater than or equal to 0"
INDEXED = "Indexed"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DOMAIN_PATH = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
)
_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_IMMUTABLE = (
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)


def job_causes(job: Object) -> list[Cause]:
    """Every reason to refuse a Job, new or changed."""
    spec = job["spec"]
    causes = spec_causes(spec, "spec")
    causes += _selector_causes(job)
    completions = spec.get("completions")
    if spec.get("completionMode") == INDEXED and completions:
        hostname = f"{job['metadata']['name']}-{completions - 1}"
        if not _LABEL.fullmatch(hostname):
            detail = f"will not able to create pod with invalid DNS label: {hostname}"
            causes.append(invalid("metadata.name", job["metadata"]["name"], detail))
    return causes


def spec_causes(spec: Object, path: str) -> list[Cause]:
    """Every reason to refuse the spec of a Job or of a job template."""
    causes: list[Cause] = []
    for field in _COUNTS:
        if (spec.get(field) or 0) < 0:
            causes.append(invalid(f"{path}.{field}", spec[field], NOT_NEGATIVE))
    causes += _managed_by(spec.get("managedBy"), f"{path}.managedBy")
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        causes.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if spec.get("completionMode") == INDEXED:
        causes += _indexed(spec, path)
    else:
        for field in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
            if spec.get(field) is not None:
                causes.append(invalid(f"{path}.{field}", spec[field], "requires indexed completion mode"))
    causes += _template(spec, path)
    if spec.get("podFailurePolicy") is not None:
        causes += _failure_policy(spec, f"{path}.podFailurePolicy")
    if spec.get("successPolicy") is not None and spec.get("completionMode") == INDEXED:
        causes += _success_policy(spec, f"{path}.successPolicy")
    causes += _replacement_policy(spec, f"{path}.podReplacementPolicy")
    return causes


def _managed_by(value: str | None, path: str) -> list[Cause]:
    if value is None:
        return []
    if len(value) > MAX_MANAGED_BY:
        return [too_long(path, MAX_MANAGED_BY)]
    if not _DOMAIN_PATH.fullmatch(value):
        return [invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    return []


def _indexed(spec: Object, path: str) -> list[Cause]:
    completions, parallelism = spec.get("completions"), spec.get("parallelism") or 0
    max_failed = spec.get("maxFailedIndexes")
    if completions is None:
        return [required(f"{path}.completions", f"when completion mode is {INDEXED}")]
    causes: list[Cause] = []
    if parallelism > MAX_PARALLELISM_INDEXED:
        detail = f"must be less than or equal to {MAX_PARALLELISM_INDEXED} when completion mode is {INDEXED}"
        causes.append(invalid(f"{path}.parallelism", parallelism, detail))
    if max_failed is not None:
        if max_failed > completions:
            detail = "must be less than or equal to completions"
            causes.append(invalid(f"{path}.maxFailedIndexes", max_failed, detail))
        if max_failed > MAX_FAILED_INDEXES:
            detail = f"must be less than or equal to {MAX_FAILED_INDEXES}"
            causes.append(invalid(f"{path}.maxFailedIndexes", max_failed, detail))
    if completions > MANY_COMPLETIONS and spec.get("backoffLimitPerIndex") is not None:
        many = f"when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
        if max_failed is None:
            detail = f"must be specified when completions is above {MANY_COMPLETIONS}"
            causes.append(required(f"{path}.maxFailedIndexes", detail))
        elif max_failed > MAX_FAILED_INDEXES_MANY:
            detail = f"must be less than or equal to {MAX_FAILED_INDEXES_MANY} {many}"
            causes.append(invalid(f"{path}.maxFailedIndexes", max_failed, detail))
        if parallelism > MAX_PARALLELISM_MANY:
            detail = f"must be less than or equal to {MAX_PARALLELISM_MANY} {many}"
            causes.append(invalid(f"{path}.parallelism", parallelism, detail))
    return causes


def _template(spec: Object, path: str) -> list[Cause]:
    pod_spec = (spec.get("template") or {}).get("spec")
    if not pod_spec:
        return [required(f"{path}.template.spec.containers")]
    causes = _labels(spec["template"], f"{path}.template")
    causes += validate_pod_spec(pod_spec, f"{path}.template.spec")
    policy = pod_spec.get("restartPolicy")
    where = f"{path}.template.spec.restartPolicy"
    if policy not in ("OnFailure", "Never"):
        causes = [cause for cause in causes if cause.field != where]
        causes.append(required(where, 'valid values: "OnFailure", "Never"'))
    elif policy != "Never" and spec.get("podFailurePolicy") is not None:
        causes.append(invalid(where, policy, 'only "Never" is supported when podFailurePolicy is specified'))
    return causes


def _labels(template: Object, path: str) -> list[Cause]:
    causes: list[Cause] = []
    for key, value in ((template.get("metadata") or {}).get("labels") or {}).items():
        for subject, fault in ((key, qualified_name_fault(key)), (value, label_value_fault(value))):
            if fault:
                causes.append(invalid(f"{path}.labels", subject, fault))
    return causes


def _failure_policy(spec: Object, path: str) -> list[Cause]:
    rules = spec["podFailurePolicy"].get("rules") or []
    causes: list[Cause] = []
    if len(rules) > MAX_POLICY_RULES:
        causes.append(too_many(f"{path}.rules", len(rules), MAX_POLICY_RULES))
    pod_spec = (spec.get("template") or {}).get("spec") or {}
    names = {one.get("name") for key in ("containers", "initContainers") for one in pod_spec.get(key) or ()}
    for position, rule in enumerate(rules):
        where = f"{path}.rules[{position}]"
        action = rule.get("action")
        if not action:
            causes.append(required(f"{where}.action", f"valid values: {list(_ACTIONS)}"))
        elif action not in _ACTIONS:
            causes.append(not_supported(f"{where}.action", action, _ACTIONS))
        elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            detail = "requires the backoffLimitPerIndex to be set"
            causes.append(invalid(f"{where}.action", action, detail))
        codes, patterns = rule.get("onExitCodes"), rule.get("onPodConditions") or []
        if codes is not None:
            causes += _exit_codes(codes, names, f"{where}.onExitCodes")
        causes += _condition_patterns(patterns, f"{where}.onPodConditions")
        if codes is not None and patterns:
            detail = "specifying both OnExitCodes and OnPodConditions is not supported"
            causes.append(invalid(where, rule, detail))
        if codes is None and not patterns:
            detail = "specifying one of OnExitCodes and OnPodConditions is required"
            causes.append(invalid(where, rule, detail))
    return causes


def _exit_codes(codes: Object, names: set[Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    operator, values = codes.get("operator"), codes.get("values") or []
    if not operator:
        causes.append(required(f"{path}.operator", "valid values: ['In', 'NotIn']"))
    elif operator not in ("In", "NotIn"):
        causes.append(not_supported(f"{path}.operator", operator, ("In", "NotIn")))
    container = codes.get("containerName")
    if container is not None and container not in names:
        detail = "must be one of the container or initContainer names in the pod template"
        causes.append(invalid(f"{path}.containerName", container, detail))
    if not values:
        causes.append(invalid(f"{path}.values", values, "at least one value is required"))
    elif len(values) > MAX_EXIT_CODES:
        causes.append(too_many(f"{path}.values", len(values), MAX_EXIT_CODES))
    seen: set[int] = set()
    for position, value in enumerate(values):
        if operator == "In" and value == 0:
            causes.append(invalid(f"{path}.values[{position}]", value, "must not be 0 for the In operator"))
        if value in seen:
            causes.append(duplicate(f"{path}.values[{position}]", value))
        seen.add(value)
    if values != sorted(values):
        causes.append(invalid(f"{path}.values", values, "must be ordered"))
    return causes


def _condition_patterns(patterns: list[Object], path: str) -> list[Cause]:
    causes: list[Cause] = []
    if len(patterns) > MAX_CONDITION_PATTERNS:
        causes.append(too_many(path, len(patterns), MAX_CONDITION_PATTERNS))
    for position, pattern in enumerate(patterns):
        if not pattern.get("type"):
            causes.append(required(f"{path}[{position}].type"))
        status = pattern.get("status")
        if status not in ("True", "False", "Unknown"):
            supported = ("False", "True", "Unknown")
            causes.append(not_supported(f"{path}[{position}].status", status, supported))
    return causes


def _success_policy(spec: Object, path: str) -> list[Cause]:
    rules, completions = spec["successPolicy"].get("rules") or [], spec.get("completions")
    if not rules:
        detail = "at least one rules must be specified when the successPolicy is specified"
        return [required(f"{path}.rules", detail)]
    causes: list[Cause] = []
    if len(rules) > MAX_POLICY_RULES:
        causes.append(too_many(f"{path}.rules", len(rules), MAX_POLICY_RULES))
    for position, rule in enumerate(rules):
        where = f"{path}.rules[{position}]"
        text, count = rule.get("succeededIndexes"), rule.get("succeededCount")
        if text is None and count is None:
            detail = "at least one of succeededCount or succeededIndexes must be specified"
            causes.append(required(where, detail))
        total: int | None = None
        if text is not None:
            if len(text) > MAX_INDEX_TEXT:
                causes.append(too_long(f"{where}.succeededIndexes", MAX_INDEX_TEXT))
            else:
                try:
                    total = len(parse_indexes(text, completions))
                except ValueError as error:
                    detail = f"error parsing succeededIndexes: {error}"
                    causes.append(invalid(f"{where}.succeededIndexes", text, detail))
        if count is not None:
            causes += _success_count(count, completions, total, f"{where}.succeededCount")
    return causes


def _success_count(count: int, completions: int | None, total: int | None, path: str) -> list[Cause]:
    if count < 0:
        return [invalid(path, count, NOT_NEGATIVE)]
    if completions is not None and count > completions:
        detail = f"must be less than or equal to {completions} (the number of specified completions)"
        return [invalid(path, count, detail)]
    if total is not None and count > total:
        detail = (
            f"must be less than or equal to {total} "
            "(the number of indexes in the specified succeededIndexes field)"
        )
        return [invalid(path, count, detail)]
    return []


def _replacement_policy(spec: Object, path: str) -> list[Cause]:
    policy = spec.get("podReplacementPolicy")
    if spec.get("podFailurePolicy") is not None:
        if policy not in (None, "Failed"):
            return [not_supported(path, policy, ("Failed",))]
    elif policy not in (None, "Failed", "TerminatingOrFailed"):
        return [not_supported(path, policy, ("Failed", "TerminatingOrFailed"))]
    return []


def _selector_causes(job: Object) -> list[Cause]:
    """The selector must pick the Job's own pods, and is generated unless the user took it over."""
    metadata, spec = job["metadata"], job["spec"]
    selector = spec.get("selector")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    where = "spec.template.metadata.labels"
    if selector is None and not spec.get("manualSelector"):
        return [invalid(where, labels, "labels for the controller's UID are set by the server")]
    if selector is None:
        return [required("spec.selector")]
    causes = validate_label_selector(selector, "spec.selector")
    if causes:
        return causes
    if not selector_matches(selector, labels):
        causes.append(invalid(where, labels, "`selector` does not match template `labels`"))
    if spec.get("manualSelector"):
        return causes
    uid = metadata["uid"]
    expected = {
        "batch.kubernetes.io/controller-uid": uid,
        "controller-uid": uid,
        "batch.kubernetes.io/job-name": metadata["name"],
        "job-name": metadata["name"],
    }
    for key, value in expected.items():
        if labels.get(key) != value:
            causes.append(invalid(f"{where}[{key}]", labels.get(key), f"must be '{value}'"))
    if selector != {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}:
        causes.append(invalid("spec.selector", selector, "`selector` not auto-generated"))
    return causes


# Changes


def change_causes(new: Object, old: Object) -> list[Cause]:
    """Every reason to refuse the change of a stored Job's spec."""
    after, before = new["spec"], old["spec"]
    if after is before:
        return []
    causes = [
        immutable(f"spec.{field}", after.get(field))
        for field in _IMMUTABLE
        if after.get(field) != before.get(field)
    ]
    if after.get("completions") != before.get("completions"):
        if after.get("completionMode") != INDEXED:
            causes.append(immutable("spec.completions", after.get("completions")))
        elif after.get("completions") != after.get("parallelism"):
            detail = "can only be modified in tandem with spec.parallelism"
            causes.append(invalid("spec.completions", after.get("completions"), detail))
    template, old_template = after.get("template"), before.get("template")
    if template != old_template and not _template_may_become(template or {}, old_template or {}, old):
        causes.append(immutable("spec.template", template))
    return causes


def _template_may_become(new: Object, old: Object, job: Object) -> bool:
    """Whether the stored, suspended `job` lets its template change like that (1.14).

    Two rules are in the field: the older one asks for no startTime, the newer one for the Suspended condition
    and no active pod, and then lets the containers' resources change too. Either will do.
    """
    spec, status = job["spec"], job.get("status") or {}
    if not spec.get("suspend"):
        return False
    never_started = status.get("startTime") is None
    suspended = true_condition(status, "Suspended") is not None
    quiet = (never_started or suspended) and not status.get("active")
    if not never_started and not quiet:
        return False
    return _frozen(new, resources=not quiet) == _frozen(old, resources=not quiet)


def _frozen(template: Object, *, resources: bool) -> Object:
    """The template without what may change while suspended; `resources` keeps the containers' resources."""
    free = ("nodeSelector", "tolerations", "schedulingGates")
    spec = {
        key: value
        for key, value in (template.get("spec") or {}).items()
        if key not in free and value is not None
    }
    affinity = {
        key: value for key, value in (spec.pop("affinity", None) or {}).items() if key != "nodeAffinity"
    }
    if affinity:
        spec["affinity"] = affinity
    if not resources:
        for key in ("containers", "initContainers"):
            if spec.get(key):
                spec[key] = [
                    {field: value for field, value in one.items() if field != "resources"}
                    for one in spec[key]
                ]
    return {
        **{key: value for key, value in template.items() if key not in ("metadata", "spec")},
        "metadata": {
            key: value
            for key, value in (template.get("metadata") or {}).items()
            if key not in ("labels", "annotations") and value is not None
        },
        "spec": spec,
    }
