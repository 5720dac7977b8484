"""Metrics as a dashboard written for Kueue reads them."""

from __future__ import annotations

import re

import pytest
from manager_stack import Stack, job, story
from pods_world import FLAVORED, PODS_ON, Pods, member, pod

from pykueue.api.resources import WORKLOADS


def read(text: bytes) -> dict[str, float]:
    """Value by name and labels, without the role."""
    found = {}
    for line in text.decode().splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[re.sub(r',?replica_role="[a-z]+"', "", name).replace("{,", "{")] = float(value)
    return found


def test_every_metric_counts_a_job_from_queueing_to_its_end() -> None:
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
        assert sorted(amounts.values()) == [6, 6, 6], amount
        assert now['kueue_cluster_queue_resource_pending{cluster_queue="cq",resource="cpu"}'] == 6
        assert now['kueue_pending_scheduling_hashes{cluster_queue="cq",status="inadmissible"}'] == 1
        waits = 'reason="NoReservation",underlying_cause="WaitingForQuota"'
        assert now[f'kueue_unadmitted_workloads{{cluster_queue="cq",{waits}}}'] == 1
        local = f'cluster_queue="cq",name="lq",namespace="default",{waits}'
        assert now[f"kueue_local_queue_unadmitted_workloads{{{local}}}"] == 1
        assert now['kueue_workload_creation_latency_seconds_count{job_kind="Job"}'] >= 1
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


def test_counters_do_not_count_earlier_events_again_after_a_restart() -> None:
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


TREE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default-flavor}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: team, labels: {cost-centre: "7", tier: odd}}
spec: {parentName: all}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq, labels: {tier: gold}, annotations: {owner: ops}}
spec:
  cohortName: team
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: default-flavor
      resources: [{name: cpu, nominalQuota: 10}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: default, labels: {tier: silver}}
spec: {clusterQueue: cq}
"""
CUSTOM = """
featureGates: {CustomMetricLabels: true}
metrics:
  customLabels:
  - {name: tier, trackedValues: [gold, bronze]}
  - {name: owner, sourceAnnotationKey: owner}
  - {name: level, sourceKind: LocalQueue, sourceLabelKey: tier, trackedValues: [bronze]}
  - {name: centre, sourceKind: Cohort, sourceLabelKey: cost-centre}
  - {name: size, sourceKind: Workload, sourceLabelKey: size, trackedValues: [big]}
integrations: {frameworks: [batch/job]}
"""


def test_cohort_metrics_sum_quota_and_reservations_of_the_subtree() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 6))
        await s.settle()
        now = read(s.manager.metrics.text())
        for cohort in ("team", "all"):
            pair = f'{{cohort="{cohort}",flavor="default-flavor",resource="cpu"}}'
            assert now[f"kueue_cohort_subtree_quota{pair}"] == 10
            assert now[f"kueue_cohort_subtree_resource_reservations{pair}"] == 6
            assert now[f'kueue_cohort_subtree_admitted_active_workloads{{cohort="{cohort}"}}'] == 1
            counted = f'{{cohort="{cohort}",priority_class=""}}'
            assert now[f"kueue_cohort_subtree_admitted_workloads_total{counted}"] == 1
            assert f'kueue_cohort_weighted_share{{cohort="{cohort}"}}' in now
        assert now['kueue_cohort_info{cohort="team",parent_cohort="all",root_cohort="all"}'] == 1
        place = '{cluster_queue="cq",parent_cohort="team",root_cohort="all"}'
        assert now[f"kueue_cluster_queue_info{place}"] == 1

    story(life, "fairSharing: {preemptionStrategies: [LessThanInitialShare]}", TREE)


def test_custom_labels_are_taken_from_queues_cohorts_and_workloads() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 6, labels={"size": "big"}))
        await s.apply(job("b", 6, labels={"size": "odd"}))
        await s.settle()
        now = read(s.manager.metrics.text())
        queue = 'cluster_queue="cq",custom_owner="ops"'
        assert now[f'kueue_reserving_active_workloads{{{queue},custom_tier="gold"}}'] == 1
        admitted = f'{queue},custom_size="big",custom_tier="gold"'
        assert now[f"kueue_admitted_active_workloads{{{admitted}}}"] == 1
        other = "kueue.x-k8s.io/_UNTRACKED_VALUE_"
        waiting = f'{queue},custom_size="{other}",custom_tier="gold",status="inadmissible"'
        assert now[f"kueue_pending_workloads{{{waiting}}}"] == 1
        local = f'custom_level="{other}",custom_size="big",name="lq",namespace="default"'
        assert now[f"kueue_local_queue_admitted_active_workloads{{{local}}}"] == 1
        assert now[f'kueue_local_queue_admitted_workloads_total{{{local},priority_class=""}}'] == 1
        assert now['kueue_cohort_subtree_admitted_active_workloads{cohort="team",custom_centre="7"}'] == 1

    story(life, CUSTOM, TREE)


@pytest.mark.parametrize("gate", [True, False])
def test_gate_decides_whether_metrics_have_custom_labels(gate: bool) -> None:
    async def life(s: Stack) -> None:
        assert (b"custom_" in s.manager.metrics.text()) is gate

    story(life, CUSTOM.replace("CustomMetricLabels: true", f"CustomMetricLabels: {str(gate).lower()}"), TREE)


def test_follower_serves_gauges_and_no_counters() -> None:
    async def life(s: Stack) -> None:
        s.manager.metrics.role = "follower"
        await s.apply(job("a", 6))
        await s.settle()
        text = s.manager.metrics.text().decode()
        assert 'kueue_admitted_active_workloads{cluster_queue="cq",replica_role="follower"} 1.0' in text
        assert "kueue_admitted_workloads_total{" not in text

    story(life)


def test_time_from_admission_to_gate_removal_is_measured_for_pods_and_groups() -> None:
    async def life(s: Stack) -> None:
        pods = Pods(s)
        await pods.create(pod("single"), member("a", 2), member("b", 2))
        await s.settle()
        now = read(s.manager.metrics.text())
        counts = {
            is_group: now[
                "kueue_pod_scheduling_gate_removal_seconds_count"
                f'{{cluster_queue="cq",is_group="{is_group}",name="kueue.x-k8s.io/admission"}}'
            ]
            for is_group in ("true", "false")
        }
        assert counts == {"true": 2, "false": 1}

    story(life, PODS_ON, FLAVORED)
