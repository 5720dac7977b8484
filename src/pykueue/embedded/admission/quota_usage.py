"""What counts against a ResourceQuota, and which quotas an object counts against.

Source: docs/reference/cluster-workloads.md, 4.8.
"""

from __future__ import annotations

from pykueue.api.objects import Object
from pykueue.api.pods import is_terminal
from pykueue.api.quantity import Quantity
from pykueue.embedded.admission.amounts import Amounts, amounts, of_pod, plus
from pykueue.embedded.kinds.podspec import qos_class

_ONE = Quantity.of(1)
_STANDARD = ("cpu", "memory", "ephemeral-storage")

#: Core resources that may be counted under their bare name.
COUNTED = (
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
)


def count_name(group: str, plural: str) -> str:
    """`count/jobs.batch`."""
    return f"count/{plural}.{group}" if group else f"count/{plural}"


def is_counted(pod: Object, now: float, deleted_at: float | None) -> bool:
    """Whether a pod still counts: not ended, and not past the grace of its deletion."""
    return not is_terminal(pod) and (deleted_at is None or now <= deleted_at)


def pod_usage(pod: Object) -> Amounts:
    """What a pod that is not terminal counts, `count/pods` aside."""
    requests, limits = of_pod(pod["spec"], "requests"), of_pod(pod["spec"], "limits")
    used: Amounts = {"pods": _ONE}
    for name, value in requests.items():
        if name in _STANDARD or name.startswith("hugepages-"):
            used[name] = value
        used[f"requests.{name}"] = value
    for name, value in limits.items():
        if name in _STANDARD:
            used[f"limits.{name}"] = value
    return used


def claim_usage(claim: Object) -> Amounts:
    """What a PersistentVolumeClaim counts."""
    spec = claim.get("spec") or {}
    requests = amounts((spec.get("resources") or {}).get("requests"))
    used: Amounts = {"persistentvolumeclaims": _ONE}
    storage = requests.get("storage")
    if storage is not None:
        used["requests.storage"] = storage
    name = spec.get("storageClassName")
    if name:
        prefix = f"{name}.storageclass.storage.k8s.io/"
        used[f"{prefix}persistentvolumeclaims"] = _ONE
        if storage is not None:
            used[f"{prefix}requests.storage"] = storage
    return used


def service_usage(service: Object) -> Amounts:
    """What a Service counts."""
    spec = service.get("spec") or {}
    kind, ports = spec.get("type"), len(spec.get("ports") or ())
    used: Amounts = {"services": _ONE}
    if kind in ("NodePort", "LoadBalancer"):
        used["services.nodeports"] = Quantity.of(ports)
    if kind == "LoadBalancer":
        used["services.loadbalancers"] = _ONE
    return used


def usage(group: str, plural: str, obj: Object) -> Amounts:
    """What an object about to be created counts."""
    own: Amounts = {}
    if not group:
        match plural:
            case "pods":
                own = pod_usage(obj)
            case "persistentvolumeclaims":
                own = claim_usage(obj)
            case "services":
                own = service_usage(obj)
            case _ if plural in COUNTED:
                own = {plural: _ONE}
    return plus(own, {count_name(group, plural): _ONE})


def applies(quota: Object, is_pod: bool, obj: Object) -> bool:
    """Whether the object is in all scopes of the quota; scopes are about pods alone."""
    spec = quota.get("spec") or {}
    scopes = [{"scopeName": one, "operator": "Exists"} for one in spec.get("scopes") or ()]
    scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return not scopes or (is_pod and all(_in_scope(one, obj) for one in scopes))


def _in_scope(scope: Object, pod: Object) -> bool:
    spec = pod["spec"]
    match scope["scopeName"]:
        case "BestEffort":
            return qos_class(spec) == "BestEffort"
        case "NotBestEffort":
            return qos_class(spec) != "BestEffort"
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "PriorityClass":
            return _class_matches(scope, spec.get("priorityClassName") or "")
        case "CrossNamespacePodAffinity":
            return _crosses_namespaces(spec.get("affinity") or {})
    return False


def _class_matches(scope: Object, name: str) -> bool:
    values = scope.get("values") or ()
    match scope.get("operator"):
        case "In":
            return name in values
        case "NotIn":
            return name not in values
        case "DoesNotExist":
            return not name
    return bool(name)


def _crosses_namespaces(affinity: Object) -> bool:
    for part in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(part) or {}
        required = terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        preferred = terms.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        for term in (*required, *(one.get("podAffinityTerm") or {} for one in preferred)):
            if term.get("namespaces") or term.get("namespaceSelector") is not None:
                return True
    return False


def texts(values: Amounts) -> dict[str, str]:
    """As objects carry them."""
    return {name: str(value) for name, value in values.items()}
