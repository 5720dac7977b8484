# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""What would change if: the futures of the present state beside those of a changed one.

Both have the same run times and the same arrivals in each future: what differs is the effect of the change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from msgspec.structs import replace

from pykueue.api import kueue
from pykueue.api.kueue.names import ADMITTED
from pykueue.api.meta import format_time
from pykueue.engine import Engine, Upsert
from pykueue.questions.answers import Answer
from pykueue.questions.why import why
from pykueue.simulate.futures import FUTURES, Future, Futures, Past, State, Watch, check_pending, interval

#: Seconds for which starts of other pending workloads are compared.
WINDOW: Final = 24 * 3600.0
#: Workloads listed of those whose start the change moves.
OTHERS_MAX: Final = 50
#: Alternatives that are tried, and the futures of each at most.
ALTERNATIVES_MAX: Final = 8
ALTERNATIVE_FUTURES: Final = 20
#: Seconds by which a start has to move to count as moved.
_MOVED: Final = 1.0


class Start(Answer, kw_only=True):
    """When a workload starts: an interval of 80 %. Times are empty where it starts in too few futures."""

    earliest: str
    """10th percentile of the starts."""
    median: str
    latest: str
    """90th percentile."""
    started: int
    """Futures in which it started."""
    futures: int
    ahead: float
    """Workloads that are admitted before it, on average."""


class Effect(Answer, kw_only=True):
    """What becomes of another workload. Shares are of all futures."""

    workload: str
    preempted: float = 0.0
    """It is preempted in them, and without the changes it is not."""
    later: float = 0.0
    earlier: float = 0.0
    seconds: float | None = None
    """Median of how much later it starts where it starts at another time; negative: earlier. None: in none of
    these futures it starts within the window both with and without the changes."""


class Alternative(Answer, kw_only=True):
    """The workload in question submitted otherwise."""

    kind: str
    """`PodCount`, `Queue` or `Flavor`."""
    text: str
    start: Start


class WhatIf(Answer, kw_only=True):
    """What changes of the cluster, or a job that is not submitted yet, lead to."""

    now: str
    workload: str = ""
    """Whose start is asked for; empty where only the effect on others is."""
    submitted: bool = True
    """False: the workload does not exist yet and is submitted now."""
    changes: list[str] = []
    before: Start | None = None
    """Start of the workload without the changes."""
    after: Start | None = None
    """With the changes; None where there are none."""
    others: list[Effect] = []
    """Other workloads that exist, the most affected first: compared with the state without the changes, and
    without a workload that is not submitted yet."""
    hidden: int = 0
    """Affected workloads beyond those listed."""
    window_hours: float
    """Starts of others are compared within this time."""
    alternatives: list[Alternative] = []
    """Without the changes."""
    futures: int
    known_run_times: int
    arrivals_per_hour: float
    unread: list[str] = []
    notes: list[str] = []


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked beside the changes."""

    target: str = ""
    """Key of the workload whose start is asked for."""
    submit: kueue.Workload | None = None
    """A workload that does not exist yet: it is the one that is asked for."""
    futures: int = FUTURES
    seed: int = 0
    arrivals: bool = True
    window: float = WINDOW
    alternatives: bool = True


def whatif(state: State, changed: State, changes: Sequence[str], question: Question) -> WhatIf:
    """The difference between two states; `changes` says in words what it is, and is empty for none.

    Raises KeyError where the target does not exist, and ValueError for one that is not pending.
    """
    return _Comparison(state, changed, changes, question).answer()


class _Comparison:
    def __init__(self, state: State, changed: State, changes: Sequence[str], question: Question) -> None:
        self.state, self.changed, self.changes, self.question = state, changed, changes, question
        self.past = Past(state)
        self.key = question.target if question.submit is None else question.submit.metadata.key
        if question.submit is None and self.key:
            check_pending({each.metadata.key: each for each in state.workloads}[self.key])
        self.others = frozenset(
            each.metadata.key
            for each in state.unfinished()
            if not each.condition_is(ADMITTED) and each.metadata.key != self.key
        )

    def answer(self) -> WhatIf:
        question, state = self.question, self.state
        plain = self._futures(state)
        before = plain if question.submit is None else self._futures(self._with_job(state))
        after = self._futures(self._with_job(self.changed)) if self.changes else before
        result = WhatIf(
            now=format_time(int(state.now)),
            workload=self.key,
            submitted=question.submit is None,
            changes=list(self.changes),
            before=self._start(before) if self.key else None,
            after=self._start(after) if self.key and self.changes else None,
            window_hours=question.window / 3600,
            futures=question.futures,
            known_run_times=self.past.times.count,
            arrivals_per_hour=self.past.rate * 3600 if question.arrivals else 0.0,
            unread=state.unread,
            notes=list(state.notes),
        )
        effects = self._effects(plain, after)
        result.others, result.hidden = effects[:OTHERS_MAX], len(effects[OTHERS_MAX:])
        if self.key and question.alternatives:
            result.alternatives = list(self._alternatives())
        return result

    def _with_job(self, state: State) -> State:
        job = self.question.submit
        if job is None:
            return state
        return _with_workloads(state, [*state.workloads, job])

    def _futures(self, state: State) -> list[Future]:
        question = self.question
        watch = Watch(self.key, self.others, question.window)
        known = {each.metadata.key for each in state.workloads}
        if self.key not in known:
            watch = Watch("", self.others, question.window)
        all = Futures(state, self.past, question.seed, question.arrivals)
        return [all.play(number, watch) for number in range(question.futures)]

    def _start(self, futures: Sequence[Future]) -> Start:
        starts = sorted(each.starts[self.key] for each in futures if self.key in each.starts)
        earliest, middle, latest = interval(starts, len(futures), self.state.now)
        return Start(
            earliest=earliest,
            median=middle,
            latest=latest,
            started=len(starts),
            futures=len(futures),
            ahead=sum(each.ahead for each in futures) / len(futures),
        )

    # --- others -----------------------------------------------------------------------------------------

    def _effects(self, before: Sequence[Future], after: Sequence[Future]) -> list[Effect]:
        """What becomes of the workloads that exist, the most affected first."""
        if before is after:
            return []
        present = {each.metadata.key for each in self.state.unfinished()} - {self.key}
        found = [self._effect(key, before, after) for key in sorted(present)]
        affected = [each for each in found if each.preempted or each.later or each.earlier]
        return sorted(
            affected, key=lambda each: (-each.preempted, -(each.later + each.earlier), each.workload)
        )

    def _effect(self, key: str, before: Sequence[Future], after: Sequence[Future]) -> Effect:
        window, count = self.question.window, len(before)
        preempted = later = earlier = 0
        moves: list[float] = []
        for one, other in zip(before, after, strict=True):
            preempted += key in other.preempted and key not in one.preempted
            if key not in self.others:
                continue
            # A future is simulated for the window at least: a start beyond it may not be known in the other.
            starts = [each.starts.get(key, window) for each in (one, other)]
            first, second = (min(start, window) for start in starts)
            later += second > first + _MOVED
            earlier += second < first - _MOVED
            if abs(second - first) > _MOVED and max(starts) < window:
                moves.append(second - first)
        return Effect(
            workload=key,
            preempted=preempted / count,
            later=later / count,
            earlier=earlier / count,
            seconds=median(moves) if moves else None,
        )

    # --- alternatives -----------------------------------------------------------------------------------

    def _alternatives(self) -> Iterator[Alternative]:
        """The workload with fewer pods, in other queues and in other flavors, without the changes."""
        state = self._with_job(self.state)
        workload = next(each for each in state.workloads if each.metadata.key == self.key)
        others = [each for each in state.workloads if each is not workload]
        engine = Engine(state.options)
        for event in state.objects:
            engine.apply(event)
        for each in state.workloads:
            engine.apply(Upsert(each))
        engine.tick(state.now)
        futures = min(self.question.futures, ALTERNATIVE_FUTURES)
        found = [
            *_smaller(engine, workload, state.now),
            *_queues(engine, workload),
            *_flavors(engine, workload, state),
        ]
        for kind, text, other in found[:ALTERNATIVES_MAX]:
            changed = _with_workloads(state, [*others, other])
            all = Futures(changed, self.past, self.question.seed, self.question.arrivals)
            simulated = [all.play(number, Watch(self.key)) for number in range(futures)]
            yield Alternative(kind=kind, text=text, start=self._start(simulated))


def _with_workloads(state: State, workloads: Sequence[kueue.Workload]) -> State:
    return State(state.options, state.objects, workloads, state.now, state.unread, state.notes)


def _smaller(
    engine: Engine, workload: kueue.Workload, now: float
) -> Iterator[tuple[str, str, kueue.Workload]]:
    """With the most pods that fit at present as the head of its queue, and with half of its pods."""
    counts: dict[tuple[int, int], None] = {}
    pod_sets = workload.spec.pod_sets
    head = why(engine, workload.metadata.key, now, place=False).head
    for change in head.changes if head is not None else ():
        if change.kind == "PodCount" and len(change.edits) == 1:
            name = change.edits[0].field.partition("[")[2].partition("]")[0]
            for index, each in enumerate(pod_sets):
                if (each.name) == name:
                    counts[index, int(change.edits[0].after)] = None
    for index, each in enumerate(pod_sets):
        if each.count > 1:
            counts[index, each.count // 2] = None
    for index, count in sorted(counts, key=lambda each: (each[0], -each[1])):
        pods = pod_sets[index]
        smaller = replace(pods, count=count)
        if pods.min_count is not None and pods.min_count > count:
            smaller = replace(smaller, min_count=count)
        changed = [*pod_sets[:index], smaller, *pod_sets[index + 1 :]]
        text = f"{count} of {pods.count} pods of pod set {pods.name}"
        yield "PodCount", text, replace(workload, spec=replace(workload.spec, pod_sets=changed))


def _queues(engine: Engine, workload: kueue.Workload) -> Iterator[tuple[str, str, kueue.Workload]]:
    """In the other LocalQueues of its namespace."""
    local, _ = engine.queues_of(workload)
    present = local.cluster_queue if local is not None else None
    for each in engine.local_queue_objects(workload.metadata.namespace):
        name, target = each.metadata.name, each.spec.cluster_queue
        if name != workload.spec.queue_name and target != present:
            text = f"LocalQueue {name} (ClusterQueue {target})"
            yield "Queue", text, replace(workload, spec=replace(workload.spec, queue_name=name))


def _flavors(
    engine: Engine, workload: kueue.Workload, state: State
) -> Iterator[tuple[str, str, kueue.Workload]]:
    """With a node selector for each flavor of its ClusterQueue that has labels."""
    _, queue = engine.queues_of(workload)
    groups = queue.obj.spec.resource_groups if queue is not None and queue.obj is not None else ()
    names = dict.fromkeys(flavor.name for group in groups for flavor in group.flavors)
    labels = {
        event.obj.metadata.name: event.obj.spec.node_labels
        for event in state.objects
        if isinstance(event, Upsert) and isinstance(event.obj, kueue.ResourceFlavor)
    }
    for name in names if len(names) > 1 else ():
        selector = labels.get(name, {})
        pod_sets = [_selecting(each, selector) for each in workload.spec.pod_sets]
        if selector and pod_sets != workload.spec.pod_sets:
            terms = ", ".join(f"{key}={value}" for key, value in selector.items())
            text = f"flavor {name} (nodeSelector {terms})"
            yield "Flavor", text, replace(workload, spec=replace(workload.spec, pod_sets=pod_sets))


def _selecting(pods: kueue.PodSet, labels: Mapping[str, str]) -> kueue.PodSet:
    template = pods.template
    spec = template.get("spec") or {}
    selector = {**(spec.get("nodeSelector") or {}), **labels}
    return replace(pods, template={**template, "spec": {**spec, "nodeSelector": selector}})
