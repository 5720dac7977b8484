"""How much of fragmented nodes required racks fill, compared with an exhaustive search.

More instances: `PYKUEUE_PACKING_RUNS=100 python -m pytest -s` with this file, which prints the figures.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import Final

import pytest
from topology_world import NodeWorld

RACKS: Final = 4
HOSTS: Final = 4
CPU: Final = 8
TOTAL: Final = RACKS * HOSTS * CPU
INSTANCES: Final = int(os.environ.get("PYKUEUE_PACKING_RUNS", "6"))


def fragmented(random: Random, filled: float) -> tuple[NodeWorld, list[int]]:
    """Nodes that were full of small workloads, of which some ended; and what each rack has left."""
    hosts = [[f"h{rack}{host}" for host in range(HOSTS)] for rack in range(RACKS)]
    nodes = ",".join(
        f"r{rack}{{" + ",".join(f"{host}:{CPU}" for host in of_rack) + "}"
        for rack, of_rack in enumerate(hosts)
    )
    world = NodeWorld(nodes, quota=TOTAL)
    sizes: dict[str, int] = {}
    while (left := TOTAL - sum(sizes.values())) > 0:
        name, pods = f"f{len(sizes)}", min(random.choice((1, 2, 3, 5, 7)), left)
        world.placed(name, pods, {"unconstrained": True})
        sizes[name] = pods
    world.stable(500)
    for name in random.sample(sorted(sizes), len(sizes)):
        if sum(sizes.values()) - sizes[name] >= filled * TOTAL:
            world.finish(name)
            del sizes[name]
    used: Counter[str] = Counter()
    for name in world.reserved():
        used.update(world.hosts(name))
    return world, [sum(CPU - used[host] for host in of_rack) for of_rack in hosts]


def most(free: list[int], sizes: list[int]) -> int:
    """The most pods of any of these groups that racks with so much left can hold, each group in one rack."""
    reached = {tuple(sorted(free))}
    for size in sizes:
        reached |= {
            tuple(sorted((*racks[:at], left - size, *racks[at + 1 :])))
            for racks in reached
            for at, left in enumerate(racks)
            if left >= size
        }
    return sum(free) - min(map(sum, reached))


@pytest.mark.parametrize("filled", [0.75, 0.9])
def test_required_racks_fill_within_two_points_of_what_an_exhaustive_search_finds(filled: float) -> None:
    """The search may leave out any workload; the engine admits in the order of the queue."""
    used = best = 0
    for seed in range(INSTANCES):
        random = Random(seed)
        world, free = fragmented(random, filled)
        sizes = [random.choice((2, 3, 4, 6, 8)) for _ in range(12)]
        for number, size in enumerate(sizes):
            world.placed(f"w{number}", size, {"required": "rack"})
        world.stable(1000)
        admitted = sum(sizes[int(name[1:])] for name in world.reserved() if name.startswith("w"))
        used += TOTAL - sum(free) + admitted
        best += TOTAL - sum(free) + most(free, sizes)
    share, possible = used / (INSTANCES * TOTAL), best / (INSTANCES * TOTAL)
    print(
        f"filled {filled:.0%}, then racks: {share:.1%} used, {possible:.1%} by the search ({INSTANCES} runs)"
    )
    assert possible - share <= 0.02
