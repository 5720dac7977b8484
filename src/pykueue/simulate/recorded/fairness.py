# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""Fairness for each ClusterQueue over the time of a recording: a statement that anyone can compute again.

Amounts are in unit-seconds: cpus, bytes or pieces times seconds. What a queue is entitled to,
has, and borrows from which queue is sampled once in each step and counts for the whole step; with a step of
zero it is read at each change, and exact. Waiting times and preemptions are exact.
Source of the terms: docs/reference/policies.md 6.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Final

from pykueue.api import conditions
from pykueue.api.meta import format_time
from pykueue.api.objects import Object, get
from pykueue.engine import Engine
from pykueue.engine.dump import load
from pykueue.engine.explain.quota_queries import NodeView
from pykueue.engine.recording import carry_out
from pykueue.questions.answers import Answer
from pykueue.questions.share import entitlements
from pykueue.simulate.figures import jain
from pykueue.simulate.measures import Share
from pykueue.simulate.recorded.alone import turnarounds_alone
from pykueue.simulate.recorded.reading import MALFORMED, Entry, Segment, damaged, segments

#: The lender of what is borrowed from the quota of cohorts themselves.
COHORT: Final = "(cohort)"
#: Causes of waiting that no decision names.
NOT_CONSIDERED, CHECKS = "NotConsidered", "AdmissionChecks"
#: Preemptions that are listed; all are counted.
_LISTED = 20


class Resource(Answer, kw_only=True):
    """What a queue was entitled to and had of one resource, in unit-seconds."""

    resource: str
    entitled: float
    received: float
    deficit: float
    """Entitled and not received, over the times at which it was so."""


class Borrowed(Answer, kw_only=True):
    """What one queue borrowed of the quota of another."""

    borrower: str
    lender: str
    """A ClusterQueue, or `(cohort)` for quota of cohorts themselves."""
    resource: str
    amount: float
    """In unit-seconds. What several lend is divided among them in proportion."""


class Preempted(Answer, kw_only=True):
    """One preemption."""

    at: str
    workload: str
    preemptor: str
    reason: str
    file: str
    """The file of the recording that has the decision."""
    line: int


class PreemptedFor(Answer, kw_only=True):
    """All preemptions of workloads of one queue for another, for one reason."""

    preemptor: str
    """ClusterQueue of the preemptors."""
    preempted: str
    """ClusterQueue of the preempted workloads."""
    reason: str
    count: int
    latest: list[Preempted] = []


class Queue(Answer, kw_only=True):
    """The statement for one ClusterQueue."""

    cluster_queue: str
    resources: list[Resource]
    waiting: dict[str, float] = {}
    """Workload-seconds of waiting by cause: a reason of the condition QuotaReserved, `AdmissionChecks`, or
    `NotConsidered` for workloads that were behind others all the time."""
    ended: int = 0
    """Workloads that came to their end and are part of the ratio."""
    turnaround: float | None = None
    """Mean seconds from creation to end of those."""
    turnaround_alone: float | None = None
    """The same with nothing but the queue's own nominal quota and its own workloads, simulated."""
    finish_time_ratio: float | None = None
    """The first divided by the second: below 1, sharing made the queue faster."""


class Statement(Answer, kw_only=True):
    """Fairness over the time of a recording."""

    start: str
    end: str
    recording: str
    """SHA-256 of the recording's files."""
    command: str
    """Computes the statement again from the same files."""
    step: float
    """Seconds between two readings of shares."""
    queues: list[Queue]
    borrowed: list[Borrowed] = []
    preemptions: list[PreemptedFor] = []
    jain: float | None = None
    """Jain's index over the finish-time ratios: 1 if all are equal."""
    gaps: int = 0
    """Times of which nothing is recorded; they count for nothing."""


@dataclass
class _Life:
    """A workload, from its creation to its end."""

    queue: str
    created: float
    cause: str = ""
    """Why it waits; empty while it runs or is not active."""
    since: float = 0.0


@dataclass
class _Account:
    """What is added up over a recording."""

    step: float
    shares: dict[tuple[str, str], Share] = field(default_factory=lambda: defaultdict(Share))
    """By ClusterQueue and resource."""
    borrowed: dict[tuple[str, str, str], float] = field(default_factory=lambda: defaultdict(float))
    waiting: dict[str, dict[str, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )
    preempted: dict[tuple[str, str, str], list[Preempted]] = field(default_factory=lambda: defaultdict(list))
    lives: dict[str, _Life] = field(default_factory=dict)
    turnarounds: dict[str, tuple[str, float]] = field(default_factory=dict)
    """ClusterQueue, and seconds from creation to end, by key of the first workload of a name."""
    end: float = 0.0


def statement(path: Path, step: float = 60.0) -> Statement:
    """The statement over a recording: a directory, or one of its files.

    Raises RecordingError, DecodeError and OSError.
    """
    found = segments(path)
    account = _Account(step)
    digest = hashlib.sha256()
    gaps = 0
    for number, segment in enumerate(found):
        digest.update(segment.path.read_bytes())
        if number and segment.head.get("gap"):
            gaps += 1
            account.lives.clear()
        _take(segment, account)
    alone = turnarounds_alone(path)
    queues = [_queue(name, account, alone) for name in _names(account)]
    ratios = [queue.finish_time_ratio for queue in queues if queue.finish_time_ratio]
    return Statement(
        start=format_time(int(found[0].at)),
        end=format_time(int(max(account.end, found[-1].at))),
        recording=digest.hexdigest(),
        command=f"pykueue fairness {path} --step {step:g}s",
        step=step,
        queues=queues,
        borrowed=[
            Borrowed(borrower=borrower, lender=lender, resource=resource, amount=amount)
            for (borrower, lender, resource), amount in sorted(account.borrowed.items())
        ],
        preemptions=[
            PreemptedFor(
                preemptor=preemptor, preempted=preempted, reason=reason, count=len(all), latest=all[-_LISTED:]
            )
            for (preemptor, preempted, reason), all in sorted(account.preempted.items())
        ],
        jain=jain(ratios) if ratios else None,
        gaps=gaps,
    )


def _names(account: _Account) -> list[str]:
    of_ended = (queue for queue, _ in account.turnarounds.values())
    return sorted({*(name for name, _ in account.shares), *account.waiting, *of_ended} - {""})


def _queue(name: str, account: _Account, alone: Mapping[str, float]) -> Queue:
    both = [
        (seconds, alone[key])
        for key, (queue, seconds) in account.turnarounds.items()
        if queue == name and key in alone
    ]
    shared, own = (fmean(each) for each in zip(*both, strict=True)) if both else (None, None)
    return Queue(
        cluster_queue=name,
        resources=[
            Resource(
                resource=resource, entitled=share.entitled, received=share.received, deficit=share.deficit
            )
            for (queue, resource), share in sorted(account.shares.items())
            if queue == name
        ],
        waiting=dict(sorted(account.waiting.get(name, {}).items())),
        ended=len(both),
        turnaround=shared,
        turnaround_alone=own,
        finish_time_ratio=shared / own if shared is not None and own else None,
    )


def _take(segment: Segment, account: _Account) -> None:
    """Adds one file: its engine is the one that decided."""
    number = 1
    try:
        engine = load(segment.head)
        account.end = max(account.end, segment.at)
        for item in segment.head["items"]:
            if item["kind"] == "Workload":
                _workload(item, segment.at, engine, account)
        sampled = segment.at
        for number, entry in enumerate(segment.entries(), 2):
            at = entry.get("at", account.end)
            if not account.step and at > sampled:
                _sample(engine, account, at - sampled)
                sampled = at
            while account.step and sampled + account.step <= at:
                _sample(engine, account, account.step)
                sampled += account.step
            account.end = max(account.end, at)
            carry_out(engine, entry)
            _note(entry, at, engine, account, (segment.path.name, number))
        _sample(engine, account, account.end - sampled)
        for life in account.lives.values():
            _wait(life, life.cause, account.end, account)
    except MALFORMED as error:
        raise damaged(f"{segment.path}: line {number}", error) from None


# --- shares -----------------------------------------------------------------------------------------------


def _sample(engine: Engine, account: _Account, seconds: float) -> None:
    """What each queue is entitled to, has and borrows now counts for some seconds."""
    if seconds <= 0:
        return
    for (kind, name, resource), each in entitlements(engine).items():
        if kind == "ClusterQueue" and each.demand:
            account.shares[name, resource].add(resource, each, seconds)
    for borrower, lender, resource, amount in _borrowed(engine.nodes()):
        per = seconds / (1000 if resource == "cpu" else 1)
        account.borrowed[borrower, lender, resource] += amount * per


def _borrowed(views: list[NodeView]) -> Iterator[tuple[str, str, str, float]]:
    """(borrower, lender, resource, amount) of the present, in quota units."""
    borrowed: dict[tuple[str, str, str], dict[str, int]] = defaultdict(dict)
    lent: dict[tuple[str, str, str], dict[str, int]] = defaultdict(dict)
    for view in views:
        if view.kind == "ClusterQueue":
            for quota in view.quotas:
                key = (view.path[0], quota.flavor, quota.resource)
                if quota.borrowed:
                    borrowed[key][view.name] = quota.borrowed
                if quota.lent:
                    lent[key][view.name] = quota.lent
    for key, borrowers in borrowed.items():
        total = sum(borrowers.values())
        lenders = dict(lent.get(key, {}))
        from_queues = min(total, sum(lenders.values()))
        if from_queues < total:
            lenders[COHORT] = total - from_queues
        whole = sum(lenders.values())
        for borrower, amount in borrowers.items():
            for lender, part in lenders.items():
                yield borrower, lender, key[2], amount * part / whole


# --- workloads --------------------------------------------------------------------------------------------


def _note(entry: Entry, at: float, engine: Engine, account: _Account, place: tuple[str, int]) -> None:
    if "upsert" in entry and entry["upsert"]["kind"] == "Workload":
        _workload(entry["upsert"], at, engine, account)
    elif "removed" in entry and entry["removed"][0] == "Workload":
        _, namespace, name = entry["removed"]
        _end(f"{namespace}/{name}", at, account)
    for decision in entry.get("cycle", ()):
        key = decision["workload"]
        life = account.lives.get(key)
        match decision["kind"]:
            case "Requeue" if life is not None and life.cause:
                _wait(life, decision["reason"], at, account)
            case "Preempt":
                preemptor = account.lives.get(decision["preemptor"])
                preempting = preemptor.queue if preemptor is not None else ""
                account.preempted[preempting, decision["clusterQueue"], decision["reason"]].append(
                    Preempted(
                        at=format_time(int(at)),
                        workload=key,
                        preemptor=decision["preemptor"],
                        reason=decision["reason"],
                        file=place[0],
                        line=place[1],
                    )
                )


def _workload(item: Object, at: float, engine: Engine, account: _Account) -> None:
    metadata = item["metadata"]
    key = f"{metadata['namespace']}/{metadata['name']}"
    if conditions.is_finished(item):
        _end(key, at, account)
        return
    life = account.lives.get(key)
    if life is None:
        workload = engine.workload_object(key)
        _, queue = engine.queues_of(workload) if workload is not None else (None, None)
        created = workload.metadata.created if workload is not None else None
        life = account.lives[key] = _Life(queue.name if queue is not None else "", created or at, since=at)
    if conditions.has_quota(item):
        cause = "" if conditions.is_admitted(item) else CHECKS
    elif get(item, "spec", "active") is False:
        cause = ""
    else:
        cause = life.cause if life.cause not in ("", CHECKS) else _reason(item)
    _wait(life, cause, at, account)


def _reason(item: Object) -> str:
    """Why a Workload waits, as its condition says."""
    return conditions.reason(item, conditions.QUOTA_RESERVED) or NOT_CONSIDERED


def _wait(life: _Life, cause: str, at: float, account: _Account) -> None:
    """The time since the last change was spent for the cause so far; from now on another one holds."""
    if life.cause and at > life.since:
        account.waiting[life.queue][life.cause] += at - life.since
    life.cause, life.since = cause, at


def _end(key: str, at: float, account: _Account) -> None:
    life = account.lives.pop(key, None)
    if life is None:
        return
    _wait(life, "", at, account)
    account.turnarounds.setdefault(key, (life.queue, at - life.created))
