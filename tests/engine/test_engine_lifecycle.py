"""Around decisions: checks, readiness, slices, past usage, forks (docs/reference/kueue-semantics.md 10 and
11)."""

from __future__ import annotations

from typing import Any

import pytest
from engine_world import START, World
from msgspec.structs import replace

from pykueue.api.core import Node
from pykueue.api.meta import ObjectMeta, format_time
from pykueue.engine import AdmissionFairSharing, Admit, Engine, EngineError, Options, Removed, Upsert


def world(**options: object) -> World:
    made = World(Options(**options))  # type: ignore[arg-type]
    made.flavor()
    return made


# --- admission checks and readiness
# ---------------------------------------------------------------------------


def test_80_a_check_of_another_flavor_is_not_waited_for() -> None:
    made = world()
    made.flavor("g")
    made.check("c")
    made.queue(
        "q",
        {"f": {"cpu": "1"}, "g": {"cpu": "4"}},
        admissionChecksStrategy={"admissionChecks": [{"name": "c", "onFlavors": ["f"]}]},
    )
    made.workload("free", "q", 2)
    made.workload("checked", "q", 1)
    made.stable()
    assert made.last["free"].admitted
    assert not made.last["checked"].admitted


def test_a_check_that_is_ready_already_admits_at_once() -> None:
    made = world()
    made.check("c")
    made.queue("q", {"cpu": "4"}, admissionChecksStrategy={"admissionChecks": [{"name": "c"}]})
    ready = {"name": "c", "state": "Ready", "lastTransitionTime": "2023-11-14T22:13:20Z", "message": ""}
    made.workload("w", "q", 1, status={"admissionChecks": [ready]})
    made.stable()
    assert made.last["w"].admitted


def test_84_one_at_a_time_until_pods_are_ready() -> None:
    made = world(block_admission=True)
    made.queue("q", {"cpu": "9"})
    made.queue("other", {"cpu": "9"})
    made.workload("a", "q", 1)
    made.workload("b", "other", 1)
    made.workload("c", "q", 1)
    made.stable()
    assert len(made.reserved()) == 1
    assert set(made.reasons.values()) == {"WaitingForPodsReady"}
    (first,) = made.reserved()
    conditions = made.workloads[first]["status"]["conditions"]
    made.status(first, conditions=[*conditions, made.condition("PodsReady", True, "Started")])
    made.stable()
    assert len(made.reserved()) == 2
    made.finish(first)
    made.stable()
    assert len(made.reserved()) == 1
    (second,) = made.reserved()
    made.release(
        second, made.condition("Evicted", True, "PodsReadyTimeout"), made.condition("Requeued", False, "x")
    )
    made.stable()
    assert len(made.reserved()) == 1
    assert second not in made.reserved()


# --- elastic workloads
# ----------------------------------------------------------------------------------------


def sliced(count: int) -> World:
    made = world()
    made.flavor("g")
    made.queue("q", {"f": {"cpu": "8"}, "g": {"cpu": "20"}})
    made.running("old", "q", 1, count=4)
    replaces = {"kueue.x-k8s.io/workload-slice-replacement-for": "default/old"}
    made.workload("new", "q", 1, count=count, annotations={"kueue.x-k8s.io/elastic-job": "true", **replaces})
    made.stable()
    return made


def test_82_a_slice_grows_where_it_stands() -> None:
    made = sliced(8)
    assert made.reserved() == {"new"}
    assert made.last["new"].replaces == "default/old"
    assert made.usage("q") == {"f/cpu": "8"}


def test_slice_replaces_no_workload_of_another_job() -> None:
    made = world()
    made.queue("q", {"f": {"cpu": "8"}})
    made.running("old", "q", 1, count=4)
    replaces = {"kueue.x-k8s.io/workload-slice-replacement-for": "default/old"}
    made.workload("new", "q", 1, count=8, owner="another-job", annotations=replaces)
    made.stable()
    assert made.reserved() == {"old"}


def test_82_a_slice_does_not_move_to_another_flavor() -> None:
    made = sliced(9)
    assert made.reserved() == {"old"}
    assert made.where("new") == "inadmissible"


def test_82_a_failed_replacement_leaves_the_old_slice() -> None:
    made = world()
    made.queue("q", {"cpu": "8"})
    made.running("old", "q", 1, count=4)
    made.workload(
        "new", "q", 1, count=8, annotations={"kueue.x-k8s.io/workload-slice-replacement-for": "default/old"}
    )
    made.cycle(carry_out=False)
    assert made.reserved() == {"new"}
    made.engine.forget("default/new")
    made.engine.check()
    assert made.reserved() == {"old"}
    assert made.usage("q") == {"f/cpu": "4"}


def test_81_the_replaced_slice_is_not_free_for_others() -> None:
    """The reference reserves 14 of 10 here (defect D2)."""
    made = world()
    made.queue("a", {"cpu": "8"}, cohort="all")
    made.queue("b", {"cpu": "2"}, cohort="all")
    made.running("old", "a", 1, count=4)
    made.workload(
        "new", "a", 1, count=8, annotations={"kueue.x-k8s.io/workload-slice-replacement-for": "default/old"}
    )
    made.workload("wb", "b", 6)
    made.cycle()
    assert made.reserved() == {"new"}
    assert made.usage("a") == {"f/cpu": "8"}


REPLACES = {"kueue.x-k8s.io/workload-slice-replacement-for": "default/old"}


@pytest.mark.parametrize("first", ["old", "new"])
def test_slice_and_its_replacement_both_with_quota_count_once(first: str) -> None:
    """A restart between the two writes of a replacement finds both."""
    made = world()
    made.queue("q", {"cpu": "8"})
    counts = {"old": 4, "new": 6}
    for name in (first, "new" if first == "old" else "old"):
        made.running(name, "q", 1, count=counts[name], annotations=REPLACES if name == "new" else {})
    made.engine.check()
    assert made.usage("q") == {"f/cpu": "6"}
    assert made.reserved() == {"new"}
    made.finish("old")
    made.engine.check()
    assert made.usage("q") == {"f/cpu": "6"}


@pytest.mark.parametrize("how", ["finish", "release"])
def test_slice_counts_again_when_its_replacement_goes_first(how: str) -> None:
    made = world()
    made.queue("q", {"cpu": "8"})
    made.running("old", "q", 1, count=4)
    made.running("new", "q", 1, count=6, annotations=REPLACES)
    made.change("old", podSets=[{**made.workloads["old"]["spec"]["podSets"][0], "count": 3}])
    assert made.usage("q") == {"f/cpu": "6"}
    getattr(made, how)("new")
    made.engine.check()
    assert made.usage("q") == {"f/cpu": "3"}
    assert made.reserved() == {"old"}


def test_slice_with_reclaimable_pods_lends_its_replacement_only_what_it_uses() -> None:
    """Two of its four pods have ended, and another workload has their quota."""
    made = world()
    made.queue("q", {"cpu": "6"})
    made.running("old", "q", 1, count=4)
    made.status("old", reclaimablePods=[{"name": "main", "count": 2}])
    made.running("other", "q", 3)
    made.workload("new", "q", 1, count=5, annotations=REPLACES)
    made.stable()
    assert made.reserved() == {"old", "other"}
    made.finish("other")
    made.stable()
    assert made.reserved() == {"new"}
    made.engine.check()


def test_a_slice_that_shrinks_gives_quota_back() -> None:
    made = world()
    made.queue("q", {"cpu": "8"})
    made.running("old", "q", 1, count=8)
    made.workload("w", "q", 4)
    made.stable()
    sets = made.workloads["old"]["spec"]["podSets"]
    made.change("old", podSets=[{**sets[0], "count": 4}])
    made.stable()
    assert made.reserved() == {"old", "w"}


# --- admission fair sharing
# -----------------------------------------------------------------------------------


def two_locals(half_life: float = 3600.0, weight: object = 1) -> World:
    made = world(admission_fair_sharing=AdmissionFairSharing(usage_half_life=half_life))
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    made.queue("cq", {"cpu": "20"}, local=False, admissionScope=scope)
    made.local("x", "cq", weight=weight)
    made.local("y", "cq")
    return made


def test_who_used_less_goes_first_whatever_the_priority() -> None:
    made = two_locals()
    made.workload("x1", "x", 10)
    made.cycle()
    made.now += 3600
    made.workload("x2", "x", 1, prio=100)
    made.workload("y1", "y", 1)
    made.cycle()
    assert [name for _, name in made.admitted] == ["x1", "y1"]
    view = made.engine.local_queue("default", "x")
    assert view is not None
    # One hour of half-life with 10 cores, and what the admission itself weighed.
    assert 4.9 < float(view.consumed["cpu"]) < 5.4


def test_the_penalty_counts_at_once() -> None:
    made = two_locals()
    made.workload("x1", "x", 10)
    made.workload("x2", "x", 1, prio=9)
    made.workload("y1", "y", 1)
    made.cycle()
    made.cycle()
    assert [name for _, name in made.admitted] == ["x2", "y1"]


def test_85_without_memory_only_penalties_count() -> None:
    made = two_locals(half_life=0)
    made.workload("x1", "x", 10)
    made.cycle()
    made.now += 3600
    made.workload("x2", "x", 1, prio=1)
    made.workload("y1", "y", 1)
    made.cycle()
    assert [name for _, name in made.admitted] == ["x1", "x2"]


def test_86_weight_zero_goes_last() -> None:
    made = two_locals(weight=0)
    made.workload("x1", "x", 1, prio=100)
    made.workload("y1", "y", 1)
    made.cycle()
    made.cycle()
    assert [name for _, name in made.admitted] == ["y1", "x1"]


def test_the_heavier_user_is_preempted_first() -> None:
    made = two_locals()
    made.apply(
        made.queue_manifest(
            "cq",
            {"cpu": "20"},
            within="LowerPriority",
            admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"},
        )
    )
    made.workload("x1", "x", 12, prio=1)
    made.workload("y1", "y", 8)
    made.cycle()
    made.cycle()
    made.workload("w", "y", 8, prio=9)
    made.cycle()
    assert [name for _, name, _ in made.preempted] == ["x1"]


def test_past_usage_is_taken_up_where_the_status_left_it() -> None:
    made = two_locals()
    manifest = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "z", "namespace": "default"},
        "spec": {"clusterQueue": "cq"},
        "status": {
            "fairSharing": {
                "weightedShare": 0,
                "admissionFairSharingStatus": {
                    "consumedResources": {"cpu": "7"},
                    "lastUpdate": "2023-11-14T22:13:20Z",
                },
            }
        },
    }
    made.apply(manifest)
    made.workload("z1", "z", 1, prio=100)
    made.workload("y1", "y", 1)
    made.cycle()
    assert [name for _, name in made.admitted] == ["y1"]


def test_samples_are_taken_on_time() -> None:
    made = two_locals()
    made.cycle()
    assert made.engine.next_wake(made.now) == START + 300


# --- forks
# ----------------------------------------------------------------------------------------------------


def snapshot(engine: Engine) -> object:
    """Everything that can be asked, and what the next cycles would decide."""
    names = sorted(engine._state.queues)
    return (
        [engine.cluster_queue(name) for name in names],
        [engine.in_line(name) for name in names],
        {key: engine.workload(key) for key in sorted(engine._state.workloads)},
        engine.has_heads(),
        engine.next_wake(START),
    )


def test_what_a_fork_does_is_undone() -> None:
    made = world()
    made.queue("a", {"cpu": "4"}, cohort="all", reclaim="Any", within="LowerPriority")
    made.queue("b", {"cpu": "4"}, cohort="all", strict=True)
    made.running("ra", "a", 2)
    made.running("rb", "b", 5)
    for number in range(6):
        made.workload(f"w{number}", "ab"[number % 2], 1 + number, prio=number)
    made.cycle()
    before = snapshot(made.engine)
    with made.engine.fork() as trial:
        decisions = trial.cycle(made.now)
        trial.apply(Removed("Workload", "default", "rb"))
        decisions += trial.cycle(made.now + 1)
        trial.apply(Removed("ClusterQueue", "", "a"))
        trial.apply(Removed("Cohort", "", "all"))
        trial.apply(Removed("ResourceFlavor", "", "f"))
        decisions += trial.cycle(made.now + 2)
        trial.check()
        assert any(isinstance(decision, Admit) for decision in decisions)
    made.engine.check()
    assert snapshot(made.engine) == before
    with made.engine.fork() as trial:
        again = trial.cycle(made.now)
    assert [type(decision).__name__ for decision in again] == [
        type(decision).__name__ for decision in made.engine.cycle(made.now)
    ]


def test_what_if_the_quota_were_larger() -> None:
    made = world()
    made.queue("q", {"cpu": "4"})
    made.workload("w", "q", 6)
    made.stable()
    from pykueue.api import decode

    with made.engine.fork() as trial:
        trial.apply(Upsert(decode(made.queue_manifest("q", {"cpu": "8"}))))
        (decision,) = trial.cycle(made.now)
        assert isinstance(decision, Admit)
    assert made.where("w") == "inadmissible"
    assert not made.engine.has_heads()


def test_a_back_off_that_a_fork_adds_or_ends_is_undone() -> None:
    made = world()
    made.queue("q", {"cpu": "4"})
    made.workload("w", "q", 1, status={"requeueState": {"count": 1, "requeueAt": format_time(START + 60)}})
    obj = made.driver.workloads["default/w"]
    assert obj.status.requeue_state is not None
    with made.engine.fork() as trial:
        trial.tick(START + 60)
        assert trial.next_timer() is None
    assert made.engine.next_timer() == START + 60
    sooner = replace(obj.status.requeue_state, requeue_at=format_time(START + 30))
    with made.engine.fork() as trial:
        trial.apply(Upsert(replace(obj, status=replace(obj.status, requeue_state=sooner))))
        assert trial.next_timer() == START + 30
    assert made.engine.next_timer() == START + 60


def test_forks_do_not_nest() -> None:
    made = world()
    with made.engine.fork() as trial, pytest.raises(EngineError, match="do not nest"), trial.fork():
        pass


# --- explanations
# ---------------------------------------------------------------------------------------------


def test_an_explanation_says_what_was_asked_and_what_stood_in_the_way() -> None:
    made = world()
    made.cohort("root")
    made.cohort("team", parent="root", quotas={"cpu": "2 BL 3"})
    made.queue("a", {"cpu": "4"}, cohort="team")
    made.queue("b", {"cpu": "10 LL 6"}, cohort="root")
    made.running("r", "a", 5)
    made.workload("w", "a", 5)
    made.stable()
    (attempt,) = made.last["w"].explanation.attempts
    assert (attempt.total_requested, attempt.available, attempt.blocker, attempt.detail) == (
        5000,
        4000,
        "BorrowingLimit",
        "team",
    )
    assert [(level.node, level.available) for level in attempt.levels] == [
        ("a", 4000),
        ("team", 4000),
        ("root", 7000),
    ]
    explained = made.engine.explain("default/w")
    assert explained is not None
    assert explained.attempts == [attempt]


def test_a_lending_limit_is_named() -> None:
    made = world()
    made.queue("a", {"cpu": "2"}, cohort="all")
    made.queue("b", {"cpu": "10 LL 6"}, cohort="all")
    made.running("r", "a", 5)
    made.workload("w", "a", 4)
    made.stable()
    (attempt,) = made.last["w"].explanation.attempts
    assert (attempt.blocker, attempt.detail) == ("LendingLimit", "all")


def test_a_search_says_whom_it_considered() -> None:
    made = world()
    made.queue("q", {"cpu": "10"}, within="LowerPriority")
    made.running("a", "q", 2, prio=1)
    made.running("b", "q", 8, prio=2)
    made.workload("w", "q", 7, prio=3)
    made.cycle()
    search = made.last["w"].explanation.search
    assert search is not None
    assert (search.considered, search.removed, search.stopped) == (2, 2, "Fits")
    assert [target.key for target in search.targets] == ["default/b"]
    assert search.needed == (("f", "cpu"),)


# --- events that are none
# ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "wanted"),
    [
        (Upsert({"kind": "Workload"}), r"Upsert\.obj is of type dict; accepted: an object of pykueue\.api"),  # type: ignore[arg-type]
        (Upsert(None), r"Upsert\.obj is of type NoneType"),  # type: ignore[arg-type]
        ({"kind": "Workload"}, "event is of type dict; accepted: Upsert, Removed"),
        (Removed("Workload", None, "w"), r"Removed\.namespace is of type NoneType; accepted: str"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_event_raises_a_type_error_that_names_what_is_accepted(event: Any, wanted: str) -> None:
    with pytest.raises(TypeError, match=wanted):
        Engine(Options()).apply(event)


def test_objects_of_kinds_that_decide_nothing_are_ignored() -> None:
    engine = Engine(Options())
    engine.apply(Upsert(Node(metadata=ObjectMeta(name="n"))))
    engine.apply(Removed("Node", "", "n"))
    engine.check()
