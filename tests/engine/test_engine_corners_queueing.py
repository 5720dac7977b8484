"""Corner cases of queues and cycles (docs/reference/kueue-semantics.md 15, rows 21 to 40)."""

from __future__ import annotations

from typing import Any

import pytest
from engine_world import START, World

from pykueue.engine import Options, Preempt, Removed
from pykueue.engine.explain.render import message


def world(**options: object) -> World:
    made = World(Options(**options))  # type: ignore[arg-type]
    made.flavor()
    return made


def test_21_a_shape_that_does_not_fit_is_looked_at_once() -> None:
    made = world()
    made.queue("q", {"cpu": "4"})
    made.running("r", "q", 2)
    for name, cpu in (("a", 3), ("twin", 3), ("five", 5), ("two", 2)):
        made.workload(name, "q", cpu)
    made.stable()
    assert made.admitted == [(3, "two")]
    assert made.reasons == {"a": "WaitingForQuota", "five": "ExceedsMaxQuota"}
    view = made.engine.workload("default/twin")
    assert view is not None
    assert (view.state, view.bypassed, view.reason) == ("inadmissible", True, "WaitingForQuota")


@pytest.mark.interpreted
def test_equal_workloads_that_were_skipped_report_the_first_ones_amounts_at_one_evaluation_for_all() -> None:
    made = world()
    made.queue("q", {"cpu": "4"})
    made.running("r", "q", 2)
    made.workload("a", "q", 3)
    for number in range(50):
        made.workload(f"twin-{number}", "q", 3)
    evaluated = []
    evaluate = made.engine._evaluator.evaluate

    def counted(*args: Any, **more: Any) -> Any:
        evaluated.append(args[0].key)
        return evaluate(*args, **more)

    made.engine._evaluator.evaluate = counted  # type: ignore[method-assign]
    made.stable()
    assert evaluated == ["default/a"]
    first = message(made.last["a"])
    assert "insufficient unused quota for cpu in flavor f, 1 more needed" in first
    for number in range(50):
        assert made.engine.pending_reason(f"default/twin-{number}") == ("WaitingForQuota", first)
    assert len(evaluated) == 2
    made.finish("r")
    assert made.engine.pending_reason("default/twin-49") == (
        "PendingEvaluation",
        "The workload has not been evaluated yet",
    )


def test_cohorts_that_form_a_cycle_are_named_wherever_the_engine_explains_a_wait() -> None:
    """The search for victims goes up the tree, which has no top."""
    made = world()
    made.cohort("a", "b")
    made.cohort("b", "a")
    made.cohort("below", "b")
    made.queue("q", {"cpu": "4"}, cohort="below", reclaim="Any", within="LowerPriority")
    made.workload("w", "q", 5)
    cycle = "parentName of Cohorts forms a cycle: a -> b -> a"
    inactive = f"ClusterQueue q is inactive: {cycle}"
    assert made.engine.pending_reason("default/w") == ("Suspended", inactive)
    made.stable()
    assert made.reasons == {"w": "Suspended"}
    assert message(made.last["w"]) == inactive
    assert made.engine.pending_reason("default/w") == ("Suspended", inactive)
    explanation = made.engine.explain("default/w")
    assert explanation is not None
    assert explanation.problem == cycle
    view = made.engine.cluster_queue("q")
    assert view is not None
    assert view.problems == (("CohortCycle", cycle),)
    made.cohort("a")
    made.stable()
    assert made.reasons == {"w": "ExceedsMaxQuota"}


def test_22_a_strict_queue_waits_for_its_head() -> None:
    made = world()
    made.queue("q", {"cpu": "4"}, strict=True)
    made.running("r", "q", 2)
    made.workload("three", "q", 3)
    made.workload("two", "q", 2)
    made.stable()
    assert made.admitted == []
    assert made.where("three") == "active"


def preemptor(strict: bool) -> World:
    made = world()
    made.queue("q", {"cpu": "4"}, strict=strict, within="LowerPriority")
    made.running("victim", "q", 4)
    made.workload("ten", "q", 4, prio=10)
    made.cycle()
    made.workload("hundred", "q", 1, prio=100)
    made.release("victim")
    return made


def test_23_a_preemptor_goes_before_later_arrivals_of_higher_priority() -> None:
    made = preemptor(strict=False)
    made.cycle()
    assert [name for _, name in made.admitted] == ["ten"]
    made.cycle()
    assert made.preempted[-1][1] == "ten"


def test_23_but_not_in_a_strict_queue() -> None:
    made = preemptor(strict=True)
    made.cycle()
    assert [name for _, name in made.admitted] == ["hundred"]


def test_24_what_was_parked_is_looked_at_again_after_a_release() -> None:
    made = world()
    made.queue("q", {"cpu": "4"})
    made.running("r", "q", 2)
    made.workload("w", "q", 3)
    made.stable()
    assert made.where("w") == "inadmissible"
    made.finish("r")
    assert made.where("w") == "active"
    made.stable()
    assert made.where("w") == "reserved"


def evicted(made: World, reason: str, at: float) -> dict[str, object]:
    return made.condition("Evicted", True, reason, at)


def order_after_eviction(timestamp: str, reason: str) -> list[str]:
    made = world(requeuing_timestamp=timestamp)
    made.queue("q", {"cpu": "4"})
    made.running("old", "q", 4, created=0)
    made.workload("young", "q", 4, created=400)
    made.release("old", evicted(made, reason, 500))
    return made.engine.pending("q")


def test_25_an_evicted_workload_queues_by_its_eviction() -> None:
    assert order_after_eviction("Eviction", "PodsReadyTimeout") == ["default/young", "default/old"]
    assert order_after_eviction("Creation", "PodsReadyTimeout") == ["default/old", "default/young"]


def test_26_a_preempted_workload_keeps_its_place() -> None:
    assert order_after_eviction("Eviction", "Preempted") == ["default/old", "default/young"]


def test_27_an_admission_check_always_sends_to_the_end() -> None:
    assert order_after_eviction("Creation", "AdmissionCheck") == ["default/young", "default/old"]


def test_28_only_a_change_that_matters_wakes_a_parked_workload() -> None:
    made = world()
    made.queue("q", {"cpu": "4"})
    made.workload("w", "q", 5)
    made.stable()
    manifest = made.workloads["w"]
    made.put({**manifest, "metadata": {**manifest["metadata"], "labels": {"a": "b"}}})
    assert made.where("w") == "inadmissible"
    made.change("w", priority=3)
    assert made.where("w") == "active"


def test_29_a_newcomer_like_a_parked_workload_is_parked_unseen() -> None:
    for strict in (False, True):
        made = world()
        made.queue("q", {"cpu": "4"}, strict=strict)
        made.workload("w", "q", 5)
        made.stable()
        made.workload("late", "q", 5)
        assert made.where("late") == ("active" if strict else "inadmissible")


def test_30_a_back_off_outlasts_a_flush() -> None:
    made = world()
    made.queue("q", {"cpu": "4"})
    made.running("r", "q", 4)
    made.workload("w", "q", 1, status={"requeueState": {"count": 1, "requeueAt": "2023-11-14T22:13:50Z"}})
    due = START + 30
    made.finish("r")
    made.cycle()
    assert made.where("w") == "inadmissible"
    assert made.engine.next_wake(made.now) == due
    made.now = due
    made.cycle()
    assert made.where("w") == "reserved"


def test_31_workloads_of_a_held_local_queue_are_not_queued() -> None:
    made = world()
    made.queue("q", {"cpu": "4"})
    made.running("r", "q", 1)
    made.workload("w", "q", 1)
    made.local("q", "q", stopPolicy="Hold")
    made.stable()
    assert made.where("w") == "out"
    assert made.engine.pending_reason("default/w")[0] == "Suspended"
    assert made.where("r") == "reserved"
    made.local("q", "q")
    made.stable()
    assert made.reserved() == {"r", "w"}


def test_32_who_does_not_borrow_goes_first() -> None:
    made = world()
    for name in "abc":
        made.queue(name, {"cpu": "2"}, cohort="all")
    made.workload("wb", "b", 4, created=1)
    made.workload("wa", "a", 4, created=2)
    made.workload("wc", "c", 2, prio=-5, created=3)
    made.cycle()
    assert [name for _, name in made.admitted] == ["wc", "wb"]
    assert made.where("wa") == "active"
    made.stable()
    assert made.where("wa") == "inadmissible"


def test_33_a_preemptor_within_its_quota_goes_before_a_borrower_that_fits() -> None:
    made = world()
    made.queue("a", {"cpu": "4"}, cohort="all", reclaim="Any", within="LowerPriority")
    made.queue("c", {"cpu": "0"}, cohort="all")
    made.queue("bank", {"cpu": "2"}, cohort="all")
    made.running("victim", "a", 5)
    made.workload("wc", "c", 1, prio=100, created=1)
    made.workload("wa", "a", 4, prio=10, created=2)
    decisions = made.cycle()
    assert [type(decision).__name__ for decision in decisions] == ["Preempt", "Requeue", "Admit"]
    assert made.where("wc") == "reserved"


def blocked(reclaim: str) -> set[str]:
    made = world()
    made.queue("a", {"cpu": "4"}, cohort="all", reclaim=reclaim)
    made.queue("b", {"cpu": "4"}, cohort="all")
    made.running("ra", "a", 2)
    made.running("rb", "b", 4, prio=50)
    made.workload("wa", "a", 3, prio=10)
    made.workload("wb", "b", 2, prio=0)
    made.cycle()
    return made.reserved() - {"ra", "rb"}


def test_34_who_cannot_reclaim_keeps_what_is_left_of_its_quota() -> None:
    assert blocked("Never") == set()
    assert blocked("LowerPriority") == set()
    assert blocked("Any") == {"wb"}


def overlapping(victims: list[int], **options: object) -> World:
    made = world(**options)
    made.queue("a", {"cpu": "3"}, cohort="all", reclaim="Any")
    made.queue("b", {"cpu": "3"}, cohort="all", reclaim="Any")
    made.queue("c", {"cpu": "0"}, cohort="all")
    for number, cpu in enumerate(victims):
        made.running(f"c{number}", "c", cpu)
    made.workload("wa", "a", 3)
    made.workload("wb", "b", 3)
    made.cycle()
    return made


def test_35_two_preemptors_of_one_victim_share_it() -> None:
    made = overlapping([6])
    assert [name for _, name, _ in made.preempted] == ["c0"]
    assert made.reasons == {"wa": "WaitingForPreemptedWorkloads", "wb": "WaitingForPreemptedWorkloads"}
    made.release("c0")
    made.cycle()
    assert made.reserved() == {"wa", "wb"}


def test_35_without_the_gate_the_second_is_skipped() -> None:
    made = overlapping([6], gates={"RecomputeAssignmentUponPreemptionTargetsOverlap": False})
    assert made.reasons == {"wa": "WaitingForPreemptedWorkloads", "wb": "WaitingForQuota"}


def test_36_two_preemptors_of_two_victims_take_one_each() -> None:
    made = overlapping([3, 3])
    assert {name for _, name, _ in made.preempted} == {"c0", "c1"}
    assert {d.preemptor for d in made.engine.cycle(made.now) if isinstance(d, Preempt)} == set()


def test_37_no_workload_is_admitted_into_capacity_that_is_still_used() -> None:
    """The reference reserves 25 of 20 here (defect D3)."""
    made = world()
    made.queue("p", {"cpu": "6"}, cohort="all", reclaim="Any")
    made.queue("bank", {"cpu": "14"}, cohort="all")
    for name in ("v", "x", "y"):
        made.queue(name, {"cpu": "0"}, cohort="all")
    made.running("victim", "v", 15)
    made.workload("wp", "p", 6)
    made.workload("wx", "x", 5)
    made.workload("wy", "y", 5)
    made.cycle()
    assert [name for _, name, _ in made.preempted] == ["victim"]
    assert made.reserved() == {"victim", "wx"}


def test_38_a_failed_write_undoes_the_admission() -> None:
    made = world()
    made.queue("q", {"cpu": "4"})
    made.workload("w", "q", 4)
    made.workload("v", "q", 4)
    made.cycle(carry_out=False)
    made.cycle()
    assert made.where("v") == "inadmissible"
    for _ in range(3):
        made.engine.forget("default/w")
        made.engine.check()
        assert made.where("w") == "active"
        assert made.usage("q") == {}
        made.cycle(carry_out=False)
        assert made.where("w") == "reserved"
    made.engine.forget("default/w")
    # Unlike in the reference (defect D8) those that were parked meanwhile get their chance.
    assert made.where("v") == "active"


def test_39_a_check_that_asks_for_a_retry_keeps_the_workload_out() -> None:
    made = world()
    made.check("c")
    made.queue("q", {"cpu": "4"}, admissionChecksStrategy={"admissionChecks": [{"name": "c"}]})
    state = {"name": "c", "state": "Retry", "lastTransitionTime": "2023-11-14T22:13:20Z", "message": ""}
    made.workload("w", "q", 1, status={"admissionChecks": [state]})
    made.stable()
    assert made.reasons == {"w": "PendingEvaluation"}


def test_40_one_workload_of_a_queue_per_cycle() -> None:
    made = world()
    made.queue("q", {"cpu": "5"})
    for number in range(5):
        made.workload(f"w{number}", "q", 1)
    made.stable()
    assert made.admitted == [(number + 1, f"w{number}") for number in range(5)]


def test_deleting_a_queue_with_waiting_workloads_and_bringing_it_back() -> None:
    made = world()
    made.queue("q", {"cpu": "4"}, cohort="all")
    made.running("r", "q", 1)
    made.workload("w", "q", 1)
    from pykueue.engine import Removed

    made.engine.apply(Removed("ClusterQueue", "", "q"))
    made.engine.check()
    made.stable()
    assert made.engine.cluster_queue("q") is None
    assert made.engine.pending_reason("default/w")[0] == "Misconfigured"
    made.queue("q", {"cpu": "4"})
    made.stable()
    assert made.reserved() == {"r", "w"}
    assert made.usage("q") == {"f/cpu": "2"}


def test_moving_a_workload_to_another_local_queue() -> None:
    made = world()
    made.queue("full", {"cpu": "0"})
    made.queue("empty", {"cpu": "4"})
    made.workload("w", "full", 1)
    made.stable()
    made.change("w", queueName="empty")
    made.stable()
    assert made.reserved() == {"w"}


def test_admission_gates_hold_and_deactivation_keep_out_of_queues() -> None:
    made = world()
    made.queue("q", {"cpu": "4"})
    gated = {"kueue.x-k8s.io/admission-gated-by": "example.com/gate"}
    made.workload("gated", "q", 1, annotations=gated)
    made.workload("inactive", "q", 1, active=False)
    hold = {"conditions": [made.condition("QuotaReserved", False, "OnHold")]}
    made.workload("held", "q", 1, status=hold)
    made.stable()
    assert made.reserved() == set()
    pending_reason = {
        name: made.engine.pending_reason(f"default/{name}")[0] for name in ("gated", "inactive", "held")
    }
    assert pending_reason == {"gated": "AdmissionGated", "inactive": "Deactivated", "held": "OnHold"}
    manifest = made.workloads["gated"]
    made.put({**manifest, "metadata": {**manifest["metadata"], "annotations": {}}})
    made.stable()
    assert made.reserved() == {"gated"}


def test_namespace_labels_that_come_to_match_wake_workloads() -> None:
    made = world()
    made.queue("q", {"cpu": "4"}, selector={"matchLabels": {"team": "a"}})
    made.workload("w", "q", 1)
    made.stable()
    assert made.where("w") == "inadmissible"
    made.namespace("default", {"team": "a"})
    made.stable()
    assert made.reserved() == {"w"}


def test_missing_flavors_and_checks_make_a_queue_inactive() -> None:
    made = World()
    made.queue("q", {"cpu": "4"}, admissionChecksStrategy={"admissionChecks": [{"name": "c"}]})
    made.workload("w", "q", 1)
    made.stable()
    view = made.engine.cluster_queue("q")
    assert view is not None
    assert [reason for reason, _ in view.problems] == ["FlavorNotFound", "AdmissionCheckNotFound"]
    assert made.where("w") == "active"
    made.flavor()
    made.check("c", active=False)
    view = made.engine.cluster_queue("q")
    assert view is not None
    assert [reason for reason, _ in view.problems] == ["AdmissionCheckInactive"]
    made.check("c")
    made.stable()
    assert made.where("w") == "reserved"
    view = made.engine.workload("default/w")
    assert view is not None
    assert not view.admitted


def test_workload_that_waited_for_its_variants_is_pending_when_its_cluster_queue_is_deleted() -> None:
    made = World(Options(gates={"ConcurrentAdmission": True}))
    made.flavor()
    policy = {"migration": {"mode": "TryPreferredFlavors"}}
    made.queue("q", {"cpu": "4"}, concurrentAdmissionPolicy=policy)
    made.workload("w", "q", 1)
    view = made.engine.local_queue("default", "q")
    assert view is not None
    assert view.pending == 0, "its variants are queued in its place"
    made.driver.apply(Removed("ClusterQueue", "", "q"))
    view = made.engine.local_queue("default", "q")
    assert view is not None
    assert view.pending == 1


def test_workload_that_leaves_its_queue_and_returns_is_in_it_once_and_in_its_place() -> None:
    made = world()
    made.queue("q", {"cpu": "1"})
    made.running("r", "q", 1)
    for name in ("a", "b", "c"):
        made.workload(name, "q", 1)
    for _ in range(3):
        for name in ("b", "a"):
            made.change(name, active=False)
            made.change(name, active=True)
    assert made.engine.pending("q") == ["default/a", "default/b", "default/c"]
    made.stable()
    made.finish("r")
    made.stable()
    assert [name for _, name in made.admitted] == ["a"]
    assert made.engine.pending("q") == ["default/b", "default/c"]


def test_workloads_that_ask_for_the_same_in_one_queue_have_one_spec() -> None:
    made = world()
    made.queue("q", {"cpu": "1"})
    for name, priority in (("a", 0), ("b", 0), ("c", 5)):
        made.workload(name, "q", 1, prio=priority)
        manifest = made.workloads[name]
        made.apply({**manifest, "metadata": {**manifest["metadata"], "generation": 1}})
    specs = {obj.metadata.name: obj.spec for obj in made.engine.workload_objects()}
    assert specs["a"] is specs["b"]
    assert (specs["b"].priority, specs["c"].priority) == (0, 5)
