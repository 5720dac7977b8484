"""Which JobSets are refused, and which changes of one (docs/reference/cluster-workloads.md 2.7, 2.8,
2.10)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pykueue.api.objects import Object
from pykueue.api.regex import RegexError, compile_regex
from pykueue.api.validation.fields import DUPLICATE, FORBIDDEN, INVALID, REQUIRED, FieldError, not_supported
from pykueue.api.validation.syntax import dns_label, label_value
from pykueue.embedded.jobset.names import coordinator_address, has_hostnames, job_name, pods_per_job, replicas

FAILURE_REASONS: Final = (
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
)
MAX_RULE_NAME: Final = 128
#: Instructions to which all patterns of a failure policy may compile: what one match may cost.
MAX_PATTERNS_SIZE: Final = 2000
MAX_PODS: Final = 2**31 - 1
MAX_LABEL: Final = 63
#: Stands for what the server will append to a generateName, and to a pod's name.
_SUFFIX: Final = "abcde"

_RULE_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DOMAIN_PATH = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")

#: What of a pod template may change while the set is suspended.
_FREE_METADATA = ("labels", "annotations")
_FREE_SPEC = ("nodeSelector", "tolerations", "schedulingGates")
#: Fields of the spec that may change at any time.
_FREE = ("suspend", "ttlSecondsAfterFinished", "coordinator")


def errors(jobset: Object) -> Iterator[FieldError]:
    """Why a new JobSet is refused."""
    spec = jobset.get("spec") or {}
    jobs: list[Object] = spec.get("replicatedJobs") or []
    by_name = {str(one["name"]): one for one in jobs}
    metadata = jobset["metadata"]
    name = metadata.get("name") or f"{metadata.get('generateName', '')}{_SUFFIX}"
    for number, one in enumerate(jobs):
        yield from _replicated_job_errors(name, one, f"spec.replicatedJobs[{number}]")
    yield from _dependency_errors(spec, jobs)
    yield from _network_errors(spec)
    targets = (spec.get("successPolicy") or {}).get("targetReplicatedJobs")
    yield from _target_errors(targets, by_name, "spec.successPolicy.targetReplicatedJobs")
    yield from _failure_policy_errors(spec.get("failurePolicy") or {}, by_name)
    yield from _coordinator_errors({**jobset, "metadata": {**metadata, "name": name}}, by_name)
    yield from _claim_errors(spec, jobs)
    managed_by = spec.get("managedBy")
    if managed_by is not None and not _DOMAIN_PATH.fullmatch(managed_by):
        text = 'must be a domain-prefixed path (such as "acme.io/foo")'
        yield FieldError("spec.managedBy", INVALID, managed_by, text)


def update_errors(jobset: Object, old: Object) -> Iterator[FieldError]:
    """Why a change of a stored JobSet is refused."""
    after, before = jobset.get("spec") or {}, old.get("spec") or {}
    suspended = bool(after.get("suspend") or before.get("suspend"))
    for field in {**after, **before}:
        if field in _FREE:
            continue
        new, was = after.get(field), before.get(field)
        if field == "replicatedJobs" and suspended:
            new, was = [_frozen(one) for one in new or ()], [_frozen(one) for one in was or ()]
        if _without_empty(new) != _without_empty(was):
            yield FieldError(f"spec.{field}", INVALID, after.get(field), "field is immutable")


def _without_empty(value: Any) -> Any:
    """A value without empty fields: clients in Go send those that are no pointers in any case."""
    if isinstance(value, dict):
        found = {key: _without_empty(one) for key, one in value.items()}
        return {key: one for key, one in found.items() if one not in (None, {}, [])}
    return [_without_empty(one) for one in value] if isinstance(value, list | tuple) else value


def _frozen(replicated_job: Object) -> Object:
    """A replicated job without what may change while the set is suspended."""
    template = replicated_job.get("template") or {}
    job_spec = template.get("spec") or {}
    pod = job_spec.get("template") or {}
    metadata = {key: value for key, value in (pod.get("metadata") or {}).items() if key not in _FREE_METADATA}
    spec = {key: value for key, value in (pod.get("spec") or {}).items() if key not in _FREE_SPEC}
    rest = {key: value for key, value in job_spec.items() if key != "template"}
    return {**replicated_job, "template": {**template, "spec": {**rest, "pod": (metadata, spec)}}}


def _replicated_job_errors(jobset: str, one: Object, path: str) -> Iterator[FieldError]:
    name, count = str(one["name"]), replicas(one)
    if problem := dns_label(name):
        yield FieldError(f"{path}.name", INVALID, name, problem)
    group = one.get("groupName")
    if group and (problem := dns_label(group)):
        yield FieldError(f"{path}.groupName", INVALID, group, problem)
    pods = pods_per_job(one)
    if count * pods > MAX_PODS:
        text = f"the number of pods must not exceed {MAX_PODS}"
        yield FieldError(f"{path}.replicas", INVALID, count, text)
    longest = job_name(jobset, name, max(count - 1, 0))
    yield from _label_errors(longest, path, "names of Jobs")
    spec = (one.get("template") or {}).get("spec") or {}
    completions = spec.get("completions")
    if spec.get("completionMode") == "Indexed" and completions is not None:
        yield from _label_errors(f"{longest}-{max(int(completions) - 1, 0)}-{_SUFFIX}", path, "names of pods")


def _label_errors(name: str, path: str, what: str) -> Iterator[FieldError]:
    if len(name) > MAX_LABEL:
        text = f"{what} would be longer than {MAX_LABEL} characters: {name}"
        yield FieldError(path, INVALID, name, text)
    elif not _DNS_1035.fullmatch(name):
        text = (
            f"{what} must consist of lower case letters, digits and '-', start with a letter, and end with a "
            "letter or digit"
        )
        yield FieldError(path, INVALID, name, text)


def _dependency_errors(spec: Object, jobs: list[Object]) -> Iterator[FieldError]:
    in_order = (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
    earlier: set[str] = set()
    for number, one in enumerate(jobs):
        path = f"spec.replicatedJobs[{number}].dependsOn"
        dependencies = one.get("dependsOn") or ()
        if dependencies and in_order:
            yield FieldError(path, FORBIDDEN, detail="cannot be used with the startup policy InOrder")
        if dependencies and number == 0:
            yield FieldError(path, FORBIDDEN, detail="cannot be set for the first replicated job")
        for place, dependency in enumerate(dependencies):
            if number > 0 and dependency["name"] not in earlier:
                field = f"{path}[{place}].name"
                yield FieldError(field, INVALID, dependency["name"], "must name an earlier replicated job")
        earlier.add(str(one["name"]))


def _network_errors(spec: Object) -> Iterator[FieldError]:
    subdomain = (spec.get("network") or {}).get("subdomain")
    if subdomain and (problem := dns_label(subdomain)):
        yield FieldError("spec.network.subdomain", INVALID, subdomain, problem)


def _target_errors(
    targets: Iterable[str] | None, known: Mapping[str, Object], path: str
) -> Iterator[FieldError]:
    for number, target in enumerate(targets or ()):
        if target not in known:
            text = f"does not name a replicated job: {', '.join(known)}"
            yield FieldError(f"{path}[{number}]", INVALID, target, text)


def _failure_policy_errors(policy: Object, known: Mapping[str, Object]) -> Iterator[FieldError]:
    path = "spec.failurePolicy"
    if policy.get("restartStrategy") == "InPlaceRestart":
        text = "needs the feature gate InPlaceRestart, which is off"
        yield FieldError(f"{path}.restartStrategy", FORBIDDEN, detail=text)
    names: set[str] = set()
    size = 0
    for number, rule in enumerate(policy.get("rules") or ()):
        where = f"{path}.rules[{number}]"
        name = str(rule.get("name") or "")
        if len(name) > MAX_RULE_NAME or not _RULE_NAME.fullmatch(name):
            text = (
                f"must have 1 to {MAX_RULE_NAME} characters: a letter first, then letters, digits, '_', ',' "
                "and ':', ending with a letter, digit or '_'"
            )
            yield FieldError(f"{where}.name", INVALID, name, text)
        elif name in names:
            yield FieldError(f"{where}.name", DUPLICATE, name)
        names.add(name)
        if rule["action"].startswith("RestartJob") and not rule["action"].startswith("RestartJobSet"):
            text = f"{rule['action']} needs the feature gate RestartJob, which is off"
            yield FieldError(f"{where}.action", FORBIDDEN, detail=text)
        for place, reason in enumerate(rule.get("onJobFailureReasons") or ()):
            if reason not in FAILURE_REASONS:
                yield not_supported(f"{where}.onJobFailureReasons[{place}]", reason, FAILURE_REASONS)
        for place, pattern in enumerate(rule.get("onJobFailureMessagePatterns") or ()):
            field = f"{where}.onJobFailureMessagePatterns[{place}]"
            try:
                size += compile_regex(pattern).size
            except RegexError as error:
                text = f"not a regular expression in the syntax of RE2: {error}"
                yield FieldError(field, INVALID, pattern, text)
            if size > MAX_PATTERNS_SIZE:
                text = f"the patterns of all rules compile to more than {MAX_PATTERNS_SIZE} instructions"
                yield FieldError(field, INVALID, pattern, text)
                return
        yield from _target_errors(rule.get("targetReplicatedJobs"), known, f"{where}.targetReplicatedJobs")


def _coordinator_errors(jobset: Object, known: Mapping[str, Object]) -> Iterator[FieldError]:
    coordinator = jobset["spec"].get("coordinator")
    if not coordinator:
        return
    path = "spec.coordinator"
    one = known.get(coordinator["replicatedJob"])
    if one is None:
        text = f"does not name a replicated job: {', '.join(known)}"
        yield FieldError(f"{path}.replicatedJob", INVALID, coordinator["replicatedJob"], text)
        return
    spec = one["template"]["spec"]
    if coordinator.get("jobIndex", 0) >= replicas(one):
        text = f"must be less than the {replicas(one)} replicas"
        yield FieldError(f"{path}.jobIndex", INVALID, coordinator["jobIndex"], text)
    completions = spec.get("completions")
    if spec.get("completionMode") != "Indexed" or completions is None:
        text = "the Job must be Indexed and say how many completions it has"
        yield FieldError(f"{path}.replicatedJob", INVALID, coordinator["replicatedJob"], text)
    elif coordinator.get("podIndex", 0) >= int(completions):
        text = f"must be less than the {completions} completions"
        yield FieldError(f"{path}.podIndex", INVALID, coordinator["podIndex"], text)
    address = coordinator_address(jobset) or ""
    if has_hostnames(jobset["spec"]) and (problem := label_value(address)):
        yield FieldError(path, INVALID, address, problem)


def _claim_errors(spec: Object, jobs: list[Object]) -> Iterator[FieldError]:
    seen: set[str] = set()
    mounted, volumes = set[str](), set[str]()
    for one in jobs:
        pod: Any = one["template"]["spec"]["template"]["spec"]
        volumes.update(str(volume["name"]) for volume in pod.get("volumes") or ())
        mounted.update(mounts(pod))
    for number, policy in enumerate(spec.get("volumeClaimPolicies") or ()):
        for place, template in enumerate(policy.get("templates") or ()):
            path = f"spec.volumeClaimPolicies[{number}].templates[{place}].metadata"
            metadata = template.get("metadata") or {}
            name = str(metadata.get("name") or "")
            if not name:
                yield FieldError(f"{path}.name", REQUIRED)
                continue
            if metadata.get("namespace"):
                yield FieldError(
                    f"{path}.namespace", FORBIDDEN, detail="claims are in the JobSet's namespace"
                )
            if name in seen:
                yield FieldError(f"{path}.name", DUPLICATE, name)
            seen.add(name)
            if name in volumes:
                text = "a pod template has a volume of this name"
                yield FieldError(f"{path}.name", INVALID, name, text)
            elif name not in mounted:
                yield FieldError(f"{path}.name", INVALID, name, "is mounted by no container")


def mounts(pod_spec: Object) -> set[str]:
    """Names of the volumes that containers of a pod mount."""
    return {
        str(mount["name"])
        for field in ("initContainers", "containers")
        for container in pod_spec.get(field) or ()
        for mount in container.get("volumeMounts") or ()
    }
