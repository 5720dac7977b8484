"""RuntimeClass: what running in this class costs on top, and where it can run."""

from __future__ import annotations

from pykueue.api.objects import Object
from pykueue.api.quantity import QuantityError, parse
from pykueue.embedded.admission.contract import Lookup, pod_refused


def _amounts(resources: Object | None) -> dict[str, object]:
    try:
        return {name: parse(value) for name, value in (resources or {}).items()}
    except QuantityError:
        return dict(resources or {})


def apply_runtime_class(pod: Object, lookup: Lookup) -> Object:
    """The pod with its class' overhead, node selector and tolerations. 403 when they contradict the pod's."""
    spec = pod["spec"]
    name = spec.get("runtimeClassName")
    given = spec.get("overhead")
    if not name:
        if given:
            raise pod_refused(
                pod, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
            )
        return pod
    found = lookup.find("node.k8s.io", "runtimeclasses", "", name)
    if found is None:
        raise pod_refused(pod, f'pod rejected: RuntimeClass "{name}" not found')
    changed = dict(spec)
    fixed = (found.get("overhead") or {}).get("podFixed")
    if fixed:
        if given and _amounts(given) != _amounts(fixed):
            raise pod_refused(
                pod, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
            )
        changed["overhead"] = fixed
    elif given:
        raise pod_refused(
            pod, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        )
    scheduling = found.get("scheduling") or {}
    selector = dict(spec.get("nodeSelector") or {})
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if selector.get(key, value) != value:
            raise pod_refused(
                pod,
                f"pod rejected: conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}",
            )
        selector[key] = value
    if selector:
        changed["nodeSelector"] = selector
    tolerations = list(spec.get("tolerations") or ())
    tolerations += [one for one in scheduling.get("tolerations") or () if one not in tolerations]
    if tolerations:
        changed["tolerations"] = tolerations
    return pod if changed == spec else {**pod, "spec": changed}
