"""The cluster that the generated requests meet, and pykueue's answers to them.

A world is a configuration and the objects of a cluster. Both sides get the same ones.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kind_samples import runtime
from kind_worlds import serve
from manager_stack import Stack, story
from webhooks_manifests import DEFAULTED, PLAIN, REMOTE, UNMANAGED, Case, D, owners

from pykueue.api.jobkinds import LEADER_WORKER_SET
from pykueue.api.resources import JOB_SETS, JOBS, NAMESPACES, Resource
from pykueue.embedded.objects.patch import json_patch
from pykueue.jobs.kinds import BUILT_IN
from pykueue.manager.webhooks import Registration

Object = dict[str, Any]
_NAME = "kubernetes.io/metadata.name"
_FOREIGN = ["kube-system", "kueue-system", UNMANAGED]
_SELECTOR = {"matchExpressions": [{"key": _NAME, "operator": "NotIn", "values": _FOREIGN}]}


@dataclass(frozen=True)
class Answer:
    """The verdict on a request, and what the defaulting webhook changed."""

    allowed: bool
    #: Fields that the refusal names.
    fields: tuple[str, ...]
    #: Leaves that differ from the request, as written in JSON; None: the leaf was removed.
    changed: Mapping[str, Any]


def settings(world: str) -> Object:
    """The configuration of a world, in the words of the configuration file."""
    return {
        "frameworks": sorted(BUILT_IN.frameworks),
        "manageJobsWithoutQueueName": world == "all",
        "managedJobsNamespaceSelector": _SELECTOR,
        "featureGates": {"SparkApplicationIntegration": True},
    }


def _kueue(kind: str, name: str, spec: Object, namespace: str | None = None) -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec}


def objects(world: str) -> list[Object]:
    """What exists: namespaces, queues, a priority class `default` in one world, owners and a runtime."""
    flavor = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "10"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
    checks = {"admissionChecks": [{"name": "elsewhere"}]}
    found: list[Object] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {_NAME: name}}}
        for name in (PLAIN, DEFAULTED, REMOTE, UNMANAGED)
    ]
    found += [
        _kueue("ResourceFlavor", "f", {}),
        _kueue("AdmissionCheck", "elsewhere", {"controllerName": f"{D}multikueue"}),
        _kueue("ClusterQueue", "cq", {"namespaceSelector": {}, "resourceGroups": groups}),
        _kueue(
            "ClusterQueue",
            "remote",
            {"namespaceSelector": {}, "resourceGroups": groups, "admissionChecksStrategy": checks},
        ),
        _kueue("LocalQueue", "default", {"clusterQueue": "cq"}, DEFAULTED),
        _kueue("LocalQueue", "remote", {"clusterQueue": "remote"}, REMOTE),
    ]
    for name in (PLAIN, DEFAULTED, REMOTE, UNMANAGED):
        found.append(_kueue("LocalQueue", "lq", {"clusterQueue": "cq"}, name))
    classes = ["high", "default"] if world == "all" else ["high"]
    for name in classes:
        found.append({**_kueue("WorkloadPriorityClass", name, {}), "value": 100})
        del found[-1]["spec"]
    return [*found, runtime(), *owners()]


def request_of(case: Case) -> Object:
    """The request of an AdmissionReview."""
    obj = case.obj
    group, _, version = obj["apiVersion"].rpartition("/")
    resource = _resource(obj)
    request: Object = {
        "uid": case.name,
        "kind": {"group": group, "version": version, "kind": obj["kind"]},
        "resource": {"group": group, "version": version, "resource": resource.plural},
        "name": obj["metadata"]["name"],
        "namespace": obj["metadata"]["namespace"],
        "operation": "UPDATE" if case.old else "CREATE",
        "userInfo": {"username": "user"},
        "object": obj,
    }
    return {**request, "oldObject": case.old} if case.old else request


def _resource(obj: Object) -> Resource:
    kinds = [*BUILT_IN.jobs.values(), *BUILT_IN.pod_owners.values()]
    return next(each.kind.resource for each in kinds if each.kind.resource.kind == obj["kind"])


def digest(case: Case) -> str:
    """A request's fingerprint: a recorded answer belongs to exactly this request."""
    text = json.dumps(request_of(case), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Every scalar in an object by its path; nulls and empty maps and lists count as absent."""
    found: dict[str, Any] = {}
    if isinstance(value, dict):
        for key, each in value.items():
            found |= leaves(each, f"{path}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            found |= leaves(each, f"{path}/{index}")
    elif value is not None:
        found[path] = value
    return found


def changes(before: Object, after: Object) -> dict[str, Any]:
    """The leaves that a patch set, and those that it removed (None), save in the status.

    A field that was absent and has the zero value of its type now has not changed.
    """
    old, new = (leaves({**obj, "status": None}) for obj in (before, after))
    found = {
        path: value
        for path, value in new.items()
        if old.get(path) != value and not (not value and path not in old)
    }
    return found | {path: None for path in old if path not in new}


def answers(world: str, cases: Iterable[Case]) -> dict[str, Answer]:
    """pykueue's answers, by the names of the cases."""

    async def ask(stack: Stack) -> dict[str, Answer]:
        customs = [
            each.kind.resource
            for each in [*BUILT_IN.jobs.values(), *BUILT_IN.pod_owners.values()]
            if each.kind.custom and each.kind is not LEADER_WORKER_SET
        ]
        references = [resource for kind in BUILT_IN for resource in kind.references]
        await serve(stack, *dict.fromkeys([*customs, *references, LEADER_WORKER_SET.resource]))
        by_kind = {each.kind: each for each in [*customs, *references, JOBS, JOB_SETS, NAMESPACES]}
        uids = {}
        for obj in objects(world):
            resource = by_kind.get(obj["kind"])
            if resource is None:
                await stack.apply(obj)
                continue
            created = await stack.client.create(resource, obj)
            uids[obj["metadata"].get("uid")] = created["metadata"]["uid"]
        await stack.settle()
        hooks = stack.manager.webhooks()
        return {case.name: await _answer(hooks, case, uids) for case in cases}

    configuration = settings(world)
    frameworks = ", ".join(configuration.pop("frameworks"))
    text = f"integrations: {{frameworks: [{frameworks}]}}\n"
    text += "".join(f"{key}: {json.dumps(value)}\n" for key, value in configuration.items())
    return story(ask, text, queues=[])


async def _answer(hooks: list[Registration], case: Case, uids: Mapping[str, str]) -> Answer:
    request = copy.deepcopy(request_of(case))
    for each in (request["object"], request.get("oldObject") or {}):
        for reference in (each.get("metadata") or {}).get("ownerReferences") or ():
            reference["uid"] = uids.get(reference["uid"], reference["uid"])
    before = request["object"]
    for hook in hooks:
        if not _asks(hook, request):
            continue
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        response = (await hook.review(body))["response"]
        if not response["allowed"]:
            causes = response["status"]["details"]["causes"]
            return Answer(False, tuple(sorted({cause["field"] for cause in causes})), {})
        if "patch" in response:
            patch = json.loads(base64.b64decode(response["patch"]))
            request["object"] = json_patch(request["object"], patch)
    return Answer(True, (), changes(before, request["object"]))


def _asks(hook: Registration, request: Object) -> bool:
    """Whether an API server would ask this webhook."""
    (rule,) = hook.rules
    where = request["resource"]
    selector = (hook.object_selector or {}).get("matchLabels") or {}
    labels = [
        request[name]["metadata"].get("labels") or {} for name in ("object", "oldObject") if name in request
    ]
    return (
        request["operation"] in rule["operations"]
        and where["group"] in rule["apiGroups"]
        and where["resource"] in rule["resources"]
        and any(selector.items() <= each.items() for each in labels)
    )
