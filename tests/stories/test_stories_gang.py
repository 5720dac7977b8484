"""The cluster of test_stories_clog.py with pods placed as groups (docs/reference/cluster-workloads.md 5.6).

A job of 64 workers, each on a node of its own, does nothing before all 64 run. There are 149 nodes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from stories_world import Object, Story, condition, job, play, pool

from pykueue.api.times import parse_time
from pykueue.embedded.podgroups.definitions import COSCHEDULING_POD_GROUPS, VOLCANO_POD_GROUPS
from queue_manifests import queues

SIZE, NODES = 64, 149
CLUSTER = [pool(count=NODES, cpu="2")]
NAMES = ("a", "b", "c")


def coscheduled(name: str, size: int, least: int, **options: Any) -> list[Object]:
    """A Job whose pods name a PodGroup by label, and the PodGroup."""
    made = gang(name, size, least, **options)
    made["spec"]["template"]["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": name}
    group = {
        "apiVersion": COSCHEDULING_POD_GROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": least},
    }
    return [group, made]


def volcano(name: str, size: int, least: int, **options: Any) -> list[Object]:
    """A Job for Volcano; its annotation says how many pods the group made for it must have."""
    made = gang(name, size, least, pod={"schedulerName": "volcano"}, **options)
    made["metadata"]["annotations"]["scheduling.volcano.sh/group-min-member"] = str(least)
    return [made]


def fluence(name: str, size: int, least: int, **options: Any) -> list[Object]:
    """A Job for Fluence, whose group is as large as the Job."""
    return [gang(name, size, least, pod={"schedulerName": "fluence"}, **options)]


MODES = {"coscheduling": coscheduled, "volcano": volcano, "fluence": fluence}


def gang(
    name: str,
    size: int,
    least: int,
    *,
    run_time: str = "60s",
    requests: dict[str, str | int] | None = None,
    pod: Object | None = None,
) -> Object:
    wait = {"waits-for-siblings": str(least)}
    wanted: dict[str, str | int] = requests or {"cpu": "1500m"}
    return job(name, size, wanted, queue=None, run_time=run_time, simulation=wait, pod=pod)


def together(*jobs: list[Object]) -> list[Object]:
    """What is needed first, then the Jobs one right after the other."""
    objects = [one for made in jobs for one in made]
    return sorted(objects, key=lambda one: one["kind"] == "Job")


async def run_each(world: Story, names: tuple[str, ...] = NAMES) -> list[int]:
    return [await world.running(f"{name}-") for name in names]


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_f9_f10_two_groups_run_and_the_third_has_no_running_pod(mode: Any) -> None:
    async def story(world: Story) -> None:
        await world.create(*together(*(mode(name, SIZE, SIZE) for name in NAMES)))
        await world.wait(45)
        held = await run_each(world)
        assert sorted(held) == [0, SIZE, SIZE]
        waiting = NAMES[held.index(0)]
        pods = await world.pods(f"{waiting}-")
        assert len(pods) == SIZE
        assert not any(pod["spec"].get("nodeName") for pod in pods)
        said = condition(pods[0], "PodScheduled")
        assert (said["status"], said["reason"]) == ("False", "Unschedulable")
        assert "is placed as a whole or not at all" in said["message"]
        await world.history.until_finished(*NAMES)
        assert {found.finished for found in world.history.jobs.values()} == {"Complete"}

    play(story, nodes=CLUSTER)


def test_f9_volcano_groups_report_their_status() -> None:
    async def story(world: Story) -> None:
        await world.create(*together(*(volcano(name, SIZE, SIZE) for name in NAMES)))
        await world.wait(45)
        groups = {
            one["metadata"]["ownerReferences"][0]["name"]: one for one in await world.all(VOLCANO_POD_GROUPS)
        }
        held = dict(zip(NAMES, await run_each(world), strict=True))
        for name, running in held.items():
            status = groups[name]["status"]
            assert (status["phase"], status["running"]) == (("Running" if running else "Inqueue"), running)
            unschedulable = condition(groups[name], "Unschedulable")
            if not running:
                assert unschedulable["reason"] == "NotEnoughResources"
                assert unschedulable["message"].startswith("64/64 tasks in gang unschedulable")
        await world.history.until_finished(*NAMES)
        await world.wait(5)
        phases = {one["status"]["phase"] for one in await world.all(VOLCANO_POD_GROUPS)}
        assert phases == {"Completed"}

    play(story, nodes=CLUSTER)


def test_f9_a_minimum_below_the_size_lets_all_three_run() -> None:
    """Each needs 20 to begin, and what is above that takes nothing from a group that has less."""

    async def story(world: Story) -> None:
        await world.create(*together(*(volcano(name, SIZE, 20) for name in NAMES)))
        await world.wait(45)
        held = await run_each(world)
        assert sum(held) == NODES
        assert min(held) >= 20
        await world.history.until_finished(*NAMES)

    play(story, nodes=CLUSTER)


def test_f4_groups_make_up_for_a_quota_larger_than_the_nodes() -> None:
    """All three are admitted; two run whole, and no part of the third until one of them has ended."""

    async def story(world: Story) -> None:
        made = [coscheduled(name, SIZE, SIZE) for name in NAMES]
        for _, one in made:
            one["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "q"
        await world.create(*together(*made))
        await world.wait(45)
        assert [await world.admitted(name) for name in NAMES] == [True] * 3
        assert sorted(await run_each(world)) == [0, SIZE, SIZE]
        await world.history.until_finished(*NAMES)
        assert {found.finished for found in world.history.jobs.values()} == {"Complete"}

    play(story, nodes=CLUSTER, objects=queues({"cpu": 1000}))


def test_f9_each_job_of_a_set_for_volcano_is_a_group() -> None:
    async def story(world: Story) -> None:
        sets = []
        for name in ("x", "y"):
            inner = gang("w", SIZE, SIZE, pod={"schedulerName": "volcano"})
            said = {"scheduling.volcano.sh/group-min-member": str(SIZE)}
            job_template = {"metadata": {"annotations": said}, "spec": inner["spec"]}
            sets.append(
                {
                    "apiVersion": "jobset.x-k8s.io/v1alpha2",
                    "kind": "JobSet",
                    "metadata": {"name": name, "namespace": "default"},
                    "spec": {"replicatedJobs": [{"name": "w", "template": job_template}]},
                }
            )
        await world.create(*sets)
        await world.wait(45)
        assert sorted(await run_each(world, ("x", "y"))) == [0, SIZE]
        await world.history.until_finished("x-w-0", "y-w-0")

    play(story, nodes=[pool(count=SIZE + 10, cpu="2")])


def test_f11_groups_of_one_second_start_one_after_the_other() -> None:
    """All wait behind a wall; when it falls, each is placed at once, and two do not mix."""

    async def story(world: Story) -> None:
        names = ("d", "b", "a", "c")
        await world.create(gang("wall", NODES, NODES, run_time="40s"))
        await world.wait(30)
        await world.create(*together(*(coscheduled(name, 80, 80, run_time="20s") for name in names)))
        groups = await world.all(COSCHEDULING_POD_GROUPS)
        assert len({one["metadata"]["creationTimestamp"] for one in groups}) == 1
        await world.history.until_finished("wall", *names)
        spans = []
        for name in names:
            pods = await world.pods(f"{name}-")
            bound = [parse_time(condition(pod, "PodScheduled")["lastTransitionTime"]) for pod in pods]
            assert max(bound) - min(bound) <= 1, "a group starts together"
            spans.append(min(bound))
        ordered = sorted(spans)
        assert all(later - earlier >= 20 for earlier, later in pairwise(ordered))

    play(story, nodes=CLUSTER)


SIZES = (64, 32, 16, 8, 4, 2)


def mixed(mode: Any | None) -> tuple[list[Object], list[str]]:
    """Ten jobs of every size, 1260 pods in all, together with what they need; in any order."""
    objects, names = [], []
    for round_ in range(10):
        for size in SIZES:
            name = f"j{round_}-{size}"
            names.append(name)
            objects.append(
                [gang(name, size, size, run_time="20s")]
                if mode is None
                else mode(name, size, size, run_time="20s")
            )
    return together(*objects), names


@pytest.mark.parametrize("mode", [coscheduled, volcano], ids=["coscheduling", "volcano"])
def test_f12_groups_of_all_sizes_get_through(mode: Any) -> None:
    async def story(world: Story) -> None:
        objects, names = mixed(mode)
        await world.create(*objects)
        await world.history.until_finished(*names)
        assert {found.finished for found in world.history.jobs.values()} == {"Complete"}

    play(story, nodes=CLUSTER)


def test_f12_pod_by_pod_they_clog() -> None:
    async def story(world: Story) -> None:
        objects, names = mixed(None)
        await world.create(*objects)
        await world.wait(1800)
        before = [name for name in names if not await world.ended(name)]
        await world.wait(3600)
        clogged = [name for name in names if not await world.ended(name)]
        assert clogged == before
        assert len(clogged) > 3
        assert await world.running() == NODES

    play(story, nodes=CLUSTER)


def test_b14_of_two_jobs_of_eight_on_eight_devices_one_runs_and_the_other_has_no_running_pod() -> None:
    """Submitted in the same instant; without groups they would share the devices forever (B7)."""

    async def story(world: Story) -> None:
        wanted: dict[str, str | int] = {"nvidia.com/gpu": 1}
        await world.create(*together(*(volcano(name, 8, 8, requests=wanted) for name in ("a", "b"))))
        await world.wait(20)
        assert sorted(await run_each(world, ("a", "b"))) == [0, 8]
        await world.history.until_finished("a", "b")

    play(story, nodes=[pool(count=1, gpu="8")])
