"""What keeps a workload pending, as facts: blocks other than quota, and what each flavor lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pykueue.api import kueue
from pykueue.api.meta import find_condition, format_time
from pykueue.api.pending_reasons import OF_QUEUES, ON_HOLD, SUSPENDED
from pykueue.engine import Engine
from pykueue.engine.explain.render import amount, attempt_text
from pykueue.engine.explanation import Attempt, Explanation
from pykueue.questions.answers import Block, FlavorFact, HolderFact, Holders, LevelFact
from pykueue.questions.rights import Rights

#: Holders that are named.
HOLDERS_MAX: Final = 5


def blocks(engine: Engine, workload: kueue.Workload, rights: Rights) -> list[Block]:
    """Everything other than quota that keeps a workload from being admitted now."""
    return list(_blocks(engine, workload, rights))


def _blocks(engine: Engine, workload: kueue.Workload, rights: Rights) -> Iterator[Block]:
    key = workload.metadata.key
    if engine.reservation(key) is not None:
        yield from checks(workload)
        return
    local, queue = engine.queues_of(workload)
    found: list[Block] = []
    if local is not None and local.obj is not None and local.obj.spec.stop_policy != "None":
        name = local.key
        found.append(
            Block(reason=SUSPENDED, message=f"LocalQueue {name} is stopped", object=f"LocalQueue {name}")
        )
    view = engine.cluster_queue(queue.name) if queue is not None else None
    for reason, text in view.problems if view is not None else ():
        assert queue is not None
        name = f"ClusterQueue {queue.name}"
        found.append(Block(reason=reason, message=text, object=name))
    reason, message = engine.pending_reason(key)
    if reason in OF_QUEUES | {ON_HOLD} and not (found and reason == SUSPENDED):
        yield Block(reason=reason, message=message or _condition_message(workload))
    yield from found
    until = engine.back_off_end(key)
    if until is not None:
        yield Block(reason="Requeued", message=f"it is considered again at {format_time(int(until))}")
    requeued = find_condition(workload.status.conditions, "Requeued")
    if requeued is not None and requeued.status == "False" and workload.spec.active:
        yield Block(reason="Requeued", message=f"condition Requeued is False: {requeued.reason}")
    for check in workload.status.admission_checks:
        if check.state in ("Retry", "Rejected"):
            yield Block(reason="AdmissionCheck", message=f"AdmissionCheck {check.name} is {check.state}")
    unready = engine.not_ready()
    if unready:
        shown, hidden = rights.names(unready)
        names = [*shown[:HOLDERS_MAX], *([f"{hidden} of other namespaces"] if hidden else [])]
        yield Block(
            reason="WaitingForPodsReady",
            message=f"admission is blocked until the pods of {len(unready)} admitted workload(s) are ready: "
            + ", ".join(names),
        )


def _condition_message(workload: kueue.Workload) -> str:
    condition = find_condition(workload.status.conditions, "QuotaReserved")
    return condition.message if condition is not None else ""


def checks(workload: kueue.Workload) -> Iterator[Block]:
    """Checks that a workload with quota waits for."""
    if workload.condition_is("Admitted"):
        return
    for check in workload.status.admission_checks:
        if check.state != "Ready":
            text = f"AdmissionCheck {check.name} is {check.state}"
            message = f"{text}: {check.message}" if check.message else text
            yield Block(reason="AdmissionCheck", message=message, object=f"AdmissionCheck {check.name}")


def flavor_facts(
    engine: Engine, cluster_queue: str, explanation: Explanation | None, rights: Rights
) -> list[FlavorFact]:
    """What each flavor that was looked at has for the workload."""
    if explanation is None:
        return []
    return [_fact(engine, cluster_queue, attempt, rights) for attempt in explanation.attempts]


def _fact(engine: Engine, cluster_queue: str, attempt: Attempt, rights: Rights) -> FlavorFact:
    resource = attempt.resource
    fact = FlavorFact(
        pod_set=attempt.pod_set,
        resource=resource,
        flavor=attempt.flavor,
        mode=attempt.mode,
        requested=amount(resource, attempt.requested + attempt.assumed),
        blocker=attempt.blocker,
        message=attempt_text(attempt) if attempt.mode != "Fit" else "",
    )
    if attempt.levels:
        fact.available = amount(resource, attempt.available)
        fact.short = amount(resource, max(0, attempt.total_requested - attempt.levels[0].available))
        # What is above its queue is made up of the quotas of other queues.
        shown = attempt.levels if rights.may_list_queues else attempt.levels[:1]
        fact.levels = [
            LevelFact(
                node=level.node,
                kind=level.kind,
                quota=amount(resource, level.quota),
                used=amount(resource, level.usage),
                available=amount(resource, max(0, level.available)),
            )
            for level in shown
        ]
        if rights.may_list_queues:
            fact.holders = holders(engine, cluster_queue, attempt.flavor, resource, rights)
    return fact


def holders(engine: Engine, cluster_queue: str, flavor: str, resource: str, rights: Rights) -> Holders:
    """The workloads that hold a resource of a flavor."""
    found = engine.holders(cluster_queue, flavor, resource)
    shown, hidden = rights.names(each.key for each in found)
    named = set(shown[:HOLDERS_MAX])
    return Holders(
        count=len(found),
        total=amount(resource, sum(each.amount for each in found)),
        largest=[
            HolderFact(
                workload=each.key,
                cluster_queue=each.cluster_queue,
                amount=amount(resource, each.amount),
                priority=each.priority,
            )
            for each in found
            if each.key in named
        ],
        hidden=hidden,
    )
