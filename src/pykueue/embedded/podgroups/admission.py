"""Admission of native PodGroups: the template they refer to must exist.

Source: docs/reference/cluster-workloads.md 3.8.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.webhooks.admission import Webhook
from pykueue.embedded.podgroups.definitions import NATIVE_POD_GROUPS, NATIVE_WORKLOADS
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError


class _AsksServer(Protocol):
    def transport(self, user: str = ..., groups: Iterable[str] = ...) -> Any: ...


def webhooks(server: _AsksServer) -> list[Webhook]:
    """The rule, answering from what `server` has stored."""
    client = Client(server.transport("system:apiserver"))

    async def review(body: Object) -> Object:
        request = body["request"]
        refused = await _fault(client, request["object"], request["namespace"])
        response: Object = {"uid": request["uid"], "allowed": not refused}
        if refused:
            response["status"] = {"code": 403, "reason": "Forbidden", "message": refused}
        return {"apiVersion": body["apiVersion"], "kind": body["kind"], "response": response}

    rule = {
        "operations": ["CREATE"],
        "apiGroups": [NATIVE_POD_GROUPS.group],
        "apiVersions": [NATIVE_POD_GROUPS.version],
        "resources": [NATIVE_POD_GROUPS.plural],
        "scope": "Namespaced",
    }
    return [Webhook("podgroup-template.scheduling.k8s.io", False, [rule], review)]


async def _fault(client: Client, group: Object, namespace: str) -> str:
    reference = ((group.get("spec") or {}).get("podGroupTemplateRef") or {}).get("workload")
    if reference is None:
        return ""
    name, wanted = reference.get("workloadName") or "", reference.get("podGroupTemplateName") or ""
    try:
        workload = await client.get(NATIVE_WORKLOADS, name, namespace)
    except ApiError as error:
        if not error.not_found:
            raise
        return f"workload {name} does not exist"
    templates = workload["spec"].get("podGroupTemplates") or ()
    if any(one.get("name") == wanted for one in templates):
        return ""
    return f"workload {name} has no pod group template {wanted}"
