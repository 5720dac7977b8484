"""The status that objects have from their create on, and what of it no write can remove."""

from __future__ import annotations

import pytest
from apiserver_harness import WIDGETS, Api, widget, widget_definition, with_server
from status_manifests import CASES, Case, shown

from pykueue.embedded.kinds.builtin import builtin_kinds
from pykueue.kube.transport import JSON_PATCH, STRATEGIC_PATCH

#: Kinds whose status another part of the server, or a gate, decides at creation; each has tests of its own.
ELSEWHERE = {"CustomResourceDefinition"}


def _named(case: Case) -> str:
    return f"{case.body['kind']}-{case.body['metadata']['name']}"


def test_every_builtin_kind_with_a_status_is_covered() -> None:
    kinds = {kind.kind for kind in builtin_kinds() if kind.has_status}
    assert kinds - ELSEWHERE == {case.body["kind"] for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=_named)
def test_new_object_has_the_status_of_a_real_server(case: Case) -> None:
    async def story(api: Api) -> None:
        # An APIService is probed right after its create: the answer itself is what is compared.
        created = await api.create(case.path, case.body, fieldManager="me")
        assert shown(created["status"]) == case.status
        entries = created["metadata"].get("managedFields", [])
        assert not any("f:status" in one["fieldsV1"] for one in entries)

    with_server(story)


@pytest.mark.parametrize("case", CASES, ids=_named)
def test_status_sent_with_a_new_object_is_dropped_unless_it_is_a_node(case: Case) -> None:
    async def story(api: Api) -> None:
        sent = {**case.body, "status": {"conditions": [], **case.body.get("status", {})}}
        created = await api.create(case.path, sent)
        kept = {"conditions": []} if case.body["kind"] == "Node" else {}
        assert shown(created["status"]) == {**case.status, **kept}

    with_server(story)


@pytest.mark.parametrize("change", [{"status": None}, {"status": {}}])
def test_status_that_is_removed_shows_its_zero_values(change: object) -> None:
    async def story(api: Api) -> None:
        for case in CASES:
            kind = case.body["kind"]
            if kind in ("Pod", "Namespace", "Node", "APIService"):
                continue  # their status is not zero, or written by the server
            name = (await api.create(case.path, case.body))["metadata"]["name"]
            path = f"{case.path}/{name}"
            old = await api.get(path)
            sent = {**old, "status": None} if change == {"status": None} else {**old, "status": {}}
            replaced = await api.replace(f"{path}/status", sent)
            assert shown(replaced["status"]) == case.status, kind
            # The main endpoint does not write the status.
            assert shown((await api.replace(path, sent))["status"]) == case.status, kind

    with_server(story)


def test_zero_values_survive_patches_of_every_form() -> None:
    async def story(api: Api) -> None:
        path = "/apis/apps/v1/namespaces/default/statefulsets"
        (case,) = [one for one in CASES if one.body["kind"] == "StatefulSet"]
        await api.create(path, case.body)
        status = f"{path}/fresh/status"
        patched = await api.patch(status, {"status": {"replicas": 2, "availableReplicas": 1}})
        assert patched["status"] == {"replicas": 2, "availableReplicas": 1}
        patched = await api.patch(status, {"status": {"availableReplicas": None}}, STRATEGIC_PATCH)
        assert patched["status"] == {"replicas": 2, "availableReplicas": 0}
        patched = await api.patch(status, [{"op": "remove", "path": "/status/replicas"}], JSON_PATCH)
        assert patched["status"] == {"replicas": 0, "availableReplicas": 0}
        applied = await api.apply(
            status, {"apiVersion": "apps/v1", "kind": "StatefulSet", "status": {"replicas": 3}}
        )
        assert applied["status"] == {"replicas": 3, "availableReplicas": 0}
        dry = await api.patch(status, {"status": None}, dryRun="All")
        assert dry["status"] == {"replicas": 0, "availableReplicas": 0}

    with_server(story)


def test_autoscaler_is_seen_with_the_zero_values_of_the_version_asked_for() -> None:
    async def story(api: Api) -> None:
        (case,) = [one for one in CASES if one.path.startswith("/apis/autoscaling/v2")]
        await api.create(case.path, case.body)
        older = case.path.replace("/v2/", "/v1/") + "/fresh"
        assert (await api.get(older))["status"] == {"currentReplicas": 0, "desiredReplicas": 0}
        await api.replace(f"{older}/status", await api.get(older))
        assert (await api.get(f"{case.path}/fresh"))["status"] == case.status

    with_server(story)


def test_volume_records_when_its_phase_changed() -> None:
    async def story(api: Api) -> None:
        (case,) = [one for one in CASES if one.body["kind"] == "PersistentVolume"]
        await api.create(case.path, case.body)
        status = f"{case.path}/fresh/status"
        await api.pause(60)
        same = await api.patch(status, {"status": {"message": "soon"}})
        assert same["status"]["lastPhaseTransitionTime"] == "2026-01-01T00:00:00Z"
        bound = await api.patch(status, {"status": {"phase": "Bound"}})
        assert bound["status"]["lastPhaseTransitionTime"] == "2026-01-01T00:01:00Z"
        named = {"phase": "Released", "lastPhaseTransitionTime": "2026-02-01T00:00:00Z"}
        released = await api.patch(status, {"status": named})
        assert released["status"]["lastPhaseTransitionTime"] == "2026-02-01T00:00:00Z"

    with_server(story)


def test_custom_object_has_no_status_but_what_its_schema_defaults() -> None:
    async def story(api: Api) -> None:
        definition = widget_definition()
        await api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        created = await api.create(WIDGETS, {**widget("w"), "status": {"ready": True}})
        assert "status" not in created

    with_server(story)
