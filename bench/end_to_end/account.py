"""The manager's own account, as in an installation: its writes are not sent back to its webhooks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from pykueue.api.objects import Object
from pykueue.api.resources import NAMESPACES, SERVICE_ACCOUNTS, Resource
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.config import load as connect
from pykueue.kube.errors import ApiError

NAMESPACE, NAME = "kueue-system", "kueue-controller-manager"
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False)


def of_manager(kubeconfig: Path, folder: Path) -> Path:
    """A kubeconfig of the account, made on the server of another one."""
    token = asyncio.run(_token(kubeconfig))
    config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    result = folder / "manager-kubeconfig"
    result.write_text(yaml.safe_dump(config))
    result.chmod(0o600)
    return result


def objects_of_manager() -> Iterator[tuple[Resource, Object]]:
    """The account, its namespace, and the rights that it has."""
    subject = {"kind": "ServiceAccount", "namespace": NAMESPACE, "name": NAME}
    role = {"apiGroup": BINDINGS.group, "kind": "ClusterRole", "name": "cluster-admin"}
    for resource, metadata, rest in (
        (NAMESPACES, {"name": NAMESPACE}, {}),
        (SERVICE_ACCOUNTS, {"name": NAME, "namespace": NAMESPACE}, {}),
        (BINDINGS, {"name": NAME}, {"roleRef": role, "subjects": [subject]}),
    ):
        yield (
            resource,
            {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **rest},
        )


def token_request() -> Object:
    """What asks for a token of the account."""
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {"namespace": NAMESPACE},
        "spec": {"audiences": [], "expirationSeconds": 86_400},
    }


async def _token(kubeconfig: Path) -> str:
    transport = await connect(kubeconfig)
    try:
        client = Client(transport, clock=Clock())
        for resource, obj in objects_of_manager():
            with suppress(ApiError):  # it exists
                await client.create(resource, obj)
        answer = await client.create(SERVICE_ACCOUNTS, token_request(), subresource="token", name=NAME)
        token: str = answer["status"]["token"]
        return token
    finally:
        await transport.close()
