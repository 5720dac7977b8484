"""Kueue's kubectl plugin and ours on the same generated states: output, exit code and what they leave behind.

Set KUEUECTL to Kueue's `kueuectl` to run it. Each works on a separate server with the same objects, so that
changes can be compared too. Differences that docs/use/kubectl-plugin.md lists are allowed, all others fail.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import plugin_states as states
import pytest
import yaml
from click.testing import CliRunner

from pykueue.api.crds import crds
from pykueue.api.objects import Object
from pykueue.api.resources import (
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    PODS,
    RESOURCE_FLAVORS,
    WORKLOADS,
    Resource,
)
from pykueue.cli.main import main
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.testing import RunningServer, running_server

KUEUECTL = os.environ.get("KUEUECTL", "")
PAGE = Path(__file__).parents[2] / "docs" / "use" / "kubectl-plugin.md"

pytestmark = pytest.mark.skipif(
    not KUEUECTL, reason="compares with Kueue's plugin: name its program in KUEUECTL"
)

STATES = 100
READS, WRITES = 5, 3
PATIENCE = 120
KINDS = (CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, WORKLOADS, JOBS, PODS)


#: Wrong commands, and those at the edge of what is accepted.
ODD_COMMANDS = [
    ["create", "cq"],
    ["create", "cq", "a", "b"],
    ["create", "cq", "a", "--nope"],
    ["create", "cq", "a", "--dry-run=maybe"],
    ["create", "cq", "a", "-o", "nope"],
    ["create", "cq", "a", "--dry-run=client", "-o", "nope"],
    ["create", "cq", "UPPER"],
    ["create", "lq", "a"],
    ["create", "lq"],
    ["create", "foo"],
    ["create", "rf", "a", "--node-labels=x"],
    ["list"],
    ["list", "foo"],
    ["list", "pods"],
    ["list", "pods", "--for", "x"],
    ["list", "pods", "--for", "unicorn/x"],
    ["list", "pods", "--for", "configmap/x"],
    ["list", "pods", "--for", "cq/x"],
    ["list", "workload", "--for", "x"],
    ["list", "workload", "--for", "unicorn/x"],
    ["list", "workload", "--for", "job/nothing"],
    ["list", "workload", "--for", "a/b/c"],
    ["list", "workload", "--status", "odd"],
    ["list", "workload", "-o", "wide"],
    ["list", "workload", "-l", "a=b=c"],
    ["list", "workload", "--field-selector", "spec.nope=x"],
    ["list", "workload", "extra"],
    ["list", "cq", "--active=true,false"],
    ["list", "cq", "--active=maybe"],
    ["list", "cq", "--context", "nope"],
    ["list", "cq", "--server", "http://127.0.0.1:1"],
    ["list", "cq", "-o", "jsonpath={.items[0]"],
    ["list", "cq", "-o", "jsonpath={.items[77]}"],
    ["list", "cq", "-o", "custom-columns=NAME:.metadata.name"],
    ["list", "cq", "--as=guest"],
    ["stop", "cq"],
    ["stop", "workload", "nope"],
    ["resume", "lq", "nope", "-n", "nowhere"],
    ["delete", "workload"],
    ["delete", "workload", "w0", "-A"],
    ["delete", "workload", "w0", "--all"],
    ["version"],
    ["-n", "team-a", "list", "lq"],
    ["list", "-n", "team-a", "lq"],
    ["unknown"],
]


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return f"exit {self.code}\n{self.out}---\n{self.err}"

    @property
    def short(self) -> str:
        return "\n".join(line[:200] for line in self.text.splitlines()[:12])


class Difference(NamedTuple):
    """A row of the page: the command, and what each of them prints, as regular expressions."""

    command: re.Pattern[str]
    theirs: re.Pattern[str]
    ours: re.Pattern[str]


class Side:
    """A server that one of the programs works on."""

    def __init__(self, server: RunningServer, home: Path) -> None:
        self.server = server
        self.client = Client(server.cluster.transport("plugin-test"))
        self.environment = {"KUBECONFIG": str(server.kubeconfig), "HOME": str(home)}

    def fill(self, seed: int, now: float) -> None:
        """Replace all objects by those of a seed."""
        self.server.run(self._fill(random.Random(seed), now))

    async def _fill(self, rng: random.Random, now: float) -> None:
        for resource in KINDS:
            for one in (await self.client.list(resource)).items:
                await self._delete(resource, one)
        for name in states.FLAVORS:
            if rng.random() < 0.8:
                await self._create(RESOURCE_FLAVORS, states.flavor(rng, name))
        for name in states.CLUSTER_QUEUES:
            if rng.random() < 0.8:
                await self._create(CLUSTER_QUEUES, states.cluster_queue(rng, name))
        for namespace in states.NAMESPACES:
            jobs: list[Object | None] = [None]
            for name in states.JOBS:
                if rng.random() < 0.7:
                    jobs.append(await self._create(JOBS, states.job(rng, name, namespace)))
                    labels = {"batch.kubernetes.io/job-name": name}
                    await self._create(PODS, states.pod(f"{name}-0", namespace, labels))
            group = {"kueue.x-k8s.io/pod-group-name": "group"}
            await self._create(PODS, states.pod("group-0", namespace, group))
            for name in ("main", "spare"):
                if rng.random() < 0.8:
                    await self._create(LOCAL_QUEUES, states.local_queue(rng, name, namespace))
            for i in range(rng.randint(0, 6)):
                owner = rng.choice(jobs)
                await self._create(WORKLOADS, states.workload(rng, f"w{i}", namespace, owner, now))

    async def _delete(self, resource: Resource, obj: Object) -> None:
        name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace")
        if obj["metadata"].get("finalizers"):
            await self.client.patch(resource, name, namespace, {"metadata": {"finalizers": None}})
        try:
            await self.client.delete(resource, name, namespace, propagation="Background", grace_period=0)
        except ApiError as error:
            if not error.not_found:
                raise

    async def _create(self, resource: Resource, obj: Object) -> Object:
        created = await self.client.create(resource, obj)
        if "status" in obj:
            status = {"status": obj["status"]}
            name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace")
            await self.client.patch(resource, name, namespace, status, subresource="status")
        return created

    def objects(self) -> Any:
        """All objects without what each server gives its own value."""

        async def read() -> list[Object]:
            return [one for resource in KINDS for one in (await self.client.list(resource)).items]

        # Kueue's plugin deletes Jobs with their API's default, which leaves them to the garbage collector.
        found = self.server.run(read())
        return [plain(one) for one in found if "deletionTimestamp" not in one["metadata"]]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    home = tmp_path_factory.mktemp("home")
    with running_server(seed=1) as first, running_server(seed=1) as second:
        both = Side(first, home), Side(second, home)
        for side in both:
            side.server.install_definitions(*crds())
            for name in states.NAMESPACES:
                metadata = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                side.server.run(side.client.create(NAMESPACES, metadata))
        yield both


def theirs(side: Side, command: list[str], stdin: str) -> Result:
    done = subprocess.run(
        [KUEUECTL, *command],
        env={**os.environ, **side.environment},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def ours(side: Side, command: list[str], stdin: str) -> Result:
    result = CliRunner().invoke(main, command, prog_name="kubectl kueue", input=stdin, env=side.environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Result(result.exit_code, result.stdout, result.stderr)


def normal(result: Result) -> Any:
    """A result without column widths, ages of objects, help after errors, and values of one server."""
    err = re.split(r"\nUsage:|\nSee '", result.err)[0].strip()
    # Log lines of client-go.
    err = "\n".join(line for line in err.splitlines() if not re.match(r"I\d{4} ", line))
    try:
        out: Any = plain(json.loads(result.out))
    except ValueError:
        out = None
    if not isinstance(out, dict) and "apiVersion:" in result.out:
        out = plain(yaml.safe_load(result.out))
    if not isinstance(out, dict):
        lines = [re.sub(r"\t| {2,}", "  ", line).rstrip() for line in result.out.splitlines()]
        out = [re.sub(r"  \d+m?\d*s(?=  |$)", "  AGE", line) for line in lines]
        # Kueue's plugin deletes in random order.
        out = sorted(out) if any(" deleted" in line or " associated " in line for line in out) else out
    return result.code, out, err


def plain(value: Any) -> Any:
    """An object without empty fields, and without what each server gives its own value."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    own = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "controller-uid")
    cleaned = {key: plain(one) for key, one in value.items() if not key.endswith(own)}
    return {key: one for key, one in cleaned.items() if one not in (None, "", {}, [], 0) or key == "items"}


def allowed() -> list[Difference]:
    """The rows of the table of differences."""
    section = PAGE.read_text().split("<!-- differences -->")[1].split("<!-- end -->")[0]
    rows = [re.findall(r"`([^`]*)`", line) for line in section.splitlines() if line.startswith("| `")]
    flags = re.DOTALL
    return [Difference(*(re.compile(text.replace("\\|", "|"), flags) for text in row[:3])) for row in rows]


def compare(sides: tuple[Side, Side], command: list[str], used: Counter[int], stdin: str = "") -> str:
    """What differs and is not listed; empty where nothing does."""
    left, right = theirs(sides[0], command, stdin), ours(sides[1], command, stdin)
    if normal(left) == normal(right):
        return ""
    for number, row in enumerate(allowed()):
        if (
            row.command.match(" ".join(command))
            and row.theirs.search(left.text)
            and row.ours.search(right.text)
        ):
            used[number] += 1
            return ""
    return f"{command}\n== Kueue's\n{left.short}\n== ours\n{right.short}\n"


def test_output_and_changes_on_generated_states_are_those_of_kueues_plugin(
    sides: tuple[Side, Side],
) -> None:
    used: Counter[int] = Counter()
    problems: list[str] = []
    compared = 0
    now = Clock().time()
    for seed in range(STATES):
        rng = random.Random(seed)
        for side in sides:
            side.fill(seed, now)
        commands = [states.read_command(rng) for _ in range(READS)]
        commands += [states.write_command(rng, number) for number in range(WRITES)]
        for command in commands:
            stdin = rng.choice(["y\n", "n\n", ""])
            compared += 1
            if problem := compare(sides, command, used, stdin):
                problems.append(f"state {seed}: {problem}")
        if sides[0].objects() != sides[1].objects():
            problems.append(f"state {seed}: the objects differ after {commands}")
    print(f"{compared} commands on {STATES} states; listed differences seen: {dict(used)}")
    assert not problems, f"{len(problems)} of {compared}:\n" + "\n".join(problems[:40])


@pytest.mark.parametrize("command", ODD_COMMANDS, ids=" ".join)
def test_wrong_and_odd_commands_end_as_those_of_kueues_plugin(
    sides: tuple[Side, Side], command: list[str]
) -> None:
    now = Clock().time()
    for side in sides:
        side.fill(7, now)
    problem = compare(sides, command, Counter())
    assert not problem, problem
