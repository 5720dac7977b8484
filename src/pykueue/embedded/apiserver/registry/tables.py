"""Objects as the rows that kubectl prints, and the printer columns of custom kinds.

Source: docs/reference/kubernetes-api-machinery.md, sections 15 and 21.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.objects.errors import Cause, invalid, not_supported, required
from pykueue.embedded.apiserver.objects.jsonpath import Evaluator
from pykueue.embedded.apiserver.objects.jsonpath import json_path as json_path
from pykueue.embedded.kinds.base import Column, Kind
from pykueue.embedded.kinds.printing import since

_COLUMN_TYPES = ("integer", "number", "string", "boolean", "date")


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


def check_printer_columns(declared: Any, path: str) -> list[Cause]:
    """Why `additionalPrinterColumns` are refused; `path` is where they stand."""
    if declared is None:
        return []
    if not isinstance(declared, list):
        return [invalid(path, declared, "must be an array")]
    causes: list[Cause] = []
    for index, one in enumerate(declared):
        where = f"{path}[{index}]"
        if not isinstance(one, dict):
            causes.append(invalid(where, one, "must be an object"))
            continue
        if not one.get("name"):
            causes.append(required(f"{where}.name"))
        if not one.get("type"):
            causes.append(required(f"{where}.type", f"must be one of {', '.join(_COLUMN_TYPES)}"))
        elif one["type"] not in _COLUMN_TYPES:
            causes.append(not_supported(f"{where}.type", one["type"], _COLUMN_TYPES))
        if not one.get("jsonPath"):
            causes.append(required(f"{where}.jsonPath"))
            continue
        try:
            json_path(one["jsonPath"])
        except ValueError as error:
            causes.append(invalid(f"{where}.jsonPath", one["jsonPath"], str(error)))
    return causes
