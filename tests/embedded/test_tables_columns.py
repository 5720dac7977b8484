"""Tables and printer columns: which cells which paths and types give."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykueue.embedded.apiserver.handlers.tables import custom_cell, table
from pykueue.embedded.kinds.base import Kind
from pykueue.embedded.kinds.crdvalidation import check_printer_columns
from pykueue.embedded.objects.jsonpath import field_path, json_path

OBJ: dict[str, Any] = {
    "metadata": {"name": "w", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {"a.b/c": "x"}},
    "spec": {"n": 3, "f": 2.5, "on": True, "tags": ["x", "y", "z"], "empty": None, "deep": {"n": 7}},
    "status": {
        "conditions": [
            {"type": "QuotaReserved", "status": "True", "n": 1},
            {"type": "Admitted", "status": "False", "at": "2026-01-01T00:01:00Z", "n": 2},
        ]
    },
}
NOW = 1767225600.0 + 125


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.n", [3]),
        ("spec.n", [3]),
        ("{.spec.n}", [3]),
        ("$.spec.n", [3]),
        (".spec.none.n", []),
        (".spec['n']", [3]),
        ('.spec["deep"].n', [7]),
        (".metadata.annotations.a\\.b/c", ["x"]),
        (".metadata.annotations['a.b/c']", ["x"]),
        (".spec.tags[0]", ["x"]),
        (".spec.tags[-1]", ["z"]),
        (".spec.tags[9]", []),
        (".spec.tags[0:2]", ["x", "y"]),
        (".spec.tags[*]", ["x", "y", "z"]),
        (".spec.deep.*", [7]),
        ("..at", ["2026-01-01T00:01:00Z"]),
        ('.status.conditions[?(@.type=="Admitted")].status', ["False"]),
        (".status.conditions[?(@.type == 'QuotaReserved')].status", ["True"]),
        (".status.conditions[?(@.at)].type", ["Admitted"]),
        (".status.conditions[?(@.n>1)].type", ["Admitted"]),
        (".status.conditions[?(@.n<=1)].type", ["QuotaReserved"]),
        (".status.conditions[?(@.type!=\"Admitted\")].type", ["QuotaReserved"]),
        (".status.conditions[?(@.n==\"1\")].type", []),
        (".spec.n[0]", []),
        (".", [OBJ]),
    ],
)  # fmt: skip
def test_paths(path: str, found: list[Any]) -> None:
    assert json_path(path)(OBJ) == found


@pytest.mark.parametrize("path", [".a[", ".a[?(@.b", "..", ".a[x]", ".a b", ".a[?(@.b==c)]", "{.a"])
def test_paths_that_cannot_be_read(path: str) -> None:
    with pytest.raises(ValueError, match="JSON path"):
        json_path(path)


@given(st.text(".[]()?@'\"=\\a0*:{} ", max_size=12))
def test_any_path_is_read_or_refused(path: str) -> None:
    try:
        evaluate = json_path(path)
    except ValueError:
        return
    evaluate(OBJ)


def test_paths_of_fields() -> None:
    assert field_path(".spec.replicas") == ("spec", "replicas")
    for path in (".spec.tags[0]", "", "..a"):
        with pytest.raises(ValueError, match="path"):
            field_path(path)


@pytest.mark.parametrize(
    ("kind", "path", "cell"),
    [
        ("string", ".spec.n", "3"),
        ("string", ".spec.on", "true"),
        ("string", ".spec.tags", '["x","y","z"]'),
        ("string", ".spec.tags[*]", "x"),
        ("string", ".spec.none", None),
        ("integer", ".spec.n", 3),
        ("integer", ".spec.on", None),
        ("integer", ".spec.tags[0]", None),
        ("number", ".spec.f", 2.5),
        ("boolean", ".spec.on", True),
        ("boolean", ".spec.n", None),
        ("date", ".metadata.creationTimestamp", "2m5s"),
        ("date", '.status.conditions[?(@.type=="Admitted")].at', "65s"),
        ("date", ".spec.tags[0]", "<invalid>"),
        ("date", ".spec.none", None),
    ],
)
def test_cells_of_printer_columns(kind: str, path: str, cell: Any) -> None:
    assert custom_cell(kind, json_path(path), OBJ, NOW) == cell


def test_columns_that_are_refused() -> None:
    causes = check_printer_columns(
        [
            {"name": "A", "type": "text", "jsonPath": ".a"},
            {"type": "string", "jsonPath": ".a["},
            {"name": "B"},
            1,
        ],
        "c",
    )
    assert [cause.field for cause in causes] == [
        "c[0].type",
        "c[1].name",
        "c[1].jsonPath",
        "c[2].type",
        "c[2].jsonPath",
        "c[3]",
    ]
    assert check_printer_columns([{"name": "A", "type": "date", "jsonPath": ".a"}], "c") == []


def test_tables() -> None:
    class Thing(Kind):
        kind, plural = "Thing", "things"

        def row_conditions(self, obj: dict[str, Any]) -> list[dict[str, Any]]:
            return [{"type": "Completed", "status": "True"}] if obj["spec"]["on"] else []

    whole = table(Thing(), [OBJ], {"resourceVersion": "7"}, NOW)
    assert whole["metadata"] == {"resourceVersion": "7"}
    assert [one["name"] for one in whole["columnDefinitions"]] == ["Name", "Age"]
    assert whole["columnDefinitions"][0]["format"] == "name"
    assert whole["rows"] == [
        {
            "cells": ["w", "2m5s"],
            "conditions": [{"type": "Completed", "status": "True"}],
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": OBJ["metadata"],
            },
        }
    ]
    assert table(Thing(), [OBJ], {}, NOW, "Object", False)["rows"][0]["object"] is OBJ
    bare = table(Thing(), [OBJ], {}, NOW, "None", False, "v1beta1")
    assert bare["apiVersion"] == "meta.k8s.io/v1beta1"
    assert (bare["rows"][0]["object"], bare["columnDefinitions"]) == (None, [])
