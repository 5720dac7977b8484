"""Manifests from YAML: what is read, and what the errors say."""

from __future__ import annotations

import pytest

from pykueue.api.yaml import YamlError, load_documents


def one(text: str) -> dict[str, object]:
    (manifest,) = load_documents(f"apiVersion: v1\nkind: Test\n{text}")
    return {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("010", 8),
        ("08", 8),
        ("0x1F", 31),
        ("1e3", 1000),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1.", 1),
        ("1:02:05", "1:02:05"),
        ("12e", "12e"),
        ("1Gi", "1Gi"),
        ("2026-01-31", "2026-01-31"),
        ("2026-01-31T09:30:00Z", "2026-01-31T09:30:00Z"),
        ("!!timestamp 2026-01-31", "2026-01-31"),
        ("'5'", "5"),
        ("true", True),
        ("~", None),
        ("", None),
        ("=", "="),
        ("<<", "<<"),
        (".inf", ".inf"),
    ],
)
def test_scalars_are_read_as_kubernetes_reads_them(text: str, value: object) -> None:
    assert one(f"a: {text}") == {"a": value}
    assert type(one(f"a: {text}")["a"]) is type(value)


def test_keys_are_text_as_written() -> None:
    assert one("1: a\nyes: b\nnull: c") == {"1": "a", "yes": "b", "null": "c"}


def test_merged_keys_yield_to_written_ones() -> None:
    assert one("base: &b {x: 1, y: 2}\nother: {<<: *b, y: 3}")["other"] == {"x": 1, "y": 3}


def test_documents_and_lists_are_opened_up_in_order() -> None:
    text = """
apiVersion: v1
kind: A
---
# nothing here
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: B}
- apiVersion: kueue.x-k8s.io/v1beta2
  kind: WorkloadList
  items: [{apiVersion: v1, kind: C}]
---
{"apiVersion": "v1", "kind": "D"}
"""
    assert [manifest["kind"] for manifest in load_documents(text)] == ["A", "B", "C", "D"]
    assert load_documents("") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "f: document 1: line 2, column 1: did not find expected node content"),
        (
            "- 1",
            "f: document 1 (line 1): found a list where an object with apiVersion and kind is needed",
        ),
        (
            "kind: A",
            "f: document 1 (line 1): apiVersion is missing; every object names its apiVersion and kind",
        ),
        (
            "apiVersion: v1\nkind: A\n---\n\napiVersion: v1\n",
            "f: document 2 (line 5): kind is missing; every object names its apiVersion and kind",
        ),
        (
            "apiVersion: v1\nkind: List\nitems: [7]",
            "f: document 1 (line 1): items[0]: found the value 7 where an object with apiVersion and kind "
            "is needed",
        ),
        ("a: 1\na: 2", "f: document 1: line 2, column 1: duplicate key 'a'"),
        ("a: 1e999", "f: document 1: line 1, column 4: 1e999 is too large"),
        ("? [1]\n: 2", "f: document 1: line 1, column 3: a key must be text"),
        ("a: &x [*x]", "f: document 1: line 1, column 4: found unconstructable recursive node"),
        ("\tx: 1", "f: document 1: line 1, column 1: found character that cannot start any token"),
        (
            "a: !!python/object:os.system x",
            "f: document 1: line 1, column 4: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/object:os.system'",
        ),
        (
            "a: !!binary aGk=",
            "f: document 1: line 1, column 4: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:binary'",
        ),
    ],
)
def test_errors_name_source_document_and_line(text: str, message: str) -> None:
    with pytest.raises(YamlError) as caught:
        load_documents(text, "f")
    assert str(caught.value) == message


def test_a_bomb_of_aliases_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(YamlError, match="aliases make it too large"):
        load_documents("\n".join(lines))
