"""`pykueue create|list|stop|resume|delete|get|version|completion`, which are `kubectl kueue ...` too."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plugin_states as states
import pytest
from click.testing import CliRunner, Result

from pykueue.api.crds import crds
from pykueue.api.objects import Object
from pykueue.api.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    PODS,
    WORKLOADS,
    Resource,
)
from pykueue.cli import questions
from pykueue.cli.main import main
from pykueue.extras import engine_is_compiled
from pykueue.kube.client import Client
from pykueue.questions import used
from pykueue.simulate import futures
from pykueue.testing import RunningServer, running_server
from queue_manifests import local_queue


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(seed=1) as running:
        running.install_definitions(*crds())
        yield running


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Client:
    return Client(server.cluster.transport("plugin-test"))


numbers = itertools.count()


class Team:
    """A namespace, and the plugin's commands in it."""

    def __init__(self, server: RunningServer, client: Client, name: str) -> None:
        self.server, self.client, self.name = server, client, name
        metadata = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        server.run(client.create(NAMESPACES, metadata))

    def create(self, resource: Resource, obj: Object) -> Object:
        obj = {**obj, "metadata": {**obj["metadata"], "namespace": self.name}}
        created = self.server.run(self.client.create(resource, obj))
        if "status" in obj:
            work = self.client.patch(
                resource, obj["metadata"]["name"], self.name, {"status": obj["status"]}, subresource="status"
            )
            created = self.server.run(work)
        return created

    def workload(self, name: str, queue: str = "", owner: Object | None = None, **status: Any) -> Object:
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
        spec: Object = {"podSets": [{"name": "main", "count": 1, "template": template}]}
        metadata: Object = {"name": name}
        if queue:
            spec["queueName"] = queue
        if owner:
            reference = {key: owner[key] for key in ("apiVersion", "kind")}
            ids = {key: owner["metadata"][key] for key in ("name", "uid")}
            metadata["ownerReferences"] = [{**reference, **ids, "controller": True}]
        made = {"apiVersion": states.API, "kind": "Workload", "metadata": metadata, "spec": spec}
        return self.create(WORKLOADS, {**made, "status": status} if status else made)

    def job(self, name: str) -> Object:
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
        spec = {"suspend": True, "template": template}
        made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
        return self.create(JOBS, made)

    def run(self, *arguments: str, stdin: str = "") -> Result:
        command = [*arguments, "--kubeconfig", str(self.server.kubeconfig), "-n", self.name]
        return CliRunner().invoke(main, command, input=stdin, prog_name="kubectl kueue")

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """The output of a command that must succeed."""
        result = self.run(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def refused(self, *arguments: str) -> str:
        """The first line of the errors of a command that must fail with 1."""
        result = self.run(*arguments)
        assert (result.exit_code, result.stdout) == (1, ""), result.output
        return result.stderr.splitlines()[0]

    def names(self, resource: Resource) -> list[str]:
        listed = self.server.run(self.client.list(resource, self.name if resource.namespaced else None))
        return [one["metadata"]["name"] for one in listed.items]


@pytest.fixture
def team(server: RunningServer, client: Client) -> Team:
    return Team(server, client, f"team-{next(numbers)}")


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_created_objects_are_those_that_the_flags_describe(team: Team, client: Client) -> None:
    flags = ["--cohort=pool", "--namespace-selector=a=b", "--queuing-strategy=StrictFIFO"]
    flags += ["--nominal-quota=spot:cpu=9;memory=36Gi,gpu:cpu=1;memory=2Gi"]
    flags += ["--borrowing-limit=spot:cpu=1;memory=1Gi", "--reclaim-within-cohort=Any"]
    assert team("create", "cq", "made", *flags) == "clusterqueue.kueue.x-k8s.io/made created\n"
    queue = json.loads(team("create", "cq", "shown", *flags, "--dry-run=client", "-o", "json"))
    (group,) = queue["spec"]["resourceGroups"]
    assert group["coveredResources"] == ["cpu", "memory"]
    assert [one["name"] for one in group["flavors"]] == ["spot", "gpu"]
    assert group["flavors"][0]["resources"][0] == {"name": "cpu", "nominalQuota": "9", "borrowingLimit": "1"}
    assert queue["spec"]["namespaceSelector"] == {"matchLabels": {"a": "b"}}
    assert team("create", "lq", "main", "-c", "made") == "localqueue.kueue.x-k8s.io/main created\n"
    assert 'clusterqueues.kueue.x-k8s.io "nope" not found' in team.refused("create", "lq", "x", "-c", "nope")
    flags = ["--node-labels=a=b", "--node-taints=k=v:NoSchedule", "--tolerations=x,:NoExecute"]
    made = json.loads(team("create", "rf", f"rf-{team.name}", *flags, "-o", "json"))
    assert made["spec"]["nodeTaints"] == [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    assert made["spec"]["tolerations"] == [
        {"key": "x", "operator": "Exists"},
        {"operator": "Exists", "effect": "NoExecute"},
    ]


@pytest.mark.parametrize("strategy", ["client", "server"])
def test_dry_run_writes_nothing(team: Team, strategy: str) -> None:
    job = team.job("train")
    team.workload("w", owner=job)
    team.create(LOCAL_QUEUES, local_queue("lq", "cq"))
    before = [
        team.server.run(team.client.list(each, team.name)).items for each in (WORKLOADS, LOCAL_QUEUES, JOBS)
    ]
    dry = f"--dry-run={strategy}"
    suffix = f"({strategy} dry run)\n"
    assert (
        team("create", "lq", "new", "-c", "x", "-i", dry) == f"localqueue.kueue.x-k8s.io/new created {suffix}"
    )
    assert team("stop", "workload", "w", dry) == f"workload.kueue.x-k8s.io/w stopped {suffix}"
    assert team("stop", "lq", "lq", dry).endswith(suffix)
    assert team("delete", "workload", "w", dry) == f"jobs.batch/train deleted {suffix}"
    after = [
        team.server.run(team.client.list(each, team.name)).items for each in (WORKLOADS, LOCAL_QUEUES, JOBS)
    ]
    assert after == before


def test_workloads_are_listed_with_their_jobs_queues_and_states(team: Team) -> None:
    job = team.job("unique")
    team.create(LOCAL_QUEUES, local_queue("main", "cq"))
    old = "2000-01-01T00:00:00Z"
    done = "2000-01-01T01:30:00Z"

    def condition(kind: str, when: str = old) -> Object:
        return {"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": when}

    team.workload("waits", "main", job)
    conditions = [condition("QuotaReserved"), condition("Admitted"), condition("Finished", done)]
    team.workload("finished", "main", conditions=conditions)
    team.workload("nowhere")
    rows = cells(team("list", "workloads"))
    assert rows[0][:4] == ["NAME", "JOB", "TYPE", "JOB"]
    found = {row[0]: row[1:-1] for row in rows[1:]}
    assert found["waits"] == ["job", "unique", "main", "cq", "PENDING"]
    assert found["finished"] == ["main", "cq", "FINISHED", "90m"]
    assert found["nowhere"] == ["PENDING"]
    names = ["-o", "jsonpath={.items[*].metadata.name}"]
    assert team("list", "kwl", "--status", "finished", *names) == "finished"
    assert team("list", "kwl", "--for", "job/unique", *names) == "waits"
    assert team("list", "kwl", "-q", "main", *names) == "finished waits"
    assert cells(team("list", "kwl", "-A", "--for", "jobs.v1.batch/unique"))[1][:2] == [team.name, "waits"]
    result = team.run("list", "kwl", "--for", "job/nothing")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"No resources found in {team.name} namespace.\n"


def test_lists_read_page_by_page(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUEUECTL_LIST_REQUEST_LIMIT", "2")
    for i in range(5):
        team.workload(f"w{i}")
    assert len(cells(team("list", "kwl"))) == 6
    monkeypatch.setenv("KUEUECTL_LIST_REQUEST_LIMIT", "many")
    assert "invalid list request limit" in team.refused("list", "kwl")


def test_pods_of_a_job_are_listed_in_the_servers_columns(team: Team) -> None:
    team.job("train")
    for name, labels in (("train-0", {"batch.kubernetes.io/job-name": "train"}), ("other", {})):
        team.create(PODS, states.pod(name, team.name, labels))
    rows = cells(team("list", "pods", "--for", "job/train"))
    assert rows[0] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert [row[0] for row in rows[1:]] == ["train-0"]
    assert cells(team("list", "po", "--for", "job/train", "-A"))[1][0] == team.name
    assert "NOMINATED" in team("list", "pods", "--for", "job/train", "-o", "wide")
    assert team("list", "pods", "--for", "job/train", "-o", "name") == "pod/train-0\n"
    team.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})
    assert team.refused("list", "pods", "--for", "configmap/c") == "Error: unsupported kind: ConfigMap"


def test_queues_and_workloads_stop_and_resume(team: Team, client: Client) -> None:
    team.workload("w")
    team.create(LOCAL_QUEUES, local_queue("main", "cq"))
    assert team("stop", "workload", "w") == "workload.kueue.x-k8s.io/w stopped\n"
    assert json.loads(team("resume", "kwl", "w", "-o", "json"))["spec"]["active"] is True
    for flags, policy in (([], "HoldAndDrain"), (["--keep-already-running"], "Hold")):
        assert team("stop", "lq", "main", *flags) == "localqueue.kueue.x-k8s.io/main\n"
        stored = team.server.run(client.get(LOCAL_QUEUES, "main", team.name))
        assert stored["spec"]["stopPolicy"] == policy
    assert team("resume", "lq", "main", "-o", "jsonpath={.spec.stopPolicy}") == "None"
    assert 'workloads.kueue.x-k8s.io "nope" not found' in team.refused("stop", "workload", "nope")


def test_deleting_a_workload_deletes_its_job_after_confirmation(team: Team) -> None:
    team.workload("w", owner=team.job("train"))
    team.workload("alone")
    printed = team("delete", "workload", "w", stdin="n\n")
    assert f"jobs.batch/train associated with the {team.name}/w workload" in printed
    assert printed.endswith("Do you want to proceed (y/n)? Deletion is canceled\n")
    assert team.names(JOBS) == ["train"]
    assert team("delete", "workload", "w", stdin="y\n").endswith("jobs.batch/train deleted\n")
    # The garbage collector, which does not run here, deletes the Workload.
    assert (team.names(JOBS), team.names(WORKLOADS)) == ([], ["alone", "w"])
    assert team("delete", "workload", "alone") == "workload.kueue.x-k8s.io/alone deleted\n"
    result = team.run("delete", "workload", "gone")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == 'workloads.kueue.x-k8s.io "gone" not found\n'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "cq"], "accepts 1 arg(s), received 0"),
        (["create", "cq", "a", "--nope"], "unknown flag: --nope"),
        (["create", "lq", "a"], 'required flag(s) "clusterqueue" not set'),
        (
            ["create", "cq", "a", "--dry-run=x"],
            'invalid dry-run value (x). Must be "none", "server", or "client"',
        ),
        (
            ["create", "rf", "a", "--node-taints=k:Never"],
            "invalid taint effect: Never, unsupported taint effect",
        ),
        (["list", "cq", "-o", "odd"], "unable to match a printer suitable for the output format"),
        (["list", "cow"], 'unknown command "cow" for "kubectl kueue list"'),
        (["list", "kwl", "--status", "odd"], 'invalid status value (odd). Must be "all"'),
        (["list", "kwl", "--for", "unicorn/x"], 'the server doesn\'t have a resource type "unicorn"'),
        (["list", "cq", "--context", "nope"], 'context "nope" does not exist'),
        (["list", "cq", "--request-timeout", "soon"], 'invalid value for "--request-timeout": soon'),
        (["list", "cq", "--as-group", "g"], "needs --as"),
        (["list", "cq", "--as", "guest"], 'clusterqueues.kueue.x-k8s.io is forbidden: User "guest"'),
        (["list", "cq", "-l", "a=b=c"], "unable to parse requirement"),
        (["list", "cq", "--server", "http://127.0.0.1:1"], "http://127.0.0.1:1: Cannot connect"),
        (["delete", "workload"], "requires at least 1 arg(s), only received 0"),
        (["delete", "workload", "a", "--all"], "name cannot be provided when a selector is specified"),
        (
            ["completion", "cmd"],
            'no completion for shell "cmd"; accepted values: bash, fish, powershell, zsh',
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_one_line_and_code_1(team: Team, arguments: list[str], message: str) -> None:
    assert message in team.refused(*arguments)


def test_version_names_the_image_of_the_manager(team: Team, server: RunningServer, client: Client) -> None:
    text = team("version")
    assert text.startswith("Client Version: v")
    assert f"Decision Engine: {'compiled' if engine_is_compiled() else 'Python'}\n" in text
    server.run(
        client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
        )
    )
    labels = {"app": "manager"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "manager", "image": "img:1"}]},
    }
    spec = {"selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": "kueue-controller-manager", "namespace": "kueue-system"}
    server.run(
        client.create(
            DEPLOYMENTS, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
        )
    )
    assert team("version").splitlines()[2] == "Kueue Controller Manager Image: img:1"


def test_connection_flags_may_come_before_the_verb(team: Team) -> None:
    team.workload("w")
    flags = ["--kubeconfig", str(team.server.kubeconfig)]
    result = CliRunner().invoke(main, [*flags, "-n", team.name, "list", "workload", "-o", "name"])
    assert result.stdout == "workload.kueue.x-k8s.io/w\n"
    result = CliRunner().invoke(main, ["list", f"--namespace={team.name}", "workload", "-o=name", *flags])
    assert result.stdout == "workload.kueue.x-k8s.io/w\n"


def test_other_verbs_run_kubectl_with_the_same_arguments(tmp_path: Path) -> None:
    fake = tmp_path / "kubectl"
    fake.write_text('#!/bin/sh\nprintf "%s|" "$@"\nexit 3\n')
    fake.chmod(0o755)
    program = "from pykueue.cli.main import plugin; plugin()"
    arguments = ["-n", "a", "get", "cq", "x", "-o=yaml", "--", "-y"]
    environment = {**os.environ, "PATH": str(tmp_path)}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (3, "-n|a|get|cq|x|-o=yaml|--|-y|")
    missing = subprocess.run(command, capture_output=True, text=True, env={**environment, "PATH": "/nowhere"})
    assert missing.returncode == 1
    assert missing.stderr == 'Error: kubectl, which carries out "get cq", is not found in PATH=/nowhere\n'


def test_names_are_completed_for_kubectl(team: Team) -> None:
    team.workload("train-a")
    team.workload("train-b")
    program = "from pykueue.cli.main import kubectl_complete; kubectl_complete()"
    environment = {**os.environ, "KUBECONFIG": str(team.server.kubeconfig)}

    def complete(*words: str) -> list[str]:
        command = [sys.executable, "-c", program, *words]
        return subprocess.run(command, capture_output=True, text=True, env=environment).stdout.split()

    assert complete("li") == ["list", ":4"]
    assert complete("stop", "workload", "-n", team.name, "tr") == ["train-a", "train-b", ":4"]
    assert complete("stop", "workload", "-n", team.name, "train-a", "tr") == ["train-b", ":4"]
    assert complete("list", "lq", "-n", team.name) == [team.name, ":4"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion_prints_a_script(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell], prog_name="pykueue")
    assert result.exit_code == 0, result.output
    assert "_PYKUEUE_COMPLETE" in result.stdout


def test_candidates_for_powershell() -> None:
    environment = {**os.environ, "_PYKUEUE_COMPLETE": "powershell_complete", "COMP_INCOMPLETE": "li"}
    command = [sys.executable, "-m", "pykueue.cli.main"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    (candidate,) = done.stdout.splitlines()
    assert candidate.startswith("plain\tlist\tList queues, flavors, workloads"), done.stderr


def test_help_needs_no_library_but_click() -> None:
    program = """
import sys
from click.testing import CliRunner
from pykueue.cli.main import main
assert CliRunner().invoke(main, ["--help"]).exit_code == 0
assert not {"aiohttp", "yaml", "orjson", "pykueue.kube", "pykueue.plugin"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_help_of_questions_needs_neither_the_engine_nor_a_client() -> None:
    program = """
import sys
from click.testing import CliRunner
from pykueue.cli.main import main
for command in ("shadow", "share", "story", "top", "used", "whatif", "when", "why"):
    assert CliRunner().invoke(main, [command, "--help"]).exit_code == 0
    names = {"aiohttp", "yaml", "orjson", "pykueue.engine", "pykueue.kube", "pykueue.jobs", "pykueue.manager"}
    assert not names & set(sys.modules), (command, names & set(sys.modules))
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_choices_in_the_help_of_questions_are_those_of_the_answers() -> None:
    assert (*used.GROUPS, used.LABEL) == (*questions.GROUPS, "label=")
    assert futures.FUTURES == questions.FUTURES


def test_questions_load_neither_the_manager_nor_the_checks_of_manifests() -> None:
    program = """
import importlib, sys
for command in ("dump", "share", "story", "top", "used", "whatif", "when", "why"):
    importlib.import_module(f"pykueue.cli.{command}")
    found = {"pykueue.manager.manager", "pykueue.manifests.checks", "pykueue.embedded"} & set(sys.modules)
    assert not found, (command, found)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_schedule_loads_neither_an_event_loop_nor_archives() -> None:
    program = """
import sys
from pykueue.cli.main import main
main(["schedule", "-f", "examples/team-queue.yaml"], standalone_mode=False)
unwanted = {"asyncio", "importlib.resources", "ssl", "tempfile", "zipfile", "pykueue.manager.manager"}
assert not unwanted & set(sys.modules), unwanted & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])


def test_manager_loads_satellites_recorder_visibility_and_questions_only_where_they_are_asked_for() -> None:
    program = """
import sys, pykueue.cli.manager
names = {
    "pykueue.satellites", "pykueue.web", "pykueue.manager.recorder", "pykueue.questions", "pykueue.simulate"
}
assert not names & set(sys.modules), names & set(sys.modules)
import pykueue.web.visibility.server
names = {"pykueue.questions", "pykueue.simulate"}
assert not names & set(sys.modules), names & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_manager_loads_no_cel_before_a_job_kind_has_an_expression() -> None:
    program = "import sys, pykueue.cli.manager; assert 'cel_expr_python' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
