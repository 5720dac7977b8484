"""The worked cases of MultiKueue by number (docs/reference/admission-checks.md 21.3), and lost workers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from checks_world import answer, change_queue, create_checks, strategy
from manager_stack import Object, job
from multikueue_world import (
    NAMESPACE,
    ORIGIN,
    Clusters,
    Line,
    cluster,
    config,
    dispatched,
    kubeconfig,
    secret,
)

from pykueue.api import conditions
from pykueue.api.resources import (
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    SECRETS,
    WORKLOADS,
)
from queue_manifests import priority

INCREMENTAL = """
multiKueue:
  dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental
  incrementalDispatcherConfig: {stepSize: 3}
"""
ORCHESTRATED = "featureGates: {MultiKueueOrchestratedPreemption: true}\n"
LOWER_PRIORITY = {"preemption": {"withinClusterQueue": "LowerPriority"}}
THREE = ("w1", "w2", "w3")


async def nominated(c: Clusters, name: str = "a") -> list[str]:
    return list((await c.status(name)).get("nominatedClusterNames") or ())


async def placed(c: Clusters, name: str = "a") -> str:
    return str((await c.status(name)).get("clusterName") or "")


async def gates(c: Clusters, worker: str) -> str:
    """Position of the preemption gate of the copy on a worker; empty: it has not been opened."""
    states = (await c.copy(worker))["status"].get("preemptionGates") or ()
    return next((str(one["position"]) for one in states if one["name"] == "kueue.x-k8s.io/multikueue"), "")


class TestDispatch:
    def test_31_all_connected_clusters_are_nominated_and_one_that_connects_later_too(self) -> None:
        async def test(c: Clusters) -> None:
            c.lines["w2"].cut()
            await c.make_busy(*THREE)
            await c.manager.apply(job("a"))
            await c.wait()
            assert await nominated(c) == ["w1", "w3"]
            assert (await c.check_active())[:2] == ("True", "SomeActiveClusters")
            c.lines["w2"].restore()
            await c.wait(20)
            assert await nominated(c) == ["w1", "w2", "w3"]

        dispatched(test, *THREE)

    def test_34_incremental_rounds_add_three_clusters_each_five_minutes(self) -> None:
        names = [f"w{number}" for number in range(1, 8)]

        async def test(c: Clusters) -> None:
            await c.make_busy(*names)
            await c.manager.apply(job("a"))
            await c.wait(10)
            assert await nominated(c) == names[:3]
            await c.wait(280)
            assert len(await nominated(c)) == 3
            await c.wait(20)
            assert await nominated(c) == names[:6]
            await c.wait(300)
            assert await nominated(c) == names

        dispatched(test, *names, configuration=INCREMENTAL)

    def test_external_dispatcher_chooses_the_workers(self) -> None:
        async def test(c: Clusters) -> None:
            await c.manager.apply(job("a"))
            await c.wait()
            assert (await nominated(c), await c.copies()) == ([], [])
            name = (await c.manager.workload("a"))["metadata"]["name"]
            await c.manager.patch(WORKLOADS, name, {"status": {"nominatedClusterNames": ["w2"]}}, "status")
            await c.wait()
            assert (await placed(c), await c.copies()) == ("w2", ["w2"])

        dispatched(test, "w1", "w2", configuration="multiKueue: {dispatcherName: example.com/mine}\n")

    def test_36_other_checks_come_first(self) -> None:
        async def test(c: Clusters) -> None:
            await create_checks(c.manager, "other")
            await change_queue(c.manager, **strategy(mk=[], other=[]))
            await c.wait()
            await c.manager.apply(job("a"))
            await c.wait()
            assert await c.copies() == []
            await answer(c.manager, "a", other="Ready")
            await c.wait()
            assert await c.copies() == ["w1"]

        dispatched(test, "w1")

    def test_45_worker_without_the_queue_leaves_the_job_to_others(self) -> None:
        async def test(c: Clusters) -> None:
            await c.workers["w1"].delete(LOCAL_QUEUES, "lq")
            await c.wait()
            await c.manager.apply(job("a"))
            await c.wait()
            assert await placed(c) == "w2"

        dispatched(test, "w1", "w2")

    def test_46_job_that_another_controller_manages_is_rejected(self) -> None:
        async def test(c: Clusters) -> None:
            await c.manager.apply(job("a", managedBy="example.com/mine"))
            await c.wait()
            workload = await c.manager.workload("a")
            assert workload["spec"]["active"] is False
            assert "AdmissionCheckRejected" in await c.manager.events(workload["metadata"]["name"])
            assert await c.copies() == []

        dispatched(test, "w1")

    def test_32_of_two_that_admitted_the_earlier_one_runs_the_job(self) -> None:
        async def test(c: Clusters) -> None:
            await c.make_busy(*THREE)
            await c.manager.apply(job("a"))
            await c.wait()
            assert sorted(await c.copies()) == sorted(THREE)
            await c.manager.stop_manager()
            for name in ("w3", "w1"):
                await c.workers[name].finish_job("busy")
                await c.wait(2)
            for name in ("w1", "w3"):
                assert conditions.is_admitted(await c.copy(name))
            await c.manager.start_manager()
            await c.wait()
            assert await placed(c) == "w3"
            assert await c.workers_of("a") == ["w3"]

        dispatched(test, *THREE)

    def test_33_of_two_that_admitted_in_the_same_second_one_runs_the_job(self) -> None:
        async def test(c: Clusters) -> None:
            await c.make_busy(*THREE)
            await c.manager.apply(job("a"))
            await c.wait()
            await asyncio.gather(*(c.workers[name].finish_job("busy") for name in ("w3", "w2")))
            await c.wait()
            winner = await placed(c)
            assert winner in ("w2", "w3")
            assert await c.workers_of("a") == [winner]

        dispatched(test, *THREE)

    def test_35_round_lasts_five_minutes_also_where_one_of_its_clusters_is_down(self) -> None:
        names = [f"w{number}" for number in range(1, 5)]

        async def test(c: Clusters) -> None:
            await c.make_busy("w1", "w3")
            c.lines["w2"].cut()
            await c.manager.apply(job("a"))
            await c.wait(280)
            assert (await nominated(c), await placed(c)) == (names[:3], "")
            await c.wait(30)
            assert await placed(c) == "w4"

        dispatched(test, *names, configuration=INCREMENTAL)

    def test_copies_and_admissions_are_counted_by_cluster(self) -> None:
        async def test(c: Clusters) -> None:
            await c.make_busy("w1")
            await c.manager.apply(job("a"))
            await c.wait()
            registry = c.manager.manager.metrics.registry

            def count(name: str, cluster: str) -> float | None:
                labels = {
                    "cluster_queue": "cq",
                    "cluster": cluster,
                    "replica_role": c.manager.manager.metrics.role,
                }
                return registry.value(f"multikueue_workloads_{name}_total", labels)

            assert [count("dispatched", name) for name in ("w1", "w2")] == [1, 1]
            assert [count("admitted", name) for name in ("w1", "w2")] == [None, 1]

        dispatched(test, "w1", "w2")


class TestPreemption:
    def test_47_gate_opens_where_it_was_blocked_first_and_elsewhere_five_minutes_later(self) -> None:
        async def test(c: Clusters) -> None:
            high = {"kueue.x-k8s.io/priority-class": "high"}
            for stack in (c.manager, *c.workers.values()):
                await stack.apply([priority("high", 5)])
            for name in ("w2", "w1"):  # the order in which they become blocked
                await c.workers[name].patch(CLUSTER_QUEUES, "cq", {"spec": LOWER_PRIORITY})
                await c.workers[name].apply(job("busy", 1, cpu="10"))
            c.lines["w1"].cut()
            await c.wait()
            for name in ("w1", "w2"):
                await c.workers[name].run_job("busy")
            await c.manager.apply(job("a", labels=high))
            await c.wait()
            c.lines["w1"].restore()
            await c.wait(20)
            # w2 was blocked first: it preempts, and w1 does not.
            assert await gates(c, "w2") == "Open"
            assert await gates(c, "w1") == ""
            assert (await c.workers["w2"].conditions("busy"))["Evicted"] == ("True", "Preempted")
            assert (await c.workers["w1"].conditions("busy")).get("Evicted") is None
            blocked = conditions.condition(await c.copy("w1"), "BlockedOnPreemptionGates") or {}
            assert (blocked["status"], blocked["reason"]) == ("True", "PreemptionGated")
            await c.wait(270)
            assert await gates(c, "w1") == ""
            await c.wait(30)
            assert await gates(c, "w1") == "Open"
            # The first whose victim has stopped runs the job; the other copy goes.
            await c.workers["w1"].stop_pods("busy")
            await c.wait()
            assert (await placed(c), await c.workers_of("a")) == ("w1", ["w1"])

        dispatched(test, "w1", "w2", configuration=ORCHESTRATED)


def test_cluster_that_is_connected_under_another_name_is_refused() -> None:
    async def test(c: Clusters) -> None:
        await c.manager.client.create(SECRETS, secret("again", kubeconfig("w1")))
        await c.manager.client.create(MULTIKUEUE_CLUSTERS, cluster("again"))
        await c.manager.patch(MULTIKUEUE_CONFIGS, "config", {"spec": {"clusters": ["w1", "again"]}})
        await c.wait()
        status, reason, message = await c.active("again")
        assert (status, reason) == ("False", "ClientConnectionFailed")
        assert message.startswith("MultiKueueCluster w1 is the same cluster; attempts: ")
        await c.manager.apply(job("a"))
        await c.wait()
        assert (await placed(c), await c.jobs()) == ("w1", ["w1"])
        # Under its new name it is connected once the other name is gone.
        await c.manager.delete(MULTIKUEUE_CLUSTERS, "w1")
        await c.wait(700)
        assert (await c.active("again"))[:2] == ("True", "Active")

    dispatched(test, "w1")


class TestCopies:
    def test_41_copy_that_differs_in_more_than_priority_is_replaced(self) -> None:
        async def test(c: Clusters) -> None:
            await c.make_busy("w1")
            await c.manager.apply(job("a"))
            await c.wait()
            before = await c.copy("w1")
            await c.edit_copy("w1", "a", {"spec": {"maximumExecutionTimeSeconds": 60}})
            await c.wait()
            after = await c.copy("w1")
            assert after["metadata"]["uid"] != before["metadata"]["uid"]
            assert "maximumExecutionTimeSeconds" not in after["spec"]
            await c.workers["w1"].finish_job("busy")
            await c.wait()
            assert await placed(c) == "w1"

        dispatched(test, "w1")

    def test_43_running_status_waits_until_the_job_here_has_started(self) -> None:
        async def test(c: Clusters) -> None:
            await c.manager.apply(job("a", 2))
            c.manager.blocked.add("PATCH jobs")  # its start
            await c.wait()
            assert await placed(c) == "w1"
            await c.workers["w1"].run_job("a")
            await c.wait()
            local = await c.manager.job("a")
            assert local["spec"]["suspend"]
            assert not local["status"].get("active")
            (condition,) = local["status"]["conditions"]
            assert (condition["type"], condition["reason"]) == ("Suspended", "JobSuspended")
            c.manager.blocked.clear()
            await c.wait(30)
            assert (await c.manager.job("a"))["status"]["active"] == 2

        dispatched(test, "w1")

    def test_39_deleted_copy_is_dispatched_again(self) -> None:
        async def test(c: Clusters) -> None:
            await c.manager.apply(job("a"))
            await c.wait()
            copy = await c.workers["w1"].workload("a")
            name = copy["metadata"]["name"]
            await c.workers["w1"].patch(WORKLOADS, name, {"metadata": {"finalizers": None}})
            await c.workers["w1"].delete(WORKLOADS, name)
            await c.wait(20)
            again = await c.workers["w1"].workload("a")
            assert again["metadata"]["uid"] != copy["metadata"]["uid"]
            assert await placed(c) == "w1"
            assert ("Evicted", ("False", "QuotaReserved")) in (await c.manager.conditions("a")).items()

        dispatched(test, "w1")

    def test_40_priority_is_pushed_to_the_copy(self) -> None:
        async def test(c: Clusters) -> None:
            for stack in (c.manager, c.workers["w1"]):
                await stack.apply([priority("low", 1), priority("high", 5)])
            label = "kueue.x-k8s.io/priority-class"
            await c.manager.apply(job("a", labels={label: "low"}))
            await c.wait()
            before = await c.workers["w1"].workload("a")
            assert before["spec"]["priority"] == 1
            await c.manager.patch(JOBS, "a", {"metadata": {"labels": {label: "high"}}})
            await c.wait()
            after = await c.workers["w1"].workload("a")
            assert after["spec"]["priority"] == 5
            assert after["metadata"]["uid"] == before["metadata"]["uid"]

        dispatched(test, "w1")

    def test_42_foreign_job_of_the_same_name_is_left_alone(self) -> None:
        async def test(c: Clusters) -> None:
            await c.workers["w1"].apply(job("a", queue=None))
            await c.manager.apply(job("a"))
            await c.wait(20)
            found = await c.workers["w1"].job("a")
            assert ORIGIN not in found["metadata"]["labels"]
            assert await c.state() == "Pending"
            await c.workers["w1"].delete(JOBS, "a")
            await c.wait(120)
            assert await c.state() == "Ready"

        dispatched(test, "w1")

    def test_44_failure_of_the_job_is_that_of_the_workload(self) -> None:
        async def test(c: Clusters) -> None:
            await c.manager.apply(job("a"))
            await c.wait()
            await c.workers["w1"].finish_job("a", failed=True)
            await c.wait()
            assert (await c.manager.conditions("a"))["Finished"] == ("True", "Failed")

        dispatched(test, "w1")


class TestLostWorkers:
    def test_37_worker_that_returns_in_time_changes_nothing(self) -> None:
        async def test(c: Clusters) -> None:
            await c.manager.apply(job("a"))
            await c.wait()
            await c.workers["w1"].run_job("a")
            await c.wait()
            c.lines["w1"].cut()
            await c.wait(600)
            assert (await c.active("w1"))[:2] == ("False", "ClientConnectionFailed")
            assert (await c.check_active())[:2] == ("False", "NoUsableClusters")
            c.lines["w1"].restore()
            await c.wait(330)
            assert (await c.active("w1"))[:2] == ("True", "Active")
            assert (await placed(c), await c.state()) == ("w1", "Ready")
            await c.workers["w1"].finish_job("a")
            await c.wait()
            assert (await c.manager.conditions("a"))["Finished"] == ("True", "Succeeded")

        dispatched(test, "w1")

    def test_38_worker_that_stays_away_loses_the_job_and_its_copy_is_removed_when_it_returns(self) -> None:
        async def test(c: Clusters) -> None:
            await c.make_busy("w2")
            await c.manager.apply(job("a"))
            await c.wait()
            assert await placed(c) == "w1"
            await c.workers["w1"].run_job("a")
            await c.wait()
            await c.workers["w2"].delete(JOBS, "busy")
            (busy,) = await c.workers["w2"].workloads()
            await c.workers["w2"].delete(WORKLOADS, busy["metadata"]["name"])
            await c.wait()
            c.lines["w1"].cut()
            await c.wait(890)
            assert await placed(c) == "w1"
            await c.wait(20)
            assert await placed(c) == "w2"
            await c.workers["w2"].run_job("a")
            # The worker that returns late gives its copy up: the recorded one is kept.
            c.lines["w1"].restore()
            await c.wait(330)
            assert (await placed(c), await c.copies(), await c.jobs()) == ("w2", ["w2"], ["w2"])
            await c.workers["w2"].finish_job("a")
            await c.wait()
            assert (await c.manager.conditions("a"))["Finished"] == ("True", "Succeeded")

        dispatched(test, "w1", "w2")

    def test_50_copy_on_a_worker_that_was_away_at_the_end_is_removed_when_it_returns(self) -> None:
        async def test(c: Clusters) -> None:
            await c.make_busy("w1", "w2")
            await c.manager.apply(job("a"))
            await c.wait()
            assert [await c.has_copy(name) for name in ("w1", "w2")] == [True, True]
            c.lines["w2"].cut()
            await c.workers["w1"].finish_job("busy")
            await c.wait()
            assert await placed(c) == "w1"
            await c.workers["w1"].finish_job("a")
            await c.wait()
            assert (await c.manager.conditions("a"))["Finished"] == ("True", "Succeeded")
            assert [await c.has_copy(name) for name in ("w1", "w2")] == [False, True]
            await c.wait(20 * 60)  # longer than workerLostTimeout
            c.lines["w2"].restore()
            await c.wait(330)
            assert not await c.has_copy("w2")

        dispatched(test, "w1", "w2")


class TestCredentials:
    @pytest.mark.parametrize(
        ("content", "reason", "words"),
        [
            (kubeconfig("w1", user={"tokenFile": "/t"}), "InsecureKubeConfig", "tokenFile"),
            (kubeconfig("w1", user={"exec": {"command": "sh"}}), "InsecureKubeConfig", "exec"),
            (kubeconfig("w1", user={"auth-provider": {"name": "x"}}), "InsecureKubeConfig", "auth-provider"),
            (kubeconfig("w1", user={"username": "u", "password": "s3cret"}), "InsecureKubeConfig", "basic"),
            (kubeconfig("w1", **{"insecure-skip-tls-verify": True}), "InsecureKubeConfig", "verified"),
            (kubeconfig("w1", **{"certificate-authority": "/ca"}), "InsecureKubeConfig", "reads a file"),
            (kubeconfig("w1", server=""), "InsecureKubeConfig", "server is missing"),
            (kubeconfig("w1", server="https://"), "InsecureKubeConfig", "no host"),
            ("token: [s3cret", "BadKubeConfig", "not YAML: line 2, column 1"),
            ("s3cret", "BadKubeConfig", "not a map"),
            ("{current-context: x}", "BadKubeConfig", "contexts"),
            ("{contexts: []}", "BadKubeConfig", "has no current-context"),
        ],
    )
    def test_kubeconfig_is_refused_with_a_reason_on_the_cluster(
        self, content: Object | str, reason: str, words: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def test(c: Clusters) -> None:
            await c.manager.client.create(SECRETS, secret("w1", content))
            await c.manager.client.create(MULTIKUEUE_CLUSTERS, cluster("w1"))
            await c.wait()
            found = await c.active("w1")
            assert found[:2] == ("False", reason)
            assert words in found[2]
            assert "s3cret" not in found[2]
            # Once it is corrected, the cluster connects.
            await c.add_worker("w1")
            await c.manager.client.patch(
                SECRETS, "w1-kubeconfig", NAMESPACE, {"data": secret("w1", kubeconfig("w1"))["data"]}
            )
            await c.wait()
            assert (await c.active("w1"))[:2] == ("True", "Active")

        dispatched(test)
        assert "s3cret" not in caplog.text

    def test_missing_secret_and_missing_key_are_named(self) -> None:
        async def test(c: Clusters) -> None:
            await c.manager.client.create(MULTIKUEUE_CLUSTERS, cluster("w1"))
            await c.wait()
            assert "Secret w1-kubeconfig is not found" in (await c.active("w1"))[2]
            await c.manager.client.create(SECRETS, secret("w1", kubeconfig("w1"), key="other"))
            await c.wait()
            assert "has no key kubeconfig" in (await c.active("w1"))[2]

        dispatched(test)

    def test_file_outside_the_folder_is_refused(self) -> None:
        async def test(c: Clusters) -> None:
            await c.manager.client.create(MULTIKUEUE_CLUSTERS, cluster("w1", "/etc/passwd", "Path"))
            await c.wait()
            assert (await c.active("w1"))[:2] == ("False", "BadKubeConfig")

        dispatched(test)

    @pytest.mark.parametrize(
        ("content", "words"),
        [(None, "cannot be read: No such file or directory"), (b"\xff", "is not text in UTF-8")],
        ids=["missing", "binary"],
    )
    def test_file_that_cannot_be_read_is_named_with_the_cause(
        self, content: bytes | None, words: str, tmp_path: Path
    ) -> None:
        async def test(c: Clusters) -> None:
            await c.manager.client.create(MULTIKUEUE_CLUSTERS, cluster("w1", str(path), "Path"))
            await c.wait()
            status, reason, message = await c.active("w1")
            assert (status, reason, message) == ("False", "BadKubeConfig", f"file {path} {words}")

        path = tmp_path / "kubeconfig"
        if content is not None:
            path.write_bytes(content)
        gates = "featureGates: {MultiKueueKubeConfigPathValidation: false}\n"
        dispatched(test, configuration=gates)

    def test_cluster_that_is_its_own_worker_is_refused_and_others_go_on(self) -> None:
        async def test(c: Clusters) -> None:
            c.workers["itself"] = c.manager
            c.lines["itself"] = Line()
            await c.describe("itself")
            await c.wait()
            status, reason, message = await c.active("itself")
            assert (status, reason) == ("False", "BadKubeConfig")
            assert "its own worker" in message
            del c.workers["itself"]
            await c.manager.apply(job("a"))
            await c.wait()
            assert await placed(c) == "w1"

        dispatched(test, "w1")

    def test_clusters_that_are_workers_of_each_other_do_not_pass_a_workload_on(self) -> None:
        async def test(c: Clusters) -> None:
            w1 = c.workers["w1"]
            c.workers["home"], c.lines["home"] = c.manager, Line()
            await c.describe("home", w1)
            await c.add_check(w1, "home")
            await c.manager.apply(job("a"))
            await c.wait()
            assert await placed(c) == "w2"
            await c.make_busy("w2", cpu=9)
            await c.manager.apply(job("b"))
            await c.wait(60)
            (check,) = (await c.copy("w1", "b"))["status"]["admissionChecks"]
            assert check["state"] == "Pending"
            assert "dispatched here by another cluster" in check["message"]
            assert len(await c.manager.workloads()) == 2
            del c.workers["home"]

        dispatched(test, "w1", "w2")

    def test_check_names_missing_clusters_and_missing_configuration(self) -> None:
        async def test(c: Clusters) -> None:
            await c.manager.client.delete(MULTIKUEUE_CONFIGS, "config", None)
            await c.wait()
            assert (await c.check_active())[:2] == ("False", "BadConfig")
            await c.manager.client.create(MULTIKUEUE_CONFIGS, config("w1", "w9"))
            await c.wait()
            assert await c.check_active() == ("True", "SomeActiveClusters", "Missing clusters: w9")

        dispatched(test, "w1")
