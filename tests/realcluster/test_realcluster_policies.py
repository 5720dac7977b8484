"""The table of ValidatingAdmissionPolicies decides on kube-apiserver as it says."""

from __future__ import annotations

import json
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from realcluster_plane import Plane, until

sys.path.insert(0, str(Path(__file__).parents[1] / "embedded"))

from policy_cases import CASES, binding, config_map, denial, policy

BASE = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{BASE}/validatingadmissionpolicies", f"{BASE}/validatingadmissionpolicybindings"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module", autouse=True)
def parameters_stay_watched(bare: Plane) -> Iterator[None]:
    """A bound policy with parameters for as long as the module runs, which applies to nothing.

    kube-apiserver stops its informer of a built-in parameter kind with the last binding that needs it, and
    later policies with parameters of that kind see what the stopped informer held.
    """
    spec = {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "never", "expression": "false"}],
        "validations": [{"expression": "true"}],
    }
    reference = {"name": "none", "parameterNotFoundAction": "Allow"}
    kept, bound = policy({"spec": spec}), binding({"binding": {"paramRef": reference}})
    kept["metadata"]["name"] = bound["metadata"]["name"] = bound["spec"]["policyName"] = "parameters"
    bare.call("POST", POLICIES, kept)
    bare.call("POST", BINDINGS, bound)
    yield
    bare.call("DELETE", f"{BINDINGS}/parameters")
    bare.call("DELETE", f"{POLICIES}/parameters")


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_policies_decide_as_the_table_says(bare: Plane, case: dict[str, Any]) -> None:
    if "refused" in case:
        answer = ask(bare, "POST", POLICIES, policy(case))
        assert answer["code"] == 422
        assert case["refused"] in answer["message"]
        return
    created = []
    denied: list[dict[str, Any]] = []
    try:
        for other in case.get("others", ()):
            bare.call("POST", CONFIG_MAPS, other)
            created.append(f"{CONFIG_MAPS}/{other['metadata']['name']}")
        bare.call("POST", POLICIES, policy(case))
        created.append(f"{POLICIES}/policy.example.com")
        bare.call("POST", BINDINGS, binding(case))
        created.append(f"{BINDINGS}/binding")
        denied = [request for request in case["requests"] if not request.get("allowed")]
        if denied:
            until(lambda: is_denied(bare, denied[0]), "the policy in force")
        for request in case["requests"]:
            check(bare, request)
    finally:
        for path in reversed(created):
            ask(bare, "DELETE", path)
        if denied:
            until(lambda: not is_denied(bare, denied[0]), "the policy no longer in force")


def ask(bare: Plane, method: str, path: str, body: Any = None) -> Any:
    """The answer, a Status where it is an error."""
    try:
        return bare.call(method, path, body)
    except urllib.error.HTTPError as error:
        return json.loads(error.msg)


def is_denied(bare: Plane, request: dict[str, Any]) -> bool:
    """Whether the policy is in force for a request that it denies; nothing else says so."""
    obj = config_map(request)
    path = f"{CONFIG_MAPS}/{obj['metadata']['name']}"
    answer = ask(bare, "POST", CONFIG_MAPS, obj)
    if answer.get("code") == 409 or "code" not in answer:
        answer = ask(bare, "DELETE", path)
    return "ValidatingAdmissionPolicy" in str(answer.get("message"))


def check(bare: Plane, request: dict[str, Any]) -> None:
    obj = config_map(request)
    path = f"{CONFIG_MAPS}/{obj['metadata']['name']}"
    answer = ask(bare, "POST", CONFIG_MAPS, obj)
    if request.get("delete") and answer.get("code") in (None, 409):
        answer = ask(bare, "DELETE", path)
    if request.get("allowed"):
        assert answer.get("code") is None, json.dumps(answer)
        ask(bare, "DELETE", path)
    else:
        assert answer.get("code") == request.get("code", 422), json.dumps(answer)
        assert answer["message"].startswith(denial(request)), answer["message"]
        assert answer["message"].endswith(request["message"]), answer["message"]
