"""Fixtures of the kubectl tests: one server with controllers and nodes a module, a namespace a test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from clients_harness import WIDGETS, Kubectl

from pykueue.embedded.nodes.pool import load_pools
from pykueue.testing import RunningServer, running_server

_NODES = """
pools:
- name: node
  count: 2
  allocatable: {cpu: "8", memory: 16Gi, pods: "110"}
  simulation: {startDelay: 0s}
"""


async def _log_lines(pod: Any, container: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
    lines = [f"{pod['metadata']['name']}/{container} says {number}\n".encode() for number in range(3)]
    for line in lines[-int(query.get("tailLines", len(lines))) :]:
        yield line


@pytest.fixture(scope="module")
def kubectl_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with the kind Widget, two nodes, and the controllers of a cluster."""
    nodes = tmp_path_factory.mktemp("nodes") / "nodes.yaml"
    nodes.write_text(_NODES)
    with running_server(parts=("apiserver", "kube"), nodes=load_pools(nodes)) as server:
        server.install_definitions(WIDGETS)
        assert server.cluster.server is not None
        server.cluster.server.pipeline.log_source = _log_lines
        # No certificates of the authority from here on: lists of config maps are the tests' own.
        server.cluster.server.pipeline.publish_authority("")
        yield server


@pytest.fixture(scope="module")
def kubectl_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def kubectl(kubectl_cluster: RunningServer, kubectl_home: Path, request: pytest.FixtureRequest) -> Kubectl:
    """kubectl in a fresh namespace."""
    return Kubectl(kubectl_cluster, kubectl_home, getattr(request, "param", None)).in_new_namespace()
