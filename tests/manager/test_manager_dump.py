"""What a cluster holds is accepted by `pykueue schedule`, as kubectl prints it."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from click import ClickException
from click.testing import CliRunner
from manager_stack import Object, Stack, job, story

from pykueue.api import resources
from pykueue.api.meta import parse_time
from pykueue.api.resources import JOBS
from pykueue.cli.dump import collect, key_of
from pykueue.cli.schedule import schedule
from pykueue.cli.story import read
from pykueue.engine import Admit, Decision, Preempt, Requeue
from pykueue.engine.explain.render import message
from pykueue.engine.story import lines
from pykueue.kube.errors import ApiError
from pykueue.manager.scheduler.loop import Scheduler
from pykueue.questions.pseudonyms import Pseudonyms
from pykueue.web.visibility.embedded import serve
from queue_manifests import cluster_queue, flavor, local_queue, priority, topology

_KINDS = (
    resources.NAMESPACES,
    resources.RESOURCE_FLAVORS,
    resources.CLUSTER_QUEUES,
    resources.COHORTS,
    resources.LOCAL_QUEUES,
    resources.WORKLOADS,
    resources.JOBS,
    resources.PODS,
    resources.PRIORITY_CLASSES,
)


def test_a_dump_of_a_cluster_at_work_is_decided_on_without_a_warning(tmp_path: Path) -> None:
    async def life(s: Stack) -> list[Object]:
        for name, pods in (("done", 2), ("running", 6), ("waiting", 6), ("huge", 20)):
            await s.apply(job(name, pods))
            await s.settle()
        await s.settle(10)
        await s.run_job("running")
        await s.finish_job("done")
        await s.settle(10)
        assert (await s.get(JOBS, "running"))["status"]["active"] == 6
        return [obj for kind in _KINDS for obj in (await s.client.list(kind)).items]

    objects = story(life)
    assert len(objects) > 10
    (tmp_path / "dump.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": objects})
    )
    result = CliRunner().invoke(schedule, ["-f", str(tmp_path), "-o", "json"])
    assert result.exit_code == 0, result.output
    assert "warning" not in result.stderr
    states = {
        key.split("/job-")[1].rsplit("-", 1)[0]: (each["state"], each["reason"])
        for key, each in json.loads(result.stdout)["workloads"].items()
    }
    assert states == {
        "done": ("Finished", "Succeeded"),
        "running": ("Admitted", "QuotaReserved"),
        "waiting": ("Pending", "WaitingForQuota"),
        "huge": ("Pending", "ExceedsMaxQuota"),
    }


TWO_QUEUES = [
    flavor("on-demand"),
    flavor("spot"),
    cluster_queue(
        "cq",
        {"on-demand": {"cpu": 6}, "spot": {"cpu": 4}},
        cohortName="all",
        preemption={"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
        flavorFungibility={"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"},
        admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"},
    ),
    cluster_queue(
        "other",
        {"on-demand": {"cpu": 4}, "spot": {"cpu": 4}},
        cohortName="all",
        preemption={"reclaimWithinCohort": "Any"},
    ),
    local_queue("lq", "cq"),
    local_queue("light", "cq"),
    local_queue("other"),
    {**priority("high", 100), "description": ""},
]
USAGE = """
admissionFairSharing: {usageHalfLifeTime: 1h, usageSamplingInterval: 1m}
resources: {excludeResourcePrefixes: [example.com/]}
"""
HIGH = {"kueue.x-k8s.io/priority-class": "high"}


async def dumped_before_a_cycle(
    s: Stack, happening: Callable[[], Awaitable[None]]
) -> tuple[Object, list[tuple[str, ...]]]:
    """The dump after something happened that the manager has not decided on yet, and its next decisions."""
    scheduler, engine = s.manager.running["scheduler"], s.manager.engine
    assert isinstance(scheduler, Scheduler)
    cycle = scheduler._cycle

    async def wait(tasks: Any) -> None:
        pass

    scheduler._cycle = wait  # type: ignore[method-assign]
    await happening()
    await s.settle(1)
    document, problem = await collect(s.client)
    assert problem == ""
    decided: list[tuple[str, ...]] = []

    def first(now: float) -> list[Decision]:
        engine.cycle = type(engine).cycle.__get__(engine)  # type: ignore[method-assign]
        decisions = engine.cycle(now)
        decided.extend(summary(each) for each in decisions)
        return decisions

    engine.cycle = first  # type: ignore[method-assign]
    scheduler._cycle = cycle  # type: ignore[method-assign]
    scheduler._wake.set()
    await s.settle(5)
    return document, decided


def summary(decision: Decision) -> tuple[str, ...]:
    match decision:
        case Admit():
            flavors = [sorted(given.flavors.items()) for given in decision.admission.pod_set_assignments]
            return ("Admit", decision.key, decision.cluster_queue, str(flavors))
        case Preempt():
            return ("Preempt", decision.key, decision.reason, decision.preemptor)
        case Requeue():
            return ("Requeue", decision.key, decision.reason, message(decision))


def reported(entry: Object) -> tuple[str, ...]:
    match entry["kind"]:
        case "Admit":
            given = entry["admission"]["podSetAssignments"]
            flavors = [sorted(each["flavors"].items()) for each in given]
            return ("Admit", entry["workload"], entry["clusterQueue"], str(flavors))
        case "Preempt":
            return ("Preempt", entry["workload"], entry["reason"], entry["preemptedBy"])
        case _:
            return ("Requeue", entry["workload"], entry["reason"], entry["message"])


def scheduled(folder: Path, document: Object, *options: str) -> list[tuple[str, ...]]:
    """What `pykueue schedule` decides on a dump in one cycle."""
    (folder / "dump.json").write_text(json.dumps(document))
    result = CliRunner().invoke(
        schedule, ["-f", str(folder / "dump.json"), "--cycles", "1", "-o", "json", *options]
    )
    assert result.exit_code == 0, result.output
    assert "warning" not in result.stderr
    return [reported(entry) for entry in json.loads(result.stdout)["decisions"]]


def test_schedule_decides_on_a_dump_what_the_manager_decides_next(tmp_path: Path) -> None:
    found: list[tuple[Object, list[tuple[str, ...]]]] = []

    async def life(s: Stack) -> None:
        await serve(s.server, s.manager)

        async def jobs(*each: Object) -> None:
            for one in each:
                await s.apply(one)

        for happening in (
            lambda: jobs(job("a", 6), job("b", 4), job("c", 4)),
            lambda: jobs(job("d", 6), job("e", 3, queue="light")),
            lambda: jobs(job("urgent", 6, labels=HIGH)),
            lambda: jobs(job("owner", 4, queue="other"), job("f", 1), job("g", 1, queue="light")),
            lambda: s.finish_job("b"),
        ):
            found.append(await dumped_before_a_cycle(s, happening))
            for name in ("a", "b", "c", "d", "e"):
                with suppress(AssertionError, ApiError):
                    if await s.suspended(name):
                        await s.stop_pods(name)
            await s.settle(90)

    story(life, USAGE, TWO_QUEUES)
    kinds = set()
    for number, (document, decided) in enumerate(found):
        assert scheduled(tmp_path, document) == decided, number
        other, pseudonym = with_pseudonyms(document)
        assert [renamed(each) for each in scheduled(tmp_path, other)] == [
            renamed(each, pseudonym) for each in decided
        ], number
        kinds |= {each[0] for each in decided}
    assert kinds == {"Admit", "Preempt", "Requeue"}
    states = [document["items"][-1]["spec"] for document, _ in found]
    known = [each for state in states for each in state["workloads"].values()]
    assert any(each.get("preemptedFor") for each in known)
    assert any(each.get("scan") or each.get("tried") for each in known)
    assert any(each.get("consumed") for state in states for each in state["localQueues"].values())


def test_dump_says_why_it_has_no_state_of_the_engine() -> None:
    async def life(s: Stack) -> tuple[Object, str]:
        return await collect(s.client)

    document, problem = story(life)
    assert {item["kind"] for item in document["items"]} >= {"Namespace", "ClusterQueue", "LocalQueue"}
    assert "EngineState" not in {item["kind"] for item in document["items"]}
    assert "could not find the requested resource" in problem


def test_change_of_a_dump_happens_to_the_engine_as_it_was(tmp_path: Path) -> None:
    async def life(s: Stack) -> Object:
        await serve(s.server, s.manager)
        await s.apply(job("big", 20))
        await s.settle(10)
        return (await collect(s.client))[0]

    document = story(life)
    queue = next(item for item in document["items"] if item["kind"] == "ClusterQueue")
    assert scheduled(tmp_path, document) == []
    queue = json.loads(json.dumps(queue))
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "20"
    (tmp_path / "bigger.json").write_text(json.dumps(queue))
    assert [
        each[0] for each in scheduled(tmp_path, document, "--override", str(tmp_path / "bigger.json"))
    ] == ["Admit"]


def test_manager_serves_the_story_of_a_preempted_workload() -> None:
    async def life(s: Stack) -> tuple[list[str], int]:
        await serve(s.server, s.manager)
        rule = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
        await s.patch(resources.CLUSTER_QUEUES, "cq", rule)
        await s.apply(priority("high", 100))
        await s.apply(job("a", 6))
        await s.settle(10)
        await s.run_job("a")
        name = (await s.workload("a"))["metadata"]["name"]
        await s.apply(job("urgent", 6, labels=HIGH))
        await s.settle(10)
        await s.stop_pods("a")
        await s.settle(10)
        document = await read(s.client, "default", name)
        for target in (f"workload/{name}", "job/a", "jobs.batch/a", "a"):
            assert await read(s.client, "default", target) == document
        told = lines(document).splitlines()
        try:
            await read(s.client, "default", "none")
        except ClickException as error:
            return told, error.message
        raise AssertionError("a Workload that was never seen has no story")

    told, refusal = story(life)
    expected = ("created in LocalQueue lq", "admitted by ClusterQueue cq", "preempted by", "quota released")
    positions = [next(i for i, line in enumerate(told) if text in line) for text in expected]
    assert positions == sorted(positions), told
    assert refusal.startswith("no history of Workload default/none: ")


def test_story_after_a_restart_begins_with_the_workload_and_has_times_of_its_life() -> None:
    async def life(s: Stack) -> list[str]:
        await serve(s.server, s.manager)
        await s.apply(job("a", 2))
        await s.settle(10)
        await s.run_job("a")
        await s.settle(3600)
        await s.stop_manager()
        await s.start_manager()
        await serve(s.server, s.manager)
        await s.settle(3600)
        await s.patch(resources.CLUSTER_QUEUES, "cq", {"spec": {"queueingStrategy": "StrictFIFO"}})
        await s.settle(10)
        name = (await s.workload("a"))["metadata"]["name"]
        return lines(await read(s.client, "default", name)).splitlines()

    told = story(life)
    assert "created in LocalQueue lq" in told[0]
    assert not [line for line in told if line.endswith("Queue default/lq: created")]
    times = [line.split(" ")[0] for line in told]
    assert times == sorted(times)
    assert "ClusterQueue cq: spec.queueingStrategy: unset -> StrictFIFO" in told[-1]
    assert parse_time(times[-1]) >= parse_time(times[0]) + 7200


def with_pseudonyms(document: Object) -> tuple[Object, Callable[[str], str]]:
    """A dump with pseudonyms in place of names, and the pseudonym of each name."""
    names = Pseudonyms(document["items"], b"key")
    return {**document, "items": [names.renamed(item) for item in document["items"]]}, names.of


def renamed(summary: tuple[str, ...], rename: Callable[[str], str] = str) -> tuple[str, ...]:
    """A decision without its text, and with other names."""
    kind, key, third, fourth = summary
    if kind == "Admit":
        flavors = re.sub(r"(?<=', ')[^']+(?='\))", lambda found: rename(found[0]), fourth)
        return kind, rename(key), rename(third), flavors
    return kind, rename(key), third, rename(fourth) if kind == "Preempt" else ""


def test_pseudonyms_depend_on_the_key_and_leave_no_name_in_the_dump() -> None:
    async def life(s: Stack) -> Object:
        await serve(s.server, s.manager)
        for one in (job("a", 6), job("b", 4), job("c", 4), job("d", 5, queue="other")):
            await s.apply(one)
        await s.settle(10)
        document, problem = await collect(s.client)
        assert problem == ""
        return document

    document = story(life, USAGE, TWO_QUEUES)
    text = json.dumps(with_pseudonyms(document)[0])
    names = {item["metadata"]["name"] for item in document["items"] if item["kind"] != "EngineState"}
    words = {"on-demand", "spot", "cq", "light", "default", *names} - {"default"}
    assert not [name for name in words if re.search(rf'["/]{re.escape(name)}["/]', text)]
    assert '"env"' not in text
    assert '"image"' not in text
    one, other = (Pseudonyms(document["items"], key).of("default/lq") for key in (b"1", b"2"))
    assert one != other
    assert one.partition("-")[0] == other.partition("-")[0]


def test_pseudonyms_of_policies_turns_and_domains() -> None:
    policy = {
        "apiVersion": "pykueue.io/v1alpha1",
        "kind": "PreemptionPolicy",
        "metadata": {"name": "calm"},
        "spec": {"clusterQueues": ["cq"], "cohort": "all", "priorityClasses": [{"name": "high"}]},
    }
    levels = [{"individual": {"prefix": "node-", "roots": ["1", "2"]}}, {"universal": "rack-1"}]
    assignment = {"levels": ["rack", "host"], "slices": [{"domainCount": 2, "valuesPerLevel": levels}]}
    given = {"name": "main", "flavors": {"cpu": "spot"}, "topologyAssignment": assignment}
    workload = {
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {"queueName": "lq", "podSets": [{"name": "main"}]},
        "status": {"admission": {"clusterQueue": "cq", "podSetAssignments": [given]}},
    }
    state = {
        "kind": "EngineState",
        "metadata": {"name": "engine"},
        "spec": {
            "turns": [["cq", "other", "cq", 1.0, 2, "default/w"]],
            "workloads": {
                "default/w": {"shared": {"nodes": [["main", "spot", ["rack"], [[["rack-1"], 2]], []]]}}
            },
        },
    }
    items = [policy, workload, state]
    names = Pseudonyms(items, b"key")
    of = names.of
    first, second, third = (names.renamed(item) for item in items)
    assert first["spec"] == {
        "clusterQueues": [of("cq")],
        "cohort": of("all"),
        "priorityClasses": [{"name": of("high")}],
    }
    (found,) = second["status"]["admission"]["podSetAssignments"]
    assert (found["name"], found["flavors"]) == ("main", {"cpu": of("spot")})
    assert found["topologyAssignment"]["slices"][0]["valuesPerLevel"] == [
        {"individual": {"roots": [of("node-1"), of("node-2")]}},
        {"universal": of("rack-1")},
    ]
    assert third["spec"]["turns"] == [[of("cq"), of("other"), of("cq"), 1.0, 2, of("default/w")]]
    placed = third["spec"]["workloads"][of("default/w")]["shared"]["nodes"]
    assert placed == [["main", of("spot"), ["rack"], [[[of("rack-1")], 2]], []]]


def test_a_dump_with_a_topology_has_the_nodes_without_their_providers() -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "labels": {"rack": "r1"}, "annotations": {"note": "x"}},
        "spec": {"providerID": "cloud://1", "taints": [{"key": "t", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "4"}, "nodeInfo": {"kernelVersion": "6"}},
    }

    async def life(s: Stack) -> Object:
        await s.client.create(resources.NODES, node)
        document, _ = await collect(s.client)
        return document

    document = story(
        life, queues=[topology("racks", "rack"), flavor("f", nodeLabels={"pool": "p"}, topologyName="racks")]
    )
    (found,) = [item for item in document["items"] if item["kind"] == "Node"]
    assert found["spec"] == {"taints": [{"key": "t", "effect": "NoSchedule"}]}
    assert found["metadata"]["labels"]["rack"] == "r1"
    assert "annotations" not in found["metadata"]
    assert set(found["status"]) <= {"allocatable", "capacity", "conditions"}


def test_a_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "key"
    first = key_of(file)
    assert (key_of(file), file.stat().st_mode & 0o777) == (first, 0o600)
    assert key_of(None) != key_of(None)
