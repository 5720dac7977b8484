"""How the manager is reached: Services, the visibility API's registration, and who may connect."""

from __future__ import annotations

from collections.abc import Iterable

from pykueue.api.objects import Object
from pykueue.manager.install_names import (
    CA_CERTIFICATE,
    METRICS_PATH,
    METRICS_PORT_NAME,
    METRICS_SERVICE_PORT,
    SERVICE_PORT,
    VISIBILITY_GROUP,
    VISIBILITY_PORT_NAME,
    VISIBILITY_VERSIONS,
    WEBHOOK_PORT_NAME,
)

from .base import labelled, selector
from .options import Options


def services(options: Options) -> Iterable[Object]:
    """One Service each for webhooks, metrics and the visibility API."""
    names = options.names
    for name, component, port_name, port, target in (
        (names.webhook_service, "webhook-service", "https", SERVICE_PORT, WEBHOOK_PORT_NAME),
        (names.metrics_service, "metrics-service", "https", METRICS_SERVICE_PORT, METRICS_PORT_NAME),
        (names.visibility_service, "visibility-service", "https", SERVICE_PORT, VISIBILITY_PORT_NAME),
    ):
        yield labelled(
            options,
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name, "namespace": names.namespace},
                "spec": {
                    "ports": [{"name": port_name, "port": port, "protocol": "TCP", "targetPort": target}],
                    "selector": selector(options),
                },
            },
            component,
        )


def network_policy(options: Options) -> Iterable[Object]:
    """Only what is served can be reached. Where the API server calls from is not known, so anyone may try.

    Probes come from the pod's own node, which policies always let through. Connections outward are not
    limited: addresses and ports of API servers differ from cluster to cluster.
    """
    if not options.network_policy:
        return
    names = options.names
    ports = (WEBHOOK_PORT_NAME, METRICS_PORT_NAME, VISIBILITY_PORT_NAME)
    yield labelled(
        options,
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": names.deployment, "namespace": names.namespace},
            "spec": {
                "podSelector": {"matchLabels": selector(options)},
                "policyTypes": ["Ingress"],
                "ingress": [{"ports": [{"port": port, "protocol": "TCP"} for port in ports]}],
            },
        },
    )


def service_monitor(options: Options) -> Iterable[Object]:
    """How the Prometheus operator finds the metrics: over TLS, with the token of a reader."""
    if not options.service_monitor:
        return
    names = options.names
    yield labelled(
        options,
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "ServiceMonitor",
            "metadata": {"name": f"{names.metrics_service}-monitor", "namespace": names.namespace},
            "spec": {
                "endpoints": [
                    {
                        "port": "https",
                        "path": METRICS_PATH,
                        "scheme": "https",
                        "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
                        "tlsConfig": {
                            "ca": {"secret": {"name": names.webhook_secret, "key": CA_CERTIFICATE}},
                            "serverName": f"{names.metrics_service}.{names.namespace}.svc",
                        },
                    }
                ],
                "selector": {
                    "matchLabels": {**selector(options), "app.kubernetes.io/component": "metrics-service"}
                },
            },
        },
    )


def api_services(options: Options) -> Iterable[Object]:
    """The visibility API's versions, answered by the manager. It keeps their certificate authority itself."""
    if not options.configuration.gates["VisibilityOnDemand"]:
        return
    names = options.names
    for version in VISIBILITY_VERSIONS:
        yield labelled(
            options,
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": f"{version}.{VISIBILITY_GROUP}"},
                "spec": {
                    "group": VISIBILITY_GROUP,
                    "version": version,
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "service": {
                        "name": names.visibility_service,
                        "namespace": names.namespace,
                        "port": SERVICE_PORT,
                    },
                },
            },
        )
