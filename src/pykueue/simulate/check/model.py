"""A tree of queues with few workloads, decided by the production engine: what a search of it is made of.

Quotas are as in the manifests. What has no part in the rules that are searched is left out: admission checks,
stop policies, selectors of namespaces and the nodes of topologies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from pykueue.api import kueue
from pykueue.api.core import Namespace
from pykueue.api.kueue.names import QUOTA_RESERVED
from pykueue.api.meta import LabelSelector, ObjectMeta, format_micro_time
from pykueue.engine import Admit, Options, Preempt, Removed, Upsert
from pykueue.engine.driver import Driver
from pykueue.engine.events import Event
from pykueue.engine.explain.render import amount
from pykueue.simulate.scenario.jobs import pod_set
from pykueue.simulate.scenario.types import PodSet

from .policy import Policy, Tree, changed

_NAMESPACE: Final = "model"
#: Seconds since 1970 at which a model begins.
_START: Final = 1_750_000_000.0
#: Scheduling cycles after one action, beyond which a model is given up.
_CYCLES_MAX: Final = 400
#: How often the same workloads must hold quota, with preemptions in between, for a circle: at least, and for
#: one whose order changes from round to round.
_SIGHTINGS: Final = (3, 6)


#: Steps of a counterexample beyond which no further round of a circle is shown.
_STEPS_SHOWN: Final = 16


class Submit(NamedTuple):
    """A workload is created."""

    number: int
    """Names it."""
    cluster_queue: str
    units: int
    """What it requests of the resource, in quota units."""
    priority: int = 0


class Finish(NamedTuple):
    """A workload that holds quota comes to its end; nothing happens if it holds none."""

    number: int


Action = Submit | Finish


class Step(NamedTuple):
    """One event of a run."""

    text: str
    preempted: str = ""
    """ClusterQueue of the workload that is preempted."""


class Circle(NamedTuple):
    """Steps that come again and again."""

    first: int
    """Index of the first step."""
    after: int
    """Index after the last one."""
    exact: bool
    """The same steps come again, in the same order; else, the same workloads hold quota again."""


@dataclass
class Shape:
    """What runs of one tree and resource have in common."""

    tree: Tree
    resource: str
    options: Options
    objects: list[Event]
    capacity: int
    """The most that the tree has of the resource in one flavor, in quota units."""
    granularity: int
    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Requests to try, by ClusterQueue; queues that can have none of the resource are left out."""
    nominal: dict[str, int] = field(default_factory=dict)
    """Nominal quota by ClusterQueue, in the flavor that has most."""
    priorities: tuple[int, ...] = (0,)


class Run:
    """One sequence of actions."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.driver = Driver(shape.options, _START)
        self.driver.apply(*shape.objects)
        self.driver.follow()
        self.submitted: dict[int, Submit] = {}
        self.steps: list[Step] = []
        #: How workloads preempt one another without end; None where they do not.
        self.circle: Circle | None = None

    def do(self, action: Action) -> None:
        """Carries an action out and lets the engine decide until it has nothing more to decide."""
        driver = self.driver
        driver.advance(driver.now + 1)
        if isinstance(action, Submit):
            self.submitted[action.number] = action
            self.steps.append(Step(f"{self.title(action.number)} is created"))
            driver.apply(Upsert(self._workload(action)))
        elif self.holds(action.number):
            self.steps.append(Step(f"{self.title(action.number)} finishes"))
            driver.apply(Removed("Workload", _NAMESPACE, _name(action.number)))
            self.submitted.pop(action.number)
        else:
            return
        driver.follow()
        self._settle()

    def _settle(self) -> None:
        seen: dict[frozenset[int], list[int]] = {}
        preempted = False
        for _ in range(_CYCLES_MAX):
            driver = self.driver
            if not driver.engine.has_heads():
                return
            decisions = driver.cycle()
            changes = False
            for each in decisions:
                if isinstance(each, Admit):
                    changes = True
                    self.steps.append(Step(f"{self.title(number_of(each.key))} is admitted"))
                elif isinstance(each, Preempt):
                    changes = preempted = True
                    by = self.title(number_of(each.preemptor))
                    text = f"{self.title(number_of(each.key))} is preempted by {by} ({each.reason})"
                    self.steps.append(Step(text, each.cluster_queue))
            driver.carry_out()
            driver.follow()
            driver.advance(driver.now + 1)
            if changes and preempted:
                sightings = seen.setdefault(frozenset(self.admitted()), [])
                sightings.append(len(self.steps))
                self.circle = self._circle(sightings)
                if self.circle is not None:
                    return

    def _circle(self, sightings: Sequence[int]) -> Circle | None:
        """The circle that brings the same workloads to hold quota after each of these numbers of steps."""
        least, most = _SIGHTINGS
        *_, before, last = (0, 0, *sightings)
        length = last - before
        if len(sightings) >= least and self.steps[before - length : before] == self.steps[before:]:
            return Circle(before - length, before, exact=True)
        if len(sightings) >= most:
            shown = [steps for steps in sightings[1:] if steps <= _STEPS_SHOWN]
            return Circle(sightings[0], max(shown, default=sightings[1]), exact=False)
        return None

    # --- what there is ----------------------------------------------------------------------------------

    def admitted(self) -> list[int]:
        """Numbers of the workloads that hold quota, oldest first."""
        return [number for number in self.submitted if self.holds(number)]

    def pending(self) -> list[int]:
        """Numbers of the workloads without quota, oldest first."""
        return [number for number in self.submitted if not self.holds(number)]

    def holds(self, number: int) -> bool:
        """Whether a workload holds quota."""
        workload = self.driver.workloads.get(key_of(number))
        return workload is not None and workload.condition_is(QUOTA_RESERVED)

    def state(self) -> tuple[tuple[tuple[str, int, int, bool], int], ...]:
        """The workloads by queue, size, priority and whether they hold quota, whichever they are."""
        counts = Counter((*one[1:], self.holds(number)) for number, one in self.submitted.items())
        return tuple(sorted(counts.items()))

    def title(self, number: int) -> str:
        """A workload as people know it: `w3 of research (4 cpu, priority 100)`."""
        one = self.submitted[number]
        text = f"{amount(self.shape.resource, one.units)} {self.shape.resource}"
        if len(self.shape.priorities) > 1:
            text += f", priority {one.priority}"
        return f"{_name(number)} of {one.cluster_queue} ({text})"

    def _workload(self, one: Submit) -> kueue.Workload:
        units = amount(self.shape.resource, one.units)
        return kueue.Workload(
            metadata=ObjectMeta(
                namespace=_NAMESPACE,
                name=_name(one.number),
                uid=f"{one.number:04}",
                creation_timestamp=format_micro_time(self.driver.now),
            ),
            spec=kueue.WorkloadSpec(
                queue_name=one.cluster_queue,
                priority=one.priority,
                pod_sets=[pod_set(PodSet(requests={self.shape.resource: units}), "")],
            ),
        )


def replay(shape: Shape, actions: Iterable[Action]) -> Run:
    """A run of actions, to its end or until its workloads preempt one another in a circle."""
    run = Run(shape)
    for action in actions:
        run.do(action)
        if run.circle is not None:
            break
    return run


def key_of(number: int) -> str:
    """`namespace/name` of a workload of a run."""
    return f"{_NAMESPACE}/{_name(number)}"


def number_of(key: str) -> int:
    """The number of a workload of a run, by its key."""
    return int(key.rpartition("/w")[2])


def _name(number: int) -> str:
    return f"w{number}"


# --- shapes -----------------------------------------------------------------------------------------------


def shapes(policy: Policy, tree: Tree) -> Iterator[Shape]:
    """The models of a tree: one for each resource whose quotas differ from those of resources before."""
    objects = list(_objects(policy, tree))
    driver = Driver(policy.options, _START)
    driver.apply(*objects)
    views = [view for view in driver.engine.nodes() if view.kind == "ClusterQueue"]
    resources = dict.fromkeys(quota.resource for view in views for quota in view.quotas)
    known: set[tuple[object, ...]] = set()
    for resource in sorted(resources, key=_rank):
        if resource == "pods":
            continue
        potential: dict[str, int] = {}
        nominal: dict[str, int] = {}
        for view in views:
            for quota in view.quotas:
                if quota.resource == resource:
                    potential[view.name] = max(potential.get(view.name, 0), quota.potential)
                    nominal[view.name] = max(nominal.get(view.name, 0), quota.nominal)
        capacity = max(potential.values())
        if capacity <= 1 or capacity > 1 << 60:
            continue
        granularity = max(1, capacity // 8)
        alike = tuple(
            (name, round(limit / capacity, 3), round(nominal[name] / capacity, 3))
            for name, limit in potential.items()
        )
        if alike in known:
            continue
        known.add(alike)
        yield Shape(
            tree,
            resource,
            policy.options,
            objects,
            capacity,
            granularity,
            {
                name: _sizes(granularity, nominal[name], limit)
                for name, limit in potential.items()
                if limit > 0
            },
            nominal,
            _priorities(policy, tree),
        )


def _rank(resource: str) -> tuple[bool, str]:
    """Devices first: they are what jobs compete for."""
    return "/" not in resource, resource


def _sizes(granularity: int, nominal: int, limit: int) -> tuple[int, ...]:
    """Requests worth trying: parts of the whole, and just what a queue has and a little more."""
    parts = [granularity * part for part in (1, 2, 3, 4, 5, 6)]
    found = {*parts, nominal, nominal + granularity, limit}
    return tuple(sorted(size for size in found if 0 < size <= limit))


def _objects(policy: Policy, tree: Tree) -> Iterator[Event]:
    yield Upsert(Namespace(metadata=ObjectMeta(name=_NAMESPACE, uid=_NAMESPACE)))
    for flavor in policy.flavors.values():
        yield Upsert(changed(flavor, topology_name=None, node_taints=[], node_labels={}))
    for cohort in policy.cohorts.values():
        yield Upsert(cohort)
    for name in tree.cluster_queues:
        queue = policy.cluster_queues[name]
        plain = changed(
            queue,
            namespace_selector=LabelSelector(),
            admission_checks_strategy=None,
            stop_policy="None",
            admission_scope=None,
            concurrent_admission_policy=None,
        )
        yield Upsert(msgspec.structs.replace(plain, status=kueue.ClusterQueueStatus()))
        yield Upsert(
            kueue.LocalQueue(
                metadata=ObjectMeta(namespace=_NAMESPACE, name=name, uid=f"local {name}"),
                spec=kueue.LocalQueueSpec(cluster_queue=name),
            )
        )


def _priorities(policy: Policy, tree: Tree) -> tuple[int, ...]:
    """Priorities worth trying: two that differ, where a policy of the tree depends on them."""
    policies = [policy.cluster_queues[name].spec.preemption for name in tree.cluster_queues]
    if not any(
        "Lower" in one.reclaim_within_cohort
        or "Lower" in one.within_cluster_queue
        or one.borrow_within_cohort.policy != "Never"
        for one in policies
    ):
        return (0,)
    values = sorted(set(policy.priorities.values()))
    return (values[0], values[-1]) if len(values) > 1 else (0, 100)


def actions_of(actions: Sequence[Action], without: int) -> list[Action]:
    """Actions but one; those about a workload that is not created any more are left out."""
    left = [*actions[:without], *actions[without + 1 :]]
    created = {one.number for one in left if isinstance(one, Submit)}
    return [one for one in left if one.number in created]


def renumbered(actions: Sequence[Action]) -> list[Action]:
    """The same actions; workloads are numbered from 1 in the order of their creation."""
    numbers: dict[int, int] = {}
    for one in actions:
        numbers.setdefault(one.number, len(numbers) + 1)
    return [one._replace(number=numbers[one.number]) for one in actions]
