"""`pykueue up` as a new user starts it: without a file of nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_processes import EXAMPLE, Kubectl, Up

pytestmark = pytest.mark.kubectl


def test_jobs_of_the_readme_run_without_declared_nodes_and_v_logs_decisions(
    start_up: Callable[..., Up], kubectl_for: Callable[[Up], Kubectl], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    up = start_up(log=log)
    assert any(line.startswith("Added 3 simulated nodes of 16 CPUs and 64Gi memory") for line in up.output)
    kubectl = kubectl_for(up)
    kubectl("create", "-f", str(EXAMPLE / "queues.yaml"))
    kubectl("create", "-f", str(EXAMPLE / "quick-job.yaml"), "-f", str(EXAMPLE / "job1.yaml"))
    kubectl("wait", "--for=condition=complete", "job/quick-job", "job/job1", "--timeout=100s")
    up.stop()
    assert "Workload" not in log.read_text()
    up.output.clear()
    up.options = ("-v",)
    up.start()
    assert not any("simulated nodes" in line for line in up.output)
    kubectl("create", "-f", str(EXAMPLE / "job2.yaml"))
    decision = "pykueue.manager.scheduler.decision_log: Workload default/job-job2-"
    while not any(decision in line and "admitted by" in line for line in log.read_text().splitlines()):
        time.sleep(0.05)  # until the time limit of tests


def test_file_without_pools_starts_a_cluster_without_nodes(
    start_up: Callable[..., Up], kubectl_for: Callable[[Up], Kubectl], tmp_path: Path
) -> None:
    (tmp_path / "nodes.yaml").write_text("pools: []\n")
    up = start_up("--nodes", str(tmp_path / "nodes.yaml"))
    assert not any("simulated nodes" in line for line in up.output)
    assert kubectl_for(up)("get", "nodes", "-o", "name") == ""
