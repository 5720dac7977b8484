"""The story of a workload as text: what happened, when, and why.

    2026-01-02T00:00:00Z             created in LocalQueue main (priority 0; pod set workers: 4 pods)
    2026-01-02T00:00:01Z    cycle 1  admitted by ClusterQueue team-a (workers: on-demand(Fit))

Decisions have the time at which they were made; a change of the object that only shows one is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pykueue.api.hybrid import parts_of
from pykueue.api.kueue.names import PREEMPTED
from pykueue.api.meta import format_time
from pykueue.engine.decision_log import CREATED, DELETED
from pykueue.engine.decisions import Admit, Assign, Decision, Delay, Evict, Preempt, Requeue
from pykueue.engine.explain.render import PREEMPTION_CAUSES, message, proof_text
from pykueue.engine.log_entries import FIRST_KEPT, Change, Entry, Story


def data(story: Story) -> dict[str, Any]:
    """The story as JSON: entry by entry, without changes that only show a decision."""
    return {
        "workload": story.workload,
        "dropped": story.dropped,
        "entries": [
            {
                "time": format_time(entry.at),
                "cycle": entry.cycle if not isinstance(entry.what, Change) else None,
                "text": told,
                "count": entry.count,
                "lastTime": format_time(entry.last_at if entry.count > 1 else entry.at),
            }
            for entry, told in _told(story)
        ],
    }


def text(story: Story) -> str:
    """The story as lines, oldest first; empty where nothing is known of the workload."""
    return lines(data(story))


def lines(told: Mapping[str, Any]) -> str:
    """The lines of what `data` returned."""
    result = []
    for position, entry in enumerate(told["entries"]):
        if position == FIRST_KEPT and told["dropped"]:
            result.append(f"... {told['dropped']} entries are not kept")
        cycle = f"cycle {entry['cycle']}" if entry["cycle"] is not None else ""
        repeated = (
            f" (decided {entry['count']} times, last at {entry['lastTime']})" if entry["count"] > 1 else ""
        )
        result.append(f"{entry['time']}  {cycle:>9}  {entry['text']}{repeated}")
    return "\n".join(result)


def _told(story: Story) -> Iterator[tuple[Entry, str]]:
    """Entries with their sentences; entries that only confirm a decision are left out."""
    decided: Decision | None = None
    for entry in story.entries:
        what = entry.what
        if isinstance(what, Change):
            told = _change(what, story.workload, decided)
        else:
            told = _decision(what, story.workload)
            if what.key == story.workload:
                decided = what
        if told:
            yield entry, told


def _decision(decision: Decision, workload: str) -> str:
    match decision:
        case Admit():
            verb = "admitted by" if decision.admitted else "quota reserved in"
            rest = f", in place of {decision.replaces}" if decision.replaces else ""
            proof = decision.explanation.backfill
            why = f"; {proof_text(proof)}" if proof is not None else ""
            return f"{verb} ClusterQueue {decision.cluster_queue}{rest} ({message(decision)}{why})"
        case Preempt() if decision.key != workload:
            return (
                f"preempts {decision.key}{_place(decision.path)} due to {PREEMPTION_CAUSES[decision.reason]}"
            )
        case Preempt():
            place = _place(decision.preemptor_path)
            return f"preempted by {decision.preemptor}{place} due to {PREEMPTION_CAUSES[decision.reason]}"
        case Assign() if any(map(parts_of, decision.admission.pod_set_assignments)):
            return message(decision)
        case Assign():
            return "new nodes assigned" if not decision.admitted else "nodes assigned"
        case Evict():
            return f"evicted due to {decision.reason}: {decision.message}"
        case Delay():
            return f"tried again later: {decision.message}"
        case Requeue():
            where = "inadmissible" if decision.inadmissible else "pending"
            return f"{where} in ClusterQueue {decision.cluster_queue}: {decision.reason}: {message(decision)}"


def _place(path: tuple[str, ...]) -> str:
    return f" in /{'/'.join(path)}"


def _change(change: Change, workload: str, decided: Decision | None) -> str:
    if change.object != f"Workload {workload}":
        return f"{change.object}: {_field(change)}"
    if change.field == CREATED:
        return f"created in LocalQueue {change.after or 'unset'} ({change.message})"
    if change.field.startswith("condition "):
        return _condition(change, decided)
    return _field(change)


def _field(change: Change) -> str:
    if change.field in (CREATED, DELETED):
        return change.field
    return f"{change.field}: {change.before or 'unset'} -> {change.after or 'unset'}"


def _condition(change: Change, decided: Decision | None) -> str:
    """What a condition that changed adds to the last decision; empty if nothing."""
    kind, holds = change.field.partition(" ")[2], change.after == "True"
    why = ": ".join(part for part in (change.reason, change.message) if part)
    match kind:
        case "QuotaReserved" if holds:
            return "" if isinstance(decided, Admit) else "quota reserved"
        case "QuotaReserved":
            return "quota released, queued again" if isinstance(decided, Preempt) else "quota released"
        case "Admitted" if holds:
            already = isinstance(decided, Admit) and decided.admitted
            return "" if already else "admitted: all admission checks are Ready"
        case "Evicted" if holds:
            return "" if isinstance(decided, Preempt) and change.reason == PREEMPTED else f"evicted: {why}"
        case "Requeued" if isinstance(decided, Preempt):
            return ""  # at once, with the release
        case "Requeued":
            return f"requeued ({why})" if holds else f"not requeued yet ({why})"
        case "PodsReady" if holds:
            return "all pods are ready"
        case "Finished" if holds:
            return f"finished: {why}"
        case "Admitted" | "Evicted" | "Preempted" | "PodsReady":
            return ""  # follows from the quota, or says again what Evicted does
        case _:
            return f"condition {kind} is {change.after or 'unset'}" + (f" ({why})" if why else "")
