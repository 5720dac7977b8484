"""Events: one stored form with two views, core/v1 and events.k8s.io/v1.

Stored as core/v1. Field for field: docs/reference/kubernetes-api-machinery.md, section 20.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pykueue.api.objects import Object
from pykueue.embedded.kinds.base import Column, Kind
from pykueue.embedded.kinds.core import field
from pykueue.embedded.kinds.printing import since
from pykueue.embedded.objects.errors import Cause, invalid, required

#: Names in core/v1 and in events.k8s.io/v1, where they differ.
_RENAMED = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
)
_TO_CORE = {new: old for old, new in _RENAMED}
_TO_EVENTS = dict(_RENAMED)

_OBJECT_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def to_core(event: Object) -> Object:
    """An events.k8s.io/v1 Event as core/v1."""
    core = {_TO_CORE.get(key, key): value for key, value in event.items()}
    core["apiVersion"] = "v1"
    return core


def from_core(event: Object) -> Object:
    """A core/v1 Event as events.k8s.io/v1."""
    view = {_TO_EVENTS.get(key, key): value for key, value in event.items()}
    view["apiVersion"] = "events.k8s.io/v1"
    return view


def _object_fields(prefix: str) -> dict[str, Callable[[Object], str]]:
    return {f"{prefix}.{name}": field(prefix, name) for name in _OBJECT_FIELDS}


def _reporter(event: Object) -> str:
    return str(event.get("reportingComponent") or (event.get("source") or {}).get("component") or "")


class CoreEvent(Kind):
    """v1 Event."""

    kind = "Event"
    plural = "events"
    short_names = ("ev",)
    has_generation = False
    create_on_update = True
    columns = (
        Column("Last Seen"),
        Column("Type"),
        Column("Reason"),
        Column("Object"),
        Column("Subobject", priority=1),
        Column("Source", priority=1),
        Column("Message"),
        Column("First Seen", priority=1),
        Column("Count", "integer", priority=1),
        Column("Name", priority=1, format="name"),
    )
    field_selectors: Mapping[str, Callable[[Object], str]] = {
        **_object_fields("involvedObject"),
        "reason": field("reason"),
        "type": field("type"),
        "reportingComponent": field("reportingComponent"),
        "source": _reporter,
    }

    def validate(self, obj: Object) -> list[Cause]:
        involved = (obj.get("involvedObject") or {}).get("namespace") or ""
        namespace = obj["metadata"].get("namespace") or ""
        if involved not in ("", namespace):
            return [invalid("involvedObject.namespace", involved, "does not match event.namespace")]
        return []

    def cells(self, obj: Object, now: float) -> list[Any]:
        involved = obj.get("involvedObject") or {}
        series = obj.get("series") or {}
        first = obj.get("firstTimestamp") or obj.get("eventTime")
        last = series.get("lastObservedTime") or obj.get("lastTimestamp") or first
        count = series.get("count") or obj.get("count") or 1
        kind = str(involved.get("kind") or "").lower()
        source = obj.get("source") or {}
        shown = ", ".join(
            one for one in (source.get("component") or _reporter(obj), source.get("host")) if one
        )
        return [
            since(last, now),
            obj.get("type", ""),
            obj.get("reason", ""),
            f"{kind}/{involved.get('name') or ''}",
            involved.get("fieldPath") or "",
            shown,
            str(obj.get("message") or "").strip(),
            since(first, now),
            count,
            obj["metadata"]["name"],
        ]


class Event(CoreEvent):
    """events.k8s.io/v1 Event: another view of the same stored objects."""

    group = "events.k8s.io"
    field_selectors: Mapping[str, Callable[[Object], str]] = {
        **_object_fields("regarding"),
        "reason": field("reason"),
        "type": field("type"),
        "reportingController": field("reportingController"),
    }

    def validate(self, obj: Object) -> list[Cause]:
        causes = [
            required(name)
            for name in ("reportingController", "reportingInstance", "action", "reason", "eventTime")
            if not obj.get(name)
        ]
        if obj.get("type") not in ("Normal", "Warning"):
            causes.append(invalid("type", obj.get("type"), "must be Normal or Warning"))
        if len(obj.get("note") or "") > 1024:
            causes.append(invalid("note", "", "can have at most 1024 characters"))
        return causes

    def cells(self, obj: Object, now: float) -> list[Any]:
        return super().cells(to_core(obj), now)
