"""`kubectl kueue` as kubectl runs it, on a cluster with a manager: positions, deletion, completion."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_processes import EXAMPLE, PATIENCE, Kubectl, Up, kubectl_program
from plugin_states import huge_job

pytestmark = pytest.mark.kubectl

#: Where the installation puts `kubectl-kueue` and `kubectl_complete-kueue`.
PROGRAMS = Path(sys.executable).parent


@pytest.fixture(scope="module")
def up(start_up: Callable[..., Up]) -> Up:
    return start_up("--in-memory")


@pytest.fixture(scope="module")
def kubectl(up: Up, kubectl_for: Callable[[Up], Kubectl]) -> Kubectl:
    found = kubectl_for(up)
    found("create", "-f", str(EXAMPLE / "queues.yaml"))
    return found


def plugin(up: Up, *arguments: str) -> str:
    """The output of `kubectl ARGUMENTS` with the installed programs on PATH."""
    path = f"{PROGRAMS}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(up.kubeconfig)}
    command = [kubectl_program(), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE)
    # The completion of kubectl describes on standard error what it does.
    assert done.returncode == 0, done.stderr
    assert "__complete" in arguments or not done.stderr
    return done.stdout


def test_kubectl_runs_the_plugin_and_lists_positions_of_pending_workloads(up: Up, kubectl: Kubectl) -> None:
    queue = plugin(up, "kueue", "list", "localqueue", "-o", "jsonpath={.items[0].metadata.name}")
    for name in ("huge-1", "huge-2"):
        kubectl("create", "-f", "-", stdin=huge_job(name, queue))
    condition = "--for=jsonpath={.status.conditions[0].type}=QuotaReserved"
    kubectl("wait", condition, "workload", "--all", f"--timeout={PATIENCE}s")
    header, *rows = plugin(up, "kueue", "list", "workload").splitlines()
    assert header.split() == [
        *("NAME", "JOB", "TYPE", "JOB", "NAME", "LOCALQUEUE", "CLUSTERQUEUE", "STATUS"),
        *("POSITION", "IN", "QUEUE", "EXEC", "TIME", "AGE"),
    ]
    cells = [row.split() for row in rows]
    assert [row[1:4] for row in cells] == [["job", "huge-1", queue], ["job", "huge-2", queue]]
    assert sorted(row[5:7] for row in cells) == [["PENDING", "0"], ["PENDING", "1"]]
    # A user of the namespace may read the positions in its LocalQueues, not those in the ClusterQueue.
    kubectl("create", "rolebinding", "lin", "--clusterrole=kueue-batch-user-role", "--user=lin")
    mine = plugin(up, "kueue", "list", "workload", "--as=lin").splitlines()[1:]
    assert sorted(row.split()[5:7] for row in mine) == [["PENDING", "0"], ["PENDING", "1"]]
    assert plugin(up, "kueue", "get", "workload", "-o", "name").count("workload.kueue.x-k8s.io/") == 2
    (first, _) = (row[0] for row in cells)
    assert plugin(up, "kueue", "delete", "workload", first, "-y") == "jobs.batch/huge-1 deleted\n"
    kubectl("wait", "--for=delete", f"workload/{first}", f"--timeout={PATIENCE}s")


def test_kubectl_completes_the_arguments_of_the_plugin(up: Up) -> None:
    assert "localqueue" in plugin(up, "__complete", "kueue", "list", "").split()
