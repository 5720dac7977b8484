"""ProvisioningRequests of Workloads: which are needed, what they are called, what they contain.

Source: docs/reference/admission-checks.md 11.2 to 11.4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pykueue.api.conditions import admitted_counts
from pykueue.api.hybrid import flavors_in
from pykueue.api.kueue import names
from pykueue.api.kueue.checks import ProvisioningRequestConfigSpec
from pykueue.api.objects import Object, annotations_of, controller_reference, get, replaced, section
from pykueue.api.resources import POD_TEMPLATES, PROVISIONING_REQUESTS, WORKLOADS
from pykueue.jobs.podsets import PodSetInfo, count_of, injected

#: Longest name that is not shortened, and the digits of the hash that replaces the rest.
_NAME_LIMIT = 247
_HASH_DIGITS = 5
#: Attempts whose shortened names are recognised.
_ATTEMPTS_MAX = 1000
#: Fields of a pod's spec that decide where it can be scheduled.
_SCHEDULING_FIELDS = ("nodeSelector", "tolerations", "affinity", "resourceClaims", "resources")
MANAGED_LABELS = {names.MANAGED_LABEL: "true"}


def _shortened(name: str) -> str:
    if len(name) <= _NAME_LIMIT:
        return name
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:_HASH_DIGITS]
    return f"{name[:_NAME_LIMIT]}-{digest}"


def request_name(workload: str, check: str, attempt: int) -> str:
    """The name of the request of an attempt, the first being 1; at most 253 characters."""
    return _shortened(f"{workload}-{check}-{attempt}")


def template_name(request: str, pod_set: str) -> str:
    """The name of the PodTemplate of a request's entry."""
    return _shortened(f"ppt-{request}-{pod_set}")


def attempt_of(request: Mapping[str, Any], workload: str, check: str) -> int | None:
    """Which attempt a request is; None where it is not a request of this check."""
    name = str(request["metadata"]["name"])
    prefix = f"{workload}-{check}-"
    digits = name.removeprefix(prefix)
    if name.startswith(prefix) and digits.isdecimal():
        return int(digits)
    if len(name) > _NAME_LIMIT:
        for attempt in range(1, _ATTEMPTS_MAX):
            if request_name(workload, check, attempt) == name:
                return attempt
    return None


class Entry(NamedTuple):
    """Pod sets that are requested as one, with the template and name of the first of them."""

    pod_sets: tuple[str, ...]
    pods: int
    template: Object


def needed_pod_sets(workload: Mapping[str, Any], config: ProvisioningRequestConfigSpec) -> list[Object]:
    """The pod sets that need provisioning: with pods, and with a managed resource where any are named."""
    counts = admitted_counts(workload)
    managed = set(config.managed_resources)
    return [
        pod_set
        for pod_set in get(workload, "spec", "podSets") or ()
        if count_of(pod_set) > 0
        and counts.get(str(pod_set.get("name")), 0) > 0
        and (not managed or managed & _resources(section(pod_set, "template", "spec")))
    ]


def _resources(spec: Mapping[str, Any]) -> set[str]:
    """The resources that containers request or limit; those of the pod as a whole are not inspected."""
    return {
        resource
        for containers in ("containers", "initContainers")
        for container in spec.get(containers) or ()
        for kind in ("requests", "limits")
        for resource in section(container, "resources", kind)
    }


def entries(
    workload: Mapping[str, Any], config: ProvisioningRequestConfigSpec, flavors: Mapping[str, Object]
) -> list[Entry]:
    """The entries of a request; `flavors` are the ResourceFlavors by name.

    Pod sets are merged as `podSetMergePolicy` says, those on different flavors never: an entry has one node
    selector. Raises PodSetConflictError where flavors and template contradict one another.
    """
    counts = admitted_counts(workload)
    found: list[Entry] = []
    compared: list[Any] = []
    for pod_set in needed_pod_sets(workload, config):
        name = str(pod_set["name"])
        template = _template(workload, pod_set, flavors)
        key = _merge_key(pod_set, template, config.pod_set_merge_policy)
        if key is not None and key in compared:
            at = compared.index(key)
            merged = found[at]
            found[at] = Entry((*merged.pod_sets, name), merged.pods + counts[name], merged.template)
        else:
            compared.append(key)
            found.append(Entry((name,), counts[name], template))
    return found


def _template(
    workload: Mapping[str, Any], pod_set: Mapping[str, Any], flavors: Mapping[str, Object]
) -> Object:
    """The pod set's template with what its flavors add, and limits as requests where there are none."""
    info = PodSetInfo(str(pod_set["name"]), count_of(pod_set))
    for name in assigned_flavors(workload, info.name):
        info = info.with_flavor(flavors.get(name, {}))
    result = injected(section(pod_set, "template"), info)
    for kind in ("containers", "initContainers"):
        containers = get(result, "spec", kind)
        if containers:
            result = replaced(result, ("spec", kind), [_with_requests(one) for one in containers])
    return result


def assigned_flavors(workload: Mapping[str, Any], pod_set: str) -> list[str]:
    """The flavors assigned to a pod set, each once."""
    for assignment in get(workload, "status", "admission", "podSetAssignments") or ():
        if assignment.get("name") == pod_set:
            return list(flavors_in(assignment))
    return []


def _with_requests(container: Object) -> Object:
    limits = section(container, "resources", "limits")
    if not limits:
        return container
    return replaced(
        container, ("resources", "requests"), {**limits, **section(container, "resources", "requests")}
    )


def _merge_key(pod_set: Mapping[str, Any], template: Object, policy: str | None) -> Any:
    """What pod sets must have in common to be merged; None: they are not.

    `template` is the pod set's with what its flavors add.
    """
    if policy is None:
        return None
    selector, tolerations = get(template, "spec", "nodeSelector"), get(template, "spec", "tolerations")
    if policy == "IdenticalPodTemplates":
        return (section(pod_set, "template"), selector, tolerations)
    spec = section(template, "spec")
    containers = [
        [section(one, "resources", "requests") for one in spec.get(kind) or ()]
        for kind in ("containers", "initContainers")
    ]
    return (containers, [spec.get(field) or None for field in _SCHEDULING_FIELDS])


def parameters(workload: Mapping[str, Any], config: ProvisioningRequestConfigSpec) -> dict[str, str]:
    """The parameters of a request: the configuration's, overridden by annotations of the Workload."""
    prefix = names.PROVISIONING_PARAMETER_PREFIX
    own = {k.removeprefix(prefix): v for k, v in annotations_of(workload).items() if k.startswith(prefix)}
    return {**config.parameters, **own}


def is_current(
    request: Mapping[str, Any], workload: Mapping[str, Any], config: ProvisioningRequestConfigSpec
) -> bool:
    """Whether a request has the class and the parameters that a new one would get."""
    spec = section(request, "spec")
    present = section(spec, "parameters")
    wanted = parameters(workload, config)
    return spec.get("provisioningClassName") == config.provisioning_class_name and all(
        present.get(key) == wanted[key] for key in config.parameters
    )


def last_request(
    requests: Iterable[Object], workload: Mapping[str, Any], check: str
) -> tuple[Object | None, int]:
    """The request of the highest attempt among those given, and that attempt; None and 0 where there is
    none."""
    found: tuple[Object | None, int] = None, 0
    for request in requests:
        attempt = attempt_of(request, workload["metadata"]["name"], check)
        if attempt is not None and attempt > found[1]:
            found = request, attempt
    return found


def request(
    workload: Mapping[str, Any], name: str, config: ProvisioningRequestConfigSpec, found: Sequence[Entry]
) -> Object:
    """The ProvisioningRequest for these entries, owned by the Workload."""
    given = parameters(workload, config)
    spec: Object = {
        "provisioningClassName": config.provisioning_class_name,
        "podSets": [
            {"podTemplateRef": {"name": template_name(name, entry.pod_sets[0])}, "count": entry.pods}
            for entry in found
        ],
    }
    if given:
        spec["parameters"] = given
    return _owned(PROVISIONING_REQUESTS.api_version, PROVISIONING_REQUESTS.kind, workload, name, spec=spec)


def pod_template(workload: Mapping[str, Any], request: str, entry: Entry) -> Object:
    """The PodTemplate of an entry; owned by the Workload until the request exists."""
    name = template_name(request, entry.pod_sets[0])
    return _owned(
        POD_TEMPLATES.api_version, POD_TEMPLATES.kind, workload, name, template=dict(entry.template)
    )


def _owned(api_version: str, kind: str, workload: Mapping[str, Any], name: str, **content: Object) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": workload["metadata"].get("namespace"),
            "labels": dict(MANAGED_LABELS),
            "ownerReferences": [controller_reference(workload, WORKLOADS.api_version, WORKLOADS.kind)],
        },
        **content,
    }
