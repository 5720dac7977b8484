"""Webhooks in this process, and who may do what."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest
from apiserver_harness import CONFIG_MAPS, PODS, Api, config_map, pod, with_server

from pykueue.embedded.apiserver.webhooks.admission import Webhook, WebhookFailedError

RULES = [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]
ROLES = "/apis/rbac.authorization.k8s.io/v1"


def _answer(review: dict[str, Any], **response: Any) -> dict[str, Any]:
    return {"response": {"uid": review["request"]["uid"], "allowed": True, **response}}


def test_a_mutating_webhook_changes_what_is_stored() -> None:
    async def story(api: Api) -> None:
        async def patching(review: dict[str, Any]) -> dict[str, Any]:
            patch = orjson.dumps([{"op": "add", "path": "/data/first", "value": "1"}])
            return _answer(review, patchType="JSONPatch", patch=base64.b64encode(patch).decode())

        async def replacing(review: dict[str, Any]) -> dict[str, Any]:
            obj = review["request"]["object"]
            return _answer(
                review, object={**obj, "data": {**obj["data"], "second": obj["data"]["first"] + "2"}}
            )

        api.server.admission.register(Webhook("b", True, RULES, replacing))
        api.server.admission.register(Webhook("a", True, RULES, patching))
        made = await api.create(CONFIG_MAPS, config_map("x", own="0"))
        assert made["data"] == {"own": "0", "first": "1", "second": "12"}
        assert made["metadata"]["uid"]

    with_server(story)


def test_what_a_webhook_makes_of_an_object_must_be_valid() -> None:
    async def story(api: Api) -> None:
        async def spoiling(review: dict[str, Any]) -> dict[str, Any]:
            return _answer(review, object={**review["request"]["object"], "data": {"n": 1}})

        api.server.admission.register(Webhook("a", True, RULES, spoiling))
        error = await api.refused(api.create(CONFIG_MAPS, config_map("x")))
        assert error.code == 422

    with_server(story)


def test_a_validating_webhook_sees_the_request_and_may_deny_it() -> None:
    async def story(api: Api) -> None:
        asked: list[dict[str, Any]] = []

        async def review(review: dict[str, Any]) -> dict[str, Any]:
            request = review["request"]
            asked.append(request)
            if (request["object"] or {}).get("data", {}).get("bad"):
                return _answer(review, allowed=False, status={"message": "too bad", "code": 403})
            return _answer(review, warnings=["be careful"])

        api.server.admission.register(Webhook("guard", False, RULES, review))
        await api.create(CONFIG_MAPS, config_map("x"))
        await api.patch(f"{CONFIG_MAPS}/x", {"data": {"k": "v"}})
        error = await api.refused(api.patch(f"{CONFIG_MAPS}/x", {"data": {"bad": "yes"}}))
        assert (error.code, error.message) == (403, 'admission webhook "guard" denied the request: too bad')
        await api.delete(f"{CONFIG_MAPS}/x")
        assert [one["operation"] for one in asked] == ["CREATE", "UPDATE", "UPDATE", "DELETE"]
        update = asked[1]
        assert update["oldObject"]["data"] == {}
        assert update["object"]["data"] == {"k": "v"}
        assert update["userInfo"]["username"] == "system:admin"
        assert update["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
        assert asked[3]["object"] is None

    with_server(story)


def test_webhooks_are_asked_only_about_what_they_select() -> None:
    async def story(api: Api) -> None:
        asked: list[str] = []

        async def review(review: dict[str, Any]) -> dict[str, Any]:
            asked.append(review["request"]["name"])
            return _answer(review)

        hook = Webhook(
            "a",
            False,
            RULES,
            review,
            namespace_selector={"matchLabels": {"kubernetes.io/metadata.name": "default"}},
            object_selector={"matchExpressions": [{"key": "look", "operator": "Exists"}]},
        )
        api.server.admission.register(hook)
        await api.create(CONFIG_MAPS, config_map("plain"))
        await api.create(CONFIG_MAPS, config_map("seen", {"look": ""}))
        await api.create("/api/v1/namespaces/kube-system/configmaps", config_map("far", {"look": ""}))
        await api.create(PODS, pod("p"))
        await api.patch(f"{PODS}/p/status", {"status": {"message": "m"}})
        assert asked == ["seen"]

    with_server(story)


@pytest.mark.parametrize("ignore", [True, False])
def test_a_webhook_that_fails_blocks_unless_it_may_be_ignored(
    ignore: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(api: Api) -> None:
        async def review(review: dict[str, Any]) -> dict[str, Any]:
            raise WebhookFailedError("connection refused")

        api.server.admission.register(Webhook("a", False, RULES, review, ignore_failure=ignore))
        if ignore:
            await api.create(CONFIG_MAPS, config_map("x"))
        else:
            error = await api.refused(api.create(CONFIG_MAPS, config_map("x")))
            assert (error.code, error.reason) == (500, "InternalError")
            assert 'failed calling webhook "a": connection refused' in error.message
            logged = [each.getMessage() for each in caplog.records]
            assert len(logged) == 1
            assert logged[0].startswith("create of configmaps/default by user ")
            assert logged[0].endswith(f"was answered with 500: {error.message}")

    with_server(story)


def test_a_webhook_that_spares_the_user_is_asked_about_others_only() -> None:
    async def story(api: Api) -> None:
        asked: list[str] = []

        async def review(review: dict[str, Any]) -> dict[str, Any]:
            asked.append(review["request"]["name"])
            return _answer(review)

        spared = {"system:admin"}
        hook = Webhook(
            "guard", False, RULES, review, side_effects=True, spares=lambda user: user.name in spared
        )
        api.server.admission.register(hook)
        await api.create(CONFIG_MAPS, config_map("x"))
        await api.patch(f"{CONFIG_MAPS}/x", {"data": {"k": "v"}})
        assert asked == []
        # In a dry run a webhook with side effects is refused to every user.
        error = await api.refused(api.create(CONFIG_MAPS, config_map("y"), dryRun="All"))
        assert "does not support dry run" in error.message
        spared.clear()
        await api.create(CONFIG_MAPS, config_map("z"))
        assert asked == ["z"]

    with_server(story)


def test_side_effects_and_dry_runs_do_not_go_together() -> None:
    async def story(api: Api) -> None:
        async def review(review: dict[str, Any]) -> dict[str, Any]:
            return _answer(review)

        api.server.admission.register(Webhook("a", False, RULES, review, side_effects=True))
        error = await api.refused(api.create(CONFIG_MAPS, config_map("x"), dryRun="All"))
        assert error.code == 400
        await api.create(CONFIG_MAPS, config_map("x"))

    with_server(story)


def test_a_user_may_do_what_bound_roles_say_and_no_more() -> None:
    async def story(api: Api) -> None:
        joe = Api(api.server, api.clock, "joe", ())
        await api.create(CONFIG_MAPS, config_map("one"))
        error = await joe.refused(joe.get(CONFIG_MAPS))
        assert (error.code, error.reason) == (403, "Forbidden")
        assert error.message == (
            'configmaps is forbidden: User "joe" cannot list resource "configmaps" in API group "" in the '
            'namespace "default"'
        )
        rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["one"]}
        roles = f"{ROLES}/namespaces/default"
        await api.create(f"{roles}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
        binding = {
            "metadata": {"name": "b"},
            "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "name": "joe"}],
        }
        await api.create(f"{roles}/rolebindings", binding)
        assert (await joe.get(f"{CONFIG_MAPS}/one"))["metadata"]["name"] == "one"
        assert (await joe.refused(joe.get(f"{CONFIG_MAPS}/two"))).code == 403
        assert (await joe.refused(joe.delete(f"{CONFIG_MAPS}/one"))).code == 403
        await api.delete(f"{roles}/rolebindings/b")
        assert (await joe.refused(joe.get(f"{CONFIG_MAPS}/one"))).code == 403

    with_server(story)


def test_roles_are_aggregated_by_label() -> None:
    async def story(api: Api) -> None:
        binding = {
            "metadata": {"name": "viewers"},
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "Group", "name": "staff"}],
        }
        await api.create(f"{ROLES}/clusterrolebindings", binding)
        ann = Api(api.server, api.clock, "ann", ("staff",))
        assert await ann.names(PODS) == []
        queues = "/apis/apps/v1/namespaces/default/deployments"
        assert (await ann.refused(ann.create(queues, {}))).code == 403
        assert (await ann.refused(ann.get("/api/v1/nodes"))).code == 403
        more = {
            "metadata": {"name": "more", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}],
        }
        await api.create(f"{ROLES}/clusterroles", more)
        assert await ann.names("/api/v1/nodes") == []

    with_server(story)


def test_reviews_say_who_may_what() -> None:
    async def story(api: Api) -> None:
        joe = Api(api.server, api.clock, "joe", ())
        reviews = "/apis/authorization.k8s.io/v1"
        wanted = {"verb": "list", "resource": "pods", "namespace": "default"}
        asked = {"spec": {"resourceAttributes": wanted}}
        assert (await joe.create(f"{reviews}/selfsubjectaccessreviews", asked))["status"]["allowed"] is False
        asked_for = {"spec": {"resourceAttributes": wanted, "user": "root", "groups": ["system:masters"]}}
        assert (await api.create(f"{reviews}/subjectaccessreviews", asked_for))["status"]["allowed"] is True
        me = await joe.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
        assert me["status"]["userInfo"] == {"username": "joe", "groups": ["system:authenticated"]}
        rules = await joe.create(f"{reviews}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}})
        assert rules["status"]["nonResourceRules"]

    with_server(story)


def test_role_with_rights_beyond_those_of_its_creator_is_rejected() -> None:
    async def story(api: Api) -> None:
        roles = f"{ROLES}/namespaces/default"
        manage = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["*"]}
        manage["verbs"] = ["create", "update", "patch", "get", "list"]
        await api.create(f"{ROLES}/clusterroles", {"metadata": {"name": "manage"}, "rules": [manage]})
        binding = {
            "metadata": {"name": "m"},
            "roleRef": {"kind": "ClusterRole", "name": "manage"},
            "subjects": [{"kind": "User", "name": "joe"}],
        }
        await api.create(f"{ROLES}/clusterrolebindings", binding)
        joe = Api(api.server, api.clock, "joe", ())
        secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
        error = await joe.refused(
            joe.create(f"{roles}/roles", {"metadata": {"name": "r"}, "rules": [secrets]})
        )
        assert error.code == 403
        assert "attempting to grant RBAC permissions not currently held" in error.message
        await joe.create(f"{roles}/roles", {"metadata": {"name": "r"}, "rules": [manage]})
        grab = {
            **binding,
            "metadata": {"name": "g"},
            "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
        }
        assert (await joe.refused(joe.create(f"{ROLES}/clusterrolebindings", grab))).code == 403

    with_server(story)


def test_aggregated_roles_carry_the_rules_of_those_they_select() -> None:
    async def story(api: Api) -> None:
        rules = [{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get"]}]
        label = "rbac.authorization.k8s.io/aggregate-to-view"
        role = {"metadata": {"name": "see-widgets", "labels": {label: "true"}}, "rules": rules}
        roles = f"{ROLES}/clusterroles"
        await api.create(roles, role)
        for name in ("view", "edit", "admin"):
            assert rules[0] in (await api.get(f"{roles}/{name}"))["rules"]
        await api.patch(f"{roles}/see-widgets", {"rules": []})
        assert rules[0] not in (await api.get(f"{roles}/admin"))["rules"]
        await api.patch(f"{roles}/see-widgets", {"rules": rules, "metadata": {"labels": None}})
        view = await api.get(f"{roles}/view")
        assert rules[0] not in view["rules"]
        assert (await api.replace(f"{roles}/view", {**view, "rules": []}))["kind"] == "ClusterRole"
        assert (await api.get(f"{roles}/view"))["rules"] == view["rules"] != []

    with_server(story)


def test_a_webhook_is_not_asked_about_objects_that_do_not_concern_it() -> None:
    async def story(api: Api) -> None:
        asked: list[str] = []

        async def review(review: dict[str, Any]) -> dict[str, Any]:
            asked.append(review["request"]["name"])
            return _answer(review)

        hook = Webhook("a", False, RULES, review, concerns=lambda obj: "mine" in obj["data"])
        api.server.admission.register(hook)
        await api.create(CONFIG_MAPS, config_map("other", own="0"))
        await api.create(CONFIG_MAPS, config_map("concerned", mine="1"))
        assert asked == ["concerned"]

    with_server(story)
