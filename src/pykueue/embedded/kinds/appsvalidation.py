"""What may not be said in a Deployment, ReplicaSet, StatefulSet or DaemonSet, and what may not change.

Source: the Kubernetes API reference of the apps/v1 kinds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pykueue.api.objects import Object
from pykueue.embedded.kinds.podvalidation import validate_label_selector, validate_pod_spec
from pykueue.embedded.objects.errors import Cause, forbidden, invalid, not_supported, required
from pykueue.embedded.objects.selectors import selector_matches

_PERCENT = re.compile(r"[0-9]+%")
#: Fields of a StatefulSet's spec that may change.
_MUTABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_POLICIES = ("Retain", "Delete")


def selector_causes(spec: Object, kind: str) -> list[Cause]:
    """The selector must be there, and pick the pods of the template."""
    selector = spec.get("selector")
    if selector is None:
        return [required("spec.selector")]
    causes = validate_label_selector(selector, "spec.selector")
    if causes:
        return causes
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        return [invalid("spec.selector", selector, f"empty selector is invalid for {kind}")]
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if not selector_matches(selector, labels):
        detail = "`selector` does not match template `labels`"
        return [invalid("spec.template.metadata.labels", labels, detail)]
    return []


def template_causes(spec: Object) -> list[Cause]:
    """Violations in the pod template of a serving kind: restartPolicy, deadline, negative counts."""
    pod_spec = (spec.get("template") or {}).get("spec")
    causes = list(_negative(spec, ("replicas", "minReadySeconds", "revisionHistoryLimit")))
    if not pod_spec:
        return [*causes, required("spec.template.spec.containers")]
    causes += validate_pod_spec(pod_spec, "spec.template.spec")
    policy = pod_spec.get("restartPolicy")
    if policy in ("OnFailure", "Never"):
        causes.append(not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))
    if pod_spec.get("activeDeadlineSeconds") is not None:
        text = "activeDeadlineSeconds in ReplicaSet is not Supported"
        causes.append(forbidden("spec.template.spec.activeDeadlineSeconds", text))
    return causes


def _negative(spec: Object, fields: Iterable[str]) -> Iterable[Cause]:
    for field in fields:
        if (spec.get(field) or 0) < 0:
            yield invalid(f"spec.{field}", spec[field], "must be greater than or equal to 0")


def deployment_causes(spec: Object) -> list[Cause]:
    """How a Deployment replaces its pods."""
    strategy = spec.get("strategy") or {}
    path = "spec.strategy"
    causes = list(_negative(spec, ("progressDeadlineSeconds",)))
    if spec.get("progressDeadlineSeconds") is not None and spec["progressDeadlineSeconds"] <= (
        spec.get("minReadySeconds") or 0
    ):
        text = "must be greater than minReadySeconds"
        causes.append(invalid("spec.progressDeadlineSeconds", spec["progressDeadlineSeconds"], text))
    match strategy.get("type"):
        case "Recreate":
            if strategy.get("rollingUpdate") is not None:
                text = "may not be specified when strategy `type` is 'Recreate'"
                causes.append(forbidden(f"{path}.rollingUpdate", text))
        case "RollingUpdate":
            rolling = strategy.get("rollingUpdate") or {}
            for field in ("maxUnavailable", "maxSurge"):
                causes += _amount(rolling.get(field), f"{path}.rollingUpdate.{field}")
            if all(rolling.get(field) in (0, "0%") for field in ("maxUnavailable", "maxSurge")):
                text = "may not be 0 when `maxSurge` is 0"
                value = rolling["maxUnavailable"]
                causes.append(invalid(f"{path}.rollingUpdate.maxUnavailable", value, text))
            elif _percent(rolling.get("maxUnavailable")) > 100:
                value = rolling["maxUnavailable"]
                causes.append(
                    invalid(f"{path}.rollingUpdate.maxUnavailable", value, "must not be greater than 100%")
                )
        case other:
            causes.append(not_supported(f"{path}.type", other, ("Recreate", "RollingUpdate")))
    return causes


def _amount(value: Any, path: str) -> list[Cause]:
    """A number of pods or a share of them."""
    if isinstance(value, str) and not _PERCENT.fullmatch(value):
        text = "a valid percent string must be a numeric string followed by an ending '%'"
        return [
            invalid(path, value, f"{text} (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')")
        ]
    if isinstance(value, int) and value < 0:
        return [invalid(path, value, "must be greater than or equal to 0")]
    return []


def _percent(value: Any) -> int:
    return int(value[:-1]) if isinstance(value, str) and _PERCENT.fullmatch(value) else 0


def stateful_set_causes(spec: Object) -> list[Cause]:
    """How a StatefulSet orders and replaces its pods, and what becomes of their claims."""
    causes: list[Cause] = []
    policy = spec.get("podManagementPolicy")
    if policy not in ("OrderedReady", "Parallel"):
        causes.append(not_supported("spec.podManagementPolicy", policy, ("OrderedReady", "Parallel")))
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") not in ("RollingUpdate", "OnDelete"):
        causes.append(
            not_supported("spec.updateStrategy.type", strategy.get("type"), ("RollingUpdate", "OnDelete"))
        )
    elif strategy["type"] == "OnDelete" and strategy.get("rollingUpdate") is not None:
        text = "only allowed for updateStrategy 'RollingUpdate'"
        causes.append(invalid("spec.updateStrategy.rollingUpdate", strategy["rollingUpdate"], text))
    partition = (strategy.get("rollingUpdate") or {}).get("partition") or 0
    if partition < 0:
        path = "spec.updateStrategy.rollingUpdate.partition"
        causes.append(invalid(path, partition, "must be greater than or equal to 0"))
    start = (spec.get("ordinals") or {}).get("start") or 0
    if start < 0:
        causes.append(invalid("spec.ordinals.start", start, "must be greater than or equal to 0"))
    retention = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for field in ("whenDeleted", "whenScaled"):
        if retention.get(field) not in (None, *_POLICIES):
            path = f"spec.persistentVolumeClaimRetentionPolicy.{field}"
            causes.append(not_supported(path, retention[field], _POLICIES))
    return causes


def stateful_set_change(new: Object, old: Object) -> list[Cause]:
    """All that may change is how many pods there are, what they are like, and how they are replaced."""
    if all(new.get(key) == old.get(key) for key in {*new, *old}.difference(_MUTABLE)):
        return []
    listed = ", ".join(f"'{field}'" for field in _MUTABLE[:-1])
    text = f"updates to statefulset spec for fields other than {listed} and '{_MUTABLE[-1]}' are forbidden"
    return [forbidden("spec", text)]
