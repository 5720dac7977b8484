"""The kubectl plugin on a real API server: queues are made, filled, listed, stopped and emptied with it.

With KUEUECTL set, Kueue's plugin lists the same.
"""

from __future__ import annotations

import os
import re
import subprocess

from click.testing import CliRunner
from realcluster_install import Installation
from realcluster_jobs import Queues
from realcluster_plane import Kubectl, until

from pykueue.cli.main import main

KUEUECTL = os.environ.get("KUEUECTL", "")


def plugin(kubectl: Kubectl, *arguments: str, settled: bool = True) -> str:
    """The output of ours; that of Kueue's must be the same once the cluster has settled."""
    done = CliRunner().invoke(main, list(arguments), env=kubectl.environment)
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    if KUEUECTL and settled and arguments[0] == "list":
        environment = {**os.environ, **kubectl.environment}
        other = subprocess.run([KUEUECTL, *arguments], env=environment, capture_output=True, text=True)
        assert without_ages(other.stdout) == without_ages(done.stdout)
    return done.stdout


def without_ages(text: str) -> list[list[str]]:
    """The cells, without ages and times of execution: the two programs run one after the other."""
    age = re.compile(r"([0-9]+[smhdy])+")
    return [[cell for cell in line.split() if not age.fullmatch(cell)] for line in text.splitlines()]


def test_everyday_commands_work_on_a_real_api_server(running: Installation, kubectl: Kubectl) -> None:
    queues = Queues(running.plane, "plugin", cpu="1")
    for name in ("plugin-a", "plugin-b"):
        queues.submit(name, cpu="2")
    fields = "jsonpath={.items[*].metadata.name}"

    def positions() -> list[str] | None:
        rows = plugin(kubectl, "list", "workload", "-q", "plugin", settled=False).splitlines()[1:]
        found = sorted(row.split()[6] for row in rows if len(row.split()) == 8)
        return found if found == ["0", "1"] else None

    until(positions, "two pending workloads with positions")
    # Other tests leave workloads in the namespace.
    own = [line for line in plugin(kubectl, "list", "workload").splitlines() if " plugin-" in line]
    assert [line.count("PENDING") for line in own] == [1, 1]
    (first, second) = plugin(kubectl, "list", "kwl", "-q", "plugin", "-o", fields).split()
    assert plugin(kubectl, "list", "workload", "--for", "job/plugin-a", "-o", fields) in (first, second)
    assert "plugin" in plugin(kubectl, "list", "cq", "--active=true")
    flavor = plugin(kubectl, "create", "rf", "plugin-made", "--node-labels=a=b", "--dry-run=server")
    assert flavor == "resourceflavor.kueue.x-k8s.io/plugin-made created (server dry run)\n"
    assert plugin(kubectl, "stop", "workload", first) == f"workload.kueue.x-k8s.io/{first} stopped\n"
    assert plugin(kubectl, "stop", "lq", "plugin", "-o", "jsonpath={.spec.stopPolicy}") == "HoldAndDrain"
    assert plugin(kubectl, "resume", "lq", "plugin", "-o", "jsonpath={.spec.stopPolicy}") == "None"
    deleted = plugin(kubectl, "delete", "workload", first, second, "-y")
    assert sorted(deleted.splitlines()) == ["jobs.batch/plugin-a deleted", "jobs.batch/plugin-b deleted"]
