"""Topology-aware scheduling on worker clusters (docs/reference/admission-checks.md 20.3)."""

from __future__ import annotations

from typing import Any

import pytest
from clusters_world import Clusters, play
from stories_world import job
from topology_stories import RACK, annotated, domains_of, hosts, queues

Object = dict[str, Any]


class WithTopology(Clusters):
    """The manager's flavor names a Topology that there is on workers only."""

    def queues(self, manager: bool) -> list[Object]:
        return [one for one in queues() if not (manager and one["kind"] == "Topology")]


class WithTopologyEverywhere(Clusters):
    """The manager has the Topology too, but no nodes."""

    def queues(self, manager: bool) -> list[Object]:
        return queues()


def given(workload: Object) -> Object:
    (found,) = workload["status"]["admission"]["podSetAssignments"]
    return dict(found)


@pytest.mark.parametrize("kind", [WithTopology, WithTopologyEverywhere], ids=["there", "on both"])
def test_worker_chooses_the_nodes(kind: type[Clusters]) -> None:
    async def story(c: Clusters) -> None:
        await c.manager.create(annotated(job("a", 4, run_time="60s"), required=RACK))
        await c.wait(20)
        (worker,) = await c.placed("a")
        copy, local = await c.workers[worker].workload("a"), await c.manager.workload("a")
        assert {domain.values[0] for domain in domains_of(given(copy))} <= {"n-0", "n-1", "n-2", "n-3"}
        assert sum(domain.pods for domain in domains_of(given(copy))) == 4
        # The manager knows that the nodes are chosen, and not which.
        assert given(local).get("delayedTopologyRequest", "Ready") == "Ready"
        assert "topologyAssignment" not in given(local)
        assert await c.manager.holds("a", "Admitted")
        racks = {pod["spec"]["nodeName"] in ("n-0", "n-1") for pod in await c.workers[worker].pods("a-")}
        assert len(racks) == 1
        await c.wait(90)
        assert await c.manager.holds("a", "Finished")

    play(story, "w1", "w2", pools=hosts(), kind=kind)
