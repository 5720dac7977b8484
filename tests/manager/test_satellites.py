"""The importer beside a manager; populator and booster as components with the rights they declare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from manager_stack import V1BETA2, Stack, job, story
from restricted_stack import RestrictedStack
from test_manager_components import restricted

from pykueue.api.resources import CLUSTER_QUEUES, LOCAL_QUEUES, NAMESPACES, PODS, WORKLOADS
from pykueue.api.selectors import Selector
from pykueue.manager.configuration import parse
from pykueue.satellites import booster, populator
from pykueue.satellites.booster import PRIORITY_BOOST_ANNOTATION as BOOST
from pykueue.satellites.configuration import (
    BoosterConfiguration,
    ConfigurationError,
    PopulatorConfiguration,
    booster_configuration,
    populator_configuration,
)
from pykueue.satellites.importer import Importer, Options
from pykueue.satellites.mapping import rules_for_label
from queue_manifests import cluster_queue


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


async def local_queues(s: Stack) -> dict[str, str]:
    """The ClusterQueues of all LocalQueues by NAMESPACE/NAME, without the stack's own."""
    found = (await s.client.list(LOCAL_QUEUES)).items
    pairs = {
        f"{one['metadata']['namespace']}/{one['metadata']['name']}": one["spec"]["clusterQueue"]
        for one in found
    }
    return {key: value for key, value in pairs.items() if key != "default/lq"}


def test_populator_creates_a_local_queue_in_every_namespace_that_a_cluster_queue_admits_from() -> None:
    selector = {"matchLabels": {"team": "ml"}}

    async def test(s: RestrictedStack) -> None:
        await s.client.patch(CLUSTER_QUEUES, "cq", None, {"spec": {"namespaceSelector": selector}})
        await s.apply(
            [namespace("early", team="ml"), namespace("other"), namespace("left-out", team="ml", x="y")]
        )
        await s.settle()
        assert await local_queues(s) == {"early/default": "cq"}
        await s.apply(namespace("late", team="ml"))
        await s.client.patch(NAMESPACES, "other", None, {"metadata": {"labels": {"team": "ml"}}})
        await s.settle()
        assert await local_queues(s) == {f"{one}/default": "cq" for one in ("early", "late", "other")}
        queue = await s.client.get(LOCAL_QUEUES, "default", "late")
        assert queue["metadata"]["labels"] == {"kueue.x-k8s.io/auto-generated": "true"}
        assert (await s.events("cq")).count("LocalQueueCreated") == 3

    restricted(test, populator.component(PopulatorConfiguration(namespaces=Selector.parse("!x,team"))))


def test_populator_leaves_a_local_queue_of_the_same_name_alone() -> None:
    async def test(s: RestrictedStack) -> None:
        await s.apply(cluster_queue("second", {"cpu": 1}))
        await s.settle()
        assert (await local_queues(s))["default/default"] in ("cq", "second")
        assert "LocalQueueExists" in [*await s.events("cq"), *await s.events("second")]

    restricted(test, populator.component(PopulatorConfiguration()))


def test_populator_names_local_queues_after_their_cluster_queues() -> None:
    async def test(s: RestrictedStack) -> None:
        await s.apply(cluster_queue("second", {"cpu": 1}))
        await s.settle()
        found = {
            name: queue for name, queue in (await local_queues(s)).items() if name.startswith("default/")
        }
        assert found == {"default/cq": "cq", "default/second": "second"}

    restricted(test, populator.component(PopulatorConfiguration(local_queue_name=None)))


def test_booster_lowers_the_priority_after_the_interval_and_equals_preempt() -> None:
    gates = "featureGates: {PriorityBoost: true}"

    async def test(s: Stack) -> None:
        s.manager.add(booster.component(BoosterConfiguration(interval=600)))
        policy = {"preemption": {"withinClusterQueue": "LowerPriority"}}
        await s.client.patch(CLUSTER_QUEUES, "cq", None, {"spec": policy})
        await s.apply([job("first", cpu="10"), job("second", cpu="10")])
        await s.settle()
        running, waiting = ("first", "second") if not await s.suspended("first") else ("second", "first")
        await s.settle(590)
        assert BOOST not in (await s.workload(running))["metadata"].get("annotations", {})
        await s.settle(20)
        assert (await s.conditions(running))["Evicted"] == ("True", "Preempted")
        assert "PriorityBoostSet" in await s.events((await s.workload(running))["metadata"]["name"])
        await s.settle()
        assert not await s.suspended(waiting)
        # It is not admitted any more.
        assert BOOST not in (await s.workload(running))["metadata"].get("annotations", {})

    story(test, gates)


def test_booster_manages_only_what_its_selector_and_priority_allow() -> None:
    configuration = BoosterConfiguration(1, 5, Selector.parse("tier=batch"), 100)

    async def test(s: RestrictedStack) -> None:
        await s.apply([job("a"), job("b"), job("c")])
        await s.settle()
        names = {one: (await s.workload(one))["metadata"]["name"] for one in "abc"}
        for one in "ab":
            labels = {"metadata": {"labels": {"tier": "batch"}}}
            await s.client.patch(WORKLOADS, names[one], "default", labels)
        for one, value in (("b", "7"), ("c", "-3")):
            await s.client.patch(
                WORKLOADS, names[one], "default", {"metadata": {"annotations": {BOOST: value}}}
            )
        await s.settle(5)

        async def boost(one: str) -> str | None:
            found: str | None = (await s.workload(one))["metadata"].get("annotations", {}).get(BOOST)
            return found

        assert [await boost(one) for one in "abc"] == ["-5", "-5", None]

    restricted(test, booster.component(configuration))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("localQueueNameMode: Odd", "localQueueNameMode: 'Odd'; accepted: Static, AsClusterQueue"),
        ("{localQueueName: a, localQueueNameMode: AsClusterQueue}", "localQueueName cannot be set when"),
        ("managedJobsNamespaceSelector: {matchExpressions: [{key: a, operator: Near}]}", "'Near' is not an"),
        ("queueName: a", "unknown field queueName; accepted: localQueueName"),
        ("- a", "expected a mapping"),
    ],
)
def test_wrong_populator_configuration_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        populator_configuration(tmp_path / "config")
    assert problem in str(refused.value)


def test_configurations_are_read_as_kueues(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("localQueueNameMode: AsClusterQueue\nmanagedJobsNamespaceSelector: {matchLabels: {a: b}}")
    found = populator_configuration(path)
    assert (found.local_queue_name, str(found.namespaces)) == (None, "a=b")
    assert populator_configuration(None).local_queue_name == "default"
    assert not populator_configuration(None).namespaces.matches(
        {"kubernetes.io/metadata.name": "kube-system"}
    )
    for field in ("interval", "duration"):
        path.write_text(f"timeSharing: {{{field}: 30m, negativeBoost: 7}}\nmaxWorkloadPriority: 9")
        found_boost = booster_configuration(path)
        assert (found_boost.interval, found_boost.negative_boost, found_boost.max_priority) == (1800, 7, 9)
    assert booster_configuration(None) == BoosterConfiguration()
    path.write_text("timeSharing: {interval: soon}")
    with pytest.raises(ConfigurationError, match="'soon' is not a duration"):
        booster_configuration(path)


def test_imported_pods_count_against_quota_and_finish_once_the_manager_runs() -> None:
    resources = {"requests": {"cpu": "4"}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}], "nodeName": "n"}
    metadata = {"name": "old", "namespace": "default", "labels": {"project": "a"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    async def test(s: Stack) -> None:
        await s.apply(pod)
        await s.patch(PODS, "old", {"status": {"phase": "Running"}}, "status")
        rules = rules_for_label("project", {"a": "lq"})
        importer = Importer(s.client, Options(["default"], rules), s.clock)
        await importer.load()
        assert (await importer.check()).problems == {}
        assert (await importer.run()).problems == {}
        await s.stop_manager()
        s.configuration = parse(f"{V1BETA2}integrations: {{frameworks: [pod]}}")
        await s.start_manager()
        await s.settle(60)
        conditions = await s.conditions("old")
        assert [conditions[kind] for kind in ("QuotaReserved", "Admitted")] == [("True", "Imported")] * 2
        (usage,) = (await s.cluster_queue())["status"]["flavorsUsage"]
        assert usage["resources"] == [{"name": "cpu", "total": "4", "borrowed": "0"}]
        assert [one["status"]["phase"] for one in await s.pods()] == ["Running"]
        await s.patch(PODS, "old", {"status": {"phase": "Succeeded"}}, "status")
        await s.settle(60)
        assert (await s.conditions("old"))["Finished"][0] == "True"

    # The webhook of a manager that manages pods refuses queue labels on those that run.
    story(test)
