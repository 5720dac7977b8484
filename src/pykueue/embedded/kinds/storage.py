"""The kinds of storage.k8s.io, which schedulers and autoscalers watch. Nothing here provides volumes.

Source: the Kubernetes API reference of the group; what is refused is what kube-apiserver 1.36 refuses.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pykueue.api.objects import Object
from pykueue.api.quantity import QuantityError, parse
from pykueue.embedded.kinds.base import AGE_COLUMN, NAME_COLUMN, STATUS, Column, Kind
from pykueue.embedded.kinds.podspec import canonical_amounts
from pykueue.embedded.kinds.podvalidation import validate_label_selector
from pykueue.embedded.kinds.printing import age_cell
from pykueue.embedded.objects.errors import (
    Cause,
    duplicate,
    immutable,
    immutable_fields,
    invalid,
    not_supported,
    required,
)
from pykueue.embedded.objects.metadata import name_fault

_GROUP = "storage.k8s.io"
_NOT_NEGATIVE = "must be greater than or equal to 0"
#: Characters of the name by which a driver knows a node.
_LONGEST_NODE_ID = 256
_DRIVER_DEFAULTS: Object = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "storageCapacity": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "volumeLifecycleModes": ["Persistent"],
    "requiresRepublish": False,
    "seLinuxMount": False,
}
_GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")
_LIFECYCLE_MODES = ("Persistent", "Ephemeral")


def _spec(obj: Object) -> Object:
    spec: Object = obj.get("spec") or {}
    return spec


class StorageClass(Kind):
    """storage.k8s.io/v1 StorageClass."""

    group = _GROUP
    kind = "StorageClass"
    plural = "storageclasses"
    namespaced = False
    short_names = ("sc",)
    has_generation = False
    columns = (
        NAME_COLUMN,
        Column("Provisioner"),
        Column("ReclaimPolicy"),
        Column("VolumeBindingMode"),
        Column("AllowVolumeExpansion", "boolean"),
        AGE_COLUMN,
    )

    def default(self, obj: Object) -> Object:
        defaults = {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}
        return obj if all(obj.get(key) for key in defaults) else {**defaults, **obj}

    def cells(self, obj: Object, now: float) -> list[Any]:
        return [
            obj["metadata"]["name"],
            obj.get("provisioner", ""),
            obj.get("reclaimPolicy", ""),
            obj.get("volumeBindingMode", ""),
            bool(obj.get("allowVolumeExpansion")),
            age_cell(obj, now),
        ]


class VolumeAttributesClass(Kind):
    """storage.k8s.io/v1 VolumeAttributesClass."""

    group = _GROUP
    kind = "VolumeAttributesClass"
    plural = "volumeattributesclasses"
    namespaced = False
    short_names = ("vac",)
    has_generation = False
    columns = (NAME_COLUMN, Column("DriverName"), AGE_COLUMN)

    def validate(self, obj: Object) -> list[Cause]:
        causes = [] if obj.get("driverName") else [required("driverName")]
        if not obj.get("parameters"):
            causes.append(required("parameters", "must contain at least one key/value pair"))
        return causes

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return immutable_fields(new, old, ("driverName", "parameters"))

    def cells(self, obj: Object, now: float) -> list[Any]:
        return [obj["metadata"]["name"], obj.get("driverName", ""), age_cell(obj, now)]


class CSIDriver(Kind):
    """storage.k8s.io/v1 CSIDriver."""

    group = _GROUP
    kind = "CSIDriver"
    plural = "csidrivers"
    namespaced = False
    has_generation = False
    columns = (
        NAME_COLUMN,
        Column("AttachRequired", "boolean"),
        Column("PodInfoOnMount", "boolean"),
        Column("StorageCapacity", "boolean"),
        Column("TokenRequests"),
        Column("RequiresRepublish", "boolean"),
        Column("Modes"),
        AGE_COLUMN,
    )

    def default(self, obj: Object) -> Object:
        spec = _spec(obj)
        missing = {key: value for key, value in _DRIVER_DEFAULTS.items() if spec.get(key) in (None, [])}
        return {**obj, "spec": {**spec, **missing}} if missing else obj

    def validate(self, obj: Object) -> list[Cause]:
        spec = _spec(obj)
        causes: list[Cause] = []
        if spec.get("fsGroupPolicy") not in (None, *_GROUP_POLICIES):
            causes.append(not_supported("spec.fsGroupPolicy", spec["fsGroupPolicy"], _GROUP_POLICIES))
        audiences: set[str] = set()
        for index, request in enumerate(spec.get("tokenRequests") or ()):
            audience = request.get("audience", "")
            if audience in audiences:
                causes.append(duplicate(f"spec.tokenRequests[{index}].audience", audience))
            audiences.add(audience)
        for mode in spec.get("volumeLifecycleModes") or ():
            if mode not in _LIFECYCLE_MODES:
                causes.append(not_supported("spec.volumeLifecycleModes", mode, _LIFECYCLE_MODES))
        return causes

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        keys = ("attachRequired", "volumeLifecycleModes")
        return immutable_fields(_spec(new), _spec(old), keys, "spec.")

    def cells(self, obj: Object, now: float) -> list[Any]:
        spec = _spec(obj)
        audiences = ",".join(one.get("audience", "") for one in spec.get("tokenRequests") or ())
        return [
            obj["metadata"]["name"],
            bool(spec.get("attachRequired")),
            bool(spec.get("podInfoOnMount")),
            bool(spec.get("storageCapacity")),
            audiences or "<unset>",
            bool(spec.get("requiresRepublish")),
            ",".join(spec.get("volumeLifecycleModes") or ()) or "<none>",
            age_cell(obj, now),
        ]


class CSINode(Kind):
    """storage.k8s.io/v1 CSINode."""

    group = _GROUP
    kind = "CSINode"
    plural = "csinodes"
    namespaced = False
    has_generation = False
    columns = (NAME_COLUMN, Column("Drivers", "integer"), AGE_COLUMN)

    def validate(self, obj: Object) -> list[Cause]:
        causes: list[Cause] = []
        names: set[str] = set()
        for index, driver in enumerate(_spec(obj).get("drivers") or ()):
            path = f"spec.drivers[{index}]"
            causes += self._validate_driver(driver, path)
            name = driver.get("name", "")
            if name in names:
                causes.append(duplicate(f"{path}.name", name))
            names.add(name)
            keys = driver.get("topologyKeys") or []
            causes += [duplicate(path, key) for place, key in enumerate(keys) if key in keys[:place]]
        return causes

    def _validate_driver(self, driver: Object, path: str) -> list[Cause]:
        causes = [] if driver.get("name") else [required(f"{path}.name")]
        node = driver.get("nodeID") or ""
        if not node:
            causes.append(required(f"{path}.nodeID"))
        elif len(node) > _LONGEST_NODE_ID:
            causes.append(invalid(f"{path}.nodeID", node, f"must be {_LONGEST_NODE_ID} characters or less"))
        count = (driver.get("allocatable") or {}).get("count")
        if count is not None and count < 0:
            causes.append(invalid(f"{path}.allocatable.count", count, _NOT_NEGATIVE))
        return causes

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        """Drivers come and go; one that stays changes nothing but how many volumes the node can take."""
        before = {one.get("name"): _without_allocatable(one) for one in _spec(old).get("drivers") or ()}
        return [
            immutable("spec.drivers", driver)
            for driver in _spec(new).get("drivers") or ()
            if driver.get("name") in before and before[driver["name"]] != _without_allocatable(driver)
        ]

    def cells(self, obj: Object, now: float) -> list[Any]:
        return [obj["metadata"]["name"], len(_spec(obj).get("drivers") or ()), age_cell(obj, now)]


def _without_allocatable(driver: Object) -> Object:
    return {key: value for key, value in driver.items() if key != "allocatable"}


class VolumeAttachment(Kind):
    """storage.k8s.io/v1 VolumeAttachment."""

    group = _GROUP
    kind = "VolumeAttachment"
    plural = "volumeattachments"
    namespaced = False
    has_generation = False
    subresources = (STATUS,)
    zero_status: ClassVar[Object] = {"attached": False}
    columns = (
        NAME_COLUMN,
        Column("Attacher"),
        Column("PV"),
        Column("Node"),
        Column("Attached", "boolean"),
        AGE_COLUMN,
    )

    def validate(self, obj: Object) -> list[Cause]:
        spec = _spec(obj)
        causes = [] if spec.get("attacher") else [required("spec.attacher")]
        source = spec.get("source") or {}
        named, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
        if (named is None) == (inline is None):
            detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
            causes.append(required("spec.source", detail))
        elif named == "":
            causes.append(
                required("spec.source.persistentVolumeName", "must specify non empty persistentVolumeName")
            )
        node = spec.get("nodeName") or ""
        if fault := name_fault(node, "subdomain"):
            causes.append(invalid("spec.nodeName", node, fault))
        return causes

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return [] if _spec(new) == _spec(old) else [immutable("spec", _spec(new))]

    def cells(self, obj: Object, now: float) -> list[Any]:
        spec = _spec(obj)
        return [
            obj["metadata"]["name"],
            spec.get("attacher", ""),
            (spec.get("source") or {}).get("persistentVolumeName") or "",
            spec.get("nodeName", ""),
            bool((obj.get("status") or {}).get("attached")),
            age_cell(obj, now),
        ]


class CSIStorageCapacity(Kind):
    """storage.k8s.io/v1 CSIStorageCapacity."""

    group = _GROUP
    kind = "CSIStorageCapacity"
    plural = "csistoragecapacities"
    has_generation = False
    columns = (NAME_COLUMN, Column("Created At", "date"))
    _AMOUNTS: ClassVar[tuple[str, ...]] = ("capacity", "maximumVolumeSize")

    def default(self, obj: Object) -> Object:
        amounts = {key: obj[key] for key in self._AMOUNTS if obj.get(key) is not None}
        canonical = canonical_amounts(amounts)
        return obj if canonical == amounts else {**obj, **canonical}

    def validate(self, obj: Object) -> list[Cause]:
        causes: list[Cause] = []
        name = obj.get("storageClassName") or ""
        if fault := name_fault(name, "subdomain"):
            causes.append(invalid("storageClassName", name, fault))
        if obj.get("nodeTopology"):
            causes += validate_label_selector(obj["nodeTopology"], "nodeTopology")
        for key in self._AMOUNTS:
            try:
                negative = obj.get(key) is not None and parse(obj[key]).nanos < 0
            except QuantityError as error:
                causes.append(invalid(key, obj[key], str(error)))
                continue
            if negative:
                causes.append(invalid(key, obj[key], _NOT_NEGATIVE))
        return causes

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return immutable_fields(new, old, ("nodeTopology", "storageClassName"))

    def cells(self, obj: Object, now: float) -> list[Any]:
        return [obj["metadata"]["name"], obj["metadata"].get("creationTimestamp")]
