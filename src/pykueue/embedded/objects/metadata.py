"""The rules of object metadata: names, labels, owners, finalizers, and what only the server may set.

Source: docs/reference/kubernetes-api-machinery.md, section 8.
"""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from pykueue.api.caching import cached_by_text
from pykueue.api.objects import Object

from .errors import Cause, forbidden, invalid, required, too_long, type_invalid

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_NAME_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
    "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

#: Bytes all annotations of an object may take together.
_ANNOTATION_LIMIT = 256 * 1024
#: Characters of a generated suffix: no vowels, nothing that looks like something else.
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


@lru_cache(maxsize=64)
def time_text(second: int) -> str:
    """Whole seconds since 1970 as RFC 3339."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def new_uid(rng: random.Random) -> str:
    """A random UUID (version 4)."""
    return _uuid_text(rng.getrandbits(128) & ~(0xF << 76) & ~(0x3 << 62) | (4 << 76) | (2 << 62))


def _uuid_text(value: int) -> str:
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class ObjectUids:
    """UUIDs of stored objects: version 7 (RFC 9562), so that they sort by the order of creation.

    Creation times are whole seconds. Where UIDs break the tie between two of them, as among pending
    Workloads, the object that was created first comes first.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        #: Milliseconds and a 12-bit counter within them, of the last one.
        self._last = 0

    def next(self, now: float) -> str:
        """The UID of an object that is created now, in seconds since 1970; greater than all before it."""
        last = int(now * 1000) << 12
        if last <= self._last:
            last = self._last + 1
        self._last = last
        value = (last >> 12) << 80 | 7 << 76 | (last & 0xFFF) << 64 | 2 << 62
        return _uuid_text(value | self._rng.getrandbits(62))


def generated_name(prefix: str, rng: random.Random) -> str:
    """A name from generateName: the prefix cut to 58 characters and five random ones."""
    return prefix[:58] + "".join(rng.choices(_SUFFIX, k=5))


@cached_by_text(4096)
def qualified_name_fault(name: str) -> str:
    """What is wrong with a label key, annotation key or finalizer, or nothing."""
    prefix, slash, part = name.rpartition("/")
    if slash:
        if not prefix:
            return "prefix part must be non-empty"
        if len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix):
            return f"prefix part {_SUBDOMAIN_RULE}"
    if not part:
        return "name part must be non-empty"
    if len(part) > 63:
        return "name part must be no more than 63 bytes"
    return "" if _NAME_PART.fullmatch(part) else _QUALIFIED_RULE


@cached_by_text(4096)
def annotation_key_fault(key: str) -> str:
    """What is wrong with an annotation key, or nothing: the rules are those of its lowercase form."""
    return qualified_name_fault(key.lower())


@cached_by_text(8192)
def label_value_fault(value: str) -> str:
    """What is wrong with a label value, or nothing."""
    if not value:
        return ""
    if len(value) > 63:
        return "must be no more than 63 bytes"
    return "" if _NAME_PART.fullmatch(value) else _VALUE_RULE


def name_fault(name: str, rule: str) -> str:
    """What is wrong with an object's name under a kind's rule, or nothing."""
    match rule:
        case "label":
            if len(name) > 63:
                return "must be no more than 63 bytes"
            return "" if _LABEL.fullmatch(name) else _LABEL_RULE
        case "label-1035":
            if len(name) > 63:
                return "must be no more than 63 bytes"
            return "" if _LABEL_1035.fullmatch(name) else _LABEL_1035_RULE
        case "path":
            if name in (".", ".."):
                return f"may not be {name!r}"
            return "may not contain '/' or '%'" if "/" in name or "%" in name else ""
    if len(name) > 253:
        return "must be no more than 253 bytes"
    return "" if _SUBDOMAIN.fullmatch(name) else _SUBDOMAIN_RULE


def type_causes(metadata: Object) -> list[Cause]:
    """Fields of the wrong JSON type: the rest of the server relies on them."""
    causes: list[Cause] = []
    if _surely_typed(metadata):
        return causes
    for field in ("name", "generateName", "namespace", "uid", "resourceVersion"):
        value = metadata.get(field)
        if value is not None and not isinstance(value, str):
            causes.append(type_invalid(f"metadata.{field}", value, "must be of type string"))
    for field in ("labels", "annotations"):
        value = metadata.get(field)
        if value is None:
            continue
        if not isinstance(value, dict):
            causes.append(type_invalid(f"metadata.{field}", value, "must be of type object"))
            continue
        for key, text in value.items():
            if not isinstance(text, str):
                causes.append(type_invalid(f"metadata.{field}.{key}", text, "must be of type string"))
    for field, kind, name in _OWNED:
        value = metadata.get(field)
        if value is not None and type(value) is not kind:
            causes.append(type_invalid(f"metadata.{field}", value, f"must be of type {name}"))
    for field, kind, name in _LISTS:
        value = metadata.get(field)
        if value is None:
            continue
        if type(value) is not list:
            causes.append(type_invalid(f"metadata.{field}", value, "must be of type array"))
            continue
        for index, one in enumerate(value):
            if type(one) is not kind:
                causes.append(type_invalid(f"metadata.{field}[{index}]", one, f"must be of type {name}"))
            elif field == "managedFields" and isinstance(one, dict):
                causes.extend(_entry_causes(one, f"metadata.managedFields[{index}]"))
    return causes


#: Fields that are no texts.
_INTEGERS: Final = ("generation", "deletionGracePeriodSeconds")
_TEXTS_BY_KEY: Final = ("labels", "annotations")
_NO_TEXTS: Final = frozenset((*_INTEGERS, *_TEXTS_BY_KEY, "finalizers", "ownerReferences", "managedFields"))


#: Lists of which nothing but the items' type is checked.
_KIND_OF_ITEMS: Final[dict[str, type]] = {"finalizers": str, "ownerReferences": dict}


def _surely_typed(metadata: Object) -> bool:
    """Whether the few fields that most objects have, and no others, are there in their types."""
    for field, value in metadata.items():
        kind = type(value)
        if kind is str:
            if field in _NO_TEXTS:
                return False
        elif kind is int:
            if field not in _INTEGERS:
                return False
        elif kind is dict and field in _TEXTS_BY_KEY:
            for text in value.values():
                if type(text) is not str:
                    return False
        elif kind is list and field in _KIND_OF_ITEMS:
            wanted = _KIND_OF_ITEMS[field]
            for one in value:
                if type(one) is not wanted:
                    return False
        else:
            return False
    return True


#: Fields that the server fills in, whatever is sent: what is sent must still be of their type.
_OWNED: Final[tuple[tuple[str, type, str], ...]] = (
    ("generation", int, "integer"),
    ("deletionGracePeriodSeconds", int, "integer"),
    ("creationTimestamp", str, "string"),
    ("deletionTimestamp", str, "string"),
    ("selfLink", str, "string"),
)
_LISTS: Final[tuple[tuple[str, type, str], ...]] = (
    ("finalizers", str, "string"),
    ("ownerReferences", dict, "object"),
    ("managedFields", dict, "object"),
)


def _entry_causes(entry: Object, path: str) -> list[Cause]:
    return [
        type_invalid(f"{path}.{field}", entry[field], "must be of type string")
        for field in ("apiVersion", "fieldsType", "manager", "operation", "subresource", "time")
        if entry.get(field) is not None and type(entry[field]) is not str
    ]


def causes(metadata: Object, rule: str) -> list[Cause]:
    """Everything wrong with the metadata of an object about to be stored."""
    found: list[Cause] = []
    name = metadata.get("name") or ""
    fault = name_fault(name, rule)
    if fault:
        found.append(invalid("metadata.name", name, fault))
    for key, value in (metadata.get("labels") or {}).items():
        fault = qualified_name_fault(key)
        if fault:
            found.append(invalid("metadata.labels", key, fault))
        fault = label_value_fault(value)
        if fault:
            found.append(invalid("metadata.labels", value, fault))
    annotations = metadata.get("annotations")
    if annotations:
        for key in annotations:
            fault = annotation_key_fault(key)
            if fault:
                found.append(invalid("metadata.annotations", key, fault))
        if sum(map(len, annotations)) + sum(map(len, annotations.values())) > _ANNOTATION_LIMIT:
            found.append(too_long("metadata.annotations", _ANNOTATION_LIMIT))
    for finalizer in metadata.get("finalizers") or ():
        fault = qualified_name_fault(finalizer)
        if fault:
            found.append(invalid("metadata.finalizers", finalizer, fault))
    if metadata.get("ownerReferences"):
        found.extend(_owner_causes(metadata["ownerReferences"]))
    return found


def _owner_causes(owners: list[dict[str, Any]]) -> list[Cause]:
    found: list[Cause] = []
    controllers = 0
    for number, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{number}]"
        for field in ("apiVersion", "kind", "name", "uid"):
            value = owner.get(field)
            if not value or not isinstance(value, str):
                found.append(required(f"{path}.{field}", f"{field} must not be empty"))
        if owner.get("controller") is True:
            controllers += 1
    if controllers > 1:
        found.append(
            invalid(
                "metadata.ownerReferences",
                [owner.get("name") for owner in owners if owner.get("controller")],
                "Only one reference can have Controller set to true",
            )
        )
    return found


#: Set by the server alone; what clients send is ignored.
_SERVER_OWNED = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")

#: Not stored when empty.
_LEFT_OUT = ("labels", "annotations", "finalizers", "ownerReferences")


def for_create(sent: Object) -> Object:
    """A new object's metadata without what only the server sets."""
    metadata = {key: value for key, value in sent.items() if value is not None and key not in _SERVER_OWNED}
    for field in ("uid", "resourceVersion", "selfLink", "managedFields"):
        metadata.pop(field, None)
    return _without_empty(metadata)


def _without_empty(metadata: Object) -> Object:
    for field in _LEFT_OUT:
        if field in metadata and not metadata[field]:
            del metadata[field]
    return metadata


def for_update(sent: Object, old: Object) -> Object:
    """A changed object's metadata with everything server-owned as it was.

    The entries of managedFields may be changed by clients: kubectl does so when an object that was applied
    from the client side is applied on the server. An empty list ends tracking.
    """
    metadata = {key: value for key, value in sent.items() if value is not None}
    for field in _SERVER_OWNED:
        if field in old:
            metadata[field] = old[field]
        else:
            metadata.pop(field, None)
    managed = metadata.get("managedFields")
    if managed is None:
        if "managedFields" in old:
            metadata["managedFields"] = old["managedFields"]
    elif managed in ([], [{}]):
        del metadata["managedFields"]  # the documented way to reset tracking
    metadata.pop("selfLink", None)
    metadata["name"] = old["name"]
    metadata["uid"] = old["uid"]
    metadata["resourceVersion"] = old["resourceVersion"]
    if "namespace" in old:
        metadata["namespace"] = old["namespace"]
    return _without_empty(metadata)


def update_causes(sent: Object, old: Object) -> list[Cause]:
    """What the change of metadata may not do."""
    found: list[Cause] = []
    if old.get("deletionTimestamp"):
        added = set(sent.get("finalizers") or ()).difference(old.get("finalizers") or ())
        if added:
            found.append(
                forbidden(
                    "metadata.finalizers",
                    "no new finalizers can be added if the object is being deleted, found new finalizers "
                    f"[]string{{{', '.join(repr(one) for one in sorted(added))}}}".replace("'", '"'),
                )
            )
    return found
