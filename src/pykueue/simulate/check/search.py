"""Searching a model for what goes wrong over time; each finding comes with the events that lead to it.

Runs are drawn at random from a fixed seed, so that the same policy gives the same findings. What is found is
shortened: no event of a counterexample can be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from pykueue.engine import Admit, Preempt, Removed
from pykueue.engine.cycle.tree_cycle import PREEMPTIONS_MAX
from pykueue.engine.explain.quota_queries import NodeView

from .findings import Finding
from .model import Action, Finish, Run, Shape, Submit, actions_of, key_of, number_of, renumbered, replay
from .policy import Policy

#: Actions of one run.
_ACTIONS: Final = 8
#: Queues that take part in one run.
_QUEUES: Final = 3
#: Share of actions that finish a workload.
_FINISHES: Final = 0.2
#: How many counterexamples of one rule are shortened; the shortest is reported.
_SHORTENED: Final = 4


@dataclass(frozen=True)
class _Fault:
    """Something wrong at the end of a run."""

    rule: str
    cluster_queue: str
    message: str
    last: tuple[str, ...] = ()
    """Events after those of the run."""


#: Finds a fault at the end of a run.
_Finder = Callable[[Run, Policy], _Fault | None]


def search(policy: Policy, shape: Shape, runs: int) -> Iterator[Finding]:
    """What goes wrong in a model: at most one finding of each rule."""
    random = Random(f"{shape.tree.root} {shape.resource}")
    names = [name for name in shape.sizes if shape.sizes[name]]
    found: dict[str, list[list[Action]]] = {}
    for _ in range(runs if names else 0):
        finders = {rule: finder for rule, finder in _FINDERS.items() if len(found.get(rule, ())) < _SHORTENED}
        if not finders:
            break
        for rule, actions in _walk(policy, shape, names, random, finders):
            found.setdefault(rule, []).append(actions)
    for rule, examples in found.items():
        shortest = min(
            (_shortened(policy, shape, actions, _FINDERS[rule]) for actions in examples), key=_length(shape)
        )
        run = replay(shape, renumbered(shortest))
        fault = _FINDERS[rule](run, policy)
        assert fault is not None
        name = f"ClusterQueue {fault.cluster_queue}"
        events = (*_texts(run), *fault.last)
        yield Finding(rule, name, fault.message, policy.place(name), events)


def _walk(
    policy: Policy, shape: Shape, names: Sequence[str], random: Random, finders: dict[str, _Finder]
) -> Iterator[tuple[str, list[Action]]]:
    """One random run; the rules it breaks with the actions up to there."""
    queues = names if len(names) <= _QUEUES else random.sample(names, _QUEUES)
    run, actions = Run(shape), list[Action]()
    left = dict(finders)
    for number in range(1, _ACTIONS + 1):
        running = run.admitted()
        action: Action
        if running and random.random() < _FINISHES:
            action = Finish(random.choice(running))
        else:
            queue = random.choice(queues)
            size, priority = random.choice(shape.sizes[queue]), random.choice(shape.priorities)
            action = Submit(number, queue, size, priority)
        actions.append(action)
        run.do(action)
        for rule in [rule for rule, finder in left.items() if finder(run, policy) is not None]:
            del left[rule]
            yield rule, list(actions)
        if run.circle is not None:
            return


def _shortened(policy: Policy, shape: Shape, actions: list[Action], finder: _Finder) -> list[Action]:
    """Without the actions that the fault does not need."""
    again = True
    while again:
        again = False
        for index in reversed(range(len(actions))):
            fewer = actions_of(actions, index)
            if finder(replay(shape, fewer), policy) is not None:
                actions, again = fewer, True
                break
    return actions


def _length(shape: Shape) -> Callable[[list[Action]], int]:
    def length(actions: list[Action]) -> int:
        run = replay(shape, actions)
        return run.circle.after if run.circle is not None else len(run.steps)

    return length


def _texts(run: Run) -> list[str]:
    texts = [step.text for step in run.steps]
    if run.circle is None:
        return texts
    first, after, exact = run.circle
    last = f"events {first + 1} to {after} come again, and so on"
    if not exact:
        last = f"after more preemptions, workloads hold quota as after event {first}, and so on"
    return [*texts[:after], last]


# --- faults -----------------------------------------------------------------------------------------------


def _loop(run: Run, policy: Policy) -> _Fault | None:
    """Workloads preempt one another in a circle."""
    if run.circle is None:
        return None
    steps = run.steps[run.circle.first : run.circle.after]
    queues = sorted({step.preempted for step in steps if step.preempted})
    return _Fault(
        "preemption-loop",
        queues[0],
        f"workloads of {' and '.join(queues)} are preempted in a circle, while nothing is created and "
        f"nothing finishes; pykueue ends it after {PREEMPTIONS_MAX} preemptions by each workload, Kueue has "
        "no such limit",
    )


def _unreachable_share(run: Run, policy: Policy) -> _Fault | None:
    """A pending workload does not preempt, although its queue would have no more than another one."""
    if not run.shape.options.fair_sharing or run.circle is not None:
        return None
    pending, running = run.pending(), run.admitted()
    if not pending or not running:
        return None
    views = {view.name: view for view in run.driver.engine.nodes() if view.kind == "ClusterQueue"}
    hungry = dict.fromkeys(run.submitted[number].cluster_queue for number in pending)
    for name in hungry:
        for other in dict.fromkeys(run.submitted[number].cluster_queue for number in running):
            if other != name and views[other].share > views[name].share and _siblings(views, name, other):
                fault = _swap(run, name, other, views)
                if fault is not None:
                    return fault
    return None


def _swap(run: Run, name: str, other: str, views: dict[str, NodeView]) -> _Fault | None:
    """Whether a workload of a queue is admitted, with fairer shares, without some workloads of another."""
    engine, now = run.driver.engine, run.driver.now + 1
    held = [number for number in run.admitted() if run.submitted[number].cluster_queue == other]
    ended: list[int] = []
    with engine.fork() as trial:
        for number in reversed(held):
            namespace, _, workload = key_of(number).partition("/")
            trial.apply(Removed("Workload", namespace, workload))
            ended.append(number)
            decisions = trial.cycle(now)
            admitted = [number_of(each.key) for each in decisions if isinstance(each, Admit)]
            if any(isinstance(each, Preempt) for each in decisions):
                return None
            if not admitted:
                continue
            if {run.submitted[one].cluster_queue for one in admitted} != {name}:
                return None
            after = {view.name: view for view in trial.nodes() if view.kind == "ClusterQueue"}
            if after[name].share > after[other].share or after[other].share >= views[other].share:
                return None
            policy = engine.cluster_queue_object(name)
            reclaim = policy.spec.preemption.reclaim_within_cohort if policy is not None else ""
            last = (
                f"{' and '.join(run.title(one) for one in admitted)} stays pending, although the shares "
                f"would be {_share(after[name])} and {_share(after[other])} without "
                f"{', '.join(run.title(one) for one in ended)}"
            )
            return _Fault(
                "unreachable-share",
                name,
                f"its share stays {_share(views[name])} beside {_share(views[other])} of {other} until "
                f"workloads of {other} finish, and it does not preempt (reclaimWithinCohort: {reclaim})",
                (last,),
            )
    return None


def _siblings(views: dict[str, NodeView], name: str, other: str) -> bool:
    """Whether shares of two queues are compared with each other: they have the same cohort."""
    return views[name].parent == views[other].parent != ""


def _share(view: NodeView) -> str:
    return f"{view.share / 1000:.0%}"


def _blocked_borrowing(run: Run, policy: Policy) -> _Fault | None:
    """A pending workload that does not fit keeps one of another queue from unused quota."""
    if run.circle is not None:
        return None
    pending = run.pending()
    for name in dict.fromkeys(run.submitted[number].cluster_queue for number in pending):
        others = [number for number in pending if run.submitted[number].cluster_queue != name]
        blocking = [number for number in pending if run.submitted[number].cluster_queue == name]
        if not others:
            continue
        with run.driver.engine.fork() as trial:
            for number in blocking:
                namespace, _, workload = key_of(number).partition("/")
                trial.apply(Removed("Workload", namespace, workload))
            decisions = trial.cycle(run.driver.now + 1)
            admitted = [number_of(each.key) for each in decisions if isinstance(each, Admit)]
            if any(isinstance(each, Preempt) for each in decisions):
                admitted = []
        if admitted:
            blocked = run.title(admitted[0])
            strategy = policy.cluster_queues[name].spec.queueing_strategy
            return _Fault(
                "blocked-borrowing",
                name,
                f"its pending workloads keep other queues from borrowing quota that they do not use "
                f"themselves (queueingStrategy: {strategy})",
                (
                    f"{blocked} stays pending, although its request is unused; it is admitted without "
                    f"{' and '.join(run.title(number) for number in blocking)}",
                ),
            )
    return None


_FINDERS: Final[dict[str, _Finder]] = {
    "preemption-loop": _loop,
    "unreachable-share": _unreachable_share,
    "blocked-borrowing": _blocked_borrowing,
}


# --- starvation -------------------------------------------------------------------------------------------


def starvation(policy: Policy, shape: Shape) -> Iterator[Finding]:
    """Large workloads that a stream of small ones of equal priority passes without end; one finding."""
    found: dict[str, tuple[str, Run]] = {}
    for name, sizes in shape.sizes.items():
        for source in [name, *(other for other in shape.sizes if other != name)][: _QUEUES + 1]:
            run = _stream(shape, name, source, sizes[-1] if source == name else shape.nominal[name])
            if run is not None:
                found[name] = source, run
                break
    for name, (source, run) in found.items():
        passing = "its own queue" if source == name else f"ClusterQueue {source}"
        message = f"a large workload can be pending for any time while smaller ones of {passing} pass it"
        if others := [other for other in found if other != name]:
            message += f"; the same is true of {', '.join(others)}"
        end = f"{run.title(0)} stays pending while smaller ones are created and admitted like this"
        events = (*(step.text for step in run.steps), end)
        yield Finding(
            "starvation", f"ClusterQueue {name}", message, policy.place(f"ClusterQueue {name}"), events
        )
        return


def _stream(shape: Shape, name: str, source: str, large: int) -> Run | None:
    """A run in which small workloads pass a large one until the state repeats; None if it is admitted."""
    small = large // 2
    if large <= 1 or small < 1 or small not in range(1, shape.sizes[source][-1] + 1):
        return None
    priority = shape.priorities[0]
    run = Run(shape)
    count = 0
    while True:  # fill what the stream can have
        count += 1
        run.do(Submit(count, source, small, priority))
        if not run.holds(count):
            break
        if count == 6:
            return None
    run.do(Submit(0, name, large, priority))
    if run.holds(0) or len(run.admitted()) < 2:
        return None
    before, states = count, {run.state()}
    for _ in range(8):
        run.do(Finish(run.admitted()[0]))
        if run.holds(0) or run.circle is not None:
            return None
        count += 1
        run.do(Submit(count, source, small, priority))
        if run.holds(0):
            return None
        # Only what was created after the large one passes it.
        if run.state() in states and run.admitted()[-1] > before:
            return run
        states.add(run.state())
    return None
