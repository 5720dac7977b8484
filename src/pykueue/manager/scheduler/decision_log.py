"""The manager's decisions in its log, one line each, at level DEBUG.

They are read off the changes of Workloads as the watch cache shows them, like the metrics: what is logged is
what was written, whichever controller wrote it, once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pykueue.api import conditions
from pykueue.api.objects import key_of
from pykueue.kube.informer import Informer
from pykueue.manager.connection import Order

log = logging.getLogger(__name__)


class DecisionLog:
    """Logs what happens to the Workloads of a cache after its first list, while this replica `acts`."""

    def __init__(self, workloads: Informer, acts: Callable[[], bool]) -> None:
        def changed(type_: str, old: Any, new: Any) -> None:
            if new is None or not log.isEnabledFor(logging.DEBUG) or not workloads.has_synced or not acts():
                return
            for text in decisions({} if old is None else old, new):
                log.debug("Workload %s: %s", "/".join(key_of(new)), " ".join(text.split()))

        workloads.on_event(changed, Order.OBSERVE)


def decisions(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """What was decided between two versions of a Workload."""
    if conditions.is_evicted(new) and _differs(old, new, conditions.EVICTED):
        reason = conditions.reason(new, conditions.EVICTED)
        message = _message(new, conditions.EVICTED)
        yield f"preempted: {message}" if reason == conditions.PREEMPTED else f"evicted: {reason}: {message}"
    elif conditions.is_admitted(new) and not conditions.is_admitted(old):
        yield f"admitted by ClusterQueue {conditions.cluster_queue(new)}"
    elif conditions.has_quota(new) and not conditions.has_quota(old):
        queue = conditions.cluster_queue(new)
        yield f"quota reserved in ClusterQueue {queue}, waiting for its admission checks"
    elif conditions.is_false(new, conditions.QUOTA_RESERVED) and _differs(
        old, new, conditions.QUOTA_RESERVED
    ):
        reason = conditions.reason(new, conditions.QUOTA_RESERVED)
        yield f"pending: {reason}: {_message(new, conditions.QUOTA_RESERVED)}"


def _message(workload: Mapping[str, Any], kind: str) -> str:
    found = conditions.condition(workload, kind)
    return str(found.get("message") or "") if found else ""


def _differs(old: Mapping[str, Any], new: Mapping[str, Any], kind: str) -> bool:
    """Whether the condition says something else than before."""
    before, after = conditions.condition(old, kind) or {}, conditions.condition(new, kind) or {}
    return any(before.get(field) != after.get(field) for field in ("status", "reason", "message"))
