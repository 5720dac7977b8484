"""Defects of the reference, by their numbers in docs/reference/kueue-semantics.md 12.

The page docs/develop/reference-defects.md lists all of them with their tests, also those in other files.
"""

from __future__ import annotations

import pytest
from engine_world import World

from pykueue.engine import Options, Removed


def world(**options: object) -> World:
    made = World(Options(**options))  # type: ignore[arg-type]
    made.flavor()
    return made


def test_d5_preemptor_that_no_longer_fits_does_not_stay_first() -> None:
    made = world()
    made.queue("q", {"cpu": "4"}, within="LowerPriority")
    made.running("low", "q", 4)
    made.workload("preemptor", "q", 4, prio=5)
    made.cycle()
    assert [name for _, name, _ in made.preempted] == ["low"]
    made.apply(made.queue_manifest("q", {"cpu": "3"}, within="LowerPriority"))
    made.stable()
    assert made.where("preemptor") == "inadmissible"
    made.workload("high", "q", 4, prio=10)
    made.stable()
    made.release("low")
    made.apply(made.queue_manifest("q", {"cpu": "4"}, within="LowerPriority"))
    made.cycle()
    assert made.admitted[-1][1] == "high"


def test_d7_preemptor_goes_before_a_later_workload_of_higher_priority() -> None:
    """This one is kept: otherwise the quota that is freed could be taken by others again and again."""
    made = world()
    made.queue("q", {"cpu": "4"}, within="LowerPriority")
    made.running("low", "q", 4)
    made.workload("preemptor", "q", 4, prio=5)
    made.cycle()
    made.workload("high", "q", 4, prio=10)
    made.release("low")
    made.cycle()
    assert made.admitted[-1][1] == "preemptor"


def test_d9_strict_queue_with_an_invalid_head_is_blocked_and_says_why() -> None:
    made = world()
    made.queue("q", {"cpu": "4"}, strict=True)
    above_limit = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    made.workload("head", "q", template={"containers": [{"name": "c", "resources": above_limit}]})
    made.workload("next", "q", 1)
    made.cycle()
    assert made.reasons == {"head": "Misconfigured"}
    assert made.reserved() == set()
    made.finish("head")
    made.stable()
    assert made.reserved() == {"next"}


def test_d10_workload_is_looked_at_if_its_limit_range_gives_it_other_requests() -> None:
    made = world()
    for namespace, cpu in (("default", "8"), ("small", "1")):
        if namespace != "default":
            made.namespace(namespace)
        item = {"type": "Container", "defaultRequest": {"cpu": cpu}}
        metadata = {"name": "limits", "namespace": namespace}
        spec = {"limits": [item]}
        made.apply({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": spec})
    made.queue("q", {"cpu": "4"})
    made.local("small", "q", "small")
    made.workload("large", "q", prio=5)
    made.workload("fits", "small", namespace="small")
    made.stable()
    assert made.reserved() == {"fits"}


def test_d11_release_in_another_queue_of_the_cohort_begins_the_search_again() -> None:
    made = World()
    for name in ("f1", "f2"):
        made.flavor(name)
    quotas = {"f1": {"cpu": "0"}, "f2": {"cpu": "4"}}
    made.queue("a", quotas, cohort="all", within="LowerPriority", fungibility=("MS", "MS"), reclaim="Any")
    made.queue("b", {"f1": {"cpu": "4"}}, cohort="all")
    made.running("holder", "b", 4, flavor="f1")
    made.running("own", "a", 4, flavor="f2")
    made.workload("w", "a", 4)
    made.stable()
    assert made.where("w") == "inadmissible"
    made.finish("holder")
    made.stable()
    assert made.flavors("w") == {"main": {"cpu": "f1"}}


def test_d12_workloads_are_looked_at_again_when_another_queue_of_the_cohort_is_deleted() -> None:
    made = world()
    made.cohort("all", quotas={"cpu": "4"})
    made.queue("a", {"cpu": "0"}, cohort="all")
    made.queue("b", {"cpu": "0"}, cohort="all")
    made.running("holder", "b", 4)
    made.workload("w", "a", 4)
    made.stable()
    assert made.where("w") == "inadmissible"
    made.driver.apply(Removed("ClusterQueue", "", "b"))
    made.stable()
    assert made.reserved() == {"holder", "w"}


def test_d14_blocked_admission_holds_back_admissions_and_nothing_else() -> None:
    made = world(block_admission=True)
    made.queue("a", {"cpu": "9"})
    made.queue("b", {"cpu": "4"}, within="LowerPriority")
    made.workload("first", "a", 1)
    made.cycle()
    assert made.reserved() == {"first"}
    made.workload("waits", "a", 1)
    made.cycle()
    made.running("low", "b", 4)
    made.workload("preemptor", "b", 4, prio=5)
    made.queue("c", {"cpu": "4"})
    made.workload("too-large", "c", 9)
    made.workload("urgent", "a", 1, prio=10)
    made.cycle()
    made.cycle()
    assert [name for _, name, _ in made.preempted] == ["low"]
    assert made.reasons["urgent"] == "WaitingForPodsReady"
    assert made.reasons["too-large"] == "ExceedsMaxQuota"
    for name in ("first", "low"):
        conditions = made.workloads[name]["status"]["conditions"]
        made.status(name, conditions=[*conditions, made.condition("PodsReady", True, "Started")])
    made.cycle()
    assert "urgent" in made.reserved(), "which entry is next is chosen in every cycle"


def test_d15_pod_set_that_requests_zero_of_an_uncovered_resource_hides_no_other() -> None:
    made = world()
    made.queue("q", {"cpu": "4"})
    pods = {"zero": {"requests": {"example.com/x": "0"}}, "worker": {"requests": {"cpu": "1"}}}
    made.workload("w", "q", pods=pods)
    made.stable()
    assert made.flavors("w") == {"zero": {}, "worker": {"cpu": "f"}}
    assert made.usage("q") == {"f/cpu": "1"}


def test_d16_without_flavor_fungibility_a_blocked_workload_lets_others_pass() -> None:
    gates = {"FlavorFungibility": False, "FlavorFungibilityPreserveScanProgress": False}
    made = world(gates=gates)
    made.queue("q", {"cpu": "4"}, within="LowerPriority")
    made.running("old", "q", 2)
    made.workload("large", "q", 3)
    made.workload("small", "q", 1)
    made.stable()
    assert made.where("large") == "inadmissible"
    assert made.reserved() == {"old", "small"}


@pytest.mark.parametrize("strict", [False, True])
def test_d17_workload_with_a_resource_that_no_group_covers_has_a_reason(strict: bool) -> None:
    made = world()
    made.queue("q", {"cpu": "4"}, strict=strict)
    made.workload("w", "q", {"cpu": "1", "example.com/license": "1"})
    made.cycle()
    assert made.reasons == {"w": "NoMatchingFlavor"}


def test_d18_quota_that_a_workload_of_a_held_queue_returns_is_given_to_others() -> None:
    made = world()
    made.queue("q", {"cpu": "4"})
    made.local("other", "q")
    made.running("running", "q", 4)
    made.workload("w", "other", 4)
    made.stable()
    assert made.where("w") == "inadmissible"
    made.local("q", "q", stopPolicy="Hold")
    made.release("running", made.condition("Evicted", True, "Deactivated"))
    made.stable()
    assert made.reserved() == {"w"}
