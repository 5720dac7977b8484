"""Disruption budgets: what may be said in them, and the row `kubectl get pdb` prints.

Source: the Kubernetes API reference of PodDisruptionBudget.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from pykueue.api.objects import Object
from pykueue.embedded.kinds.base import AGE_COLUMN, NAME_COLUMN, STATUS, Column, Kind
from pykueue.embedded.kinds.podvalidation import validate_label_selector
from pykueue.embedded.kinds.printing import age_cell
from pykueue.embedded.objects.errors import Cause, invalid, not_supported

IF_HEALTHY_BUDGET, ALWAYS_ALLOW = "IfHealthyBudget", "AlwaysAllow"
_PERCENT = re.compile(r"[0-9]+%")
_PERCENT_RULE = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)


def _validate_amount(value: Any, path: str) -> list[Cause]:
    """A number of pods, or a percentage of them."""
    if isinstance(value, int):
        return [] if value >= 0 else [invalid(path, value, "must be greater than or equal to 0")]
    if not _PERCENT.fullmatch(value):
        return [invalid(path, value, _PERCENT_RULE)]
    return [] if int(value[:-1]) <= 100 else [invalid(path, value, "must not be greater than 100%")]


class PodDisruptionBudget(Kind):
    """policy/v1 PodDisruptionBudget."""

    group = "policy"
    kind = "PodDisruptionBudget"
    plural = "poddisruptionbudgets"
    short_names = ("pdb",)
    subresources = (STATUS,)
    zero_status: ClassVar[Object] = {
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
    }
    columns = (
        NAME_COLUMN,
        Column("Min Available"),
        Column("Max Unavailable"),
        Column("Allowed Disruptions", "integer"),
        AGE_COLUMN,
    )

    def validate(self, obj: Object) -> list[Cause]:
        spec = obj.get("spec") or {}
        causes: list[Cause] = []
        specified = {
            key: spec[key] for key in ("minAvailable", "maxUnavailable") if spec.get(key) is not None
        }
        if len(specified) > 1:
            causes.append(invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
        for key, value in specified.items():
            causes += _validate_amount(value, f"spec.{key}")
        policy = spec.get("unhealthyPodEvictionPolicy")
        if policy is not None and policy not in (ALWAYS_ALLOW, IF_HEALTHY_BUDGET):
            causes.append(
                not_supported("spec.unhealthyPodEvictionPolicy", policy, [ALWAYS_ALLOW, IF_HEALTHY_BUDGET])
            )
        return causes + validate_label_selector(spec.get("selector") or {}, "spec.selector")

    def cells(self, obj: Object, now: float) -> list[Any]:
        spec = obj.get("spec") or {}
        shown = [spec.get(key) for key in ("minAvailable", "maxUnavailable")]
        return [
            obj["metadata"]["name"],
            *("N/A" if one is None else str(one) for one in shown),
            (obj.get("status") or {}).get("disruptionsAllowed", 0),
            age_cell(obj, now),
        ]
