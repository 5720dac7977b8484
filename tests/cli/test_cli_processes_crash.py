"""Real kubectl against containers that are processes, and a `pykueue up` that is killed under them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_processes import Kubectl, Up

pytestmark = pytest.mark.kubectl

NODES = "pools: [{name: n, runtime: process, allocatable: {cpu: 8, memory: 8Gi, pods: 110}}]"


def test_logs_and_a_crash(
    start_up: Callable[..., Up], kubectl_for: Callable[[Up], Kubectl], tmp_path: Path
) -> None:
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(NODES)
    up = start_up("--nodes", str(nodes))
    assert "there is no sandbox" in up.output[0]
    kubectl = kubectl_for(up)
    script = "echo first line; echo second line; sleep 1000 & sleep 1000"
    kubectl("run", "steady", "--image=x", "--restart=Always", "--command", "--", "bash", "-c", script)
    kubectl("wait", "--for=condition=Ready", "pod/steady", "--timeout=60s")
    with kubectl.popen("logs", "-f", "steady") as follower:
        assert follower.stdout is not None
        assert [follower.stdout.readline() for _ in range(2)] == ["first line\n", "second line\n"]
        follower.terminate()
        follower.communicate()
    assert kubectl("logs", "steady", "--tail=1") == "second line\n"
    stamped = kubectl("logs", "steady", "--timestamps", "--since=1h").splitlines()
    assert [line.partition(" ")[2] for line in stamped] == ["first line", "second line"]
    assert "previous terminated container" in kubectl.refused("logs", "steady", "--previous")
    assert len(running(up)) >= 3

    up.kill()
    assert not running(up)
    up.start()
    restarted = "--for=jsonpath={.status.containerStatuses[0].restartCount}=1"
    kubectl("wait", restarted, "pod/steady", "--timeout=60s")
    kubectl("wait", "--for=condition=Ready", "pod/steady", "--timeout=60s")
    status = json.loads(kubectl("get", "pod", "steady", "-o", "json"))["status"]["containerStatuses"][0]
    last = status["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"]) == (255, "Unknown")
    assert kubectl("logs", "steady", "--previous") == "first line\nsecond line\n"

    kubectl("delete", "pod", "steady", "--grace-period=1")
    assert not running(up)
    while list((up.folder / "pods").glob("*-*-*-*-*")):
        # The pod's files go as soon as its node hears of it.
        assert kubectl("get", "pods", "-o", "name") == ""
    assert up.stop() == 0
    assert not list((up.folder / "pods").iterdir())


def running(up: Up) -> list[str]:
    """Processes of this machine that work in the folder of this cluster's pods, once killed ones are gone."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            folder = os.readlink(entry / "cwd")
        except OSError:
            continue
        if folder.startswith(f"{up.folder}/pods/"):
            found.append(entry.name)
    return found
