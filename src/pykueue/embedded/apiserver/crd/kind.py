"""A version of a custom kind, as its CustomResourceDefinition describes it.

Source: docs/reference/kubernetes-api-machinery.md, section 15.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.handlers.tables import custom_cell
from pykueue.embedded.kinds.base import NAME_COLUMN, SCALE, STATUS, Column, Context, Kind
from pykueue.embedded.objects.errors import Cause, invalid
from pykueue.embedded.objects.jsonpath import field_at, field_steps, json_path


class CustomKind(Kind):
    """One version of a custom kind, as its definition describes it."""

    typed = False
    unconditional_update = False

    def __init__(self, crd: Object, version: Object) -> None:
        spec = crd["spec"]
        names = spec["names"]
        self.group = spec["group"]
        self.version = version["name"]
        self.kind = names["kind"]
        self.plural = names["plural"]
        self.singular = names.get("singular") or self.kind.lower()
        self.namespaced = spec["scope"] == "Namespaced"
        self.short_names = tuple(names.get("shortNames") or ())
        self.categories = tuple(names.get("categories") or ())
        subresources = version.get("subresources") or {}
        self.subresources = (
            *((STATUS,) if "status" in subresources else ()),
            *((SCALE,) if "scale" in subresources else ()),
        )
        scale = subresources.get("scale")
        self._scaled = bool(scale)
        if scale:
            self.scale_paths = (
                scale["specReplicasPath"],
                scale["statusReplicasPath"],
                scale.get("labelSelectorPath") or "",
            )
        printed = version.get("additionalPrinterColumns") or ()
        self._cells = [(one["type"], json_path(one["jsonPath"])) for one in printed]
        if printed:
            self.columns = (
                NAME_COLUMN,
                *(
                    Column(
                        one["name"],
                        one["type"],
                        one.get("priority") or 0,
                        one.get("format") or "",
                        one.get("description")
                        or f"Custom resource definition column (in JSONPath format): {one['jsonPath']}",
                    )
                    for one in printed
                ),
            )
        self.field_selectors = {
            one["jsonPath"].lstrip("."): _selectable(one["jsonPath"])
            for one in version.get("selectableFields") or ()
        }

    def prepare_status(self, new: Object, old: Object, context: Context) -> Object:
        """Only the status changes (and, where tracked, its managers)."""
        meta = old["metadata"]
        managed = new["metadata"].get("managedFields")
        if managed != meta.get("managedFields"):
            meta = {**meta, "managedFields": managed}
        kept = {**old, "metadata": meta}
        kept.pop("status", None)
        if "status" in new:
            kept["status"] = new["status"]
        return kept

    def validate(self, obj: Object) -> list[Cause]:
        """What the scale would show must be a number of replicas."""
        return _replica_causes(obj, self.scale_paths[0]) if self._scaled else []

    def validate_status(self, new: Object, old: Object) -> list[Cause]:
        return _replica_causes(new, self.scale_paths[1]) if self._scaled else []

    def cells(self, obj: Object, now: float) -> list[Any]:
        if not self._cells:
            return super().cells(obj, now)
        return [obj["metadata"]["name"], *(custom_cell(kind, path, obj, now) for kind, path in self._cells)]


_MOST_REPLICAS: Final = 2**31 - 1


def _replica_causes(obj: Object, path: str) -> list[Cause]:
    value = field_at(obj, field_steps(path))
    # Other types are the schema's to refuse.
    if type(value) is not int or 0 <= value <= _MOST_REPLICAS:
        return []
    if value < 0:
        return [invalid(path, value, "should be a non-negative integer")]
    return [invalid(path, value, f"should be less than or equal to {_MOST_REPLICAS}")]


def _selectable(path: str) -> Callable[[Object], str]:
    steps = field_steps(path)

    def get(obj: Object) -> str:
        value = field_at(obj, steps)
        if value is True or value is False:
            return "true" if value else "false"
        return "" if value is None else str(value)

    return get
