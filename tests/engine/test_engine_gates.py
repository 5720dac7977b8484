"""Feature gates of the engine that no recorded scenario shows: what it decides with each on and off."""

from __future__ import annotations

import pytest
from engine_world import World

from pykueue.engine import AdmissionFairSharing, Options


def world(gate: str, on: bool, **options: object) -> World:
    made = World(Options(gates={gate: on}, **options))  # type: ignore[arg-type]
    made.flavor()
    return made


both = pytest.mark.parametrize("on", [True, False])


@both
def test_quota_check_strategy(on: bool) -> None:
    """Resources without quota are ignored, if the configuration says so and the gate is on."""
    made = world("QuotaCheckStrategy", on, quota_check_strategy="IgnoreUndeclared")
    made.queue("q", {"cpu": "4"})
    made.workload("w", "q", {"cpu": "1", "example.com/license": "1"})
    made.stable()
    assert made.reserved() == ({"w"} if on else set())


@both
def test_unadmitted_workloads_observability(on: bool) -> None:
    """The reason of a pending workload is fine-grained, or one of the few of older versions."""
    made = world("UnadmittedWorkloadsObservability", on)
    made.queue("q", {"cpu": "4"})
    made.workload("w", "q", 5)
    made.stable()
    assert made.reasons == {"w": "ExceedsMaxQuota" if on else "Pending"}


@both
def test_admission_fair_sharing(on: bool) -> None:
    """The LocalQueue that used less goes first, whatever the priority."""
    sharing = AdmissionFairSharing(usage_half_life=3600.0)
    made = world("AdmissionFairSharing", on, admission_fair_sharing=sharing)
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    made.queue("cq", {"cpu": "20"}, local=False, admissionScope=scope)
    made.local("x", "cq")
    made.local("y", "cq")
    made.workload("x1", "x", 10)
    made.cycle()
    made.now += 3600
    made.workload("x2", "x", 1, prio=100)
    made.workload("y1", "y", 1)
    made.cycle()
    assert made.admitted[1][1] == ("y1" if on else "x2")


@both
def test_fair_sharing_preempt_within_nominal(on: bool) -> None:
    """A queue takes its nominal quota back although its share is and stays the higher one."""
    made = world("FairSharingPreemptWithinNominal", on, fair_sharing=True)
    made.flavor("g")
    made.queue("a", {"f": {"cpu": "2"}, "g": {"cpu": "0"}}, cohort="all", reclaim="Any")
    made.queue("b", {"f": {"cpu": "0"}, "g": {"cpu": "8"}}, cohort="all")
    made.running("taken", "a", 8, flavor="g")
    made.running("borrower", "b", 2)
    made.workload("mine", "a", 2)
    made.cycle()
    assert [name for _, name, _ in made.preempted] == (["borrower"] if on else [])


@both
def test_fair_sharing_prioritize_non_borrowing(on: bool) -> None:
    """An entry within its nominal quota goes before one that borrows, whatever their shares."""
    made = world("FairSharingPrioritizeNonBorrowing", on, fair_sharing=True)
    made.flavor("g")
    made.queue("a", {"f": {"cpu": "2"}, "g": {"cpu": "0"}}, cohort="all")
    made.queue("b", {"f": {"cpu": "0"}, "g": {"cpu": "8"}}, cohort="all")
    made.running("taken", "a", 6, flavor="g")
    made.workload("mine", "a", 2)
    made.workload("borrower", "b", 2, prio=1)
    made.cycle()
    assert made.admitted[0][1] == ("mine" if on else "borrower")


@both
def test_prioritize_preemptor_workloads(on: bool) -> None:
    """The workload that others were preempted for gets their quota before one of higher priority does."""
    made = world("PrioritizePreemptorWorkloads", on)
    made.cohort("all", quotas={"cpu": "4"})
    made.queue("a", {"cpu": "0"}, cohort="all", reclaim="LowerPriority", borrow="LowerPriority")
    made.queue("b", {"cpu": "0"}, cohort="all")
    made.running("victim", "b", 4, prio=-1)
    made.workload("preemptor", "a", 4)
    made.cycle()
    made.release("victim")
    made.workload("higher", "b", 4, prio=10)
    made.cycle()
    assert made.admitted[0][1] == ("preemptor" if on else "higher")


@both
def test_flavor_fungibility_preserve_scan_progress(on: bool) -> None:
    """A change of the quota between two cycles lets the search for flavors begin again, or not."""
    made = world("FlavorFungibilityPreserveScanProgress", on)
    for name in ("f1", "f2", "f3", "m"):
        made.flavor(name)
    flavors = {name: {"cpu": "4"} for name in ("f1", "f2", "f3")}
    made.queue("q", [flavors, {"m": {"memory": "1"}}])
    made.workload("w", "q", pods={"x": {"requests": {"cpu": 1}}, "y": {"requests": {"memory": 5}}})
    made.cycle()
    made.queue("q", [flavors, {"m": {"memory": "2"}}])
    made.stable()
    assert made.cycles == (3 if on else 4)
