"""The manager's account on a worker: its rights, its token, and the kubeconfig that the manager gets."""

from __future__ import annotations

import asyncio
import base64

import yaml
from manager_stack import job
from multikueue_world import NAMESPACE, Clusters, dispatched

from pykueue.api.resources import CLUSTER_ROLES, SECRETS
from pykueue.manager.multikueue.access import ACCOUNT

#: Seconds that a token is valid: as short as API servers allow.
LIFETIME = 600


async def token_of(c: Clusters) -> str:
    found = await c.manager.client.get(SECRETS, "w1-kubeconfig", NAMESPACE)
    content = yaml.safe_load(base64.b64decode(found["data"]["kubeconfig"]))
    (user,) = content["users"]
    assert set(user["user"]) == {"token"}
    return str(user["user"]["token"])


def test_account_has_the_rights_of_dispatching_and_no_others() -> None:
    async def test(c: Clusters) -> None:
        (role,) = [
            one
            for one in (await c.workers["w1"].client.list(CLUSTER_ROLES)).items
            if one["metadata"]["name"] == ACCOUNT
        ]
        given = {
            f"{plural}.{group}": set(rule["verbs"])
            for rule in role["rules"]
            for group in rule["apiGroups"]
            for plural in rule["resources"]
        }
        copies = {"get", "list", "watch", "create", "patch", "delete"}
        assert given == {
            "workloads.kueue.x-k8s.io": copies,
            "workloads/status.kueue.x-k8s.io": {"patch"},
            "jobs.batch": copies,
            "jobsets.jobset.x-k8s.io": copies,
            "pytorchjobs.kubeflow.org": copies,
            "customresourcedefinitions.apiextensions.k8s.io": {"get", "list", "watch"},
        }
        # All tests of dispatching use this account; without one of its rights the worker is not connected.
        rules = [rule for rule in role["rules"] if "jobset.x-k8s.io" not in rule["apiGroups"]]
        await c.workers["w1"].patch(CLUSTER_ROLES, ACCOUNT, {"rules": rules})
        await c.access["w1"].renew()
        await c.wait()
        status, reason, message = await c.active("w1")
        assert (status, reason) == ("False", "ClientConnectionFailed")
        assert "jobsets" in message
        await c.access["w1"].grant()
        await c.wait(20)
        assert (await c.active("w1"))[0] == "True"

    dispatched(test, "w1")


def test_renewed_token_outlives_the_former_one_without_a_change_for_running_jobs() -> None:
    async def test(c: Clusters) -> None:
        due = await c.access["w1"].renew(LIFETIME)
        first = await token_of(c)
        renewing = asyncio.create_task(c.access["w1"].keep_renewed(c.clock, due, LIFETIME))
        await c.manager.apply(job("a"))
        await c.wait()
        await c.workers["w1"].run_job("a")
        await c.wait(2 * LIFETIME)
        assert await token_of(c) != first
        assert (await c.active("w1"))[0] == "True"
        assert ((await c.status())["clusterName"], await c.state()) == ("w1", "Ready")
        await c.workers["w1"].finish_job("a")
        await c.wait()
        assert (await c.manager.conditions("a"))["Finished"] == ("True", "Succeeded")
        renewing.cancel()

    dispatched(test, "w1")


def test_token_that_is_not_renewed_ends_the_connection_when_it_has_expired() -> None:
    async def test(c: Clusters) -> None:
        await c.access["w1"].renew(LIFETIME)
        await c.wait(LIFETIME + 120)
        await c.manager.apply(job("a"))
        await c.wait()
        status, reason, message = await c.active("w1")
        assert (status, reason) == ("False", "ClientConnectionFailed")
        assert "Unauthorized" in message
        await c.access["w1"].renew()
        await c.wait(10)
        assert (await c.status())["clusterName"] == "w1"

    dispatched(test, "w1")
