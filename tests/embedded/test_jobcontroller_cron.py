"""CronJobs: schedules, and the Jobs they become."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from jobcontroller_cluster import Cluster, Object, job, story

from pykueue.api.cronschedule import Schedule, ScheduleError, time_zone
from pykueue.api.resources import CRON_JOBS, JOBS, NAMESPACES
from pykueue.embedded.kinds.cronjob import CronJob
from pykueue.kube.errors import ApiError


def at(text: str, zone: str | None = None) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=time_zone(zone)).timestamp()


def shown(moment: float | None, zone: str | None = None) -> str | None:
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, time_zone(zone)).strftime("%Y-%m-%dT%H:%M:%S")


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("* * * * *", "2026-01-01T12:00:30", "2026-01-01T12:01:00"),
        ("* * * * *", "2026-01-01T12:01:00", "2026-01-01T12:02:00"),
        ("*/15 * * * *", "2026-01-01T12:00:30", "2026-01-01T12:15:00"),
        ("5/20 * * * *", "2026-01-01T12:06:00", "2026-01-01T12:25:00"),
        ("0 9-17/4 * * mon-fri", "2026-01-02T17:30:00", "2026-01-05T09:00:00"),
        ("0 0 1,15 * ?", "2026-01-02T00:00:00", "2026-01-15T00:00:00"),
        ("0 0 * feb,JUL *", "2026-03-01T00:00:00", "2026-07-01T00:00:00"),
        ("0 0 13 * 5", "2026-01-01T00:00:00", "2026-01-02T00:00:00"),
        ("0 0 29 2 *", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 29 2 *", "2096-03-01T00:00:00", "2104-02-29T00:00:00"),
        ("0 0 31 2 *", "2026-01-01T00:00:00", None),
        ("@hourly", "2026-01-01T12:30:00", "2026-01-01T13:00:00"),
        ("@weekly", "2026-01-01T00:00:00", "2026-01-04T00:00:00"),
        ("@yearly", "2026-01-01T00:00:00", "2027-01-01T00:00:00"),
        ("@every 1h30m", "2026-01-01T12:00:00", "2026-01-01T13:30:00"),
    ],
)
def test_when_a_schedule_is_due(schedule: str, after: str, expected: str | None) -> None:
    assert shown(Schedule(schedule).next(at(after))) == expected


def test_a_schedule_follows_the_clocks_of_its_zone() -> None:
    zone = "America/New_York"
    half_past_two = Schedule("30 2 * * *", time_zone(zone))
    assert shown(half_past_two.next(at("2026-03-08T00:00:00", zone)), zone) == "2026-03-09T02:30:00"
    half_past_one = Schedule("30 1 * * *", time_zone(zone))
    first = half_past_one.next(at("2026-11-01T00:00:00", zone))
    assert first is not None
    assert datetime.fromtimestamp(first, UTC).hour == 5, "of the two, the first"
    assert shown(half_past_one.next(first), zone) == "2026-11-02T01:30:00"


def test_of_many_missed_times_the_last_is_found_quickly() -> None:
    found, count = Schedule("* * * * *").latest(at("2020-01-01T00:00:00"), at("2026-01-01T00:00:30"))
    assert (shown(found), count) == ("2026-01-01T00:00:00", 101)
    found, count = Schedule("0 0 1 1 *").latest(at("2020-06-01T00:00:00"), at("2026-01-01T00:00:30"))
    assert (shown(found), count) == ("2026-01-01T00:00:00", 6)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("* * * *", "expected exactly 5 fields, found 4"),
        ("60 * * * *", "end of range"),
        ("* * 0 * *", "beginning of range"),
        ("* * * * 7", "above maximum"),
        ("5-1 * * * *", "beyond end of range"),
        ("*/0 * * * *", "positive number"),
        ("a * * * *", "failed to parse int"),
        ("@sometimes", "unrecognized descriptor"),
        ("@every soon", "failed to parse duration"),
        ("TZ=UTC * * * * *", "timeZone"),
    ],
)
def test_what_is_no_schedule(schedule: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        Schedule(schedule)


# The kind


def cron_job(name: str = "cron", schedule: str = "* * * * *", **spec: Any) -> Object:
    template = {"metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}}, "spec": job("x")["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedule": schedule, "jobTemplate": template, **spec},
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schedule": "x"}, "spec.schedule: Invalid value"),
        ({"schedule": "TZ=UTC * * * * *"}, "spec.schedule: Forbidden"),
        ({"time_zone": "Mars/Olympus"}, "spec.timeZone: Invalid value"),
        ({"time_zone": ""}, "timeZone must be nil or non-empty string"),
        ({"concurrencyPolicy": "Maybe"}, "spec.concurrencyPolicy: Unsupported value"),
        ({"startingDeadlineSeconds": -1}, "spec.startingDeadlineSeconds: Invalid value"),
        ({"name": "x" * 53}, "must be no more than 52 characters"),
        (
            {"jobTemplate": {"spec": {**job("x")["spec"], "parallelism": -1}}},
            "spec.jobTemplate.spec.parallelism",
        ),
    ],
)
def test_what_is_no_cron_job(change: Object, message: str) -> None:
    async def tell(cluster: Cluster) -> None:
        given = {("timeZone" if key == "time_zone" else key): value for key, value in change.items()}
        with pytest.raises(ApiError, match=message):
            await cluster.client.create(CRON_JOBS, cron_job(**given))

    story(tell)


def test_the_row_kubectl_prints() -> None:
    made = cron_job(timeZone="Etc/UTC", suspend=False)
    made["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    made["status"] = {"active": [{}], "lastScheduleTime": "2026-01-01T00:01:00Z"}
    row = CronJob().cells(made, at("2026-01-01T00:02:00"))
    assert row == ["cron", "* * * * *", "Etc/UTC", "False", 1, "60s", "2m", "main", "x", "<none>"]


# The controller


Tell = Callable[[Cluster], Awaitable[None]]


async def names(cluster: Cluster) -> list[str]:
    return [one["metadata"]["name"] for one in (await cluster.client.list(JOBS, "default")).items]


async def status(cluster: Cluster) -> Object:
    found: Object = (await cluster.client.get(CRON_JOBS, "cron", "default")).get("status") or {}
    return found


async def reasons(cluster: Cluster) -> list[str]:
    return [reason for _, reason, _ in await cluster.events("cron")]


async def finish(cluster: Cluster, name: str) -> None:
    await cluster.succeed(*await cluster.active(name))
    await cluster.wait(3)


#: 2026-01-01T00:00Z in minutes since 1970.
MINUTE = 29453760


def test_a_job_is_made_at_every_scheduled_time() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.client.create(CRON_JOBS, cron_job())
        await cluster.wait(59)
        assert await names(cluster) == []
        await cluster.wait(2)
        assert await names(cluster) == [f"cron-{MINUTE + 1}"]
        made = await cluster.job(f"cron-{MINUTE + 1}")
        assert made["metadata"]["labels"] == {"app": "x"}
        assert made["metadata"]["annotations"] == {
            "a": "b",
            "batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-01-01T00:01:00Z",
        }
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("CronJob", "cron", True)
        found = await status(cluster)
        assert found["lastScheduleTime"] == "2026-01-01T00:01:00Z"
        assert [one["name"] for one in found["active"]] == [f"cron-{MINUTE + 1}"]
        await finish(cluster, f"cron-{MINUTE + 1}")
        found = await status(cluster)
        assert "active" not in found
        finished = (await cluster.status(f"cron-{MINUTE + 1}"))["completionTime"]
        assert found["lastSuccessfulTime"] == finished
        assert await reasons(cluster) == ["SuccessfulCreate", "SawCompletedJob"]
        await cluster.wait(60)
        assert await names(cluster) == [f"cron-{MINUTE + 1}", f"cron-{MINUTE + 2}"]

    story(tell)


def test_finished_jobs_are_kept_up_to_the_limits() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.client.create(CRON_JOBS, cron_job(successfulJobsHistoryLimit=2))
        for minute in range(1, 6):
            await cluster.wait(61 if minute == 1 else 57)
            await finish(cluster, f"cron-{MINUTE + minute}")
        assert await names(cluster) == [f"cron-{MINUTE + 4}", f"cron-{MINUTE + 5}"]
        assert "SuccessfulDelete" in await reasons(cluster)

    story(tell)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("Allow", [1, 2, 3]), ("Forbid", [1]), ("Replace", [3])],
)
def test_what_happens_while_an_earlier_job_still_runs(policy: str, expected: list[int]) -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.client.create(CRON_JOBS, cron_job(concurrencyPolicy=policy))
        await cluster.wait(182)
        assert await names(cluster) == [f"cron-{MINUTE + minute}" for minute in expected]
        found = await status(cluster)
        assert [one["name"] for one in found["active"]] == [f"cron-{MINUTE + minute}" for minute in expected]
        if policy == "Forbid":
            assert "JobAlreadyActive" in await reasons(cluster)
            await finish(cluster, f"cron-{MINUTE + 1}")
            assert await names(cluster) == [f"cron-{MINUTE + 1}", f"cron-{MINUTE + 3}"], "made up for"

    story(tell)


def test_only_the_last_missed_time_is_made_up_for_and_none_that_is_too_old() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.client.create(CRON_JOBS, cron_job(suspend=True))
        late = cron_job("late", "0 * * * *", suspend=True, startingDeadlineSeconds=60)
        await cluster.client.create(CRON_JOBS, late)
        await cluster.wait(2 * 3600 + 600)
        assert await names(cluster) == []
        for name in ("cron", "late"):
            await cluster.client.patch(CRON_JOBS, name, "default", {"spec": {"suspend": False}})
        await cluster.wait(1)
        assert await names(cluster) == [f"cron-{MINUTE + 130}"]
        assert "TooManyMissedTimes" in await reasons(cluster)
        assert [reason for _, reason, _ in await cluster.events("late")] == ["MissSchedule"]

    story(tell)


def test_a_restart_makes_no_job_twice() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.client.create(CRON_JOBS, cron_job())
        for _ in range(20):
            await cluster.wait(cluster.rng.choice([5.0, 10.0, 20.0]))
            await cluster.stop_controllers()
            cluster.start_controllers()
        await cluster.wait(0.5)
        minutes = int(cluster.clock.time() - MINUTE * 60) // 60
        assert await names(cluster) == sorted(f"cron-{MINUTE + minute}" for minute in range(1, minutes + 1))
        active = [one["name"] for one in (await status(cluster))["active"]]
        assert sorted(active) == await names(cluster)

    story(tell)


def test_the_jobs_go_with_their_cron_job() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.client.create(CRON_JOBS, cron_job())
        await cluster.wait(61)
        await cluster.client.delete(CRON_JOBS, "cron", "default")
        await cluster.wait(3)
        assert await names(cluster) == []
        assert await cluster.exists(NAMESPACES, "default", None)

    story(tell)
