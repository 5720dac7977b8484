"""ValidatingAdmissionPolicies on the embedded server: the table of cases, and Kueue's policies for jobs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiserver_harness import CONFIG_MAPS, Api, with_server
from policy_cases import CASES, binding, config_map, denial, policy

from pykueue.kube.errors import ApiError

BASE = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{BASE}/validatingadmissionpolicies", f"{BASE}/validatingadmissionpolicybindings"
ROOT = Path(__file__).parents[2]
JOBS = "/apis/batch/v1/namespaces/default/jobs"


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_policies_decide_as_the_table_says(case: dict[str, Any]) -> None:
    async def test(api: Api) -> None:
        if "refused" in case:
            error = await api.refused(api.create(POLICIES, policy(case)))
            assert (error.code, error.reason) == (422, "Invalid")
            assert case["refused"] in str(error)
            return
        for other in case.get("others", ()):
            await api.create(CONFIG_MAPS, other)
        await api.create(POLICIES, policy(case))
        await api.create(BINDINGS, binding(case))
        for request in case["requests"]:
            await check(api, request)

    with_server(test)


async def check(api: Api, request: dict[str, Any]) -> None:
    obj = config_map(request)
    path = f"{CONFIG_MAPS}/{obj['metadata']['name']}"
    try:
        await api.create(CONFIG_MAPS, obj)
        if request.get("delete"):
            await api.delete(path)
        found: Any = True
    except ApiError as error:
        found = (error.code, str(error))
    if request.get("allowed"):
        assert found is True
        if not request.get("delete"):
            await api.delete(path)
    else:
        code, text = found
        assert code == request.get("code", 422)
        assert text.startswith(denial(request))
        assert text.endswith(request["message"])


def documents() -> list[dict[str, Any]]:
    """The policies and bindings of the page about them."""
    text = (ROOT / "docs/use/admission-policies.md").read_text()
    return [
        obj
        for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
        for obj in yaml.safe_load_all(block)
    ]


def job(labels: dict[str, str] | None = None, resources: dict[str, Any] | None = None) -> dict[str, Any]:
    """A Job."""
    container = {"name": "main", "image": "i", **({"resources": resources} if resources else {})}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "labels": labels or {}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


def test_policies_of_the_page_require_queue_names_and_requests() -> None:
    async def test(api: Api) -> None:
        for obj in documents():
            if obj["kind"].endswith("Binding") and obj["metadata"]["name"] == "requests-required":
                obj["spec"]["validationActions"] = ["Deny"]
            await api.create(BINDINGS if obj["kind"].endswith("Binding") else POLICIES, obj)
        cpu = {"requests": {"cpu": "1"}}
        # The namespace is not managed by Kueue yet; requests are required everywhere.
        await api.create(JOBS, job(resources=cpu), dryRun="All")
        error = await api.refused(api.create(JOBS, job()))
        assert str(error).endswith("denied request: all containers need requests or limits")
        await api.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"kueue-managed": "true"}}})
        error = await api.refused(api.create(JOBS, job(resources=cpu)))
        text = "denied request: jobs in namespace default need the label kueue.x-k8s.io/queue-name"
        assert str(error).endswith(text)
        await api.create(JOBS, job({"kueue.x-k8s.io/queue-name": "team"}, cpu))
        error = await api.refused(
            api.patch(f"{JOBS}/j", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": None}}})
        )
        assert str(error).endswith(text)
        owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "u"}
        owned = job(resources=cpu)
        owned["metadata"] |= {"name": "owned", "ownerReferences": [owner]}
        await api.create(JOBS, owned)
        # Without its binding a policy is not in force.
        await api.delete(f"{BINDINGS}/queue-name-required")
        unqueued = job(resources=cpu)
        unqueued["metadata"]["name"] = "unqueued"
        await api.create(JOBS, unqueued)

    with_server(test)


def test_an_expensive_expression_is_an_error_and_does_not_hold_the_server() -> None:
    numbers = "[" + ",".join(["1"] * 100) + "]"
    expression = f"{numbers}.all(a, {numbers}.all(b, {numbers}.all(c, {numbers}.all(d, a == 1))))"
    case = {"spec": {"validations": [{"expression": expression}]}}

    async def test(api: Api) -> None:
        await api.create(POLICIES, policy(case))
        await api.create(BINDINGS, binding(case))
        error = await api.refused(api.create(CONFIG_MAPS, config_map({"data": {"a": "1"}})))
        assert str(error).endswith("resulted in error: operation cancelled: actual cost limit exceeded")

    with_server(test)
