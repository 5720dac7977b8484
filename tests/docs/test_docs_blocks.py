"""Shell blocks of the pages are run as they stand, on two embedded clusters that all pages share.

A block that is not run has a comment before it: `<!-- not run: REASON -->`. With PYKUEUE_SLOW_BLOCKS=1 blocks
marked `<!-- slow -->` are run too. Other tests run the blocks of some pages.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from cli_processes import PATIENCE, Up, kubectl_program

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs" / "use").glob("*.md")),
    *sorted((ROOT / "docs" / "develop").glob("*.md")),
]
_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^>]+) -->\n)?^```(?P<language>sh|bash|console)\n(?P<text>.*?)^```", re.M | re.S
)
#: What a block may say of itself.
_MARK = re.compile(r"not run: .{8,}|slow")
#: Page -> the test that runs its blocks.
_ELSEWHERE = {
    "README.md": "tests/cli/test_cli_tutorial_kubectl.py",
    "docs/use/tutorial.md": "tests/cli/test_cli_tutorial_kubectl.py",
    "docs/use/schedule.md": "tests/cli/test_cli_schedule_page.py",
}
#: Pages that describe installing on a cluster: run where no manager answers the webhooks.
_INSTALLING = ("install", "satellites")

#: Objects and files that pages presume: queues of team-a and team-b, a pending job, manifests, a dump.
PRELUDE = """
for name in team-a team-b team; do kubectl create namespace $name; done
mkdir -p manifests new-queues ~/.kube
cp "$KUBECONFIG" ~/.kube/config
cp examples/why/*.yaml manifests
cat > queues.yaml <<'END'
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: on-demand}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
END
for name in team-a team-b; do
cat >> queues.yaml <<END
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: $name}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: on-demand
      resources: [{name: cpu, nominalQuota: 4}]
    - name: default
      resources: [{name: cpu, nominalQuota: 2}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: jobs, namespace: $name}
spec: {clusterQueue: $name}
END
done
cp queues.yaml new-queues
job() {
cat <<END
apiVersion: batch/v1
kind: Job
metadata: {name: $1, namespace: $2, labels: {kueue.x-k8s.io/queue-name: $3}}
spec:
  parallelism: $4
  completions: $4
  suspend: true
  template:
    metadata: {annotations: {sim.pykueue.io/run-time: 1h}}
    spec:
      restartPolicy: Never
      containers: [{name: main, image: i, resources: {requests: {cpu: "1"}}}]
END
}
job other team-a jobs 1 > job.yaml
cat > manager.yaml <<'END'
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
END
cp manager.yaml new-config.yaml
echo 'localQueueName: default' > populator.yaml
printf 'timeSharing:\\n  interval: 30m\\n' > booster.yaml
"""
#: With a manager, beside PRELUDE.
JOBS = """
kubectl apply -f queues.yaml -f examples/team-queue.yaml
kubectl wait --for=condition=Active clusterqueues --all
job first team-a jobs 3 | kubectl create -f -
job training team-a jobs 6 | kubectl create -f -
job train default team 1 | kubectl create -f -
until [ $(kubectl get workloads -A -o name | wc -l) -ge 3 ]; do :; done
pykueue dump > dump.yaml
"""
#: Without one.
INSTALLATION = "pykueue manifests | kubectl apply --server-side -f - > installed"


class Block(NamedTuple):
    page: str
    line: int
    mark: str
    language: str
    text: str

    @property
    def commands(self) -> str:
        """What a user types: in a block with prompts, the lines that have one."""
        lines = self.text.splitlines()
        if any(line.startswith("$ ") for line in lines):
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        return "\n".join(lines)


def blocks() -> Iterator[Block]:
    """All shell blocks; `console` blocks without a prompt show output only."""
    for page in PAGES:
        if page.relative_to(ROOT).as_posix() in _ELSEWHERE:
            continue
        text = page.read_text()
        for found in _BLOCK.finditer(text):
            if found["language"] == "console" and not re.search(r"^\$ ", found["text"], re.M):
                continue
            line = text[: found.start("text")].count("\n")
            name = page.relative_to(ROOT).as_posix()
            yield Block(name, line, found["mark"] or "", found["language"], found["text"])


BLOCKS = list(blocks())
SLOW = bool(os.environ.get("PYKUEUE_SLOW_BLOCKS"))
RUN = [one for one in BLOCKS if not one.mark or (one.mark == "slow" and SLOW)]


def test_marks_of_blocks_are_of_a_known_form() -> None:
    assert [one for one in BLOCKS if one.mark and not _MARK.fullmatch(one.mark)] == []


@pytest.mark.parametrize(("page", "test"), _ELSEWHERE.items())
def test_tests_of_other_pages_read_them(page: str, test: str) -> None:
    assert Path(page).name in (ROOT / test).read_text()


def test_most_blocks_are_run() -> None:
    assert len([one for one in BLOCKS if one.mark.startswith("not run")]) < len(BLOCKS) / 2


class Shell:
    """A directory with what pages name, and an embedded cluster."""

    def __init__(self, folder: Path, up: Up) -> None:
        self._folder, self._up = folder / "work", up
        self._folder.mkdir()
        for name in ("examples", "charts"):
            (self._folder / name).symlink_to(ROOT / name)
        home = folder / "home"
        home.mkdir()
        self._environment = {
            **os.environ,
            "HOME": str(home),
            "KUBECONFIG": str(up.kubeconfig),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

    def run(self, commands: str) -> str:
        """The output of commands, up to the first failure."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, list[str], Path]]:
    """A whole cluster that records its decisions; the names of Workloads; the recording."""
    kubectl_program()
    folder = tmp_path_factory.mktemp("running")
    up = Up(folder / "data", "--in-memory", "--no-dashboard", "--flight-recorder", str(folder / "flight"))
    up.start()
    try:
        shell = Shell(folder, up)
        shell.run(PRELUDE + JOBS)
        names = shell.run("kubectl get workloads -A -o name").replace("workload.kueue.x-k8s.io/", "")
        yield shell, names.split(), folder / "flight"
    finally:
        up.kill()


@pytest.fixture(scope="module")
def installing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """An API server with the built-in controllers, on which pykueue's manifests are applied."""
    kubectl_program()
    folder = tmp_path_factory.mktemp("installing")
    up = Up(folder / "data", "--in-memory", "--only", "apiserver,kube").start()
    try:
        shell = Shell(folder, up)
        shell.run(PRELUDE + INSTALLATION)
        yield shell
    finally:
        up.kill()


def _is_about_installing(block: Block) -> bool:
    return Path(block.page).stem in _INSTALLING


@pytest.mark.kubectl
@pytest.mark.parametrize(
    "block",
    [one for one in RUN if not _is_about_installing(one)],
    ids=lambda one: f"{one.page}:{one.line}",
)
def test_block_of_a_page_runs_as_it_stands(block: Block, running: tuple[Shell, list[str], Path]) -> None:
    shell, workloads, flight = running
    commands = block.commands
    for name in workloads:  # their names end with a hash
        commands = re.sub(rf"{name.rpartition('-')[0]}-5a1f2", name, commands)
    shell.run(re.sub(r"/var/lib/pykueue/flight|~/flight", str(flight), commands))


@pytest.mark.kubectl
@pytest.mark.parametrize(
    "block",
    [one for one in RUN if _is_about_installing(one)],
    ids=lambda one: f"{one.page}:{one.line}",
)
def test_block_about_installing_runs_as_it_stands(block: Block, installing: Shell) -> None:
    installing.run(block.commands)
