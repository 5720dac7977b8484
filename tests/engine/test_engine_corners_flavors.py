"""Corner cases of flavors and partial admission (docs/reference/kueue-semantics.md 15, rows 41 to 54)."""

from __future__ import annotations

from typing import Any

import pytest
from engine_world import World

from pykueue.engine import Options


def world(*flavors: str, **options: object) -> World:
    made = World(Options(**options))  # type: ignore[arg-type]
    for name in flavors or ("f",):
        made.flavor(name)
    return made


def spot_and_on_demand() -> World:
    made = world()
    made.flavor("spot", labels={"type": "spot"}, taints=["spot=true"])
    made.flavor("od", labels={"type": "od", "zone": "z1"})
    made.queue("q", {"spot": {"cpu": "4"}, "od": {"cpu": "4"}})
    return made


TOLERATES = [{"key": "spot", "operator": "Exists"}]


@pytest.mark.parametrize(
    ("template", "flavor"),
    [
        ({}, "od"),
        ({"nodeSelector": {"type": "spot"}}, None),
        ({"nodeSelector": {"zone": "z9"}, "tolerations": TOLERATES}, "spot"),
        ({"nodeSelector": {"unrelated": "z9"}}, "od"),
        ({"tolerations": [{"key": "spot", "operator": "Equal", "value": "true"}]}, "spot"),
        ({"tolerations": [{"key": "spot", "operator": "Equal", "value": "no"}]}, "od"),
        ({"tolerations": [{"operator": "Exists"}]}, "spot"),
    ],
)
def test_41_taints_and_labels_decide_which_flavors_are_open(
    template: dict[str, Any], flavor: str | None
) -> None:
    made = spot_and_on_demand()
    made.workload("w", "q", 1, template=template)
    made.stable()
    if flavor is None:
        assert made.reasons == {"w": "NoMatchingFlavor"}
    else:
        assert made.flavors("w") == {"main": {"cpu": flavor}}


def affinity(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def within(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def test_42_a_term_about_unknown_labels_only_satisfies_the_affinity() -> None:
    made = spot_and_on_demand()
    made.workload("w", "q", 1, template=affinity([within("type", "gpu")], [within("unknown", "x")]))
    made.workload("v", "q", 1, template=affinity([within("type", "gpu")], [within("zone", "z9")]))
    made.stable()
    assert made.flavors("w") == {"main": {"cpu": "od"}}
    assert made.reasons == {"v": "NoMatchingFlavor"}


def test_43_a_flavor_may_tolerate_its_own_taint() -> None:
    made = world()
    made.flavor("tainted", taints=["a=b"], tolerations=["a"])
    made.queue("q", {"tainted": {"cpu": "4"}})
    made.workload("w", "q", 1)
    made.stable()
    assert made.reserved() == {"w"}


def borrow_or_preempt(first: dict[str, str], second: dict[str, str], fungibility: str) -> str:
    """Two flavors, one of which fits by borrowing and the other by preempting in the own queue."""
    made = world("f1", "f2")
    quotas = {"f1": {"cpu": first["nominal"]}, "f2": {"cpu": second["nominal"]}}
    lent = {"f1": {"cpu": first["lent"]}, "f2": {"cpu": second["lent"]}}
    made.queue("q", quotas, cohort="all", within="LowerPriority", fungibility=fungibility.split())
    made.queue("bank", lent, cohort="all")
    preempts = "f1" if first["nominal"] == "4" else "f2"
    made.running("low", "q", 3, flavor=preempts)
    made.workload("w", "q", 2, prio=10)
    made.cycle()
    if made.preempted:
        return f"preempt in {preempts}"
    return made.flavors("w")["main"]["cpu"]


PREEMPTS = {"nominal": "4", "lent": "0"}
BORROWS = {"nominal": "0", "lent": "4"}


@pytest.mark.parametrize(
    ("fungibility", "choice"),
    [
        ("MS TN", "f2"),
        ("MS MS", "preempt in f1"),
        ("TN MS", "preempt in f1"),
        ("TN TN", "f2"),
        ("TN TN BoP", "f2"),
        ("TN TN PoB", "preempt in f1"),
    ],
)
def test_44_the_first_flavor_preempts_and_the_second_borrows(fungibility: str, choice: str) -> None:
    assert borrow_or_preempt(PREEMPTS, BORROWS, fungibility) == choice


@pytest.mark.parametrize(
    ("fungibility", "choice"),
    [
        ("MS TN", "f1"),
        ("TN TN BoP", "f1"),
        ("TN TN PoB", "preempt in f2"),
        ("TN MS", "preempt in f2"),
    ],
)
def test_45_the_first_flavor_borrows_and_the_second_preempts(fungibility: str, choice: str) -> None:
    assert borrow_or_preempt(BORROWS, PREEMPTS, fungibility) == choice


def test_46_reclaiming_beats_preempting_in_the_own_queue() -> None:
    made = world("f1", "f2")
    made.queue(
        "q", {"f1": {"cpu": "2"}, "f2": {"cpu": "2"}}, cohort="all", within="LowerPriority", reclaim="Any"
    )
    made.queue("b", {"f1": {"cpu": "0"}, "f2": {"cpu": "0"}}, cohort="all")
    made.running("own", "q", 2, flavor="f1")
    made.running("theirs", "b", 2, flavor="f2")
    made.workload("w", "q", 2, prio=10)
    made.cycle()
    assert made.preempted == [(1, "theirs", "InCohortReclamation")]


def test_47_pod_sets_backtrack_over_cycles() -> None:
    made = world("f1", "f2")
    made.queue("q", {"f1": {"cpu": "5"}, "f2": {"cpu": "3"}})
    made.workload("w", "q", pods={"x": 3, "y": 5})
    made.cycle()
    assert made.reasons == {"w": "ExceedsMaxQuota"}
    assert made.where("w") == "active"
    made.cycle()
    assert made.flavors("w") == {"x": {"cpu": "f2"}, "y": {"cpu": "f1"}}


def three_flavors() -> World:
    made = world("f1", "f2", "f3", "m")
    quotas = [{name: {"cpu": "4"} for name in ("f1", "f2", "f3")}, {"m": {"memory": "1"}}]
    made.queue("q", quotas)
    made.workload("w", "q", pods={"x": {"requests": {"cpu": 1}}, "y": {"requests": {"memory": 5}}})
    return made


def test_48_a_hopeless_workload_is_tried_in_every_flavor_and_then_parked() -> None:
    made = three_flavors()
    made.stable()
    assert made.cycles == 3
    assert made.reasons == {"w": "ExceedsMaxQuota"}
    assert made.where("w") == "inadmissible"


def test_48_without_fungibility_it_is_tried_once() -> None:
    made = world(
        "f1",
        "f2",
        "f3",
        "m",
        gates={"FlavorFungibility": False, "FlavorFungibilityPreserveScanProgress": False},
    )
    made.queue("q", [{name: {"cpu": "4"} for name in ("f1", "f2", "f3")}, {"m": {"memory": "1"}}])
    made.workload("w", "q", pods={"x": {"requests": {"cpu": 1}}, "y": {"requests": {"memory": 5}}})
    made.stable()
    assert made.cycles == 1


def test_49_pod_sets_may_go_to_different_flavors() -> None:
    made = world("f1", "f2")
    made.queue("q", {"f1": {"cpu": "5"}, "f2": {"cpu": "5"}})
    made.workload("w", "q", pods={"x": 3, "y": 3})
    made.stable()
    assert made.flavors("w") == {"x": {"cpu": "f1"}, "y": {"cpu": "f2"}}


@pytest.mark.parametrize("fungibility", ["MS TN", "TN TN PoB"])
def test_50_one_resource_borrows_while_the_other_preempts(fungibility: str) -> None:
    """With PreemptionOverBorrowing the reference retries forever (defect D4)."""
    made = world()
    made.queue(
        "q",
        {"cpu": "0", "memory": "4"},
        cohort="all",
        within="LowerPriority",
        fungibility=fungibility.split(),
    )
    made.queue("bank", {"cpu": "4", "memory": "0"}, cohort="all")
    made.running("low", "q", {"memory": 4})
    made.workload("w", "q", {"cpu": 2, "memory": 2}, prio=10)
    made.stable()
    assert made.preempted == [(1, "low", "InClusterQueue")]
    assert "w" in made.reserved()


def test_51_the_largest_part_that_fits_is_admitted() -> None:
    made = world()
    made.queue("q", {"cpu": "7"})
    made.workload("w", "q", pods={"driver": 1, "workers": {"requests": {"cpu": 1}, "count": 10, "min": 4}})
    made.stable()
    assert made.counts("w") == {"driver": 1, "workers": 6}
    assert made.last["w"].explanation.counts == {"driver": 1, "workers": 6}


def test_52_several_pod_sets_shrink_together() -> None:
    made = world()
    made.queue("q", {"cpu": "10"})
    made.workload(
        "w",
        "q",
        pods={
            "x": {"requests": {"cpu": 1}, "count": 6, "min": 4},
            "y": {"requests": {"cpu": 1}, "count": 10, "min": 2},
        },
    )
    made.stable()
    assert made.counts("w") == {"x": 5, "y": 5}


def test_53_preempting_for_the_full_size_beats_shrinking() -> None:
    made = world()
    made.queue("q", {"cpu": "10"}, within="LowerPriority")
    made.running("low", "q", 6)
    made.workload("w", "q", 1, prio=5, count=10, min_count=2)
    made.stable()
    assert made.counts("w") == {"main": 10}


def test_53_a_smaller_size_may_preempt_as_well() -> None:
    made = world()
    made.queue("q", {"cpu": "10"}, within="LowerPriority")
    made.running("low", "q", 6)
    made.running("high", "q", 2, prio=9)
    made.workload("w", "q", 1, prio=5, count=10, min_count=2)
    made.stable()
    assert made.counts("w") == {"main": 8}
    assert [name for _, name, _ in made.preempted] == ["low"]


def test_53_without_the_gate_nothing_shrinks() -> None:
    made = world(gates={"PartialAdmission": False})
    made.queue("q", {"cpu": "7"})
    made.workload("w", "q", 1, count=10, min_count=4)
    made.stable()
    assert made.reasons == {"w": "ExceedsMaxQuota"}


def test_54_a_changed_pod_starts_again_at_the_first_flavor() -> None:
    made = world("f1", "f2", "m")
    made.queue("q", [{"f1": {"cpu": "4"}, "f2": {"cpu": "4"}}, {"m": {"memory": "1"}}])
    pods = {"x": {"requests": {"cpu": 1}}, "y": {"requests": {"memory": 5}}}
    made.workload("w", "q", pods=pods)
    made.cycle()
    old = made.workloads["w"]["spec"]["podSets"]
    changed = [old[0], {**old[1], "template": {"spec": {"containers": [{"name": "c", "resources": {}}]}}}]
    made.change("w", podSets=changed)
    made.cycle()
    assert made.flavors("w")["x"] == {"cpu": "f1"}


def test_pod_sets_of_one_group_get_one_flavor() -> None:
    made = world("f1", "f2")
    made.queue("q", {"f1": {"cpu": "5"}, "f2": {"cpu": "9"}})
    made.workload("w", "q", pods={"leader": 1, "workers": 5})
    manifest = made.workloads["w"]
    sets = [{**item, "topologyRequest": {"podSetGroupName": "g"}} for item in manifest["spec"]["podSets"]]
    made.change("w", podSets=sets)
    made.stable()
    assert made.flavors("w") == {"leader": {"cpu": "f2"}, "workers": {"cpu": "f2"}}
    assert made.usage("q") == {"f2/cpu": "6"}


def test_worst_reason_of_all_resources_is_reported() -> None:
    made = world("f1", "f2")
    made.queue(
        "q",
        {"f1": {"cpu": "2", "memory": "9"}, "f2": {"cpu": "1", "memory": "1"}},
    )
    made.running("r", "q", {"cpu": 1, "memory": 9}, flavor="f1")
    made.workload("never", "q", {"cpu": 3, "memory": 1})
    made.workload("later", "q", {"cpu": 2, "memory": 1})
    made.stable()
    assert made.reasons == {"never": "ExceedsMaxQuota", "later": "WaitingForQuota"}
