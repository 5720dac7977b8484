"""What is requested and not carried out by this version: the Workload says so, and is not admitted."""

from __future__ import annotations

from typing import Any

import pytest
from manager_stack import Stack, job, story

D = "kueue.x-k8s.io"


def annotated(annotations: dict[str, str], **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


@pytest.mark.parametrize(
    ("annotations", "request_"),
    [
        ({f"{D}/podset-required-topology": "rack"}, {"required": "rack"}),
        ({f"{D}/podset-preferred-topology": "rack"}, {"preferred": "rack"}),
        ({f"{D}/podset-unconstrained-topology": "true"}, {"unconstrained": True}),
        (
            {f"{D}/podset-slice-required-topology": "rack", f"{D}/podset-slice-size": "2"},
            {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2},
        ),
    ],
)
def test_topology_annotation_becomes_a_request_that_is_not_ignored(
    annotations: dict[str, str], request_: dict[str, Any]
) -> None:
    async def test(stack: Stack) -> None:
        await stack.apply(job("j", 2, template=annotated(annotations)))
        await stack.settle()
        (pod_set,) = (await stack.workload("j"))["spec"]["podSets"]
        assert pod_set["topologyRequest"] == request_
        assert await stack.suspended("j")
        assert (await stack.conditions("j"))["QuotaReserved"] == ("False", "Misconfigured")
        text = "topology-aware scheduling is not supported by this version of pykueue"
        assert await stack.message("j") == f"podSet main: topologyRequest: {text}"

    story(test)


def test_job_with_claims_of_devices_waits_and_names_them() -> None:
    async def test(stack: Stack) -> None:
        claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
        await stack.apply(job("j", template=annotated({}, resourceClaims=claims)))
        await stack.settle()
        assert await stack.suspended("j")
        text = "quota for claims of devices is not supported by this version of pykueue"
        assert await stack.message("j") == f"podSet main: spec.resourceClaims: {text}"

    story(test)
