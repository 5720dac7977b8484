"""JobSets from creation to their end (docs/reference/cluster-workloads.md 2.2 to 2.9, 2.12)."""

from __future__ import annotations

import hashlib

import pytest
from jobset_world import PREFIX, World, racks, replicated, tell

from pykueue.api.resources import JOB_SETS, JOBS, PERSISTENT_VOLUME_CLAIMS, PODS, SERVICES


def test_jobs_pods_and_service_get_the_names_they_are_found_by() -> None:
    async def story(world: World) -> None:
        await world.create(replicated("leader"), replicated("workers", 2, 2))
        await world.wait()
        assert sorted(await world.jobs()) == ["js-leader-0", "js-workers-0", "js-workers-1"]
        pod = (await world.pods("js-workers-1"))[1]
        assert pod["metadata"]["name"].startswith("js-workers-1-1-")
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("js-workers-1-1", "js")
        service = await world.client.get(SERVICES, "js", "default")
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["selector"] == {PREFIX + "jobset-name": "js"}
        assert service["spec"]["publishNotReadyAddresses"] is True

    tell(story)


def test_without_hostnames_there_is_no_service() -> None:
    async def story(world: World) -> None:
        await world.create(replicated("a"), network={"enableDNSHostnames": False})
        await world.wait()
        assert not await world.exists(SERVICES, "js")
        assert "subdomain" not in (await world.pods())[0]["spec"]

    tell(story)


def test_a_subdomain_of_ones_own_names_the_service() -> None:
    async def story(world: World) -> None:
        await world.create(replicated("a"), network={"subdomain": "team", "publishNotReadyAddresses": False})
        await world.wait()
        service = await world.client.get(SERVICES, "team", "default")
        assert not service["spec"].get("publishNotReadyAddresses")
        assert (await world.pods())[0]["spec"]["subdomain"] == "team"

    tell(story)


def test_labels_and_annotations_say_where_a_job_stands() -> None:
    async def story(world: World) -> None:
        created = await world.create(
            {**replicated("a", 2), "groupName": "first"},
            {**replicated("b", 3), "groupName": "first"},
            replicated("c"),
            coordinator={"replicatedJob": "a", "jobIndex": 1},
        )
        await world.wait()
        job = (await world.jobs())["js-b-2"]
        expected = {
            "jobset-name": "js",
            "jobset-uid": created["metadata"]["uid"],
            "replicatedjob-name": "b",
            "restart-attempt": "0",
            "replicatedjob-replicas": "3",
            "global-replicas": "6",
            "job-index": "2",
            "job-global-index": "4",
            "job-key": hashlib.sha1(b"default/js-b-2").hexdigest(),
            "group-name": "first",
            "group-replicas": "5",
            "job-group-index": "4",
            "coordinator": "js-a-1-0.js",
        }
        (pod,) = await world.pods("js-b-2")
        for metadata in (job["metadata"], job["spec"]["template"]["metadata"], pod["metadata"]):
            for place in ("labels", "annotations"):
                mine = {k.removeprefix(PREFIX): v for k, v in metadata[place].items() if PREFIX in k}
                mine.pop("priority", None)
                assert mine == expected
        assert pod["metadata"]["labels"]["app"] == "b"
        assert pod["metadata"]["labels"][PREFIX + "priority"] == "0"

    tell(story)


def test_defaults_are_filled_in() -> None:
    async def story(world: World) -> None:
        bare = replicated("a")
        bare["template"]["spec"]["template"]["spec"].pop("restartPolicy")
        stored = (await world.create(bare, failurePolicy={"rules": [{"action": "FailJobSet"}]}))["spec"]
        assert stored["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
        assert stored["successPolicy"] == {"operator": "All"}
        assert stored["startupPolicy"] == {"startupPolicyOrder": "AnyOrder"}
        policy = stored["failurePolicy"]
        assert (policy["maxRestarts"], policy["restartStrategy"]) == (0, "Recreate")
        assert policy["rules"][0]["name"] == "failurePolicyRule0"
        (one,) = stored["replicatedJobs"]
        assert (one["replicas"], one["groupName"]) == (1, "default")
        assert one["template"]["spec"]["completionMode"] == "Indexed"
        assert one["template"]["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"

    tell(story)


def test_counts_per_replicated_job_follow_its_jobs() -> None:
    async def story(world: World) -> None:
        await world.create(replicated("a", 2, 2, run_time="20s", ready_delay="5s"), replicated("b"))
        await world.wait(4)
        counts = await world.counts("a")
        assert (counts["active"], counts["ready"], counts["succeeded"]) == (2, 0, 0)
        await world.wait(8)
        counts = await world.counts("a")
        assert (counts["active"], counts["ready"], counts["succeeded"]) == (2, 2, 0)
        await world.wait(20)
        counts = await world.counts("a")
        assert (counts["active"], counts["ready"], counts["succeeded"]) == (0, 0, 2)
        assert (await world.counts("b"))["ready"] == 1

    tell(story)


def test_a_set_completes_when_all_its_jobs_do() -> None:
    async def story(world: World) -> None:
        await world.create(replicated("a", run_time="5s"), replicated("b", 2, run_time="20s"))
        await world.wait(15)
        assert await world.conditions() == {}
        await world.wait(15)
        assert (await world.conditions())["Completed"] == ("True", "AllJobsCompleted")
        status = await world.status()
        assert (status["terminalState"], status["restarts"]) == ("Completed", 0)
        assert ("Normal", "AllJobsCompleted", "jobset completed successfully") in await world.events()
        assert sorted(await world.jobs()) == ["js-a-0", "js-b-0", "js-b-1"]

    tell(story)


@pytest.mark.parametrize("first", ["workers", "leader"])
def test_success_counts_only_target_jobs_and_ends_the_others(first: str) -> None:
    async def story(world: World) -> None:
        times = {"workers": "100s", "leader": "100s", first: "10s"}
        await world.create(
            replicated("leader", run_time=times["leader"]),
            replicated("workers", 1, 2, run_time=times["workers"]),
            name="success-policy",
            successPolicy={"operator": "All", "targetReplicatedJobs": ["workers"]},
        )
        await world.wait(20)
        status = await world.status("success-policy")
        if first == "workers":
            assert status["terminalState"] == "Completed"
            assert list(await world.jobs()) == ["success-policy-workers-0"]
            assert await world.running() == 0
            return
        assert "terminalState" not in status
        assert await world.running("success-policy-workers-0") == 2
        await world.wait(100)
        assert (await world.status("success-policy"))["terminalState"] == "Completed"

    tell(story)


def test_any_one_success_is_enough_where_the_policy_says_so() -> None:
    async def story(world: World) -> None:
        await world.create(
            replicated("fast", run_time="10s"), replicated("slow", 3), successPolicy={"operator": "Any"}
        )
        await world.wait(20)
        assert (await world.status())["terminalState"] == "Completed"
        assert list(await world.jobs()) == ["js-fast-0"]

    tell(story)


def test_created_suspended_there_are_jobs_but_no_pods() -> None:
    async def story(world: World) -> None:
        await world.create(
            replicated("a", 2),
            replicated("b", depends_on=[{"name": "a", "status": "Ready"}]),
            suspend=True,
        )
        await world.wait(20)
        jobs = await world.jobs()
        assert {name: job["spec"]["suspend"] for name, job in jobs.items()} == {
            "js-a-0": True,
            "js-a-1": True,
        }
        assert await world.pods() == []
        assert await world.exists(SERVICES, "js")
        assert await world.conditions() == {"Suspended": ("True", "SuspendedJobs")}
        assert (await world.counts("a"))["suspended"] == 2

    tell(story)


def test_resuming_merges_what_the_template_gained() -> None:
    async def story(world: World) -> None:
        await world.create(replicated("a", 2), suspend=True)
        await world.wait()
        spec = (await world.jobset())["spec"]
        pod = spec["replicatedJobs"][0]["template"]["spec"]["template"]
        pod["metadata"]["labels"]["queue"] = "q"
        pod["metadata"]["annotations"]["note"] = "n"
        pod["spec"]["nodeSelector"] = {"rack": "r1"}
        pod["spec"]["tolerations"] = [{"key": "spot", "operator": "Exists"}]
        await world.patch({"spec": {"replicatedJobs": spec["replicatedJobs"], "suspend": False}})
        await world.wait()
        assert await world.running() == 2
        for one in await world.pods():
            assert one["metadata"]["labels"]["queue"] == "q"
            assert one["metadata"]["annotations"]["note"] == "n"
            assert one["spec"]["nodeSelector"] == {"rack": "r1"}
            assert {"key": "spot", "operator": "Exists"} in one["spec"]["tolerations"]
            assert one["spec"]["nodeName"].startswith("rack-1-")
        assert await world.conditions() == {"Suspended": ("False", "ResumeJobs")}

    tell(story)


def test_suspending_stops_all_pods_and_resuming_goes_on() -> None:
    async def story(world: World) -> None:
        await world.create(replicated("a", 2, 2))
        await world.wait()
        assert await world.running() == 4
        await world.suspend()
        await world.wait(60)
        assert await world.pods() == []
        assert (await world.conditions())["Suspended"] == ("True", "SuspendedJobs")
        assert (await world.counts("a"))["active"] == 0
        jobs = await world.jobs()
        await world.suspend(False)
        await world.wait()
        assert await world.running() == 4
        status = await world.status()
        assert status["restarts"] == 0
        assert (await world.conditions())["Suspended"] == ("False", "ResumeJobs")
        assert {n: j["metadata"]["uid"] for n, j in jobs.items()} == {
            n: j["metadata"]["uid"] for n, j in (await world.jobs()).items()
        }

    tell(story)


@pytest.mark.parametrize("after", [0.3, 0.8, 1.5, 2.5, 4.0])
def test_a_set_that_says_it_is_suspended_has_no_pods(after: float) -> None:
    async def story(world: World) -> None:
        await world.create(replicated("a", 2, 30, run_time="1h"))
        await world.wait(after)
        await world.suspend()
        for _ in range(200):
            if (await world.conditions()).get("Suspended", ("", ""))[0] == "True":
                break
            await world.wait(0.05)
        assert await world.pods() == []
        assert await world.conditions() == {"Suspended": ("True", "SuspendedJobs")}

    tell(story, racks(2, 4))


def test_a_selector_of_an_earlier_start_stays_on_the_jobs() -> None:
    async def story(world: World) -> None:
        created = await world.create(replicated("a"), suspend=True)
        for selector in ({"rack": "r1"}, {"other": "x"}):
            jobs = created["spec"]["replicatedJobs"]
            jobs[0]["template"]["spec"]["template"]["spec"]["nodeSelector"] = selector
            await world.patch({"spec": {"suspend": True}})
            await world.wait(60)
            await world.patch({"spec": {"replicatedJobs": jobs, "suspend": False}})
            await world.wait(30)
        job = (await world.jobs())["js-a-0"]
        assert job["spec"]["template"]["spec"]["nodeSelector"] == {"rack": "r1", "other": "x"}

    tell(story)


def test_a_set_that_another_controller_manages_is_left_alone() -> None:
    async def story(world: World) -> None:
        await world.create(replicated("a"), name="theirs", managedBy="acme.io/controller")
        await world.create(replicated("a"), name="ours", managedBy="jobset.sigs.k8s.io/jobset-controller")
        await world.wait()
        assert list(await world.jobs()) == ["ours-a-0"]
        assert await world.status("theirs") == {}

    tell(story)


def test_a_finished_set_goes_when_its_time_is_over() -> None:
    async def story(world: World) -> None:
        await world.create(replicated("a", run_time="5s"), ttlSecondsAfterFinished=30)
        await world.wait(30)
        assert (await world.status())["terminalState"] == "Completed"
        await world.wait(30)
        assert not await world.exists(JOB_SETS, "js")
        assert not await world.exists(JOBS, "js-a-0")
        assert not await world.exists(SERVICES, "js")
        assert (await world.client.list(PODS)).items == []

    tell(story)


def test_deleting_a_set_deletes_all_that_belongs_to_it() -> None:
    async def story(world: World) -> None:
        await world.create(replicated("a", 2, 2))
        await world.wait()
        await world.client.delete(JOB_SETS, "js", "default")
        await world.wait(90)
        assert await world.jobs() == {}
        assert not await world.exists(SERVICES, "js")
        assert (await world.client.list(PODS)).items == []

    tell(story)


def test_job_that_a_user_deletes_is_created_again() -> None:
    async def story(world: World) -> None:
        await world.create(replicated("a"))
        await world.wait()
        before = (await world.jobs())["js-a-0"]["metadata"]["uid"]
        await world.client.delete(JOBS, "js-a-0", "default", propagation="Background")
        await world.wait(60)
        after = (await world.jobs())["js-a-0"]["metadata"]["uid"]
        assert after != before
        assert await world.running("js-a-0") == 1

    tell(story)


def test_claims_are_made_once_mounted_where_asked_for_and_kept_if_wanted() -> None:
    async def story(world: World) -> None:
        mount = [{"name": "data", "mountPath": "/d"}, {"name": "cache", "mountPath": "/c"}]
        one = replicated("a", 2)
        one["template"]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = mount
        claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        policies = [
            {"templates": [{"metadata": {"name": "data", "labels": {"of": "team"}}, "spec": claim}]},
            {
                "templates": [{"metadata": {"name": "cache"}, "spec": claim}],
                "retentionPolicy": {"whenDeleted": "Retain"},
            },
        ]
        await world.create(one, replicated("b"), volumeClaimPolicies=policies)
        await world.wait()
        data = await world.client.get(PERSISTENT_VOLUME_CLAIMS, "data-js", "default")
        assert data["metadata"]["labels"] == {"of": "team"}
        jobs = await world.jobs()
        volumes = jobs["js-a-1"]["spec"]["template"]["spec"]["volumes"]
        assert [volume["persistentVolumeClaim"]["claimName"] for volume in volumes] == ["data-js", "cache-js"]
        assert not jobs["js-b-0"]["spec"]["template"]["spec"].get("volumes")
        await world.client.delete(JOB_SETS, "js", "default")
        await world.wait(90)
        assert not await world.exists(PERSISTENT_VOLUME_CLAIMS, "data-js")
        assert await world.exists(PERSISTENT_VOLUME_CLAIMS, "cache-js")

    tell(story)


def test_job_without_owner_that_has_the_name_is_reported() -> None:
    async def story(world: World) -> None:
        template = replicated("x")["template"]["spec"]
        alien = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "js-a-0", "namespace": "default"},
        }
        await world.client.create(JOBS, {**alien, "spec": template})
        await world.create(replicated("a"), replicated("b"))
        await world.wait()
        failures = [note for kind, reason, note in await world.events() if reason == "JobCreationFailed"]
        assert "already exists" in failures[0]
        await world.client.delete(JOBS, "js-a-0", "default", propagation="Background")
        await world.wait(120)
        assert (await world.counts("a"))["ready"] == 1
        assert (await world.counts("b"))["ready"] == 1

    tell(story)


def test_a_crash_at_any_time_changes_nothing() -> None:
    async def story(world: World) -> None:
        await world.create(
            replicated("a", 3, 2, run_time="20s"),
            replicated("b", 2, run_time="20s", depends_on=[{"name": "a", "status": "Ready"}]),
        )
        for pause in (0.001, 0.02, 0.05, 0.5, 1.0, 2.0, 3.0, 9.0, 7.0):
            await world.wait(pause)
            await world.restart()
        await world.wait(60)
        status = await world.status()
        assert (status["terminalState"], status["restarts"]) == ("Completed", 0)
        assert len(await world.jobs()) == 5
        assert len(await world.pods()) == 8

    tell(story)
