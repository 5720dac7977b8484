"""Corner cases of quantities, validation and the quota tree (docs/reference/kueue-semantics.md 15, rows 1 to
20)."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from engine_world import World
from msgspec.structs import replace

from pykueue.api import decode
from pykueue.api.kueue import Workload
from pykueue.api.quantity import parse
from pykueue.engine import Options, Removed, Requeue, Transformation, Upsert


def world(**options: object) -> World:
    made = World(Options(**options))  # type: ignore[arg-type]
    made.flavor()
    return made


def resources(name: str, limits: dict[str, str] | None = None, **requests: str) -> dict[str, object]:
    return {
        "containers": [
            {"name": name, "resources": {"requests": requests, **({"limits": limits} if limits else {})}}
        ]
    }


def requests_of(made: World, name: str) -> dict[str, str]:
    view = made.engine.workload(made.key(name))
    assert view is not None
    return {resource: str(amount) for resource, amount in view.requests[0][1].items()}


def limit_range(made: World, **item: object) -> None:
    made.apply(
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "limits", "namespace": "default"},
            "spec": {"limits": [item]},
        }
    )


def test_01_memory_is_rounded_up_per_pod() -> None:
    made = world()
    made.queue("q", {"memory": "100"})
    made.workload("w", "q", {"memory": "1500m"}, count=3)
    assert requests_of(made, "w") == {"memory": "6"}
    made.stable()
    assert made.usage("q") == {"f/memory": "6"}


def test_02_a_default_request_wins_over_the_limit() -> None:
    made = world()
    limit_range(made, type="Container", defaultRequest={"cpu": "1"})
    made.queue("q", {"cpu": "10"})
    made.workload("w", "q", template=resources("c", {"cpu": "4"}))
    assert requests_of(made, "w") == {"cpu": "1"}


def test_02_without_a_default_the_limit_is_the_request() -> None:
    made = world()
    made.queue("q", {"cpu": "10"})
    made.workload("w", "q", template=resources("c", {"cpu": "4"}))
    assert requests_of(made, "w") == {"cpu": "4"}


def test_03_unlimited_quota_of_one_child_makes_the_cohort_unlimited() -> None:
    made = world()
    made.queue("a", {"memory": "9223372036854775807"}, cohort="c")
    made.queue("b", {"memory": "5"}, cohort="c")
    made.running("used", "a", {"memory": "10"})
    made.workload("w", "b", {"memory": "9223372036854775806"})
    made.stable()
    assert made.reserved() == {"used", "w"}


def gpu_transformations() -> dict[str, object]:
    return {
        "transformations": (
            Transformation("nvidia.com/mig-1g.5gb", {"gpu-memory": parse("5Gi")}),
            Transformation("credits", {"gpu-memory": parse("-20Gi")}, strategy="Replace"),
        )
    }


def test_04_a_negative_sum_is_nothing_and_what_was_asked_directly_stays() -> None:
    made = world(**gpu_transformations())
    made.queue("q", {"cpu": "1"})
    made.workload("w", "q", {"nvidia.com/mig-1g.5gb": 2, "credits": 10, "gpu-memory": "3Gi"})
    assert requests_of(made, "w") == {
        "gpu-memory": "3Gi",
        "nvidia.com/mig-1g.5gb": "2",
    }


def test_05_multiply_by_a_resource_that_is_not_there_is_ignored() -> None:
    rule = Transformation("gpu", {"credits": parse("10")}, strategy="Replace", multiply_by="hours")
    made = world(transformations=(rule,))
    made.queue("q", {"cpu": "1"})
    made.workload("plain", "q", {"gpu": 2})
    made.workload("timed", "q", {"gpu": 2, "hours": 3})
    assert requests_of(made, "plain") == {"credits": "20"}
    assert requests_of(made, "timed") == {"credits": "60", "hours": "3"}


def test_06_a_zero_request_need_not_be_covered() -> None:
    made = world()
    made.queue("q", {"cpu": "4"})
    made.workload("w", "q", {"cpu": "1", "memory": "0"})
    made.stable()
    assert made.flavors("w") == {"main": {"cpu": "f"}}


def test_07_an_uncovered_request_never_fits() -> None:
    made = world()
    made.queue("q", {"cpu": "4"})
    made.workload("w", "q", {"cpu": "1", "memory": "1"})
    made.stable()
    assert made.reasons == {"w": "NoMatchingFlavor"}
    assert made.where("w") == "inadmissible"


def test_07_unless_undeclared_resources_are_ignored() -> None:
    made = world(quota_check_strategy="IgnoreUndeclared")
    made.queue("q", {"cpu": "4"})
    made.workload("w", "q", {"cpu": "1", "memory": "1"})
    made.stable()
    assert made.flavors("w") == {"main": {"cpu": "f"}}
    assert made.usage("q") == {"f/cpu": "1"}


def test_08_only_ignored_resources_means_no_flavors() -> None:
    made = world(quota_check_strategy="IgnoreUndeclared")
    made.queue("q", {"cpu": "4"})
    made.workload("w", "q", {"memory": "1"})
    made.stable()
    assert made.flavors("w") == {"main": {}}


def test_09_a_head_that_breaks_a_limit_range_blocks_a_strict_queue_only() -> None:
    for strict in (True, False):
        made = world()
        limit_range(made, type="Container", max={"cpu": "2"})
        made.queue("q", {"cpu": "10"}, strict=strict)
        made.workload("big", "q", 3)
        made.workload("fine", "q", 1)
        made.stable()
        assert made.reasons["big"] == "Misconfigured"
        assert made.reserved() == (set() if strict else {"fine"})


def test_10_no_selector_selects_no_namespace_and_an_empty_one_selects_all() -> None:
    made = world()
    made.queue("none", {"cpu": "1"}, selector="nothing")
    made.queue("all", {"cpu": "1"}, selector={})
    made.workload("a", "none", 1)
    made.workload("b", "all", 1)
    made.stable()
    assert made.reserved() == {"b"}
    assert made.reasons == {"a": "Misconfigured"}


def test_11_pods_that_are_done_give_their_quota_back() -> None:
    made = world()
    made.queue("q", {"cpu": "6"})
    made.running("old", "q", 2, count=3)
    made.workload("new", "q", 4)
    made.stable()
    assert made.reserved() == {"old"}
    made.status("old", reclaimablePods=[{"name": "main", "count": 2}])
    made.stable()
    assert made.usage("q") == {"f/cpu": "6"}
    assert made.reserved() == {"old", "new"}


def pods_world() -> World:
    made = world()
    made.queue("q", {"cpu": "100", "pods": "3"}, within="LowerPriority")
    for number in range(3):
        made.workload(f"r{number}", "q", 1)
    made.stable()
    assert len(made.reserved()) == 3
    return made


def test_12_one_pod_slot_costs_the_victim_that_came_last() -> None:
    made = pods_world()
    made.workload("w", "q", 1, prio=5)
    made.cycle()
    assert made.preempted == [(4, "r2", "InClusterQueue")]


def test_12_two_pod_slots_cost_two_victims() -> None:
    """The reference never admits this (defect D1): it leaves pods out of the search."""
    made = pods_world()
    made.workload("w", "q", 1, prio=5, count=2)
    made.stable()
    assert "w" in made.reserved()
    assert len(made.preempted) == 2


def test_13_limits_of_lender_and_borrower_bound_what_is_possible() -> None:
    made = world()
    made.queue("a", {"cpu": "2 BL 3"}, cohort="c")
    made.queue("b", {"cpu": "10 LL 6"}, cohort="c")
    made.workload("six", "a", 6, prio=1)
    made.workload("five", "a", 5)
    made.stable()
    assert made.reasons == {"six": "ExceedsMaxQuota"}
    assert made.reserved() == {"five"}
    assert [attempt.borrowing_level for attempt in made.last["five"].explanation.attempts] == [1]


def test_14_an_overdrawn_pool_leaves_nothing_even_to_those_who_lend_nothing() -> None:
    made = world()
    made.cohort("root", quotas={"cpu": "10"})
    made.queue("cq1", {"cpu": "10"}, cohort="root")
    made.queue("cq2", {"cpu": "10 BL 0 LL 0"}, cohort="root")
    made.running("hog", "cq1", 31)
    made.workload("w", "cq2", 1)
    made.stable()
    assert made.reasons == {"w": "WaitingForQuota"}


def test_15_quota_of_a_stopped_queue_can_be_borrowed() -> None:
    made = world()
    made.queue("stopped", {"cpu": "4"}, cohort="c", stop="Hold")
    made.queue("mate", {"cpu": "0"}, cohort="c")
    made.workload("own", "stopped", 1)
    made.workload("w", "mate", 3)
    made.stable()
    assert made.reserved() == {"w"}
    assert made.where("own") == "active"
    assert made.engine.pending_reason("default/own")[0] == "Suspended"


def test_16_workloads_of_a_stopped_queue_are_not_preempted() -> None:
    made = world()
    made.queue("a", {"cpu": "4"}, cohort="c", reclaim="Any")
    made.queue("stopped", {"cpu": "0"}, cohort="c", stop="Hold")
    made.running("theirs", "stopped", 3)
    made.workload("w", "a", 3)
    made.stable()
    assert made.reasons == {"w": "WaitingForQuota"}
    assert made.preempted == []


def test_17_cohorts_in_a_circle_stop_their_queues_and_nothing_else() -> None:
    made = world()
    made.cohort("x", parent="y")
    made.cohort("y", parent="x")
    made.queue("q", {"cpu": "4"}, cohort="x")
    made.queue("free", {"cpu": "4"})
    made.workload("w", "q", 1)
    made.workload("v", "free", 1)
    made.stable()
    assert made.reasons == {"w": "Suspended"}
    assert made.where("w") == "inadmissible"
    assert made.reserved() == {"v"}
    made.cohort("y")
    made.stable()
    assert made.reserved() == {"v", "w"}


def test_18_who_needs_the_nearer_quota_goes_first() -> None:
    made = world()
    made.cohort("root", quotas={"cpu": "4"})
    made.cohort("l", parent="root", quotas={"cpu": "2"})
    made.cohort("r", parent="root")
    made.queue("a", {"cpu": "0"}, cohort="l")
    made.queue("b", {"cpu": "0"}, cohort="r")
    made.workload("far", "b", 5, prio=100)
    made.workload("near", "a", 2)
    made.stable()
    assert made.reserved() == {"near"}
    assert made.reasons == {"far": "WaitingForQuota"}


def test_19_a_queue_cannot_use_a_flavor_it_does_not_name() -> None:
    made = world()
    made.flavor("g")
    made.cohort("c", quotas={"g": {"cpu": "100"}, "f": {"cpu": "0"}})
    made.queue("q", {"f": {"cpu": "1"}}, cohort="c")
    made.workload("w", "q", 2)
    made.stable()
    assert made.reasons == {"w": "ExceedsMaxQuota"}


def test_20_moving_a_cohort_with_too_much_usage_evicts_no_workload() -> None:
    made = world()
    made.queue("a", {"cpu": "4"}, cohort="c")
    made.queue("lender", {"cpu": "10"}, cohort="c")
    made.running("r", "a", 10)
    made.apply(made.queue_manifest("lender", {"cpu": "10"}, cohort="elsewhere"))
    made.cohort("c", parent="root")
    made.workload("w", "a", 1)
    made.stable()
    assert made.reserved() == {"r"}
    assert made.preempted == []
    assert made.reasons == {"w": "WaitingForQuota"} or made.reasons == {"w": "ExceedsMaxQuota"}


def test_requests_too_large_to_count_are_an_error_of_the_workload() -> None:
    made = world()
    made.queue("q", {"memory": "10"})
    made.workload("w", "q", {"memory": "4Ei"}, count=2)
    made.workload("v", "q", {"memory": "1"})
    made.stable()
    assert made.reasons == {"w": "Misconfigured"}
    decision = made.last["w"]
    assert isinstance(decision, Requeue)
    assert "exceeds the largest amount" in decision.explanation.problem
    assert made.reserved() == {"v"}


@pytest.mark.parametrize(
    ("resource", "quantity", "reason"),
    [
        ("cpu", "1e30", "Misconfigured"),
        ("memory", "8Ei", "Misconfigured"),
        # What the reference recorded: it fits into 64 bits as cores, and is cut off in thousandths.
        ("cpu", "9223372036854776", "ExceedsMaxQuota"),
    ],
)
def test_a_request_that_was_cut_off_while_reading_it_is_an_error_of_the_workload(
    resource: str, quantity: str, reason: str
) -> None:
    made = world()
    made.queue("q", {resource: "10"})
    made.workload("w", "q", {resource: quantity})
    made.stable()
    assert made.reasons == {"w": reason}
    if reason == "Misconfigured":
        text = (
            f"podSet main: the request for {resource} is out of range: must be less than 9223372036854775807"
        )
        assert made.engine.pending_reason("default/w") == (reason, text)


def test_requests_above_limits_are_an_error_of_the_workload() -> None:
    made = world()
    made.queue("q", {"cpu": "10"})
    made.workload("w", "q", template=resources("c", {"cpu": "1"}, cpu="2"))
    made.stable()
    assert made.reasons == {"w": "Misconfigured"}


def test_init_containers_sidecars_overhead_and_pod_level_requests() -> None:
    made = world()
    made.queue("q", {"cpu": "100", "memory": "100"})

    def container(cpu: int, **more: str) -> dict[str, object]:
        return {"name": f"c{cpu}", "resources": {"requests": {"cpu": str(cpu)}}, **more}

    template: dict[str, object] = {
        "initContainers": [
            container(2, restartPolicy="Always"),
            container(9),
            container(3, restartPolicy="Always"),
        ],
        "containers": [container(1), container(4)],
        "overhead": {"memory": "7"},
    }
    made.workload("w", "q", template=template)
    # The larger of 2 + 3 + 1 + 4 while it runs and 2 + 9 while it starts.
    assert requests_of(made, "w") == {"cpu": "11", "memory": "7"}
    made.workload("v", "q", template={**template, "resources": {"requests": {"cpu": "6"}}})
    assert requests_of(made, "v") == {"cpu": "6", "memory": "7"}


def test_runtime_class_overhead_and_excluded_prefixes() -> None:
    made = world(exclude_resource_prefixes=("example.com/",))
    made.queue("q", {"cpu": "100"})
    made.apply(
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "kata"},
            "handler": "kata",
            "overhead": {"podFixed": {"cpu": "250m"}},
        }
    )
    made.workload("w", "q", {"cpu": 1, "example.com/nic": 1}, template={"runtimeClassName": "kata"})
    assert requests_of(made, "w") == {"cpu": "1250m"}


def test_percentages_of_nominal_quota_limit_borrowing_and_lending() -> None:
    made = world()
    made.queue("a", {"cpu": "3"}, cohort="c", borrowingLimitPercent=50)
    made.queue("b", {"cpu": "9"}, cohort="c", lendablePercent=50)
    made.queue("free", {"cpu": "0"}, cohort="c")
    made.workload("over", "a", "4600m", prio=1)
    made.workload("at", "a", "4500m")
    made.stable()
    assert made.reasons["over"] == "ExceedsMaxQuota"
    assert made.reserved() == {"at"}
    # 3 + half of 9, of which 4.5 are used.
    made.workload("rest", "free", "3001m", prio=1)
    made.workload("fits", "free", "3")
    made.stable()
    assert made.reserved() == {"at", "fits"}


def test_explicit_limits_win_over_percentages() -> None:
    made = world()
    made.queue("a", {"cpu": "2 BL 3"}, cohort="c", borrowingLimitPercent=0)
    made.queue("b", {"cpu": "10 LL 6"}, cohort="c", lendablePercent=0)
    made.workload("five", "a", 5)
    made.stable()
    assert made.reserved() == {"five"}


def with_generation(manifest: dict[str, Any]) -> dict[str, Any]:
    """The object as a server numbers its first version."""
    return {**manifest, "metadata": {**manifest["metadata"], "generation": 1}}


def test_limits_that_came_and_went_while_it_ran_do_not_bind_a_workload_afterwards() -> None:
    made = world()
    made.queue("q", {"cpu": "4"})
    made.workload("w", "q", 2, count=2)
    made.put(with_generation(made.workloads["w"]))
    made.cycle()
    limit_range(made, type="Container", max={"cpu": "1"}, default={"cpu": "1"})
    running, shrunk = made.workloads["w"], {"reclaimablePods": [{"name": "main", "count": 1}]}
    made.put({**running, "status": {**running["status"], **shrunk}})
    made.engine.apply(Removed("LimitRange", "default", "limits"))
    made.put({**running, "status": shrunk})
    made.cycle()
    assert made.reserved() == {"w"}


def test_limits_that_came_while_it_ran_bind_a_workload_afterwards() -> None:
    made = world()
    made.queue("q", {"cpu": "4"})
    made.workload("w", "q", 2)
    made.put(with_generation(made.workloads["w"]))
    made.cycle()
    limit_range(made, type="Container", max={"cpu": "1"})
    assert made.reserved() == {"w"}
    made.release("w")
    made.cycle()
    assert made.reserved() == set()


def test_pod_sets_that_workloads_share_are_read_again_under_other_limits() -> None:
    made = world()
    made.queue("q", {"cpu": "10"})
    made.workload("first", "q", template=resources("c", {"cpu": "4"}))
    first = decode(made.workloads["first"])
    assert isinstance(first, Workload)

    def twin(name: str) -> dict[str, str]:
        made.workloads[name] = made.workloads["first"]
        made.driver.apply(Upsert(replace(first, metadata=replace(first.metadata, name=name, uid=name))))
        return requests_of(made, name)

    assert twin("second") == {"cpu": "4"}
    limit_range(made, type="Container", defaultRequest={"cpu": "1"})
    assert twin("third") == requests_of(made, "second") == {"cpu": "1"}
    made.engine.apply(Removed("LimitRange", "default", "limits"))
    assert twin("fourth") == {"cpu": "4"}


def test_evaluations_leave_nothing_to_the_garbage_collector() -> None:
    made = world()
    made.queue("q", {"cpu": "50"})
    for number in range(100):
        made.workload(f"w{number}", "q", 1)
    gc.collect()
    gc.disable()
    try:
        admitted = [made.engine.cycle(made.now) for _ in range(51)]
        assert len(admitted) == 51
        assert gc.collect() < 51
    finally:
        gc.enable()
