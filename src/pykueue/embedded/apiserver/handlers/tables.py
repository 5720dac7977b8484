"""Objects as the rows that kubectl prints, and the printer columns of custom kinds.

Source: docs/reference/kubernetes-api-machinery.md, sections 15 and 21.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from pykueue.api.objects import Object
from pykueue.embedded.kinds.base import Column, Kind
from pykueue.embedded.kinds.printing import since
from pykueue.embedded.objects.jsonpath import Evaluator


def table(
    kind: Kind,
    objects: Iterable[Object],
    metadata: Object,
    now: float,
    include_object: str = "Metadata",
    with_columns: bool = True,
    version: str = "v1",
) -> Object:
    """A Table of `version` (v1 or v1beta1) of meta.k8s.io; `now` in seconds since 1970.

    `include_object` says what rows carry besides cells: Metadata, Object or None. `with_columns` is false
    for all frames of a watch but the first.
    """
    api_version = f"meta.k8s.io/{version}"
    rows = []
    for obj in objects:
        row: Object = {"cells": kind.cells(obj, now)}
        conditions = kind.row_conditions(obj)
        if conditions:
            row["conditions"] = conditions
        if include_object == "Object":
            row["object"] = obj
        elif include_object == "None":
            row["object"] = None
        else:
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": api_version,
                "metadata": obj["metadata"],
            }
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": metadata,
        "columnDefinitions": column_definitions(kind.columns) if with_columns else [],
        "rows": rows,
    }


def column_definitions(columns: Iterable[Column]) -> list[Object]:
    """Columns as a Table describes them."""
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        }
        for column in columns
    ]


def custom_cell(kind: str, path: Evaluator, obj: Object, now: float) -> Any:
    """The cell of a custom kind's printer column of type `kind`: the first value its path finds."""
    found = path(obj)
    return _cell(kind, found[0], now) if found else None


def _cell(kind: str, value: Any, now: float) -> Any:
    """A value as its column's type prints it; null where it has another type."""
    match kind:
        case "string":
            if value is None or isinstance(value, str):
                return value
            return orjson.dumps(value).decode()
        case "date":
            return None if value is None else since(value, now)
        case "boolean":
            return value if isinstance(value, bool) else None
        case _:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                return None
            if kind == "integer" and isinstance(value, float):
                return int(value) if abs(value) < 2**53 else None
            return value
