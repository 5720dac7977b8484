"""The driver carries decisions out as the API and its controllers would."""

from __future__ import annotations

from engine_world import START, World

from pykueue.api import encode
from pykueue.api.kueue import V1BETA2
from pykueue.api.meta import find_condition, format_time
from pykueue.engine import Admit, Options
from pykueue.engine.driver import Change, Driver
from pykueue.engine.lifecycle import reserved

Manifest = dict[str, object]


def filled(made: World, release: str = "at once") -> Driver:
    """A separate driver with all objects of the test's engine."""
    driver = Driver(Options(), START, release)  # type: ignore[arg-type]
    driver.apply(*made.events)
    return driver


def world() -> World:
    made = World()
    made.flavor("f")
    return made


def check(name: str, state: str, **more: object) -> Manifest:
    return {"name": name, "state": state, "lastTransitionTime": format_time(START), "message": "", **more}


def states(driver: Driver, key: str) -> dict[str, str]:
    return {each.name: each.state for each in driver.workloads[key].status.admission_checks}


def condition(driver: Driver, key: str, type: str) -> tuple[str, str]:
    found = find_condition(driver.workloads[key].status.conditions, type)
    return (found.status, found.reason) if found is not None else ("", "")


def with_check(made: World, **on: object) -> None:
    made.check("c")
    strategy = {"admissionChecks": [{"name": "c", **on}]}
    made.queue("q", {"cpu": 4}, within="LowerPriority", admissionChecksStrategy=strategy)


def test_preemption_sets_ready_checks_back_to_pending() -> None:
    made = world()
    with_check(made)
    made.running("low", "q", 4)
    made.status("low", admissionChecks=[check("c", "Ready")])
    made.workload("high", "q", 4, prio=1)
    driver = filled(made)
    driver.cycle()
    driver.carry_out()
    assert states(driver, "default/low") == {"c": "Pending"}
    assert condition(driver, "default/low", "Requeued") == ("True", "Preempted")
    assert condition(driver, "default/low", "QuotaReserved") == ("False", "PendingEvaluation")
    driver.cycle()
    driver.carry_out()
    driver.follow()
    assert condition(driver, "default/high", "QuotaReserved")[0] == "True"
    assert condition(driver, "default/high", "Admitted") == ("False", "UnsatisfiedAdmissionChecks")
    driver.engine.check()


def test_back_off_that_ended_before_the_start_keeps_no_workload_out() -> None:
    made = world()
    made.queue("q", {"cpu": 4})
    made.workload("w", "q", 1, status={"requeueState": {"count": 1, "requeueAt": format_time(START - 60)}})
    driver = filled(made)
    assert [len(decisions) for decisions in driver.until_stable()] == [1]
    assert condition(driver, "default/w", "Admitted")[0] == "True"


def test_ready_checks_admit_and_retry_evicts_until_its_time() -> None:
    made = world()
    with_check(made)
    made.workload("w", "q", 1)
    driver = filled(made)
    driver.follow()
    driver.cycle()
    driver.carry_out()
    driver.follow()
    assert states(driver, "default/w") == {"c": "Pending"}
    made.driver = driver
    made.status("w", admissionChecks=[check("c", "Ready")])
    assert driver.follow() == []
    assert condition(driver, "default/w", "Admitted") == ("True", "Admitted")
    made.status("w", admissionChecks=[check("c", "Retry", requeueAfterSeconds=30)])
    assert driver.follow() == [Change("Evicted", "default/w", "AdmissionCheck")]
    assert condition(driver, "default/w", "Requeued") == ("False", "AdmissionCheck")
    assert driver.cycle() == []
    driver.advance(START + 31)
    driver.follow()
    assert condition(driver, "default/w", "Requeued") == ("True", "BackoffFinished")
    assert [type(decision).__name__ for decision in driver.cycle()] == ["Admit"]
    driver.engine.check()


def test_rejected_check_deactivates() -> None:
    made = world()
    with_check(made)
    made.running("w", "q", 1)
    made.status("w", admissionChecks=[check("c", "Rejected")])
    driver = filled(made)
    assert driver.follow() == [Change("Evicted", "default/w", "DeactivatedDueToAdmissionCheck")]
    assert not driver.workloads["default/w"].spec.active
    assert condition(driver, "default/w", "QuotaReserved") == ("False", "Deactivated")


def test_deactivated_workload_keeps_its_quota_until_it_is_released() -> None:
    made = world()
    made.queue("q", {"cpu": 4})
    made.running("w", "q", 4)
    made.workload("next", "q", 4)
    made.change("w", active=False)
    driver = filled(made, release="manual")
    assert driver.follow() == [Change("Evicted", "default/w", "Deactivated")]
    assert made.engine.workload("default/w").state == "reserved"  # type: ignore[union-attr]
    driver.cycle()
    assert condition(driver, "default/next", "QuotaReserved") == ("", "")
    driver.release("default/w")
    driver.follow()
    assert [decision.key for decision in driver.cycle()] == ["default/next"]


def test_stopped_queues_withdraw_reservations_and_drain_what_is_admitted() -> None:
    made = world()
    made.queue("q", {"cpu": 4}, stop="HoldAndDrain")
    made.running("admitted", "q", 1)
    made.running("reserved", "q", 1, admitted=False)
    driver = filled(made)
    assert set(driver.follow()) == {
        Change("Evicted", "default/admitted", "ClusterQueueStopped"),
        Change("Withdrawn", "default/reserved", "Suspended"),
    }
    made.driver = driver
    made.queue("q", {"cpu": 4})
    driver.follow()
    assert condition(driver, "default/admitted", "Requeued") == ("True", "ClusterQueueRestarted")
    assert len([decisions for decisions in driver.until_stable() if decisions]) == 2


def test_evicted_slice_with_a_replacement_is_finished() -> None:
    made = world()
    made.queue("q", {"cpu": 4}, within="LowerPriority")
    made.running("old", "q", 2)
    made.workload(
        "new", "q", 4, annotations={"kueue.x-k8s.io/workload-slice-replacement-for": "default/old"}, prio=-1
    )
    made.workload("high", "q", 4, prio=1)
    driver = filled(made)
    driver.cycle()
    assert driver.carry_out() == [Change("Finished", "default/old", "WorkloadSliceReplaced")]
    driver.engine.check()


def test_admissions_of_one_second_are_equally_new_once_the_api_shows_them() -> None:
    """The API has whole seconds: within one, the uid decides who goes first."""
    made = world()
    made.queue("q", {"cpu": 4}, within="LowerPriority")
    for name, fraction in (("first", 0.2), ("second", 0.8)):
        made.now = START + 60 + fraction
        made.workload(name, "q", 2)
        (admit,) = made.cycle(carry_out=False)
        assert isinstance(admit, Admit)
        shown = reserved(made.driver.workloads[f"default/{name}"], admit.admission, True, START + 60)
        made.apply({"apiVersion": V1BETA2, "kind": "Workload", **encode(shown)})
    view = made.engine.local_queue("default", "q")
    assert view is not None
    assert (view.reserving, view.admitted) == (2, 2)
    made.workload("urgent", "q", 2, prio=9)
    made.cycle()
    assert [name for _, name, _ in made.preempted] == ["first"]


def test_workload_that_is_admitted_later_is_counted_then() -> None:
    made = world()
    with_check(made)
    made.workload("w", "q", 1)
    made.now = START + 60.5
    made.stable()
    made.status("w", admissionChecks=[check("c", "Ready")])
    view = made.engine.local_queue("default", "q")
    assert view is not None
    assert (view.reserving, view.admitted) == (1, 0)
    made.driver.follow()
    made.engine.check()
    view = made.engine.local_queue("default", "q")
    assert view is not None
    assert (view.reserving, view.admitted) == (1, 1)
