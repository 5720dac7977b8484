"""Writes of stand-in operators that fail: no status says that what could not be written exists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from operators_world import RESOURCES, World, play

from pykueue.api.resources import PODS, RESOURCE_QUOTAS
from pykueue.api.yaml import load_documents
from pykueue.embedded.apiserver.webhooks.admission import Webhook, WebhookFailedError
from pykueue.jobs.kinds import BUILT_IN
from pykueue.kube.discovery import Discovery
from pykueue.simulate.submit import Submitter

Object = dict[str, Any]
EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = ("kubeflow", "mpi", "ray", "trainjob", "appwrapper", "spark", "leaderworkerset")
RULES = [{"operations": ["CREATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]


def manifests() -> list[Object]:
    """All examples; what a queue would start of them starts at once."""
    paths = [path for folder in FOLDERS for path in sorted((EXAMPLES / folder).glob("*.yaml"))]
    return [made for path in paths for made in load_documents(path.read_text(), path.name)]


def refuse(world: World, refused: Callable[[Object], bool]) -> None:
    """Have the server answer 500 to creations by the stand-in operators for which this holds."""

    async def review(review: Object) -> Object:
        request = review["request"]
        ours = request["userInfo"]["username"] == "system:stand-in-operators"
        if ours and request["kind"]["kind"] != "Event" and refused(request):
            raise WebhookFailedError("not now")
        return {"response": {"uid": request["uid"], "allowed": True}}

    assert world.cluster.server is not None
    world.cluster.server.admission.register(Webhook("refuse", False, RULES, review))


async def create(world: World) -> list[Object]:
    """Create all examples; the jobs."""
    made = manifests()
    submitter = Submitter(world.client, Discovery(world.cluster.transport("tester")), world.clock)
    await submitter.create(made)
    return [one for one in made if one["kind"] in RESOURCES]


def is_served(job: Object) -> bool:
    """Whether its status says that it has ended, or that all its pods are ready."""
    integration = BUILT_IN.for_kind(job["apiVersion"], job["kind"])
    if integration is None:
        return bool((job.get("status") or {}).get("readyReplicas") == 2)
    return integration.outcome(job) is not None or integration.pods_ready(job)


async def served(world: World, jobs: list[Object]) -> list[str]:
    return [one["kind"] for one in jobs if is_served(await world.get(one))]


def test_while_creations_fail_no_job_is_reported_as_ready_or_ended() -> None:
    async def story(world: World) -> None:
        failing = True
        refuse(world, lambda request: failing)
        jobs = await create(world)
        assert {job["kind"] for job in jobs} == set(RESOURCES)
        for _ in range(10):
            await world.wait(1)
            assert not await served(world, jobs)
            assert not await world.all(PODS)
        spark = next(job for job in jobs if job["kind"] == "SparkApplication")
        assert not await world.status(spark)
        failing = False
        await world.wait(120)
        assert set(await served(world, jobs)) == set(RESOURCES)

    play(story)


def test_jobs_of_which_objects_of_every_kind_are_refused_once_run() -> None:
    async def story(world: World) -> None:
        seen: set[tuple[str, str]] = set()

        def is_first(request: Object) -> bool:
            # Names of Ray's objects end with random characters, new ones each time.
            base = request["object"]["metadata"]["name"].rpartition("-")[0]
            key = (request["kind"]["kind"], base)
            first = key not in seen
            seen.add(key)
            return first

        refuse(world, is_first)
        jobs = await create(world)
        await world.wait(200)
        assert set(await served(world, jobs)) == set(RESOURCES)

    play(story)


@pytest.mark.parametrize(("policy", "state"), [("Never", "FAILED"), ("OnFailure", "COMPLETED")])
def test_application_whose_submission_is_refused_fails_or_is_submitted_again(policy: str, state: str) -> None:
    async def story(world: World) -> None:
        hard = {"metadata": {"name": "none", "namespace": "default"}, "spec": {"hard": {"count/pods": "0"}}}
        await world.client.create(RESOURCE_QUOTAS, hard)
        made = next(one for one in manifests() if one["kind"] == "SparkApplication")
        retries = {"onSubmissionFailureRetries": 5, "onSubmissionFailureRetryInterval": 5}
        made["spec"]["restartPolicy"] = {"type": policy, **retries}
        await world.create(made)
        await world.wait(8)
        status = await world.status(made)
        assert status["applicationState"]["state"] == ("FAILED" if policy == "Never" else "SUBMISSION_FAILED")
        assert "exceeded quota" in status["applicationState"]["errorMessage"]
        await world.client.delete(RESOURCE_QUOTAS, "none", "default")
        await world.wait(60)
        assert (await world.status(made))["applicationState"]["state"] == state

    play(story)


def test_wrapper_whose_components_cannot_be_created_fails_after_its_retries() -> None:
    async def story(world: World) -> None:
        refuse(world, lambda request: True)
        made = next(one for one in manifests() if one["kind"] == "AppWrapper")
        prefix = "workload.codeflare.dev.appwrapper"
        made["metadata"]["annotations"] = {
            f"{prefix}/retryLimit": "1",
            f"{prefix}/retryPausePeriodDuration": "5s",
        }
        await world.create(made)
        await world.wait(50)
        assert (await world.status(made))["phase"] == "Resuming"
        await world.wait(200)
        assert (await world.status(made))["phase"] == "Failed"
        assert ("Unhealthy", "True") in await world.conditions(made)

    play(story)
