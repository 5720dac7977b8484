"""HorizontalPodAutoscalers: stored as autoscaling/v2, seen as autoscaling/v1 too (kubectl creates those)."""

from __future__ import annotations

from typing import Any, ClassVar

from pykueue.api.objects import Object
from pykueue.embedded.kinds.base import AGE_COLUMN, NAME_COLUMN, STATUS, Column, Kind
from pykueue.embedded.kinds.printing import age_cell
from pykueue.embedded.objects.values import with_zero_fields


class HorizontalPodAutoscaler(Kind):
    """autoscaling/v2 HorizontalPodAutoscaler."""

    group = "autoscaling"
    version = "v2"
    kind = "HorizontalPodAutoscaler"
    plural = "horizontalpodautoscalers"
    short_names = ("hpa",)
    categories = ("all",)
    has_generation = False
    subresources = (STATUS,)
    zero_status: ClassVar[Object] = {"desiredReplicas": 0, "currentMetrics": None}
    columns = (
        NAME_COLUMN,
        Column("Reference"),
        Column("Targets"),
        Column("MinPods"),
        Column("MaxPods", "integer"),
        Column("Replicas", "integer"),
        AGE_COLUMN,
    )

    def default(self, obj: Object) -> Object:
        spec = obj.get("spec") or {}
        return obj if spec.get("minReplicas") is not None else {**obj, "spec": {**spec, "minReplicas": 1}}

    def cells(self, obj: Object, now: float) -> list[Any]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        target = spec.get("scaleTargetRef") or {}
        return [
            obj["metadata"]["name"],
            f"{target.get('kind')}/{target.get('name')}",
            "<unknown>",
            str(spec.get("minReplicas", "<unset>")),
            spec.get("maxReplicas", 0),
            status.get("currentReplicas", 0),
            age_cell(obj, now),
        ]


class HorizontalPodAutoscalerV1(HorizontalPodAutoscaler):
    """autoscaling/v1 HorizontalPodAutoscaler: another view of the same stored objects."""

    version = "v1"
    zero_status: ClassVar[Object] = {"currentReplicas": 0, "desiredReplicas": 0}

    def cells(self, obj: Object, now: float) -> list[Any]:
        return super().cells(to_v2(obj), now)


def to_v2(obj: Object) -> Object:
    """An autoscaling/v1 object as v2: the one target becomes a metric."""
    spec = dict(obj.get("spec") or {})
    percent = spec.pop("targetCPUUtilizationPercentage", None)
    if percent is not None:
        target = {"type": "Utilization", "averageUtilization": percent}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    changed = {**obj, "apiVersion": "autoscaling/v2", "spec": spec}
    if "status" in obj:
        status = dict(obj["status"] or {})
        status.pop("currentCPUUtilizationPercentage", None)
        if not status.get("currentReplicas"):
            status.pop("currentReplicas", None)
        changed["status"] = status
    return changed


def from_v2(obj: Object) -> Object:
    """An autoscaling/v2 object as v1: of the metrics only the use of CPU can be shown."""
    spec = {
        key: value for key, value in (obj.get("spec") or {}).items() if key not in ("metrics", "behavior")
    }
    for metric in (obj.get("spec") or {}).get("metrics") or ():
        resource = metric.get("resource") or {}
        percent = (resource.get("target") or {}).get("averageUtilization")
        if resource.get("name") == "cpu" and percent is not None:
            spec["targetCPUUtilizationPercentage"] = percent
    changed = {**obj, "apiVersion": "autoscaling/v1", "spec": spec}
    if "status" in obj:
        hidden = ("conditions", "currentMetrics")
        status = {key: value for key, value in (obj["status"] or {}).items() if key not in hidden}
        changed["status"] = with_zero_fields(status, HorizontalPodAutoscalerV1.zero_status)
    return changed
