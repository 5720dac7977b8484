"""A cluster whose parts run in processes of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conftest import EXAMPLE, PATIENCE, Kubectl, Up

pytestmark = pytest.mark.kubectl


def test_an_api_server_alone_stays_up_and_the_other_parts_work_on_it(
    start_up: Callable[..., Up], kubectl_for: Callable[[Up], Kubectl]
) -> None:
    server = start_up("--only", "apiserver")
    kubectl = kubectl_for(server)
    others = Up(server.folder, "--only", "kube,manager", "--nodes", str(EXAMPLE / "nodes.yaml")).start()
    try:
        kubectl("create", "-f", str(EXAMPLE / "queues.yaml"), "-f", str(EXAMPLE / "quick-job.yaml"))
        kubectl("wait", "--for=condition=complete", "job/quick-job", f"--timeout={PATIENCE}s")
    finally:
        assert others.stop() == 0
    assert kubectl("get", "nodes", "-o", "name") == "node/node-0\n"
    assert server.stop() == 0
