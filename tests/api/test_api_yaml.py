"""Manifests from YAML: what is read, and what the errors say."""

from __future__ import annotations

import pytest

from pykueue.api.yaml import YamlError, load_documents
from pykueue.api.yaml_values import MAX_DEPTH, STEP, YamlSyntaxError, read_documents, read_in_steps


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
        ("a: &x [*x]", "f: document 1: line 1, column 8: anchor 'x' contains itself"),
        ("\tx: 1", "f: document 1: line 1, column 1: found character that cannot start any token"),
        (
            "a: !!python/object:os.system x",
            "f: document 1: line 1, column 4: the tag 'tag:yaml.org,2002:python/object:os.system' "
            "is not accepted",
        ),
        (
            "a: !!binary aGk=",
            "f: document 1: line 1, column 4: the tag 'tag:yaml.org,2002:binary' is not accepted",
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
    with pytest.raises(YamlError, match="aliases make the document too large"):
        load_documents("\n".join(lines))


def work(text: str) -> tuple[int, int]:
    """Steps that reading a text takes, and values in the largest of its documents."""
    found = list(read_in_steps(text))
    return len(found), max((count(one.value) for one in found if one is not None), default=0)


def count(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(count, value.values()))
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


def test_merge_keys_that_multiply_are_refused() -> None:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 30)]
    with pytest.raises(YamlSyntaxError, match="aliases make the document too large"):
        list(read_documents("\n".join(lines)))


def test_aliases_that_repeat_a_template_are_read_as_copies() -> None:
    text = "base: &b {cpu: [1, 2]}\nall: [" + ", ".join(["*b"] * 200) + "]"
    (document,) = read_documents(text)
    first, second = document.value["all"][:2]
    assert first == second == {"cpu": [1, 2]}
    assert first is not second
    assert first["cpu"] is not second["cpu"]


@pytest.mark.parametrize("text", ["1" + ":1" * 60_000, "1" * 200 + "x", "0b" + "1" * 300, "0x" + "F" * 300])
def test_long_texts_that_look_like_integers_stay_text(text: str) -> None:
    assert one(f"a: {text}")["a"] == text


def test_integers_over_64_bits_are_floats_and_those_beyond_them_errors() -> None:
    assert one("a: 18446744073709551615")["a"] == 2**64 - 1
    assert one("a: 18446744073709551616")["a"] == float(2**64)
    with pytest.raises(YamlError, match=r"line 3, column 4: 1{37}\.\.\. is too large"):
        one("a: " + "1" * 5000)


@pytest.mark.parametrize(
    "text",
    [
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
        "{a: " * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1),
        "- " * (MAX_DEPTH + 1) + "1",
        f"fill: [{'x, ' * 1000}x]\na0: &a0 [1]\n"
        + "\n".join(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, MAX_DEPTH + 1)),
    ],
)
def test_nesting_is_bounded(text: str) -> None:
    with pytest.raises(YamlSyntaxError, match=f"nested deeper than {MAX_DEPTH} levels"):
        list(read_documents(text))


def test_tag_directives_are_bounded() -> None:
    text = "".join(f"%TAG !t{n}! tag:example.com,2000:\n" for n in range(200)) + "--- 1\n"
    with pytest.raises(YamlSyntaxError, match="more than 100 %TAG directives"):
        list(read_documents(text))


def test_reading_pauses_after_a_bounded_number_of_values() -> None:
    values = 20 * STEP
    steps, found = work("[" + "x, " * (values - 1) + "x]")
    assert found == values + 1
    assert steps == 20 + 1
    with pytest.raises(YamlSyntaxError, match="the document has more than 1000 values"):
        list(read_in_steps("[" + "x, " * 1000 + "x]", max_values=1000))


def test_duplicate_keys_are_reported_where_they_are_accepted() -> None:
    (document,) = read_documents("a: 1\nb: {c: 1, c: 2}\na: 3", unique_keys=False)
    assert document.value == {"a": 3, "b": {"c": 2}}
    assert document.duplicates == ["c", "a"]
