"""What one entry of a cycle leaves behind for the others, and what the next evaluation makes of it."""

from __future__ import annotations

from engine_world import START, World

from pykueue.engine import AdmissionFairSharing, Options


def world(*flavors: str, **options: object) -> World:
    made = World(Options(**options))  # type: ignore[arg-type]
    for name in flavors or ("f",):
        made.flavor(name)
    return made


def test_request_of_one_entry_makes_its_queue_no_candidate_for_later_entries() -> None:
    made = world("f", "g", fair_sharing=True)
    made.queue("a", {"f": {"cpu": 4}, "g": {"cpu": 0}}, cohort="team", within="LowerPriority", reclaim="Any")
    made.queue("b", {"f": {"cpu": 2}}, cohort="team", reclaim="Any")
    made.queue("w", {"g": {"cpu": 6}}, cohort="team")
    made.queue("z", {"f": {"cpu": 0}}, cohort="team")
    made.running("a-f", "a", 2)
    made.running("a-g", "a", 6, prio=100, flavor="g")
    made.running("z-f", "z", 4)
    made.workload("wait-a", "a", 3, prio=10)
    made.workload("wait-b", "b", 2)
    made.cycle()
    assert made.preempted == [(1, "z-f", "InCohortReclamation")]


def test_strict_head_that_lost_to_another_entry_is_evaluated_again() -> None:
    made = world("f0", "f1", fair_sharing=True)
    made.cohort("left", "root", weight=2)
    made.cohort("right", "root")
    made.queue("q0", {"f0": {"cpu": 3}, "f1": {"cpu": "7 BL 3"}}, cohort="left", fungibility=("MS", "MS"))
    made.queue(
        "q1",
        {"f0": {"cpu": "8 LL 0"}, "f1": {"cpu": "5 BL 3"}},
        cohort="right",
        strict=True,
        within="LowerPriority",
        fungibility=("TN", "MS"),
        weight=1,
    )
    made.running("r0", "q0", 1, prio=1, count=2, flavor="f1")
    made.running("r1", "q0", 1, prio=-1, count=3, flavor="f1")
    made.running("r2", "q1", "4500m", flavor="f1")
    made.running("r3", "q1", 2, prio=-1, flavor="f0")
    made.workload(
        "head", "q1", prio=2, pods={"a": {"requests": "500m", "count": 4}, "b": {"requests": 2, "count": 2}}
    )
    made.workload("w3", "q0", 1, prio=1, count=2)
    made.workload("w2", "q0", 1, prio=-1, count=3)
    made.workload("w1", "q0", 1, prio=4, count=3)
    made.workload("w0", "q0", 1, prio=4, count=3)
    made.workload("first", "q1", 1, prio=3, count=2, min_count=1)
    made.stable()
    assert ("r3", "InClusterQueue") in [(name, reason) for _, name, reason in made.preempted]
    assert made.where("head") == "reserved"


def test_recomputed_entry_without_targets_goes_on_with_the_next_flavor() -> None:
    made = world("f", "g")
    made.queue("victim", {"f": {"cpu": 0}}, cohort="team")
    made.queue("a", {"f": {"cpu": 4}}, cohort="team", reclaim="Any")
    made.queue("b", {"f": {"cpu": 2}, "g": {"cpu": 1}}, cohort="team", reclaim="Any", borrow="LowerPriority")
    made.running("r", "victim", 5, prio=-1)
    made.workload("wait-a", "a", 4, prio=2)
    made.workload("wait-b", "b", prio=1, pods={"x": 1, "y": 2})
    decisions = {decision.key: decision for decision in made.cycle() if hasattr(decision, "explanation")}
    assert decisions["default/wait-b"].explanation.recomputed
    made.release("r")
    made.cycle()
    assert made.admitted == [(2, "wait-a"), (2, "wait-b")]
    assert made.flavors("wait-b") == {"x": {"cpu": "g"}, "y": {"cpu": "f"}}


def test_without_fungibility_a_flavor_with_candidates_is_better_than_one_without() -> None:
    made = world("f", "g", gates={"FlavorFungibility": False})
    made.queue("q", {"f": {"cpu": 2}, "g": {"cpu": 2}}, within="LowerPriority")
    made.running("r-f", "q", 2, prio=10)
    made.running("r-g", "q", 2, prio=0, flavor="g")
    made.workload("wait", "q", 2, prio=5)
    made.cycle()
    assert made.preempted == [(1, "r-g", "InClusterQueue")]


def test_pod_set_without_pods_left_is_not_charged_when_another_shrinks() -> None:
    made = world()
    made.queue("q", {"cpu": 2})
    pods = {"done": {"requests": 1}, "workers": {"requests": 1, "count": 4, "min": 2}}
    made.workload("w", "q", pods=pods, status={"reclaimablePods": [{"name": "done", "count": 1}]})
    made.cycle()
    assert made.counts("w") == {"done": 0, "workers": 2}


def test_of_equal_priority_and_time_the_smaller_uid_goes_first() -> None:
    made = world()
    made.queue("q", {"cpu": 4})
    for name, cpu in (("z", 1), ("y", 1), ("a", 2)):
        made.workload(name, "q", cpu, created=5)
    order = sorted(("z", "y", "a"), key=lambda name: made.workloads[name]["metadata"]["uid"], reverse=True)
    for number, name in enumerate(order):
        manifest = made.workloads[name]
        made.finish(name)
        made.put({**manifest, "metadata": {**manifest["metadata"], "uid": f"{number:04d}"}})
    made.stable()
    assert [name for _, name in made.admitted] == order == ["z", "y", "a"]


def test_deleting_or_deactivating_a_waiting_workload_wakes_its_tree() -> None:
    made = world()
    made.queue("q", {"cpu": 4}, cohort="team")
    made.queue("other", {"cpu": 0}, cohort="team")
    made.running("r", "q", 4)
    for name in ("gone", "off"):
        made.workload("parked", "other", 2)
        made.workload(name, "q", 3)
        made.stable()
        assert made.where("parked") == "inadmissible"
        if name == "gone":
            made.finish(name)
        else:
            made.change(name, active=False)
        assert made.where("parked") == "active"


# --- admission fair sharing


def by_usage() -> World:
    made = world(admission_fair_sharing=AdmissionFairSharing(usage_half_life=3600.0, sampling_interval=300.0))
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    made.queue("q", {"cpu": 10}, local=False, admissionScope=scope)
    return made


def local_queue(made: World, name: str, consumed: int) -> None:
    past = {"lastUpdate": "2023-11-14T22:13:20Z", "consumedResources": {"cpu": str(consumed)}}
    status = {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": past}}
    made.apply(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"clusterQueue": "q"},
            "status": status,
        }
    )


def consumed(made: World, name: str) -> int:
    view = made.engine.local_queue("default", name)
    assert view is not None
    return {resource: amount.nanos for resource, amount in view.consumed.items()}.get("cpu", 0)


def test_reading_a_workload_that_was_admitted_long_ago_leaves_past_usage_alone() -> None:
    made = by_usage()
    local_queue(made, "a", 2)
    local_queue(made, "b", 1)
    made.running("run-b", "b", 3, reserved=-1_000_000, cluster_queue="q")
    made.workload("wait-a", "a", 1)
    made.workload("wait-b", "b", 1)
    made.cycle()
    assert [name for _, name in made.admitted] == ["wait-b"]
    assert made.engine.next_sample() == START + 300


def test_penalty_of_a_workload_that_is_admitted_at_once_becomes_past_usage_once() -> None:
    made = by_usage()
    made.local("a", "q")
    made.workload("w", "a", 4)
    made.cycle()
    share = 1 - 0.5 ** (300 / 3600)
    penalty = int(4 * 10**9 * share)
    assert consumed(made, "a") == penalty
    made.driver.advance(START + 300)
    faded = int(penalty * (1 - share)) + int(4 * 10**9 * share)
    assert consumed(made, "a") == faded


def test_usage_of_several_flavors_is_sampled_as_one_amount() -> None:
    made = by_usage()
    made.flavor("g")
    made.apply(
        made.queue_manifest(
            "q",
            {"f": {"cpu": 10}, "g": {"cpu": 10}},
            admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"},
        )
    )
    made.local("a", "q")
    made.running("x", "a", "333m", reserved=0, cluster_queue="q")
    made.running("y", "a", "333m", reserved=0, cluster_queue="q", flavor="g")
    made.driver.advance(START + 300)
    share = 1 - 0.5 ** (300 / 3600)
    assert consumed(made, "a") == int(666 * 10**6 * share)
