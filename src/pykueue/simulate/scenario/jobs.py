"""The jobs of a scenario in the order of their arrival, each with all that chance decides about it."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, count
from random import Random
from typing import Any, NamedTuple

from pykueue.api import kueue
from pykueue.api.hybrid import count_problem, parse_request
from pykueue.api.kueue.names import HYBRID_ASSIGNMENT_ANNOTATION
from pykueue.api.meta import ObjectMeta
from pykueue.api.preemption_policies import MIN_ADMIT_DURATION_ANNOTATION
from pykueue.api.quantity import QuantityError, parse

from .laws import Draw, draw_of
from .reading import ScenarioError
from .types import Generator, JobClass, PodSet

HOUR = 3600.0


class Written(NamedTuple):
    """When an admission was written, in seconds from the decision."""

    stamp: float
    """The time in its conditions."""
    seen: float
    """When the engine saw it; until then it counts with the time of the decision."""


@dataclass(slots=True)
class Recorded:
    """How long what happened to a recorded job took outside of decisions."""

    writes: list[Written] = field(default_factory=list)
    """Of each admission."""
    interrupted: list[float] = field(default_factory=list)
    """Seconds from each admission that was followed by a preemption to that: it had not come to its end."""
    evictions: list[float | None] = field(default_factory=list)
    """Seconds from each preemption to the release of its quota; None where it came to its end before."""


@dataclass(slots=True)
class Job:
    """One job to come."""

    at: float
    """Seconds from the start of the simulation."""
    namespace: str
    name: str
    job_class: str
    spec: kueue.WorkloadSpec
    run_time: float
    """Seconds it runs, from running pods to its end, when nothing interrupts it."""
    fails: bool = False
    """Its end is a failure."""
    checkpoint_every: float | None = None
    """Seconds of run time."""
    metadata: ObjectMeta | None = None
    """Of a recorded job: its uid and time of creation order it among others."""
    leaves_at: float | None = None
    """When it is deleted if it is pending then, in seconds from the start of the simulation."""
    recorded: Recorded | None = None
    over: Callable[[float, bool], Job | None] | None = None
    """The job that follows when this one is over, by the time and whether it failed."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the Workload, where `metadata` is not recorded."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """The same."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class Priorities:
    """The WorkloadPriorityClasses of a scenario."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self._values = dict(values)

    def of(self, name: str, where: str) -> int:
        """The value of a class. Raises ScenarioError that names where it was asked for."""
        if name not in self._values:
            accepted = ", ".join(sorted(self._values)) or "none: no WorkloadPriorityClass among the manifests"
            raise ScenarioError(f'{where}: "{name}" is not accepted; accepted: {accepted}')
        return self._values[name]


def pod_set(one: PodSet, where: str) -> kueue.PodSet:
    """A pod set of a Workload. Raises ScenarioError for requests that are not accepted."""
    requests: dict[str, str] = {}
    for resource, value in one.requests.items():
        try:
            requests[resource] = str(parse(value))
        except QuantityError as error:
            raise ScenarioError(f"{where}.requests.{resource}: {error}") from None
    container = {"name": "main", "image": "simulated", "resources": {"requests": requests}}
    topology = None
    if one.topology is not None:
        topology = kueue.PodSetTopologyRequest(
            required=one.topology.required or None,
            preferred=one.topology.preferred or None,
            unconstrained=one.topology.unconstrained or None,
            pod_set_slice_required_topology=one.topology.slice_required or None,
            pod_set_slice_size=one.topology.slice_size,
        )
    template: dict[str, Any] = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    if one.hybrid:
        text = json.dumps(one.hybrid)
        try:
            problem = count_problem(parse_request(text), one.count)
        except ValueError as error:
            problem = str(error)
        if problem:
            raise ScenarioError(f"{where}.hybrid: {problem}")
        template["metadata"] = {"annotations": {HYBRID_ASSIGNMENT_ANNOTATION: text}}
    return kueue.PodSet(
        name=one.name,
        count=one.count,
        min_count=one.min_count,
        template=template,
        topology_request=topology,
    )


class _Class:
    """Makes the jobs of one class."""

    def __init__(self, one: JobClass, where: str, random: Random, priorities: Priorities) -> None:
        self.weight = one.weight
        self._one = one
        self._random = random
        self._namespace, _, queue = one.queue.partition("/")
        reference = None
        priority = one.priority
        if one.priority_class:
            priority = priorities.of(one.priority_class, f"{where}.priorityClass")
            reference = kueue.PriorityClassRef(
                group="kueue.x-k8s.io", kind="WorkloadPriorityClass", name=one.priority_class
            )
        asked = one.min_admit_duration
        self._annotations = {} if asked is None else {MIN_ADMIT_DURATION_ANNOTATION: f"{round(asked)}s"}
        limit = None if one.limit is None else max(1, round(one.limit))
        sets = [pod_set(each, f"{where}.podSets[{number}]") for number, each in enumerate(one.pod_sets)]
        self._spec = kueue.WorkloadSpec(
            queue_name=queue,
            priority=priority,
            priority_class_ref=reference,
            pod_sets=sets,
            maximum_execution_time_seconds=limit,
        )
        try:
            self._run_time: Draw = draw_of(one.run_time, random, declared=limit)
        except ValueError as error:
            raise ScenarioError(f"{where}.runTime: {error}") from None

    def job(self, at: float, name: str) -> Job:
        one = self._one
        run_time = self._run_time()
        fails = False
        if one.failure_probability and self._random.random() < one.failure_probability:
            fails = True
            run_time *= self._random.random()
        return Job(
            at,
            self._namespace,
            name,
            one.name,
            self._spec,
            run_time,
            fails,
            one.checkpoint_every,
            labels=one.labels,
            annotations=self._annotations,
        )


class Generated:
    """The jobs of a generator."""

    def __init__(
        self,
        generator: Generator,
        name: str,
        where: str,
        random: Random,
        priorities: Priorities,
        start: float,
    ) -> None:
        """`name` begins the names of its jobs; `start` is that of the simulation, in seconds since 1970."""
        self._generator = generator
        self._name = name
        self._random = random
        self._classes = [
            _Class(one, f"{where}.jobs[{number}]", random, priorities)
            for number, one in enumerate(generator.jobs)
        ]
        self._weights = list(accumulate(one.weight for one in self._classes))
        self._numbers = count()
        self._start = start
        self._think: Draw = lambda: 0.0
        if generator.think_time is not None:
            try:
                self._think = draw_of(generator.think_time, random)
            except ValueError as error:
                raise ScenarioError(f"{where}.thinkTime: {error}") from None

    def jobs(self) -> Iterator[Job]:
        """In the order of their arrival; those that follow a user's earlier job are not among them."""
        generator = self._generator
        if generator.users is not None:
            first = [self._next(generator.start + self._think()) for _ in range(generator.users)]
            found = (job for job in first if job is not None)
            yield from sorted(found, key=lambda job: job.at)
            return
        times = self._at_times() if generator.every is not None else self._poisson()
        for at in times:
            job = self._next(at)
            if job is None:
                return
            yield job

    def _at_times(self) -> Iterator[float]:
        every = self._generator.every or 0.0
        return (self._generator.start + number * every for number in count())

    def _poisson(self) -> Iterator[float]:
        """By thinning: candidates at the highest rate, each kept in proportion to the rate of its hour."""
        generator, random = self._generator, self._random
        profile = generator.profile or (1.0,)
        mean = sum(profile) / len(profile)
        rate = (generator.per_hour or 0.0) / HOUR
        highest = rate * max(profile) / mean
        # 1970-01-01 was a Thursday.
        offset = self._start + (3 * 24 * HOUR if len(profile) > 24 else 0.0)
        at = generator.start
        while highest > 0:
            at += random.expovariate(highest)
            busy = profile[int((offset + at) // HOUR) % len(profile)]
            if len(profile) == 1 or random.random() * max(profile) < busy:
                yield at

    def _next(self, at: float, chosen: _Class | None = None) -> Job | None:
        """A job at that time, of that class or of one drawn; None where the generator has come to its end."""
        generator = self._generator
        number = next(self._numbers)
        if (generator.count is not None and number >= generator.count) or (
            generator.end is not None and at >= generator.end
        ):
            return None
        if chosen is None:
            chosen = self._classes[0]
            if len(self._classes) > 1:
                draw = self._random.random() * self._weights[-1]
                chosen = self._classes[bisect_right(self._weights, draw)]
        job = chosen.job(at, f"{self._name}-{number}")
        if generator.users is not None or generator.resubmit_failed:
            job.over = partial(self._over, chosen)
        return job

    def _over(self, chosen: _Class, now: float, failed: bool) -> Job | None:
        """What follows a job of that class."""
        if failed and self._generator.resubmit_failed:
            return self._next(now, chosen)
        return self._next(now + self._think()) if self._generator.users is not None else None
