"""Reservations: quota that is kept free in windows of time, once, again and again, and for maintenance."""

from __future__ import annotations

from typing import Any

import pytest
from engine_world import START, World

from pykueue.api.meta import format_time, parse_time
from pykueue.api.reservations import ReservationSpec, windows
from pykueue.engine import Admit
from pykueue.engine.dump import dump, load
from pykueue.engine.events import Removed
from pykueue.engine.explain.render import message


def reserve(world: World, **spec: Any) -> None:
    """Six of ten cpus for queue a, an hour from 1000 seconds on; `spec` says otherwise."""
    given = {"start": format_time(START + 1000)} if "schedule" not in spec else {}
    scope = {} if "cohort" in spec else {"clusterQueue": "a"}
    flavors = [{"name": "f", "resources": [{"name": "cpu", "quantity": spec.pop("cpus", "6")}]}]
    world.apply(
        {
            "apiVersion": "pykueue.io/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": "demo", "uid": "demo"},
            "spec": {**scope, "flavors": flavors, "duration": "1h", **given, **spec},
        }
    )


def two(backfill: bool = False) -> World:
    """Queue a has ten cpus, b borrows them."""
    made = World()
    made.flavor()
    made.queue("a", {"cpu": "10"}, cohort="all")
    made.queue("b", {"cpu": "0"}, cohort="all")
    if backfill:
        policy = {"name": "all", "uid": "all"}
        made.apply(
            {"apiVersion": "pykueue.io/v1alpha1", "kind": "BackfillPolicy", "metadata": policy, "spec": {}}
        )
    return made


def job(world: World, name: str, cpus: int, seconds: int | None, queue: str = "b") -> None:
    limit = {} if seconds is None else {"maximumExecutionTimeSeconds": seconds}
    world.workload(name, queue, cpus, **limit)


def names(made: World) -> list[str]:
    return [name for _, name in made.admitted]


def at(made: World, seconds: float) -> None:
    made.driver.advance(START + seconds)
    made.stable()


@pytest.mark.parametrize("backfill", [False, True])
def test_others_start_only_what_ends_before_the_window_or_fits_beside_it(backfill: bool) -> None:
    made = two(backfill)
    reserve(made)
    job(made, "long", 5, 5000)
    job(made, "beside", 4, 5000)
    job(made, "short", 5, 900)
    made.stable()
    assert names(made) == ["beside", "short"]
    assert message(made.last["long"]).startswith(
        f"Would use quota of Reservation demo, whose window begins at {format_time(START + 1000)}: "
    )
    at(made, 950)
    made.finish("short")
    at(made, 1500)
    assert names(made) == ["beside", "short"]
    job(made, "own", 6, 500, queue="a")
    made.stable()
    assert names(made)[2:] == ["own"], "the reservation is for queue a"
    at(made, 2100)
    made.finish("own")
    made.stable()
    assert names(made)[3:] == [], "until its window is over"
    at(made, 4601)
    assert names(made)[3:] == ["long"]


def test_what_the_queue_uses_itself_counts_as_used_of_its_reservation() -> None:
    made = two()
    made.running("own", "a", 6, reserved=0, maximumExecutionTimeSeconds=9000)
    reserve(made)
    job(made, "beside", 4, 5000)
    made.stable()
    assert names(made) == ["beside"]


def test_maintenance_is_kept_free_from_all_and_a_cohort_may_be_reserved() -> None:
    made = two()
    reserve(made, cohort="all", purpose="Maintenance", cpus="10")
    job(made, "own", 1, 5000, queue="a")
    job(made, "unknown", 1, None)
    job(made, "short", 10, 900, queue="a")
    made.stable()
    assert names(made) == ["short"]


def test_reservation_that_is_removed_keeps_nothing_free() -> None:
    made = two()
    reserve(made)
    job(made, "long", 5, 5000)
    made.stable()
    assert names(made) == []
    made.driver.apply(Removed("Reservation", "", "demo"))
    made.stable()
    assert names(made) == ["long"]


def test_trial_and_dump_know_it() -> None:
    made = two()
    reserve(made)
    job(made, "long", 5, 5000)
    made.stable()
    before = dump(made.engine)
    with made.engine.fork() as trial:
        trial.apply(Removed("Reservation", "", "demo"))
        decisions = [each for _ in range(3) for each in trial.cycle(made.now)]
        assert [each.key for each in decisions if isinstance(each, Admit)] == ["default/long"]
    made.engine.check()
    assert dump(made.engine) == before
    assert dump(load(before)) == before


def test_windows_of_a_schedule_follow_its_time_zone_through_a_change_of_clocks() -> None:
    spec = ReservationSpec(
        cluster_queue="a", schedule="0 22 * * sat", time_zone="Europe/Berlin", duration="8h"
    )
    now = parse_time("2026-10-23T00:00:00Z")
    starts = [format_time(window.start) for window in windows(spec, now)[:2]]
    assert starts == ["2026-10-24T20:00:00Z", "2026-10-31T21:00:00Z"]
    inside = windows(spec, parse_time("2026-10-25T01:00:00Z"))[0]
    assert format_time(inside.start) == "2026-10-24T20:00:00Z", "the current window is the first"
