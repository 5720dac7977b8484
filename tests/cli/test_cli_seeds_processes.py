"""The examples of two published pages, read from the pages and run in real time: their manifests, their shell
commands, workers as processes of this machine that find each other by name.

Rows W1 to W9 and B2 to B6 of docs/reference/cluster-workloads.md 5.2 and 5.7. The pages are not part of this
repository: PYKUEUE_PAGES names a directory that contains them, and without it the tests are skipped.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_processes import PATIENCE, Kubectl, Up, kubectl_program

from pykueue.embedded.nodes.processes.host import GATEWAY, POD_NETWORK, SERVICE_NETWORK
from pykueue.embedded.nodes.processes.link import Link

PAGES = Path(os.environ.get("PYKUEUE_PAGES", "/nonexistent"))
READY_WAIT = PAGES / "wait-for-pods-ready.md"
GANGS = PAGES / "batch-and-gang-scheduling.md"

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(
        not READY_WAIT.exists() or not GANGS.exists(),
        reason=f"PYKUEUE_PAGES must name a directory with {READY_WAIT.name} and {GANGS.name}",
    ),
]

#: The page's node: 8838569984 bytes, of which 26 of the 40 workers have room.
NODES = """
pools:
- {name: node, runtime: process, allocatable: {cpu: "64", memory: 8631416Ki, pods: "110"}}
"""
CONFIGURATION = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"
#: How often the first act is played until the two jobs start at the same time.
ATTEMPTS = 4


@pytest.fixture(scope="module", autouse=True)
def programs() -> Iterator[None]:
    """`python` is the one that runs the tests, and pods can have a separate network."""
    kubectl_program()
    lacking = asyncio.run(_lacking())
    if lacking:
        pytest.skip(f"pods cannot have a separate network here: {lacking}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        yield


async def _lacking() -> str:
    link = Link()
    await link.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            return (await link.begin(Path(folder), GATEWAY, POD_NETWORK, SERVICE_NETWORK)).network
    finally:
        await link.stop()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("nodes") / "nodes.yaml"
    file.write_text(NODES)
    return file


class Page:
    """The ready-wait page: its blocks of code, by what they begin with."""

    def __init__(self) -> None:
        found = re.findall(r"^``` ?\w+\n(.*?)^```$", READY_WAIT.read_text(), re.MULTILINE | re.DOTALL)
        self._blocks: list[str] = found

    def block(self, text: str, number: int = 0) -> str:
        """The block that has this in it."""
        return [block for block in self._blocks if text in block][number]


class Terminal:
    """Runs lines of shell in a folder against one cluster; what the page puts in /tmp goes there too."""

    def __init__(self, up: Up, folder: Path) -> None:
        self._environment = {**os.environ, "KUBECONFIG": str(up.kubeconfig), "HOME": str(folder)}
        self._folder = folder

    def __call__(self, script: str) -> str:
        """The output of lines that must succeed."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script.replace("/tmp/", f"{self._folder}/")],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, f"{script}\nexited {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout


def count_pods(kubectl: Kubectl) -> Counter[tuple[str, str]]:
    """How many pods of each job are in each phase."""
    pods = json.loads(kubectl("get", "pods", "-o", "json"))["items"]
    return Counter(
        (pod["metadata"]["labels"]["job-name"], pod["status"]["phase"])
        for pod in pods
        if not pod["metadata"].get("deletionTimestamp")
    )


def test_two_jobs_of_twenty_workers_by_the_page(
    start_up: Callable[..., Up], kubectl_for: Callable[[Up], Kubectl], nodes: Path, tmp_path: Path
) -> None:
    page = Page()
    off, on = tmp_path / "off.yaml", tmp_path / "on.yaml"
    off.write_text(CONFIGURATION)
    # The page offers a choice that a file has to make.
    section = textwrap.dedent(page.block("waitForPodsReady:")).replace("Eviction | Creation", "Eviction")
    on.write_text(CONFIGURATION + section)

    up, kubectl = _deadlock(start_up, kubectl_for, nodes, off, tmp_path, page)
    shell = Terminal(up, tmp_path)
    shell(page.block("kubectl delete -f quick-job.yaml", 0))

    # Update the configuration: the program is started again with it. Its processes end with it.
    up.stop()
    assert not workers(up)
    up.options = ("--nodes", str(nodes), "--config", str(on))
    up.start()
    shell(page.block("kubectl delete pods --all -n kueue-system"))
    kubectl("wait", "--for=delete", "pods", "--all", "--timeout=60s")

    shell(page.block("kubectl create -f quick-job.yaml", 1))
    jobs = ("job/quick-job", "job/job1", "job/job2")
    kubectl("wait", "--for=condition=complete", *jobs, "--timeout=120s")
    for job in ("job1", "job2"):
        leader = kubectl("get", "pods", "-o", "name", "-l", f"job-name={job},{INDEX}=0").strip()
        log = kubectl("logs", leader)
        assert f"Response content from http://{job}-19.svc{job[-1]}:8080/ping: Running" in log
        assert log.endswith("INFO:LOG0:All workers stopped\n")
        worker = kubectl("get", "pods", "-o", "name", "-l", f"job-name={job},{INDEX}=7").strip()
        assert '"GET /exit HTTP/1.1" 200' in kubectl("logs", worker)
    hello = kubectl("logs", "job/quick-job")
    assert hello == "Hello world\n"
    assert count_pods(kubectl) == {
        ("quick-job", "Succeeded"): 50,
        ("job1", "Succeeded"): 20,
        ("job2", "Succeeded"): 20,
    }
    # All pods of the first job were ready before the second one was admitted.
    assert since(kubectl, "job1", "PodsReady") <= since(kubectl, "job2", "Admitted")
    shell(page.block("kubectl delete -f quick-job.yaml", 1))
    kubectl("wait", "--for=delete", "pods", "--all", "--timeout=60s")
    assert up.stop() == 0
    assert not workers(up)


INDEX = "batch.kubernetes.io/job-completion-index"


def _deadlock(
    start_up: Callable[..., Up],
    kubectl_for: Callable[[Up], Kubectl],
    nodes: Path,
    configuration: Path,
    folder: Path,
    page: Page,
) -> tuple[Up, Kubectl]:
    """The first act: both jobs start, neither can go on. When chance keeps them apart, it is played again."""
    for name, text in (
        ("cluster-queues.yaml", "kind: ResourceFlavor"),
        ("job-template.yaml", "job_ID_"),
        ("quick-job.yaml", "name: quick-job"),
    ):
        (folder / name).write_text(page.block(text))
    for _ in range(ATTEMPTS):
        up = start_up("--nodes", str(nodes), "--config", str(configuration))
        kubectl, shell = kubectl_for(up), Terminal(up, folder)
        kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s")
        # Some kinds of awk write large numbers with an exponent.
        assert float(shell(page.block("TOTAL_ALLOCATABLE="))) == pytest.approx(8838569984, rel=1e-5)
        shell(page.block("kubectl apply -f cluster-queues.yaml"))
        shell(page.block("kubectl create -f quick-job.yaml", 0))
        kubectl("wait", "--for=condition=complete", "job/quick-job", "--timeout=60s")
        while True:
            pods = count_pods(kubectl)
            running = {job: pods[job, "Running"] for job in ("job1", "job2")}
            if 20 in running.values():
                break
            if sum(running.values()) == 26 and pods["job1", "Pending"] + pods["job2", "Pending"] == 14:
                _assert_stuck(kubectl)
                return up, kubectl
        up.stop()
    pytest.fail(f"the jobs kept out of each other's way {ATTEMPTS} times")


def _assert_stuck(kubectl: Kubectl) -> None:
    """The leader of a job requests a worker that does not fit, repeatedly."""
    leaders = kubectl(
        "get", "pods", "-o", "name", "-l", f"{INDEX}=0", "--field-selector=status.phase=Running"
    ).split()
    assert leaders
    with kubectl.popen("logs", "-f", leaders[0]) as follower:
        try:
            assert follower.stdout is not None
            # Workers that were starting failed before; the one without a place fails again and again.
            failures = (line for line in follower.stdout if "Name or service not known" in line)
            asked = (re.findall(r"http\S+", line) for line in failures)
            assert any(first == second for first, second in itertools.pairwise(asked))
        finally:
            follower.terminate()
            follower.communicate()
    told = kubectl("get", "events", "--field-selector=reason=FailedScheduling")
    assert "Insufficient memory" in told


def since(kubectl: Kubectl, job: str, condition: str) -> datetime:
    """When a condition of a job's workload came about."""
    for workload in json.loads(kubectl("get", "workloads", "-o", "json"))["items"]:
        if workload["metadata"]["ownerReferences"][0]["name"] == job:
            found = {one["type"]: one["lastTransitionTime"] for one in workload["status"]["conditions"]}
            return datetime.fromisoformat(found[condition])
    raise AssertionError(f"{job} has no workload")


def workers(up: Up) -> list[str]:
    """Processes of this machine that work in the folder of this cluster's pods."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            folder = os.readlink(entry / "cwd")
        except OSError:
            continue
        if folder.startswith(f"{up.folder}/pods/"):
            found.append(entry.name)
    return found


#: What fills the gaps of the skeleton: the first worker asks the second one, by its name.
TRAIN = """
name=recommender-train-worker-0-1.recommender-train
if [ "$JOB_COMPLETION_INDEX" = 0 ]; then
  until bash -c "exec 3<>/dev/tcp/$name/2222 && cat <&3" 2>/dev/null; do sleep 0.1; done
else
  exec python -c "import socket; s = socket.create_server(('', 2222)); s.accept()[0].sendall(b'trained')"
fi
"""


def test_a_gang_and_its_queue_by_the_page(
    start_up: Callable[..., Up], kubectl_for: Callable[[Up], Kubectl], nodes: Path, tmp_path: Path
) -> None:
    text = GANGS.read_text()
    folder = tmp_path / "examples" / "bookstore" / "ml" / "batch"
    folder.mkdir(parents=True)
    for name, document in skeletons(text).items():
        (folder / name).write_text(yaml.safe_dump(document))
    up = start_up("--nodes", str(nodes))
    kubectl, shell = kubectl_for(up), Terminal(up, tmp_path)
    kubectl("create", "namespace", "bookstore-ml")
    n = ("-n", "bookstore-ml")
    pods = ("get", "pods", *n, "-l", "app.kubernetes.io/component=recommender-train")
    completed = ("wait", "--for=condition=Completed", "jobset/recommender-train", *n, "--timeout=60s")
    lines = iter(commands(text))

    def until(beginning: str) -> str:
        """Type the page's lines up to the one that begins so; its output."""
        for line in lines:
            printed = shell(line)
            if line.startswith(beginning):
                return printed
        raise AssertionError(f"the page does not say {beginning!r}")

    # The queue, and the gang: whole, or not at all.
    assert "bookstore-ml-cq" in until("kubectl get clusterqueue")
    until("kubectl apply -f examples/bookstore/ml/batch/recommender-jobset.yaml")
    kubectl(*completed)
    names = kubectl(*pods, "-o", "name").split()
    logs = [kubectl("logs", name, *n) for name in names]
    assert sorted(logs) == ["", "trained"]
    assert '"type":"Completed"' in until("kubectl get jobset recommender-train")

    # No quota: no pod.
    until("kubectl apply -f examples/bookstore/ml/batch/recommender-jobset.yaml")
    kubectl("wait", "--for=condition=QuotaReserved=False", "workloads", "--all", *n, "--timeout=60s")
    until("kubectl get pods")
    assert kubectl(*pods, "-o", "name") == ""
    until("kubectl patch clusterqueue")
    kubectl(*completed)
    assert len(kubectl(*pods, "-o", "name").split()) == 2

    # The wall beside the queue.
    assert "requests.nvidia.com/gpu: 0/4" in until("kubectl get resourcequota")
    gpus = (*n, "--image=x", "--restart=Never", "--overrides", json.dumps(GPUS), "--", "true")
    assert "exceeded quota: gpu-quota" in kubectl.refused("run", "greedy", *gpus)
    assert up.stop() == 0
    assert not workers(up)


GPUS = {
    "spec": {
        "containers": [
            {"name": "greedy", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "5"}}},
        ]
    }
}


def skeletons(text: str) -> dict[str, Any]:
    """The page's minimal skeletons, with their gaps filled: label, command and requests of the workers."""
    listing = text.partition("Minimal skeletons")[2].partition("\n\n")[2].partition("\nChecklist:")[0]
    flavor, queue, local, gang = yaml.safe_load_all(listing)
    template = gang["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["metadata"] = {"labels": {"app.kubernetes.io/component": "recommender-train"}}
    (container,) = template["spec"]["containers"]
    container |= {"command": ["bash", "-c", TRAIN], "resources": {"requests": {"cpu": "500m"}}}
    return {
        "kueue-resourceflavor.yaml": flavor,
        "kueue-clusterqueue.yaml": queue,
        "kueue-localqueue.yaml": local,
        "recommender-jobset.yaml": gang,
    }


def commands(text: str) -> list[str]:
    """The kubectl lines of the page's hands-on part, from the queue objects on, as they are to be typed."""
    part = text.partition("2. The Kueue capacity & queue objects")[2].partition(
        "How it works under the hood"
    )[0]
    return re.findall(r"^kubectl (?:.*\\\n)*.*$", part, re.MULTILINE)
