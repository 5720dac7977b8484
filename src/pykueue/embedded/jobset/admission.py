"""Admission of JobSets and of their pods, asked by the API server in process.

JobSets get their defaults and are checked. Pods of sets with exclusive placement are led to a topology domain
of their own: the pod with index 0 by affinity, the others by following it
(docs/reference/cluster-workloads.md 2.11).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

from pykueue.api.objects import Object, is_deleting
from pykueue.api.resources import JOB_SETS, NODES, PERSISTENT_VOLUME_CLAIMS, PODS, PRIORITY_CLASSES, Resource
from pykueue.api.validation.fields import INVALID, FieldError
from pykueue.embedded.apiserver.webhooks.admission import Webhook
from pykueue.embedded.jobset.defaults import with_defaults
from pykueue.embedded.jobset.names import (
    COMPLETION_INDEX,
    EXCLUSIVE_TOPOLOGY,
    JOB_KEY,
    JOBSET_NAME,
    NODE_SELECTOR_STRATEGY,
    PRIORITY,
)
from pykueue.embedded.jobset.validation import errors, update_errors
from pykueue.kube.client import Client

_RETAIN: Final = "Retain"


class _AsksServer(Protocol):
    def transport(self, user: str = ..., groups: Iterable[str] = ...) -> Any: ...


def webhooks(server: _AsksServer) -> list[Webhook]:
    """The rules, answering from what `server` has stored.

    The defaults' name comes before those of webhooks that build on them: webhooks are asked by name.
    """
    rules = _Rules(Client(server.transport("system:serviceaccount:jobset-system:jobset-controller-manager")))
    of_sets = {"matchExpressions": [{"key": JOBSET_NAME, "operator": "Exists"}]}
    return [
        Webhook("defaults.jobset.x-k8s.io", True, [_rule(JOB_SETS, "CREATE")], rules.default),
        Webhook("validation.jobset.x-k8s.io", False, [_rule(JOB_SETS, "CREATE", "UPDATE")], rules.validate),
        Webhook(
            "pod-placement.jobset.x-k8s.io",
            True,
            [_rule(PODS, "CREATE")],
            rules.place,
            object_selector=of_sets,
        ),
        Webhook(
            "pod-order.jobset.x-k8s.io",
            False,
            [_rule(PODS, "CREATE")],
            rules.order,
            object_selector=of_sets,
            concerns=_is_exclusive,
        ),
    ]


def _rule(resource: Resource, *operations: str) -> Object:
    return {
        "operations": list(operations),
        "apiGroups": [resource.group],
        "apiVersions": [resource.version],
        "resources": [resource.plural],
        "scope": "Namespaced",
    }


class _Rules:
    def __init__(self, client: Client) -> None:
        self._client = client

    # JobSets

    async def default(self, body: Object) -> Object:
        return _answer(body, {"object": with_defaults(body["request"]["object"])})

    async def validate(self, body: Object) -> Object:
        obj, old = body["request"]["object"], body["request"].get("oldObject")
        if old is not None:
            found = [] if is_deleting(obj) else list(update_errors(obj, old))
        else:
            found = [*errors(obj), *await self._present_claims(obj)]
        if not found:
            return _answer(body, {})
        texts = [str(error) for error in found]
        status = {
            "status": "Failure",
            "code": 422,
            "reason": "Invalid",
            "message": texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]",
            "details": {
                "name": obj["metadata"].get("name") or "",
                "group": JOB_SETS.group,
                "kind": JOB_SETS.kind,
                "causes": [error.cause() for error in found],
            },
        }
        return _answer(body, {"allowed": False, "status": status})

    async def _present_claims(self, jobset: Object) -> list[FieldError]:
        """A claim that is there already can be taken over only by a set that would not delete it."""
        found: list[FieldError] = []
        metadata = jobset["metadata"]
        for number, policy in enumerate(jobset["spec"].get("volumeClaimPolicies") or ()):
            retained = (policy.get("retentionPolicy") or {}).get("whenDeleted") == _RETAIN
            for place, template in enumerate(policy["templates"]):
                name = f"{template['metadata'].get('name')}-{metadata.get('name')}"
                present = await self._client.find(PERSISTENT_VOLUME_CLAIMS, name, metadata.get("namespace"))
                if present is None:
                    continue
                wanted = template.get("spec") or {}
                same = all(present["spec"].get(key) == value for key, value in wanted.items())
                if not (same and retained):
                    path = f"spec.volumeClaimPolicies[{number}].templates[{place}]"
                    text = "this claim exists: it must have the same spec, and whenDeleted must be Retain"
                    found.append(FieldError(path, INVALID, name, text))
        return found

    # Their pods

    async def place(self, body: Object) -> Object:
        pod = body["request"]["object"]
        priority = str(await self._priority(pod))
        metadata = pod["metadata"]
        labels = {**metadata["labels"], PRIORITY: priority}
        pod = {**pod, "metadata": {**metadata, "labels": labels}}
        topology = exclusive_topology(pod)
        if topology:
            if labels.get(COMPLETION_INDEX) == "0":
                pod = {**pod, "spec": _alone(pod["spec"], topology, labels[JOB_KEY], priority)}
            else:
                domain = await self._leader_domain(pod, body["request"].get("namespace"), topology)
                if domain is not None:
                    selector = {**(pod["spec"].get("nodeSelector") or {}), topology: domain}
                    pod = {**pod, "spec": {**pod["spec"], "nodeSelector": selector}}
        return _answer(body, {"object": pod})

    async def order(self, body: Object) -> Object:
        pod = body["request"]["object"]
        topology = exclusive_topology(pod)
        follows = topology and pod["metadata"]["labels"].get(COMPLETION_INDEX) != "0"
        if not follows or topology in (pod["spec"].get("nodeSelector") or {}):
            return _answer(body, {})
        text = "the Job's first pod is not scheduled yet; the others are created once it is"
        return _answer(body, {"allowed": False, "status": {"code": 403, "message": text}})

    async def _priority(self, pod: Object) -> int:
        """The priority the pod is about to get."""
        given = pod["spec"].get("priority")
        if given is not None:
            return int(given)
        name = pod["spec"].get("priorityClassName")
        if name:
            found = await self._client.find(PRIORITY_CLASSES, name)
            return int((found or {}).get("value") or 0)
        classes = (await self._client.list(PRIORITY_CLASSES)).items
        return min((int(one.get("value") or 0) for one in classes if one.get("globalDefault")), default=0)

    async def _leader_domain(self, pod: Object, namespace: str, topology: str) -> str | None:
        """The topology domain of the pod with index 0 of the same Job; None while it has none."""
        selector = f"{JOB_KEY}={pod['metadata']['labels'][JOB_KEY]},{COMPLETION_INDEX}=0"
        found = await self._client.list(PODS, namespace, label_selector=selector)
        owners = pod["metadata"].get("ownerReferences")
        for leader in found.items:
            metadata, node_name = leader["metadata"], leader["spec"].get("nodeName")
            if is_deleting(leader) or metadata.get("ownerReferences") != owners:
                continue
            node = await self._client.find(NODES, node_name) if node_name else None
            if node is not None:
                domain: str | None = (node["metadata"].get("labels") or {}).get(topology)
                return domain
        return None


def exclusive_topology(pod: Object) -> str | None:
    """The node label of which no two Jobs share a value, where affinity ensures that; None otherwise."""
    annotations = pod["metadata"].get("annotations") or {}
    topology: str | None = annotations.get(EXCLUSIVE_TOPOLOGY)
    return None if NODE_SELECTOR_STRATEGY in annotations else topology


def _is_exclusive(pod: Object) -> bool:
    return exclusive_topology(pod) is not None


def _alone(spec: Object, topology: str, key: str, priority: str) -> Object:
    """The pod spec with affinity to pods of its own Job, and none to those of other Jobs of sets."""
    own = [{"key": JOB_KEY, "operator": "In", "values": [key]}]
    others = [
        {"key": JOB_KEY, "operator": "Exists"},
        {"key": JOB_KEY, "operator": "NotIn", "values": [key]},
    ]
    same_priority = {"key": PRIORITY, "operator": "In", "values": [priority]}
    affinity: Object = dict(spec.get("affinity") or {})
    for field, expressions in (("podAffinity", own), ("podAntiAffinity", others)):
        terms = affinity.get(field) or {}
        term = {
            "labelSelector": {"matchExpressions": [*expressions, same_priority]},
            "topologyKey": topology,
            "namespaceSelector": {},
        }
        required = [*(terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ()), term]
        affinity[field] = {**terms, "requiredDuringSchedulingIgnoredDuringExecution": required}
    return {**spec, "affinity": affinity}


def _answer(body: Object, response: Object) -> Object:
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "response": {"uid": body["request"]["uid"], "allowed": True, **response},
    }
