"""The cases of policy_cases.yaml as objects and requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

GROUP = "admissionregistration.k8s.io/v1"
POLICY, BINDING = "policy.example.com", "binding"
CASES: list[Object] = yaml.safe_load(Path(__file__).with_name("policy_cases.yaml").read_text())
_RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["configmaps"],
}


def policy(case: Object) -> Object:
    """The policy of a case."""
    spec = {"matchConstraints": {"resourceRules": [_RULE]}, **case["spec"]}
    return {
        "apiVersion": GROUP,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": POLICY},
        "spec": spec,
    }


def binding(case: Object) -> Object:
    """Its binding."""
    spec = {"policyName": POLICY, "validationActions": ["Deny"], **case.get("binding", {})}
    return {
        "apiVersion": GROUP,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": BINDING},
        "spec": spec,
    }


def config_map(request: Object) -> Object:
    """What a request creates."""
    metadata = {
        "name": request.get("name", "case"),
        "namespace": "default",
        "labels": request.get("labels", {}),
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": request["data"]}


def denial(request: Object) -> str:
    """The message that a request gets which the policy denies."""
    name = request.get("name", "case")
    text = f"ValidatingAdmissionPolicy '{POLICY}' with binding '{BINDING}' denied request: "
    return f'configmaps "{name}" is forbidden: {text}'
