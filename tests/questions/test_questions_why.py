"""`questions.why`: the facts about a pending workload and the changes that admit it."""

from __future__ import annotations

from typing import Any

import pytest
from engine_world import World

from pykueue.api.kueue import V1BETA2
from pykueue.cli.why_text import lines
from pykueue.engine import Options
from pykueue.questions import Change, Rights, Why, why


def ask(world: World, name: str, **more: Any) -> Why:
    """The answer about a workload; the engine must be as it was before."""
    answer = why(world.engine, world.key(name), world.now, **more)
    world.engine.check()
    assert why(world.engine, world.key(name), world.now, **more) == answer
    return answer


def changes(answer: Why, kind: str = "") -> list[Change]:
    assert answer.head is not None
    return [change for change in answer.head.changes if kind in ("", change.kind)]


def edits(change: Change) -> list[tuple[str, str, str, str]]:
    return [(each.name, each.field.rpartition(".")[2], each.before, each.after) for each in change.edits]


def pending(options: Options | None = None, **queue: Any) -> World:
    """A queue of 10 cpu, 8 of them held, and a workload of 4 cpu that does not fit."""
    world = World(options)
    world.flavor()
    world.queue("q", {"f": {"cpu": 10}}, **queue)
    world.running("held", "q", 8, prio=5)
    world.workload("w", "q", 4)
    world.cycle()
    return world


def test_facts_name_what_is_lacking_at_each_level_and_the_holders() -> None:
    world = pending(cohort="team")
    answer = ask(world, "w")
    assert (answer.state, answer.reason) == ("Pending", "WaitingForQuota")
    assert answer.position is not None
    assert (answer.position.index, answer.position.pending) == (0, 1)
    (fact,) = answer.flavors
    assert (fact.flavor, fact.resource, fact.requested, fact.available, fact.short) == (
        "f",
        "cpu",
        "4",
        "2",
        "2",
    )
    assert [(level.node, level.quota, level.used) for level in fact.levels] == [
        ("q", "10", "8"),
        ("team", "10", "8"),
    ]
    assert fact.holders is not None
    assert [(each.workload, each.amount, each.priority) for each in fact.holders.largest] == [
        ("default/held", "8", 5)
    ]


def test_smallest_quota_is_the_shortage_to_the_thousandth() -> None:
    world = pending()
    world.workload("odd", "q", "2250m")
    (change,) = changes(ask(world, "odd"), "Quota")
    assert edits(change) == [("q", "nominalQuota", "10", "10250m")]
    assert change.smallest
    assert change.cycles == 1
    assert change.text == "raise nominalQuota of ClusterQueue q by 250m cpu of flavor f (from 10 to 10250m)"


def test_quota_of_every_resource_that_lacks_is_raised_together() -> None:
    world = World()
    world.flavor()
    world.queue("q", {"f": {"cpu": 2, "memory": "1Gi"}})
    world.workload("w", "q", {"cpu": 3, "memory": "1537Mi"})
    world.cycle()
    (change,) = changes(ask(world, "w"), "Quota")
    assert edits(change) == [("q", "nominalQuota", "2", "3"), ("q", "nominalQuota", "1Gi", "1537Mi")]


def test_each_flavor_has_a_quota_change_unless_its_taint_is_not_tolerated() -> None:
    world = World()
    world.flavor("a")
    world.flavor("b", taints=["k=v"])
    world.flavor("c")
    world.queue("q", {name: {"cpu": 1} for name in "abc"})
    world.workload("w", "q", 2)
    world.cycle()
    answer = ask(world, "w")
    assert [fact.blocker for fact in answer.flavors] == ["ExceedsMaximum", "Taint", "ExceedsMaximum"]
    flavors = [change.edits[0].field for change in changes(answer, "Quota")]
    assert [field.partition("flavors[")[2][0] for field in flavors] == ["a", "c"]


def test_borrowing_limit_is_raised_to_what_suffices() -> None:
    world = World()
    world.flavor()
    world.queue("q", {"f": {"cpu": "4 BL 1"}}, cohort="team")
    world.queue("rich", {"f": {"cpu": 10}}, cohort="team")
    world.workload("w", "q", 7)
    world.cycle()
    answer = ask(world, "w")
    (change,) = changes(answer, "BorrowingLimit")
    assert edits(change) == [("q", "borrowingLimit", "1", "3")]


def test_lending_limit_of_the_lender_is_raised_to_what_suffices() -> None:
    world = World()
    world.flavor()
    world.queue("q", {"f": {"cpu": 4}}, cohort="team")
    world.queue("rich", {"f": {"cpu": "10 LL 1"}}, cohort="team")
    world.workload("w", "q", 7)
    world.cycle()
    (change,) = changes(ask(world, "w"), "LendingLimit")
    assert edits(change) == [("rich", "lendingLimit", "1", "3")]


def test_borrowing_limit_is_no_answer_where_the_cohort_is_exhausted() -> None:
    world = World()
    world.flavor()
    world.queue("q", {"f": {"cpu": "4 BL 1"}}, cohort="team")
    world.queue("other", {"f": {"cpu": 1}}, cohort="team")
    world.workload("w", "q", 7)
    world.cycle()
    assert [change.kind for change in changes(ask(world, "w"))] == ["Quota"]


def test_priority_is_just_above_that_of_the_workload_to_preempt() -> None:
    world = pending(within="LowerPriority")
    (change,) = changes(ask(world, "w"), "Priority")
    assert edits(change) == [("w", "priority", "0", "6")]
    assert change.preempted == ["default/held"]
    assert change.cycles == 2


def test_equal_priority_suffices_where_newer_workloads_are_preempted() -> None:
    world = World()
    world.flavor()
    world.queue("q", {"f": {"cpu": 10}}, within="LowerOrNewerEqualPriority")
    world.workload("w", "q", 4, created=1)
    world.running("held", "q", 8, prio=5, created=2, reserved=3)
    world.cycle()
    (change,) = changes(ask(world, "w"), "Priority")
    assert edits(change) == [("w", "priority", "0", "5")]


def test_number_of_pods_is_the_largest_that_fits() -> None:
    world = World()
    world.flavor()
    world.queue("q", {"f": {"cpu": 10}})
    world.workload("w", "q", 3, count=5)
    world.cycle()
    (change,) = changes(ask(world, "w"), "PodCount")
    assert edits(change) == [("w", "count", "5", "3")]
    assert change.text == "run 3 pods of pod set main in place of 5"


def test_what_keeps_it_pending_besides_quota_is_named_where_no_change_admits_it() -> None:
    world = World()
    topology = {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}
    world.apply({"apiVersion": V1BETA2, "kind": "Topology", "metadata": {"name": "hosts"}, "spec": topology})
    labels = {"pool": "gpu"}
    flavor = {"nodeLabels": labels, "topologyName": "hosts"}
    world.apply({"apiVersion": V1BETA2, "kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": flavor})
    world.apply(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n1", "labels": labels | {"kubernetes.io/hostname": "n1"}},
            "status": {
                "allocatable": {"cpu": "8", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    )
    world.queue("q", {"f": {"cpu": 4}})
    world.workload("w", "q", 6, count=1)
    world.workload("large", "q", 20, count=1)
    world.stable()
    fits = ask(world, "w").head
    assert fits is not None
    assert [each.kind for each in fits.changes] == ["Quota"]
    assert fits.beyond_quota == ""
    answer = ask(world, "large")
    assert answer.head is not None
    assert answer.head.changes == []
    assert "maximum capacity (4)" in answer.message
    assert answer.head.beyond_quota == (
        'topology "hosts" of flavor f: the nodes hold none of 1 pods; '
        'of 1 domains of level kubernetes.io/hostname excluded: resource "cpu": 1'
    )
    assert f"  with enough quota it would still be pending: {answer.head.beyond_quota}" in "\n".join(
        lines(answer)
    )


def test_other_queue_of_the_namespace_that_admits_it_is_named() -> None:
    world = pending()
    world.queue("free", {"f": {"cpu": 10}})
    world.queue("small", {"f": {"cpu": 1}})
    world.queue("stopped", {"f": {"cpu": 10}}, stop="Hold")
    answer = ask(world, "w")
    assert [edits(change) for change in changes(answer, "Queue")] == [[("w", "queueName", "q", "free")]]


def test_queue_of_another_namespace_that_admits_it_is_named_to_those_who_may_see_it() -> None:
    world = pending()
    world.namespace("elsewhere")
    world.namespace("secret")
    for name, amount, namespace in (
        ("free", 10, "elsewhere"),
        ("small", 1, "elsewhere"),
        ("own", 10, "secret"),
    ):
        world.queue(name, {"f": {"cpu": amount}}, local=False)
        world.local(f"{name}-queue", name, namespace)
    answer = ask(world, "w", rights=Rights(may_list_workloads=lambda namespace: namespace != "secret"))
    (change,) = changes(answer, "Namespace")
    assert edits(change) == [
        ("w", "namespace", "default", "elsewhere"),
        ("w", "queueName", "q", "free-queue"),
    ]
    assert (change.cycles, change.smallest) == (1, True)
    assert change.text == "create it in namespace elsewhere with LocalQueue free-queue (ClusterQueue free)"
    assert answer.place is not None
    assert "Namespace" in [each.kind for each in answer.place.changes]
    assert not changes(ask(world, "w", rights=Rights(may_list_queues=False)), "Namespace")


def test_namespace_that_the_selector_of_the_queue_does_not_match_is_no_answer() -> None:
    world = pending()
    world.namespace("elsewhere")
    world.queue("free", {"f": {"cpu": 10}}, local=False, selector={"matchLabels": {"team": "a"}})
    world.local("free", "free", "elsewhere")
    assert not changes(ask(world, "w"), "Namespace")


def test_policy_that_would_allow_victims_is_the_strictest_that_suffices() -> None:
    world = World()
    world.flavor()
    world.queue("q", {"f": {"cpu": 10}})
    world.workload("w", "q", 4, prio=3, created=1)
    world.running("held", "q", 8, prio=3, created=2, reserved=3)
    world.cycle()
    (change,) = changes(ask(world, "w"), "PreemptionPolicy")
    assert edits(change) == [("q", "withinClusterQueue", "Never", "LowerOrNewerEqualPriority")]
    assert change.preempted == ["default/held"]


def test_quota_that_lets_it_reclaim_and_quota_without_preemption_are_two_changes() -> None:
    world = World()
    world.flavor()
    world.queue("q", {"f": {"cpu": 1}}, cohort="team", reclaim="Any")
    world.queue("other", {"f": {"cpu": 9}}, cohort="team")
    world.running("borrower", "other", 10)
    world.workload("w", "q", 2)
    world.cycle()
    first, second = changes(ask(world, "w"), "Quota")
    assert edits(first) == [("q", "nominalQuota", "1", "2")]
    assert first.preempted == ["default/borrower"]
    assert edits(second) == [("q", "nominalQuota", "1", "3")]
    assert second.without_preemption
    assert second.preempted == []


@pytest.mark.parametrize("stop", ["Hold", "HoldAndDrain"])
def test_stopped_queue_blocks_and_resuming_it_admits(stop: str) -> None:
    world = World()
    world.flavor()
    world.queue("q", {"f": {"cpu": 10}}, stop=stop)
    world.workload("w", "q", 4)
    answer = ask(world, "w")
    assert [(block.reason, block.object) for block in answer.blocks] == [("Stopped", "ClusterQueue q")]
    (change,) = changes(answer)
    assert (change.kind, edits(change)) == ("Resume", [("q", "stopPolicy", stop, "None")])


def test_resuming_is_part_of_every_change_where_it_does_not_suffice() -> None:
    world = World()
    world.flavor()
    world.queue("q", {"f": {"cpu": 2}}, stop="Hold")
    world.workload("w", "q", 4, active=False)
    (change,) = changes(ask(world, "w"), "Quota")
    assert edits(change) == [
        ("w", "active", "false", "true"),
        ("q", "stopPolicy", "Hold", "None"),
        ("q", "nominalQuota", "2", "4"),
    ]


def test_place_counts_what_those_ahead_take_first() -> None:
    world = pending(strict=True)
    world.workload("second", "q", 5)
    world.cycle()
    answer = ask(world, "second")
    (change,) = changes(answer, "Quota")
    assert edits(change) == [("q", "nominalQuota", "10", "13")]
    assert answer.place is not None
    (change,) = [each for each in answer.place.changes if each.kind == "Quota"]
    assert edits(change) == [("q", "nominalQuota", "10", "17")]
    assert change.admits == ["default/w"]
    (change,) = [each for each in answer.place.changes if each.kind == "Queue"] or [None]
    assert change is None


def test_workload_behind_another_that_does_not_fit_would_be_admitted_as_the_head() -> None:
    world = pending(strict=True)
    world.workload("small", "q", 1)
    world.cycle()
    answer = ask(world, "small")
    assert answer.head is not None
    assert (answer.head.outcome, answer.head.changes) == ("Admitted", [])
    assert answer.place is not None
    assert answer.place.outcome == "Pending"
    assert answer.position is not None
    assert answer.position.index == 1
    (change,) = [each for each in answer.place.changes if each.kind == "Priority"]
    assert edits(change) == [("small", "priority", "0", "1")]


def test_workload_that_would_be_admitted_first_and_then_preempted_returns_its_quota() -> None:
    world = World()
    world.flavor()
    world.queue("lender", {"f": {"cpu": 4}}, cohort="team", reclaim="Any")
    world.queue("borrower", {"f": {"cpu": 0}}, cohort="team")
    world.workload("large", "lender", 9, prio=1)
    world.workload("w", "lender", 4)
    world.workload("borrows", "borrower", 4)
    answer = ask(world, "w")
    assert answer.place is not None
    # In the first cycle the other one borrows what it then preempts.
    assert (answer.place.outcome, answer.place.cycles) == ("Admitted", 3)
    assert answer.place.preempted == ["default/borrows"]


def test_limit_of_decisions_leaves_the_place_undetermined_and_the_head_answered() -> None:
    world = pending()
    world.workload("other", "q", 5)
    answer = ask(world, "w", place_decisions_max=0)
    assert answer.place is not None
    assert answer.place.outcome == "NotDetermined"
    assert changes(answer)


def test_names_of_other_namespaces_are_hidden_without_the_right_to_list_them() -> None:
    world = World()
    world.flavor()
    world.namespace("other")
    world.queue("q", {"f": {"cpu": 10}}, within="LowerPriority")
    world.local("theirs", "q", "other")
    world.running("secret", "theirs", 8, namespace="other", cluster_queue="q")
    world.workload("w", "q", 4, prio=-1)
    world.cycle()
    own = Rights(lambda namespace: namespace == "default", may_list_queues=False)
    (fact,) = why(world.engine, "default/w", world.now, rights=own).flavors
    assert ([level.node for level in fact.levels], fact.holders) == (["q"], None)
    answer = why(world.engine, "default/w", world.now, rights=Rights(own.may_list_workloads))
    assert "secret" not in str(answer)
    (fact,) = answer.flavors
    assert fact.holders is not None
    assert (fact.holders.count, fact.holders.hidden, fact.holders.largest) == (1, 1, [])
    (change,) = changes(answer, "Priority")
    assert (change.preempted, change.hidden) == ([], 1)


def test_workload_with_quota_has_its_pending_checks_as_blocks() -> None:
    world = World()
    world.flavor()
    world.check("budget")
    checks = {"admissionChecks": [{"name": "budget", "onFlavors": []}]}
    world.queue("q", {"f": {"cpu": 10}}, admissionChecksStrategy=checks)
    world.workload("w", "q", 4)
    world.cycle()
    world.status(
        "w",
        admissionChecks=[
            {"name": "budget", "state": "Pending", "message": "over budget", "lastTransitionTime": None}
        ],
    )
    answer = ask(world, "w")
    assert answer.state == "QuotaReserved"
    assert [block.message for block in answer.blocks] == ["AdmissionCheck budget is Pending: over budget"]
    assert answer.head is None


def test_unknown_workload_is_an_error() -> None:
    with pytest.raises(KeyError):
        why(World().engine, "default/absent", 0.0)


def test_place_answer_names_side_effects_in_the_trees_concerned_only() -> None:
    world = World()
    world.flavor()
    for name in ("here", "there", "elsewhere"):
        world.queue(name, {"f": {"cpu": 4}})
        world.workload(f"{name}-first", name, 3)
        world.workload(f"{name}-second", name, 3)
    answer = ask(world, "here-second")
    assert answer.place is not None
    changes = {each.kind: each for each in answer.place.changes}
    assert (changes["Quota"].admits, changes["Quota"].delayed) == ([], [])
    assert (changes["Priority"].admits, changes["Priority"].delayed) == ([], ["default/here-first"])
    there = next(each for each in answer.place.changes if each.kind == "Queue" and "there" in each.text)
    assert there.delayed == ["default/there-first"]
    assert "default/elsewhere-first" not in (*there.admits, *there.delayed)


def test_quota_of_a_cohort_above_is_raised_where_it_has_quota_of_its_own() -> None:
    world = World()
    world.flavor()
    world.cohort("lab", quotas={"f": {"cpu": 2}})
    world.queue("q", {"f": {"cpu": 1}}, cohort="lab")
    world.workload("w", "q", 5)
    world.cycle()
    answer = ask(world, "w")
    (change,) = changes(answer, "CohortQuota")
    assert edits(change) == [("lab", "nominalQuota", "2", "4")]
    assert change.text == "raise nominalQuota of Cohort lab by 2 cpu of flavor f (from 2 to 4)"
    (edit,) = change.edits
    assert edit.kind == "Cohort"
    assert not changes(ask(world, "w", rights=Rights(may_list_queues=False)), "CohortQuota")
