"""Elastic jobs on topologies: pods that run stay where they are while the job grows and shrinks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from stories_world import Story, job, play
from topology_stories import RACK, D, annotated, domains_of, hosts, queues

from pykueue.api.conditions import is_finished
from pykueue.api.resources import JOBS, WORKLOADS
from pykueue.kube.errors import ApiError

ON = "featureGates: {ElasticJobsViaWorkloadSlicesWithTAS: true}"


def elastic(pods: int, **topology: str) -> dict[str, Any]:
    made = job("a", pods, {"cpu": 2}, annotations={f"{D}/elastic-job": "true"}, run_time="forever")
    return annotated(made, **topology)


async def resize(s: Story, pods: int) -> None:
    await s.patch(JOBS, "a", {"spec": {"parallelism": pods, "completions": pods}})
    await s.wait(20)


async def nodes(s: Story) -> dict[str, str]:
    """The node of each pod by name; "" for none."""
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in await s.pods("a-")}


async def assigned(s: Story) -> dict[str, int]:
    """Pods by host in the assignment of the slice that has the quota."""
    (active,) = (one for one in await s.all(WORKLOADS) if not is_finished(one))
    (given,) = active["status"]["admission"]["podSetAssignments"]
    return {domain.values[-1]: domain.pods for domain in domains_of(given)}


@pytest.mark.parametrize("configuration", [ON, None], ids=["gate on", "gate off"])
def test_gate_decides_whether_the_new_slice_keeps_the_nodes_of_pods_that_run(
    configuration: str | None,
) -> None:
    async def story(s: Story) -> None:
        await s.create(elastic(3, unconstrained="true"))
        await s.wait(20)
        before = await nodes(s)
        assert Counter(before.values()) == Counter(await assigned(s))
        await resize(s, 5)
        after = await nodes(s)
        assert before.items() <= after.items(), "pods that run stay where they are"
        assert "" not in after.values()
        # Without the gate the new slice is placed as if its job did not run yet.
        agrees = Counter(after.values()) == Counter(await assigned(s))
        assert agrees is (configuration == ON)

    play(story, configuration, nodes=hosts(racks=2, of=2, cpu=4), objects=queues())


def test_elastic_job_that_shrinks_and_grows_again_keeps_the_nodes_of_its_pods() -> None:
    async def story(s: Story) -> None:
        await s.create(elastic(5, unconstrained="true"))
        await s.wait(20)
        await resize(s, 2)
        before = await nodes(s)
        assert len(before) == 2
        await resize(s, 4)
        after = await nodes(s)
        assert before.items() <= after.items()
        assert Counter(after.values()) == Counter(await assigned(s))

    play(story, ON, nodes=hosts(racks=2, of=2, cpu=4), objects=queues())


@pytest.mark.parametrize("mode", ["required", "preferred"])
def test_elastic_job_with_a_level_is_refused(mode: str) -> None:
    async def story(s: Story) -> None:
        with pytest.raises(ApiError, match=f"podset-{mode}-topology.*cannot be combined with an elastic job"):
            await s.create(elastic(3, **{mode: RACK}))

    play(story, ON, nodes=hosts(), objects=queues())
