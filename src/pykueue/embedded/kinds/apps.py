"""Built-in kinds that run pods, besides Job: stored and shown, with the defaults a cluster gives them.

What runs their pods is in `controllers/apps`; a DaemonSet is stored and shown, and runs nothing.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pykueue.api.objects import Object, controller_of
from pykueue.embedded.kinds.appsvalidation import (
    deployment_causes,
    selector_causes,
    stateful_set_causes,
    stateful_set_change,
    template_causes,
)
from pykueue.embedded.kinds.base import AGE_COLUMN, NAME_COLUMN, SCALE, STATUS, Column, Context, Kind
from pykueue.embedded.kinds.podspec import default_pod_spec, with_defaults
from pykueue.embedded.kinds.printing import age_cell, containers_cell, images_cell, selector_cell
from pykueue.embedded.objects.errors import Cause, immutable

#: Columns of wide output about the pod template.
_TEMPLATE_COLUMNS = (Column("Containers", priority=1), Column("Images", priority=1))
_SELECTOR_COLUMN = Column("Selector", priority=1)


def default_template(template: Object) -> Object:
    """A pod template with the defaults of its pod spec."""
    spec = template.get("spec")
    if not isinstance(spec, dict):
        return template
    filled = default_pod_spec(spec)
    return template if filled is spec else {**template, "spec": filled}


class _PodKind(Kind):
    """What the kinds with a pod template have in common."""

    group = "apps"
    categories = ("all",)
    #: What the spec gets where the user says nothing.
    defaults: ClassVar[Object] = {}
    #: The field that says how pods are replaced, and what a rolling replacement gets by default.
    strategy: str = ""
    rolling: ClassVar[Object] = {}

    def default(self, obj: Object) -> Object:
        spec = obj.get("spec") or {}
        filled = with_defaults(spec, self.defaults)
        if self.strategy:
            chosen = with_defaults(filled.get(self.strategy) or {}, {"type": "RollingUpdate"})
            if chosen["type"] == "RollingUpdate":
                rolling = with_defaults(chosen.get("rollingUpdate") or {}, self.rolling)
                chosen = {**chosen, "rollingUpdate": rolling}
            if chosen != filled.get(self.strategy):
                filled = {**filled, self.strategy: chosen}
        template = filled.get("template")
        if isinstance(template, dict):
            defaulted = default_template(template)
            if defaulted is not template:
                filled = {**filled, "template": defaulted}
        return obj if filled is spec else {**obj, "spec": filled}

    def validate(self, obj: Object) -> list[Cause]:
        return [*selector_causes(obj["spec"], self.kind.lower()), *template_causes(obj["spec"])]

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        selector = (new.get("spec") or {}).get("selector")
        if selector != (old.get("spec") or {}).get("selector"):
            return [immutable("spec.selector", selector)]
        return []

    def cells(self, obj: Object, now: float) -> list[Any]:
        spec = obj.get("spec") or {}
        pod_spec = (spec.get("template") or {}).get("spec") or {}
        found = [
            obj["metadata"]["name"],
            *self.counts(spec, obj.get("status") or {}),
            age_cell(obj, now),
            containers_cell(pod_spec),
            images_cell(pod_spec),
        ]
        return [*found, selector_cell(spec.get("selector"))] if _SELECTOR_COLUMN in self.columns else found

    def counts(self, spec: Object, status: Object) -> list[Any]:
        """The cells between name and age."""
        raise NotImplementedError


def _ready_cell(spec: Object, status: Object) -> str:
    return f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}"


class Deployment(_PodKind):
    """apps/v1 Deployment."""

    kind = "Deployment"
    plural = "deployments"
    short_names = ("deploy",)
    subresources = (STATUS, SCALE)
    columns = (
        NAME_COLUMN,
        Column("Ready"),
        Column("Up-to-date", "integer"),
        Column("Available", "integer"),
        AGE_COLUMN,
        *_TEMPLATE_COLUMNS,
        _SELECTOR_COLUMN,
    )
    defaults: ClassVar[Object] = {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}
    strategy = "strategy"
    rolling: ClassVar[Object] = {"maxSurge": "25%", "maxUnavailable": "25%"}

    def validate(self, obj: Object) -> list[Cause]:
        return [*super().validate(obj), *deployment_causes(obj["spec"])]

    def counts(self, spec: Object, status: Object) -> list[Any]:
        up_to_date, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
        return [_ready_cell(spec, status), up_to_date, available]


class ReplicaSet(_PodKind):
    """apps/v1 ReplicaSet."""

    kind = "ReplicaSet"
    plural = "replicasets"
    short_names = ("rs",)
    subresources = (STATUS, SCALE)
    columns = (
        NAME_COLUMN,
        Column("Desired", "integer"),
        Column("Current", "integer"),
        Column("Ready", "integer"),
        AGE_COLUMN,
        *_TEMPLATE_COLUMNS,
        _SELECTOR_COLUMN,
    )
    defaults: ClassVar[Object] = {"replicas": 1}
    zero_status: ClassVar[Object] = {"replicas": 0}

    def prepare_create(self, obj: Object, context: Context) -> Object:
        labels = ((obj["spec"].get("template") or {}).get("metadata") or {}).get("labels")
        if labels and not obj["metadata"].get("labels"):
            return {**obj, "metadata": {**obj["metadata"], "labels": labels}}
        return obj

    def counts(self, spec: Object, status: Object) -> list[Any]:
        return [spec.get("replicas", 1), status.get("replicas", 0), status.get("readyReplicas", 0)]


class StatefulSet(_PodKind):
    """apps/v1 StatefulSet."""

    kind = "StatefulSet"
    plural = "statefulsets"
    short_names = ("sts",)
    subresources = (STATUS, SCALE)
    columns = (NAME_COLUMN, Column("Ready"), AGE_COLUMN, *_TEMPLATE_COLUMNS)
    defaults: ClassVar[Object] = {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    }
    strategy = "updateStrategy"
    rolling: ClassVar[Object] = {"partition": 0}
    zero_status: ClassVar[Object] = {"replicas": 0, "availableReplicas": 0}

    def validate(self, obj: Object) -> list[Cause]:
        return [*super().validate(obj), *stateful_set_causes(obj["spec"])]

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return stateful_set_change(new.get("spec") or {}, old.get("spec") or {})

    def counts(self, spec: Object, status: Object) -> list[Any]:
        return [_ready_cell(spec, status)]


class DaemonSet(_PodKind):
    """apps/v1 DaemonSet."""

    kind = "DaemonSet"
    plural = "daemonsets"
    short_names = ("ds",)
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
        _SELECTOR_COLUMN,
    )
    defaults: ClassVar[Object] = {"revisionHistoryLimit": 10}
    strategy = "updateStrategy"
    rolling: ClassVar[Object] = {"maxSurge": 0, "maxUnavailable": 1}
    zero_status: ClassVar[Object] = {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    }

    def counts(self, spec: Object, status: Object) -> list[Any]:
        return [
            status.get("desiredNumberScheduled", 0),
            status.get("currentNumberScheduled", 0),
            status.get("numberReady", 0),
            status.get("updatedNumberScheduled", 0),
            status.get("numberAvailable", 0),
            selector_cell(((spec.get("template") or {}).get("spec") or {}).get("nodeSelector")),
        ]


class ControllerRevision(Kind):
    """apps/v1 ControllerRevision."""

    group = "apps"
    kind = "ControllerRevision"
    plural = "controllerrevisions"
    has_generation = False
    columns = (NAME_COLUMN, Column("Controller"), Column("Revision", "integer"), AGE_COLUMN)

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return [] if new.get("data") == old.get("data") else [immutable("data", new.get("data"))]

    def cells(self, obj: Object, now: float) -> list[Any]:
        owner = controller_of(obj)
        shown = (
            f"{owner['kind'].lower()}.{owner['apiVersion'].partition('/')[0]}/{owner['name']}"
            if owner
            else "<none>"
        )
        return [obj["metadata"]["name"], shown, obj.get("revision", 0), age_cell(obj, now)]
