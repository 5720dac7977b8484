"""A stack that serves ProvisioningRequests, with tests in place of the cluster autoscaler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from checks_world import activity
from manager_stack import QUEUES, Object, Stack, job, story

from autoscaler_definition import autoscaler_definition
from pykueue.api.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    CRDS,
    POD_TEMPLATES,
    PROVISIONING_REQUEST_CONFIGS,
    PROVISIONING_REQUESTS,
    WORKLOADS,
)
from pykueue.kube.errors import ApiError
from queue_manifests import admission_check

CLASS = "check-capacity.autoscaling.x-k8s.io"
CONFIG: Object = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ProvisioningRequestConfig",
    "metadata": {"name": "config"},
    "spec": {"provisioningClassName": CLASS},
}


def check_object(name: str = "prov", config: str = "config") -> Object:
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": config}
    return admission_check(name, "kueue.x-k8s.io/provisioning-request", parameters=parameters)


class World:
    """The stack, and what a test does in place of users and the autoscaler."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    async def set_up(self, **spec: Any) -> None:
        """Serve ProvisioningRequests, with a check `prov` on the ClusterQueue and this configuration."""
        s = self.stack
        await s.client.create(CRDS, autoscaler_definition())
        await s.client.create(
            PROVISIONING_REQUEST_CONFIGS, {**CONFIG, "spec": {"provisioningClassName": CLASS, **spec}}
        )
        await s.client.create(ADMISSION_CHECKS, check_object())
        await self.on_queue("prov")
        await s.settle(15)

    async def on_queue(self, *checks: str | Object) -> None:
        """Make these the checks of the ClusterQueue."""
        rules = [{"name": one} if isinstance(one, str) else one for one in checks]
        strategy = {"admissionChecksStrategy": {"admissionChecks": rules} if rules else None}
        await self.stack.patch(CLUSTER_QUEUES, "cq", {"spec": strategy})
        await self.stack.settle()

    async def submit(self, name: str = "a", pods: int = 1, **more: Any) -> None:
        await self.stack.apply(job(name, pods, **more))
        await self.stack.settle()

    async def requests(self) -> dict[str, Object]:
        """All ProvisioningRequests by their attempt, as `check-attempt`."""
        found = (await self.stack.client.list(PROVISIONING_REQUESTS)).items
        return {"-".join(one["metadata"]["name"].split("-")[-2:]): one for one in found}

    async def request(self, attempt: int = 1, check: str = "prov") -> Object:
        return (await self.requests())[f"{check}-{attempt}"]

    async def templates(self) -> dict[str, Object]:
        """All PodTemplates by the pod set that their name ends in."""
        found = (await self.stack.client.list(POD_TEMPLATES)).items
        return {one["metadata"]["name"].rpartition("-")[2]: one for one in found}

    async def answer(
        self, kind: str, status: str = "True", message: str = "m", attempt: int = 1, **more: Any
    ) -> None:
        """Add a condition to the status of the request of an attempt, as the autoscaler would."""
        request = await self.request(attempt)
        condition = {
            "type": kind,
            "status": status,
            "reason": kind,
            "message": message,
            "lastTransitionTime": self.stack.now(),
        }
        known = (request.get("status") or {}).get("conditions") or []
        present = [one for one in known if one["type"] != kind]
        change = {"status": {"conditions": [*present, condition], **more}}
        await self.stack.patch(PROVISIONING_REQUESTS, request["metadata"]["name"], change, "status")
        await self.stack.settle()

    async def check(self, name: str = "a", check: str = "prov") -> Object:
        """The state of a check of a job's Workload."""
        workload = await self.stack.workload(name)
        return next(one for one in workload["status"]["admissionChecks"] if one["name"] == check)

    async def state(self, name: str = "a") -> tuple[str, str]:
        found = await self.check(name)
        return found["state"], found["message"]

    async def active(self, name: str = "prov") -> tuple[str, str, str]:
        """Status, reason and message of the condition Active of an AdmissionCheck."""
        return activity(await self.stack.get(ADMISSION_CHECKS, name))

    async def configure(self, **spec: Any) -> None:
        await self.stack.patch(PROVISIONING_REQUEST_CONFIGS, "config", {"spec": spec})
        await self.stack.settle()

    async def create_workload(self, *pod_sets: Object, **metadata: Any) -> None:
        """Create a Workload `w` without a job."""
        await self.stack.client.create(
            WORKLOADS,
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "Workload",
                "metadata": {"name": "w", "namespace": "default", **metadata},
                "spec": {"queueName": "lq", "podSets": list(pod_sets)},
            },
        )
        await self.stack.settle()


def pod_set(name: str, count: int = 1, image: str = "i", **resources: str) -> Object:
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": "1", **resources}}}
    return {
        "name": name,
        "count": count,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }


def provisioned(
    test: Callable[[World], Awaitable[None]], configuration: str = "", queues: str = QUEUES, **spec: Any
) -> None:
    """Run a test in a world with one check; `spec` is the ProvisioningRequestConfig's."""

    async def life(s: Stack) -> None:
        world = World(s)
        await world.set_up(**spec)
        await test(world)

    story(life, configuration, queues)


async def is_missing(call: Awaitable[Any]) -> bool:
    try:
        await call
    except ApiError as error:
        return error.not_found
    return False
