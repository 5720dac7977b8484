"""What matchConditions of webhooks can use: the request, the objects, and the authorizer."""

from __future__ import annotations

from typing import Any

import pytest
from apiserver_harness import CONFIG_MAPS, Api, config_map, with_server

from pykueue.kube.errors import ApiError

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def configuration(expression: str) -> dict[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    webhook = {
        "name": "unreachable.example.com",
        "clientConfig": {"service": {"namespace": "default", "name": "unreachable"}},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "matchConditions": [{"name": "condition", "expression": expression}],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "unreachable"},
        "webhooks": [webhook],
    }


async def may_bypass(api: Api) -> None:
    """The user `joe` may bypass ConfigMaps of `default`, and the ServiceAccount `robot` get /special."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "bypass"},
        "rules": [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "bypass"]},
            {
                "apiGroups": ["apps"],
                "resources": ["deployments/scale"],
                "verbs": ["patch"],
                "resourceNames": ["d"],
            },
        ],
    }
    await api.create(f"{RBAC}/namespaces/default/roles", role)
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "bypass"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "bypass"},
        "subjects": [{"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    await api.create(f"{RBAC}/namespaces/default/rolebindings", binding)
    everywhere = {
        **role,
        "kind": "ClusterRole",
        "rules": [{"nonResourceURLs": ["/special"], "verbs": ["get"]}],
    }
    await api.create(f"{RBAC}/clusterroles", everywhere)
    account = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
    binding = {
        **binding,
        "kind": "ClusterRoleBinding",
        "roleRef": {**binding["roleRef"], "kind": "ClusterRole"},
        "subjects": [account],
    }
    await api.create(f"{RBAC}/clusterrolebindings", binding)


@pytest.mark.parametrize(
    ("expression", "asked"),
    [
        ("!authorizer.requestResource.check('bypass').allowed()", False),
        ("!authorizer.requestResource.check('delete').allowed()", True),
        ("authorizer.group('').resource('configmaps').namespace('other').check('bypass').allowed()", False),
        ("authorizer.group('').resource('configmaps').namespace('default').check('bypass').allowed()", True),
        (
            "authorizer.group('apps').resource('deployments').subresource('scale').namespace('default').name('d')"
            ".check('patch').allowed()",
            True,
        ),
        ("authorizer.path('/special').check('get').allowed()", False),
        ("authorizer.serviceAccount('default', 'robot').path('/special').check('get').allowed()", True),
        ("authorizer.requestResource.check('bypass').reason().contains('RoleBinding')", True),
        ("authorizer.requestResource.check('bypass').errored()", False),
        ("authorizer.requestResource.check('bypass').error() == ''", True),
    ],
)
def test_match_conditions_can_use_the_authorizer(expression: str, asked: bool) -> None:
    async def story(api: Api) -> None:
        await may_bypass(api)
        await api.create(CONFIGURATIONS, configuration(expression))
        joe = Api(api.server, api.clock, "joe", ())
        if asked:
            with pytest.raises(ApiError, match=r"failed calling webhook \"unreachable.example.com\""):
                await joe.create(CONFIG_MAPS, config_map("c"))
        else:
            await joe.create(CONFIG_MAPS, config_map("c"))

    with_server(story)


def test_a_condition_on_the_name_of_the_user_holds_for_each_user() -> None:
    """It is answered before a review is made, for each name, and for the impersonated one."""

    async def story(api: Api) -> None:
        await may_bypass(api)
        await api.create(CONFIGURATIONS, configuration("request.userInfo.username != 'joe'"))
        joe = Api(api.server, api.clock, "joe", ())
        for number in range(2):
            await joe.create(CONFIG_MAPS, config_map(f"spared-{number}"))
            with pytest.raises(ApiError, match="failed calling webhook"):
                await api.create(CONFIG_MAPS, config_map(f"asked-{number}"))

    with_server(story)


def test_a_condition_on_the_name_of_the_user_holds_for_long_names() -> None:
    """Answers are remembered for short names only, and given for all."""

    async def story(api: Api) -> None:
        name = "j" * 300
        await api.create(CONFIGURATIONS, configuration(f"request.userInfo.username != '{name}'"))
        spared, asked = (Api(api.server, api.clock, one, ("system:masters",)) for one in (name, f"{name}j"))
        for number in range(2):
            await spared.create(CONFIG_MAPS, config_map(f"spared-{number}"))
            with pytest.raises(ApiError, match="failed calling webhook"):
                await asked.create(CONFIG_MAPS, config_map(f"asked-{number}"))

    with_server(story)
