"""A ClusterQueue with other amounts: what is counted again in place is what a rebuilt tree has."""

from __future__ import annotations

import random
from typing import Any

import pytest
from engine_world import World

from pykueue.engine.quota.tree import Cohort, Forest, Node

FLAVORS = ("f", "g")
AMOUNTS = ("nominal", "borrowing_limit", "lending_limit", "subtree", "local", "cap", "potential", "withheld")


def quotas(rng: random.Random) -> dict[str, dict[str, str]]:
    def text() -> str:
        found = str(rng.randint(0, 12))
        if rng.random() < 0.5:
            found += f" BL {rng.randint(0, 6)}"
        if rng.random() < 0.5:
            found += f" LL {rng.randint(0, 6)}"
        return found

    return {flavor: {"cpu": text(), "memory": text()} for flavor in FLAVORS}


def amounts(world: World) -> dict[str, Any]:
    """Everything that is derived from quotas, by node."""
    state = world.engine._state
    nodes: list[Node] = [*state.queues.values(), *state.forest.cohorts.values()]
    found: dict[str, Any] = {}
    for node in nodes:
        for index, usage in sorted(node.flavor_usages.items()):
            found[f"{node.name}/{index}"] = [getattr(usage, each) for each in (*AMOUNTS, "usage")]
        if isinstance(node, Cohort):
            found[node.name] = dict(sorted(node.lendable.items()))
    return found


def made(seed: int) -> tuple[World, random.Random]:
    rng = random.Random(seed)
    world = World()
    for flavor in FLAVORS:
        world.flavor(flavor)
    for name in ("a", "b"):
        world.cohort(name, parent="root")
    for number in range(5):
        world.queue(f"q{number}", quotas(rng), cohort=rng.choice(("a", "b", "root")))
    for number in range(25):
        world.workload(f"w{number}", f"q{rng.randrange(5)}", rng.randint(1, 4))
    world.stable()
    return world, rng


@pytest.mark.interpreted
@pytest.mark.parametrize("seed", range(25))
def test_amounts_changed_in_place_are_those_of_a_rebuilt_tree(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, rng = made(seed)
    in_place: list[bool] = []
    requote = Forest._requote

    def noted(self: Forest, node: Node, root: Node) -> bool:
        in_place.append(requote(self, node, root))
        return in_place[-1]

    monkeypatch.setattr(Forest, "_requote", noted)
    before = amounts(world)
    with world.engine.fork() as fork:
        world.queue("q0", quotas(rng), cohort="b")
        fork.has_heads()
    assert amounts(world) == before
    home = world.engine.cluster_queue_object("q1").spec.cohort_name  # type: ignore[union-attr]
    for _ in range(6):
        world.queue("q1", quotas(rng), cohort=home)
        world.engine.has_heads()
        found = amounts(world)
        world.engine.check()
        state = world.engine._state
        state.forest._build(state.queues["q1"].tree.root, set())
        assert found == amounts(world)
        world.stable()
    assert any(in_place)
