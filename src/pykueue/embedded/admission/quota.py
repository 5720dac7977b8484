"""ResourceQuota: what would take a namespace over its quotas is refused; what is admitted is counted at once.

It comes last: nothing may refuse an object once it is counted. Usage goes down again when the quota
controller sees objects go. Source: docs/reference/cluster-workloads.md, 4.8.
"""

from __future__ import annotations

from pykueue.api.objects import Object
from pykueue.api.quantity import Quantity
from pykueue.embedded.admission.amounts import Amounts, amounts
from pykueue.embedded.admission.contract import Lookup
from pykueue.embedded.admission.quota_usage import applies, texts, usage
from pykueue.embedded.objects.errors import forbidden_request

#: A quota on one of these obliges every container to ask for it: quota key to where it is asked.
_OBLIGING = {
    "cpu": ("cpu", "requests"),
    "memory": ("memory", "requests"),
    "requests.cpu": ("cpu", "requests"),
    "requests.memory": ("memory", "requests"),
    "limits.cpu": ("cpu", "limits"),
    "limits.memory": ("memory", "limits"),
}

_ZERO = Quantity.of(0)


def _listed(values: Amounts) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(values.items()))


def _unspecified(quota: Object, spec: Object) -> str:
    """What containers fail to ask for although the quota is on it, as the refusal lists it."""
    missing: dict[str, list[str]] = {}
    hard = (quota.get("status") or {}).get("hard") or {}
    for key in hard:
        resource, part = _OBLIGING.get(key, ("", ""))
        if not resource:
            continue
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            if resource not in ((container.get("resources") or {}).get(part) or {}):
                missing.setdefault(key, []).append(container["name"])
    return "; ".join(f"{key} for: {','.join(sorted(set(names)))}" for key, names in sorted(missing.items()))


def charge(group: str, plural: str, obj: Object, lookup: Lookup) -> list[tuple[Object, Object]]:
    """The quotas an object about to be created counts against: each as it is, and with its new status.

    403 when it would take one of them over its limit.
    """
    namespace = obj["metadata"]["namespace"]
    is_pod = not group and plural == "pods"
    quotas = [one for one in lookup.all("", "resourcequotas", namespace) if applies(one, is_pod, obj)]
    if not quotas:
        return []
    name = obj["metadata"].get("name") or ""
    wanted = usage(group, plural, obj)
    charged = []
    for quota in quotas:
        title = quota["metadata"]["name"]
        named = (quota.get("spec") or {}).get("hard") or {}
        relevant_keys = {*wanted, *_OBLIGING} if is_pod else set(wanted)
        if relevant_keys.isdisjoint(named):
            continue
        status = quota.get("status") or {}
        hard, used = amounts(status.get("hard")), amounts(status.get("used"))
        unknown = sorted(key for key in wanted if key in named and not (key in hard and key in used))
        if unknown:
            raise forbidden_request(
                group, plural, name, f"status unknown for quota: {title}, resources: {','.join(unknown)}"
            )
        if is_pod:
            unspecified = _unspecified(quota, obj["spec"])
            if unspecified:
                raise forbidden_request(
                    group, plural, name, f"failed quota: {title}: must specify {unspecified}"
                )
        relevant = {key: value for key, value in wanted.items() if key in hard}
        over = [key for key, value in relevant.items() if value and hard[key] < used[key] + value]
        if over:
            raise forbidden_request(
                group,
                plural,
                name,
                f"exceeded quota: {title}, requested: {_listed({key: relevant[key] for key in over})}, "
                f"used: {_listed({key: used[key] for key in over})}, "
                f"limited: {_listed({key: hard[key] for key in over})}",
            )
        total = {key: value + relevant.get(key, _ZERO) for key, value in used.items()}
        if relevant:
            changed = {**quota, "status": {**status, "used": texts(total)}}
            charged.append((quota, changed))
    return charged
