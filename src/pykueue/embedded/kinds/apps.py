"""Built-in kinds that run pods, besides Job: stored and shown, with the defaults a cluster gives them."""

from __future__ import annotations

from typing import Any

from pykueue.embedded.apiserver.status import Cause, immutable
from pykueue.embedded.kinds.base import AGE_COLUMN, NAME_COLUMN, SCALE, STATUS, Column, Kind, Object
from pykueue.embedded.kinds.podspec import default_pod_spec
from pykueue.embedded.kinds.printing import age_cell, containers_cell, images_cell, selector_cell

_TEMPLATE_COLUMNS = (
    Column("Containers", priority=1),
    Column("Images", priority=1),
    Column("Selector", priority=1),
)


def default_template(template: Object) -> Object:
    """A pod template with the defaults of its pod spec."""
    spec = template.get("spec")
    if not isinstance(spec, dict):
        return template
    filled = default_pod_spec(spec)
    return template if filled is spec else {**template, "spec": filled}


def _with_spec(obj: Object, defaults: Object) -> Object:
    spec = obj.get("spec") or {}
    filled = {**defaults, **{key: value for key, value in spec.items() if value is not None}}
    template = filled.get("template")
    if isinstance(template, dict):
        filled["template"] = default_template(template)
    return obj if filled == spec else {**obj, "spec": filled}


def _template_cells(obj: Object) -> list[Any]:
    spec = obj.get("spec") or {}
    pod_spec = (spec.get("template") or {}).get("spec") or {}
    return [containers_cell(pod_spec), images_cell(pod_spec), selector_cell(spec.get("selector"))]


def _same_selector(new: Object, old: Object) -> list[Cause]:
    selector = (new.get("spec") or {}).get("selector")
    if selector != (old.get("spec") or {}).get("selector"):
        return [immutable("spec.selector", selector)]
    return []


class Deployment(Kind):
    """apps/v1 Deployment."""

    group = "apps"
    kind = "Deployment"
    plural = "deployments"
    short_names = ("deploy",)
    categories = ("all",)
    subresources = (STATUS, SCALE)
    columns = (
        NAME_COLUMN,
        Column("Ready"),
        Column("Up-to-date", "integer"),
        Column("Available", "integer"),
        AGE_COLUMN,
        *_TEMPLATE_COLUMNS,
    )

    def default(self, obj: Object) -> Object:
        rolling = {"maxSurge": "25%", "maxUnavailable": "25%"}
        obj = _with_spec(
            obj,
            {
                "replicas": 1,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
            },
        )
        strategy = obj["spec"]["strategy"]
        if strategy.get("type", "RollingUpdate") == "RollingUpdate" and not strategy.get("rollingUpdate"):
            strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
            obj = {**obj, "spec": {**obj["spec"], "strategy": strategy}}
        return obj

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return _same_selector(new, old)

    def cells(self, obj: Object, now: float) -> list[Any]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        return [
            obj["metadata"]["name"],
            f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}",
            status.get("updatedReplicas", 0),
            status.get("availableReplicas", 0),
            age_cell(obj, now),
            *_template_cells(obj),
        ]


class ReplicaSet(Kind):
    """apps/v1 ReplicaSet."""

    group = "apps"
    kind = "ReplicaSet"
    plural = "replicasets"
    short_names = ("rs",)
    categories = ("all",)
    subresources = (STATUS, SCALE)
    columns = (
        NAME_COLUMN,
        Column("Desired", "integer"),
        Column("Current", "integer"),
        Column("Ready", "integer"),
        AGE_COLUMN,
        *_TEMPLATE_COLUMNS,
    )

    def default(self, obj: Object) -> Object:
        return _with_spec(obj, {"replicas": 1})

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return _same_selector(new, old)

    def cells(self, obj: Object, now: float) -> list[Any]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        return [
            obj["metadata"]["name"],
            spec.get("replicas", 1),
            status.get("replicas", 0),
            status.get("readyReplicas", 0),
            age_cell(obj, now),
            *_template_cells(obj),
        ]


class StatefulSet(Kind):
    """apps/v1 StatefulSet."""

    group = "apps"
    kind = "StatefulSet"
    plural = "statefulsets"
    short_names = ("sts",)
    categories = ("all",)
    subresources = (STATUS, SCALE)
    columns = (
        NAME_COLUMN,
        Column("Ready"),
        AGE_COLUMN,
        Column("Containers", priority=1),
        Column("Images", priority=1),
    )

    def default(self, obj: Object) -> Object:
        return _with_spec(
            obj,
            {
                "replicas": 1,
                "podManagementPolicy": "OrderedReady",
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "revisionHistoryLimit": 10,
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            },
        )

    def cells(self, obj: Object, now: float) -> list[Any]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        return [
            obj["metadata"]["name"],
            f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}",
            age_cell(obj, now),
            *_template_cells(obj)[:2],
        ]


class DaemonSet(Kind):
    """apps/v1 DaemonSet."""

    group = "apps"
    kind = "DaemonSet"
    plural = "daemonsets"
    short_names = ("ds",)
    categories = ("all",)
    subresources = (STATUS,)
    columns = (
        NAME_COLUMN,
        Column("Desired", "integer"),
        Column("Current", "integer"),
        Column("Ready", "integer"),
        Column("Up-to-date", "integer"),
        Column("Available", "integer"),
        Column("Node Selector"),
        AGE_COLUMN,
        *_TEMPLATE_COLUMNS,
    )

    def default(self, obj: Object) -> Object:
        rolling = {"maxSurge": 0, "maxUnavailable": 1}
        return _with_spec(
            obj,
            {
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
                "revisionHistoryLimit": 10,
            },
        )

    def cells(self, obj: Object, now: float) -> list[Any]:
        status = obj.get("status") or {}
        template = (obj.get("spec") or {}).get("template") or {}
        return [
            obj["metadata"]["name"],
            status.get("desiredNumberScheduled", 0),
            status.get("currentNumberScheduled", 0),
            status.get("numberReady", 0),
            status.get("updatedNumberScheduled", 0),
            status.get("numberAvailable", 0),
            selector_cell((template.get("spec") or {}).get("nodeSelector")),
            age_cell(obj, now),
            *_template_cells(obj),
        ]


class ControllerRevision(Kind):
    """apps/v1 ControllerRevision."""

    group = "apps"
    kind = "ControllerRevision"
    plural = "controllerrevisions"
    has_generation = False
    columns = (NAME_COLUMN, Column("Controller"), Column("Revision", "integer"), AGE_COLUMN)

    def cells(self, obj: Object, now: float) -> list[Any]:
        owner = next(
            (one for one in obj["metadata"].get("ownerReferences") or () if one.get("controller")), None
        )
        shown = (
            f"{owner['kind'].lower()}.{owner['apiVersion'].partition('/')[0]}/{owner['name']}"
            if owner
            else "<none>"
        )
        return [obj["metadata"]["name"], shown, obj.get("revision", 0), age_cell(obj, now)]
