"""Hybrid assignments: one pod set over several flavors."""

from __future__ import annotations

import json
from itertools import product
from random import Random
from typing import Any

import pytest
from engine_world import World

from pykueue.api.hybrid import HybridFlavor, HybridRequest, count_problem, parse_request, parts_of
from pykueue.api.kueue.names import HYBRID_ASSIGNMENT_ANNOTATION, HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION
from pykueue.engine import Engine, Options, Preempt, Upsert
from pykueue.engine.dump import dump, load
from pykueue.engine.explain.render import message
from pykueue.engine.flavors.splitting import Slices

Flavors = dict[str, dict[str, Any]]


def request(flavors: Flavors, slice_size: int = 1) -> dict[str, str]:
    """The annotations of a pod template that asks for these flavors."""
    value = {
        "flavors": [{"name": name, **bounds} for name, bounds in flavors.items()],
        "sliceSize": slice_size,
    }
    return {HYBRID_ASSIGNMENT_ANNOTATION: json.dumps(value)}


def queue(world: World, name: str, quotas: Any, *, permitted: bool = True, **more: Any) -> None:
    manifest = world.queue_manifest(name, quotas, **more)
    if permitted:
        manifest["metadata"]["annotations"] = {HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION: "true"}
    world.apply(manifest)
    world.local(name, name)


def world_of(*flavors: str) -> World:
    world = World()
    for name in flavors:
        world.flavor(name)
    return world


def job(world: World, name: str, count: int, wanted: Any = ("reserved", "spot"), **more: Any) -> None:
    """One cpu for each pod."""
    flavors = wanted if isinstance(wanted, dict) else {each: {} for each in wanted}
    annotations = request(flavors, more.pop("slice_size", 1))
    pods = {"main": {"requests": more.pop("cpu", 1), "count": count, "annotations": annotations}}
    pods["main"]["min"] = more.pop("min_count", None)
    world.workload(name, more.pop("queue", "q"), pods=pods, **more)


def parts(world: World, name: str) -> dict[str, int]:
    """Pods by flavor."""
    view = world.engine.workload(world.key(name))
    assert view is not None
    assert view.admission is not None
    (given,) = view.admission.pod_set_assignments
    found = parts_of(given)
    assert given.count is not None
    return dict(found) if found else {given.flavors["cpu"]: given.count}


def quotas(**amounts: Any) -> dict[str, dict[str, Any]]:
    return {name: {"cpu": amount} for name, amount in amounts.items()}


# --- which flavor gets how many -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reserved", "spot", "count", "wanted", "slice_size", "expected"),
    [
        pytest.param(12, 10, 20, {"reserved": {}, "spot": {}}, 1, {"reserved": 12, "spot": 8}, id="rest"),
        pytest.param(20, 10, 20, {"reserved": {}, "spot": {}}, 1, {"reserved": 20}, id="first-has-room"),
        pytest.param(0, 20, 20, {"reserved": {}, "spot": {}}, 1, {"spot": 20}, id="first-is-full"),
        pytest.param(12, 10, 20, {"spot": {}, "reserved": {}}, 1, {"spot": 10, "reserved": 10}, id="order"),
        pytest.param(
            20, 10, 20, {"reserved": {}, "spot": {"min": 4}}, 1, {"reserved": 16, "spot": 4}, id="minimum"
        ),
        pytest.param(
            20, 10, 20, {"reserved": {"max": "50%"}, "spot": {}}, 1, {"reserved": 10, "spot": 10}, id="share"
        ),
        pytest.param(11, 10, 20, {"reserved": {}, "spot": {}}, 4, None, id="slices-of-four-need-8-and-12"),
        pytest.param(
            11, 12, 20, {"reserved": {}, "spot": {}}, 4, {"reserved": 8, "spot": 12}, id="slices-of-four"
        ),
        pytest.param(9, 20, 20, {"reserved": {"min": "50%"}, "spot": {}}, 1, None, id="minimum-not-free"),
        pytest.param(9, 10, 20, {"reserved": {}, "spot": {}}, 1, None, id="not-enough"),
    ],
)
def test_pods_go_to_the_first_flavors_that_have_room(
    reserved: int, spot: int, count: int, wanted: Flavors, slice_size: int, expected: dict[str, int] | None
) -> None:
    world = world_of("reserved", "spot")
    queue(world, "q", quotas(reserved=reserved, spot=spot))
    job(world, "job", count, wanted, slice_size=slice_size)
    world.stable()
    assert (parts(world, "job") if "job" in world.reserved() else None) == expected
    if expected is not None:
        assert world.usage("q") == {f"{name}/cpu": str(pods) for name, pods in expected.items()}


def test_brute_force_finds_the_same_split() -> None:
    random = Random(1)
    for _ in range(400):
        number, size = random.choice((2, 2, 3)), random.choice((1, 1, 2, 3))
        flavors = [
            HybridFlavor(
                name=f"f{index}",
                min=random.choice((None, None, random.randrange(5), "30%")),
                max=random.choice((None, None, random.randrange(9), "70%")),
            )
            for index in range(number)
        ]
        wanted = HybridRequest(flavors=flavors, slice_size=size)
        pods = size * random.randrange(1, 5)
        room = [random.randrange(12) for _ in flavors]
        slices = Slices(pods, wanted)
        found = slices.fill([slices.in_pods(each) for each in room])

        def within(counts: tuple[int, ...], each: HybridRequest = wanted, pods: int = pods) -> bool:
            return all(
                (bound.min is None or count >= _share(bound.min, pods))
                and (bound.max is None or count <= _share(bound.max, pods))
                for bound, count in zip(each.flavors, counts, strict=True)
            )

        every = product(*[range(0, min(pods, space) + 1, size) for space in room])
        valid = [counts for counts in every if sum(counts) == pods and within(counts)]
        expected = max(valid) if valid else None
        assert (tuple(count * size for count in found) if found is not None else None) == expected
        if count_problem(wanted, pods):
            assert not any(
                within(c) and sum(c) == pods for c in product(range(0, pods + 1, size), repeat=number)
            )


def _share(bound: int | str, pods: int) -> float:
    return bound if isinstance(bound, int) else int(bound[:-1]) * pods / 100


# --- off by default, refused with a reason ------------------------------------------------------------------


def test_without_the_queues_permission_all_pods_get_one_flavor() -> None:
    world = world_of("reserved", "spot")
    queue(world, "q", quotas(reserved=12, spot=10), permitted=False)
    job(world, "job", 20)
    job(world, "small", 10)
    world.stable()
    assert world.reserved() == {"small"}
    assert parts(world, "small") == {"reserved": 10}


def test_permission_that_comes_later_admits_and_permission_that_goes_keeps() -> None:
    world = world_of("reserved", "spot")
    queue(world, "q", quotas(reserved=12, spot=10), permitted=False)
    job(world, "job", 20)
    world.stable()
    assert world.reserved() == set()
    queue(world, "q", quotas(reserved=12, spot=10))
    world.stable()
    assert parts(world, "job") == {"reserved": 12, "spot": 8}
    queue(world, "q", quotas(reserved=12, spot=10), permitted=False)
    world.stable()
    assert world.usage("q") == {"reserved/cpu": "12", "spot/cpu": "8"}


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        ("{", 'must be a JSON object such as {"flavors"'),
        ('{"flavors": [{"name": "reserved"}]}', "1 flavors are named; accepted: 2 to 8"),
        (
            '{"flavors": [{"name": "reserved"}, {"name": "gold"}]}',
            "flavors reserved and gold are not in the same resource group",
        ),
        (
            '{"flavors": [{"name": "silver"}, {"name": "gold"}]}',
            "ClusterQueue q has none of the flavors silver, gold for its resources",
        ),
        (
            '{"flavors": [{"name": "reserved", "max": 4}, {"name": "spot", "max": 4}]}',
            "10 pods cannot be split over flavors: at most 4 of flavor reserved, 4 of flavor spot",
        ),
    ],
)
def test_what_cannot_be_split_is_pending_with_the_reason(annotation: str, reason: str) -> None:
    world = world_of("reserved", "spot")
    queue(world, "q", quotas(reserved=12, spot=10))
    pods = {"requests": 1, "count": 10, "annotations": {HYBRID_ASSIGNMENT_ANNOTATION: annotation}}
    world.workload("job", "q", pods={"main": pods})
    world.stable()
    assert world.reserved() == set()
    assert reason in message(world.last["job"])


def test_flavors_that_the_pods_cannot_use_get_none_of_them() -> None:
    world = World()
    world.flavor("reserved")
    world.flavor("spot", taints=["spot=true"])
    queue(world, "q", quotas(reserved=12, spot=10))
    job(world, "small", 12)
    job(world, "large", 20)
    world.stable()
    assert world.reserved() == {"small"}
    assert "untolerated taint spot=true:NoSchedule in flavor spot" in message(world.last["large"])


@pytest.mark.parametrize(
    ("controller", "name"),
    [
        ("kueue.x-k8s.io/multikueue", "MultiKueue"),
        ("kueue.x-k8s.io/provisioning-request", "ProvisioningRequests"),
    ],
)
def test_queues_with_such_a_check_split_nothing(controller: str, name: str) -> None:
    world = world_of("reserved", "spot")
    check = world._kueue("AdmissionCheck", "c", {"controllerName": controller})
    check["status"] = {"conditions": [world.condition("Active", True, "Active")]}
    world.apply(check)
    queue(
        world, "q", quotas(reserved=12, spot=10), admissionChecksStrategy={"admissionChecks": [{"name": "c"}]}
    )
    job(world, "job", 20)
    world.stable()
    assert f"pods cannot be split over flavors: ClusterQueue q uses {name}" in message(world.last["job"])


def test_without_the_gate_of_topology_aware_scheduling_nothing_is_split() -> None:
    world = World(Options(gates={"TopologyAwareScheduling": False}))
    for name in ("reserved", "spot"):
        world.flavor(name)
    queue(world, "q", quotas(reserved=12, spot=10))
    job(world, "job", 20)
    world.stable()
    text = "hybrid assignments need the feature gate TopologyAwareScheduling"
    assert text in message(world.last["job"])


def test_elastic_jobs_are_not_split() -> None:
    world = world_of("reserved", "spot")
    queue(world, "q", quotas(reserved=12, spot=10))
    job(world, "job", 20, annotations={"kueue.x-k8s.io/elastic-job": "true"})
    world.stable()
    assert "the pods of an elastic job cannot be split over flavors" in message(world.last["job"])


# --- borrowing, preemption and the rest of the engine -------------------------------------------------------


@pytest.mark.parametrize(
    ("fungibility", "expected"),
    [
        (("MS", "TN"), {"reserved": 14, "spot": 2}),  # borrows 4 in the preferred flavor
        (("TN", "TN"), {"reserved": 10, "spot": 6}),  # goes to the next flavor instead
    ],
)
def test_whether_to_borrow_first_is_the_queues_policy(
    fungibility: tuple[str, str], expected: dict[str, int]
) -> None:
    world = world_of("reserved", "spot")
    world.cohort("all")
    queue(world, "q", quotas(reserved=10, spot=10), cohort="all", fungibility=fungibility)
    world.queue("other", quotas(reserved=4, spot=0), cohort="all")
    job(world, "job", 16)
    world.stable()
    assert parts(world, "job") == expected


@pytest.mark.parametrize(
    ("fungibility", "expected", "victims"),
    [
        # 18 pods fit, so 2 are preempted for, in the preferred flavor.
        (("MS", "TN"), {"reserved": 10, "spot": 10}, {"low-0", "low-1"}),
        # Preempting in the preferred flavor goes before the next flavor.
        (("MS", "MS"), {"reserved": 12, "spot": 8}, {"low-0", "low-1", "low-2", "low-3"}),
    ],
)
def test_preempts_for_what_is_lacking_or_in_the_first_flavor(
    fungibility: tuple[str, str], expected: dict[str, int], victims: set[str]
) -> None:
    world = world_of("reserved", "spot")
    queue(world, "q", quotas(reserved=12, spot=10), within="LowerPriority", fungibility=fungibility)
    for number in range(4):
        world.running(f"low-{number}", "q", 1, flavor="reserved", prio=-1, reserved=number + 1.0)
    job(world, "job", 20)
    world.cycle()
    evicted = {name for _, name, _ in world.preempted}
    assert len(evicted) == len(victims)
    for name in evicted:
        world.release(name)
    world.stable()
    assert parts(world, "job") == expected


def test_a_split_workload_is_preempted_as_a_whole() -> None:
    world = world_of("reserved", "spot")
    queue(world, "q", quotas(reserved=12, spot=10), within="LowerPriority")
    job(world, "job", 20)
    world.stable()
    world.workload("high", "q", 1, prio=5, count=3, template={"nodeSelector": {}})
    world.cycle()
    world.release("job")
    assert world.usage("q") == {}
    world.stable()
    assert "high" in world.reserved()


def test_two_pod_sets_share_what_the_flavors_have() -> None:
    world = world_of("reserved", "spot")
    queue(world, "q", quotas(reserved=12, spot=10))
    wanted = request({"reserved": {}, "spot": {}})
    pods = {
        "leader": {"requests": 4, "count": 1},
        "workers": {"requests": 1, "count": 16, "annotations": wanted},
    }
    world.workload("job", "q", pods=pods)
    world.stable()
    assert world.usage("q") == {"reserved/cpu": "12", "spot/cpu": "8"}


def test_other_resource_groups_keep_one_flavor_for_all_pods() -> None:
    world = world_of("reserved", "spot", "any")
    queue(world, "q", [{"reserved": {"gpu": 4}, "spot": {"gpu": 8}}, {"any": {"cpu": 20}}])
    wanted = request({"reserved": {}, "spot": {}})
    world.workload(
        "job", "q", pods={"main": {"requests": {"cpu": 2, "gpu": 1}, "count": 6, "annotations": wanted}}
    )
    world.stable()
    assert world.usage("q") == {"reserved/gpu": "4", "spot/gpu": "2", "any/cpu": "12"}
    assert world.flavors("job") == {"main": {"cpu": "any", "gpu": "reserved"}}


def test_partial_admission_splits_the_smaller_size() -> None:
    world = world_of("reserved", "spot")
    queue(world, "q", quotas(reserved=12, spot=4))
    job(world, "job", 20, min_count=10)
    world.stable()
    assert parts(world, "job") == {"reserved": 12, "spot": 4}


def test_a_part_keeps_its_quota_until_fewer_pods_are_left_than_it_has() -> None:
    world = world_of("reserved", "spot")
    queue(world, "q", quotas(reserved=12, spot=10))
    job(world, "job", 20)
    world.stable()
    for ended, usage in (
        (6, {"reserved/cpu": "12", "spot/cpu": "8"}),
        (10, {"reserved/cpu": "10", "spot/cpu": "8"}),
        (15, {"reserved/cpu": "5", "spot/cpu": "5"}),
    ):
        world.status("job", reclaimablePods=[{"name": "main", "count": ended}])
        assert world.usage("q") == usage


def test_weighted_budgets_count_each_part_by_its_flavor() -> None:
    world = world_of("reserved", "spot")
    queue(world, "q", quotas(reserved=12, spot=10))
    budget = {
        "selector": {"clusterQueue": "q"},
        "reservation": "Declared",
        "resources": [{"name": "cpu", "hours": "16", "flavorWeights": [{"name": "spot", "weight": "500m"}]}],
    }
    world.apply(
        {"apiVersion": "pykueue.io/v1alpha1", "kind": "Budget", "metadata": {"name": "b"}, "spec": budget}
    )
    job(world, "job", 20, maximumExecutionTimeSeconds=3600)  # 12 + 8 / 2 hours
    job(world, "more", 1, maximumExecutionTimeSeconds=3600)
    world.stable()
    assert world.reserved() == {"job"}


def test_dump_and_restart_keep_the_parts() -> None:
    world = world_of("reserved", "spot")
    queue(world, "q", quotas(reserved=12, spot=10))
    job(world, "job", 20)
    job(world, "later", 20)
    world.stable()
    loaded = load(dump(world.engine))
    again = Engine()
    for event in world.events:
        again.apply(event)
    for obj in world.driver.workloads.values():
        again.apply(Upsert(obj))
    for engine in (loaded, again):
        engine.check()
        view = engine.cluster_queue("q")
        assert view is not None
        assert {item.flavor: str(item.total) for item in view.reservation} == {"reserved": "12", "spot": "8"}


# --- the same as separate pod sets --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_split_workloads_get_what_separate_pod_sets_get(seed: int) -> None:
    """Beside them, the same pods as pod sets of one workload, each of which selects the flavor of a part."""
    random = Random(seed)
    names = ["reserved", "spot", "other"][: random.choice((2, 3))]
    amounts = {each: {name: random.randrange(4, 14) for name in names} for each in "pq"}
    plan = [
        (f"w{number:02d}", random.choice("pq"), random.randrange(1, 12), random.choice((1, 2)))
        for number in range(12)
    ]
    split, separate = random_world(names, amounts), random_world(names, amounts)
    several = 0
    for name, of, count, cpu in plan:
        job(split, name, count, tuple(names), cpu=cpu, queue=of)
        split.stable()
        if name not in split.reserved():
            split.finish(name)
            continue
        found = parts(split, name)
        several += len(found) > 1
        pods = {
            flavor: {"requests": cpu, "count": number, "template": {"nodeSelector": {"flavor": flavor}}}
            for flavor, number in found.items()
        }
        separate.workload(name, of, pods=pods)
        separate.stable()
        for each in "pq":
            assert split.usage(each) == separate.usage(each)
    assert several


def random_world(names: list[str], amounts: dict[str, dict[str, int]], **policy: str) -> World:
    """Two ClusterQueues that borrow from each other."""
    world = World()
    for name in names:
        world.flavor(name, labels={"flavor": name})
    world.cohort("all")
    for each, own in amounts.items():
        queue(world, each, quotas(**own), cohort="all", **policy)
    return world


@pytest.mark.parametrize("seed", range(6))
def test_no_flavor_is_over_its_quota_and_a_fork_leaves_no_trace(seed: int) -> None:
    random = Random(seed)
    names = ["reserved", "spot"]
    amounts = {each: {name: random.randrange(4, 14) for name in names} for each in "pq"}
    world = random_world(names, amounts, within="LowerPriority", reclaim="Any")
    for number in range(24):
        bounds: Flavors = {"reserved": {"min": random.choice((0, "25%"))}, "spot": {}}
        more = {"slice_size": random.choice((1, 1, 2)), "cpu": random.choice((1, 2))}
        job(
            world,
            f"w{number:02d}",
            2 * random.randrange(1, 7),
            bounds,
            queue=random.choice("pq"),
            prio=random.choice((0, 3)),
            **more,
        )
        before = dump(world.engine)
        with world.engine.fork() as fork:
            fork.cycle(world.now)
        assert dump(world.engine) == before
        for _ in range(6):
            for decision in world.cycle():
                if isinstance(decision, Preempt):
                    world.release(decision.key.partition("/")[2])
            for name in names:
                used = sum(int(world.usage(each).get(f"{name}/cpu", 0)) for each in "pq")
                assert used <= sum(own[name] for own in amounts.values())
        if number % 3 == 2 and world.reserved():
            world.finish(random.choice(sorted(world.reserved())))
    assert world.preempted


def test_parse_request_reads_what_is_written() -> None:
    text = request({"reserved": {"min": "50%"}, "spot": {"max": 8}}, 4)[HYBRID_ASSIGNMENT_ANNOTATION]
    found = parse_request(text)
    assert [(each.name, each.min, each.max) for each in found.flavors] == [
        ("reserved", "50%", None),
        ("spot", None, 8),
    ]
    assert found.slice_size == 4
