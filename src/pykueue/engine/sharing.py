"""Parts of Workloads that say the same, kept once.

Decoding an object makes new strings and empty lists, which are much of what the engine keeps of a pending
Workload. API types are immutable: whether equal parts are one object makes no
difference but for the memory.
"""

from __future__ import annotations

from sys import intern
from typing import Any, Final

from msgspec.structs import force_setattr

from pykueue.api import kueue

_NO_ITEMS: Final[list[Any]] = []
_NO_PAIRS: Final[dict[str, Any]] = {}


def share_parts(obj: kueue.Workload, before: kueue.Workload) -> None:
    """Let a Workload share its texts and empty parts with others and with its version `before`."""
    # For every event: hence no loops over names.
    metadata, spec, status = obj.metadata, obj.spec, obj.status
    if not metadata.labels:
        force_setattr(metadata, "labels", _NO_PAIRS)
    if not metadata.annotations:
        force_setattr(metadata, "annotations", _NO_PAIRS)
    if not metadata.owner_references:
        force_setattr(metadata, "owner_references", _NO_ITEMS)
    if not metadata.finalizers:
        force_setattr(metadata, "finalizers", _NO_ITEMS)
    if not spec.preemption_gates:
        force_setattr(spec, "preemption_gates", _NO_ITEMS)
    if not status.reclaimable_pods:
        force_setattr(status, "reclaimable_pods", _NO_ITEMS)
    if not status.admission_checks:
        force_setattr(status, "admission_checks", _NO_ITEMS)
    if not status.resource_requests:
        force_setattr(status, "resource_requests", _NO_ITEMS)
    if not status.nominated_cluster_names:
        force_setattr(status, "nominated_cluster_names", _NO_ITEMS)
    if not status.unhealthy_nodes:
        force_setattr(status, "unhealthy_nodes", _NO_ITEMS)
    if not status.preemption_gates:
        force_setattr(status, "preemption_gates", _NO_ITEMS)
    if status.conditions:
        for condition in status.conditions:
            force_setattr(condition, "type", intern(condition.type))
            force_setattr(condition, "reason", intern(condition.reason))
            force_setattr(condition, "message", intern(condition.message))
    else:
        force_setattr(status, "conditions", _NO_ITEMS)
    force_setattr(spec, "queue_name", intern(spec.queue_name))
    force_setattr(metadata, "resource_version", "")  # of no use here, and different each time
    if metadata.creation_timestamp is not None:
        force_setattr(metadata, "creation_timestamp", intern(metadata.creation_timestamp))
    known = before.metadata
    if known is metadata:
        force_setattr(metadata, "namespace", intern(metadata.namespace))
    elif known.uid == metadata.uid:
        force_setattr(metadata, "namespace", known.namespace)
        force_setattr(metadata, "name", known.name)
        force_setattr(metadata, "uid", known.uid)
