"""`questions.why`: what keeps a workload pending other than quota."""

from __future__ import annotations

from typing import Any

from engine_world import START, World

from pykueue.engine import Options
from pykueue.questions import Why, why


def ask(world: World, name: str = "w") -> Why:
    return why(world.engine, world.key(name), world.now)


def blocks(answer: Why) -> list[tuple[str, str]]:
    return [(block.reason, block.message) for block in answer.blocks]


def world_with(options: Options | None = None, **queue: Any) -> World:
    world = World(options)
    world.flavor()
    world.queue("q", {"f": {"cpu": 10}}, **queue)
    return world


def test_namespace_that_the_selector_does_not_match() -> None:
    world = world_with(selector={"matchLabels": {"team": "a"}})
    world.workload("w", "q", 1)
    answer = ask(world)
    assert blocks(answer) == [
        ("Misconfigured", "ClusterQueue q does not take workloads of namespace default")
    ]
    assert answer.head is not None
    assert (answer.head.outcome, answer.head.changes) == ("Pending", [])


def test_queue_that_does_not_exist() -> None:
    world = world_with()
    world.workload("w", "absent", 1)
    answer = ask(world)
    assert blocks(answer) == [("Misconfigured", "LocalQueue absent doesn't exist")]
    assert answer.cluster_queue == ""


def test_gate_annotation() -> None:
    world = world_with()
    world.workload("w", "q", 1, annotations={"kueue.x-k8s.io/admission-gated-by": "example.com/gate"})
    assert [reason for reason, _ in blocks(ask(world))] == ["AdmissionGated"]


def test_back_off_after_an_eviction_and_the_head_beyond_it() -> None:
    world = world_with()
    world.workload(
        "w",
        "q",
        1,
        status={"requeueState": {"count": 1, "requeueAt": "2023-11-14T23:13:20Z"}},
    )
    assert world.now < START + 3600
    answer = ask(world)
    assert blocks(answer) == [("Requeued", "it is considered again at 2023-11-14T23:13:20Z")]
    assert answer.head is not None
    assert answer.head.outcome == "Admitted"


def test_pods_of_another_workload_that_are_not_ready() -> None:
    world = world_with(Options(block_admission=True))
    world.running("first", "q", 1)
    world.workload("w", "q", 1)
    world.cycle()
    (block,) = ask(world).blocks
    assert block.reason == "WaitingForPodsReady"
    assert block.message.endswith("until the pods of 1 admitted workload(s) are ready: default/first")


def test_cohort_cycle() -> None:
    world = World()
    world.flavor()
    world.cohort("a", "b")
    world.cohort("b", "a")
    world.queue("q", {"f": {"cpu": 10}}, cohort="a")
    world.workload("w", "q", 1)
    (block,) = ask(world).blocks
    assert block.object == "ClusterQueue q"
    assert "cycle" in block.message
