"""Pending workloads as objects of the visibility API, and when they start."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from web_visibility_world import GROUP, World, in_world, workload

from pykueue.api.meta import parse_time
from pykueue.api.resources import NAMESPACES
from pykueue.kube.client import Client
from pykueue.simulate.live.forecasts import Forecasts
from pykueue.simulate.live.kept import ConfigMapStore, FileStore, Store
from pykueue.simulate.live.process import starts
from pykueue.simulate.live.protocol import Ask
from pykueue.web.visibility.api import VisibilityApi
from pykueue.web.visibility.pending import table

BASE = f"/apis/{GROUP}/v1beta2"
HERE = f"{BASE}/namespaces/default/pendingworkloads"


class Process:
    """Answers in this process, with all futures."""

    def __init__(self) -> None:
        self.asked: list[Ask] = []

    async def __call__(self, document: bytes) -> bytes:
        self.asked.append(msgspec.json.decode(document, type=Ask))
        return msgspec.json.encode(starts(self.asked[-1], lambda: 0.0))


def limited(name: str, minutes: int = 10, **more: Any) -> dict[str, Any]:
    """A workload of all of the quota that runs for so many minutes at most."""
    found = workload(name, **more)
    found["spec"]["maximumExecutionTimeSeconds"] = minutes * 60
    return found


async def fill(world: World) -> None:
    """One that runs, and two that are pending."""
    for name in ("running", "first", "second"):
        await world.submit(limited(name))
        await world.pause()


def test_starts_are_those_of_the_simulated_futures() -> None:
    process = Process()

    async def story(world: World) -> None:
        await fill(world)
        found = await world.get(HERE)
        assert (found["kind"], found["apiVersion"]) == ("PendingWorkloadList", f"{GROUP}/v1beta2")
        first, second = found["items"]
        assert [one["metadata"]["name"] for one in (first, second)] == ["first", "second"]
        assert (first["positionInLocalQueue"], second["positionInLocalQueue"]) == (0, 1)
        assert (first["clusterQueueName"], first["localQueueName"]) == ("cq", "left")
        begin = world.clock.time()
        times = [
            [parse_time(one["start"][name]) - begin for name in ("earliest", "median", "latest")]
            for one in (first, second)
        ]
        assert 0 <= times[0][0] <= times[0][1] <= times[0][2] <= 600
        assert times[0][1] < times[1][1] < times[1][2] <= 1200
        assert (first["start"]["futures"], first["start"]["started"]) == (20, 20)
        assert await world.get(f"{HERE}/second") == second
        assert (await world.get(f"{BASE}/pendingworkloads"))["items"] == found["items"]

    in_world(story, run_forecast=process)


def test_run_times_are_learnt_from_finished_workloads() -> None:
    process = Process()

    async def story(world: World) -> None:
        await world.submit(workload("done"))
        await world.pause(300)
        await world.finish("done")
        await world.submit(workload("running"))
        await world.pause()
        await world.submit(workload("next"))
        await world.pause()
        (item,) = (await world.get(HERE))["items"]
        assert item["metadata"]["name"] == "next"
        assert any(one["metadata"]["name"] == "done" for one in process.asked[0].objects)

    in_world(story, run_forecast=process)


def test_forecast_is_kept_for_a_minute() -> None:
    process = Process()

    async def story(world: World) -> None:
        await fill(world)
        for _ in range(3):
            await world.get(HERE)
        assert len(process.asked) == 1
        await world.pause(61)
        await world.get(HERE)
        assert len(process.asked) == 2

    in_world(story, run_forecast=process)


def test_without_a_forecast_the_list_has_no_starts(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(document: bytes) -> bytes:
        raise RuntimeError("the process ended with status 1: no memory")

    async def story(world: World) -> None:
        await fill(world)
        with caplog.at_level(logging.WARNING):
            items = (await world.get(HERE))["items"]
        assert ["start" in one for one in items] == [False, False]
        assert (
            "when workloads start could not be forecast: the process ended with status 1: no memory"
            in caplog.text
        )

    in_world(story, run_forecast=fails)


def test_workload_that_is_not_pending_and_other_users_are_refused() -> None:
    async def story(world: World) -> None:
        await fill(world)
        assert (await world.refused(world.get(f"{HERE}/running"))).code == 404
        guest = world.as_user("guest")
        assert (await world.refused(guest.get(HERE))).code == 403
        assert (await world.refused(guest.get(f"{HERE}/first"))).code == 403
        assert (await world.get(f"{BASE}/namespaces/other/pendingworkloads"))["items"] == []

    in_world(story)


def job(cpu: int) -> dict[str, Any]:
    """A job of ten minutes at most."""
    labels = {"kueue.x-k8s.io/queue-name": "left", "kueue.x-k8s.io/max-exec-time-seconds": "600"}
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"job-{cpu}", "namespace": "default", "labels": labels},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


async def dry_run(world: World, cpu: int, **query: Any) -> list[str]:
    """What the manager says about a job that is not created."""
    review = next(
        each.review for each in world.manager.webhooks() if each.name == "vjob.kb.io" and not each.mutating
    )
    request = {"uid": "u", "object": {**job(cpu)}, "oldObject": None, "dryRun": True} | query
    answer = await review({"request": request})
    assert answer["response"]["allowed"] is True
    warnings: list[str] = answer["response"].get("warnings", [])
    return warnings


@pytest.mark.parametrize("kind", ["file", "ConfigMap"])
def test_scores_of_past_forecasts_survive_a_restart(tmp_path: Path, kind: str) -> None:
    process = Process()

    async def story(world: World) -> None:
        client = Client(world.cluster.transport("system:apiserver"), clock=world.clock)
        manager = world.cluster.manager
        assert manager is not None
        if kind == "ConfigMap":
            await client.create(NAMESPACES, {"metadata": {"name": "kueue-system"}})

        def store() -> Store:
            file = FileStore(tmp_path / "scores.json")
            return file if kind == "file" else ConfigMapStore(client, "kueue-system")

        before = Forecasts(manager, process, store())
        for number in range(7):
            await world.submit(limited(f"w{number}"))
            await world.pause()
        found = await before.starts()
        assert found is not None
        assert len(found.starts) == 6
        assert found.scores == {}
        for number in range(6):
            await world.pause(300)
            await world.finish(f"w{number}")
        await before.stop()
        # The interval of the first answer counts: some were later than it said, as run times were unknown.
        after = Forecasts(manager, process, store())
        again = await after.starts()
        assert again is not None
        inside, starts = again.scores["default/left"]
        assert starts == 6
        assert 1 <= inside <= 6
        api = VisibilityApi(manager, after)
        await world.submit(limited("last"))
        await world.pause(61)

        async def may(*_: str) -> bool:
            return True

        answer = await api.answer("GET", HERE, {}, may)
        (item,) = [one for one in answer["items"] if one["metadata"]["name"] == "last"]
        assert item["start"]["score"] == {"inside": inside, "starts": 6}
        await after.stop()

    in_world(story)


def test_dry_run_of_a_job_says_when_it_would_start() -> None:
    process = Process()

    async def story(world: World) -> None:
        assert await dry_run(world, 1) == ["would start at once (20 simulated futures)"]
        await fill(world)
        (text,) = await dry_run(world, 1)
        assert text.startswith("would start between ")
        assert text.endswith(" from now with a probability of 80 % (20 simulated futures)")
        assert process.asked[-1].submit is not None
        assert await dry_run(world, 2) == ["would not start within 24h in 20 of 20 simulated futures"]

    in_world(story, run_forecast=process)


def test_ordinary_create_asks_for_no_forecast() -> None:
    process = Process()

    async def story(world: World) -> None:
        assert await dry_run(world, 1, dryRun=False) == []
        assert process.asked == []

    in_world(story, run_forecast=process)


def test_dry_run_goes_on_without_a_forecast_that_takes_long() -> None:
    process = Process()

    async def slow(document: bytes) -> bytes:
        await asyncio.sleep(10)
        return await process(document)

    async def story(world: World) -> None:
        begin = world.clock.time()
        (text,) = await dry_run(world, 1)
        assert text == "when it would start is not known yet; a dry run in some seconds may say it"
        assert world.clock.time() - begin == pytest.approx(2, abs=0.1)
        # Another one meanwhile does not wait, and the same one later has its answer.
        assert await dry_run(world, 2) == [text]
        await world.pause(10)
        assert await dry_run(world, 1) == ["would start at once (20 simulated futures)"]
        assert len(process.asked) == 1

    in_world(story, run_forecast=slow)


def test_table_says_how_long_it_takes() -> None:
    item = {
        "metadata": {"name": "a", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "localQueueName": "q",
        "clusterQueueName": "cq",
        "priority": 3,
        "positionInLocalQueue": 4,
        "start": {
            "earliest": "2026-01-01T00:10:00Z",
            "median": "2026-01-01T03:00:00Z",
            "hours": 24.0,
            "score": {"inside": 8, "starts": 10},
        },
    }
    now = parse_time("2026-01-01T00:05:00Z")
    row, unknown = table([item, {**item, "start": None}], now)["rows"]
    assert row["cells"] == ["a", "q", 4, "5m", "175m", ">24h", "8/10", "cq", 3, "5m"]
    assert unknown["cells"][3:6] == ["<unknown>"] * 3
    assert unknown["cells"][6] == "<none>"
    assert row["object"]["metadata"] == item["metadata"]
