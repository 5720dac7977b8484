"""The rights of the dashboard: to read, and nothing else.

It has no right to write, to impersonate, or to ask about the rights of others: what a user may see is asked
for with the token of that user.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pykueue.api.backfill_policies import BACKFILL_POLICIES
from pykueue.api.budgets import BUDGET_LEDGERS, BUDGETS
from pykueue.api.objects import Object
from pykueue.api.preemption_policies import PREEMPTION_POLICIES
from pykueue.api.reservations import RESERVATIONS
from pykueue.api.resources import KUEUE_GROUP
from pykueue.manager.rights import READ, Rule, allow

from .base import labelled
from .options import Options
from .process import POD_SECURITY, SECURITY
from .roles import RBAC_GROUP, role_with_binding, service_account_subject

#: What its objects are called, after the base of an installation.
COMPONENT: Final = "dashboard"
#: Without a host, on loopback: it is reached by `kubectl port-forward`, which needs no certificate.
PORT: Final = 8180
#: Port of the Service, and the name of the container's.
SERVICE_PORT: Final = 80
PORT_NAME: Final = "http"
#: Secret with the certificate of the Ingress; cert-manager or an administrator writes it.
TLS_SECRET: Final = "kueue-dashboard-tls"
#: What 50 000 Workloads and the streams of 200 browsers need.
RESOURCES: Final = {
    "requests": {"cpu": "100m", "memory": "256Mi"},
    "limits": {"cpu": "1", "memory": "512Mi"},
}
#: The user as whom the dashboard of the embedded cluster reads.
EMBEDDED_USER = "system:pykueue-dashboard"

#: Kinds that decisions depend on, and those that pages show beside them.
RULES = (
    Rule("", ("events", "limitranges", "namespaces", "nodes", "pods"), READ),
    Rule("node.k8s.io", ("runtimeclasses",), READ),
    Rule(
        KUEUE_GROUP,
        (
            "admissionchecks",
            "clusterqueues",
            "cohorts",
            "localqueues",
            "resourceflavors",
            "topologies",
            "workloadpriorityclasses",
            "workloads",
        ),
        READ,
    ),
    allow(PREEMPTION_POLICIES, *READ),
    allow(BACKFILL_POLICIES, *READ),
    allow(RESERVATIONS, *READ),
    allow(BUDGETS, *READ),
    allow(BUDGET_LEDGERS, *READ),
)


def dashboard(options: Options) -> Iterable[Object]:
    """The dashboard, where it is installed: account, role and Deployment."""
    if not options.dashboard:
        return
    for obj in _objects(options):
        yield labelled(options, obj, COMPONENT)


def _objects(options: Options) -> Iterable[Object]:
    name, namespace = f"{options.names.base}-{COMPONENT}", options.names.namespace
    metadata = {"name": name, "namespace": namespace}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    # The options of the manager are those of its configuration.
    own = Rule("", ("configmaps",), ("get",), (options.names.config_map,))
    account = service_account_subject(name, namespace)
    yield from role_with_binding(name, RULES, account)
    yield from role_with_binding(name, (own,), account, namespace)
    # Not the labels of the manager: its Services and its disruption budget must not select these pods.
    labels = {"app.kubernetes.io/name": name}
    container: Object = {
        "name": COMPONENT,
        "image": options.image,
        "args": ["dashboard", f"--port={PORT}", f"--manager-namespace={namespace}"],
        "resources": RESOURCES,
        "securityContext": SECURITY,
    }
    if options.dashboard_host:
        container["args"] += [
            "--host=0.0.0.0",
            "--behind-tls",
            f"--allowed-host={options.dashboard_host}",
        ]
        container["ports"] = [{"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"}]
        container["readinessProbe"] = {"httpGet": {"path": "/healthz", "port": PORT_NAME}}
        yield from _reached(options, metadata, labels)
    pod = {"serviceAccountName": name, "securityContext": POD_SECURITY, "containers": [container]}
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _reached(options: Options, metadata: Object, labels: Object) -> Iterable[Object]:
    """The Service, and the Ingress that ends TLS in front of it."""
    port = {"name": PORT_NAME, "port": SERVICE_PORT, "protocol": "TCP", "targetPort": PORT_NAME}
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"type": "ClusterIP", "ports": [port], "selector": labels},
    }
    if not options.dashboard_ingress:
        return
    host = options.dashboard_host
    backend = {"service": {"name": metadata["name"], "port": {"name": PORT_NAME}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    yield {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": metadata,
        "spec": {
            "tls": [{"hosts": [host], "secretName": TLS_SECRET}],
            "rules": [{"host": host, "http": {"paths": [path]}}],
        },
    }


def embedded_role() -> tuple[Object, Object]:
    """The ClusterRole and the ClusterRoleBinding of the embedded cluster."""
    user = {"apiGroup": RBAC_GROUP, "kind": "User", "name": EMBEDDED_USER}
    return role_with_binding("pykueue-dashboard", RULES, user)
