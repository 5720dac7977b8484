"""Strategic merge patch on built-in kinds: which lists merge, and what the directives do."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykueue.embedded.apiserver.apply.strategic import strategic_patch
from pykueue.embedded.schema.builtin import builtin_schema
from pykueue.kube.errors import ApiError

POD: dict[str, Any] = {
    "metadata": {"name": "p", "finalizers": ["a/x", "b/y"], "labels": {"k": "v"}},
    "spec": {
        "nodeSelector": {"disk": "ssd"},
        "containers": [
            {
                "name": "one",
                "image": "i1",
                "args": ["x"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
            },
            {"name": "two", "image": "i2"},
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "tolerations": [{"key": "t1"}],
    },
    "status": {"conditions": [{"type": "Ready", "status": "False"}]},
}


def patched(patch: dict[str, Any], doc: dict[str, Any] = POD, kind: str = "Pod", group: str = "") -> Any:
    before = copy.deepcopy(doc)
    result = strategic_patch(doc, patch, builtin_schema(group, "v1", kind))
    assert doc == before
    return result


def in_spec(**patch: Any) -> Any:
    return patched({"spec": patch})["spec"]


def names(elements: list[dict[str, Any]]) -> list[str]:
    return [element["name"] for element in elements]


def test_lists_merge_by_key() -> None:
    containers = in_spec(
        containers=[{"name": "two", "image": "new"}, {"name": "three", "image": "i3"}],
    )["containers"]
    assert containers == [
        POD["spec"]["containers"][0],
        {"name": "two", "image": "new"},
        {"name": "three", "image": "i3"},
    ]
    assert containers[0] is POD["spec"]["containers"][0]


def test_lists_merge_below_merged_elements() -> None:
    one = in_spec(
        containers=[
            {
                "name": "one",
                "args": ["y"],
                "env": [{"name": "B", "value": "9"}],
                "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 81}],
            }
        ]
    )["containers"][0]
    assert one["args"] == ["y"]
    assert one["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "9"}]
    assert one["ports"] == [{"containerPort": 80, "protocol": "TCP", "name": "http"}, {"containerPort": 81}]


def test_conditions_merge_by_type() -> None:
    assert patched({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "New"}]}})[
        "status"
    ]["conditions"] == [{"type": "Ready", "status": "True"}, {"type": "New"}]


def test_other_lists_and_values_replace() -> None:
    spec = in_spec(tolerations=[{"key": "t2"}], nodeSelector={"zone": "a", "disk": None})
    assert spec["tolerations"] == [{"key": "t2"}]
    assert spec["nodeSelector"] == {"zone": "a"}


def test_nothing_changed() -> None:
    assert patched({"metadata": {"labels": {"k": "v"}, "annotations": None}}) is POD
    assert patched({"spec": {"containers": [{"name": "two"}], "tolerations": [{"key": "t1"}]}}) is POD
    assert patched({"metadata": {"finalizers": ["b/y"]}}) is POD


def test_elements_are_deleted() -> None:
    assert names(in_spec(containers=[{"name": "one", "$patch": "delete"}])["containers"]) == ["two"]
    assert (
        in_spec(volumes=[{"name": "v", "$patch": "delete"}, {"name": "none", "$patch": "delete"}])["volumes"]
        == []
    )


def test_replace_directives() -> None:
    spec = in_spec(
        containers=[{"name": "only", "image": "i", "env": [{"name": "A"}]}, {"$patch": "replace"}],
        nodeSelector={"$patch": "replace", "zone": "b"},
        securityContext={"$patch": "delete"},
    )
    assert spec["containers"] == [{"name": "only", "image": "i", "env": [{"name": "A"}]}]
    assert spec["nodeSelector"] == {"zone": "b"}
    assert spec["securityContext"] == {}


def test_primitive_lists_are_unions() -> None:
    assert patched({"metadata": {"finalizers": ["c/z", "a/x"]}})["metadata"]["finalizers"] == [
        "a/x",
        "b/y",
        "c/z",
    ]
    shrunk = patched({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/x"], "finalizers": ["c/z"]}})
    assert shrunk["metadata"]["finalizers"] == ["b/y", "c/z"]
    emptied = patched({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/x", "b/y"]}})
    assert emptied["metadata"]["finalizers"] == []


def test_element_order() -> None:
    def order(wanted: str, given: str = "") -> list[str]:
        spec: dict[str, Any] = {"$setElementOrder/containers": [{"name": one} for one in wanted.split()]}
        if given:
            spec["containers"] = [{"name": one, "image": "x"} for one in given.split()]
        doc = {"spec": {"containers": [{"name": one} for one in "abcd"]}}
        return names(patched({"spec": spec}, doc)["spec"]["containers"])

    assert order("d c b a") == ["d", "c", "b", "a"]
    assert order("c a") == ["b", "c", "a", "d"]
    assert order("a new d", "new") == ["a", "new", "b", "c", "d"]
    assert order("new a", "new") == ["new", "a", "b", "c", "d"]
    finalizers = patched(
        {"metadata": {"$setElementOrder/finalizers": ["b/y", "c/z", "a/x"], "finalizers": ["c/z"]}}
    )["metadata"]["finalizers"]
    assert finalizers == ["b/y", "c/z", "a/x"]


def test_retained_keys() -> None:
    deployment = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert patched(patch, deployment, "Deployment", "apps") == {"spec": {"strategy": {"type": "Recreate"}}}
    volume = in_spec(
        volumes=[{"$retainKeys": ["name", "configMap"], "name": "v", "configMap": {"name": "c"}}]
    )
    assert volume["volumes"] == [{"name": "v", "configMap": {"name": "c"}}]


def test_what_is_new_is_stored_without_directives_and_nulls() -> None:
    doc = {"spec": {}}
    patch = {
        "spec": {
            "affinity": {"$patch": "replace", "nodeAffinity": {"$retainKeys": ["a"], "a": {}}},
            "containers": [{"name": "n", "$setElementOrder/env": [{"name": "A"}], "env": [{"name": "A"}]}],
            "nodeSelector": {"gone": None, "kept": "x"},
        }
    }
    assert patched(patch, doc) == {
        "spec": {
            "affinity": {"nodeAffinity": {"a": {}}},
            "containers": [{"name": "n", "env": [{"name": "A"}]}],
            "nodeSelector": {"kept": "x"},
        }
    }


@pytest.mark.parametrize(
    "patch",
    [
        [],
        {"spec": {"containers": [{"image": "x"}]}},
        {"spec": {"containers": ["x"]}},
        {"spec": {"$patch": "explode"}},
        {"spec": {"containers": [{"name": "one", "$patch": "explode"}]}},
        {"spec": {"$retainKeys": "containers"}},
        {"spec": {"$retainKeys": ["volumes"], "nodeName": "n"}},
        {"spec": {"$setElementOrder/containers": "one"}},
        {"spec": {"$setElementOrder/containers": [{"name": "one"}], "containers": [{"name": "new"}]}},
        {"spec": {"$setElementOrder/tolerations": [{"key": "a"}]}},
    ],
)
def test_patches_that_make_no_sense(patch: Any) -> None:
    with pytest.raises(ApiError) as caught:
        patched(patch)
    assert caught.value.code == 400


NAMES = ["spec", "containers", "name", "env", "metadata", "finalizers", "$patch", "$retainKeys"]
keys = st.sampled_from([*NAMES, "$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers", "a"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["replace", "delete", "one", "A"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(keys, values))
def test_any_patch_gives_an_object_or_a_refusal(patch: dict[str, Any]) -> None:
    before = copy.deepcopy(POD)
    try:
        result = strategic_patch(POD, patch, builtin_schema("", "v1", "Pod"))
    except ApiError:
        result = {}
    assert isinstance(result, dict)
    assert before == POD
