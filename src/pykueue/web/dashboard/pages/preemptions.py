"""Preemptions: which queues preempt workloads of which, and the latest of them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from pykueue.api import DecodeError, decode_as
from pykueue.api.meta import parse_time
from pykueue.api.preemption_policies import PREEMPTION_POLICIES, PreemptionPolicy
from pykueue.api.resources import CLUSTER_QUEUES, WORKLOADS
from pykueue.questions.preemptions import Preemptions, lost_text, preemptions
from pykueue.web.dashboard.charts.flow import flow
from pykueue.web.dashboard.state.board import PREEMPTIONS_MAX, Board

from .base import DeniedError, Page, View, denied, everywhere, part_of

_UNKNOWN: Final = "unknown"


async def build(view: View) -> Mapping[str, Any]:
    sees_queues = view.grants.lists(CLUSTER_QUEUES)
    if not sees_queues and not view.grants.some("list", WORKLOADS):
        raise DeniedError(denied(view.user, "list", WORKLOADS, ""))
    board = view.board
    rows: list[dict[str, Any]] = []
    ledger = _ledger(board) if view.grants.lists(PREEMPTION_POLICIES) else Preemptions(recent=[], totals=[])
    lost = {(each.workload, float(parse_time(each.time))): each.lost for each in ledger.recent}
    counts: Counter[tuple[str, str]] = Counter()
    reasons: Counter[str] = Counter()
    for target, found in reversed(board.preemptions):
        queue, preemptor = board.queue_of(target), _preemptor(board, found.preemptor)
        source = found.queue or (board.queue_of(preemptor) if preemptor is not None else "")
        counts[source or _UNKNOWN, queue or _UNKNOWN] += 1
        reasons[found.reason] += 1
        if view.grants.lists(WORKLOADS, target.namespace):
            named = preemptor is not None and view.grants.lists(WORKLOADS, preemptor.namespace)
            rows.append(
                {
                    "at": found.at,
                    "target": target,
                    "queue": queue,
                    "preemptor": preemptor if named else None,
                    "source": source if sees_queues else "",
                    "reason": found.reason,
                    "lost": lost_text(lost.get((target.key, found.at), {})),
                }
            )
    rows.sort(key=lambda one: float(one["at"]), reverse=True)
    context: dict[str, Any] = {
        "part": part_of(rows, view, "/preemptions"),
        "reasons": reasons.most_common(),
        "count": len(board.preemptions),
        "totals": [(each, lost_text(each.lost)) for each in ledger.totals],
    }
    if sees_queues:
        text = "; ".join(
            f"{source} preempted {count} of {target}" for (source, target), count in counts.most_common(10)
        )
        context["graph"] = flow(counts, f"Preemptions between ClusterQueues: {text}")
    return context


def _ledger(board: Board) -> Preemptions:
    """What PreemptionPolicies counted; a policy that cannot be read is left out."""

    def compute() -> Preemptions:
        policies = []
        for obj in board.objects(PREEMPTION_POLICIES.kind):
            with contextlib.suppress(DecodeError):
                policies.append(decode_as(PreemptionPolicy, obj))
        return preemptions((), policies, PREEMPTIONS_MAX)

    return board.memo("ledger", compute)


def _preemptor(board: Board, uid: str) -> Any:
    key = board.by_uid.get(uid)
    return board.workloads.get(key) if key is not None else None


PAGE = Page(
    "/preemptions",
    "Preemptions",
    "preemptions.html",
    build,
    lambda params: everywhere(WORKLOADS, CLUSTER_QUEUES, PREEMPTION_POLICIES),
    section="Preemptions",
)
