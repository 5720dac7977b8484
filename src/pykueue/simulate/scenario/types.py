"""A scenario file's sections as values.

Every field is spelt as in the file with underscores instead of capitals. Times are seconds from the start of
the simulation, durations are seconds. What each field means to a user: docs/use/simulate.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pykueue.manager.configuration.decode import Bounds, Duration, Figure, Raw

Span = Annotated[float, Duration(minimum=0.0, days=True)]
Positive = Annotated[float, Duration(above=0.0, days=True)]
Count = Annotated[int, Bounds(1, None)]
Share = Annotated[float, Bounds(0, 1)]
Number = Annotated[float, Bounds(0, None)]


@dataclass(frozen=True)
class Exponential:
    """A shifted exponential law: `minimum` plus an exponential tail with mean `tail_mean`."""

    tail_mean: Positive
    minimum: Span = 0.0


@dataclass(frozen=True)
class LogNormal:
    """A log-normal law by its median and the standard deviation of its logarithm."""

    median: Positive
    sigma: Number


@dataclass(frozen=True)
class Uniform:
    """Every value between two bounds is as likely as any other."""

    minimum: Span
    maximum: Positive


@dataclass(frozen=True)
class Law:
    """A duration drawn for each job; exactly one field is set."""

    fixed: Span | None = None
    exponential: Exponential | None = None
    log_normal: LogNormal | None = None
    uniform: Uniform | None = None
    recorded: Number | None = None
    """The run time that a trace recorded, times this factor."""
    declared: Share | None = None
    """The maximum execution time of the Workload, times this factor."""


@dataclass(frozen=True)
class Topology:
    """Where the pods of a pod set must stand relative to each other, as in a Workload."""

    required: str = ""
    preferred: str = ""
    unconstrained: bool = False
    slice_required: str = ""
    slice_size: Count | None = None


@dataclass(frozen=True)
class PodSet:
    """Pods that are alike."""

    requests: Annotated[dict[str, Any], Raw("a map of quantities by resource")]
    """Of each pod."""
    name: str = "main"
    count: Count = 1
    min_count: Count | None = None
    topology: Topology | None = None
    hybrid: Annotated[dict[str, Any], Raw("a request for several flavors")] = field(default_factory=dict)
    """The value of the annotation pykueue.io/hybrid-assignment; empty: one flavor."""


@dataclass(frozen=True)
class JobClass:
    """Jobs that are alike."""

    name: str
    """The class, by which reports group."""
    queue: str
    """`namespace/name` of a LocalQueue."""
    pod_sets: tuple[PodSet, ...]
    run_time: Law
    priority: int = 0
    priority_class: str = ""
    """A WorkloadPriorityClass; its value replaces `priority`."""
    limit: Positive | None = None
    """Maximum execution time that the job declares; it is stopped for good when it runs as long."""
    checkpoint_every: Positive | None = None
    """An evicted job goes on from the last of these; without it, from its beginning."""
    min_admit_duration: Positive | None = None
    """Minimum run time that the job requests of a PreemptionPolicy, by an annotation."""
    failure_probability: Share = 0.0
    """The job fails, at a moment of its run time at which any other is as likely."""
    weight: Number = 1.0
    """How often this class is drawn, relative to the others of the generator."""
    labels: dict[str, str] = field(default_factory=dict)
    """Labels of the Workload, for Budgets that select by label."""


@dataclass(frozen=True)
class Generator:
    """Jobs made by rule. One of `every`, `per_hour` and `users` says when."""

    jobs: tuple[JobClass, ...]
    start: Span = 0.0
    end: Positive | None = None
    count: Count | None = None
    every: Span | None = None
    """The same time between two jobs."""
    per_hour: Number | None = None
    """A Poisson process with so many jobs an hour, on average over `profile`."""
    profile: tuple[Number, ...] = ()
    """How busy each hour is, relative to the others: 24 for a day, 168 for a week that begins on Monday."""
    users: Count | None = None
    """Users who submit a job, wait until it is over, think, and submit the next."""
    think_time: Law | None = None
    resubmit_failed: bool = False
    """A job that failed is submitted again at once."""


@dataclass(frozen=True)
class Trace:
    """Recorded jobs."""

    file: str
    format: Literal["acme", "alibaba2020", "alibaba2023", "alibaba2026", "helios", "philly", "swf"]
    queue: str = "{queue}"
    """`namespace/name` of the LocalQueue; `{queue}`, `{user}`, `{group}`, `{cluster}` stand for what was
    recorded."""
    job_class: str = "{class}"
    run_time: Law = field(default_factory=lambda: Law(recorded=1.0))
    scale: Number = 1.0
    """How many of the jobs are taken: 0.1 takes every tenth, 2 takes each twice."""
    speed: Number = 1.0
    """By which factor jobs arrive faster than recorded."""
    jobs_max: Count | None = None
    time_zone: str = "UTC"
    """Of times that the trace writes without one."""
    gpu: str = "nvidia.com/gpu"
    """Resource that stands for the accelerators of the trace."""
    priorities: dict[str, int] = field(default_factory=dict)
    """Priority by class."""


@dataclass(frozen=True)
class Manifests:
    """Jobs and Workloads in files."""

    files: tuple[str, ...]
    at: Span = 0.0
    run_time: Law | None = None
    """Without it, that of the scenario."""


@dataclass(frozen=True)
class Source:
    """Where jobs come from; exactly one field is set."""

    manifests: Manifests | None = None
    generator: Generator | None = None
    kueue_generator: str = ""
    """A file of Kueue's performance generator; it brings its queues with it."""
    trace: Trace | None = None


@dataclass(frozen=True)
class Latencies:
    """How long what happens outside the decisions takes."""

    pod_start: Law | None = None
    """From admission to running pods."""
    eviction: Law | None = None
    """From an eviction to the release of its quota."""
    checks: Law | None = None
    """From a reservation to the answer of each admission check, which is Ready."""
    node_failure: Law | None = None
    """From the failure of a node until it is noticed and its pods are gone."""
    cycle: Span = 0.0
    """Of one scheduling cycle."""
    requests_per_second: Number | None = None
    """Limit of the manager's client; admissions and preemptions take effect when they are written."""
    request_burst: Number = 0.0
    """Requests that the client makes at once after it was idle."""
    requests_per_admission: Number = 1.0
    requests_per_preemption: Number = 1.0
    requests_per_pending: Number = 1.0
    """For each new reason why a workload waits, where cycles wait for writes."""
    cycles_wait_for_writes: bool = False
    """A cycle ends when its preemptions are written, and why workloads wait, as Kueue's do."""


@dataclass(frozen=True)
class Patch:
    """A JSON merge patch of one object."""

    kind: str
    name: str
    patch: Annotated[dict[str, Any], Raw("a JSON merge patch")]
    namespace: str = ""


@dataclass(frozen=True)
class ObjectName:
    """One object."""

    kind: str
    name: str
    namespace: str = ""


@dataclass(frozen=True)
class NodeSelection:
    """Nodes by their names, by their labels, or those that have one of the names and all of the labels."""

    names: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeInterventions:
    """What happens to nodes."""

    fail: NodeSelection | None = None
    """They are not ready any more, and what runs on them stops."""
    drain: NodeSelection | None = None
    """They are cordoned, and what runs on them is evicted."""
    restore: NodeSelection | None = None
    """They are ready and schedulable again."""


@dataclass(frozen=True)
class Intervention:
    """What is changed at a time."""

    at: Span
    apply: tuple[str, ...] = ()
    """Files of manifests that are added or take the place of the same objects."""
    patches: tuple[Patch, ...] = ()
    delete: tuple[ObjectName, ...] = ()
    nodes: NodeInterventions | None = None


@dataclass(frozen=True)
class Variant:
    """One way to run the scenario."""

    name: str
    configuration: Annotated[dict[str, Any], Raw("a JSON merge patch of the configuration")] = field(
        default_factory=dict
    )
    apply: tuple[str, ...] = ()
    patches: tuple[Patch, ...] = ()
    latencies: Latencies | None = None
    interventions: tuple[Intervention, ...] = ()
    """In addition to those of the scenario."""


@dataclass(frozen=True)
class Where:
    """Which workloads or usage an assertion is about; an empty field is about all."""

    cluster_queue: str = ""
    job_class: str = ""
    flavor: str = ""
    resource: str = ""


@dataclass(frozen=True)
class Assertion:
    """A bound that every seed of a variant must keep."""

    metric: str
    where: Where = field(default_factory=Where)
    variant: str = ""
    """Empty: every variant."""
    at_most: Annotated[float, Figure()] | None = None
    at_least: Annotated[float, Figure()] | None = None
    equals: Annotated[float, Figure()] | None = None


@dataclass(frozen=True)
class Scenario:
    """The whole file."""

    name: str
    manifests: tuple[str, ...] = ()
    """Files and directories with queues, flavors, priority classes, nodes: what is there at the start."""
    recording: str = ""
    """Directory of a flight recorder, one of its files, or a dump: its objects are there at the start, jobs
    arrive and objects change as recorded, from its beginning to its end."""
    configuration: Annotated[dict[str, Any], Raw("a configuration of the manager")] = field(
        default_factory=dict
    )
    """Empty: that of the recording, if there is one."""
    arrivals: tuple[Source, ...] = ()
    run_time: Law = field(default_factory=lambda: Law(declared=1.0))
    """Of Workloads that say nothing else."""
    start: str = "2026-01-05T00:00:00Z"
    horizon: Positive | None = None
    """Without it, the run ends when nothing more can happen."""
    warm_up: Span = 0.0
    """Jobs that arrive before it are simulated and not reported."""
    seeds: tuple[int, ...] = (0,)
    latencies: Latencies = field(default_factory=Latencies)
    interventions: tuple[Intervention, ...] = ()
    variants: tuple[Variant, ...] = ()
    """Without any, the scenario as it stands, as `baseline`. The others are compared with the first."""
    assertions: tuple[Assertion, ...] = ()
    samples: Annotated[int, Bounds(2, 10_000)] = 200
    """Points of each series over time."""
