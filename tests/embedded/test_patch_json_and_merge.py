"""JSON patch and merge patch: what changes, what is shared, what is refused."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykueue.embedded.objects.patch import MAX_OPERATIONS, json_patch, merge_patch
from pykueue.kube.errors import ApiError

DOC: dict[str, Any] = {
    "metadata": {"name": "a", "labels": {"team": "red", "tier": "x"}},
    "spec": {"replicas": 1, "list": [{"n": 1}, {"n": 2}], "on": True},
}

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, width=16)
    | st.text("ab/~", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~é", max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)
documents = st.dictionaries(st.text("abc", max_size=2), values, max_size=4)


def refused(code: int, patch: Any, doc: dict[str, Any] = DOC) -> str:
    with pytest.raises(ApiError) as caught:
        json_patch(doc, patch)
    assert caught.value.code == code
    return caught.value.message


def test_merge_replaces_lists_and_removes_nulls() -> None:
    before = copy.deepcopy(DOC)
    merged = merge_patch(DOC, {"metadata": {"labels": {"team": None, "new": "1"}}, "spec": {"list": [3]}})
    assert merged["metadata"] == {"name": "a", "labels": {"tier": "x", "new": "1"}}
    assert merged["spec"] == {"replicas": 1, "list": [3], "on": True}
    assert before == DOC


def test_merge_shares_what_it_leaves_alone() -> None:
    merged = merge_patch(DOC, {"metadata": {"labels": {"team": "blue"}}})
    assert merged["spec"] is DOC["spec"]
    assert merge_patch(DOC, {"spec": {"replicas": 1, "list": [{"n": 1}, {"n": 2}]}, "gone": None}) is DOC


def test_merge_drops_nulls_inside_new_objects() -> None:
    assert merge_patch({}, {"a": {"b": None, "c": {"d": None}}}) == {"a": {"c": {}}}
    listed = merge_patch({}, {"a": [{"b": None, "c": 1}, None, [{"d": None}]]})
    assert listed == {"a": [{"c": 1}, None, [{}]]}
    assert merge_patch({"a": 1}, {"a": {"b": None}}) == {"a": {}}


def test_merge_distinguishes_booleans_from_numbers() -> None:
    assert merge_patch(DOC, {"spec": {"replicas": True}})["spec"]["replicas"] is True
    assert merge_patch({"a": [1]}, {"a": [True]})["a"][0] is True


@pytest.mark.parametrize("patch", [None, [], "x", 1])
def test_merge_refuses_what_is_no_object(patch: Any) -> None:
    with pytest.raises(ApiError) as caught:
        merge_patch(DOC, patch)
    assert caught.value.code == 400


def test_merge_refuses_endless_nesting() -> None:
    patch: dict[str, Any] = {}
    for _ in range(1000):
        patch = {"a": patch}
    with pytest.raises(ApiError) as caught:
        merge_patch(DOC, patch)
    assert caught.value.code == 400


def rfc7386(target: Any, patch: Any) -> Any:
    """The algorithm as the RFC words it, but objects in lists lose their nulls as well."""
    if isinstance(patch, list):
        return [one if one is None else rfc7386({}, one) for one in patch]
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = rfc7386(result.get(key), value)
    return result


@given(documents, documents)
def test_merge_is_what_the_rfc_says(doc: dict[str, Any], patch: dict[str, Any]) -> None:
    expected = rfc7386(doc, patch)
    assert merge_patch(doc, patch) == expected
    if b"null" not in orjson.dumps(patch):
        assert merge_patch(doc, patch, nulls=False) == expected


def test_json_patch_operations_in_order() -> None:
    before = copy.deepcopy(DOC)
    patched = json_patch(
        DOC,
        [
            {"op": "test", "path": "/spec/replicas", "value": 1},
            {"op": "add", "path": "/spec/list/-", "value": {"n": 3}},
            {"op": "add", "path": "/spec/list/0", "value": {"n": 0}},
            {"op": "remove", "path": "/spec/list/1"},
            {"op": "replace", "path": "/metadata/labels/team", "value": "blue"},
            {"op": "copy", "from": "/metadata/labels", "path": "/spec/copied"},
            {"op": "move", "from": "/spec/on", "path": "/spec/off"},
            {"op": "add", "path": "/metadata/labels/a~1b~0c", "value": "odd"},
        ],
    )
    assert patched["spec"] == {
        "replicas": 1,
        "list": [{"n": 0}, {"n": 2}, {"n": 3}],
        "copied": {"team": "blue", "tier": "x"},
        "off": True,
    }
    assert patched["metadata"]["labels"] == {"team": "blue", "tier": "x", "a/b~c": "odd"}
    assert before == DOC


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/spec/replicas", "value": 2},
        {"op": "test", "path": "/spec/replicas", "value": True},
        {"op": "add", "path": "/nowhere/x", "value": 1},
        {"op": "add", "path": "/spec/list/9", "value": 1},
        {"op": "add", "path": "/spec/list/-1", "value": 1},
        {"op": "add", "path": "/spec/list/01", "value": 1},
        {"op": "add", "path": "/spec/replicas/x", "value": 1},
        {"op": "replace", "path": "/spec/list/-", "value": 1},
        {"op": "replace", "path": "/spec/none", "value": 1},
        {"op": "remove", "path": "/spec/none"},
        {"op": "remove", "path": ""},
        {"op": "move", "from": "/none", "path": "/a"},
        {"op": "move", "from": "/spec", "path": "/spec/inside"},
        {"op": "replace", "path": "", "value": []},
    ],
)
def test_json_patch_that_does_not_fit(operation: dict[str, Any]) -> None:
    assert "error in our request" in refused(422, [operation])


@pytest.mark.parametrize(
    "patch",
    [
        {},
        "x",
        [1],
        [{"op": "jump", "path": "/a"}],
        [{"op": "add", "path": "a", "value": 1}],
        [{"op": "add", "path": "/a"}],
        [{"op": "add", "value": 1}],
        [{"op": "move", "path": "/a"}],
        [{"path": "/a", "value": 1}],
    ],
)
def test_json_patch_that_cannot_be_read(patch: Any) -> None:
    refused(400, patch)


def test_json_patch_tests_a_missing_place_for_null() -> None:
    assert json_patch(DOC, [{"op": "test", "path": "/spec/none", "value": None}]) is DOC


def test_json_patch_limits() -> None:
    refused(413, [{"op": "test", "path": "/a", "value": 1}] * (MAX_OPERATIONS + 1))
    doubling = [{"op": "copy", "from": "/a", "path": f"/a/{step}"} for step in range(60)]
    refused(413, doubling, {"a": {"text": "x" * 1000}})


@given(
    documents,
    st.lists(
        st.tuples(
            st.sampled_from(["add", "remove", "replace", "test", "copy", "move"]),
            st.text("/ab01-~", max_size=5),
            values,
        ),
        max_size=4,
    ),
)
def test_json_patch_never_changes_its_input(
    doc: dict[str, Any], operations: list[tuple[str, str, Any]]
) -> None:
    before = copy.deepcopy(doc)
    patch = [{"op": op, "path": path, "from": path[:2], "value": value} for op, path, value in operations]
    with contextlib.suppress(ApiError):
        json_patch(doc, patch)
    assert doc == before
