"""Metrics as a dashboard written for Kueue reads them."""

from __future__ import annotations

import re

from manager_stack import Stack, job, story

from pykueue.kube.resources import WORKLOADS


def read(text: bytes) -> dict[str, float]:
    """Value by name and labels, without the role."""
    found = {}
    for line in text.decode().splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[re.sub(r',?replica_role="[a-z]+"', "", name).replace("{,", "{")] = float(value)
    return found


def test_a_job_leaves_its_traces_in_every_metric() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 6))
        await s.settle()
        await s.apply(job("b", 6))
        await s.settle()
        await s.run_job("a")
        await s.settle()
        now = read(s.manager.metrics.text())
        assert now['kueue_pending_workloads{cluster_queue="cq",status="inadmissible"}'] == 1
        assert now['kueue_admitted_active_workloads{cluster_queue="cq"}'] == 1
        assert now['kueue_cluster_queue_status{cluster_queue="cq",status="active"}'] == 1
        assert now['kueue_local_queue_status{active="True",name="lq",namespace="default"}'] == 1
        amount = '{cohort="",cluster_queue="cq",flavor="default-flavor",resource="cpu"}'
        amounts = {
            name: value for name, value in now.items() if name.startswith("kueue_cluster_queue_resource")
        }
        assert sorted(amounts.values()) == [6, 6], amount
        await s.finish_job("a")
        name = (await s.workload("b"))["metadata"]["name"]
        await s.settle()
        await s.patch(WORKLOADS, name, {"spec": {"active": False}})
        await s.settle()
        now = read(s.manager.metrics.text())
        for counter in ("quota_reserved", "admitted"):
            assert now[f'kueue_{counter}_workloads_total{{cluster_queue="cq",priority_class=""}}'] == 2
        assert now['kueue_finished_workloads_total{cluster_queue="cq",priority_class=""}'] == 1
        evicted = [v for k, v in now.items() if k.startswith("kueue_evicted_workloads_total")]
        assert evicted == [1]
        assert now['kueue_admission_wait_time_seconds_count{cluster_queue="cq",priority_class=""}'] == 2
        assert now['kueue_execution_time_seconds_count{cluster_queue="cq",priority_class=""}'] == 1
        assert any('kueue_admission_attempts_total{result="success"' in line for line in now)

    story(life, "metrics: {enableClusterQueueResources: true}")


def test_what_happened_before_the_start_is_not_counted_again() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a"))
        await s.settle()
        await s.finish_job("a")
        await s.settle()
        await s.stop_manager()
        await s.start_manager()
        await s.settle()
        now = read(s.manager.metrics.text())
        assert not [name for name in now if name.startswith("kueue_admitted_workloads_total")]
        assert now['kueue_finished_workloads{cluster_queue="cq"}'] == 1

    story(life)
