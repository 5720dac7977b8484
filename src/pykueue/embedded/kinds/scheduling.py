"""The native groups of pods of scheduling.k8s.io: alpha, served only behind their feature gate.

Source: docs/reference/cluster-workloads.md 3.8.
"""

from __future__ import annotations

from typing import Any

from pykueue.api.objects import Object
from pykueue.embedded.kinds.base import AGE_COLUMN, NAME_COLUMN, STATUS, Column, Context, Kind
from pykueue.embedded.kinds.printing import age_cell
from pykueue.embedded.objects.errors import Cause, immutable, invalid, required

#: The feature gate behind which these kinds are served and heeded.
GATE = "GenericWorkload"
#: Keeps a PodGroup until no pod uses it.
PROTECTION = "scheduling.k8s.io/podgroup-protection"
MAX_TEMPLATES = 8


def _policy_causes(policy: Object, path: str) -> list[Cause]:
    """Violations of: exactly one policy is set, and a gang has a minCount greater than 0."""
    specified = [name for name in ("basic", "gang") if policy.get(name) is not None]
    if not specified:
        return [required(path, "must specify one of: `basic`, `gang`")]
    if len(specified) > 1:
        return [invalid(path, policy, "must specify exactly one of: `basic`, `gang`")]
    least = (policy.get("gang") or {}).get("minCount", 1)
    if least < 1:
        return [invalid(f"{path}.gang.minCount", least, "must be greater than zero")]
    return []


class Workload(Kind):
    """scheduling.k8s.io Workload: the templates of the groups of one program."""

    group = "scheduling.k8s.io"
    version = "v1alpha2"
    kind = "Workload"
    plural = "workloads"

    def validate(self, obj: Object) -> list[Cause]:
        templates = (obj.get("spec") or {}).get("podGroupTemplates") or []
        if not templates:
            return [required("spec.podGroupTemplates", "must have at least one item")]
        causes: list[Cause] = []
        if len(templates) > MAX_TEMPLATES:
            causes.append(
                invalid("spec.podGroupTemplates", len(templates), f"must have at most {MAX_TEMPLATES} items")
            )
        for index, template in enumerate(templates):
            path = f"spec.podGroupTemplates[{index}].schedulingPolicy"
            causes += _policy_causes(template.get("schedulingPolicy") or {}, path)
        return causes

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return [] if new.get("spec") == old.get("spec") else [immutable("spec", new.get("spec"))]


class PodGroup(Kind):
    """scheduling.k8s.io PodGroup: pods that are scheduled together."""

    group = "scheduling.k8s.io"
    version = "v1alpha2"
    kind = "PodGroup"
    plural = "podgroups"
    subresources = (STATUS,)
    columns = (NAME_COLUMN, Column("Policy"), Column("Min-Count"), Column("Scheduled"), AGE_COLUMN)

    def prepare_create(self, obj: Object, context: Context) -> Object:
        metadata = obj["metadata"]
        finalizers = metadata.get("finalizers") or []
        if PROTECTION in finalizers:
            return obj
        return {**obj, "metadata": {**metadata, "finalizers": [*finalizers, PROTECTION]}}

    def validate(self, obj: Object) -> list[Cause]:
        return _policy_causes((obj.get("spec") or {}).get("schedulingPolicy") or {}, "spec.schedulingPolicy")

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return [] if new.get("spec") == old.get("spec") else [immutable("spec", new.get("spec"))]

    def cells(self, obj: Object, now: float) -> list[Any]:
        gang = ((obj.get("spec") or {}).get("schedulingPolicy") or {}).get("gang")
        conditions = (obj.get("status") or {}).get("conditions") or ()
        scheduled = next((one["status"] for one in conditions if one["type"] == "PodGroupScheduled"), "")
        return [
            obj["metadata"]["name"],
            "Basic" if gang is None else "Gang",
            "" if gang is None else gang.get("minCount"),
            scheduled,
            age_cell(obj, now),
        ]
