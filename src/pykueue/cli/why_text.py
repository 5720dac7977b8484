"""The answer to `pykueue why` as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from pykueue.questions import Change, Prospect, Why
from pykueue.questions.answers import FlavorFact, Holders


def lacks_verdict(answer: Why) -> bool:
    """Whether something that could not be read or decided on keeps the answer from a verdict."""
    return bool(answer.unread) and answer.state in ("Pending", "Unknown")


def lines(answer: Why) -> Iterator[str]:
    """The answer, facts first."""
    job = f" ({answer.job})" if answer.job else ""
    yield f"Workload {answer.workload}{job}: {answer.state}"
    where = [f"LocalQueue {answer.local_queue}"] if answer.local_queue else []
    where += [f"ClusterQueue {answer.cluster_queue}"] if answer.cluster_queue else []
    yield f"  {', '.join([*where, f'priority {answer.priority}'])}"
    if answer.position is not None:
        position = answer.position
        text = f"  number {position.index + 1} of {position.pending} pending"
        yield f"{text}, inadmissible until something changes" if position.inadmissible else text
    if answer.reason:
        yield f"  {answer.reason}: {answer.message}" if answer.message else f"  {answer.reason}"
    for pod_set, requests in answer.requests.items():
        amounts = ", ".join(f"{amount} {resource}" for resource, amount in requests.items())
        yield f"  pod set {pod_set} requests {amounts}"
    yield from _section("Blocked by", [_block(block.object, block.message) for block in answer.blocks])
    yield from _section("Flavors", list(_flavors(answer.flavors)))
    if answer.head is not None:
        yield from _prospect("As the head of its queue, with nothing else pending", answer.head)
    if answer.place is not None:
        yield from _place(answer.place, answer.head)
    if lacks_verdict(answer):
        yield from _section(
            "No verdict, because of what could not be read or decided on", list(answer.unread)
        )
    yield from _section("Notes", list(answer.notes))


def _section(title: str, body: list[str]) -> Iterator[str]:
    if body:
        yield ""
        yield f"{title}:"
        yield from (f"  {line}" for line in body)


def _block(name: str, message: str) -> str:
    return f"{name}: {message}" if name and name not in message else message


def _flavors(facts: list[FlavorFact]) -> Iterator[str]:
    for fact in facts:
        head = f"{fact.flavor or '-'}, pod set {fact.pod_set}: {fact.requested} {fact.resource} requested"
        if fact.mode == "Fit":
            yield f"{head}, fits"
            continue
        yield f"{head}; {fact.message}"
        for level in fact.levels:
            amounts = f"quota {level.quota}, used {level.used}, available {level.available}"
            yield f"    {level.kind} {level.node}: {amounts}"
        if fact.holders is not None and fact.holders.count:
            yield f"    {_holders(fact.holders)}"


def _holders(holders: Holders) -> str:
    named = []
    for each in holders.largest:
        named.append(f"{each.workload} {each.amount} ({each.cluster_queue}, priority {each.priority})")
    rest = holders.count - len(named)
    if rest:
        named.append(f"{rest} more")
    return f"{holders.total} held by {_count(holders.count, 'workload')}: {', '.join(named)}"


def _prospect(title: str, prospect: Prospect) -> Iterator[str]:
    yield ""
    if prospect.outcome == "NotDetermined":
        yield f"{title}: not determined, there are too many pending workloads"
        return
    if prospect.outcome == "Admitted":
        victims = _victims(prospect.preempted, prospect.hidden)
        yield f"{title}: it would be admitted in {_count(prospect.cycles, 'cycle')}{victims}"
        return
    if not prospect.changes:
        yield f"{title}: it would not be admitted, and no single change was found that admits it"
        if prospect.beyond_quota:
            yield f"  with enough quota it would still be pending: {prospect.beyond_quota}"
    else:
        yield f"{title}: it would not be admitted. Any one of these changes admits it:"
    yield from (f"  - {_change(change)}" for change in prospect.changes)
    if prospect.undecided:
        yield f"  not determined: {', '.join(sorted(set(prospect.undecided)))}"


def _place(place: Prospect, head: Prospect | None) -> Iterator[str]:
    title = "At its place, with the queue as it is"
    if head is not None and head.changes and place.changes == head.changes and not place.undecided:
        yield ""
        yield f"{title}: the same changes admit it"
        return
    yield from _prospect(title, place)


def _change(change: Change) -> str:
    text = change.text
    effects = [f"in {_count(change.cycles, 'cycle')}"]
    if change.preempted or change.hidden:
        effects.append(f"preempts {_names(change.preempted, change.hidden)}")
    if change.without_preemption:
        effects.append("without preemption")
    if change.delayed:
        effects.append(f"delays {_names(change.delayed, 0)}")
    if change.admits:
        effects.append(f"admits also {_names(change.admits, 0)}")
    if not change.smallest:
        effects.append("not monotonic: a smaller change may suffice")
    return f"{text} ({'; '.join(effects)})"


def _victims(names: list[str], hidden: int) -> str:
    return f" and preempt {_names(names, hidden)}" if names or hidden else ""


#: Workloads that are named; the rest is a number.
_NAMED = 5


def _names(names: list[str], hidden: int) -> str:
    shown = names[:_NAMED]
    rest = len(names) - len(shown) + hidden
    return ", ".join([*shown, *([f"{rest} more" if shown else _count(rest, "workload")] if rest else [])])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
