"""What can be created while the webhooks of an installation cannot be asked."""

from __future__ import annotations

from typing import Any

import pytest
from manager_stack import Stack, job, story

from pykueue.api.resources import (
    DEPLOYMENTS,
    JOBS,
    MUTATING_WEBHOOKS,
    PODS,
    VALIDATING_WEBHOOKS,
    Resource,
)
from pykueue.kube.errors import ApiError
from pykueue.manager.install.admission import webhook_configurations
from pykueue.manager.install.options import Options
from pykueue.manager.serving.admission import Admission, AdmissionMissingError

Object = dict[str, Any]
QUEUE = "kueue.x-k8s.io/queue-name"
SERVING = "integrations: {frameworks: [batch/job, pod, deployment, statefulset]}"


async def without_answers(s: Stack) -> None:
    """Install the webhooks of a manager that does not run."""
    await s.stop_manager()
    for hook in s.manager.webhooks():
        s.server.admission.unregister(hook.name)
    resources = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
    for resource, obj in zip(resources, webhook_configurations(Options(s.configuration, "")), strict=True):
        await s.client.create(resource, obj)
    await s.settle()


def pod(name: str, labels: dict[str, str], annotations: dict[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    }


def deployment(name: str, labels: dict[str, str]) -> Object:
    selector = {"app": name}
    template = {"metadata": {"labels": selector}, "spec": pod(name, {}, {})["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"selector": {"matchLabels": selector}, "template": template},
    }


def test_pods_and_deployments_without_a_queue_start_while_the_manager_is_down() -> None:
    async def life(s: Stack) -> None:
        await without_answers(s)
        await s.apply(pod("plug-in", {"app": "network"}, {"note": "x"}))
        await s.apply(pod("bare", {}, {}))
        await s.apply(deployment("operator", {"app": "network"}))
        await s.patch(DEPLOYMENTS, "operator", {"spec": {"replicas": 2}})
        assert (await s.get(PODS, "plug-in"))["spec"].get("schedulingGates") is None

    story(life, SERVING)


@pytest.mark.parametrize(
    ("resource", "obj"),
    [
        (PODS, pod("a", {QUEUE: "lq"}, {})),
        (PODS, pod("a", {}, {QUEUE: "lq"})),
        (PODS, pod("a", {}, {"kueue.x-k8s.io/pod-suspending-parent": "deployment"})),
        (DEPLOYMENTS, deployment("a", {QUEUE: "lq"})),
        (JOBS, job("a")),
    ],
)
def test_objects_with_a_queue_name_are_rejected_while_the_manager_is_down(
    resource: Resource, obj: Object
) -> None:
    async def life(s: Stack) -> None:
        await without_answers(s)
        with pytest.raises(ApiError, match="failed calling webhook"):
            await s.client.create(resource, obj)

    story(life, SERVING)


def test_the_queue_of_a_deployment_cannot_be_removed_while_the_manager_is_down() -> None:
    async def life(s: Stack) -> None:
        await s.apply(deployment("a", {QUEUE: "lq"}))
        await without_answers(s)
        with pytest.raises(ApiError, match="failed calling webhook"):
            await s.patch(DEPLOYMENTS, "a", {"metadata": {"labels": {QUEUE: None}}})

    story(life, SERVING)


def test_manager_refuses_a_cluster_without_admission_rules_that_cannot_reach_it() -> None:
    async def life(s: Stack) -> None:
        admission = Admission(s.manager, s.client, s.clock, local=False)
        with pytest.raises(AdmissionMissingError) as refused:
            await admission.run()
        assert "MutatingWebhookConfiguration kueue-mutating-webhook-configuration" in str(refused.value)
        assert "pykueue manifests | kubectl apply --server-side -f -" in str(refused.value)
        await without_answers(s)
        await admission.run()
        assert admission.ready.is_set()

    story(life)
