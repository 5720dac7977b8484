"""Corner cases of preemption and fair sharing (docs/reference/kueue-semantics.md 15, rows 55 to 76)."""

from __future__ import annotations

import pytest
from engine_world import World

from pykueue.engine import Options


def world(**options: object) -> World:
    made = World(Options(**options))  # type: ignore[arg-type]
    made.flavor()
    return made


def victims(made: World) -> dict[str, str]:
    made.cycle()
    return {name: reason for _, name, reason in made.preempted}


OWN = "InClusterQueue"
RECLAIM = "InCohortReclamation"
WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
FAIR = "InCohortFairSharing"


def test_55_lower_priorities_go_first() -> None:
    made = world()
    made.queue("q", {"cpu": "10"}, within="LowerPriority")
    made.running("a", "q", 2, prio=1, reserved=1)
    made.running("b", "q", 3, prio=1, reserved=2)
    made.running("c", "q", 5, prio=2)
    made.workload("w", "q", 5, prio=3)
    assert victims(made) == {"a": OWN, "b": OWN}


def test_56_who_need_not_go_stays() -> None:
    made = world()
    made.queue("q", {"cpu": "10"}, within="LowerPriority")
    made.running("a", "q", 2, prio=1)
    made.running("b", "q", 8, prio=2)
    made.workload("w", "q", 7, prio=3)
    assert victims(made) == {"b": OWN}


def test_57_equal_priority_gives_way_to_the_older() -> None:
    made = world()
    made.queue("q", {"cpu": "4"}, within="LowerOrNewerEqualPriority")
    made.running("old", "q", 2, created=0)
    made.running("new", "q", 2, created=90)
    made.workload("w", "q", 2, created=50)
    assert victims(made) == {"new": OWN}


def test_58_reclaiming_ignores_priority_and_takes_only_what_is_needed() -> None:
    made = world()
    made.queue("a", {"cpu": "6"}, cohort="all", reclaim="Any", within="LowerPriority")
    made.queue("b", {"cpu": "2"}, cohort="all")
    made.running("a1", "a", 3)
    made.running("b1", "b", 3, prio=90)
    made.running("b2", "b", 2, prio=80)
    made.workload("w", "a", 5, prio=10)
    assert victims(made) == {"b2": RECLAIM, "a1": OWN}


def test_59_a_lender_back_within_its_quota_is_safe() -> None:
    made = world()
    made.queue("a", {"cpu": "6"}, cohort="all", reclaim="Any")
    made.queue("b", {"cpu": "4"}, cohort="all")
    made.running("a1", "a", 5)
    made.running("b1", "b", 2, reserved=1)
    made.running("b2", "b", 3, reserved=2)
    made.workload("w", "a", 1)
    assert victims(made) == {"b2": RECLAIM}


@pytest.mark.parametrize(("threshold", "found"), [("LowerPriority", True), (5, True), (3, False)])
def test_60_a_threshold_protects_from_borrowers(threshold: object, found: bool) -> None:
    made = world()
    made.queue("a", {"cpu": "2"}, cohort="all", reclaim="LowerPriority", borrow=threshold)
    made.queue("b", {"cpu": "2"}, cohort="all")
    made.queue("c", {"cpu": "4"}, cohort="all")
    made.running("b4", "b", 4, prio=4)
    made.running("b2", "b", 2, prio=1)
    made.workload("w", "a", 5, prio=10)
    assert victims(made) == ({"b4": WHILE_BORROWING} if found else {})


def test_61_above_nominal_nothing_is_preempted_without_permission() -> None:
    made = world()
    made.queue("a", {"cpu": "2"}, cohort="all", reclaim="Any")
    made.queue("b", {"cpu": "2"}, cohort="all")
    made.running("a1", "a", 1)
    made.running("b1", "b", 3)
    made.workload("w", "a", 3)
    assert victims(made) == {}
    assert made.reasons == {"w": "WaitingForQuota"}


def test_62_quota_of_the_parent_is_nearer_than_an_outsider() -> None:
    made = world()
    made.cohort("root")
    made.cohort("l", parent="root", quotas={"cpu": "4"})
    made.cohort("r", parent="root", quotas={"cpu": "2"})
    made.queue("a", {"cpu": "0"}, cohort="l", reclaim="LowerPriority")
    made.queue("c", {"cpu": "0"}, cohort="l")
    made.queue("b", {"cpu": "0"}, cohort="r")
    made.running("b1", "b", 5, prio=5)
    made.running("c1", "c", 1, prio=-5)
    made.workload("w", "a", 3, prio=10)
    assert victims(made) == {"b1": RECLAIM}


def test_63_who_is_leaving_already_is_counted_on() -> None:
    made = world()
    made.queue("q", {"cpu": "6"}, within="LowerPriority")
    made.running("low", "q", 3, prio=-5)
    made.running("leaving", "q", 3, prio=5, evicted=True)
    made.workload("w", "q", 3, prio=10)
    assert victims(made) == {}
    assert made.reasons == {"w": "WaitingForPreemptedWorkloads"}


def test_64_own_victims_let_a_queue_go_on_borrowing() -> None:
    made = world()
    made.queue("a", {"cpu": "4"}, cohort="all", within="LowerPriority")
    made.queue("b", {"cpu": "4"}, cohort="all")
    made.running("a0", "a", 4, prio=0)
    made.running("a1", "a", 4, prio=1)
    made.workload("w", "a", 3, prio=9)
    assert victims(made) == {"a0": OWN}


def test_65_who_holds_nothing_that_is_short_stays() -> None:
    made = world()
    made.queue("q", {"cpu": "4", "memory": "4"}, within="LowerPriority")
    made.running("memory", "q", {"memory": 2}, prio=-9)
    made.running("cpu", "q", {"cpu": 4}, prio=0)
    made.workload("w", "q", {"cpu": 2, "memory": 1}, prio=5)
    assert victims(made) == {"cpu": OWN}


@pytest.mark.parametrize("gate", [False, True])
def test_66_preemption_gates_matter_only_with_their_feature(gate: bool) -> None:
    made = world(gates={"MultiKueueOrchestratedPreemption": gate})
    made.queue("q", {"cpu": "4"}, within="LowerPriority")
    made.running("low", "q", 4)
    made.workload("w", "q", 4, prio=5, preemptionGates=[{"name": "remote"}])
    assert victims(made) == ({} if gate else {"low": OWN})
    if gate:
        assert made.reasons == {"w": "AdmissionGated"}
        assert made.last["w"].blocked_on_gates
        opened = {"name": "remote", "position": "Open", "lastTransitionTime": "2023-11-14T22:13:20Z"}
        made.status("w", preemptionGates=[opened])
        assert victims(made) == {"low": OWN}


# --- fair sharing
# ---------------------------------------------------------------------------------------------


def shared(
    a: dict[str, object], b: dict[str, object], nominal: str = "2", pool: str = "6", **options: object
) -> World:
    made = world(fair_sharing=True, **options)
    made.queue("a", {"cpu": nominal}, cohort="all", **a)
    made.queue("b", {"cpu": nominal}, cohort="all", **b)
    made.queue("p", {"cpu": pool}, cohort="all")
    return made


@pytest.mark.parametrize(("weight", "winner"), [(None, "wb"), (3, "wa")])
def test_67_68_the_smaller_share_after_admission_goes_first(weight: int | None, winner: str) -> None:
    made = shared({"weight": weight}, {})
    made.running("ra", "a", 3)
    made.running("rb", "b", 2)
    made.workload("wa", "a", 5, prio=100, created=1)
    made.workload("wb", "b", 5, created=2)
    made.cycle()
    assert [name for _, name in made.admitted] == [winner]


def test_69_zero_weight_borrows_last() -> None:
    made = shared({"weight": 0}, {})
    made.running("rb", "b", 3)
    made.workload("wa", "a", 5, created=1)
    made.workload("wb", "b", 5, created=2)
    made.cycle()
    assert [name for _, name in made.admitted] == ["wb"]


def test_69_zero_weight_within_its_quota_counts_nothing() -> None:
    made = shared({"weight": 0}, {})
    made.running("rb", "b", 3)
    made.workload("wa", "a", 2, created=2)
    made.workload("wb", "b", 5, created=1)
    made.cycle()
    assert [name for _, name in made.admitted][:1] == ["wa"]
    view = made.engine.cluster_queue("a")
    assert view is not None
    assert view.weighted_share == 0


def test_70_borrowing_elsewhere_does_not_count() -> None:
    made = world(fair_sharing=True)
    for flavor in ("x", "y"):
        made.flavor(flavor)
    made.queue("a", {"x": {"cpu": "4"}, "y": {"cpu": "0"}}, cohort="all")
    made.queue("b", {"x": {"cpu": "0"}, "y": {"cpu": "8"}}, cohort="all")
    made.running("ra", "a", 6, flavor="y")
    made.running("rb", "b", 1, flavor="y")
    made.workload("wa", "a", 4, created=2, template={})
    made.workload("wb", "b", 3, prio=50, created=1)
    made.cycle()
    assert made.admitted[0][1] == "wa"


def strategies(*names: str) -> dict[str, str]:
    options = {"preemption_strategies": names} if names else {}
    made = shared({"reclaim": "Any"}, {"reclaim": "Any"}, pool="4", **options)
    made.running("b1", "b", 6, prio=0)
    made.running("b2", "b", 2, prio=5)
    made.workload("wa", "a", 4)
    return victims(made)


def test_71_a_heavy_borrower_of_one_big_workload() -> None:
    assert strategies("LessThanOrEqualToFinalShare") == {}
    assert strategies("LessThanInitialShare") == {"b1": FAIR}
    assert strategies() == {"b1": FAIR}


def test_72_within_nominal_shares_and_priorities_do_not_matter() -> None:
    made = shared({"reclaim": "Any"}, {"reclaim": "Any"}, nominal="4", pool="0")
    made.running("b1", "b", 8, prio=500)
    made.workload("wa", "a", 4)
    assert victims(made) == {"b1": RECLAIM}


def test_73_the_own_queue_gives_first_when_its_share_is_highest() -> None:
    made = shared({"reclaim": "Any", "within": "LowerPriority"}, {"reclaim": "Any"}, pool="4")
    made.running("a1", "a", 4)
    made.running("b1", "b", 2)
    made.running("b2", "b", 2)
    made.workload("wa", "a", 1, prio=100)
    assert victims(made) == {"a1": OWN}


@pytest.mark.parametrize(("other", "found"), [(1, {}), (0, {"b1": FAIR})])
def test_74_zero_weight_takes_only_from_zero_weight(other: int, found: dict[str, str]) -> None:
    made = shared({"weight": 0, "reclaim": "Any"}, {"weight": other, "reclaim": "Any"}, pool="4")
    made.running("b1", "b", 3)
    made.running("b2", "b", 5)
    made.workload("wa", "a", 3)
    assert victims(made) == found


def test_75_a_borrower_in_a_cohort_that_does_not_borrow_is_safe() -> None:
    made = world(fair_sharing=True)
    made.cohort("root")
    made.cohort("inner", parent="root", quotas={"cpu": "4"})
    made.queue("b", {"cpu": "0"}, cohort="inner")
    made.queue("a", {"cpu": "2"}, cohort="root", reclaim="Any")
    made.queue("c", {"cpu": "0"}, cohort="root")
    made.running("b1", "b", 4)
    made.running("c1", "c", 2)
    made.workload("w", "a", 2)
    assert victims(made) == {"c1": RECLAIM}


def test_76_of_equal_shares_the_cohort_gives() -> None:
    made = world(fair_sharing=True)
    made.cohort("root")
    made.cohort("inner", parent="root")
    made.queue("deep", {"cpu": "0"}, cohort="inner")
    made.queue("flat", {"cpu": "0"}, cohort="root")
    made.queue("a", {"cpu": "4"}, cohort="root", reclaim="Any")
    made.running("deep1", "deep", 2, prio=9)
    made.running("flat1", "flat", 2, prio=0)
    made.workload("w", "a", 2)
    assert victims(made) == {"deep1": RECLAIM}


def test_share_is_in_thousandths_rounded_up() -> None:
    """docs/reference/kueue-semantics.md 9.1, example."""
    made = world(fair_sharing=True)
    made.cohort("root")
    made.cohort("L", parent="root", quotas={"cpu": "4"})
    made.queue("a", {"cpu": "2"}, cohort="L")
    made.queue("b", {"cpu": "2"}, cohort="L")
    made.queue("c", {"cpu": "6"}, cohort="root")
    made.running("a1", "a", 5)
    made.running("b1", "b", 1)
    view = made.engine.cluster_queue("a")
    assert view is not None
    assert view.weighted_share == 215
    assert made.engine.cohort_share("L") == 0
    made.cohort("L", parent="root", quotas={"cpu": "4 BL 2"})
    view = made.engine.cluster_queue("a")
    assert view is not None
    assert view.weighted_share == 300
