"""Controllers beside the manager, installed with it: account, role, configuration and Deployment of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pykueue.api.objects import Object
from pykueue.manager.satellites import Satellite

from .base import labelled
from .options import Options
from .process import CHECKSUM, POD_SECURITY, SECURITY, checksum
from .roles import role_with_binding, service_account_subject

#: Key of the configuration in the ConfigMap, and where it is mounted.
CONFIG_KEY: Final = "config.yaml"
CONFIG_PATH: Final = f"/{CONFIG_KEY}"

#: What the watch caches of some 100 000 workloads need.
RESOURCES: Final = {
    "requests": {"cpu": "50m", "memory": "128Mi"},
    "limits": {"cpu": "500m", "memory": "512Mi"},
}


def satellites(options: Options) -> Iterable[Object]:
    """The objects of each installed satellite."""
    for satellite, configuration in options.satellites.items():
        for obj in _objects(options, satellite, configuration):
            yield labelled(options, obj, satellite.command)


def _objects(options: Options, satellite: Satellite, configuration: str) -> Iterable[Object]:
    name = satellite.name
    metadata = {"name": name, "namespace": options.names.namespace}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    yield {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**metadata, "name": f"{name}-config"},
        "data": {CONFIG_KEY: configuration},
    }
    account = service_account_subject(name, options.names.namespace)
    yield from role_with_binding(name, satellite.rules, account)
    # Not the labels of the manager: its Services and its disruption budget must not select these pods.
    labels = {"app.kubernetes.io/name": name}
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": {CHECKSUM: checksum(configuration)}},
                "spec": _pod(options, satellite),
            },
        },
    }


def _pod(options: Options, satellite: Satellite) -> dict[str, Any]:
    return {
        "serviceAccountName": satellite.name,
        "securityContext": POD_SECURITY,
        "containers": [
            {
                "name": satellite.command,
                "image": options.image,
                # While a pod is replaced there may be two.
                "args": [
                    satellite.command,
                    f"--config={CONFIG_PATH}",
                    "--leader-elect",
                    f"--lease-namespace={options.names.namespace}",
                ],
                "resources": RESOURCES,
                "securityContext": SECURITY,
                "volumeMounts": [
                    {"name": "config", "mountPath": CONFIG_PATH, "subPath": CONFIG_KEY, "readOnly": True}
                ],
            }
        ],
        "volumes": [{"name": "config", "configMap": {"name": f"{satellite.name}-config"}}],
    }
