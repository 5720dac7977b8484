"""CustomResourceDefinition: what users describe a kind with. Serving the kind is `apiserver.custom`'s part.

Source: docs/reference/kubernetes-api-machinery.md, section 15.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from pykueue.api.meta import new_condition
from pykueue.api.objects import Object, true_condition
from pykueue.embedded.kinds.base import STATUS, Column, Context, Kind
from pykueue.embedded.kinds.crdvalidation import check_ahead, check_custom_schema, check_printer_columns
from pykueue.embedded.objects.errors import Cause, immutable, invalid, not_supported, required

#: Holds a definition until all its objects are gone.
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"

_PROTECTED_GROUP = re.compile(r"(^|\.)(k8s|kubernetes)\.io$")
_APPROVAL = "api-approved.kubernetes.io"


def condition(kind: str, reason: str, message: str, now: float, status: str = "True") -> Object:
    """One condition of a definition."""
    return new_condition(None, kind, status, reason, message, now)


def is_established(crd: Object) -> bool:
    """Whether its kind may be served."""
    return true_condition(crd.get("status"), "Established") is not None


class CustomResourceDefinition(Kind):
    """apiextensions.k8s.io/v1 CustomResourceDefinition."""

    group = "apiextensions.k8s.io"
    kind = "CustomResourceDefinition"
    plural = "customresourcedefinitions"
    namespaced = False
    short_names = ("crd", "crds")
    categories = ("api-extensions",)
    unconditional_update = False
    shows_deleted = True
    subresources = (STATUS,)
    zero_status: ClassVar[Object] = {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": None,
    }
    columns = (Column("Name", format="name"), Column("Created At", "date"))

    def default(self, obj: Object) -> Object:
        spec = obj.get("spec") or {}
        names = dict(spec.get("names") or {})
        if names.get("kind"):
            names.setdefault("singular", names["kind"].lower())
            names.setdefault("listKind", f"{names['kind']}List")
        completed = {**spec, "names": names, "conversion": _conversion(spec.get("conversion"))}
        if completed.get("preserveUnknownFields") is False:  # nothing else is possible
            del completed["preserveUnknownFields"]
        return obj if completed == spec else {**obj, "spec": completed}

    def prepare_create(self, obj: Object, context: Context) -> Object:
        meta, spec = obj["metadata"], obj["spec"]
        finalizers = [*(meta.get("finalizers") or ())]
        if CLEANUP_FINALIZER not in finalizers:
            finalizers.append(CLEANUP_FINALIZER)
        obj = {**obj, "metadata": {**meta, "finalizers": finalizers}}
        taken = _taken_names(obj, context)
        if taken:
            accepted = condition("NamesAccepted", "MultipleNamesConflict", taken, context.now, "False")
            established = condition(
                "Established", "NotAccepted", "not all names are accepted", context.now, "False"
            )
        else:
            accepted = condition("NamesAccepted", "NoConflicts", "no conflicts found", context.now)
            established = condition(
                "Established", "InitialNamesAccepted", "the initial names have been accepted", context.now
            )
        status = {
            "conditions": [accepted, established],
            "acceptedNames": {} if taken else spec["names"],
            "storedVersions": [one["name"] for one in spec.get("versions") or () if one.get("storage")],
        }
        return {**obj, "status": status}

    def prepare_update(self, new: Object, old: Object, context: Context) -> Object:
        status = old.get("status") or {}
        stored = list(status.get("storedVersions") or ())
        missing = [
            one["name"]
            for one in new["spec"].get("versions") or ()
            if one.get("storage") and one["name"] not in stored
        ]
        names = new["spec"]["names"]
        changed = dict(status)
        if missing:
            changed["storedVersions"] = stored + missing
        if is_established(old) and names != status.get("acceptedNames"):
            changed["acceptedNames"] = names
        return new if changed == status else {**new, "status": changed}

    def compile_ahead(self, obj: Object) -> Iterator[object]:
        versions = (obj.get("spec") or {}).get("versions")
        if isinstance(versions, list) and all(isinstance(one, dict) for one in versions):
            for number, version in enumerate(versions):
                schema = version.get("schema")
                if isinstance(schema, dict) and isinstance(schema.get("openAPIV3Schema"), dict):
                    yield from check_ahead(schema["openAPIV3Schema"], f"{_version_path(number)}{_SCHEMA}")

    def validate(self, obj: Object) -> list[Cause]:
        spec = obj["spec"]
        names, group = spec.get("names") or {}, spec.get("group") or ""
        causes: list[Cause] = []
        wanted = f"{names.get('plural')}.{group}"
        if obj["metadata"].get("name") != wanted:
            causes.append(
                invalid(
                    "metadata.name", obj["metadata"].get("name"), 'must be spec.names.plural+"."+spec.group'
                )
            )
        for key in ("plural", "kind"):
            if not names.get(key):
                causes.append(required(f"spec.names.{key}"))
        if spec.get("scope") not in ("Namespaced", "Cluster"):
            causes.append(not_supported("spec.scope", spec.get("scope"), ["Cluster", "Namespaced"]))
        annotations = obj["metadata"].get("annotations") or {}
        if _PROTECTED_GROUP.search(group) and _APPROVAL not in annotations:
            causes.append(
                required(
                    f"metadata.annotations[{_APPROVAL}]",
                    "protected groups must have approval annotation "
                    f'"{_APPROVAL}", see https://github.com/kubernetes/enhancements/pull/1111',
                )
            )
        if spec.get("preserveUnknownFields"):
            causes.append(
                invalid(
                    "spec.preserveUnknownFields",
                    True,
                    "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
                    "spec.versions[*].schema instead",
                )
            )
        versions = spec.get("versions") or []
        if sum(1 for one in versions if one.get("storage")) != 1:
            causes.append(
                invalid(
                    "spec.versions",
                    [one.get("name") for one in versions],
                    "must have exactly one version marked as storage version",
                )
            )
        for number, version in enumerate(versions):
            causes.extend(_version_causes(version, _version_path(number)))
        return causes

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        causes = []
        after, before = new["spec"], old["spec"]
        for path in (("group",), ("scope",), ("names", "plural"), ("names", "kind")):
            value, was = _at(after, path), _at(before, path)
            if value != was:
                causes.append(immutable("spec." + ".".join(path), value))
        return causes

    def mark_deleted(self, obj: Object, context: Context) -> Object:
        status = obj.get("status") or {}
        terminating = condition(
            "Terminating",
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            context.now,
        )
        return {**obj, "status": {**status, "conditions": [*(status.get("conditions") or ()), terminating]}}

    def cells(self, obj: Object, now: float) -> list[Any]:
        return [obj["metadata"]["name"], obj["metadata"].get("creationTimestamp", "")]


def _at(obj: Object, path: tuple[str, ...]) -> Any:
    value: Any = obj
    for step in path:
        value = (value or {}).get(step)
    return value


def _conversion(given: Object | None) -> Object:
    """How objects are converted, with the port of the service that does it."""
    conversion = given or {"strategy": "None"}
    webhook = conversion.get("webhook") or {}
    client = webhook.get("clientConfig") or {}
    service = client.get("service")
    if not service or "port" in service:
        return conversion
    client = {**client, "service": {**service, "port": 443}}
    return {**conversion, "webhook": {**webhook, "clientConfig": client}}


#: Where the schema of a version is.
_SCHEMA = ".schema.openAPIV3Schema"


def _version_path(number: int) -> str:
    return f"spec.versions[{number}]"


def _version_causes(version: Object, path: str) -> list[Cause]:
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", str(version.get("name") or "")):
        return [
            invalid(
                f"{path}.name",
                version.get("name"),
                "a DNS-1035 label must consist of lower case "
                "alphanumeric characters or '-', start with an alphabetic character, and end with an "
                "alphanumeric character",
            )
        ]
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None:
        return [required(f"{path}.schema.openAPIV3Schema", "schemas are required")]
    return [
        *check_custom_schema(schema, f"{path}{_SCHEMA}"),
        *check_printer_columns(version.get("additionalPrinterColumns"), f"{path}.additionalPrinterColumns"),
    ]


def _taken_names(obj: Object, context: Context) -> str:
    """Which of its names another definition of the group has already, as text, or nothing."""
    spec = obj["spec"]
    names = spec["names"]
    for other in context.objects("apiextensions.k8s.io", "customresourcedefinitions"):
        if other["spec"]["group"] != spec["group"]:
            continue
        theirs = (other.get("status") or {}).get("acceptedNames") or {}
        used = {theirs.get("plural"), theirs.get("singular"), *(theirs.get("shortNames") or ())}
        for key in ("plural", "singular"):
            if names.get(key) in used:
                return f'"{names[key]}" is already in use'
        for short in names.get("shortNames") or ():
            if short in used:
                return f'"{short}" is already in use'
        if names.get("kind") == theirs.get("kind"):
            return f'"{names["kind"]}" is already in use'
    return ""
