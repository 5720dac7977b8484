"""Disruption of pods by the cluster: the condition DisruptionTarget, then deletion.

The condition lets the pod's owner distinguish a disruption from a failure of the pod itself
(docs/reference/cluster-workloads.md, 4.1).
"""

from __future__ import annotations

from pykueue.api.meta import new_condition
from pykueue.api.objects import Object
from pykueue.api.resources import PODS
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import STRATEGIC_PATCH


def disruption(reason: str, message: str, now: float) -> Object:
    """The condition DisruptionTarget of a pod, `now` in seconds since 1970."""
    return new_condition(None, "DisruptionTarget", "True", reason, message, now)


async def disrupt(
    client: Client,
    pod: Object,
    status: Object,
    *,
    grace_period: int | None = None,
) -> None:
    """Merge `status` into the pod's, then delete the pod; one that is gone is fine. Raises ApiError."""
    metadata = pod["metadata"]
    name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
    try:
        if status:
            patch = {"metadata": {"uid": uid}, "status": status}
            await client.patch(
                PODS, name, namespace, patch, content_type=STRATEGIC_PATCH, subresource="status"
            )
        await client.delete(PODS, name, namespace, uid=uid, grace_period=grace_period)
    except ApiError as error:
        if not error.not_found and not error.conflict:
            raise
