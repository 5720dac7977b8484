"""Server-side apply: who owns what, who may change it, what goes when it is left out."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykueue.api.json_equality import same
from pykueue.embedded.apiserver.apply.server_side import apply_in_steps, track_update
from pykueue.embedded.apiserver.crd.structural import custom_schema
from pykueue.embedded.schema.builtin import builtin_schema
from pykueue.kube.errors import ApiError

OPENAPI: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "cohort": {"type": "string"},
                "size": {"type": "integer"},
                "nested": {
                    "type": "object",
                    "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
                },
                "whole": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "additionalProperties": {"type": "string"},
                },
                "list": {"type": "array", "items": {"type": "string"}},
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "ports": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["port", "protocol"],
                    "items": {
                        "type": "object",
                        "required": ["port"],
                        "properties": {
                            "port": {"type": "integer"},
                            "protocol": {"type": "string", "default": "TCP"},
                            "name": {"type": "string"},
                        },
                    },
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "conditions": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                    "items": {
                        "type": "object",
                        "required": ["type"],
                        "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
                    },
                }
            },
        },
    },
}
SCHEMA = custom_schema("example.com", "v1", "Thing", True, OPENAPI)


def thing(spec: dict[str, Any] | None = None, status: Any = None, **meta: Any) -> dict[str, Any]:
    obj = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t", **meta}}
    if spec is not None:
        obj["spec"] = spec
    if status is not None:
        obj["status"] = status
    return obj


def apply(*arguments: Any, **options: Any) -> dict[str, Any]:
    """The object after all steps of an apply."""
    steps = apply_in_steps(*arguments, **options)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            applied: dict[str, Any] = done.value
            return applied


class Server:
    """One object and who writes it."""

    def __init__(self, live: dict[str, Any] | None = None) -> None:
        self.live = live

    def apply(self, manager: str, config: dict[str, Any], force: bool = False, subresource: str = "") -> None:
        before = copy.deepcopy((self.live, config))
        result = apply(
            self.live, config, manager, force, subresource, "2026-01-01T00:00:00Z", SCHEMA, "example.com/v1"
        )
        assert same([*before], [self.live, config])
        self.live = result

    def update(self, manager: str, new: dict[str, Any], subresource: str = "") -> None:
        before = copy.deepcopy(self.live)
        args = (manager, subresource, "2026-01-01T00:00:01Z", SCHEMA, "example.com/v1")
        self.live = track_update(self.live, new, *args) if self.live else track_update(None, new, *args)
        assert before is None or self.live is not None

    def refused(self, manager: str, config: dict[str, Any], subresource: str = "") -> ApiError:
        with pytest.raises(ApiError) as caught:
            self.apply(manager, config, subresource=subresource)
        return caught.value

    @property
    def spec(self) -> dict[str, Any]:
        assert self.live is not None
        return self.live.get("spec", {})  # type: ignore[no-any-return]

    def fields(self, manager: str) -> Any:
        assert self.live is not None
        for entry in self.live["metadata"].get("managedFields", ()):
            if entry["manager"] == manager:
                return entry["fieldsV1"]
        return None


def changed(server: Server, **spec: Any) -> dict[str, Any]:
    """The live object with fields of the spec set, or removed by None, as an update would write it."""
    assert server.live is not None
    merged = {**server.spec, **spec}
    return {**server.live, "spec": {key: value for key, value in merged.items() if value is not None}}


def test_creation_by_apply() -> None:
    server = Server()
    server.apply("m1", thing({"cohort": "a", "nested": {"x": 1}, "ports": [{"port": 80}]}, labels={"l": "v"}))
    assert server.live == thing(
        {"cohort": "a", "nested": {"x": 1}, "ports": [{"port": 80}]},
        labels={"l": "v"},
        managedFields=[
            {
                "manager": "m1",
                "operation": "Apply",
                "apiVersion": "example.com/v1",
                "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": {
                    "f:metadata": {"f:labels": {"f:l": {}}},
                    "f:spec": {
                        "f:cohort": {},
                        "f:nested": {"f:x": {}},
                        "f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}},
                    },
                },
            }
        ],
    )


def test_applying_the_same_again_changes_nothing() -> None:
    server = Server()
    config = thing({"cohort": "a", "tags": ["x"], "ports": [{"port": 80, "name": "n"}]})
    server.apply("m1", config)
    live = server.live
    server.apply("m1", copy.deepcopy(config))
    assert server.live is live


def test_fields_left_out_are_removed() -> None:
    server = Server()
    server.apply("m1", thing({"cohort": "a", "size": 1, "nested": {"x": 1}, "tags": ["x", "y"]}))
    server.apply("m1", thing({"cohort": "a", "tags": ["y"]}))
    assert server.spec == {"cohort": "a", "tags": ["y"]}
    assert server.fields("m1") == {"f:spec": {"f:cohort": {}, "f:tags": {'v:"y"': {}}}}
    server.apply("m1", thing())
    assert server.live is not None
    assert "spec" not in server.live


def test_fields_of_others_stay() -> None:
    server = Server()
    server.apply("m1", thing({"cohort": "a", "size": 1, "ports": [{"port": 1}, {"port": 2}]}))
    server.apply("m2", thing({"size": 1, "ports": [{"port": 2, "name": "two"}], "nested": {"y": 2}}))
    server.apply("m1", thing({"cohort": "a"}))
    assert server.spec == {
        "cohort": "a",
        "size": 1,
        "ports": [{"port": 2, "name": "two"}],
        "nested": {"y": 2},
    }


def test_conflicts_name_manager_and_field() -> None:
    server = Server()
    server.apply("m2", thing({"cohort": "a", "size": 2}))
    error = server.refused("m1", thing({"cohort": "b"}))
    assert (error.code, error.reason) == (409, "Conflict")
    assert error.message == 'Apply failed with 1 conflict: conflict with "m2": .spec.cohort'
    assert error.details["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "m2"', "field": ".spec.cohort"}
    ]
    several = server.refused("m1", thing({"cohort": "b", "size": 3}))
    assert several.message == (
        'Apply failed with 2 conflicts: conflicts with "m2":\n- .spec.cohort\n- .spec.size'
    )


def test_conflicts_in_lists_and_subresources() -> None:
    server = Server(thing({"size": 1}))
    condition = {"type": "Active", "status": "True"}
    server.apply("st", thing(status={"conditions": [condition]}), subresource="status")
    error = server.refused(
        "m1", thing(status={"conditions": [{"type": "Active", "status": "False"}]}), "status"
    )
    assert error.details["causes"] == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "st" with subresource "status"',
            "field": '.status.conditions[type="Active"].status',
        }
    ]


def test_force_takes_over() -> None:
    server = Server()
    server.apply("m2", thing({"cohort": "a", "size": 2}))
    server.apply("m1", thing({"cohort": "b"}), force=True)
    assert server.spec == {"cohort": "b", "size": 2}
    assert server.fields("m2") == {"f:spec": {"f:size": {}}}
    assert server.fields("m1") == {"f:spec": {"f:cohort": {}}}


def test_the_same_value_is_shared() -> None:
    server = Server()
    server.apply("m2", thing({"cohort": "a"}))
    server.apply("m1", thing({"cohort": "a"}))
    server.apply("m2", thing({}))
    assert server.spec == {"cohort": "a"}
    server.apply("m1", thing({}))
    assert server.spec == {}


def test_atomic_parts_are_owned_whole() -> None:
    server = Server()
    server.apply("m1", thing({"whole": {"a": "1"}, "list": ["a"]}))
    assert server.fields("m1") == {"f:spec": {"f:whole": {}, "f:list": {}}}
    error = server.refused("m2", thing({"whole": {"b": "2"}, "list": ["b"]}))
    assert [cause["field"] for cause in error.details["causes"]] == [".spec.whole", ".spec.list"]


def test_unknown_structure_is_owned_field_by_field() -> None:
    server = Server()
    server.apply("m1", thing({"free": {"a": {"b": 1}}}))
    server.apply("m2", thing({"free": {"a": {"c": [1]}}}))
    assert server.spec == {"free": {"a": {"b": 1, "c": [1]}}}
    server.apply("m1", thing({"free": {}}))
    assert server.spec == {"free": {"a": {"c": [1]}}}


def test_status_and_spec_have_their_own_endpoints() -> None:
    server = Server(thing({"size": 1}, {"conditions": []}))
    server.apply("m1", thing({"size": 1}, {"conditions": [{"type": "A"}]}))
    assert server.live is not None
    assert server.live["status"] == {"conditions": []}
    assert server.fields("m1") == {"f:spec": {"f:size": {}}}
    server.apply("m1", thing({"size": 9}, {"conditions": [{"type": "A"}]}, labels={"a": "b"}), True, "status")
    assert server.live["status"] == {"conditions": [{"type": "A"}]}
    assert (server.spec, server.live["metadata"].get("labels")) == ({"size": 1}, None)


def test_a_status_that_is_no_subresource_is_a_field() -> None:
    args = ("m1", False, "", "2026-01-01T00:00:00Z", SCHEMA, "example.com/v1")
    live = apply(None, thing(status={"conditions": [{"type": "A"}]}), *args, status_apart=False)
    assert live["status"] == {"conditions": [{"type": "A"}]}


def test_tracking_starts_with_the_first_apply() -> None:
    server = Server()
    server.update("u", thing({"cohort": "a"}))
    server.update("u", changed(server, size=1))
    assert server.live == thing({"cohort": "a", "size": 1})
    error = server.refused("m1", thing({"cohort": "b"}))
    assert error.message == (
        'Apply failed with 1 conflict: conflict with "before-first-apply" using example.com/v1: .spec.cohort'
    )
    server.apply("m1", thing({"cohort": "a"}))
    assert server.fields("before-first-apply") == {
        "f:spec": {".": {}, "f:cohort": {}, "f:size": {}},
    }


def test_updates_own_what_they_change() -> None:
    server = Server()
    server.apply("m1", thing({"cohort": "a", "size": 1, "ports": [{"port": 1}]}))
    server.update("u", changed(server, cohort="b", nested={"x": 1}, ports=None))
    assert server.fields("u") == {"f:spec": {"f:cohort": {}, "f:nested": {".": {}, "f:x": {}}}}
    assert server.fields("m1") == {"f:spec": {"f:size": {}}}
    error = server.refused("m1", thing({"cohort": "a", "size": 1}))
    assert error.message.startswith('Apply failed with 1 conflict: conflict with "u" using example.com/v1:')


def test_an_update_that_changes_nothing_keeps_the_entries() -> None:
    server = Server()
    server.apply("m1", thing({"cohort": "a"}))
    assert server.live is not None
    entries = server.live["metadata"]["managedFields"]
    server.update("u", copy.deepcopy(server.live))
    assert server.live["metadata"]["managedFields"] == entries
    without = thing({"cohort": "a"})
    server.update("u", without)
    assert server.live["metadata"]["managedFields"] == entries


@pytest.mark.parametrize("listed", [[], [{}]])
def test_entries_can_be_reset(listed: list[Any]) -> None:
    server = Server()
    server.apply("m1", thing({"cohort": "a"}))
    server.update("u", thing({"cohort": "b"}, managedFields=listed))
    assert server.live == thing({"cohort": "b"})


def test_old_updates_are_folded() -> None:
    server = Server()
    server.apply("m1", thing({"cohort": "a"}))
    for number in range(15):
        server.update(
            f"u{number:02d}", changed(server, free={**server.spec.get("free", {}), f"k{number}": 1})
        )
    assert server.live is not None
    entries = server.live["metadata"]["managedFields"]
    assert [entry["operation"] for entry in entries] == ["Apply"] + ["Update"] * 10
    assert "ancient-changes" in [entry["manager"] for entry in entries]


def test_kubectl_takes_over_what_it_applied_before() -> None:
    key = "kubectl.kubernetes.io/last-applied-configuration"
    last = thing({"cohort": "a", "nested": {"x": 1}})
    live = thing({"cohort": "a", "size": 1, "nested": {"x": 1}}, annotations={key: json.dumps(last)})
    assert Server(live).refused("other", thing({"cohort": "b"})).code == 409
    assert Server(live).refused("kubectl", thing({"cohort": "b", "size": 2})).code == 409
    server = Server(live)
    server.apply("kubectl", thing({"cohort": "b"}))
    assert server.spec == {"cohort": "b", "size": 1}
    assert server.fields("kubectl") == {"f:spec": {"f:cohort": {}}}
    assert server.live is not None
    assert json.loads(server.live["metadata"]["annotations"][key]) == thing({"cohort": "b"})
    settled = server.live
    server.apply("kubectl", thing({"cohort": "b"}))
    assert server.live is settled


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"zzz": 1}, ".spec.zzz: field not declared in schema"),
        ({"size": "1"}, '.spec.size: expected numeric (int or float), got "1"'),
        ({"ports": {}}, ".spec.ports: expected list, got {}"),
        ({"nested": []}, ".spec.nested: expected map, got []"),
        ({"tags": ["a", "a"]}, '.spec.tags: duplicate entries for key [="a"]'),
        (
            {"ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]},
            '.spec.ports: duplicate entries for key [port=1,protocol="TCP"]',
        ),
        (
            {"ports": [{"name": "n"}]},
            ".spec.ports: element 0: associative list with keys has an element that omits key field "
            '"port" (and doesn\'t have default value)',
        ),
    ],
)
def test_configurations_that_do_not_fit(spec: dict[str, Any], fault: str) -> None:
    error = Server().refused("m", thing(spec))
    assert error.code == 500
    assert error.message == (f"failed to create typed patch object (/t; example.com/v1, Kind=Thing): {fault}")


def test_damaged_entries_are_left_out() -> None:
    deep: dict[str, Any] = {}
    for _ in range(1000):
        deep = {"f:a": deep}
    good = {
        "manager": "good",
        "operation": "Apply",
        "apiVersion": "example.com/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:cohort": {}}},
    }
    listed = [
        None,
        {"manager": 1, "operation": "Apply", "fieldsV1": {"f:spec": {}}},
        {"manager": "x", "operation": "Apply", "fieldsV1": {"f:spec": 1}},
        {"manager": "y", "operation": "Apply", "fieldsV1": "{}"},
        {"manager": "z", "operation": "Apply", "fieldsV1": deep},
        good,
    ]
    server = Server()
    server.apply("m1", thing({"cohort": "a"}))
    server.update("u", thing({"cohort": "a"}, managedFields=listed))
    assert server.live == thing({"cohort": "a"}, managedFields=[good])


def test_built_in_lists_and_numbers_for_quantities() -> None:
    schema = builtin_schema("", "v1", "Pod")
    args = ("2026-01-01T00:00:00Z", schema, "v1")

    def pod(*containers: dict[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "spec": {"containers": [*containers]},
        }

    live = apply(None, pod({"name": "a", "resources": {"requests": {"cpu": 1}}}), "m1", False, "", *args)
    assert live["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}
    shared = pod({"name": "a", "resources": {"requests": {"cpu": "1000m"}}}, {"name": "b"})
    live = apply(live, shared, "m2", False, "", *args)
    assert [one["name"] for one in live["spec"]["containers"]] == ["a", "b"]
    assert live["metadata"]["managedFields"][1]["fieldsV1"]["f:spec"]["f:containers"] == {
        'k:{"name":"a"}': {
            ".": {},
            "f:name": {},
            "f:resources": {"f:requests": {"f:cpu": {}}},
        },
        'k:{"name":"b"}': {".": {}, "f:name": {}},
    }


small = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"]), max_size=2)
specs = st.fixed_dictionaries(
    {},
    optional={
        "cohort": st.sampled_from(["a", "b"]),
        "size": st.integers(1, 2),
        "nested": st.fixed_dictionaries({}, optional={"x": st.integers(1, 2), "y": st.integers(1, 2)}),
        "whole": small,
        "free": small,
        "tags": st.lists(st.sampled_from("xyz"), min_size=1, unique=True),
        "ports": st.lists(
            st.fixed_dictionaries({"port": st.integers(1, 3)}, optional={"name": st.sampled_from("pq")}),
            min_size=1,
            unique_by=lambda port: port["port"],
        ),
    },
)


def contains(live: Any, config: Any) -> bool:
    """Whether everything applied is there."""
    if isinstance(config, dict):
        return isinstance(live, dict) and all(
            key in live and contains(live[key], config[key]) for key in config
        )
    if isinstance(config, list):
        return all(any(contains(one, wanted) for one in live) for wanted in config)
    return same(live, config)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["m1", "m2", "m3"]), specs, st.booleans()), min_size=1, max_size=6))
def test_what_was_applied_last_is_there_and_nothing_is_left_behind(
    steps: list[tuple[str, dict[str, Any], bool]],
) -> None:
    server = Server()
    for manager, spec, force in steps:
        before = server.live
        try:
            server.apply(manager, thing(spec), force)
        except ApiError:
            assert not force
            assert server.live is before
        else:
            assert contains(server.spec, spec)
    for manager in ("m1", "m2", "m3"):
        server.apply(manager, thing(), force=True)
    assert server.live == thing()


def test_empty_list_of_keyed_elements_has_no_owner() -> None:
    server = Server()
    server.apply("a", thing({"cohort": "a", "ports": [{"port": 1}], "tags": ["x"]}))
    server.apply("a", thing({"cohort": "a", "ports": [], "tags": []}))
    assert server.spec == {"cohort": "a"}
    other = Server()
    other.apply("a", thing({"cohort": "a", "ports": []}))
    other.apply("a", thing({"cohort": "a"}))
    assert other.spec == {"cohort": "a", "ports": []}


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"whole": {"x": 1}}, ".spec.whole.x: expected string, got 1"),
        ({"list": ["a", {}]}, ".spec.list[1]: expected string, got {}"),
    ],
)
def test_what_is_owned_as_one_has_to_fit_too(spec: dict[str, Any], fault: str) -> None:
    with pytest.raises(ApiError) as caught:
        Server().apply("a", thing(spec))
    assert fault in caught.value.message
