"""docs/use/metrics.md says of every metric of the reference whether it is emitted, and says the truth."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from manager_replica import configured
from manager_stack import Stack, job, story
from prometheus_client.parser import text_string_to_metric_families

from pykueue.clock import Clock, run_virtual
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.store.memory import MemoryStore
from pykueue.manager.replica import Replica
from pykueue.prometheus import Registry

PAGE = (Path(__file__).parents[2] / "docs" / "use" / "metrics.md").read_text(encoding="utf-8")
EVERYTHING = """
metrics: {enableClusterQueueResources: true}
fairSharing: {preemptionStrategies: [LessThanInitialShare]}
admissionFairSharing: {usageHalfLifeTime: 1h}
"""

#: The reference's metrics (docs/reference/kueue-api.md 6), without `kueue_`, which all but two begin with.
_NAMES = """
admission_attempts_total admission_attempt_duration_seconds admission_cycle_preemption_skips
preemption_target_recomputations_total multikueue_workloads_dispatched_total
multikueue_workloads_admitted_total build_info pending_workloads pending_scheduling_hashes finished_workloads
reserving_active_workloads admitted_active_workloads unadmitted_workloads quota_reserved_workloads_total
admitted_workloads_total finished_workloads_total quota_reserved_wait_time_seconds admission_wait_time_seconds
admission_checks_wait_time_seconds ready_wait_time_seconds admitted_until_ready_wait_time_seconds
execution_time_seconds evicted_workloads_total evicted_workloads_once_total preempted_workloads_total
pods_ready_to_evicted_time_seconds workload_eviction_latency_seconds replaced_workload_slices_total
workload_creation_latency_seconds pod_scheduling_gate_removal_seconds cluster_queue_status cluster_queue_info
cluster_queue_resource_pending cluster_queue_resource_reservation cluster_queue_resource_usage
cluster_queue_nominal_quota cluster_queue_borrowing_limit cluster_queue_lending_limit
cluster_queue_weighted_share cohort_weighted_share cohort_info cohort_subtree_quota
cohort_subtree_resource_reservations cohort_subtree_admitted_workloads_total
cohort_subtree_admitted_active_workloads local_queue_pending_workloads local_queue_finished_workloads
local_queue_reserving_active_workloads local_queue_admitted_active_workloads local_queue_status
local_queue_resource_reservation local_queue_resource_usage local_queue_admission_fair_sharing_usage
local_queue_unadmitted_workloads local_queue_quota_reserved_workloads_total
local_queue_admitted_workloads_total local_queue_finished_workloads_total local_queue_evicted_workloads_total
local_queue_quota_reserved_wait_time_seconds local_queue_admission_wait_time_seconds
local_queue_admission_checks_wait_time_seconds local_queue_ready_wait_time_seconds
local_queue_admitted_until_ready_wait_time_seconds local_queue_execution_time_seconds
"""
REFERENCE = _NAMES.split()


def rows(heading: str) -> list[list[str]]:
    section = PAGE.split(f"## {heading}")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


EMITTED = {row[0]: row for row in rows("What is emitted")}
ABSENT = {row[0]: row[1] for row in rows("What is not")}


def types(registry: Registry) -> dict[str, str]:
    """Type by name as a scrape shows it."""
    found = {}
    for family in registry.collect():
        if not family.name.startswith(("process_", "python_")):
            found[family.full_name] = family.kind
    return found


def test_every_metric_of_the_reference_is_in_one_of_the_tables() -> None:
    named = {name if name.startswith("multikueue_") else f"kueue_{name}" for name in REFERENCE}
    assert len(named) == len(REFERENCE)
    assert named <= EMITTED.keys() | {name for name in ABSENT if "*" not in name}
    assert not EMITTED.keys() & ABSENT.keys()
    assert all(ABSENT.values())


def test_the_table_is_what_a_replica_emits() -> None:
    async def main(clock: Clock) -> dict[str, str]:
        server = Server(MemoryStore(), clock, random.Random(1))
        replica = Replica(server.transport(), configured(EVERYTHING), clock, random.Random(1))
        return types(replica.manager.metrics.registry)

    assert {name: row[1] for name, row in EMITTED.items()} == run_virtual(main)


def test_the_labels_are_those_of_the_table() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 6))
        await s.settle()  # "a" is admitted: the order of jobs of one second follows their random UIDs
        await s.apply(job("b", 6))
        await s.settle()
        await s.run_job("a")
        await s.settle()
        await s.finish_job("a")
        await s.settle()
        series = [
            line.rpartition(" ")[0]
            for line in s.manager.metrics.text().decode().splitlines()
            if not line.startswith("#")
        ]
        assert sorted(series) == sorted(set(series)), "each series is there once"
        seen = 0
        for family in text_string_to_metric_families(s.manager.metrics.text().decode()):
            name = family.name + ("_total" if family.type == "counter" else "")
            if name not in EMITTED or not family.samples:
                continue
            seen += 1
            written = {label.strip() for label in EMITTED[name][2].split(",")}
            labels = set(family.samples[0].labels) - {"le", "replica_role"}
            assert labels == written, name
            assert name == "kueue_build_info" or "replica_role" in family.samples[0].labels
        assert seen > 35

    story(life, EVERYTHING)


@pytest.mark.parametrize("gate", re.findall(r"\(gate (\w+)\)", PAGE))
def test_metrics_of_a_disabled_gate_are_absent(gate: str) -> None:
    async def main(clock: Clock) -> dict[str, str]:
        server = Server(MemoryStore(), clock, random.Random(1))
        text = f"{EVERYTHING}featureGates: {{{gate}: false}}\n"
        replica = Replica(server.transport(), configured(text), clock, random.Random(1))
        return types(replica.manager.metrics.registry)

    found = run_virtual(main)
    gated = {name for name, row in EMITTED.items() if f"(gate {gate})" in row[3]}
    assert gated
    assert gated == EMITTED.keys() - found.keys()
