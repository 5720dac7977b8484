"""Admitted means placeable: pods of admitted jobs find on their nodes the room that the engine counted.

The whole size: `PYKUEUE_TOPOLOGY_JOBS=10000 PYKUEUE_TOPOLOGY_NODES=500 python -m pytest` with this file.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any, Final

import pytest
from stories_world import Story, condition, holds, job, play
from topology_stories import RACK, annotated, hosts, queues

from pykueue.api.resources import NODES, PODS, WORKLOADS
from pykueue.embedded.nodes.pool import Life

Object = dict[str, Any]

JOBS: Final = int(os.environ.get("PYKUEUE_TOPOLOGY_JOBS", "24"))
HOSTS: Final = int(os.environ.get("PYKUEUE_TOPOLOGY_NODES", "8"))
CPU: Final = 8
#: A pod may wait so long for its node: the scheduler tries again, and pods of other jobs end, in less.
PATIENCE: Final = 120.0
STEP: Final = 15.0
ACTIVE: Final = "status.phase!=Succeeded,status.phase!=Failed"


def random_job(number: int, random: Random) -> Object:
    made = job(
        f"j{number}",
        random.choice((1, 2, 3, 4, 6, 8)),
        {"cpu": random.choice((1, 1, 2, 3))},
        run_time=f"{random.choice((20, 60, 120, 300))}s",
        backoffLimit=100,
    )
    request = random.choice(("required", "preferred", "unconstrained", "none"))
    if request == "none":
        return made
    return annotated(made, **{request: "true" if request == "unconstrained" else RACK})


class Waiting:
    """Since when ungated pods wait for nodes that are ready."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._since: dict[str, float] = {}

    async def look(self) -> None:
        """Note which pods wait. Fails if one does for longer than `PATIENCE`."""
        story = self._story
        now = story.clock.time()
        ready = {node["metadata"]["name"] for node in await story.all(NODES) if holds(node, "Ready")}
        # Pods that have ended are most of them in the end, and need not be read.
        pods = (await story.client.list(PODS, story.namespace, field_selector=ACTIVE)).items
        leaving = {pod["spec"].get("nodeName") for pod in pods if pod["metadata"].get("deletionTimestamp")}
        waiting: dict[str, float] = {}
        for pod in pods:
            spec, metadata = pod["spec"], pod["metadata"]
            node = (spec.get("nodeSelector") or {}).get("kubernetes.io/hostname", "")
            if spec.get("nodeName") or spec.get("schedulingGates") or metadata.get("deletionTimestamp"):
                continue
            if pod["status"].get("phase", "Pending") != "Pending" or node not in ready or node in leaving:
                continue
            since = waiting[metadata["uid"]] = self._since.get(metadata["uid"], now)
            text = condition(pod, "PodScheduled").get("message")
            assert now - since <= PATIENCE, f"{metadata['name']} waits for {node}: {text}"
        self._since = waiting


@pytest.mark.timeout(300 + JOBS)
def test_no_pod_of_an_admitted_job_waits_for_room_on_a_node_that_works() -> None:
    async def story(s: Story) -> None:
        random, waiting = Random(1), Waiting(s)
        for number in range(JOBS):
            await s.create(random_job(number, random))
            if number % 4 == 3:
                await s.wait(STEP * 16 / HOSTS)
                await waiting.look()
        for _ in range(400):
            for _ in range(5):
                await s.wait(STEP)
                await waiting.look()
            unfinished = [
                each["metadata"]["name"] for each in await s.all(WORKLOADS) if not holds(each, "Finished")
            ]
            if not unfinished:
                break
        assert unfinished == []

    life = Life(fail_every="1h", fail_for="1m-5m")
    nodes = hosts(racks=HOSTS // 4, of=4, cpu=CPU, life=life)
    play(story, nodes=nodes, objects=queues(HOSTS * CPU))
