"""Pods that the cluster ends: first marked as disrupted, then deleted.

The mark, the condition DisruptionTarget, lets the pod's owner tell a disruption from a failure of its own
(reference/cluster-workloads.md, 4.1).
"""

from __future__ import annotations

from typing import Any

from pykueue.api.times import format_time
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.resources import PODS
from pykueue.kube.transport import STRATEGIC_PATCH

Object = dict[str, Any]


def disruption(reason: str, message: str, now: float) -> Object:
    """The condition of a pod that is ended by somebody else, `now` in seconds since 1970."""
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": format_time(now),
    }


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
