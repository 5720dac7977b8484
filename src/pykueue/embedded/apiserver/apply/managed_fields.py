"""Who owns which field: the entries of metadata.managedFields.

Tracking starts with a create that names its manager, or else with the first server-side apply; until then an
object has no entries and none are made.

Source: docs/reference/kubernetes-api-machinery.md, section 12.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pykueue.api.objects import Object
from pykueue.embedded.objects.values import MAX_DEPTH

from .fieldsets import LEAF, Fields, difference, union, without_below

APPLY: Final = "Apply"
UPDATE: Final = "Update"

#: Update entries an object keeps; older ones are folded into one.
_MAX_UPDATES: Final = 10
_ANCIENT: Final = "ancient-changes"

#: Fields without an owner: the server sets them, or they identify the object.
UNOWNED: Final[Fields] = {
    "f:apiVersion": LEAF,
    "f:kind": LEAF,
    "f:metadata": {
        ".": LEAF,
        **{
            f"f:{name}": LEAF
            for name in (
                "name",
                "namespace",
                "uid",
                "creationTimestamp",
                "generation",
                "resourceVersion",
                "selfLink",
                "managedFields",
            )
        },
    },
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One manager's fields. `time` is RFC 3339 text, empty when unknown."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    fields: Fields
    time: str = ""

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What makes two entries the same: an applier stays itself in another version."""
        version = self.api_version if self.operation == UPDATE else ""
        return (self.manager, self.operation, version, self.subresource)

    def to_json(self) -> Object:
        """As metadata.managedFields holds it."""
        out: Object = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields,
        }
        if self.subresource:
            out["subresource"] = self.subresource
        if not (self.manager and self.operation and self.api_version and self.time):
            out = {key: value for key, value in out.items() if value != ""}
        return out

    def with_fields(self, fields: Fields) -> Entry:
        """The same with other fields."""
        if fields is self.fields:
            return self
        return Entry(self.manager, self.operation, self.api_version, self.subresource, fields, self.time)

    def shown(self) -> str:
        """As a conflict names it."""
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        if self.operation == UPDATE:
            text += f" using {self.api_version}"
        return text


class Managers:
    """All entries of one object. Changing one makes a new Managers."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries = {entry.identity: entry for entry in entries if entry.fields}

    @classmethod
    def of(cls, obj: Object) -> Managers:
        """The entries a stored object carries."""
        return cls(map(_entry, (obj.get("metadata") or {}).get("managedFields") or ()))

    @classmethod
    def submitted(cls, listed: Any) -> Managers:
        """The valid entries of the managedFields that a client sent."""
        return cls(_entry(one) for one in listed if _is_entry(one)) if isinstance(listed, list) else cls()

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def find(self, identity: tuple[str, str, str, str]) -> Entry | None:
        """The entry of that identity (`Entry.identity`), or None."""
        return self._entries.get(identity)

    def others(self, identity: tuple[str, str, str, str]) -> list[Entry]:
        """The entries of all other managers."""
        return [entry for known, entry in self._entries.items() if known != identity]

    def with_entry(self, entry: Entry) -> Managers:
        """With one entry added or replaced."""
        return Managers([*self.others(entry.identity), entry])

    def after(self, identity: tuple[str, str, str, str], changed: Fields, removed: Fields) -> Managers:
        """After a change by one manager: others lose what it changed, all lose what it removed."""
        left: list[Entry] = []
        for known, entry in self._entries.items():
            fields = entry.fields if known == identity else difference(entry.fields, changed)
            left.append(entry.with_fields(without_below(fields, removed)))
        return Managers(left)

    def to_json(self) -> list[Object]:
        """As metadata.managedFields: appliers first, then by time and name; old updates as one."""
        entries = list(self)
        updates = sorted((one for one in entries if one.operation == UPDATE), key=_age)
        excess = len(updates) - _MAX_UPDATES
        if excess > 0:
            folded: dict[str, Entry] = {}
            for entry in updates[: excess + 1]:
                old = folded.get(entry.api_version)
                fields = entry.fields if old is None else union(old.fields, entry.fields)
                folded[entry.api_version] = Entry(_ANCIENT, UPDATE, entry.api_version, "", fields, entry.time)
            entries = [one for one in entries if one.operation == APPLY]
            entries.extend([*folded.values(), *updates[excess + 1 :]])
        return [entry.to_json() for entry in sorted(entries, key=_order)]


def _age(entry: Entry) -> tuple[str, str, str]:
    return (entry.time, entry.manager, entry.subresource)


def _order(entry: Entry) -> tuple[bool, str, str, str]:
    return (entry.operation != APPLY, *_age(entry))


def _entry(one: Object) -> Entry:
    return Entry(
        one.get("manager", ""),
        one.get("operation", ""),
        one.get("apiVersion", ""),
        one.get("subresource", ""),
        one.get("fieldsV1") or {},
        one.get("time", ""),
    )


def _is_entry(one: Any) -> bool:
    texts = ("manager", "operation", "apiVersion", "subresource", "time")
    return (
        isinstance(one, dict)
        and all(isinstance(one.get(key, ""), str) for key in texts)
        and _is_set(one.get("fieldsV1"), 0)
    )


def _is_set(fields: Any, depth: int) -> bool:
    return (
        depth < MAX_DEPTH
        and isinstance(fields, dict)
        and all(_is_set(below, depth + 1) for below in fields.values())
    )
