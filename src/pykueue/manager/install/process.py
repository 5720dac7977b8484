"""The manager's pods: Deployment, disruption budget, configuration and account."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final

from pykueue.api.objects import Object
from pykueue.manager.install_names import (
    CONFIG_KEY,
    CONFIG_PATH,
    HEALTH_PORT_NAME,
    METRICS_PORT_NAME,
    VISIBILITY_PORT_NAME,
    WEBHOOK_PORT_NAME,
)

from .base import labelled, selector
from .options import CLAIM_PATH, SCRATCH_PATH, Options

#: Seconds in which a terminating replica gives up its lease and closes its connections.
GRACE = 10


#: What a manager of some 100 000 workloads needs.
RESOURCES: Final = {
    "requests": {"cpu": "500m", "memory": "512Mi"},
    "limits": {"cpu": "2", "memory": "1Gi"},
}
#: The group of the image's user.
GROUP: Final = 65532
#: Annotation of the pods that changes with the configuration, so that applying another replaces them.
CHECKSUM = "pykueue.io/configuration"

#: Of pods, and of their containers: what the Pod Security Standard `restricted` requires.
POD_SECURITY: Final = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def checksum(text: str) -> str:
    """The value of the annotation `CHECKSUM`."""
    return hashlib.sha256(text.encode()).hexdigest()


def configured(options: Options) -> Iterable[Object]:
    """The account and the configuration, and the Secret that the manager fills."""
    names = options.names
    yield labelled(
        options,
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": names.service_account, "namespace": names.namespace},
        },
    )
    yield labelled(
        options,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": names.config_map, "namespace": names.namespace},
            "data": {CONFIG_KEY: options.configuration_text},
        },
    )
    if not options.cert_manager:
        # Neither content nor type is declared, so that applying again leaves what the manager put there, and
        # takes over what cert-manager left there, which is of another type.
        yield labelled(
            options,
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": names.webhook_secret, "namespace": names.namespace},
            },
        )


def running(options: Options) -> Iterable[Object]:
    """The Deployment, and how many of its pods may be away at once."""
    names = options.names
    yield labelled(
        options,
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": names.deployment, "namespace": names.namespace},
            "spec": {
                "replicas": options.replicas,
                "selector": {"matchLabels": selector(options)},
                "template": {
                    "metadata": {
                        "labels": {**selector(options), "app.kubernetes.io/component": "controller"},
                        "annotations": {
                            "kubectl.kubernetes.io/default-container": "manager",
                            CHECKSUM: checksum(options.configuration_text),
                        },
                    },
                    "spec": _pod(options),
                },
            },
        },
    )
    if options.replicas > 1:
        yield labelled(
            options,
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": names.deployment, "namespace": names.namespace},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": selector(options)}},
            },
        )


def _pod(options: Options) -> Object:
    names = options.names
    webhook = options.configuration.webhook
    volumes: list[Any] = [
        {"name": "config", "configMap": {"name": names.config_map}},
        {"name": "scratch", "emptyDir": {}},
    ]
    mounts: list[Any] = [
        {"name": "config", "mountPath": CONFIG_PATH, "subPath": CONFIG_KEY, "readOnly": True},
        {"name": "scratch", "mountPath": SCRATCH_PATH},
    ]
    security = dict(POD_SECURITY)
    recorder = options.flight_recorder
    if recorder is not None and recorder.claim:
        volumes.append({"name": "flight", "persistentVolumeClaim": {"claimName": recorder.claim}})
        mounts.append({"name": "flight", "mountPath": CLAIM_PATH})
        # So that the manager may write; what it wrote keeps its mode.
        security |= {"fsGroup": GROUP, "fsGroupChangePolicy": "OnRootMismatch"}
    if not options.configuration.internal_cert_management.enable:
        # A certificate that another makes is read from files, as the kubelet renews them.
        volumes.append({"name": "cert", "secret": {"secretName": names.webhook_secret}})
        mounts.append({"name": "cert", "mountPath": webhook.cert_dir, "readOnly": True})
    health = options.configuration.health
    return {
        "serviceAccountName": names.service_account,
        "terminationGracePeriodSeconds": GRACE,
        "securityContext": security,
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "podAffinityTerm": {
                            "labelSelector": {"matchLabels": selector(options)},
                            "topologyKey": "kubernetes.io/hostname",
                        },
                    }
                ]
            }
        },
        "containers": [
            {
                "name": "manager",
                "image": options.image,
                "args": _arguments(options),
                "ports": _ports(options),
                "livenessProbe": _probe(health.liveness_endpoint_name, 15, 20),
                "readinessProbe": _probe(health.readiness_endpoint_name, 5, 10),
                "resources": RESOURCES,
                "securityContext": SECURITY,
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }


def _arguments(options: Options) -> list[str]:
    found = ["manager", f"--config={CONFIG_PATH}", "--zap-log-level=2"]
    if (recorder := options.flight_recorder) is not None:
        found += [
            f"--flight-recorder={recorder.directory}",
            f"--flight-recorder-size={recorder.size}",
            f"--flight-recorder-age={recorder.age}",
        ]
    if options.forecasts:
        found.append("--forecasts")
    return found


def _ports(options: Options) -> list[Object]:
    configuration = options.configuration
    found = {
        WEBHOOK_PORT_NAME: configuration.webhook.port,
        METRICS_PORT_NAME: port_of(configuration.metrics.bind_address),
        VISIBILITY_PORT_NAME: configuration.visibility_server.bind_port,
        HEALTH_PORT_NAME: port_of(configuration.health.health_probe_bind_address),
    }
    return [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in found.items() if port]


def port_of(address: str) -> int:
    """The port of an address `host:port`; 0 where it is switched off."""
    return int(address.rpartition(":")[2] or 0)


def _probe(endpoint: str, delay: int, period: int) -> Object:
    return {
        "httpGet": {"path": f"/{endpoint}", "port": HEALTH_PORT_NAME},
        "initialDelaySeconds": delay,
        "periodSeconds": period,
    }
