"""PreemptionPolicies on a running manager: what is protected, refused, counted and kept over a restart."""

from __future__ import annotations

from typing import Any

import pytest
from manager_stack import Stack, job, story

from pykueue.api.preemption_policies import PREEMPTION_POLICIES
from pykueue.api.resources import JOBS
from pykueue.kube.errors import ApiError

Object = dict[str, Any]

_QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: NAME}
spec:
  cohortName: lab
  namespaceSelector: {}
  preemption: {reclaimWithinCohort: Any}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default-flavor, resources: [{name: cpu, nominalQuota: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: NAME, namespace: default}
spec: {clusterQueue: NAME}
"""


def policy(name: str, **spec: Any) -> Object:
    return {
        "apiVersion": PREEMPTION_POLICIES.api_version,
        "kind": PREEMPTION_POLICIES.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


async def borrowed(s: Stack, **spec: Any) -> None:
    """Queue research borrows most of the cohort for its Job `first`; the policy is there before."""
    for name in ("research", "production"):
        await s.apply(_QUEUE.replace("NAME", name))
    await s.client.create(PREEMPTION_POLICIES, policy("lab", cohort="lab", **spec))
    await s.apply(job("first", 7, queue="research"))
    await s.settle()
    await s.run_job("first")


def test_job_is_preempted_once_its_minimum_run_time_is_over_and_the_ledger_says_what_was_lost() -> None:
    async def life(s: Stack) -> None:
        await borrowed(s, minAdmitDuration={"reclaimWithinCohort": "10m"})
        await s.apply(job("second", 3, queue="production"))
        await s.settle(300)
        assert "Workloads it could preempt are protected: minimum run time of PreemptionPolicy lab" in (
            await s.message("second")
        )
        await s.patch(JOBS, "first", {"metadata": {"annotations": {"pykueue.io/checkpointed-at": s.now()}}})
        await s.settle(310)
        assert (await s.conditions("first"))["Preempted"] == ("True", "InCohortReclamation")
        await s.stop_pods("first")
        await s.settle()
        assert not await s.suspended("second")

        status = (await s.get(PREEMPTION_POLICIES, "lab"))["status"]
        (condition,) = status["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == ("Active", "True", "Ready")
        (entry,) = status["recent"]
        second = await s.workload("second")
        assert entry["preemptorUID"] == second["metadata"]["uid"]
        assert (entry["clusterQueue"], entry["preemptorClusterQueue"]) == ("research", "production")
        lost = entry["lostResourceSeconds"]["cpu"] / 7
        assert 290 <= lost <= 310, "since the checkpoint, not since the admission"
        counted = 'pykueue_preemption_lost_resource_seconds_total{preempted_cluster_queue="research"'
        (line,) = [one for one in s.manager.metrics.text().decode().splitlines() if one.startswith(counted)]
        assert 'resource="cpu"' in line
        assert abs(float(line.rpartition(" ")[2]) - entry["lostResourceSeconds"]["cpu"]) <= 7
        (total,) = status["totals"]
        assert (total["count"], total["lostResourceSeconds"]) == (1, entry["lostResourceSeconds"])

        await s.stop_manager()
        await s.start_manager()
        await s.settle(60)
        again = (await s.get(PREEMPTION_POLICIES, "lab"))["status"]
        assert again == status, "each preemption is counted once"

    story(life)


def test_cool_down_holds_after_a_restart() -> None:
    async def life(s: Stack) -> None:
        await borrowed(s, coolDown={"base": "20m", "max": "2h"})
        await s.apply(job("second", 3, queue="production"))
        await s.settle()
        await s.stop_pods("first")
        await s.settle()
        await s.run_job("second")
        await s.apply(job("third", 4, queue="production"))
        await s.settle()
        await s.run_job("third")
        await s.stop_manager()
        await s.start_manager()
        await s.settle()
        await s.apply(job("fourth", 4, queue="research"))
        await s.settle(60)
        assert "cool-down of PreemptionPolicy lab" in await s.message("fourth")
        assert "Preempted" not in await s.conditions("third")
        await s.settle(20 * 60)
        assert (await s.conditions("third"))["Preempted"] == ("True", "InCohortReclamation")

    story(life)


def test_policies_that_contradict_each_other_are_refused_and_name_both() -> None:
    async def life(s: Stack) -> None:
        create = s.client.create
        await create(PREEMPTION_POLICIES, policy("one", cohort="lab"))
        await create(PREEMPTION_POLICIES, policy("two", clusterQueues=["a", "b"]))
        await create(PREEMPTION_POLICIES, policy("three"))
        await s.settle()
        for spec, text in (
            ({"cohort": "lab"}, "PreemptionPolicy one is for cohort lab already"),
            ({"clusterQueues": ["c", "b"]}, "PreemptionPolicy two is for ClusterQueue b already"),
            ({}, "PreemptionPolicy three is for all ClusterQueues already"),
            ({"clusterQueues": ["c"], "cohort": "x"}, "are not accepted together"),
            (
                {"cohort": "x", "coolDown": {"base": "3h", "max": "1h"}},
                "must be more than 0s and at most max",
            ),
            ({"cohort": "x", "coolDown": {"max": "48h"}}, "must be at least max (48h)"),
            (
                {"cohort": "x", "minAdmitDuration": {"fairSharing": "soon"}},
                "spec.minAdmitDuration.fairSharing",
            ),
            ({"cohort": "x", "maxPreemptionsPerHour": 0}, "spec.maxPreemptionsPerHour"),
        ):
            with pytest.raises(ApiError) as refused:
                await create(PREEMPTION_POLICIES, policy("four", **spec))
            assert text in refused.value.message

    story(life)


def test_of_two_policies_that_got_past_admission_the_first_by_name_is_in_force() -> None:
    async def life(s: Stack) -> None:
        s.server.admission.unregister("vpreemptionpolicy.kb.io")
        for name in ("b", "a"):
            await s.client.create(PREEMPTION_POLICIES, policy(name, cohort="lab"))
        await s.settle()
        found = {}
        for name in ("a", "b"):
            (condition,) = (await s.get(PREEMPTION_POLICIES, name))["status"]["conditions"]
            found[name] = (condition["status"], condition["reason"])
        assert found == {"a": ("True", "Ready"), "b": ("False", "Conflict")}

    story(life)
