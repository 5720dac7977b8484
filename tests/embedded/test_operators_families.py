"""Stand-ins beyond the training operator: what only these kinds do (docs/reference/operators.md 4 to 11)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from operators_world import World, play

from pykueue.api.resources import CONFIG_MAPS, JOBS, PODS, RESOURCE_QUOTAS, SECRETS
from pykueue.api.yaml import load_documents

Object = dict[str, Any]
EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> Object:
    """The job of an example, which no queue starts here."""
    path = EXAMPLES / f"{name}.yaml"
    return list(load_documents(path.read_text(), path.name))[-1]


def uids(pods: dict[str, Object]) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in pods.items()}


def test_suspended_mpi_job_has_a_suspended_launcher_and_no_workers() -> None:
    async def story(world: World) -> None:
        made = example("mpi/mpijob")
        made["spec"]["runPolicy"]["suspend"] = True
        await world.create(made)
        await world.wait()
        launcher = (await world.all(JOBS))["forecast-launcher"]
        assert launcher["spec"]["suspend"] is True
        assert not await world.pods()
        hosts = (await world.all(CONFIG_MAPS))["forecast-config"]["data"]["hostfile"]
        assert hosts.splitlines()[0] == "forecast-worker-0.forecast.default.svc slots=2"
        assert (await world.all(SECRETS))["forecast-ssh"]["type"] == "kubernetes.io/ssh-auth"
        selector = {"disk": "fast"}
        template = {"spec": {"nodeSelector": selector}}
        roles = {"Launcher": {"template": template}}
        await world.patch(made, {"runPolicy": {"suspend": False}, "mpiReplicaSpecs": roles})
        await world.wait()
        launcher = (await world.all(JOBS))["forecast-launcher"]
        assert launcher["spec"]["template"]["spec"]["nodeSelector"] == selector
        assert len(await world.pods()) == 4

    play(story)


def test_mpi_job_with_an_invalid_worker_count_gets_an_event_and_nothing_else() -> None:
    async def story(world: World) -> None:
        made = example("mpi/mpijob")
        del made["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"]
        await world.create(made)
        await world.wait()
        assert await world.events(made) == ["ValidationError"]
        assert not await world.status(made)
        assert not await world.all(JOBS)

    play(story)


def test_lost_ray_worker_is_replaced_and_the_cluster_stays_ready() -> None:
    async def story(world: World) -> None:
        made = example("ray/raycluster")
        await world.create(made)
        await world.wait()
        before = await world.pods()
        lost = next(name for name in before if "worker" in name)
        index = before[lost]["metadata"]["labels"]["ray.io/worker-group-replica-index"]
        await world.client.delete(PODS, lost, "default")
        await world.wait(1)
        assert (await world.status(made))["state"] == "ready"
        await world.wait()
        after = await world.pods()
        (new,) = set(after) - set(before)
        assert after[new]["metadata"]["labels"]["ray.io/worker-group-replica-index"] == index
        assert len(after) == 3

    play(story)


def test_ray_cluster_that_is_resumed_at_once_is_suspended_first() -> None:
    async def story(world: World) -> None:
        made = example("ray/raycluster")
        await world.create(made)
        await world.wait()
        before = set(await world.pods())
        await world.patch(made, {"suspend": True})
        await world.wait(0.05)
        await world.patch(made, {"suspend": False})
        await world.wait(10)
        assert (await world.status(made))["state"] == "ready"
        assert not before & set(await world.pods())

    play(story)


def test_ray_job_without_a_submitter_ends_as_its_annotations_say() -> None:
    async def story(world: World) -> None:
        made = example("ray/rayjob")
        made["spec"]["submissionMode"] = "HTTPMode"
        made["metadata"]["annotations"] = {
            "sim.pykueue.io/run-time": "30s",
            "sim.pykueue.io/exit-code": "1",
        }
        await world.create(made)
        await world.wait(10)
        assert (await world.status(made))["jobStatus"] == "RUNNING"
        await world.wait(30)
        status = await world.status(made)
        assert (status["jobDeploymentStatus"], status["reason"]) == ("Failed", "AppFailed")
        assert not await world.pods()

    play(story)


def test_ray_job_whose_submitter_is_refused_at_first_still_runs() -> None:
    async def story(world: World) -> None:
        metadata = {"name": "none", "namespace": "default"}
        quota = {"metadata": metadata, "spec": {"hard": {"count/jobs.batch": "0"}}}
        await world.client.create(RESOURCE_QUOTAS, quota)
        made = example("ray/rayjob")
        await world.create(made)
        await world.wait(10)
        assert not await world.all(JOBS)
        assert (await world.status(made))["jobDeploymentStatus"] == "Initializing"
        await world.client.delete(RESOURCE_QUOTAS, "none", "default")
        await world.wait(60)
        assert set(await world.all(JOBS)) == {made["metadata"]["name"]}
        assert (await world.status(made))["jobDeploymentStatus"] == "Complete"

    play(story)


def test_ray_job_created_suspended_has_no_cluster_until_it_is_resumed() -> None:
    async def story(world: World) -> None:
        made = example("ray/rayjob")
        made["spec"]["suspend"] = True
        await world.create(made)
        await world.wait()
        status = await world.status(made)
        assert status["jobDeploymentStatus"] == "Suspended"
        assert "rayClusterName" not in status
        await world.patch(made, {"suspend": False})
        await world.wait(10)
        assert (await world.status(made))["jobDeploymentStatus"] == "Running"

    play(story)


def test_restarted_container_of_a_group_recreates_the_group() -> None:
    async def story(world: World) -> None:
        made = example("leaderworkerset/leaderworkerset")
        await world.create(made)
        await world.wait()
        before = uids(await world.pods())
        await world.client.delete(PODS, "chat-0-1", "default")
        await world.wait(10)
        after = uids(await world.pods())
        assert set(after) == set(before)
        kept = {name for name in after if after[name] == before[name]}
        assert kept == {"chat-1", "chat-1-1", "chat-1-2"}
        assert (await world.status(made))["readyReplicas"] == 2

    play(story)


def test_wrapper_with_a_failed_pod_is_reset_and_fails_in_the_end() -> None:
    async def story(world: World) -> None:
        made = example("appwrapper/appwrapper")
        prefix = "workload.codeflare.dev.appwrapper/"
        made["metadata"]["annotations"] = {f"{prefix}retryLimit": "1"}
        job = made["spec"]["components"][1]["template"]["spec"]
        job["backoffLimit"] = 6
        job["template"]["metadata"]["annotations"]["sim.pykueue.io/exit-code"] = "1"
        await world.create(made)
        await world.wait(100)
        status = await world.status(made)
        assert status["phase"] == "Resetting"
        assert status["resettingCount"] == 1
        assert ("QuotaReserved", "True") in await world.conditions(made)
        await world.wait(400)
        assert (await world.status(made))["phase"] == "Failed"
        assert ("ResourcesDeployed", "False") in await world.conditions(made)
        assert not await world.all(JOBS)

    play(story)


def test_changed_application_is_submitted_again() -> None:
    async def story(world: World) -> None:
        made = example("spark/sparkapplication")
        made["spec"]["driver"]["annotations"] = {"sim.pykueue.io/run-time": "1h"}
        await world.create(made)
        await world.wait()
        assert set(await world.pods()) == {"sessions-driver", "sessions-exec-1", "sessions-exec-2"}
        before = uids(await world.pods())
        await world.patch(made, {"executor": {"instances": 1}})
        await world.wait(10)
        after = uids(await world.pods())
        assert set(after) == {"sessions-driver", "sessions-exec-1"}
        assert after["sessions-driver"] != before["sessions-driver"]
        assert (await world.status(made))["applicationState"]["state"] == "RUNNING"

    play(story)
