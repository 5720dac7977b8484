"""Objects through their lives: created, changed, refused, deleted."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
from apiserver_harness import CONFIG_MAPS, PODS, Api, config_map, pod, with_server

from pykueue.embedded.objects.metadata import ObjectUids
from pykueue.kube.transport import JSON_PATCH, STRATEGIC_PATCH


def test_a_created_object_carries_what_the_server_gives_it() -> None:
    async def story(api: Api) -> None:
        sent = config_map("a", key="value")
        sent["metadata"] |= {
            "uid": "mine",
            "resourceVersion": "77",
            "generation": 9,
            "creationTimestamp": "2001-01-01T00:00:00Z",
            "deletionTimestamp": "2001-01-01T00:00:00Z",
            "selfLink": "/x",
        }
        meta = (await api.create(CONFIG_MAPS, sent))["metadata"]
        assert meta["creationTimestamp"] == "2026-01-01T00:00:00Z"
        assert meta["uid"] not in ("", "mine")
        assert meta["namespace"] == "default"
        assert set(meta) == {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"}
        assert sent["metadata"]["uid"] == "mine"
        assert (await api.get(f"{CONFIG_MAPS}/a"))["data"] == {"key": "value"}

    with_server(story)


def test_generated_names_are_of_five_clear_characters() -> None:
    async def story(api: Api) -> None:
        body = config_map("x")
        body["metadata"] = {"generateName": "p" * 70}
        meta = (await api.create(CONFIG_MAPS, body))["metadata"]
        assert len(meta["name"]) == 63
        assert meta["name"].startswith("p" * 58)
        assert not set(meta["name"][58:]) & set("aeiou013lq!")
        assert meta["generateName"] == "p" * 70

    with_server(story)


@pytest.mark.parametrize(
    ("change", "code", "reason", "text"),
    [
        ({"metadata": {"name": "A_b"}}, 422, "Invalid", 'ConfigMap "A_b" is invalid: metadata.name: Invalid'),
        ({"metadata": {}}, 422, "Invalid", "name or generateName is required"),
        ({"metadata": {"name": "a", "labels": {"k": True}}}, 422, "Invalid", "metadata.labels.k"),
        ({"metadata": {"name": "a", "labels": {"k": "_"}}}, 422, "Invalid", "a valid label must be"),
        ({"metadata": {"name": "a", "labels": {"/k": "v"}}}, 422, "Invalid", "prefix part"),
        ({"metadata": {"name": "a", "finalizers": ["not ok"]}}, 422, "Invalid", "metadata.finalizers"),
        (
            {"metadata": {"name": "a", "ownerReferences": [{"kind": "X"}]}},
            422,
            "Invalid",
            "ownerReferences[0].uid",
        ),
        ({"metadata": "a"}, 422, "Invalid", "metadata"),
        ({"metadata": {"name": "a", "namespace": "other"}}, 400, "BadRequest", "namespace of the provided"),
        ({"apiVersion": "v2"}, 400, "BadRequest", "does not match the expected API version (v1)"),
        ({"kind": "Pod"}, 400, "BadRequest", "cannot be handled as a ConfigMap"),
        ({"data": {"n": 1}}, 422, "Invalid", "data.n"),
    ],
)
def test_what_is_wrong_with_a_new_object_is_named(change: Any, code: int, reason: str, text: str) -> None:
    async def story(api: Api) -> None:
        error = await api.refused(api.create(CONFIG_MAPS, {**config_map("a"), **change}))
        assert (error.code, error.reason) == (code, reason)
        assert text in error.message
        assert await api.names(CONFIG_MAPS) == []

    with_server(story)


def test_an_object_needs_its_namespace() -> None:
    async def story(api: Api) -> None:
        error = await api.refused(api.create("/api/v1/namespaces/none/configmaps", config_map("a")))
        assert (error.code, error.message) == (404, 'namespaces "none" not found')
        await api.create("/api/v1/namespaces", {"metadata": {"name": "going"}})
        await api.delete("/api/v1/namespaces/going")
        error = await api.refused(api.create("/api/v1/namespaces/going/configmaps", config_map("a")))
        assert error.code == 403
        assert error.details["causes"][0]["reason"] == "NamespaceTerminating"

    with_server(story)


def test_the_second_of_a_name_already_exists() -> None:
    async def story(api: Api) -> None:
        await api.create(CONFIG_MAPS, config_map("a"))
        error = await api.refused(api.create(CONFIG_MAPS, config_map("a")))
        assert (error.code, error.reason) == (409, "AlreadyExists")
        assert error.message == 'configmaps "a" already exists'
        assert error.details == {"name": "a", "kind": "configmaps"}

    with_server(story)


def test_a_write_that_changes_nothing_leaves_no_trace() -> None:
    async def story(api: Api) -> None:
        before = await api.create(CONFIG_MAPS, config_map("a", k="v"))
        seen = api.watch(CONFIG_MAPS, resourceVersion=before["metadata"]["resourceVersion"])
        for same in (
            await api.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "v"}}),
            await api.replace(f"{CONFIG_MAPS}/a", before),
            await api.patch(
                f"{CONFIG_MAPS}/a", [{"op": "test", "path": "/data/k", "value": "v"}], JSON_PATCH
            ),
        ):
            assert same == before
        await api.pause()
        assert seen == []

    with_server(story)


def test_a_stale_version_is_a_conflict_whatever_the_verb() -> None:
    async def story(api: Api) -> None:
        old = await api.create(CONFIG_MAPS, config_map("a"))
        await api.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "1"}})
        stale = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "data": {"k": "2"}}
        for attempt in (
            api.replace(f"{CONFIG_MAPS}/a", {**old, "data": {"k": "2"}}),
            api.patch(f"{CONFIG_MAPS}/a", stale),
            api.patch(f"{CONFIG_MAPS}/a", stale, STRATEGIC_PATCH),
            api.delete(f"{CONFIG_MAPS}/a", {"preconditions": stale["metadata"]}),
        ):
            error = await api.refused(attempt)
            assert (error.code, error.reason) == (409, "Conflict")
        assert (await api.get(f"{CONFIG_MAPS}/a"))["data"] == {"k": "1"}

    with_server(story)


def test_a_failed_json_patch_test_is_invalid() -> None:
    async def story(api: Api) -> None:
        await api.create(CONFIG_MAPS, config_map("a"))
        steps = [{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}]
        error = await api.refused(api.patch(f"{CONFIG_MAPS}/a", steps, JSON_PATCH))
        assert (error.code, error.reason) == (422, "Invalid")

    with_server(story)


def test_server_owned_metadata_cannot_be_changed() -> None:
    async def story(api: Api) -> None:
        before = await api.create(CONFIG_MAPS, config_map("a"))
        change = {"creationTimestamp": "2001-01-01T00:00:00Z", "deletionTimestamp": "2001-01-01T00:00:00Z"}
        assert await api.patch(f"{CONFIG_MAPS}/a", {"metadata": change}) == before
        error = await api.refused(api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"uid": "x"}}))
        assert (error.code, error.details["causes"][0]["field"]) == (422, "metadata.uid")
        error = await api.refused(api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"name": "b"}}))
        assert error.code == 400

    with_server(story)


def test_unknown_fields_are_refused_warned_about_or_dropped() -> None:
    async def story(api: Api) -> None:
        body = {**config_map("a"), "extra": 1}
        error = await api.refused(api.create(CONFIG_MAPS, body, fieldValidation="Strict"))
        words = 'strict decoding error: unknown field "extra"'
        assert error.message == f'ConfigMap in version "v1" cannot be handled as a ConfigMap: {words}'
        assert "extra" not in await api.create(CONFIG_MAPS, body)
        error = await api.refused(api.create(CONFIG_MAPS, body, fieldValidation="Maybe"))
        assert (error.code, error.details["kind"]) == (422, "CreateOptions")

    with_server(story)


def test_a_dry_run_stores_nothing() -> None:
    async def story(api: Api) -> None:
        made = await api.create(CONFIG_MAPS, config_map("a"), dryRun="All")
        assert made["metadata"]["uid"]
        assert "resourceVersion" not in made["metadata"]
        assert await api.names(CONFIG_MAPS) == []
        await api.create(CONFIG_MAPS, config_map("a", k="1"))
        changed = await api.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "2"}}, dryRun="All")
        assert changed["data"] == {"k": "2"}
        await api.delete(f"{CONFIG_MAPS}/a", dryRun="All")
        assert (await api.get(f"{CONFIG_MAPS}/a"))["data"] == {"k": "1"}
        error = await api.refused(api.create(CONFIG_MAPS, config_map("b"), dryRun="yes"))
        assert error.code == 422

    with_server(story)


def test_finalizers_hold_an_object_until_the_last_is_gone() -> None:
    async def story(api: Api) -> None:
        body = config_map("a")
        body["metadata"]["finalizers"] = ["example.com/hold"]
        before = await api.create(CONFIG_MAPS, body)
        seen = api.watch(CONFIG_MAPS, resourceVersion=before["metadata"]["resourceVersion"])
        marked = await api.delete(f"{CONFIG_MAPS}/a")
        assert marked["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00Z"
        assert await api.delete(f"{CONFIG_MAPS}/a") == marked
        error = await api.refused(api.create(CONFIG_MAPS, config_map("a")))
        assert error.message.startswith("object is being deleted")
        added = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
        error = await api.refused(api.patch(f"{CONFIG_MAPS}/a", added))
        assert (error.code, error.details["causes"][0]["reason"]) == (422, "FieldValueForbidden")
        await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": None}})
        await api.pause()
        assert [event.type for event in seen] == ["MODIFIED", "DELETED"]
        last = seen[-1].object["metadata"]
        assert last["finalizers"] == ["example.com/hold"]
        assert int(last["resourceVersion"]) > int(marked["metadata"]["resourceVersion"])
        assert (await api.refused(api.get(f"{CONFIG_MAPS}/a"))).not_found

    with_server(story)


def test_a_policy_becomes_a_finalizer_for_the_garbage_collector() -> None:
    async def story(api: Api) -> None:
        await api.create(CONFIG_MAPS, config_map("a"))
        marked = await api.delete(f"{CONFIG_MAPS}/a", {"propagationPolicy": "Foreground"})
        assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
        marked = await api.delete(f"{CONFIG_MAPS}/a", {"propagationPolicy": "Orphan"})
        assert marked["metadata"]["finalizers"] == ["orphan"]
        gone = await api.delete(f"{CONFIG_MAPS}/a", {"propagationPolicy": "Background"})
        assert gone["status"] == "Success"
        assert gone["details"]["kind"] == "configmaps"
        await api.create(CONFIG_MAPS, config_map("a"))
        error = await api.refused(api.delete(f"{CONFIG_MAPS}/a", {"propagationPolicy": "Maybe"}))
        assert (error.code, error.details["kind"]) == (422, "DeleteOptions")

    with_server(story)


def test_a_running_pod_is_given_its_grace() -> None:
    async def story(api: Api) -> None:
        await api.create(PODS, pod("p"))
        await api.create(f"{PODS}/p/binding", {"target": {"kind": "Node", "name": "n"}})
        bound = await api.get(f"{PODS}/p")
        assert bound["spec"]["nodeName"] == "n"
        assert {"type": "PodScheduled", "status": "True"}.items() <= bound["status"]["conditions"][0].items()
        error = await api.refused(api.create(f"{PODS}/p/binding", {"target": {"name": "m"}}))
        assert (error.code, error.reason) == (409, "Conflict")
        marked = await api.delete(f"{PODS}/p")
        assert marked["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:30Z"
        assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
        sooner = await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 5})
        assert sooner["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:05Z"
        later = await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 20})
        assert later["metadata"]["deletionGracePeriodSeconds"] == 5
        await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
        assert await api.names(PODS) == []

    with_server(story)


def test_a_pod_no_node_has_goes_at_once() -> None:
    async def story(api: Api) -> None:
        await api.create(PODS, pod("p"))
        assert (await api.delete(f"{PODS}/p"))["kind"] == "Pod"
        assert await api.names(PODS) == []

    with_server(story)


def test_status_and_spec_are_written_through_their_own_endpoints() -> None:
    async def story(api: Api) -> None:
        body = pod("p")
        body["status"] = {"phase": "Running"}
        made = await api.create(PODS, body)
        assert made["status"]["phase"] == "Pending"
        change = {
            "status": {"phase": "Running"},
            "spec": {"nodeName": "x"},
            "metadata": {"labels": {"a": "b"}},
        }
        done = await api.patch(f"{PODS}/p/status", change)
        assert done["status"]["phase"] == "Running"
        assert "nodeName" not in done["spec"]
        assert done["metadata"]["generation"] == made["metadata"]["generation"]
        assert (await api.patch(f"{PODS}/p", {"status": {"phase": "Failed"}}))["status"]["phase"] == "Running"

    with_server(story)


def test_a_namespace_waits_for_its_content() -> None:
    async def story(api: Api) -> None:
        await api.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
        marked = await api.delete("/api/v1/namespaces/team")
        assert marked["status"]["phase"] == "Terminating"
        assert marked["spec"]["finalizers"] == ["kubernetes"]
        await api.replace("/api/v1/namespaces/team/finalize", {**marked, "spec": {"finalizers": []}})
        assert (await api.refused(api.get("/api/v1/namespaces/team"))).not_found
        assert (await api.refused(api.delete("/api/v1/namespaces/default"))).code == 403

    with_server(story)


def test_eviction_respects_a_budget() -> None:
    async def story(api: Api) -> None:
        budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        body = pod("p")
        body["metadata"]["labels"] = {"app": "x"}
        await api.create(PODS, body)
        await api.patch(f"{PODS}/p/status", {"status": {"phase": "Running"}})
        budget = {
            "metadata": {"name": "b"},
            "spec": {"selector": {"matchLabels": {"app": "x"}}, "minAvailable": 1},
        }
        await api.create(budgets, budget)
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        error = await api.refused(api.create(f"{PODS}/p/eviction", eviction))
        # The budget has not been computed yet.
        assert (error.code, error.retry_after) == (429, 10)
        status = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 2, "expectedPods": 2}
        await api.patch(f"{budgets}/b/status", {"status": {**status, "observedGeneration": 1}})
        error = await api.refused(api.create(f"{PODS}/p/eviction", eviction))
        assert (error.code, error.retry_after) == (429, None)
        assert error.details["causes"][0]["reason"] == "DisruptionBudget"
        await api.patch(f"{budgets}/b/status", {"status": {"disruptionsAllowed": 1}})
        await api.create(f"{PODS}/p/eviction", eviction)
        assert await api.names(PODS) == []

    with_server(story)


def test_scale_is_a_view_of_replicas() -> None:
    async def story(api: Api) -> None:
        deployments = "/apis/apps/v1/namespaces/default/deployments"
        template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
        spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
        await api.create(deployments, {"metadata": {"name": "d"}, "spec": spec})
        scale = await api.get(f"{deployments}/d/scale")
        assert (scale["kind"], scale["spec"], scale["status"]) == (
            "Scale",
            {"replicas": 2},
            {"replicas": 0, "selector": "a=b"},
        )
        await api.patch(f"{deployments}/d/scale", {"spec": {"replicas": 5}})
        changed = await api.get(f"{deployments}/d")
        assert changed["spec"]["replicas"] == 5
        assert changed["metadata"]["generation"] == 2
        error = await api.refused(api.patch(f"{deployments}/d/scale", {"spec": {"replicas": -1}}))
        assert error.code == 422

    with_server(story)


def test_events_are_one_store_with_two_views() -> None:
    async def story(api: Api) -> None:
        new = "/apis/events.k8s.io/v1/namespaces/default/events"
        event = {
            "metadata": {"name": "e"},
            "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
            "reason": "Started",
            "action": "Start",
            "type": "Normal",
            "reportingController": "kubelet",
            "reportingInstance": "n",
            "eventTime": "2026-01-02T03:04:05.123456Z",
            "note": "hello",
        }
        await api.create(new, event)
        core = await api.get("/api/v1/namespaces/default/events", fieldSelector="involvedObject.name=p")
        (seen,) = core["items"]
        assert (seen["apiVersion"], seen["message"]) == ("v1", "hello")
        assert seen["reportingComponent"] == "kubelet"
        assert seen["eventTime"] == "2026-01-02T03:04:05.123456Z"
        assert await api.names(new, fieldSelector="regarding.name=p") == ["e"]
        del event["action"]
        event["metadata"] = {"name": "f"}
        assert (await api.refused(api.create(new, event))).code == 422

    with_server(story)


def test_events_are_forgotten_an_hour_after_their_last_change() -> None:
    async def story(api: Api) -> None:
        events = "/api/v1/namespaces/default/events"
        event = {"involvedObject": {"namespace": "default"}, "reason": "R", "type": "Normal"}
        for name in ("old", "repeated"):
            await api.create(events, {"metadata": {"name": name}, **event})
        await api.pause(3000)
        await api.patch(f"{events}/repeated", {"count": 2})
        await api.pause(1000)
        assert await api.names(events) == ["repeated"]
        await api.pause(3000)
        assert await api.names(events) == []

    with_server(story)


def test_leases_are_renewed_only_from_their_latest_version() -> None:
    async def story(api: Api) -> None:
        leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}
        made = await api.replace(f"{leases}/l", lease)
        error = await api.refused(api.replace(f"{leases}/l", lease))
        assert error.details["causes"][0]["field"] == "metadata.resourceVersion"
        micro = "2026-01-02T03:04:05.123456Z"
        made = {**made, "spec": {**made["spec"], "renewTime": micro}}
        assert (await api.replace(f"{leases}/l", made))["spec"]["renewTime"] == micro
        assert (await api.refused(api.replace(f"{leases}/l", made))).conflict

    with_server(story)


def test_the_same_seed_makes_the_same_cluster() -> None:
    told: list[list[str]] = []

    async def story(api: Api) -> None:
        for _ in range(3):
            await api.create(PODS, {**pod("x"), "metadata": {"generateName": "p-"}})
        told.append([one["metadata"]["uid"] for one in (await api.get(PODS))["items"]])

    with_server(story)
    with_server(story)
    with_server(story, seed=2)
    assert told[0] == told[1] != told[2]


def test_uids_sort_by_the_order_of_creation_within_a_second() -> None:
    uids = ObjectUids(random.Random(1))
    times = [*[1_800_000_000.25] * 5000, 1_800_000_000.9, 1_700_000_000]
    found = [uids.next(time) for time in times]
    assert found == sorted(set(found))
    assert {(uuid.UUID(one).version, uuid.UUID(one).variant) for one in found} == {(7, uuid.RFC_4122)}
