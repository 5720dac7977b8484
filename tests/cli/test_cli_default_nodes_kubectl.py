"""`pykueue up` as a new user starts it: without a file of nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_processes import EXAMPLE, Kubectl, Up

pytestmark = pytest.mark.kubectl


def test_jobs_of_the_readme_run_in_a_cluster_for_which_no_nodes_were_declared(
    start_up: Callable[..., Up], kubectl_for: Callable[[Up], Kubectl]
) -> None:
    up = start_up()
    assert any(line.startswith("Added 3 simulated nodes of 16 CPUs and 64Gi memory") for line in up.output)
    kubectl = kubectl_for(up)
    kubectl("create", "-f", str(EXAMPLE / "queues.yaml"))
    kubectl("create", "-f", str(EXAMPLE / "quick-job.yaml"), "-f", str(EXAMPLE / "job1.yaml"))
    kubectl("wait", "--for=condition=complete", "job/quick-job", "job/job1", "--timeout=100s")
    up.stop()
    up.output.clear()
    up.start()
    assert not any("simulated nodes" in line for line in up.output)


def test_file_without_pools_starts_a_cluster_without_nodes(
    start_up: Callable[..., Up], kubectl_for: Callable[[Up], Kubectl], tmp_path: Path
) -> None:
    (tmp_path / "nodes.yaml").write_text("pools: []\n")
    up = start_up("--nodes", str(tmp_path / "nodes.yaml"))
    assert not any("simulated nodes" in line for line in up.output)
    assert kubectl_for(up)("get", "nodes", "-o", "name") == ""
