"""What is requested and not carried out by this version: the Workload says so, and is not admitted."""

from __future__ import annotations

from typing import Any

from manager_stack import Stack, job, story

D = "kueue.x-k8s.io"


def annotated(annotations: dict[str, str], **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


def test_job_with_claims_of_devices_waits_and_names_them() -> None:
    async def test(stack: Stack) -> None:
        claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
        await stack.apply(job("j", template=annotated({}, resourceClaims=claims)))
        await stack.settle()
        assert await stack.suspended("j")
        text = "quota for claims of devices is not supported by this version of pykueue"
        assert await stack.message("j") == f"podSet main: spec.resourceClaims: {text}"

    story(test)
