"""Topology-aware scheduling on a whole cluster: pods run where their Workload's assignment puts them."""

from __future__ import annotations

from stories_world import Story, job, play
from topology_stories import RACK, annotated, assigned, bound, hosts, queues


def test_pods_of_a_required_rack_run_on_the_hosts_of_the_assignment_in_order_of_rank() -> None:
    async def story(s: Story) -> None:
        await s.create(annotated(job("a", 4, {"cpu": 2}, run_time="1h"), required=RACK))
        await s.wait(20)
        assert await s.admitted("a")
        assert await assigned(s, "a") == {"n-0": 2, "n-1": 2}
        assert await bound(s, "a-") == {"n-0": 2, "n-1": 2}
        assert await s.running("a-") == 4
        by_index = {
            pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]: pod["spec"]["nodeName"]
            for pod in await s.pods("a-")
        }
        assert by_index == {"0": "n-0", "1": "n-0", "2": "n-1", "3": "n-1"}

    play(story, nodes=hosts(), objects=queues())
