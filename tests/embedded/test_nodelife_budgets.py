"""Disruption budgets: what they allow, whom evictions spend them on, and what their status says."""

import asyncio

import pytest
from nodes_stage import condition, play, pod

from pykueue.api.resources import DEPLOYMENTS, JOBS, POD_DISRUPTION_BUDGETS, PODS
from pykueue.kube.errors import ApiError

TWO = "pools: [{name: n, count: 2, allocatable: {cpu: 8, pods: 110}, simulation: {startDelay: 1s}}]"
ALL = ("nodes", "scheduler", "controllers")
APP = {"app": "a"}


async def budget(stage, name="b", app="a", **spec):
    await stage.client.create(
        POD_DISRUPTION_BUDGETS,
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
        },
    )


async def status(stage, name="b"):
    return (await stage.client.get(POD_DISRUPTION_BUDGETS, name, "default")).get("status") or {}


async def counts(stage, name="b"):
    """expected, desired, current, allowed"""
    found = await status(stage, name)
    fields = ("expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed")
    return tuple(found.get(field) for field in fields)


async def evict(stage, name, **options):
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": "default"},
        **({"deleteOptions": options} if options else {}),
    }
    await stage.client.create(PODS, body, name=name, subresource="eviction")


async def refused(stage, name):
    with pytest.raises(ApiError) as caught:
        await evict(stage, name)
    return caught.value


def web(name, *command, **options):
    return pod(name, *(command or ("sleep", "9000")), labels=APP, **options)


def deployment(replicas, **annotations):
    container = {"name": "c", "image": "i", "command": ["sleep", "9000"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": APP},
            "template": {
                "metadata": {"labels": APP, "annotations": annotations},
                "spec": {"containers": [container]},
            },
        },
    }


def test_evictions_spend_what_is_left_and_no_more():
    async def story(stage):
        await stage.create(*(web(f"p-{number}", sim_stop_delay="5s") for number in range(4)))
        await budget(stage, minAvailable=2)
        await stage.until(10)
        assert await counts(stage) == (4, 2, 4, 2)
        assert condition({"status": await status(stage)}, "DisruptionAllowed") == ("True", "SufficientPods")
        await evict(stage, "p-0")
        await evict(stage, "p-1")
        error = await refused(stage, "p-2")
        assert (error.code, error.reason) == (429, "TooManyRequests")
        assert error.message == "Cannot evict pod as it would violate the pod's disruption budget."
        assert error.details["causes"] == [
            {
                "reason": "DisruptionBudget",
                "message": "The disruption budget b needs 2 healthy pods and has 4 currently",
            }
        ]
        evicted = await stage.pod("p-0")
        assert condition(evicted, "DisruptionTarget") == ("True", "EvictionByEvictionAPI")
        await stage.until(12)
        assert await counts(stage) == (4, 2, 2, 0)
        assert condition({"status": await status(stage)}, "DisruptionAllowed") == (
            "False",
            "InsufficientPods",
        )
        assert "disruptedPods" not in await status(stage)
        await stage.until(30)
        assert await counts(stage) == (2, 2, 2, 0)
        await stage.create(web("p-4"))
        await stage.until(40)
        assert await counts(stage) == (3, 2, 3, 1)

    play(story, pools=TWO, parts=ALL)


def test_pods_that_do_not_run_are_evicted_whatever_the_budget():
    async def story(stage):
        await stage.create(web("waits", nodeSelector={"no": "where"}), web("ended", "true"), web("runs"))
        await budget(stage, minAvailable=1)
        await stage.until(10)
        await evict(stage, "waits")
        await evict(stage, "ended")
        assert (await refused(stage, "runs")).code == 429
        await stage.until(12)
        assert {one["metadata"]["name"] for one in await stage.pods()} == {"runs"}

    play(story, pools=TWO, parts=ALL)


def test_eviction_before_the_budget_is_computed_gets_429():
    async def story(stage):
        await stage.create(web("p"))
        await stage.until(10)
        await budget(stage, minAvailable=0)
        evicting = asyncio.create_task(evict(stage, "p"))
        await stage.until(15)
        # The client waits for Retry-After, and the budget is still not computed.
        assert not evicting.done()
        stage.start("controllers")
        await evicting
        await stage.until(25)
        assert await stage.pods() == []

    play(story, pools=TWO)


def test_a_pod_of_two_budgets_cannot_be_evicted():
    async def story(stage):
        await stage.create(web("p"))
        await budget(stage, "b", minAvailable=0)
        await budget(stage, "c", minAvailable=0)
        await stage.until(10)
        error = await refused(stage, "p")
        assert error.code == 500
        assert "more than one PodDisruptionBudget" in error.message

    play(story, pools=TWO, parts=ALL)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"maxUnavailable": 1}, (4, 3, 4, 1)),
        ({"maxUnavailable": "50%"}, (4, 2, 4, 2)),
        ({"maxUnavailable": "30%"}, (4, 2, 4, 2)),
        ({"minAvailable": "30%"}, (4, 2, 4, 2)),
        ({"minAvailable": "100%"}, (4, 4, 4, 0)),
        ({"maxUnavailable": 9}, (4, 0, 4, 4)),
    ],
)
def test_parts_are_of_what_the_owner_wants(spec, expected):
    async def story(stage):
        await stage.client.create(DEPLOYMENTS, deployment(4))
        await budget(stage, **spec)
        await stage.until(15)
        assert await counts(stage) == expected

    play(story, pools=TWO, parts=ALL)


def test_an_evicted_pod_of_a_deployment_is_replaced_and_the_budget_with_it():
    async def story(stage):
        await stage.client.create(DEPLOYMENTS, deployment(3))
        await budget(stage, maxUnavailable=1)
        await stage.until(15)
        names = [one["metadata"]["name"] for one in await stage.pods()]
        for name in names:
            await evict(stage, name)
            others = {one["metadata"]["name"] for one in await stage.pods()} - {name}
            assert (await refused(stage, others.pop())).code == 429
            await stage.clock.sleep(10)
            assert await counts(stage) == (3, 2, 3, 1)
        assert not {one["metadata"]["name"] for one in await stage.pods()} & set(names)

    play(story, pools=TWO, parts=ALL)


def test_pods_of_a_job_are_counted_only_where_no_owner_needs_to_be_asked():
    async def story(stage):
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "j", "namespace": "default"},
            "spec": {
                "parallelism": 3,
                "completions": 3,
                "template": {
                    "metadata": {"labels": APP},
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{"name": "c", "image": "i", "command": ["sleep", "9000"]}],
                    },
                },
            },
        }
        await stage.client.create(JOBS, job)
        await budget(stage, minAvailable=2)
        await stage.until(15)
        assert await counts(stage) == (3, 2, 3, 1)
        await stage.client.delete(POD_DISRUPTION_BUDGETS, "b", "default")
        await budget(stage, maxUnavailable=1)
        await stage.until(20)
        found = await status(stage)
        assert found["disruptionsAllowed"] == 0
        assert condition({"status": found}, "DisruptionAllowed") == ("False", "SyncFailed")
        text = "jobs.batch does not implement the scale subresource"
        text = f"Failed to calculate the number of expected pods: {text}"
        assert ("CalculateExpectedPodCountFailed", text) in await stage.events("b")

    play(story, pools=TWO, parts=ALL)


def test_pods_that_are_not_ready_go_as_the_policy_says():
    async def story(stage):
        await stage.create(web("ready"), web("not-ready", sim_ready_delay="1h"))
        await stage.create(
            pod("other", "sleep", "9000", labels={"app": "b"}, sim_ready_delay="1h"),
        )
        await budget(stage, minAvailable=2)
        await budget(stage, "lenient", "b", minAvailable=1, unhealthyPodEvictionPolicy="AlwaysAllow")
        await stage.until(10)
        assert (await refused(stage, "not-ready")).code == 429
        await evict(stage, "other")
        await stage.client.patch(POD_DISRUPTION_BUDGETS, "b", "default", {"spec": {"minAvailable": 1}})
        await stage.until(12)
        # The healthy ones are enough, so those that are not may go.
        await evict(stage, "not-ready")
        assert (await refused(stage, "ready")).code == 429

    play(story, pools=TWO, parts=ALL)


def test_eviction_without_a_deletion_is_dropped_after_two_minutes():
    async def story(stage):
        await stage.create(web("p"), web("q"))
        await budget(stage, minAvailable=1)
        await stage.until(10)
        change = {"status": {"disruptionsAllowed": 0, "disruptedPods": {"p": "2026-01-01T00:00:10Z"}}}
        await stage.client.patch(POD_DISRUPTION_BUDGETS, "b", "default", change, subresource="status")
        await stage.until(100)
        assert await counts(stage) == (2, 1, 1, 0)
        await stage.until(135)
        assert await counts(stage) == (2, 1, 2, 1)
        assert "disruptedPods" not in await status(stage)
        assert ("NotDeleted", "Pod was expected by PDB default/b to be deleted but it wasn't") in (
            await stage.events("p")
        )

    play(story, pools=TWO, parts=ALL)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"minAvailable": 1, "maxUnavailable": 1}, "cannot be both set"),
        ({"minAvailable": -1}, "must be greater than or equal to 0"),
        ({"maxUnavailable": "half"}, "a valid percent string must be"),
        ({"maxUnavailable": "101%"}, "must not be greater than 100%"),
        ({"unhealthyPodEvictionPolicy": "Never"}, 'supported values: "AlwaysAllow", "IfHealthyBudget"'),
    ],
)
def test_budgets_that_make_no_sense_are_refused(spec, message):
    async def story(stage):
        with pytest.raises(ApiError, match=message) as caught:
            await budget(stage, **spec)
        assert caught.value.code == 422

    play(story, pools=TWO)


def test_an_eviction_of_another_pod_of_that_name_costs_the_budget_nothing():
    async def story(stage):
        await stage.create(web("p"))
        await budget(stage, minAvailable=0)
        await stage.until(10)
        with pytest.raises(ApiError) as caught:
            await evict(stage, "p", preconditions={"uid": "another"})
        assert caught.value.conflict
        await stage.until(12)
        assert await counts(stage) == (1, 0, 1, 1)
        assert "disruptedPods" not in await status(stage)

    play(story, pools=TWO, parts=ALL)


def test_an_eviction_may_be_tried_without_consequences():
    async def story(stage):
        await stage.create(web("p"))
        await budget(stage, minAvailable=0)
        await stage.until(10)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "p", "namespace": "default"},
        }
        await stage.client.create(PODS, body, name="p", subresource="eviction", dry_run=True)
        await stage.until(20)
        assert condition(await stage.pod("p"), "DisruptionTarget") is None
        assert await counts(stage) == (1, 0, 1, 1)

    play(story, pools=TWO, parts=ALL)
