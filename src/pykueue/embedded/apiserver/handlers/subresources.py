"""Subresources that are more than a part of their object: scale, binding, namespace finalize.

Source: docs/reference/kubernetes-api-machinery.md, section 14.
"""

from __future__ import annotations

from typing import Any

from pykueue.api.meta import set_condition
from pykueue.api.objects import Object, is_deleting
from pykueue.embedded.apiserver.registry.call import Answer, Call, write_options
from pykueue.embedded.apiserver.registry.core import Core
from pykueue.embedded.apiserver.registry.endpoints import Endpoint
from pykueue.embedded.kinds.printing import selector_cell
from pykueue.embedded.objects.errors import (
    conflict,
    invalid,
    invalid_object,
    required,
    success,
    unsupported_media_type,
)
from pykueue.embedded.objects.jsonpath import field_at, field_steps
from pykueue.embedded.objects.patch import json_patch, merge_patch
from pykueue.kube.transport import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

from .decoding import subresource_body
from .writes import Writes


def _with(obj: Object, steps: list[str], value: Any) -> Object:
    head, *rest = steps
    if not rest:
        return {**obj, head: value}
    child = obj.get(head)
    return {**obj, head: _with(child if isinstance(child, dict) else {}, rest, value)}


def scale_of(endpoint: Endpoint, obj: Object) -> Object:
    """The autoscaling/v1 Scale view of an object."""
    wanted, actual, selector = endpoint.kind.scale_paths
    meta = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Object = {"replicas": field_at(obj, field_steps(actual)) or 0}
    if selector:
        text = field_at(obj, field_steps(selector))
    else:
        shown = selector_cell(field_at(obj, field_steps(".spec.selector")))
        text = "" if shown == "<none>" else shown
    if text:
        status["selector"] = text
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in kept if key in meta},
        "spec": {"replicas": field_at(obj, field_steps(wanted)) or 0},
        "status": status,
    }


class Subresources:
    """The actions behind the subresources."""

    def __init__(self, core: Core, writes: Writes) -> None:
        self._core = core
        self._writes = writes

    # -- scale

    async def write_scale(self, call: Call) -> Answer:
        """PUT or PATCH of a scale: sets the wanted replicas."""
        endpoint = call.endpoint
        path = endpoint.kind.scale_paths[0]
        steps = field_steps(path)

        def make(obj: Object) -> Object:
            scale = scale_of(endpoint, obj)
            changed = subresource_body(call, self._changed_scale(call, scale))
            replicas = (changed.get("spec") or {}).get("replicas", 0)
            if replicas < 0:
                cause = invalid("spec.replicas", replicas, "should be a non-negative integer")
                raise invalid_object("autoscaling", "Scale", call.target.name, [cause])
            version = (changed.get("metadata") or {}).get("resourceVersion")
            if version and version != obj["metadata"]["resourceVersion"]:
                raise conflict(endpoint.group, endpoint.plural, call.target.name)
            return obj if replicas == field_at(obj, steps) else _with(obj, steps, replicas)

        options = write_options(call, "UpdateOptions" if call.method == "PUT" else "PatchOptions")
        main = Call(
            "PATCH",
            call.target._replace(subresource=""),
            call.query,
            call.user,
            None,
            MERGE_PATCH,
            call.agent,
            call.warnings,
        )
        answer = await self._writes.modify(main, options, make)
        return Answer(answer.code, None, scale_of(endpoint, answer.object(endpoint)))

    def _changed_scale(self, call: Call, scale: Object) -> Any:
        if call.method == "PUT":
            return call.body
        if call.content_type in (MERGE_PATCH, STRATEGIC_PATCH):
            return merge_patch(scale, call.body)
        if call.content_type == JSON_PATCH:
            return json_patch(scale, call.body)
        raise unsupported_media_type(f"{call.content_type} is not accepted for scale")

    # -- pods

    async def bind(self, call: Call) -> Answer:
        """POST of a Binding: the pod gets its node, once."""
        body = subresource_body(call, call.body)
        node = body["target"].get("name")
        if not node:
            raise invalid_object("", "Binding", call.target.name, [required("target.name")])
        meta = body.get("metadata") or {}
        name = call.target.name

        def make(pod: Object) -> Object:
            spec = pod.get("spec") or {}
            if meta.get("uid") and meta["uid"] != pod["metadata"]["uid"]:
                raise conflict("", "pods/binding", name, "the pod has another UID")
            if is_deleting(pod):
                raise conflict(
                    "", "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host"
                )
            if spec.get("nodeName"):
                raise conflict(
                    "", "pods/binding", name, f'pod {name} is already assigned to node "{spec["nodeName"]}"'
                )
            if spec.get("schedulingGates"):
                raise conflict("", "pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")
            status = pod.get("status") or {}
            conditions = set_condition(
                status.get("conditions") or (), "PodScheduled", "True", None, None, self._core.clock.time()
            )
            merged = {
                key: {**(pod["metadata"].get(key) or {}), **meta[key]}
                for key in ("labels", "annotations")
                if meta.get(key)
            }
            return {
                **pod,
                "metadata": {**pod["metadata"], **merged} if merged else pod["metadata"],
                "spec": {**spec, "nodeName": node},
                "status": {**status, "conditions": conditions},
            }

        options = write_options(call, "CreateOptions")
        await self._writes.modify(call, options, make, internal=True)
        return Answer(201, None, success())

    # -- namespaces

    async def finalize(self, call: Call) -> Answer:
        """PUT of a namespace's finalize: only spec.finalizers changes."""
        body = subresource_body(call, call.body)
        finalizers = (body.get("spec") or {}).get("finalizers") or []

        def make(namespace: Object) -> Object:
            version = (body.get("metadata") or {}).get("resourceVersion")
            if version and version != namespace["metadata"]["resourceVersion"]:
                raise conflict("", "namespaces", call.target.name)
            spec = {key: value for key, value in (namespace.get("spec") or {}).items() if key != "finalizers"}
            if finalizers:
                spec["finalizers"] = finalizers
            return {**namespace, "spec": spec}

        return await self._writes.modify(call, write_options(call, "UpdateOptions"), make, internal=True)
