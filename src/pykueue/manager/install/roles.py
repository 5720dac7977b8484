"""Who may do what: the manager's own rights, and roles for those who administer and use queues.

The manager's rights are those that its components declare; tests run it with nothing else. Roles for people:
docs/reference/kueue-api.md 10.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from pykueue.api.backfill_policies import BACKFILL_POLICIES
from pykueue.api.budgets import BUDGET_LEDGERS, BUDGETS
from pykueue.api.crds import kueue_crds
from pykueue.api.objects import Object
from pykueue.api.preemption_policies import PREEMPTION_POLICIES
from pykueue.api.reservations import RESERVATIONS
from pykueue.api.resources import KUEUE_GROUP
from pykueue.api.userkinds import JOB_KINDS
from pykueue.jobs.kinds import BUILT_IN, JobKinds
from pykueue.manager.components import rules
from pykueue.manager.components.builtin import components
from pykueue.manager.configuration import Configuration
from pykueue.manager.install_names import METRICS_PATH, SCORES_CONFIG_MAP, VISIBILITY_GROUP
from pykueue.manager.rights import READ, Rule, allow, merged

from .base import labelled
from .options import Options

EDIT = ("create", "delete", "get", "list", "patch", "update", "watch")
RBAC_GROUP = "rbac.authorization.k8s.io"


def manager_rules(options: Options) -> list[Rule]:
    """All that the manager may do anywhere in the cluster: what its components need, and its certificates."""
    configuration = options.configuration
    kinds = BUILT_IN.enabled(configuration.integrations.frameworks, configuration.feature_gates)
    found = component_rules(configuration, kinds)
    if configuration.internal_cert_management.enable:
        found += _certificate_rules(options)
    return found


def component_rules(configuration: Configuration, kinds: JobKinds) -> list[Rule]:
    """What the components need: rules that do not depend on the job kinds, then those of each kind.

    So that enabling a kind adds rules and changes none.
    """
    common = rules(components(configuration, JobKinds([])))
    found = dict.fromkeys(common)
    for framework in kinds.frameworks:
        found |= dict.fromkeys(rules(components(configuration, kinds.enabled([framework])), common))
    return list(found)


def _certificate_rules(options: Options) -> list[Rule]:
    """Its authority's certificate is written where the API server looks for it, into these objects alone."""
    names = options.names
    verbs = ("get", "update")
    admission = "admissionregistration.k8s.io"
    definitions = tuple(crd["metadata"]["name"] for crd in kueue_crds())
    return [
        Rule(admission, ("mutatingwebhookconfigurations",), verbs, (names.mutating_configuration,)),
        Rule(admission, ("validatingwebhookconfigurations",), verbs, (names.validating_configuration,)),
        Rule("apiextensions.k8s.io", ("customresourcedefinitions",), verbs, definitions),
        Rule("apiregistration.k8s.io", ("apiservices",), verbs, names.api_services),
    ]


def manager_roles(options: Options) -> Iterable[Object]:
    """The manager's roles and their bindings."""
    names = options.names
    base, account = names.base, names.service_account
    election = options.configuration.leader_election
    yield from _cluster_role(options, f"{base}-manager-role", manager_rules(options))
    yield from _cluster_binding(options, f"{base}-manager-rolebinding", f"{base}-manager-role")
    yield from _role(
        options,
        f"{base}-leader-election",
        election.resource_namespace or names.namespace,
        [
            Rule("coordination.k8s.io", ("leases",), ("create",)),
            Rule("coordination.k8s.io", ("leases",), ("get", "update"), (election.resource_name,)),
        ],
    )
    if options.forecasts:
        rules = [
            Rule("", ("configmaps",), ("create",)),
            Rule("", ("configmaps",), ("get", "update"), (SCORES_CONFIG_MAP,)),
        ]
        yield from _role(options, f"{base}-forecast-scores", names.namespace, rules)
    own = [
        allow(resource, *READ)
        for component in components(options.configuration, JobKinds([]))
        for resource in component.own_namespace
    ]
    if options.configuration.internal_cert_management.enable:
        # Read and filled, never created: the Secret is part of the installation.
        own.append(Rule("", ("secrets",), ("get", "update"), (names.webhook_secret,)))
    if own:
        yield from _role(options, f"{base}-manager-secrets", names.namespace, merged(own))
    yield from _cluster_role(
        options,
        f"{base}-metrics-auth-role",
        [
            Rule("authentication.k8s.io", ("tokenreviews",), ("create",)),
            Rule("authorization.k8s.io", ("subjectaccessreviews",), ("create",)),
        ],
    )
    yield from _cluster_binding(options, f"{base}-metrics-auth-rolebinding", f"{base}-metrics-auth-role")
    yield labelled(
        options,
        {
            "apiVersion": f"{RBAC_GROUP}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"{base}-visibility-server-auth-reader", "namespace": "kube-system"},
            "roleRef": _reference("Role", "extension-apiserver-authentication-reader"),
            "subjects": [service_account_subject(account, names.namespace)],
        },
    )


# People


class _Kind(NamedTuple):
    """A kind that people have roles for."""

    name: str
    group: str
    resource: str
    status: bool
    #: Which of the aggregated roles its editor and viewer join.
    editors: tuple[str, ...]
    viewers: tuple[str, ...]


_ADMIN = ("batch-admin",)
_BOTH = ("batch-admin", "batch-user")
_BUILT_IN = ("view", "edit", "admin")

_KUEUE_KINDS = (
    _Kind("clusterqueue", KUEUE_GROUP, "clusterqueues", True, _ADMIN, (*_ADMIN, "admin")),
    _Kind("cohort", KUEUE_GROUP, "cohorts", True, _ADMIN, (*_ADMIN, "admin")),
    _Kind("resourceflavor", KUEUE_GROUP, "resourceflavors", False, _ADMIN, (*_ADMIN, "admin")),
    _Kind("topology", KUEUE_GROUP, "topologies", False, _ADMIN, (*_ADMIN, "admin")),
    _Kind("localqueue", KUEUE_GROUP, "localqueues", True, _ADMIN, (*_BOTH, *_BUILT_IN)),
    _Kind("jobkind", JOB_KINDS.group, JOB_KINDS.plural, True, _ADMIN, _ADMIN),
    _Kind("reservation", RESERVATIONS.group, RESERVATIONS.plural, True, _ADMIN, _ADMIN),
    _Kind("backfillpolicy", BACKFILL_POLICIES.group, BACKFILL_POLICIES.plural, True, _ADMIN, _ADMIN),
    _Kind("preemptionpolicy", PREEMPTION_POLICIES.group, PREEMPTION_POLICIES.plural, True, _ADMIN, _ADMIN),
    _Kind("budget", BUDGETS.group, BUDGETS.plural, True, _ADMIN, _ADMIN),
    _Kind("workload", KUEUE_GROUP, "workloads", True, _ADMIN, (*_BOTH, *_BUILT_IN)),
)

_KUBEFLOW = "kubeflow.org"
_JOB_KINDS = tuple(
    _Kind(name, group, resource, True, _BOTH, (*_BOTH, *_BUILT_IN))
    for name, group, resource in (
        ("job", "batch", "jobs"),
        ("jobset", "jobset.x-k8s.io", "jobsets"),
        ("mpijob", _KUBEFLOW, "mpijobs"),
        ("pytorchjob", _KUBEFLOW, "pytorchjobs"),
        ("tfjob", _KUBEFLOW, "tfjobs"),
        ("xgboostjob", _KUBEFLOW, "xgboostjobs"),
        ("paddlejob", _KUBEFLOW, "paddlejobs"),
        ("jaxjob", _KUBEFLOW, "jaxjobs"),
        ("trainjob", "trainer.kubeflow.org", "trainjobs"),
        ("rayjob", "ray.io", "rayjobs"),
        ("leaderworkerset", "leaderworkerset.x-k8s.io", "leaderworkersets"),
        ("sparkapplication", "sparkoperator.k8s.io", "sparkapplications"),
    )
)
_RAY_KINDS = tuple(
    # Users are not given the viewer: they have the editor.
    _Kind(name, "ray.io", resource, True, _BOTH, (*_ADMIN, *_BUILT_IN))
    for name, resource in (("raycluster", "rayclusters"), ("rayservice", "rayservices"))
)


def roles_for_people(options: Options) -> Iterable[Object]:
    """An editor and a viewer role for each kind, and the two roles that gather them: admin and user."""
    base = options.names.base
    for kind in (*_KUEUE_KINDS, *_JOB_KINDS, *_RAY_KINDS):
        status = [Rule(kind.group, (f"{kind.resource}/status",), ("get",))] if kind.status else []
        for role, verbs, joins in (("editor", EDIT, kind.editors), ("viewer", READ, kind.viewers)):
            rules = [Rule(kind.group, (kind.resource,), verbs), *status]
            yield from _cluster_role(options, f"{base}-{kind.name}-{role}-role", rules, joins)
    for name, resource, joins in (
        ("cq", "clusterqueues/pendingworkloads", (*_ADMIN, *_BUILT_IN)),
        ("lq", "localqueues/pendingworkloads", (*_BOTH, *_BUILT_IN)),
    ):
        rules = [Rule(VISIBILITY_GROUP, (resource,), READ)]
        yield from _cluster_role(options, f"{base}-pending-workloads-{name}-viewer-role", rules, joins)
    rules = [Rule(VISIBILITY_GROUP, ("pendingworkloads",), ("get", "list"))]
    yield from _cluster_role(options, f"{base}-pending-workloads-viewer-role", rules, (*_BOTH, *_BUILT_IN))
    # Answers depend on the further rights of the user.
    rules = [Rule(VISIBILITY_GROUP, ("workloads/why",), ("get",))]
    yield from _cluster_role(options, f"{base}-workloads-why-viewer-role", rules, (*_BOTH, *_BUILT_IN))
    rules = [Rule(BUDGET_LEDGERS.group, (BUDGET_LEDGERS.plural,), READ)]
    yield from _cluster_role(options, f"{base}-budgetledger-viewer-role", rules, _ADMIN)
    if options.pod_viewer:
        rules = [Rule("", ("pods", "events"), READ), Rule("", ("pods/log",), ("get",))]
        yield from _cluster_role(options, f"{base}-pod-viewer-role", rules, _BOTH)
    for name in _BOTH:
        yield labelled(
            options,
            {
                "apiVersion": f"{RBAC_GROUP}/v1",
                "kind": "ClusterRole",
                "metadata": {"name": f"{base}-{name}-role"},
                "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {_label(name): "true"}}]},
            },
        )
    yield labelled(
        options,
        {
            "apiVersion": f"{RBAC_GROUP}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": f"{base}-metrics-reader"},
            "rules": [{"nonResourceURLs": [METRICS_PATH], "verbs": ["get"]}],
        },
    )


def _label(role: str) -> str:
    """The label by which a role of that name gathers others."""
    if role in _BUILT_IN:
        return f"rbac.authorization.k8s.io/aggregate-to-{role}"
    return f"rbac.kueue.x-k8s.io/{role}"


# Objects


def _cluster_role(
    options: Options, name: str, rules: Iterable[Rule], joins: Iterable[str] = ()
) -> Iterable[Object]:
    metadata: dict[str, Any] = {"name": name}
    labels = {_label(role): "true" for role in joins}
    if labels:
        metadata["labels"] = labels
    yield labelled(
        options,
        {
            "apiVersion": f"{RBAC_GROUP}/v1",
            "kind": "ClusterRole",
            "metadata": metadata,
            "rules": [rule.object() for rule in rules],
        },
    )


def _cluster_binding(options: Options, name: str, role: str) -> Iterable[Object]:
    names = options.names
    yield labelled(
        options,
        {
            "apiVersion": f"{RBAC_GROUP}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": _reference("ClusterRole", role),
            "subjects": [service_account_subject(names.service_account, names.namespace)],
        },
    )


def _role(options: Options, name: str, namespace: str, rules: Iterable[Rule]) -> Iterable[Object]:
    """A role in a namespace, given to the manager."""
    names = options.names
    yield labelled(
        options,
        {
            "apiVersion": f"{RBAC_GROUP}/v1",
            "kind": "Role",
            "metadata": {"name": f"{name}-role", "namespace": namespace},
            "rules": [rule.object() for rule in rules],
        },
    )
    yield labelled(
        options,
        {
            "apiVersion": f"{RBAC_GROUP}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"{name}-rolebinding", "namespace": namespace},
            "roleRef": _reference("Role", f"{name}-role"),
            "subjects": [service_account_subject(names.service_account, names.namespace)],
        },
    )


def _reference(kind: str, name: str) -> Object:
    return {"apiGroup": RBAC_GROUP, "kind": kind, "name": name}


def role_with_binding(
    name: str, rules: Iterable[Rule], subject: Object, namespace: str = ""
) -> tuple[Object, Object]:
    """A role and the binding of its name, which gives it to the subject; no namespace: for the cluster."""
    kind, metadata = "ClusterRole", {"name": name}
    if namespace:
        kind, metadata = "Role", {**metadata, "namespace": namespace}
    role = {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": kind,
        "metadata": metadata,
        "rules": [rule.object() for rule in rules],
    }
    binding = {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": _reference(kind, name),
        "subjects": [subject],
    }
    return role, binding


def service_account_subject(name: str, namespace: str) -> Object:
    """A ServiceAccount as the subject of a binding."""
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}
