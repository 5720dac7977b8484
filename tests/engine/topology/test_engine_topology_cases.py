"""The worked cases 46 and 55 to 85 of docs/reference/topology-aware-scheduling.md 19, by their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from topology_notation import request_of
from topology_world import NodeWorld

from pykueue.api import encode
from pykueue.api.quantity import Quantity
from pykueue.engine import Admit, Assign, Evict, Options, Preempt, Requeue
from pykueue.engine.explain.render import message
from pykueue.engine.options import Transformation

RACK = {"required": "rack"}
ANNOTATION = "kueue.x-k8s.io/podset-required-topology"


def pods(name: str, count: int, request: Mapping[str, Any], **requests: str) -> dict[str, Any]:
    """A pod set; its pods request one cpu unless told otherwise."""
    resources = {"requests": requests or {"cpu": "1"}}
    spec = {"containers": [{"name": "c", "resources": resources}]}
    found = {"name": name, "count": count, "template": {"spec": spec}}
    return {**found, "topologyRequest": dict(request)} if request else found


def put(world: NodeWorld, name: str, *pod_sets: dict[str, Any], queue: str = "q", **more: Any) -> None:
    """A workload of these pod sets."""
    world.workload(name, queue, 1, **more)
    manifest = world.workloads[name]
    world.put({**manifest, "spec": {**manifest["spec"], "podSets": list(pod_sets)}})


# --- 19.5 -----------------------------------------------------------------------------------------------


def test_case_46_pod_sets_are_placed_one_after_the_other_without_looking_ahead() -> None:
    world = NodeWorld("r1{h1:4},r2{h2:4}")
    put(world, "a", pods("p1", 2, {"preferred": "rack"}), pods("p2", 5, {"preferred": "rack"}))
    world.stable()
    assert world.hosts_by_pod_set("a") == {"p1": {"h1": 2}, "p2": {"h1": 1, "h2": 4}}


@pytest.mark.parametrize(
    ("nodes", "mode", "workers", "leader", "text"),
    [
        # Cases 38 and 39: the count is that of the workers alone.
        (
            "r1{h1:4},r2{h2:3}",
            "required",
            4,
            "1",
            "no domain of level rack holds 4 pods beside the leader: the largest, r1, holds 4 without it",
        ),
        (
            "r1{h1:5,h2:1},r2{h3:3,h4:3}",
            "required",
            5,
            "3",
            "no domain of level rack holds 5 pods beside the leader: the largest, r1, holds 6 without it",
        ),
        ("r1{h1:2},r2{h2:2}", "preferred", 4, "1", "the nodes hold 4 pods, but not beside the leader"),
        ("r1{h1:2},r2{h2:2}", "preferred", 5, "1", "the nodes hold only 4 of 5 pods"),
    ],
)
def test_message_tells_what_the_workers_have_without_their_leader(
    nodes: str, mode: str, workers: int, leader: str, text: str
) -> None:
    world = NodeWorld(nodes)
    request = {mode: "rack", "podSetGroupName": "g"}
    put(world, "a", pods("leader", 1, request, cpu=leader), pods("workers", workers, request))
    world.stable()
    assert message(world.last["a"]).split(": ", 1)[1].split(";")[0] == text


def test_message_names_the_largest_domain_and_not_the_one_of_preferred_affinity() -> None:
    world = NodeWorld("r1{h1:1},r2{h2:3}", options=Options(gates={"TASRespectNodeAffinityPreferred": True}))
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}
    pod_set = pods("main", 4, RACK)
    pod_set["template"]["spec"]["affinity"] = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": term}]
        }
    }
    put(world, "a", pod_set)
    world.stable()
    assert "holds 4 pods: the largest, r2, holds 3" in message(world.last["a"])


# --- 19.7 -----------------------------------------------------------------------------------------------


def racks(*cpu: str, **more: Any) -> NodeWorld:
    """A topology whose lowest level is the rack, and one rack with nodes of these amounts of cpu."""
    world = NodeWorld("", levels="R")
    for number, amount in enumerate(cpu):
        labels = {"pool": "tas", "rack": "r1"}
        world.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"n{number}", "labels": labels},
                "spec": more,
                "status": {
                    "allocatable": {"cpu": amount, "pods": "110"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )
    return world


def test_case_55_racks_as_leaves_hide_that_nodes_are_fragmented() -> None:
    world = racks("1500m", "1500m")
    world.placed("a", 3, RACK)
    world.stable()
    assert world.hosts("a") == {"r1": 3}


def test_case_56_taints_matter_only_where_leaves_are_hosts() -> None:
    taints = [{"key": "gpu", "effect": "NoSchedule"}]
    world = racks("4", taints=taints)
    world.placed("a", 3, RACK)
    world.stable()
    assert world.hosts("a") == {"r1": 3}
    of_hosts = NodeWorld("")
    of_hosts.host("h1", 4, taints=taints)
    of_hosts.placed("a", 3, RACK)
    of_hosts.stable()
    assert of_hosts.reasons == {"a": "TopologyPlacementFailed"}


def test_case_57_racks_of_one_name_in_two_blocks_are_two_domains() -> None:
    world = NodeWorld("b1{r1{h1:3}},b2{r1{h2:3}}", levels="BRH")
    world.placed("a", 5, RACK)
    world.placed("b", 3, RACK)
    world.stable()
    assert world.reserved() == {"b"}


def daemon(world: NodeWorld, terminating: bool = False, **annotations: str) -> None:
    """A pod outside workloads that uses 500m of h1."""
    metadata: dict[str, Any] = {"name": "d", "namespace": "default", "annotations": annotations}
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    containers = [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]
    world.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"nodeName": "h1", "containers": containers},
        }
    )


@pytest.mark.parametrize("terminating", [False, True], ids=["case 58: running", "case 59: terminating"])
def test_cases_58_and_59_other_pods_count_until_they_are_gone(terminating: bool) -> None:
    world = NodeWorld("r1{h1:4}")
    daemon(world, terminating)
    world.placed("a", 4, RACK)
    world.placed("b", 3, RACK)
    world.stable()
    assert world.reserved() == {"b"}


def test_case_60_a_pod_with_an_annotation_of_topology_is_not_counted() -> None:
    world = NodeWorld("r1{h1:4}")
    daemon(world, **{ANNOTATION: "rack"})
    world.placed("a", 4, RACK)
    world.stable()
    assert world.reserved() == {"a"}


def two_flavors(world: NodeWorld) -> None:
    world.flavor("cpu-only")
    world.queue("p", {"f": {"cpu": 10}, "cpu-only": {"cpu": 10}})


def test_case_61_pods_that_ask_for_no_topology_get_a_flavor_without_one() -> None:
    world = NodeWorld("r1{h1:4}")
    two_flavors(world)
    world.placed("a", 2, queue="p")
    world.stable()
    assert world.flavors("a") == {"main": {"cpu": "cpu-only"}}
    assert world.hosts("a") == {}


def test_case_62_pods_in_a_queue_of_topologies_only_are_placed() -> None:
    world = NodeWorld("r1{h1:2,h2:1}")
    world.placed("a", 1)
    world.stable()
    assert world.hosts("a") == {"h2": 1}


def credits(resources: list[str]) -> NodeWorld:
    """A queue with gpu on nodes, and `resources` without: credits that gpu is transformed to, and others."""
    transformation = Transformation("gpu", {"credits": Quantity.of(1)}, "Retain")
    world = NodeWorld("", options=Options(transformations=(transformation,)))
    world.node(("r1", "h1"), {"cpu": 8000, "pods": 110, "gpu": 4})
    world.flavor("bank")
    groups = [{"f": {"gpu": 10}}, {"bank": dict.fromkeys(resources, 10)}]
    world.queue("p", groups)
    return world


def test_case_63_a_flavor_for_resources_that_pods_do_not_request_needs_no_topology() -> None:
    world = credits(["credits"])
    put(world, "a", pods("main", 2, RACK, gpu="1"), queue="p")
    world.stable()
    assert world.flavors("a") == {"main": {"gpu": "f", "credits": "bank"}}
    assert world.hosts("a") == {"h1": 2}


def test_case_64_a_flavor_for_resources_that_pods_request_needs_a_topology() -> None:
    world = credits(["credits", "cpu"])
    put(world, "a", pods("main", 2, RACK, gpu="1", cpu="1"), queue="p")
    world.stable()
    assert world.reasons == {"a": "NoMatchingFlavor"}


@pytest.mark.parametrize("on", [True, False])
def test_case_65_flavors_that_share_a_node(on: bool) -> None:
    world = NodeWorld("r1{h1:2}", options=Options(gates={"TASHandleOverlappingFlavors": on}))
    world.tas_flavor("g", "racks")
    world.queue("p", {"g": {"cpu": 100}})
    world.placed("a", 2, RACK)
    world.placed("b", 2, RACK, queue="p")
    world.stable()
    assert world.reserved() == ({"a"} if on else {"a", "b"})


def test_case_66_reclaimable_pods_give_no_room_on_nodes_back() -> None:
    world = NodeWorld("r1{h1:20}")
    world.placed("a", 20, RACK)
    world.stable()
    world.status("a", reclaimablePods=[{"name": "main", "count": 10}])
    world.placed("b", 1, RACK)
    world.stable()
    assert world.reserved() == {"a"}
    world.finish("a")
    world.stable()
    assert world.reserved() == {"b"}


def test_case_67_a_cordoned_node_leaves_the_tree_and_what_runs_there_stays() -> None:
    world = NodeWorld("r1{h1:4}")
    world.placed("a", 2, RACK)
    world.stable()
    world.host("h1", 4, unschedulable=True)
    world.placed("b", 1, RACK)
    world.stable()
    assert world.reserved() == {"a"}
    assert world.hosts("a") == {"h1": 2}


def test_case_68_a_request_that_is_not_unconstrained_names_no_level() -> None:
    world = NodeWorld("r1{h1:4}")
    world.placed("a", 2, {"unconstrained": False})
    world.stable()
    assert world.reserved() == set()
    assert "level is not specified" in message(world.last["a"])


def test_case_69_index_labels_alone_ask_for_no_topology() -> None:
    world = NodeWorld("r1{h1:4}")
    two_flavors(world)
    labels = {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}
    world.placed("a", 2, labels)
    world.placed("b", 2, labels, queue="p")
    world.stable()
    assert world.hosts("a") == {"h1": 2}
    assert world.flavors("b") == {"main": {"cpu": "cpu-only"}}


# --- 19.8 -----------------------------------------------------------------------------------------------


def half_full(queue: str = "q", **more: Any) -> NodeWorld:
    """Two racks of 4 cpu, 3 of each used by a workload of a queue."""
    world = NodeWorld("r1{h1:4},r2{h2:4}", quota=8, within="LowerPriority", **more)
    world.queue("p", {"cpu": 8}, cohort="other")
    for name in ("a", "b"):
        world.placed(name, 3, RACK, queue=queue)
    world.stable()
    assert {**world.hosts("a"), **world.hosts("b")} == {"h1": 3, "h2": 3}
    return world


def test_case_70_one_workload_is_preempted_for_room_in_a_rack() -> None:
    world = half_full()
    world.placed("c", 2, RACK, prio=5)
    preempted = [each.key for each in world.cycle() if isinstance(each, Preempt)]
    assert len(preempted) == 1
    world.release(preempted[0].partition("/")[2])
    world.stable()
    assert len(world.reserved()) == 2
    assert sum(world.hosts("c").values()) == 2


def test_case_71_workloads_of_another_cohort_are_not_preempted_for_room() -> None:
    world = half_full(queue="p")
    world.placed("c", 4, RACK, prio=5)
    (decision,) = world.cycle()
    assert isinstance(decision, Requeue)
    assert decision.reason == "WaitingForQuota"
    assert "holds 4 pods" in message(decision)


def test_case_72_nothing_is_preempted_for_more_than_a_rack_has() -> None:
    world = half_full()
    world.placed("c", 5, RACK, prio=5)
    (decision,) = world.cycle()
    assert isinstance(decision, Requeue)
    assert decision.reason == "TopologyPlacementFailed"


def test_case_73_what_two_queues_were_nominated_for_is_placed_again_in_the_cycle() -> None:
    world = NodeWorld("r1{h1:2}")
    world.queue("p", {"cpu": 100})
    for queue in ("q", "p"):
        world.placed(f"of-{queue}", 2, RACK, queue=queue)
    admitted = [each.key for each in world.cycle() if isinstance(each, Admit)]
    assert admitted == ["default/of-q"]
    world.stable()
    assert world.reserved() == {"of-q"}


def test_case_74_the_next_flavor_is_tried_in_a_later_cycle() -> None:
    world = NodeWorld("r1{h1:2}")
    world.topology("second", "RH")
    world.tas_flavor("g", "second", pool="second")
    world.apply(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": "g1",
                "labels": {"pool": "second", "rack": "r9", "kubernetes.io/hostname": "g1"},
            },
            "status": {
                "allocatable": {"cpu": "4", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    )
    world.queue("p", {"f": {"cpu": 100}, "g": {"cpu": 100}})
    world.placed("a", 4, RACK, queue="p")
    (decision,) = world.cycle()
    assert isinstance(decision, Requeue)
    world.stable()
    assert world.flavors("a") == {"main": {"cpu": "g"}}
    assert world.hosts("a") == {"g1": 4}


# --- 19.9 -----------------------------------------------------------------------------------------------

N = "b1{r1{h1:2,h2:2,h3:1},r2{h4:4}},b2{r3{h5:8}}"


def assigned(
    nodes: str, request: str, where: str, levels: str = "BRH", gates: Mapping[str, bool] | None = None
) -> NodeWorld:
    """Workload `a`, admitted to the hosts `where`, such as `h1:2 h2:2`."""
    world = NodeWorld(nodes, levels=levels, options=Options(gates=gates or {}))
    found = {host: int(count) for host, _, count in (each.partition(":") for each in where.split())}
    total = sum(found.values())
    wanted = request_of(request)
    world.workload("a", "q", 1, count=total)
    manifest = world.workloads["a"]
    spec = manifest["spec"]
    pod_sets = [{**spec["podSets"][0], "topologyRequest": encode(wanted)}]
    assignment = {
        "levels": ["kubernetes.io/hostname"],
        "slices": [
            {
                "domainCount": 1,
                "valuesPerLevel": [{"universal": host}],
                "podCounts": {"universal": count},
            }
            for host, count in found.items()
        ],
    }
    given = {
        "name": "main",
        "count": total,
        "flavors": {"cpu": "f"},
        "resourceUsage": {"cpu": str(total)},
        "topologyAssignment": assignment,
    }
    status = {
        "conditions": [
            world.condition("QuotaReserved", True, "QuotaReserved"),
            world.condition("Admitted", True, "Admitted"),
        ],
        "admission": {"clusterQueue": "q", "podSetAssignments": [given]},
    }
    world.put({**manifest, "spec": {**spec, "podSets": pod_sets}, "status": status})
    return world


def fail(world: NodeWorld, *hosts: str) -> Any:
    """The decision after nodes disappeared."""
    for host in hosts:
        world.lose(host)
    world.status("a", unhealthyNodes=[{"name": host} for host in hosts])
    (decision,) = world.cycle()
    return decision


LAYERS = "b1{r1{x1:2,x2:2},r2{x3:2,x4:4}}"


@pytest.mark.parametrize(
    ("case", "nodes", "request_text", "where", "failed", "expected"),
    [
        (75, N, "required rack", "h1:2 h2:2", "h1", None),
        (76, N, "required block", "h1:2 h2:2", "h1", {"h2": 2, "h4": 2}),
        (77, N, "preferred rack", "h1:2 h2:2", "h1", {"h2": 2, "h4": 2}),
        (78, N, "unconstrained", "h1:1 h2:2", "h1", {"h2": 2, "h3": 1}),
        (
            79,
            "b1{r1{h1:2,h2:2,h3:2},r2{h4:4}}",
            "preferred block slice rack/4",
            "h1:2 h2:2 h4:4",
            "h1",
            {"h2": 2, "h3": 2, "h4": 4},
        ),
        (
            80,
            "b1{r1{h4:4},r2{h6:3,h7:1}}",
            "required block slice rack/4",
            "h4:4",
            "h4",
            {"h6": 3, "h7": 1},
        ),
        (
            81,
            LAYERS,
            "required block slice block/8 rack/4 H/2",
            "x1:2 x2:2 x3:2 x4:2",
            "x3",
            {"x1": 2, "x2": 2, "x4": 4},
        ),
        (
            82,
            "b1{r1{x1:2,x2:2,x3:1,x4:1}}",
            "required block slice rack/4 H/2",
            "x1:2 x2:2",
            "x1",
            None,
        ),
    ],
)
def test_lost_pods_go_where_the_case_says(
    case: int, nodes: str, request_text: str, where: str, failed: str, expected: dict[str, int] | None
) -> None:
    world = assigned(nodes, request_text, where)
    decision = fail(world, failed)
    if expected is None:
        assert isinstance(decision, Evict)
        assert decision.reason == "NodeFailures"
    else:
        assert isinstance(decision, Assign)
        assert world.hosts("a") == expected


def test_case_83_a_second_node_that_fails_evicts_the_workload() -> None:
    decision = fail(assigned(N, "unconstrained", "h1:2 h2:2"), "h1", "h2")
    assert isinstance(decision, Evict)
    assert decision.reason == "NodeFailures"


@pytest.mark.parametrize("on", [True, False])
def test_case_84_the_workload_of_a_single_pod_keeps_its_node(on: bool) -> None:
    world = assigned(N, "unconstrained", "h1:1", gates={"SkipReassignmentForPodOwnedWorkloads": on})
    manifest = world.workloads["a"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": True}
    world.put({**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}})
    decision = fail(world, "h1")
    assert isinstance(decision, Assign)
    assert world.hosts("a") == ({"h1": 1} if on else {"h3": 1})


def test_case_85_another_domain_that_is_gone_is_not_replaced() -> None:
    world = assigned(N, "unconstrained", "h1:1 h2:2")
    world.lose("h2")
    decision = fail(world, "h1")
    assert isinstance(decision, Evict)
    assert "h2 does not exist any more" in message(decision)
