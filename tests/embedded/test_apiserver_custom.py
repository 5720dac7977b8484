"""Kinds that users define: served at once, checked by their schema, gone with their definition."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from apiserver_harness import CRDS, WIDGETS, Api, widget, widget_definition, with_server

from pykueue.embedded.apiserver.crd.structural import CustomSchema
from pykueue.kube.transport import APPLY_PATCH, STRATEGIC_PATCH


def test_a_defined_kind_is_served_at_once() -> None:
    async def story(api: Api) -> None:
        made = await api.create(CRDS, widget_definition())
        assert {one["type"]: one["status"] for one in made["status"]["conditions"]} == {
            "NamesAccepted": "True",
            "Established": "True",
        }
        assert made["spec"]["names"]["listKind"] == "WidgetList"
        assert made["status"]["storedVersions"] == ["v1"]
        created = await api.create(WIDGETS, widget("w", color="red", unknown=1))
        assert created["spec"] == {"color": "red", "size": 3}
        assert created["metadata"]["generation"] == 1
        assert (await api.get(WIDGETS))["kind"] == "WidgetList"
        resources = {one["name"]: one for one in (await api.get("/apis/example.com/v1"))["resources"]}
        assert resources["widgets"]["shortNames"] == ["wd"]
        assert resources["widgets/scale"]["kind"] == "Scale"
        index = await api.get("/openapi/v3")
        assert "apis/example.com/v1" in index["paths"]

    with_server(story)


def test_custom_objects_follow_their_schema_and_rules_of_writing() -> None:
    async def story(api: Api) -> None:
        await api.create(CRDS, widget_definition())
        error = await api.refused(api.create(WIDGETS, widget("w", color="green")))
        assert error.details["causes"] == [
            {
                "reason": "FieldValueNotSupported",
                "message": 'Unsupported value: "green": supported values: "red", "blue"',
                "field": "spec.color",
            }
        ]
        made = await api.create(WIDGETS, {**widget("w"), "status": {"ready": True}})
        assert "status" not in made
        bare = {**made, "metadata": {"name": "w"}}
        error = await api.refused(api.replace(f"{WIDGETS}/w", bare))
        assert error.details["causes"][0]["field"] == "metadata.resourceVersion"
        changed = await api.patch(f"{WIDGETS}/w", {"spec": {"size": 4}, "status": {"ready": True}})
        assert (changed["metadata"]["generation"], changed.get("status")) == (2, None)
        update = {"spec": {"size": 9}, "status": {"ready": True}, "metadata": {"labels": {"a": "b"}}}
        status = await api.patch(f"{WIDGETS}/w/status", update)
        assert (status["spec"]["size"], status["status"]) == (4, {"ready": True})
        assert status["metadata"]["generation"] == 2
        assert "labels" not in status["metadata"]
        error = await api.refused(api.patch(f"{WIDGETS}/w", {"spec": {}}, STRATEGIC_PATCH))
        assert error.code == 415
        nameless = {**widget("x"), "kind": ""}
        assert (await api.refused(api.create(WIDGETS, nameless))).code == 400

    with_server(story)


def test_custom_fields_can_be_selected_and_scaled() -> None:
    async def story(api: Api) -> None:
        await api.create(CRDS, widget_definition())
        await api.create(WIDGETS, widget("a", color="red"))
        await api.create(WIDGETS, widget("b", color="blue", replicas=2))
        assert await api.names(WIDGETS, fieldSelector="spec.color=blue") == ["b"]
        assert (await api.get(f"{WIDGETS}/b/scale"))["spec"] == {"replicas": 2}
        await api.patch(f"{WIDGETS}/b/scale", {"spec": {"replicas": 7}})
        assert (await api.get(f"{WIDGETS}/b"))["spec"]["replicas"] == 7

    with_server(story)


def test_applied_configurations_own_their_fields() -> None:
    async def story(api: Api) -> None:
        await api.create(CRDS, widget_definition())
        made = await api.apply(f"{WIDGETS}/w", widget("w", size=5), manager="one")
        assert made["metadata"]["managedFields"][0]["manager"] == "one"
        again = await api.apply(f"{WIDGETS}/w", widget("w", size=5), manager="one")
        assert again == made
        error = await api.refused(api.apply(f"{WIDGETS}/w", widget("w", size=6), manager="two"))
        assert error.message == 'Apply failed with 1 conflict: conflict with "one": .spec.size'
        forced = await api.apply(f"{WIDGETS}/w", widget("w", size=6), manager="two", force="true")
        assert forced["spec"]["size"] == 6
        dropped = await api.apply(f"{WIDGETS}/w", widget("w"), manager="two")
        assert dropped["spec"] == {"size": 3}

    with_server(story)


def test_without_a_status_endpoint_the_status_is_applied_like_any_field() -> None:
    async def story(api: Api) -> None:
        await api.create(CRDS, widget_definition(subresources={}))
        whole = {**widget("w", size=5), "status": {"ready": True}}
        assert (await api.apply(f"{WIDGETS}/w", whole, manager="one"))["status"] == {"ready": True}
        changed = {**whole, "status": {"ready": False}}
        assert (await api.apply(f"{WIDGETS}/w", changed, manager="one"))["status"] == {"ready": False}
        error = await api.refused(api.apply(f"{WIDGETS}/w", whole, manager="two"))
        assert error.message == 'Apply failed with 1 conflict: conflict with "one": .status.ready'

    with_server(story)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda crd: crd["metadata"].update(name="other.example.com"), "metadata.name"),
        (lambda crd: crd["spec"].update(scope="Galaxy"), "spec.scope"),
        (lambda crd: crd["spec"]["versions"][0].update(storage=False), "spec.versions"),
        (lambda crd: crd["spec"]["versions"][0].pop("schema"), "spec.versions[0].schema.openAPIV3Schema"),
        (
            lambda crd: crd["spec"]["versions"][0]["schema"].update(openAPIV3Schema={"properties": {}}),
            "spec.versions[0].schema.openAPIV3Schema.type",
        ),
    ],
)
def test_a_definition_that_cannot_be_served_is_refused(change: Any, field: str) -> None:
    async def story(api: Api) -> None:
        crd = widget_definition()
        change(crd)
        error = await api.refused(api.create(CRDS, crd))
        assert error.code == 422
        assert field in [cause["field"] for cause in error.details["causes"]]

    with_server(story)


def test_deleting_a_definition_deletes_its_objects_first() -> None:
    async def story(api: Api) -> None:
        await api.create(CRDS, widget_definition())
        held = widget("held")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await api.create(WIDGETS, held)
        await api.create(WIDGETS, widget("free"))
        seen = api.watch(WIDGETS)
        await api.pause()
        await api.delete(f"{CRDS}/widgets.example.com")
        await api.pause()
        assert await api.names(WIDGETS) == ["held"]
        error = await api.refused(api.create(WIDGETS, widget("new")))
        assert error.code == 405
        await api.patch(f"{WIDGETS}/held", {"metadata": {"finalizers": None}})
        await api.pause()
        assert (await api.refused(api.get(WIDGETS))).code == 404
        assert await api.names(CRDS) == []
        assert [one.type for one in seen].count("DELETED") == 2

    with_server(story)


def test_a_changed_definition_holds_from_then_on() -> None:
    async def story(api: Api) -> None:
        crd = await api.create(CRDS, widget_definition())
        assert (await api.refused(api.create(WIDGETS, widget("w", color="green")))).code == 422
        versions = widget_definition()["spec"]["versions"]
        colors = versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["color"]
        colors["enum"].append("green")
        await api.patch(f"{CRDS}/widgets.example.com", {"spec": {**crd["spec"], "versions": versions}})
        assert (await api.create(WIDGETS, widget("w", color="green")))["spec"]["color"] == "green"

    with_server(story)


def test_versions_are_views_of_one_stored_object() -> None:
    async def story(api: Api) -> None:
        crd = widget_definition()
        old = {**crd["spec"]["versions"][0], "name": "v1beta1", "storage": False, "deprecated": True}
        crd["spec"]["versions"].append(old)

        def convert(obj: dict[str, Any], version: str) -> dict[str, Any]:
            spec = dict(obj["spec"])
            if version.endswith("v1beta1"):
                spec["size"] = spec["size"] * 10
            else:
                spec["size"] = spec["size"] // 10
            return {**obj, "apiVersion": version, "spec": spec}

        api.server.register_conversion("example.com", convert)
        await api.create(CRDS, crd)
        await api.create(WIDGETS, widget("w", size=4))
        beta = WIDGETS.replace("/v1/", "/v1beta1/")
        seen = api.watch(beta)
        await api.pause()
        assert (await api.get(f"{beta}/w"))["spec"]["size"] == 40
        await api.patch(f"{beta}/w", {"spec": {"size": 70}})
        assert (await api.get(f"{WIDGETS}/w"))["spec"]["size"] == 7
        await api.pause()
        assert [one.object["spec"]["size"] for one in seen] == [40, 70]
        assert {one.object["apiVersion"] for one in seen} == {"example.com/v1beta1"}

    with_server(story)


def test_versions_without_a_conversion_keep_to_their_own_schema() -> None:
    async def story(api: Api) -> None:
        crd = widget_definition()
        stored = crd["spec"]["versions"][0]
        fields = stored["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        spec = {"type": "object", "properties": {"color": fields["color"]}, "required": ["color"]}
        root = {"type": "object", "properties": {"spec": spec}}
        old = {**stored, "name": "v1beta1", "storage": False, "deprecated": True}
        old["schema"] = {"openAPIV3Schema": root}
        crd["spec"]["versions"].append(old)
        await api.create(CRDS, crd)
        beta = WIDGETS.replace("/v1/", "/v1beta1/")
        body = {**widget("w", color="red", size=5), "apiVersion": "example.com/v1beta1"}
        assert (await api.create(beta, body))["spec"] == {"color": "red"}
        assert (await api.get(f"{beta}/w"))["spec"] == {"color": "red"}
        assert (await api.get(f"{WIDGETS}/w"))["spec"] == {"color": "red", "size": 3}
        await api.patch(f"{WIDGETS}/w", {"spec": {"size": 7}})
        assert (await api.get(f"{beta}/w"))["spec"] == {"color": "red"}
        tracked = await api.create(beta, {**body, "metadata": {"name": "t"}}, fieldManager="m")
        assert [one["apiVersion"] for one in tracked["metadata"]["managedFields"]] == ["example.com/v1beta1"]
        # The stored version does not ask for a colour, the other one does.
        await api.create(WIDGETS, {**widget("x"), "spec": {}})
        error = await api.refused(api.create(beta, {**body, "metadata": {"name": "y"}, "spec": {}}))
        assert [one["field"] for one in error.details["causes"]] == ["spec.color"]

    with_server(story)


def test_a_status_with_a_default_is_there_from_the_start() -> None:
    async def story(api: Api) -> None:
        crd = widget_definition()
        root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        root["properties"]["status"]["default"] = {"ready": False}
        await api.create(CRDS, crd)
        made = await api.create(WIDGETS, {**widget("w"), "status": {"ready": 1}})
        assert made["status"] == {"ready": False}

    with_server(story)


def test_what_definitions_say_about_types_and_services_is_completed() -> None:
    async def story(api: Api) -> None:
        crd = widget_definition()
        root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        # A type besides is not looked at: an integer or a text it is.
        either = {"type": "integer", "x-kubernetes-int-or-string": True}
        root["properties"]["spec"]["properties"]["either"] = either
        service = {"name": "s", "namespace": "n"}
        webhook = {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}
        crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        crd["spec"]["preserveUnknownFields"] = False
        made = await api.create(CRDS, crd)
        assert made["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"] == 443
        assert "preserveUnknownFields" not in made["spec"]
        assert (await api.create(WIDGETS, widget("w", either="10%")))["spec"]["either"] == "10%"
        again = {**widget_definition(), "metadata": {"name": "others.example.com"}}
        again["spec"]["preserveUnknownFields"] = True
        error = await api.refused(api.create(CRDS, again))
        assert "spec.preserveUnknownFields" in [one["field"] for one in error.details["causes"]]

    with_server(story)


def test_a_deprecated_version_names_the_one_to_use() -> None:
    async def story(api: Api) -> None:
        crd = widget_definition()
        stored = crd["spec"]["versions"][0]
        for name in ("v1alpha1", "v1beta1"):
            crd["spec"]["versions"].append({**stored, "name": name, "storage": False, "deprecated": True})
        await api.create(CRDS, crd)
        words = [
            endpoint.deprecation for endpoint in api.server.core.registry if endpoint.plural == "widgets"
        ]
        assert sorted(words) == [
            "",
            "example.com/v1alpha1 Widget is deprecated; use example.com/v1 Widget",
            "example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget",
        ]

    with_server(story)


def test_nulls_in_applied_configurations_are_values() -> None:
    async def story(api: Api) -> None:
        crd = widget_definition()
        root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        template = {"type": "object", "x-kubernetes-embedded-resource": True}
        root["properties"]["spec"]["properties"]["template"] = template
        await api.create(CRDS, crd)

        def applied(manager: str, **spec: Any) -> Any:
            return api.patch(f"{WIDGETS}/w", widget("w", **spec), APPLY_PATCH, fieldManager=manager)

        error = await api.refused(applied("a", color=None))
        assert [one["field"] for one in error.details["causes"]] == ["spec.color"]
        await applied("a", color="red", size=None)
        # Generators write what they do not know of metadata as null.
        unset = {"creationTimestamp": None, "labels": None}
        made = await applied(
            "a", color="red", template={"apiVersion": "v1", "kind": "Pod", "metadata": unset}
        )
        assert made["spec"]["template"]["metadata"] == {}
        error = await api.refused(applied("b", color=None))
        assert (error.code, error.details["causes"][0]["field"]) == (409, ".spec.color")

        def status(ready: bool | None, **spec: Any) -> Any:
            config = {**widget("w", **spec), "status": {"ready": ready}}
            return api.patch(f"{WIDGETS}/w/status", config, APPLY_PATCH, fieldManager="a")

        error = await api.refused(status(None))
        assert [one["field"] for one in error.details["causes"]] == ["status.ready"]
        # The spec is not written through this endpoint.
        assert (await status(True, color=None))["spec"]["color"] == "red"

    with_server(story)


def test_replicas_that_a_scale_cannot_show_are_refused() -> None:
    async def story(api: Api) -> None:
        await api.create(CRDS, widget_definition())
        for wrong in (-1, 2**31):
            error = await api.refused(api.create(WIDGETS, widget("w", replicas=wrong)))
            assert [one["field"] for one in error.details["causes"]] == [".spec.replicas"]

    with_server(story)


def test_the_schema_is_compiled_once_however_many_first_objects_come_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(api: Api) -> None:
        await api.create(CRDS, widget_definition())
        begun: list[object] = []
        compile_ahead = CustomSchema.compile_ahead

        def counting(schema: CustomSchema) -> Iterator[None]:
            begun.append(schema)
            return compile_ahead(schema)

        monkeypatch.setattr(CustomSchema, "compile_ahead", counting)
        made = await asyncio.gather(*(api.create(WIDGETS, widget(f"w{n}", color="red")) for n in range(20)))
        assert [one["spec"]["size"] for one in made] == [3] * 20
        assert len(begun) == 2  # for the form that is written and for the one that is stored

    with_server(story)
