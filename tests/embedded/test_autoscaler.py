"""The cluster autoscaler of the embedded cluster: pools that grow and shrink, ProvisioningRequests."""

import pytest
from nodes_stage import condition, play, pod

from pykueue.api.resources import NODES, POD_TEMPLATES, PROVISIONING_REQUESTS
from pykueue.embedded.autoscaler import Autoscaler
from pykueue.embedded.autoscaler.definition import definition
from pykueue.embedded.nodes.pool import PoolError, parse_pools

CHECK = "check-capacity.autoscaling.x-k8s.io"
ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
QUEUED = "queued-provisioning.gke.io"
CONSUME = "autoscaling.x-k8s.io/consume-provisioning-request"


def pools(*scaling, seed=1):
    """Pools a, b, ... with these `scaling` sections; nodes of 4 cpu."""
    lines = [
        f"- {{name: {name}, allocatable: {{cpu: 4, pods: 110}}, scaling: {{{text}}}}}"
        for name, text in zip("abc", scaling, strict=False)
    ]
    return f"seed: {seed}\npools:\n" + "\n".join(lines)


async def start(stage, *scaling, seed=1):
    await stage.server.install_crds([definition()])
    await stage.declare_pools(pools(*scaling, seed=seed))
    for name in ("nodes", "scheduler", "controllers", "pools"):
        stage.start(name)
    stage.start("autoscaler", Autoscaler(stage.server.transport(), stage.clock))
    await stage.clock.sleep(2)


async def nodes(stage):
    return sorted(one["metadata"]["name"] for one in (await stage.client.list(NODES)).items)


async def request(stage, name, count, cpu="4", provisioning_class=ATOMIC, **parameters):
    spec = pod("x", cpu=cpu)["spec"]
    template = {"apiVersion": "v1", "kind": "PodTemplate", "template": {"spec": spec}}
    await stage.client.create(POD_TEMPLATES, {**template, "metadata": {"name": name, "namespace": "default"}})
    await stage.client.create(
        PROVISIONING_REQUESTS,
        {
            "apiVersion": "autoscaling.x-k8s.io/v1",
            "kind": "ProvisioningRequest",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "provisioningClassName": provisioning_class,
                "podSets": [{"count": count, "podTemplateRef": {"name": name}}],
                "parameters": parameters,
            },
        },
    )


async def answer(stage, name, kind="Provisioned"):
    """(status, reason, message) of a condition of a request; None where there is none."""
    found = await stage.client.get(PROVISIONING_REQUESTS, name, "default")
    for one in (found.get("status") or {}).get("conditions") or ():
        if one["type"] == kind:
            return one["status"], one["reason"], one["message"]
    return None


# Pending pods


def test_pools_grow_for_pending_pods_cheapest_first_and_shrink_when_empty():
    async def story(stage):
        await start(stage, "max: 5, price: 3", "max: 1, startUp: 1m, price: 2, scaleDownAfter: 5m")
        assert await nodes(stage) == []
        for name in ("p", "q"):
            await stage.create(pod(name, cpu="4", sim_run_time="60s"))
        await stage.clock.sleep(50)
        assert await nodes(stage) == []
        await stage.clock.sleep(30)
        assert await nodes(stage) == ["b-0"]
        await stage.clock.sleep(60)
        assert await nodes(stage) == ["a-0", "b-0"]
        assert {one["spec"].get("nodeName") for one in await stage.pods()} == {"a-0", "b-0"}
        reasons = [reason for reason, _ in await stage.events("p")]
        assert "TriggeredScaleUp" in reasons
        await stage.clock.sleep(360)
        assert await nodes(stage) == ["a-0"]
        await stage.clock.sleep(600)
        assert await nodes(stage) == []

    play(story)


def test_minimum_is_always_there_and_maximum_is_not_exceeded():
    async def story(stage):
        await start(stage, "min: 1, max: 2, startUp: 30s, scaleDownAfter: 1m")
        assert await nodes(stage) == ["a-0"]
        for name in "pqrs":
            await stage.create(pod(name, cpu="4", sim_run_time="5m"))
        await stage.clock.sleep(60)
        assert await nodes(stage) == ["a-0", "a-1"]
        assert sum(bool(one["spec"].get("nodeName")) for one in await stage.pods()) == 2
        events = [reason for name in "pqrs" for reason, _ in await stage.events(name)]
        assert "NotTriggerScaleUp" in events
        await stage.clock.sleep(900)
        assert await nodes(stage) == ["a-0"]

    play(story)


def test_node_that_does_not_come_is_requested_elsewhere_while_its_pool_backs_off():
    async def story(stage):
        await start(stage, "max: 5, startUp: 1m, price: 1, failureRate: 1", "max: 5, startUp: 1m, price: 2")
        await stage.create(pod("p", cpu="4", sim_run_time="10m"))
        await stage.clock.sleep(70)
        assert await nodes(stage) == []
        await stage.clock.sleep(70)
        assert await nodes(stage) == ["b-0"]

    play(story)


def test_pool_does_not_grow_in_a_stock_out():
    async def story(stage):
        await start(stage, "max: 5, startUp: 1m, stockOuts: [{start: 0s, duration: 10m, every: 1h}]")
        await stage.create(pod("p", cpu="4", sim_run_time="1m"))
        await stage.until(640)
        assert await nodes(stage) == []
        await stage.until(680)
        assert await nodes(stage) == ["a-0"]
        await stage.until(3610)
        assert await nodes(stage) == []
        await stage.create(pod("q", cpu="4", sim_run_time="1m"))
        await stage.until(3600 + 640)
        assert await nodes(stage) == []
        await stage.until(3600 + 680)
        assert await nodes(stage) == ["a-0"]

    play(story)


def test_same_seed_gives_the_same_times_and_another_one_others():
    def times(seed):
        async def story(stage):
            await start(stage, "max: 9, startUp: 1m-10m", seed=seed)
            for name in "pqr":
                await stage.create(pod(name, cpu="4", sim_run_time="1h"))
            await stage.clock.sleep(1000)
            found = (await stage.client.list(NODES)).items
            return sorted((one["metadata"]["name"], one["metadata"]["creationTimestamp"]) for one in found)

        return play(story)

    assert len(times(1)) == 3
    assert times(1) == times(1)
    assert times(1) != times(2)


# Requests


def test_atomic_request_gets_all_nodes_and_is_provisioned_when_the_last_is_there():
    async def story(stage):
        await start(stage, "max: 4, startUp: 1m-5m")
        await request(stage, "r", 4)
        await stage.clock.sleep(12)
        assert (await answer(stage, "r", "Accepted"))[0] == "True"
        status, reason, message = await answer(stage, "r")
        assert (status, reason) == ("False", "CapacityIsStarting")
        assert message.startswith("4 of 4 nodes are starting, expected at 2026-01-01T00:0")
        seen = set()
        while (await answer(stage, "r"))[0] != "True":
            seen.add(len(await nodes(stage)))
            await stage.clock.sleep(5)
        assert max(seen) < 4 or len(await nodes(stage)) == 4
        assert len(await nodes(stage)) == 4
        found = await stage.client.get(PROVISIONING_REQUESTS, "r", "default")
        assert found["status"]["provisioningClassDetails"] == {"ProvisioningRequest": "r"}
        labels = (await stage.client.get(NODES, "a-0"))["metadata"]["labels"]
        assert labels["sim.pykueue.io/provisioning-request"] == "r"

    play(story)


def test_atomic_request_that_does_not_fit_gets_no_node():
    async def story(stage):
        await start(stage, "max: 3, startUp: 1m")
        await request(stage, "r", 4)
        await request(stage, "once", 4, noRetry="true")
        await request(stage, "short", 4, ValidUntilSeconds="300")
        await stage.clock.sleep(200)
        assert (await answer(stage, "r"))[:2] == ("False", "CapacityIsNotFound")
        assert (await answer(stage, "once", "Failed"))[:2] == ("True", "CapacityIsNotFound")
        assert await answer(stage, "short", "Failed") is None
        await stage.clock.sleep(120)
        assert (await answer(stage, "short", "Failed"))[:2] == ("True", "Expired")
        assert await nodes(stage) == []

    play(story)


def test_atomic_request_fails_when_one_of_its_nodes_does_not_come():
    async def story(stage):
        await start(stage, "max: 3, startUp: 1m, failureRate: 1")
        await request(stage, "r", 2)
        await stage.clock.sleep(80)
        status, reason, message = await answer(stage, "r", "Failed")
        assert (status, reason) == ("True", "CapacityIsNotFound")
        assert message == "Node a-0 could not be started"

    play(story)


def test_check_capacity_finds_what_is_there_and_books_it_until_it_is_used():
    async def story(stage):
        await start(stage, "min: 2, max: 4, scaleDownAfter: 1m")
        await stage.clock.sleep(5)
        await request(stage, "r", 2, provisioning_class=CHECK)
        await stage.clock.sleep(12)
        assert (await answer(stage, "r"))[:2] == ("True", "CapacityIsFound")
        await request(stage, "other", 1, provisioning_class=CHECK)
        await stage.clock.sleep(60)
        assert (await answer(stage, "other"))[:2] == ("False", "CapacityIsNotFound")
        assert await nodes(stage) == ["a-0", "a-1"]
        user = pod("p", cpu="4", sim_run_time="2h")
        user["metadata"]["annotations"][CONSUME] = "r"
        await stage.create(user)
        await stage.clock.sleep(60)
        assert (await answer(stage, "other"))[0] == "False"
        await stage.clock.sleep(600)
        assert (await answer(stage, "r", "BookingExpired"))[0] == "True"
        assert (await answer(stage, "other"))[0] == "True"

    play(story)


def test_booked_nodes_are_not_removed():
    async def story(stage):
        await start(stage, "max: 4, startUp: 10s, scaleDownAfter: 1m")
        await request(stage, "r", 2)
        await stage.clock.sleep(500)
        assert await nodes(stage) == ["a-0", "a-1"]
        await stage.clock.sleep(250)
        assert await nodes(stage) == []

    play(story)


def test_queued_requests_wait_in_order_until_there_is_stock():
    async def story(stage):
        await start(stage, "max: 4, startUp: 1m, stockOuts: [{start: 0s, duration: 30m}]")
        await request(stage, "big", 4, provisioning_class=QUEUED, maxRunDurationSeconds="3600")
        await stage.clock.sleep(5)
        await request(stage, "small", 1, provisioning_class=QUEUED)
        await stage.until(1700)
        assert "Out of stock or backing off: a." in (await answer(stage, "big"))[2]
        assert (await answer(stage, "small"))[2] == "Earlier requests of the queue wait for capacity"
        await stage.until(1900)
        assert (await answer(stage, "big"))[0] == "True"
        assert (await answer(stage, "small"))[0] == "False"
        assert len(await nodes(stage)) == 4
        await stage.until(1900 + 3600)
        assert (await answer(stage, "big", "CapacityRevoked"))[0] == "True"
        await stage.until(1900 + 3600 + 120)
        assert (await answer(stage, "small"))[0] == "True"

    play(story)


def test_request_of_another_class_is_left_alone():
    async def story(stage):
        await start(stage, "max: 4")
        await request(stage, "r", 1, provisioning_class="vendor.example.com")
        await request(stage, "old", 1, provisioning_class="generic-scale-up.k8s.io")
        await stage.clock.sleep(30)
        found = await stage.client.get(PROVISIONING_REQUESTS, "r", "default")
        assert "status" not in found
        assert (await answer(stage, "old", "Accepted"))[0] == "True"

    play(story)


def test_restarted_autoscaler_answers_what_was_under_way():
    async def story(stage):
        await start(stage, "max: 4, startUp: 1m")
        await request(stage, "r", 2)
        await stage.clock.sleep(30)
        await stage.kill("autoscaler")
        stage.start("autoscaler", Autoscaler(stage.server.transport(), stage.clock))
        await stage.clock.sleep(90)
        assert (await answer(stage, "r"))[0] == "True"
        assert len(await nodes(stage)) == 2

    play(story)


def test_node_of_a_pool_that_scales_is_created_only_by_the_autoscaler():
    async def story(stage):
        await start(stage, "min: 1, max: 4")
        await stage.kill("pools")
        stage.start("pools")
        await stage.clock.sleep(30)
        assert await nodes(stage) == ["a-0"]
        assert condition(await stage.client.get(NODES, "a-0"), "Ready")[0] == "True"

    play(story)


# The file


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("max: 3, min: 4", "pools[0].scaling: min 4 and max 3 are not in order from 0 to 100000"),
        ("max: 3, failureRate: 2", "pools[0].scaling.failureRate: 2 is not from 0 to 1"),
        ("max: 3, price: -1", "pools[0].scaling.price: -1 is negative; accepted: 0 or more"),
        ("max: 3, startUp: soon", "pools[0].scaling.startUp: 'soon' is neither a duration"),
        ("min: 1", "pools[0].scaling: Object missing required field `max`"),
        ("max: 3, size: 1", "pools[0].scaling.size: unknown field; accepted: max, min, startUp"),
        (
            "max: 3, stockOuts: [{start: x, duration: 1h}]",
            "pools[0].scaling.stockOuts[0].start: 'x' is not a duration",
        ),
        ("max: 3, stockOuts: [{start: 1h}]", "stockOuts[0]: Object missing required field `duration`"),
    ],
)
def test_faults_of_scaling_name_the_field(text, fault):
    with pytest.raises(PoolError) as caught:
        parse_pools(pools(text))
    assert fault in str(caught.value)


def test_count_and_scaling_together_are_refused():
    text = "pools: [{name: a, count: 2, allocatable: {cpu: 1}, scaling: {max: 2}}]"
    with pytest.raises(PoolError, match=r"pools\[0\].count: the size of a pool with `scaling`"):
        parse_pools(text)
