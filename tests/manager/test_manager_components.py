"""A manager is a list of components: the rights that follow from it, and what it does with no others."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from manager_stack import QUEUES, Stack, job, story
from pods_world import Pods, member, pod
from restricted_stack import RestrictedStack
from test_manager_jobset import Sets, replicated
from test_manager_pods_running import serving
from toy_controller import ANNOTATION, TOY, ConfigMapCounter
from toy_kind import DEFINITION, EXPERIMENTS, KINDS

from pykueue.api.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    CONFIG_MAPS,
    CRDS,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    RESOURCE_FLAVORS,
    STATEFUL_SETS,
    TOPOLOGIES,
    WORKLOADS,
)
from pykueue.clock import Clock, run_virtual
from pykueue.embedded.jobset.definition import definition
from pykueue.jobs.kinds import BUILT_IN, JobKinds
from pykueue.manager.components import Component, Context, rules
from pykueue.manager.components.builtin import components
from pykueue.manager.configuration import Configuration
from pykueue.manager.install.roles import component_rules
from pykueue.manager.manager import Manager
from pykueue.manager.rights import Rule
from queue_manifests import cluster_queue, flavor, local_queue, priority

READ = "get list watch"
FRAMEWORKS = ("batch/job", "jobset.x-k8s.io/jobset", "pod", "deployment", "statefulset")
#: What the role of a manager of these job kinds grants anywhere in a cluster, by resource.
GRANTED = {
    "events": "create patch",
    "podtemplates": f"{READ} create patch delete",
    "limitranges": READ,
    "namespaces": READ,
    "nodes": READ,
    "pods": f"{READ} patch delete",
    "pods/status": "patch",
    "pods/finalizers": "update",
    "statefulsets.apps": READ,
    "statefulsets/finalizers.apps": "update",
    "jobs.batch": f"{READ} patch delete",
    "jobs/status.batch": "patch",
    "jobs/finalizers.batch": "update",
    "jobsets.jobset.x-k8s.io": f"{READ} patch delete",
    "jobsets/finalizers.jobset.x-k8s.io": "update",
    "deviceclasses.resource.k8s.io": "get list watch",
    "resourceclaimtemplates.resource.k8s.io": "get list watch",
    "resourceslices.resource.k8s.io": "get list watch",
    "runtimeclasses.node.k8s.io": READ,
    "priorityclasses.scheduling.k8s.io": READ,
    "customresourcedefinitions.apiextensions.k8s.io": READ,
    "admissionchecks.kueue.x-k8s.io": f"{READ} patch",
    "admissionchecks/status.kueue.x-k8s.io": "patch",
    "clusterqueues.kueue.x-k8s.io": f"{READ} patch",
    "clusterqueues/status.kueue.x-k8s.io": "patch",
    "cohorts.kueue.x-k8s.io": READ,
    "cohorts/status.kueue.x-k8s.io": "patch",
    "localqueues.kueue.x-k8s.io": READ,
    "localqueues/status.kueue.x-k8s.io": "patch",
    "resourceflavors.kueue.x-k8s.io": f"{READ} patch",
    "topologies.kueue.x-k8s.io": f"{READ} patch",
    "workloadpriorityclasses.kueue.x-k8s.io": READ,
    "workloads.kueue.x-k8s.io": f"{READ} create patch delete",
    "workloads/status.kueue.x-k8s.io": "patch",
    "workloads/finalizers.kueue.x-k8s.io": "update",
    "jobsets/status.jobset.x-k8s.io": "patch",
    "multikueueclusters.kueue.x-k8s.io": READ,
    "multikueueclusters/status.kueue.x-k8s.io": "patch",
    "multikueueconfigs.kueue.x-k8s.io": READ,
    "provisioningrequestconfigs.kueue.x-k8s.io": READ,
    "provisioningrequests.autoscaling.x-k8s.io": f"{READ} create delete",
    "provisioningrequests/finalizers.autoscaling.x-k8s.io": "update",
    "jobkinds.pykueue.io": READ,
    "jobkinds/status.pykueue.io": "patch",
    "backfillpolicies.pykueue.io": READ,
    "reservations.pykueue.io": READ,
    "reservations/status.pykueue.io": "patch",
    "backfillpolicies/status.pykueue.io": "patch",
    "budgets.pykueue.io": READ,
    "budgets/status.pykueue.io": "patch",
    "budgetledgers.pykueue.io": f"{READ} create patch",
    "preemptionpolicies.pykueue.io": READ,
    "preemptionpolicies/status.pykueue.io": "patch",
}


def rights(found: Iterable[Rule]) -> set[tuple[str, str]]:
    """Resource and verb of every right."""
    return {
        (f"{resource}.{rule.group}" if rule.group else resource, verb)
        for rule in found
        for resource in rule.resources
        for verb in rule.verbs
    }


def enabled(*frameworks: str) -> JobKinds:
    return BUILT_IN.enabled(frameworks)


def test_role_of_the_manager_grants_this_and_nothing_else() -> None:
    granted = {(resource, verb) for resource, verbs in GRANTED.items() for verb in verbs.split()}
    assert rights(component_rules(Configuration(), enabled(*FRAMEWORKS))) == granted


@pytest.mark.parametrize(
    "frameworks",
    [(), ("batch/job",), ("pod",), ("deployment",), ("statefulset", "batch/job"), BUILT_IN.frameworks],
)
def test_rights_by_job_kind_add_up_to_those_of_the_components(frameworks: tuple[str, ...]) -> None:
    kinds = enabled(*frameworks)
    assert rights(component_rules(Configuration(), kinds)) == rights(
        rules(components(Configuration(), kinds))
    )


def test_enabling_a_job_kind_adds_rules_and_changes_none() -> None:
    before: set[Rule] = set()
    for count in range(len(BUILT_IN.frameworks) + 1):
        after = set(component_rules(Configuration(), enabled(*BUILT_IN.frameworks[:count])))
        assert before <= after
        before = after


# With the declared rights alone

ALL = f"""
integrations: {{frameworks: [{", ".join(FRAMEWORKS)}]}}
waitForPodsReady: {{timeout: 5m}}
fairSharing: {{preemptionStrategies: [LessThanOrEqualToFinalShare]}}
objectRetentionPolicies: {{workloads: {{afterFinished: 10m, afterDeactivatedByKueue: 1m}}}}
"""
MORE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: team}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: rack}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: budget}
spec: {controllerName: example.com/budget}
"""
CHECKED = [
    priority("high", 100),
    flavor("spot"),
    cluster_queue(
        "checked",
        {"spot": {"cpu": 2}},
        cohortName="team",
        admissionChecksStrategy={"admissionChecks": [{"name": "budget"}]},
        preemption={"withinClusterQueue": "LowerPriority"},
    ),
    local_queue("checked"),
]
SINCE = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
HIGH = {"kueue.x-k8s.io/priority-class": "high"}


def restricted(
    test: Callable[[RestrictedStack], Awaitable[None]], *more: Component, configuration: str = ALL
) -> None:
    """Run a test with a manager that has only its rights; what it or a component exceeds fails the test."""

    async def main(clock: Clock) -> None:
        stack = RestrictedStack(clock, configuration, 1)
        stack.more = more
        await stack.start()
        try:
            await stack.apply(QUEUES)
            await stack.settle()
            await test(stack)
            await stack.settle()
            assert stack.excess == set()
        finally:
            await stack.stop()

    run_virtual(main)


def test_jobs_live_their_lives_with_the_declared_rights() -> None:
    async def test(s: RestrictedStack) -> None:
        await s.apply(MORE)
        await s.apply(CHECKED)
        await s.apply(job("first", 6))
        await s.apply(job("second", 6))
        await s.settle()
        assert [await s.suspended(name) for name in ("first", "second")] == [False, True]
        await s.run_job("first")
        workload = (await s.workload("first"))["metadata"]["name"]
        await s.patch(WORKLOADS, workload, {"spec": {"active": False}})
        await s.settle()
        await s.stop_pods("first")
        await s.settle()
        assert not await s.suspended("second")
        await s.run_job("second")
        await s.finish_job("second")
        await s.settle(700)
        assert [w["metadata"]["name"] for w in await s.workloads()] == [workload]
        await s.delete(JOBS, "first")

        active = {"type": "Active", "status": "True", "reason": "Active", "message": "", **SINCE}
        await s.patch(ADMISSION_CHECKS, "budget", {"status": {"conditions": [active]}}, "status")
        await s.apply(job("low", 2, queue="checked"))
        await s.apply(job("never-ready", 1))
        await s.settle()
        await s.run_job("never-ready", ready=0)
        await s.apply(job("high", 2, queue="checked", labels=HIGH))
        await s.settle(400)
        await s.stop_pods("never-ready")
        assert (await s.conditions("high"))["QuotaReserved"][0] == "True"
        await s.patch(JOBS, "low", {"spec": {"parallelism": 1}})
        await s.settle()
        await s.delete(JOBS, "low")
        await s.delete(JOBS, "high")
        await s.settle()

        for resource, name in (
            (LOCAL_QUEUES, "checked"),
            (CLUSTER_QUEUES, "checked"),
            (RESOURCE_FLAVORS, "spot"),
            (ADMISSION_CHECKS, "budget"),
            (TOPOLOGIES, "racks"),
            (COHORTS, "team"),
        ):
            await s.delete(resource, name)
            await s.settle()
            left = (await s.client.list(resource)).items
            assert name not in [one["metadata"]["name"] for one in left]

    restricted(test)


def test_jobsets_live_their_lives_with_the_declared_rights() -> None:
    async def test(s: RestrictedStack) -> None:
        await s.client.create(CRDS, definition())
        await s.settle(15)
        sets = Sets(s)
        await sets.create(replicated("workers", replicas=2, pods=2))
        await s.settle()
        assert not await sets.suspended()
        (workload,) = await s.workloads()
        await s.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": False}})
        await s.settle()
        assert await sets.suspended()

    restricted(test)


def test_pods_groups_and_stateful_sets_live_their_lives_with_the_declared_rights() -> None:
    async def test(s: RestrictedStack) -> None:
        pods = Pods(s)
        await pods.create(pod("alone"), member("a", 2), member("b", 2))
        await s.settle()
        assert await pods.gated() == []
        await pods.run("alone", "a", "b")
        await pods.end("alone")
        await s.patch(WORKLOADS, "g", {"spec": {"active": False}})
        await s.settle()
        await pods.end("a", "b", phase="Failed")
        await s.delete(WORKLOADS, "g")
        await s.settle()
        assert await pods.names() == ["alone"]

        await s.client.create(STATEFUL_SETS, serving("StatefulSet", 2, serviceName="web"))
        await s.settle()
        found = [w for w in await s.workloads() if "statefulset-web" in w["metadata"]["name"]]
        assert len(found) == 1
        await s.delete(STATEFUL_SETS, "web")
        await s.settle()

    restricted(test)


# Adding components


def test_component_with_a_cache_of_its_own_is_added_while_the_manager_runs() -> None:
    async def test(s: Stack) -> None:
        await s.apply(CONFIG_MAP)
        s.manager.add(TOY)
        await s.settle()
        namespace = await s.client.get(NAMESPACES, "default")
        assert namespace["metadata"]["annotations"][ANNOTATION] == "1"
        assert "config-maps" in [component.name for component in s.manager.components]

    story(test)


CONFIG_MAP: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "c", "namespace": "default"},
}


def test_added_component_works_with_the_rights_that_it_declares() -> None:
    async def test(s: RestrictedStack) -> None:
        await s.apply(CONFIG_MAP)
        await s.settle()
        namespace = await s.client.get(NAMESPACES, "default")
        assert namespace["metadata"]["annotations"][ANNOTATION] == "1"

    restricted(test, TOY)


def test_right_that_a_component_does_not_declare_is_reported() -> None:
    async def test(s: RestrictedStack) -> None:
        await s.apply(CONFIG_MAP)
        await s.settle()
        assert "config-maps:  namespaces patch" in s.excess
        assert any("cannot patch resource" in one for one in s.excess)
        s.excess.clear()
        await s.stop_manager()

    restricted(test, replace(TOY, writes=()))


def test_component_whose_cache_is_not_declared_is_refused() -> None:
    async def test(s: Stack) -> None:
        undeclared = replace(TOY, watches=(NAMESPACES,))
        with pytest.raises(ValueError, match="config-maps: watches configmaps, which it does not declare"):
            s.manager.add(undeclared)
        with pytest.raises(ValueError, match="there is another one of this name"):
            s.manager.add(replace(TOY, name="queues"))

    story(test)


def test_component_that_does_not_lead_works_on_a_follower() -> None:
    async def test(s: Stack) -> None:
        await s.stop_manager()
        s.manager = Manager(s.manager_transport(), s.configuration, s.clock, random.Random(1))
        s.manager.add(replace(TOY, build=_reporting, needs_leader=False))
        s.run(_Follower(s.manager))
        await s.apply(CONFIG_MAP)
        await s.apply(job("waits"))
        await s.settle()
        namespace = await s.client.get(NAMESPACES, "default")
        assert namespace["metadata"]["annotations"][ANNOTATION] == "1"
        assert await s.events("c") == ["Counted"]
        assert await s.workloads() == []

    story(test)


def _reporting(context: Context) -> ConfigMapCounter:
    """Counts, and emits an event for each new ConfigMap."""
    recorder = context.recorder("config-map-counter")

    def changed(type_: str, old: Any, new: Any) -> None:
        if old is None:
            recorder.event(new, "Normal", "Counted", "Counted")

    context.connection.informer(CONFIG_MAPS).on_event(changed)
    return ConfigMapCounter(context)


class _Follower:
    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    async def run(self) -> None:
        await self._manager.run_caches()


# What is known of the cluster


def test_connection_knows_which_job_kinds_the_cluster_serves() -> None:
    async def test(s: Stack) -> None:
        connection = s.manager.connection
        assert EXPERIMENTS in connection.unserved
        assert not {JOBS, WORKLOADS} & connection.unserved
        await s.client.create(CRDS, DEFINITION)
        await s.settle(15)
        assert EXPERIMENTS not in connection.unserved

    story(test, kinds=KINDS)


# Order of handlers


class _AsksTheEngine:
    """Notes what the engine knows of each new Workload when the handlers of controllers are called."""

    def __init__(self, context: Context) -> None:
        self._engine = context.engine
        self.known: list[bool] = []
        context.cluster.workloads.on_event(self._changed)

    def _changed(self, type_: str, old: Any, new: Any) -> None:
        if old is None:
            key = "/".join((new["metadata"]["namespace"], new["metadata"]["name"]))
            self.known.append(self._engine.workload(key) is not None)

    async def run(self) -> None:
        pass


def test_engine_knows_a_change_before_controllers_whatever_the_order_of_components() -> None:
    async def test(s: Stack) -> None:
        await s.stop_manager()
        asking = Component("asks", "Asks the engine.", _AsksTheEngine, watches=(WORKLOADS,))
        found = [asking, *reversed(s.manager.components)]
        s.manager = Manager(
            s.manager_transport(), s.configuration, s.clock, random.Random(1), components=found
        )
        s.run(s.manager)
        await s.apply(job("j"))
        await s.settle()
        assert not await s.suspended("j")
        asks = s.manager.running["asks"]
        assert isinstance(asks, _AsksTheEngine)
        assert asks.known == [True]

    story(test)
