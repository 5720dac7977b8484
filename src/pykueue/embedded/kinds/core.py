"""Built-in kinds of the core group that need little more than their names.

Names, short names, printed columns and selectable fields: docs/reference/kubernetes-api-machinery.md, 2, 9
and 21.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pykueue.api.objects import Object
from pykueue.api.times import format_time
from pykueue.embedded.kinds.base import (
    AGE_COLUMN,
    ALL_VERBS,
    NAME_COLUMN,
    SCALE,
    STATUS,
    Column,
    Context,
    Kind,
    Subresource,
)
from pykueue.embedded.kinds.printing import age_cell, selector_cell
from pykueue.embedded.objects.errors import Cause, forbidden, immutable, invalid, required

#: Seconds an event is kept.
EVENT_TTL = 3600.0

_BUILTIN_NAMESPACES = ("default", "kube-system", "kube-public")


def field(*path: str) -> Callable[[Object], str]:
    """The text of the field at a path, empty when absent; booleans as `true` and `false`."""

    def get(obj: Object) -> str:
        value: Any = obj
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if value is True or value is False:
            return "true" if value else "false"
        return "" if value is None else str(value)

    return get


class Namespace(Kind):
    """v1 Namespace. Deleting one waits for its content: `spec.finalizers` is emptied by a controller."""

    kind = "Namespace"
    plural = "namespaces"
    namespaced = False
    short_names = ("ns",)
    name_rule = "label"
    has_generation = False
    shows_deleted = True
    verbs = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
    subresources = (STATUS, Subresource("finalize", ("update",)))
    columns = (NAME_COLUMN, Column("Status"), AGE_COLUMN)
    field_selectors: Mapping[str, Callable[[Object], str]] = {"status.phase": field("status", "phase")}

    def prepare_create(self, obj: Object, context: Context) -> Object:
        finalizers = list((obj.get("spec") or {}).get("finalizers") or ())
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")
        meta = obj["metadata"]
        labels = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta["name"]}
        return {
            **obj,
            "metadata": {**meta, "labels": labels},
            "spec": {**(obj.get("spec") or {}), "finalizers": finalizers},
            "status": {"phase": "Active"},
        }

    def prepare_update(self, new: Object, old: Object, context: Context) -> Object:
        finalizers = (old.get("spec") or {}).get("finalizers") or []
        if (new.get("spec") or {}).get("finalizers") == finalizers:
            return new
        return {**new, "spec": {**(new.get("spec") or {}), "finalizers": finalizers}}

    def refuses_deletion(self, obj: Object) -> str:
        return "this namespace may not be deleted" if obj["metadata"]["name"] in _BUILTIN_NAMESPACES else ""

    def holds_content(self, obj: Object) -> bool:
        return bool((obj.get("spec") or {}).get("finalizers"))

    def mark_deleted(self, obj: Object, context: Context) -> Object:
        return {**obj, "status": {**(obj.get("status") or {}), "phase": "Terminating"}}

    def cells(self, obj: Object, now: float) -> list[Any]:
        phase = (obj.get("status") or {}).get("phase", "")
        return [obj["metadata"]["name"], phase, age_cell(obj, now)]


class ConfigMap(Kind):
    """v1 ConfigMap."""

    kind = "ConfigMap"
    plural = "configmaps"
    short_names = ("cm",)
    has_generation = False
    columns = (NAME_COLUMN, Column("Data"), AGE_COLUMN)

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return _immutable_data(new, old)

    def cells(self, obj: Object, now: float) -> list[Any]:
        count = len(obj.get("data") or ()) + len(obj.get("binaryData") or ())
        return [obj["metadata"]["name"], count, age_cell(obj, now)]


def _immutable_data(new: Object, old: Object) -> list[Cause]:
    if not old.get("immutable"):
        return []
    causes = []
    if not new.get("immutable"):
        causes.append(forbidden("immutable", "field is immutable when `immutable` is set"))
    for key in ("data", "binaryData"):
        if new.get(key) != old.get(key):
            causes.append(forbidden(key, "field is immutable when `immutable` is set"))
    return causes


class Secret(Kind):
    """v1 Secret."""

    kind = "Secret"
    plural = "secrets"
    has_generation = False
    columns = (NAME_COLUMN, Column("Type"), Column("Data"), AGE_COLUMN)
    field_selectors: Mapping[str, Callable[[Object], str]] = {"type": field("type")}

    def default(self, obj: Object) -> Object:
        plain = obj.get("stringData")
        if plain is not None:
            encoded = {key: base64.b64encode(text.encode()).decode() for key, text in plain.items()}
            obj = {key: value for key, value in obj.items() if key != "stringData"}
            obj["data"] = {**(obj.get("data") or {}), **encoded}
        return obj if obj.get("type") else {**obj, "type": "Opaque"}

    def validate(self, obj: Object) -> list[Cause]:
        causes = []
        for key, value in (obj.get("data") or {}).items():
            try:
                base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                causes.append(invalid(f"data[{key}]", value, "must be base64"))
        return causes

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        causes = _immutable_data(new, old)
        if new.get("type") != old.get("type"):
            causes.append(immutable("type", new.get("type")))
        return causes

    def cells(self, obj: Object, now: float) -> list[Any]:
        return [obj["metadata"]["name"], obj.get("type", ""), len(obj.get("data") or ()), age_cell(obj, now)]


class ServiceAccount(Kind):
    """v1 ServiceAccount."""

    kind = "ServiceAccount"
    plural = "serviceaccounts"
    short_names = ("sa",)
    has_generation = False
    subresources = (Subresource("token", ("create",), "TokenRequest", "authentication.k8s.io", "v1"),)
    columns = (NAME_COLUMN, Column("Secrets"), AGE_COLUMN)

    def cells(self, obj: Object, now: float) -> list[Any]:
        return [obj["metadata"]["name"], len(obj.get("secrets") or ()), age_cell(obj, now)]


class Service(Kind):
    """v1 Service. There is no service network: addresses are only recorded."""

    kind = "Service"
    plural = "services"
    short_names = ("svc",)
    categories = ("all",)
    name_rule = "label-1035"
    has_generation = False
    subresources = (STATUS,)
    columns = (
        NAME_COLUMN,
        Column("Type"),
        Column("Cluster-IP"),
        Column("External-IP"),
        Column("Port(s)"),
        AGE_COLUMN,
        Column("Selector", priority=1),
    )
    zero_status: ClassVar[Object] = {"loadBalancer": {}}
    field_selectors: Mapping[str, Callable[[Object], str]] = {
        "spec.clusterIP": field("spec", "clusterIP"),
        "spec.type": field("spec", "type"),
    }

    def default(self, obj: Object) -> Object:
        spec = dict(obj.get("spec") or {})
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        if spec["type"] != "ExternalName":
            spec.setdefault("internalTrafficPolicy", "Cluster")
        ports = []
        for port in spec.get("ports") or ():
            filled = {"protocol": "TCP", "targetPort": port.get("port"), **port}
            ports.append(filled)
        if ports:
            spec["ports"] = ports
        return obj if spec == obj.get("spec") else {**obj, "spec": spec}

    def prepare_create(self, obj: Object, context: Context) -> Object:
        spec = obj["spec"]
        if spec["type"] == "ExternalName" or spec.get("clusterIP"):
            return obj
        used = {(one.get("spec") or {}).get("clusterIP") for one in context.objects("", "services")}
        while True:
            address = f"10.96.{context.rng.randint(0, 255)}.{context.rng.randint(1, 254)}"
            if address not in used:
                break
        addresses = {"clusterIP": address, "clusterIPs": [address]}
        families = {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}
        return {**obj, "spec": {**spec, **addresses, **families}}

    def validate(self, obj: Object) -> list[Cause]:
        spec = obj["spec"]
        if spec.get("ports") or spec.get("clusterIP") == "None" or spec["type"] == "ExternalName":
            return []
        return [required("spec.ports")]

    def cells(self, obj: Object, now: float) -> list[Any]:
        spec = obj.get("spec") or {}
        ports = ",".join(
            f"{one.get('port')}:{one['nodePort']}/{one.get('protocol')}"
            if one.get("nodePort")
            else f"{one.get('port')}/{one.get('protocol')}"
            for one in spec.get("ports") or ()
        )
        external = ",".join(spec.get("externalIPs") or ()) or spec.get("externalName") or "<none>"
        return [
            obj["metadata"]["name"],
            spec.get("type", ""),
            spec.get("clusterIP") or "<none>",
            external,
            ports or "<none>",
            age_cell(obj, now),
            selector_cell(spec.get("selector")),
        ]


class LimitRange(Kind):
    """v1 LimitRange, completed when stored."""

    kind = "LimitRange"
    plural = "limitranges"
    short_names = ("limits",)
    has_generation = False

    def default(self, obj: Object) -> Object:
        limits = (obj.get("spec") or {}).get("limits") or []
        completed = [_complete_limit(one) for one in limits]
        if completed == limits:
            return obj
        return {**obj, "spec": {**obj["spec"], "limits": completed}}


def _complete_limit(limit: Object) -> Object:
    """Container limits default from max, default requests from the default limit, else from min."""
    if limit.get("type") != "Container":
        return limit
    default = {**(limit.get("max") or {}), **(limit.get("default") or {})}
    requests = {**(limit.get("min") or {}), **default, **(limit.get("defaultRequest") or {})}
    completed = dict(limit)
    if default:
        completed["default"] = default
    if requests:
        completed["defaultRequest"] = requests
    return completed


class ResourceQuota(Kind):
    """v1 ResourceQuota."""

    kind = "ResourceQuota"
    plural = "resourcequotas"
    short_names = ("quota",)
    has_generation = False
    subresources = (STATUS,)
    columns = (NAME_COLUMN, Column("Request"), Column("Limit"), AGE_COLUMN)

    def cells(self, obj: Object, now: float) -> list[Any]:
        status = obj.get("status") or {}
        used, hard = status.get("used") or {}, status.get("hard") or {}
        shown = {name: f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard)}
        limits = ", ".join(text for name, text in shown.items() if name.startswith("limits."))
        requests = ", ".join(text for name, text in shown.items() if not name.startswith("limits."))
        return [obj["metadata"]["name"], requests, limits, age_cell(obj, now)]


class PersistentVolumeClaim(Kind):
    """v1 PersistentVolumeClaim."""

    kind = "PersistentVolumeClaim"
    plural = "persistentvolumeclaims"
    short_names = ("pvc",)
    has_generation = False
    subresources = (STATUS,)
    columns = (
        NAME_COLUMN,
        Column("Status"),
        Column("Volume"),
        Column("Capacity"),
        Column("Access Modes"),
        Column("StorageClass"),
        Column("VolumeAttributesClass"),
        AGE_COLUMN,
        Column("VolumeMode", priority=1),
    )
    zero_status: ClassVar[Object] = {"phase": "Pending"}

    def default(self, obj: Object) -> Object:
        spec = obj.get("spec") or {}
        return obj if spec.get("volumeMode") else {**obj, "spec": {**spec, "volumeMode": "Filesystem"}}

    def cells(self, obj: Object, now: float) -> list[Any]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        return [
            obj["metadata"]["name"],
            status.get("phase", ""),
            spec.get("volumeName") or "",
            (status.get("capacity") or {}).get("storage") or "",
            ",".join(status.get("accessModes") or ()),
            spec.get("storageClassName") or "",
            spec.get("volumeAttributesClassName") or "<unset>",
            age_cell(obj, now),
            spec.get("volumeMode") or "",
        ]


class PersistentVolume(Kind):
    """v1 PersistentVolume."""

    kind = "PersistentVolume"
    plural = "persistentvolumes"
    namespaced = False
    short_names = ("pv",)
    has_generation = False
    subresources = (STATUS,)
    zero_status: ClassVar[Object] = {"phase": "Pending"}

    def prepare_create(self, obj: Object, context: Context) -> Object:
        since = format_time(context.now)
        return {**obj, "status": {**self.zero_status, "lastPhaseTransitionTime": since}}

    def prepare_status(self, new: Object, old: Object, context: Context) -> Object:
        """The time of the last change of phase is the server's, unless the client names another one."""
        new = super().prepare_status(new, old, context)
        status, before = new.get("status") or {}, old.get("status") or {}
        since, since_before = (one.get("lastPhaseTransitionTime") for one in (status, before))
        if since not in (None, since_before):
            return new
        if status.get("phase") != before.get("phase"):
            since = format_time(context.now)
        else:
            since = since_before
        return {**new, "status": {**status, "lastPhaseTransitionTime": since}} if since else new


class PodTemplate(Kind):
    """v1 PodTemplate."""

    kind = "PodTemplate"
    plural = "podtemplates"


class Endpoints(Kind):
    """v1 Endpoints."""

    kind = "Endpoints"
    plural = "endpoints"
    singular = "endpoints"
    short_names = ("ep",)
    has_generation = False


class ReplicationController(Kind):
    """v1 ReplicationController."""

    kind = "ReplicationController"
    plural = "replicationcontrollers"
    short_names = ("rc",)
    categories = ("all",)
    default_propagation = "Orphan"
    subresources = (STATUS, SCALE)
    zero_status: ClassVar[Object] = {"replicas": 0}
    field_selectors: Mapping[str, Callable[[Object], str]] = {"status.replicas": field("status", "replicas")}


class Binding(Kind):
    """v1 Binding: a request, never stored."""

    kind = "Binding"
    plural = "bindings"
    verbs = ("create",)
