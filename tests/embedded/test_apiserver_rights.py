"""Rights: selectors and resourceNames, escalation, built-in roles."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from apiserver_harness import Api, with_server

from pykueue.embedded.apiserver.auth.builtin_roles import builtin_roles
from pykueue.embedded.apiserver.discovery.aggregation import access_of
from pykueue.embedded.apiserver.registry.call import is_set, parse_query
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.objects.selectors import field_terms, required_name
from pykueue.embedded.store.sqlite import SqliteStore
from pykueue.kube.errors import ApiError

Object = dict[str, Any]

RBAC = "/apis/rbac.authorization.k8s.io/v1"
SECRETS = "/api/v1/namespaces/default/secrets"


def rule(verbs: str, resources: str, group: str = "", **more: Any) -> Object:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split(), **more}


async def grant(api: Api, name: str, *rules: Object, namespace: str = "default") -> Api:
    """The user of that name, with these rights in a namespace, or everywhere if it is empty."""
    where = f"{RBAC}/namespaces/{namespace}/role" if namespace else f"{RBAC}/clusterrole"
    kind = "Role" if namespace else "ClusterRole"
    await api.create(f"{where}s", {"metadata": {"name": f"of-{name}"}, "rules": list(rules)})
    binding = {
        "metadata": {"name": f"of-{name}"},
        "roleRef": {"kind": kind, "name": f"of-{name}"},
        "subjects": [{"kind": "User", "name": name}],
    }
    await api.create(f"{where}bindings", binding)
    return Api(api.server, api.clock, name, ())


async def secret(api: Api, name: str) -> None:
    await api.create(SECRETS, {"metadata": {"name": name}, "type": "Opaque", "stringData": {"a": name}})


class TestSelectors:
    @pytest.mark.parametrize(
        ("text", "name"),
        [
            ("metadata.name=mine", "mine"),
            ("metadata.name==mine", "mine"),
            ("type!=x,metadata.name=mine", "mine"),
            (r"metadata.name=a\,b\=c\\d", r"a,b=c\d"),
            (r"type=\\,metadata.name=mine", "mine"),
            ("metadata.name!=mine", ""),
            (r"type!=x\,metadata.name=mine", ""),
            (r"type!=x\\\,metadata.name=mine", ""),
            (" metadata.name=mine", ""),
            ("metadata.name=", ""),
            ("metadata.name=..", ""),
            ("metadata.name=a/b", ""),
            ("metadata.name=mine=x", ""),
            (r"metadata.name=mi\ne", ""),
            ("metadata.name=mine\\", ""),
            ("metadata.name", ""),
        ],
    )
    def test_only_an_exact_requirement_names_an_object(self, text: str, name: str) -> None:
        assert required_name(text) == name

    @pytest.mark.parametrize("text", ["a", "a=b=c", "a=\\", r"a=\x"])
    def test_malformed_ones_are_refused(self, text: str) -> None:
        with pytest.raises(ApiError) as refusal:
            field_terms(text)
        assert refusal.value.code == 400

    def test_the_first_of_several_values_of_a_query_counts(self) -> None:
        assert parse_query("a=1&a=2&b&c=%26") == {"a": "1", "b": "", "c": "&"}
        assert parse_query("a=1;b=2&c=3") == {"c": "3"}

    @pytest.mark.parametrize(
        ("text", "value"), [("watch", True), ("watch=yes", True), ("watch=False", False), ("watch=0", False)]
    )
    def test_flags_are_read_as_a_cluster_reads_them(self, text: str, value: bool) -> None:
        assert is_set(parse_query(text), "watch") is value


class TestResourceNames:
    def test_another_secret_is_not_listed_by_an_escaped_comma(self) -> None:
        async def story(api: Api) -> None:
            for name in ("mine", "other"):
                await secret(api, name)
            joe = await grant(api, "joe", rule("list watch", "secrets", resourceNames=["mine"]))
            assert await joe.names(SECRETS, fieldSelector="metadata.name=mine") == ["mine"]
            assert await joe.names(SECRETS, fieldSelector="type!=x,metadata.name=mine") == ["mine"]
            for selector in (
                r"type!=x\,metadata.name=mine",
                r"type!=\\\,metadata.name=mine",
                "metadata.name!=mine",
                "metadata.name=other",
                "",
            ):
                error = await joe.refused(joe.get(SECRETS, fieldSelector=selector))
                assert (error.code, error.reason) == (403, "Forbidden"), selector
            seen = joe.watch(SECRETS, fieldSelector=r"type!=x\,metadata.name=mine")
            await joe.pause()
            assert [one.type for one in seen] == ["ERROR"]
            await joe.close()

        with_server(story)

    def test_a_name_does_not_limit_deleting_a_collection(self) -> None:
        async def story(api: Api) -> None:
            await secret(api, "mine")
            joe = await grant(api, "joe", rule("deletecollection", "secrets", resourceNames=["mine"]))
            error = await joe.refused(joe.delete(SECRETS, fieldSelector="metadata.name=mine"))
            assert error.code == 403
            assert await api.names(SECRETS, fieldSelector="metadata.name=mine") == ["mine"]

        with_server(story)

    @pytest.mark.parametrize("names", [["mine"], ["", "mine"]])
    def test_what_is_allowed_for_one_name_stays_refused_for_others(self, names: list[str]) -> None:
        async def story(api: Api) -> None:
            for name in ("mine", "other"):
                await secret(api, name)
            joe = await grant(api, "joe", rule("get list", "secrets", resourceNames=names))
            for _ in range(2):
                assert (await joe.get(f"{SECRETS}/mine"))["metadata"]["name"] == "mine"
                assert (await joe.refused(joe.get(f"{SECRETS}/other"))).code == 403

        with_server(story)

    def test_right_for_all_names_ends_with_its_binding_and_is_of_its_namespace_only(self) -> None:
        async def story(api: Api) -> None:
            await secret(api, "mine")
            joe = await grant(api, "joe", rule("get", "secrets"))
            for _ in range(2):
                await joe.get(f"{SECRETS}/mine")
            elsewhere = SECRETS.replace("default", "kube-system")
            assert (await joe.refused(joe.get(f"{elsewhere}/mine"))).code == 403
            await api.delete(f"{RBAC}/namespaces/default/rolebindings/of-joe")
            assert (await joe.refused(joe.get(f"{SECRETS}/mine"))).code == 403

        with_server(story)

    def test_a_name_in_a_watch_of_one_object_is_not_read_as_a_selector(self) -> None:
        async def story(api: Api) -> None:
            await secret(api, "mine")
            assert await api.names(f"{SECRETS}", fieldSelector="metadata.name=mine") == ["mine"]
            seen = api.watch(f"{SECRETS}/x,metadata.namespace=default")
            await api.pause()
            assert seen == []

        with_server(story)

    def test_rights_in_a_namespace_reach_the_namespace_itself(self) -> None:
        async def story(api: Api) -> None:
            joe = await grant(api, "joe", rule("get", "namespaces"))
            assert (await joe.get("/api/v1/namespaces/default"))["metadata"]["name"] == "default"
            error = await joe.refused(joe.get("/api/v1/namespaces/kube-system"))
            assert error.message.endswith('in the namespace "kube-system"')

        with_server(story)


class TestAggregatedPaths:
    def test_paths_that_resolve_to_others_are_refused(self) -> None:
        for path in ("/apis/g/v1/namespaces/a/x/../../b/x", "/apis/g/v1/./x"):
            with pytest.raises(ApiError) as refusal:
                access_of("GET", path, {})
            assert refusal.value.code == 400

    def test_a_watch_is_one_however_it_is_written(self) -> None:
        for query in ("watch=1", "wa%74ch=true", "watch"):
            access = access_of("GET", "/apis/g/v1/x", parse_query(query))
            assert access is not None
            assert access.verb == "watch"


class TestCreatingByUpdate:
    def test_it_takes_the_right_to_create(self) -> None:
        async def story(api: Api) -> None:
            joe = await grant(api, "joe", rule("patch update", "configmaps"))
            path = "/api/v1/namespaces/default/configmaps/new"
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}
            assert (await joe.refused(joe.apply(path, body))).code == 403
            ann = await grant(api, "ann", rule("patch update create", "configmaps"))
            await ann.apply(path, body)
            await joe.apply(path, {**body, "data": {"a": "b"}})

        with_server(story)


_ROLES = rule("create update patch", "roles clusterroles", "rbac.authorization.k8s.io")
_BINDINGS = rule("create update patch", "rolebindings clusterrolebindings", "rbac.authorization.k8s.io")
_EVERY_ROLE = {"aggregationRule": {"clusterRoleSelectors": [{}]}}


class TestEscalation:
    def test_an_aggregation_rule_takes_all_rights(self) -> None:
        async def story(api: Api) -> None:
            joe = await grant(api, "joe", _ROLES, namespace="")
            roles = f"{RBAC}/clusterroles"
            error = await joe.refused(joe.create(roles, {"metadata": {"name": "r"}, **_EVERY_ROLE}))
            assert error.code == 403
            assert error.message.endswith("must have cluster-admin privileges to use the aggregationRule")
            for change in (
                joe.patch(f"{roles}/of-joe", _EVERY_ROLE),
                joe.apply(
                    f"{roles}/of-joe",
                    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", **_EVERY_ROLE},
                ),
            ):
                assert (await joe.refused(change)).code == 403
            assert (await joe.refused(joe.get("/api/v1/nodes"))).code == 403
            # Neither may one that is there be changed, nor taken away: both could keep rules from tightening.
            await api.create(roles, {"metadata": {"name": "all"}, **_EVERY_ROLE})
            for change in (
                joe.patch(f"{roles}/all", {"metadata": {"labels": {"a": "b"}}}),
                joe.patch(f"{roles}/all", {"aggregationRule": None}),
            ):
                assert (await joe.refused(change)).code == 403
            ann = await grant(
                api,
                "ann",
                rule("*", "*", "*"),
                {"nonResourceURLs": ["*"], "verbs": ["*"]},
                namespace="",
            )
            await ann.create(roles, {"metadata": {"name": "r"}, **_EVERY_ROLE})

        with_server(story)

    def test_the_verb_escalate_lifts_it(self) -> None:
        async def story(api: Api) -> None:
            escalate = rule("escalate", "clusterroles", "rbac.authorization.k8s.io")
            joe = await grant(api, "joe", _ROLES, {**escalate, "resourceNames": ["named"]}, namespace="")
            roles = f"{RBAC}/clusterroles"
            # A create by POST names nothing in the request.
            assert (
                await joe.refused(joe.create(roles, {"metadata": {"name": "named"}, **_EVERY_ROLE}))
            ).code == 403
            await joe.create(roles, {"metadata": {"name": "named"}})
            await joe.patch(f"{roles}/named", _EVERY_ROLE)
            ann = await grant(api, "ann", _ROLES, escalate, namespace="")
            await ann.create(roles, {"metadata": {"name": "other"}, **_EVERY_ROLE})

        with_server(story)

    def test_a_role_that_does_not_exist_is_not_bound(self) -> None:
        async def story(api: Api) -> None:
            joe = await grant(api, "joe", _BINDINGS)
            bindings = f"{RBAC}/namespaces/default/rolebindings"
            for kind in ("ClusterRole", "Role"):
                binding = {
                    "metadata": {"name": "b"},
                    "roleRef": {"kind": kind, "name": "later"},
                    "subjects": [{"kind": "User", "name": "joe"}],
                }
                error = await joe.refused(joe.create(bindings, binding))
                plural = f"{kind.lower()}s"
                assert error.code == 404
                assert error.message == f'{plural}.rbac.authorization.k8s.io "later" not found'
            bind = rule("bind", "clusterroles", "rbac.authorization.k8s.io", resourceNames=["later"])
            ann = await grant(api, "ann", _BINDINGS, bind)
            binding["roleRef"] = {"kind": "ClusterRole", "name": "later"}
            await ann.create(bindings, binding)

        with_server(story)

    def test_a_right_to_nothing_by_name_does_not_cover_a_right_to_all(self) -> None:
        async def story(api: Api) -> None:
            nameless = rule("get", "secrets", resourceNames=[""])
            joe = await grant(api, "joe", _ROLES, nameless)
            roles = f"{RBAC}/namespaces/default/roles"
            wanted = {"metadata": {"name": "r"}, "rules": [rule("get", "secrets")]}
            error = await joe.refused(joe.create(roles, wanted))
            assert error.message == (
                'roles.rbac.authorization.k8s.io "r" is forbidden: user "joe" '
                '(groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently '
                "held:\n"
                '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
            )

        with_server(story)

    def test_finalizers_of_a_role_may_be_changed_without_its_rights(self) -> None:
        async def story(api: Api) -> None:
            await api.create(
                f"{RBAC}/clusterroles", {"metadata": {"name": "r"}, "rules": [rule("get", "secrets")]}
            )
            joe = await grant(api, "joe", _ROLES, namespace="")
            path = f"{RBAC}/clusterroles/r"
            await joe.patch(path, {"metadata": {"finalizers": ["example.com/a"]}})
            assert (await joe.refused(joe.patch(path, {"metadata": {"labels": {"a": "b"}}}))).code == 403

        with_server(story)


class TestInvalidPolicy:
    @pytest.mark.parametrize(
        ("plural", "body", "field"),
        [
            ("roles", {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}, "rules[0].nonResourceURLs"),
            ("roles", {"rules": [{"apiGroups": [""], "resources": ["pods"]}]}, "rules[0].verbs"),
            ("roles", {"rules": [{"verbs": ["get"], "resources": ["pods"]}]}, "rules[0].apiGroups"),
            ("rolebindings", {"roleRef": {"kind": "Pod", "name": "a"}}, "roleRef.kind"),
            (
                "rolebindings",
                {"roleRef": {"kind": "Role", "name": "a"}, "subjects": [{"kind": "Users", "name": "a"}]},
                "subjects[0].kind",
            ),
        ],
    )
    def test_it_is_refused(self, plural: str, body: Object, field: str) -> None:
        async def story(api: Api) -> None:
            path = f"{RBAC}/namespaces/default/{plural}"
            error = await api.refused(api.create(path, {"metadata": {"name": "a"}, **body}))
            assert error.code == 422
            assert field in [one["field"] for one in error.details["causes"]]

        with_server(story)

    def test_a_cluster_role_binding_binds_cluster_roles_only(self) -> None:
        async def story(api: Api) -> None:
            body = {"metadata": {"name": "a"}, "roleRef": {"kind": "Role", "name": "a"}}
            assert (await api.refused(api.create(f"{RBAC}/clusterrolebindings", body))).code == 422

        with_server(story)


class TestBuiltinRoles:
    def test_they_are_the_published_ones(self) -> None:
        async def story(api: Api) -> None:
            for published in builtin_roles():
                meta = published["metadata"]
                where = f"namespaces/{meta['namespace']}/" if "namespace" in meta else ""
                path = f"{RBAC}/{where}{published['kind'].lower()}s/{meta['name']}"
                stored = await api.get(path)
                for key in ("labels", "annotations"):
                    assert stored["metadata"][key] == meta[key]
                for key in ("roleRef", "subjects", "aggregationRule"):
                    assert stored.get(key) == published.get(key), path
                if "aggregationRule" not in published:
                    assert stored.get("rules") == published.get("rules"), path

        with_server(story)

    def test_edit_writes_no_status(self) -> None:
        async def story(api: Api) -> None:
            binding = {
                "metadata": {"name": "e"},
                "roleRef": {"kind": "ClusterRole", "name": "edit"},
                "subjects": [{"kind": "User", "name": "joe"}],
            }
            await api.create(f"{RBAC}/namespaces/default/rolebindings", binding)
            joe = Api(api.server, api.clock, "joe", ())
            for path in ("/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"):
                assert (await joe.refused(joe.patch(f"{path}/x/status", {"status": {}}))).code == 403
                assert (await joe.refused(joe.patch(f"{path}/x", {}))).code == 404

        with_server(story)

    def test_a_start_adds_what_is_missing_and_replaces_what_an_earlier_server_wrote(
        self, tmp_path: Path
    ) -> None:
        roles = f"{RBAC}/clusterroles"
        status = rule("update", "jobs/status", "batch")

        async def run(story: Callable[[Api], Awaitable[None]]) -> None:
            server = Server(SqliteStore(tmp_path / "s.db"))
            await server.start()
            await story(Api(server, server.clock))
            await server.stop()

        async def before(api: Api) -> None:
            old = {"metadata": {"name": "system:aggregate-to-edit"}, "rules": [status]}
            await api.replace(f"{roles}/system:aggregate-to-edit", old)
            await api.patch(f"{roles}/system:node-proxier", {"rules": [status]})
            manual = {"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}}
            await api.patch(f"{roles}/system:monitoring", {**manual, "rules": []})
            await api.delete(f"{roles}/system:heapster")
            await api.patch(f"{RBAC}/clusterrolebindings/system:discovery", {"subjects": []})

        async def after(api: Api) -> None:
            published = {one["metadata"]["name"]: one.get("rules") for one in builtin_roles()}
            rules = {one["metadata"]["name"]: one.get("rules") for one in (await api.get(roles))["items"]}
            for name in ("system:aggregate-to-edit", "system:heapster"):
                assert rules[name] == published[name]
            assert rules["system:monitoring"] == []
            assert status in rules["system:node-proxier"]
            assert len(rules["system:node-proxier"]) > 1
            bound = await api.get(f"{RBAC}/clusterrolebindings/system:discovery")
            assert [one["name"] for one in bound["subjects"]] == ["system:authenticated"]

        asyncio.run(run(before))
        asyncio.run(run(after))


def test_the_file_of_built_in_roles_names_its_release() -> None:
    file = Path(__file__).parents[2] / "src/pykueue/embedded/apiserver/auth/builtin-roles.json"
    assert "v1.36" in orjson.loads(file.read_bytes())["source"]
