"""LimitRange: defaults for containers that say nothing, and bounds for those that do.

Source: docs/reference/cluster-workloads.md, 4.8.
"""

from __future__ import annotations

from collections.abc import Iterator

from pykueue.api.objects import Object
from pykueue.api.quantity import Quantity
from pykueue.embedded.admission.amounts import Amounts, amounts, of_pod
from pykueue.embedded.admission.contract import Lookup, pod_refused
from pykueue.embedded.objects.errors import forbidden_request

_ANNOTATION = "kubernetes.io/limit-ranger"


def _limits(lookup: Lookup, namespace: str, kind: str) -> list[Object]:
    ranges = lookup.all("", "limitranges", namespace)
    return [
        limit
        for one in ranges
        for limit in (one.get("spec") or {}).get("limits") or ()
        if limit.get("type") == kind
    ]


def default_limits(pod: Object, lookup: Lookup) -> Object:
    """The pod with what its namespace's LimitRanges give containers that say nothing."""
    limits = _limits(lookup, pod["metadata"]["namespace"], "Container")
    if not limits:
        return pod
    spec = pod["spec"]
    notes: list[str] = []
    changed = dict(spec)
    for key, word in (("containers", "container"), ("initContainers", "init container")):
        if spec.get(key):
            changed[key] = [_completed(one, limits, word, notes) for one in spec[key]]
    if not notes:
        return pod
    meta = pod["metadata"]
    annotations = {
        **(meta.get("annotations") or {}),
        _ANNOTATION: f"LimitRanger plugin set: {'; '.join(notes)}",
    }
    return {**pod, "metadata": {**meta, "annotations": annotations}, "spec": changed}


def _completed(container: Object, limits: list[Object], word: str, notes: list[str]) -> Object:
    resources = dict(container.get("resources") or {})
    added = False
    for part, source, name in (("requests", "defaultRequest", "request"), ("limits", "default", "limit")):
        given = resources.get(part) or {}
        missing: Object = {}
        for limit in limits:
            for resource, value in (limit.get(source) or {}).items():
                if resource not in given and resource not in missing:
                    missing[resource] = value
        if missing:
            added = True
            resources[part] = {**given, **missing}
            notes.append(f"{', '.join(sorted(missing))} {name} for {word} {container['name']}")
    return {**container, "resources": resources} if added else container


def check_limits(pod: Object, lookup: Lookup) -> None:
    """403 when a container or the whole pod is out of its namespace's bounds."""
    namespace, spec = pod["metadata"]["namespace"], pod["spec"]
    faults: list[str] = []
    for limit in _limits(lookup, namespace, "Container"):
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            resources = container.get("resources") or {}
            requested, allowed = amounts(resources.get("requests")), amounts(resources.get("limits"))
            faults += _faults(limit, "Container", requested, allowed)
    for limit in _limits(lookup, namespace, "Pod"):
        faults += _faults(limit, "Pod", of_pod(spec, "requests"), of_pod(spec, "limits"))
    if faults:
        raise pod_refused(pod, _together(faults))


def check_claim(claim: Object, lookup: Lookup) -> None:
    """403 when a PersistentVolumeClaim asks for too little or too much."""
    meta = claim["metadata"]
    requested = amounts(((claim["spec"].get("resources") or {}).get("requests")) or {})
    faults: list[str] = []
    for limit in _limits(lookup, meta["namespace"], "PersistentVolumeClaim"):
        for word, bounds in (("minimum", limit.get("min")), ("maximum", limit.get("max"))):
            for name, bound in amounts(bounds).items():
                value = requested.get(name)
                text = f"{word} {name} usage per PersistentVolumeClaim is {bound}"
                if value is None:
                    faults.append(f"{text}.  No request is specified")
                elif value < bound if word == "minimum" else bound < value:
                    faults.append(f"{text}, but request is {value}")
    if faults:
        raise forbidden_request("", "persistentvolumeclaims", meta.get("name") or "", _together(faults))


def _together(faults: list[str]) -> str:
    faults = list(dict.fromkeys(faults))
    return faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"


def _faults(limit: Object, kind: str, requested: Amounts, allowed: Amounts) -> Iterator[str]:
    for name, bound in amounts(limit.get("min")).items():
        text = f"minimum {name} usage per {kind} is {bound}"
        if name not in requested:
            yield f"{text}.  No request is specified"
        elif requested[name] < bound:
            yield f"{text}, but request is {requested[name]}"
        elif name in allowed and allowed[name] < bound:
            yield f"{text}, but limit is {allowed[name]}"
    for name, bound in amounts(limit.get("max")).items():
        text = f"maximum {name} usage per {kind} is {bound}"
        if name not in allowed:
            yield f"{text}.  No limit is specified"
        elif bound < allowed[name]:
            yield f"{text}, but limit is {allowed[name]}"
        elif name in requested and bound < requested[name]:
            yield f"{text}, but request is {requested[name]}"
    for name, ratio in amounts(limit.get("maxLimitRequestRatio")).items():
        yield from _ratio_faults(name, kind, ratio, requested.get(name), allowed.get(name))


def _ratio_faults(
    name: str, kind: str, ratio: Quantity, requested: Quantity | None, allowed: Quantity | None
) -> Iterator[str]:
    text = f"{name} max limit to request ratio per {kind} is {ratio}"
    if not requested:
        yield f"{text}, but no request is specified or request is 0"
    elif not allowed:
        yield f"{text}, but no limit is specified or limit is 0"
    else:
        actual = float(allowed) / float(requested)
        if actual > float(ratio):
            yield f"{text}, but provided ratio is {actual:.6f}"
