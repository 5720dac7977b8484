"""What the manager logs: what it ignores at its start, and its decisions, one line each."""

from __future__ import annotations

import asyncio
import logging
import random
from pathlib import Path
from typing import Any

import pytest
from manager_replica import configured
from manager_stack import Stack, job, story

import pykueue
from pykueue.api import unsupported
from pykueue.api.resources import CLUSTER_QUEUES, WORKLOADS
from pykueue.clock import Clock, run_virtual
from pykueue.cluster import Cluster
from pykueue.manager.configuration.gates import DEFAULTS, GROUPS
from pykueue.manager.manager import without_effect
from pykueue.manager.scheduler.decision_log import decisions

CLASSES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 1000
"""
IGNORED = """\
integrations: {frameworks: [batch/job, sparkoperator.k8s.io/sparkapplication]}
featureGates: {TASCacheTopologyTree: true, SparkApplicationIntegration: false}
"""


def lines(caplog: pytest.LogCaptureFixture, logger: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == f"pykueue.manager.{logger}"]


def test_up_warns_of_what_it_ignores_as_the_manager_does(caplog: pytest.LogCaptureFixture) -> None:
    configuration = configured(IGNORED)

    async def main(clock: Clock) -> None:
        cluster = Cluster(clock=clock, rng=random.Random(1), configuration=configuration)
        await cluster.start()
        running = asyncio.create_task(cluster.run())
        await cluster.synced()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await cluster.stop()

    run_virtual(main)
    assert lines(caplog, "manager") == [f"configuration: {text}" for text in without_effect(configuration)]


def test_gates_without_effect_are_named_whatever_way_they_are_chosen() -> None:
    def found(gates: str) -> list[str]:
        return list(without_effect(configured(f"featureGates: {{{gates}}}\n")))

    one = "featureGates.TASCacheTopologyTree: the behaviour of this gate is not part of this version"
    assert found("TASCacheTopologyTree: true, PartialAdmission: false") == [one]
    assert found("TASCacheTopologyTree: false") == [one]
    assert found("PartialAdmission: true") == []
    (group,) = found("AllAlpha: true")
    assert group.startswith("featureGates.AllAlpha: the behaviour of ")
    assert "WorkloadRequestUseMergePatch" in group
    assert "PriorityBoost" not in group
    assert found("AllAlpha: false") == []


def test_every_gate_is_read_by_the_code_or_listed_as_without_effect() -> None:
    sources = Path(pykueue.__file__).parent.rglob("*.py")
    text = "".join(path.read_text() for path in sources if path.name != "gates.py" or "api" in path.parts)
    read = {name for name in DEFAULTS if f'"{name}"' in text}
    # These two are always on.
    locked = {"ManagedJobsNamespaceSelectorAlwaysRespected", "TLSOptions"}
    assert set(DEFAULTS) - read - locked == unsupported.GATES
    assert not unsupported.GATES & GROUPS.keys()


def test_decisions_are_logged_one_line_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "pykueue.manager.scheduler.decision_log")

    async def life(s: Stack) -> None:
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}})
        await s.apply(CLASSES)
        await s.apply(job("small", cpu="6"))
        await s.settle()
        await s.apply(job("waits", cpu="6"))
        await s.settle()
        await s.run_job("small")
        await s.apply(job("urgent", cpu="6", labels={"kueue.x-k8s.io/priority-class": "high"}))
        await s.settle()
        await s.stop_pods("small")
        await s.settle()

    story(life)
    found = [line.split(": ", 1) for line in lines(caplog, "scheduler.decision_log")]
    by_job = {name: [text for who, text in found if name in who] for name in ("small", "waits", "urgent")}
    assert by_job["small"][0] == "admitted by ClusterQueue cq"
    assert by_job["small"][1].startswith("preempted: Preempted to accommodate a workload (UID: ")
    assert by_job["small"][2].startswith("pending: ")
    assert by_job["waits"][0].startswith("pending: ")
    assert "insufficient unused quota for cpu in flavor default-flavor, 2 more needed" in by_job["waits"][0]
    assert by_job["urgent"][-1] == "admitted by ClusterQueue cq"
    assert all(who.startswith("Workload default/job-") for who, _ in found)


def test_restarted_manager_does_not_log_what_was_decided_before(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "pykueue.manager.scheduler.decision_log")

    async def life(s: Stack) -> None:
        await s.apply(job("a"))
        await s.settle()
        caplog.clear()
        await s.stop_manager()
        await s.start_manager()
        await s.settle()

    story(life)
    assert lines(caplog, "scheduler.decision_log") == []


def _with(**conditions: tuple[str, str, str]) -> dict[str, Any]:
    listed = [
        {"type": kind, "status": status, "reason": reason, "message": message}
        for kind, (status, reason, message) in conditions.items()
    ]
    admission = {"clusterQueue": "cq"}
    return {"metadata": {"name": "w"}, "status": {"conditions": listed, "admission": admission}}


def test_each_change_of_a_workload_is_one_decision() -> None:
    reserved = _with(QuotaReserved=("True", "QuotaReserved", ""))
    evicted = _with(
        QuotaReserved=("False", "Pending", "evicted"), Evicted=("True", "PodsReadyTimeout", "too slow")
    )
    assert list(decisions({}, reserved)) == [
        "quota reserved in ClusterQueue cq, waiting for its admission checks"
    ]
    assert list(decisions(reserved, evicted)) == ["evicted: PodsReadyTimeout: too slow"]
    assert list(decisions(evicted, evicted)) == []
    again = _with(
        QuotaReserved=("False", "Pending", "no quota"), Evicted=("True", "PodsReadyTimeout", "too slow")
    )
    assert list(decisions(evicted, again)) == ["pending: Pending: no quota"]


def test_message_of_several_lines_is_logged_on_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "pykueue.manager.scheduler.decision_log")

    async def life(s: Stack) -> None:
        await s.apply(job("a", cpu="20"))
        await s.settle()
        workload = await s.workload("a")
        condition = {
            "type": "Evicted",
            "status": "True",
            "reason": "Forged",
            "message": "one\nWorkload x/y: admitted",
            "lastTransitionTime": s.now(),
        }
        conditions = [*workload["status"]["conditions"], condition]
        await s.patch(
            WORKLOADS, workload["metadata"]["name"], {"status": {"conditions": conditions}}, "status"
        )
        await s.settle()

    story(life)
    found = lines(caplog, "scheduler.decision_log")
    assert any(line.endswith("evicted: Forged: one Workload x/y: admitted") for line in found)
    assert all("\n" not in line for line in found)
