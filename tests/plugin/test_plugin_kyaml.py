"""`-o kyaml`: the documents are those of Kubernetes' own encoder (sigs.k8s.io/yaml/kyaml 1.6.0)."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from pykueue.plugin.kyaml import document

CASES: list[tuple[Any, str]] = [
    ({}, "---\n{}\n"),
    (
        {"kind": "List", "apiVersion": "v1", "items": []},
        '---\n{\n  apiVersion: "v1",\n  items: [],\n  kind: "List",\n}\n',
    ),
    (
        {"a": [{"b": 1}, {"c": None}], "d": ["x", 2, {"e": True}]},
        "---\n{\n  a: [{\n    b: 1,\n  }, {\n    c: null,\n  }],\n"
        '  d: [\n    "x",\n    2,\n    {\n      e: true,\n    },\n  ],\n}\n',
    ),
    (
        {"no": 1, "kueue.x-k8s.io/queue-name": "y", "1_000": 2, "-a": 3, "2026-01-01": 4},
        '---\n{\n  "-a": 3,\n  "1_000": 2,\n  "2026-01-01": 4,\n'
        '  kueue.x-k8s.io/queue-name: "y",\n  "no": 1,\n}\n',
    ),
    (
        {"text": "one\n  two\nthree", "q": 'a "b" \\ \x01'},
        '---\n{\n  q: "a \\"b\\" \\\\ \\x01",\n'
        '  text: "\\\n     one\\n\\\n    \\  two\\n\\\n     three\\\n    ",\n}\n',
    ),
]


@pytest.mark.parametrize(("value", "text"), CASES)
def test_documents_are_those_of_kubernetes_and_yaml_reads_them_back(value: Any, text: str) -> None:
    assert document(value) == text
    assert yaml.safe_load(text) == value
