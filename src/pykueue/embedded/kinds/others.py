"""Built-in kinds of the smaller groups: scheduling, leases, networks, extensions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from pykueue.api.objects import Object
from pykueue.embedded.kinds.base import AGE_COLUMN, NAME_COLUMN, STATUS, Column, Kind
from pykueue.embedded.kinds.printing import age_cell, selector_cell
from pykueue.embedded.objects.errors import Cause, forbidden, immutable_fields, invalid

#: The highest priority a user's PriorityClass may have.
HIGHEST_USER_PRIORITY = 1_000_000_000


class PriorityClass(Kind):
    """scheduling.k8s.io/v1 PriorityClass."""

    group = "scheduling.k8s.io"
    kind = "PriorityClass"
    plural = "priorityclasses"
    namespaced = False
    short_names = ("pc",)
    columns = (
        NAME_COLUMN,
        Column("Value", "integer"),
        Column("Global-Default", "boolean"),
        AGE_COLUMN,
        Column("PreemptionPolicy"),
    )

    def default(self, obj: Object) -> Object:
        return obj if obj.get("preemptionPolicy") else {**obj, "preemptionPolicy": "PreemptLowerPriority"}

    def validate(self, obj: Object) -> list[Cause]:
        name, value = obj["metadata"].get("name") or "", obj.get("value", 0)
        if name.startswith("system-"):
            if name in ("system-cluster-critical", "system-node-critical"):
                return []
            return [forbidden("metadata.name", "priority class names with 'system-' prefix are reserved")]
        if value > HIGHEST_USER_PRIORITY:
            return [
                forbidden(
                    "value", f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
                )
            ]
        return []

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return immutable_fields(new, old, ("value", "preemptionPolicy"))

    def cells(self, obj: Object, now: float) -> list[Any]:
        return [
            obj["metadata"]["name"],
            obj.get("value", 0),
            bool(obj.get("globalDefault")),
            age_cell(obj, now),
            obj.get("preemptionPolicy", ""),
        ]


class Lease(Kind):
    """coordination.k8s.io/v1 Lease."""

    group = "coordination.k8s.io"
    kind = "Lease"
    plural = "leases"
    has_generation = False
    unconditional_update = False
    create_on_update = True
    columns = (NAME_COLUMN, Column("Holder"), AGE_COLUMN)

    def validate(self, obj: Object) -> list[Cause]:
        spec = obj.get("spec") or {}
        causes = []
        if (spec.get("leaseDurationSeconds") or 1) <= 0:
            value = spec["leaseDurationSeconds"]
            causes.append(invalid("spec.leaseDurationSeconds", value, "must be greater than 0"))
        if (spec.get("leaseTransitions") or 0) < 0:
            causes.append(
                invalid(
                    "spec.leaseTransitions", spec["leaseTransitions"], "must be greater than or equal to 0"
                )
            )
        return causes

    def cells(self, obj: Object, now: float) -> list[Any]:
        holder = (obj.get("spec") or {}).get("holderIdentity") or ""
        return [obj["metadata"]["name"], holder, age_cell(obj, now)]


class RuntimeClass(Kind):
    """node.k8s.io/v1 RuntimeClass."""

    group = "node.k8s.io"
    kind = "RuntimeClass"
    plural = "runtimeclasses"
    namespaced = False
    has_generation = False
    columns = (NAME_COLUMN, Column("Handler"), AGE_COLUMN)

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return immutable_fields(new, old, ("handler",))

    def cells(self, obj: Object, now: float) -> list[Any]:
        return [obj["metadata"]["name"], obj.get("handler", ""), age_cell(obj, now)]


class Ingress(Kind):
    """networking.k8s.io/v1 Ingress."""

    group = "networking.k8s.io"
    kind = "Ingress"
    plural = "ingresses"
    short_names = ("ing",)
    subresources = (STATUS,)
    zero_status: ClassVar[Object] = {"loadBalancer": {}}
    columns = (
        NAME_COLUMN,
        Column("Class"),
        Column("Hosts"),
        Column("Address"),
        Column("Ports"),
        AGE_COLUMN,
    )

    def cells(self, obj: Object, now: float) -> list[Any]:
        spec = obj.get("spec") or {}
        hosts = ",".join(one.get("host") or "*" for one in spec.get("rules") or ()) or "*"
        points = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
        return [
            obj["metadata"]["name"],
            spec.get("ingressClassName") or "<none>",
            hosts,
            ",".join(one.get("ip") or one.get("hostname") or "" for one in points),
            "80, 443" if spec.get("tls") else "80",
            age_cell(obj, now),
        ]


class NetworkPolicy(Kind):
    """networking.k8s.io/v1 NetworkPolicy, which limits nothing: there is no network here."""

    group = "networking.k8s.io"
    kind = "NetworkPolicy"
    plural = "networkpolicies"
    short_names = ("netpol",)
    columns = (NAME_COLUMN, Column("Pod-Selector"), AGE_COLUMN)

    def default(self, obj: Object) -> Object:
        spec = obj.get("spec") or {}
        if spec.get("policyTypes"):
            return obj
        types = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
        return {**obj, "spec": {**spec, "policyTypes": types}}

    def cells(self, obj: Object, now: float) -> list[Any]:
        selector = (obj.get("spec") or {}).get("podSelector")
        return [obj["metadata"]["name"], selector_cell(selector), age_cell(obj, now)]


class EndpointSlice(Kind):
    """discovery.k8s.io/v1 EndpointSlice."""

    group = "discovery.k8s.io"
    kind = "EndpointSlice"
    plural = "endpointslices"


class _WebhookConfiguration(Kind):
    group = "admissionregistration.k8s.io"
    namespaced = False
    categories = ("api-extensions",)
    columns = (NAME_COLUMN, Column("Webhooks", "integer"), AGE_COLUMN)

    def default(self, obj: Object) -> Object:
        hooks = obj.get("webhooks") or []
        filled = [
            {
                "failurePolicy": "Fail",
                "matchPolicy": "Equivalent",
                "namespaceSelector": {},
                "objectSelector": {},
                "timeoutSeconds": 10,
                **({"reinvocationPolicy": "Never"} if self.kind.startswith("Mutating") else {}),
                **one,
            }
            for one in hooks
        ]
        return obj if filled == hooks else {**obj, "webhooks": filled}

    def compile_ahead(self, obj: Object) -> Iterator[object]:
        # CEL is an extra, which a server has and a check of manifests may not have.
        from pykueue.embedded.cel.match_conditions import compile_ahead

        for one in obj.get("webhooks") or ():
            yield from compile_ahead(one.get("matchConditions") or ())

    def validate(self, obj: Object) -> list[Cause]:
        from pykueue.embedded.cel.match_conditions import check_conditions

        return [
            cause
            for number, one in enumerate(obj.get("webhooks") or ())
            for cause in check_conditions(
                f"webhooks[{number}].matchConditions", one.get("matchConditions") or ()
            )
        ]

    def cells(self, obj: Object, now: float) -> list[Any]:
        return [obj["metadata"]["name"], len(obj.get("webhooks") or ()), age_cell(obj, now)]


class MutatingWebhookConfiguration(_WebhookConfiguration):
    """admissionregistration.k8s.io/v1 MutatingWebhookConfiguration."""

    kind = "MutatingWebhookConfiguration"
    plural = "mutatingwebhookconfigurations"


class ValidatingWebhookConfiguration(_WebhookConfiguration):
    """admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration."""

    kind = "ValidatingWebhookConfiguration"
    plural = "validatingwebhookconfigurations"


class APIService(Kind):
    """apiregistration.k8s.io/v1 APIService."""

    group = "apiregistration.k8s.io"
    kind = "APIService"
    plural = "apiservices"
    namespaced = False
    categories = ("api-extensions",)
    has_generation = False
    subresources = (STATUS,)
    columns = (NAME_COLUMN, Column("Service"), Column("Available"), AGE_COLUMN)

    def cells(self, obj: Object, now: float) -> list[Any]:
        service = (obj.get("spec") or {}).get("service")
        conditions = (obj.get("status") or {}).get("conditions") or ()
        available = next((one for one in conditions if one.get("type") == "Available"), None)
        shown = "Unknown"
        if available is not None:
            shown = available["status"]
            if shown != "True":
                shown = f"{shown} ({available.get('reason', '')})"
        where = f"{service.get('namespace')}/{service.get('name')}" if service else "Local"
        return [obj["metadata"]["name"], where, shown, age_cell(obj, now)]
