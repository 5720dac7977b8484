"""MultiKueue from manifests to the end of jobs on workers (docs/reference/admission-checks.md, part C)."""

from __future__ import annotations

from typing import Any

import pytest
from manager_stack import Object, job
from multikueue_world import ORIGIN, Clusters, dispatched, jobset, pytorch_job

from pykueue.api.resources import CLUSTER_QUEUES, JOB_SETS, JOBS, WORKLOADS, Resource

PYTORCH_JOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob", True)


class TestLife:
    def test_a_job_runs_on_the_first_worker_that_admits_and_its_end_comes_back(self) -> None:
        async def test(c: Clusters) -> None:
            assert await c.active("w1") == ("True", "Active", "Connected")
            assert (await c.check_active())[:2] == ("True", "Active")
            await c.make_busy("w1")
            await c.manager.apply(job("a", 2))
            await c.wait()

            assert (await c.manager.job("a"))["spec"]["managedBy"] == "kueue.x-k8s.io/multikueue"
            status = await c.status()
            assert (status["clusterName"], await c.state()) == ("w2", "Ready")
            assert "nominatedClusterNames" not in status
            assert await c.manager.events("a") == ["CreatedWorkload", "Started"]
            name = (await c.manager.workload("a"))["metadata"]["name"]
            assert {"MultiKueue", "Admitted"} <= set(await c.manager.events(name))
            # Its copies: one Workload and one Job, on that worker alone.
            copy = await c.workers["w2"].workload("a")
            assert (copy["metadata"]["name"], copy["metadata"]["labels"][ORIGIN]) == (name, "multikueue")
            assert "kueue.x-k8s.io/job-uid" not in copy["metadata"]["labels"]
            assert not [w for w in await c.workers["w1"].workloads() if w["metadata"]["name"] == name]
            remote = await c.workers["w2"].job("a")
            assert remote["spec"].get("managedBy") is None
            assert remote["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] == name
            assert not remote["spec"]["suspend"]
            assert not await c.manager.suspended("a")

            await c.workers["w2"].run_job("a")
            await c.wait()
            assert (await c.manager.job("a"))["status"]["active"] == 2
            await c.workers["w2"].finish_job("a")
            await c.wait()
            conditions = await c.manager.conditions("a")
            assert conditions["Finished"] == ("True", "Succeeded")
            assert {"Complete"} <= {one["type"] for one in (await c.manager.job("a"))["status"]["conditions"]}
            assert (await c.copies(), await c.jobs()) == (["w1"], ["w1"])  # those that make it busy

        dispatched(test, "w1", "w2")

    @pytest.mark.parametrize(
        ("manifest", "resource", "status", "managed_by"),
        [
            (jobset("a"), JOB_SETS, {"conditions": [("Completed", "AllJobsCompleted")]}, "spec"),
            (pytorch_job("a"), PYTORCH_JOBS, {"conditions": [("Succeeded", "Done")]}, "runPolicy"),
        ],
        ids=["JobSet", "PyTorchJob"],
    )
    def test_other_kinds_are_dispatched_in_the_same_way(
        self, manifest: Object, resource: Resource, status: Object, managed_by: str
    ) -> None:
        async def test(c: Clusters) -> None:
            await c.manager.client.create(resource, manifest)
            await c.wait()
            local = await c.manager.get(resource, "a")
            holder = local["spec"] if managed_by == "spec" else local["spec"][managed_by]
            assert holder["managedBy"] == "kueue.x-k8s.io/multikueue"
            assert (await c.status())["clusterName"] == "w1"
            remote = await c.workers["w1"].get(resource, "a")
            holder = remote["spec"] if managed_by == "spec" else remote["spec"][managed_by]
            assert "managedBy" not in holder
            assert holder["suspend"] is False
            conditions = [
                {
                    "type": kind,
                    "status": "True",
                    "reason": reason,
                    "message": "m",
                    "lastTransitionTime": c.manager.now(),
                }
                for kind, reason in status["conditions"]
            ]
            await c.workers["w1"].patch(resource, "a", {"status": {"conditions": conditions}}, "status")
            await c.wait()
            assert (await c.manager.conditions("a"))["Finished"] == ("True", "Succeeded")
            assert (await c.manager.get(resource, "a"))["status"]["conditions"][0]["type"] == conditions[0][
                "type"
            ]
            assert await c.copies() == []

        dispatched(test, "w1")

    def test_eviction_on_the_manager_stops_the_job_on_the_worker_first(self) -> None:
        async def test(c: Clusters) -> None:
            await c.manager.apply(job("a", 2))
            await c.wait()
            await c.workers["w1"].run_job("a")
            await c.wait()
            workload = await c.manager.workload("a")
            await c.manager.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": False}})
            await c.wait()
            # The pods on the worker still run: the quota is kept here.
            assert (await c.manager.conditions("a"))["QuotaReserved"][0] == "True"
            assert await c.workers["w1"].suspended("a")
            await c.workers["w1"].stop_pods("a")
            await c.wait()
            assert (await c.manager.conditions("a"))["QuotaReserved"][0] == "False"
            assert (await c.copies(), await c.jobs()) == ([], [])
            # Activated again it is dispatched again.
            await c.manager.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": True}})
            await c.wait()
            assert (await c.status())["clusterName"] == "w1"
            await c.workers["w1"].finish_job("a")
            await c.wait()
            assert (await c.manager.conditions("a"))["Finished"] == ("True", "Succeeded")

        dispatched(test, "w1")

    def test_eviction_on_the_worker_dispatches_the_job_again(self) -> None:
        async def test(c: Clusters) -> None:
            await c.manager.apply(job("a", 2))
            await c.wait()
            first = str((await c.status())["clusterName"])
            other = "w2" if first == "w1" else "w1"
            await c.workers[first].run_job("a")
            await c.wait()
            await c.workers[first].patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "HoldAndDrain"}})
            await c.wait()
            await c.workers[first].stop_pods("a")
            await c.wait(15)
            assert (await c.status())["clusterName"] == other
            assert await c.jobs() == [other]

        dispatched(test, "w1", "w2")

    def test_job_that_is_deactivated_runs_on_until_the_eviction_is_written(self) -> None:
        async def test(c: Clusters) -> None:
            await c.manager.apply(job("a", 2))
            await c.wait()
            await c.workers["w1"].run_job("a")
            await c.wait()
            name = (await c.manager.workload("a"))["metadata"]["name"]
            c.manager.blocked.add(f"PATCH {name}")
            await c.manager.patch(WORKLOADS, name, {"spec": {"active": False}})
            await c.wait()
            # Removed, the job could succeed meanwhile, and nothing here would show it.
            assert (await c.jobs(), await c.workers["w1"].suspended("a")) == (["w1"], False)
            c.manager.blocked.clear()
            await c.wait(30)
            assert (await c.jobs(), await c.workers["w1"].suspended("a")) == (["w1"], True)
            await c.workers["w1"].stop_pods("a")
            await c.wait(15)
            assert (await c.copies(), await c.jobs()) == ([], [])

        dispatched(test, "w1")

    def test_copy_that_its_worker_evicts_gets_no_quota_again_before_the_job_is_dispatched_again(self) -> None:
        async def test(c: Clusters) -> None:
            released: list[tuple[bool, bool]] = []

            def stored(new: Any, old: Any) -> None:
                was, now = (one and (one.object.get("status") or {}).get("clusterName") for one in (old, new))
                if was and not now:
                    core = c.workers["w1"].server.core
                    copy = core.find(WORKLOADS.group, WORKLOADS.plural, "default", new.key[1])
                    remote = core.find(JOBS.group, JOBS.plural, "default", "a")
                    assert copy is not None
                    assert remote is not None
                    released.append((copy["spec"]["active"], remote["spec"]["suspend"]))

            c.manager.server.core.on_stored(f"{WORKLOADS.group}/{WORKLOADS.plural}", stored)
            await c.manager.apply(job("a", 2))
            await c.wait()
            await c.workers["w1"].run_job("a")
            await c.wait()
            await c.workers["w1"].patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "HoldAndDrain"}})
            await c.wait()
            # There is room for the job again by the time its pods have ended.
            await c.workers["w1"].patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "None"}})
            await c.wait()
            await c.workers["w1"].stop_pods("a")
            await c.wait(15)
            assert released == [(False, True)]
            assert (await c.status())["clusterName"] == "w1"

        dispatched(test, "w1")

    def test_deleting_the_job_deletes_its_copies(self) -> None:
        async def test(c: Clusters) -> None:
            await c.manager.apply(job("a"))
            await c.wait()
            assert await c.jobs() == ["w1"]
            await c.manager.delete(JOBS, "a")
            await c.wait()
            assert (await c.copies(), await c.jobs()) == ([], [])

        dispatched(test, "w1", "w2")


#: By dispatcher: the configuration, and how many of three workers get a copy of the Workload.
DISPATCHERS = {
    "all at once": ("", 3),
    "incremental": (
        "multiKueue:\n"
        "  dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental\n"
        "  incrementalDispatcherConfig: {stepSize: 2}\n",
        2,
    ),
    "external": ("multiKueue: {dispatcherName: example.com/mine}\n", 1),
}


@pytest.mark.parametrize("dispatcher", DISPATCHERS)
def test_writes_of_the_manager_for_a_job(dispatcher: str) -> None:
    configuration, copies = DISPATCHERS[dispatcher]

    async def test(c: Clusters) -> None:
        await c.make_busy("w2", "w3")
        before = c.writes()
        await c.manager.apply(job("a"))
        await c.wait()
        if dispatcher == "external":
            name = (await c.manager.workload("a"))["metadata"]["name"]
            await c.manager.patch(WORKLOADS, name, {"status": {"nominatedClusterNames": ["w1"]}}, "status")
            await c.wait()
        await c.workers["w1"].run_job("a")
        await c.wait()
        await c.workers["w1"].finish_job("a")
        await c.wait()
        after = c.writes()
        # Copies are created and deleted; a worker that loses gets one copy, which is deleted.
        assert after["w1"] - before["w1"] == {
            "POST workloads": 1,
            "POST jobs": 1,
            "DELETE jobs": 1,
            "DELETE workloads": 1,
        }
        for number, name in enumerate(("w2", "w3"), start=2):
            lost = {"POST workloads": 1, "DELETE workloads": 1} if number <= copies else {}
            assert after[name] - before[name] == lost
        found = after["manager"] - before["manager"]
        queues = ("clusterqueues", "localqueues", "events")
        assert {kind: count for kind, count in found.items() if not any(name in kind for name in queues)} == {
            "POST workloads": 1,
            # The reservation with the nominated workers, the worker that gets the job, and the check's answer
            # with the admission. Then what comes back: that pods are ready, and the end.
            "PATCH workloads/status": 3 + 2,
            "PATCH jobs": 1,  # the start
            "PATCH jobs/status": 2,  # what comes back: it runs, and its end
            "PATCH workloads": 1,  # the finalizer, at the end
        }

    dispatched(test, "w1", "w2", "w3", configuration=configuration)
