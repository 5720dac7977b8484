"""A worker cluster is reached over TLS with what its kubeconfig says, and with nothing else."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace

import pytest
import yaml
from multikueue_world import kubeconfig

from pykueue.api.resources import NAMESPACES
from pykueue.kube.client import Client
from pykueue.manager.multikueue.kubeconfig import KubeConfigError, Target, connect, parse
from pykueue.testing import RunningServer, pykueue_server

__all__ = ["pykueue_server"]


def target(server: RunningServer, authority: bytes) -> Target:
    data = base64.b64encode(authority).decode()
    fields = {"certificate-authority-data": data}
    content = kubeconfig("w", server=server.url, user={"token": server.token}, **fields)
    return parse(yaml.safe_dump(content))


def namespaces(target: Target) -> list[str]:
    async def names() -> list[str]:
        transport = connect(target)
        try:
            return [one["metadata"]["name"] for one in (await Client(transport).list(NAMESPACES)).items]
        finally:
            await transport.close()

    return asyncio.run(names())


def test_worker_is_reached_with_authority_and_token_of_the_kubeconfig(
    pykueue_server: RunningServer,
) -> None:
    assert "default" in namespaces(target(pykueue_server, pykueue_server.ca_file.read_bytes()))


def test_worker_is_reached_with_client_certificate_of_the_kubeconfig(pykueue_server: RunningServer) -> None:
    found = parse(pykueue_server.kubeconfig.read_text())
    assert found.certificate
    assert "default" in namespaces(replace(found, token=""))


def test_unusable_certificate_is_refused_and_no_representation_shows_credentials(
    pykueue_server: RunningServer,
) -> None:
    found = target(pykueue_server, b"no certificate")
    with pytest.raises(KubeConfigError) as error:
        connect(found)
    assert error.value.reason == "BadRestConfig"
    assert pykueue_server.token not in repr(found)
