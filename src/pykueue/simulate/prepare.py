"""From a scenario to the plan of each run: files are read once, patches applied, jobs put in order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

from pykueue.api import kueue
from pykueue.api.decoding import DecodeError, describe
from pykueue.api.meta import format_time, parse_time
from pykueue.api.objects import Object
from pykueue.api.similar import did_you_mean
from pykueue.embedded.objects.patch import merge_patch
from pykueue.engine import Options, Removed, Upsert
from pykueue.engine.events import Event
from pykueue.manager.configuration import Configuration, ConfigurationError
from pykueue.manager.configuration import parse as parse_configuration
from pykueue.manager.configuration.decode import camel
from pykueue.manager.configuration.loading import CURRENT
from pykueue.manager.scheduler.engine_options import engine_options
from pykueue.manifests.files import SUFFIXES, InputError
from pykueue.manifests.namespaces import missing_namespaces
from pykueue.manifests.reading import Source as Files
from pykueue.manifests.reading import read
from pykueue.simulate.changes import Identity, decoded, manifest_identity
from pykueue.simulate.figures import DETAILED
from pykueue.simulate.outages import Hosts, intervene
from pykueue.simulate.plan import ObjectChange, Outside, Plan, Present
from pykueue.simulate.recorded.history import History, of_objects, of_recording
from pykueue.simulate.recorded.reading import RecordingError
from pykueue.simulate.scenario.jobs import Generated, Job, Priorities
from pykueue.simulate.scenario.kueue_generator import KueueGenerator
from pykueue.simulate.scenario.laws import draw_of
from pykueue.simulate.scenario.reading import ScenarioError
from pykueue.simulate.scenario.types import (
    Generator,
    Intervention,
    Latencies,
    Law,
    Manifests,
    Patch,
    Scenario,
    Trace,
    Variant,
)
from pykueue.simulate.traces.jobs import TraceJobs
from pykueue.simulate.writes import Limit

#: Label of a job that names its class in reports.
JOB_CLASS_LABEL = "pykueue.io/job-class"

#: The variant of a scenario that names none.
BASELINE = Variant("baseline")


@dataclass
class Prepared:
    """A scenario with everything it names read; what a run needs can be sent to another process."""

    scenario: Scenario
    folder: Path
    """File names of the scenario are relative to it."""
    objects: dict[Identity, Object] = field(default_factory=dict)
    workloads: dict[int, list[Object]] = field(default_factory=dict)
    """Of sources that are manifests, by the number of the source."""
    generators: dict[int, KueueGenerator] = field(default_factory=dict)
    local_queues: set[str] = field(default_factory=set)
    """Those that exist in some variant at some time, as `namespace/name`."""
    detail: bool = False
    """Runs record what reports need beyond figures: sizes, shares, and the timeline of the first seed."""
    history: History | None = None
    """What is recorded, where the scenario names a recording."""

    @property
    def variants(self) -> tuple[Variant, ...]:
        return self.scenario.variants or (BASELINE,)


def prepare(scenario: Scenario, folder: Path) -> Prepared:
    """Reads the files of a scenario. Raises ScenarioError naming file and field of what is wrong."""
    detail = any(assertion.metric in DETAILED for assertion in scenario.assertions)
    prepared = Prepared(scenario, folder, detail=detail)
    if scenario.recording:
        history = prepared.history = _history(folder / scenario.recording)
        prepared.objects |= history.objects
        horizon = scenario.horizon
        if horizon is None and history.end > history.start:
            horizon = history.end - history.start
        start = format_time(int(history.start))
        prepared.scenario = scenario = replace(scenario, start=start, horizon=horizon)
    for manifest in _manifests(prepared, scenario.manifests, {}, "manifests"):
        prepared.objects[manifest_identity(manifest)] = manifest
    for number, source in enumerate(scenario.arrivals):
        where = f"arrivals[{number}]"
        if source.manifests is not None:
            files = (*scenario.manifests, *source.manifests.files)
            found = _manifests(prepared, files, scenario.configuration, f"{where}.manifests.files")
            prepared.workloads[number] = [one for one in found if one["kind"] == "Workload"]
        elif source.kueue_generator:
            generator = KueueGenerator(folder / source.kueue_generator, f"{where}.kueueGenerator")
            prepared.generators[number] = generator
            for manifest in generator.objects():
                prepared.objects[manifest_identity(manifest)] = manifest
    # What is wrong with a variant is found before anything runs.
    plans = [plan(prepared, variant, scenario.seeds[0]) for variant in prepared.variants]
    prepared.local_queues = _check_queues(scenario, plans)
    _check_nodes(scenario, plans)
    return prepared


def _history(path: Path) -> History:
    """What is recorded in a dump or by a flight recorder. Raises ScenarioError."""
    try:
        if path.suffix in SUFFIXES:
            return of_objects([each for _, each in Files([path]).documents])
        return of_recording(path)
    except (InputError, RecordingError, DecodeError) as error:
        raise ScenarioError(f"recording: {path.name}: {error}") from None
    except OSError as error:
        raise ScenarioError(f"recording: {path.name}: {error.strerror}") from None


def plan(prepared: Prepared, variant: Variant, seed: int) -> Plan:
    """What one run depends on. Raises ScenarioError."""
    scenario = prepared.scenario
    start = parse_time(scenario.start)
    options = _options(prepared, merge_patch(scenario.configuration, variant.configuration))
    objects = dict(prepared.objects)
    where = f'variant "{variant.name}"'
    changed = set()
    for manifest in _manifests(prepared, variant.apply, {}, where):
        objects[manifest_identity(manifest)] = manifest
        changed.add(manifest_identity(manifest))
    changed.update(_patch(objects, variant.patches, where))
    classes = {
        manifest["metadata"]["name"]: int(manifest.get("value", 0))
        for manifest in objects.values()
        if manifest["kind"] == "WorkloadPriorityClass"
    }
    interventions = sorted((*scenario.interventions, *variant.interventions), key=lambda one: one.at)
    latencies = variant.latencies or scenario.latencies
    jobs = list(_sources(prepared, seed, start, Priorities(classes)))
    present = [_decoded(manifest) for manifest in objects.values() if manifest["kind"] != "Workload"]
    named = {namespace for _, namespace, _ in objects}
    hosts = Hosts(objects.values())
    changes = []
    for number, one in enumerate(interventions):
        changes.append(_change(prepared, one, objects, hosts, f"interventions[{number}]"))
    named |= {namespace for _, namespace, _ in objects}  # of the objects that interventions apply too
    workloads: list[Present] = []
    if (history := prepared.history) is not None:
        jobs.append(iter(history.jobs))
        workloads = history.present
        # What a variant changes stays as it changes it.
        changes = sorted([*changes, *history.changes_but(changed)], key=lambda one: one.at)
    return Plan(
        options=options,
        objects=[*map(Upsert, missing_namespaces(present, sorted(named))), *map(Upsert, present)],
        jobs=merge(*jobs, key=lambda job: job.at),
        start=start,
        present=workloads,
        changes=changes,
        outside=(
            history.outside()
            if history is not None and latencies == Latencies()
            else _outside(latencies, Random(f"{seed} latencies"))
        ),
        horizon=scenario.horizon,
        warm_up=scenario.warm_up,
        interval=max(1e-3, (scenario.horizon or _lengths(scenario)) / scenario.samples),
        whole_seconds=history is not None,
        detail=prepared.detail,
        timeline=prepared.detail and seed == scenario.seeds[0],
    )


def _check_queues(scenario: Scenario, plans: Iterable[Plan]) -> set[str]:
    """The LocalQueues that exist in some variant at some time; raises ScenarioError for jobs of another."""
    events = (
        event for one in plans for event in chain(one.objects, *(change.events for change in one.changes))
    )
    known = {
        event.obj.metadata.key
        for event in events
        if isinstance(event, Upsert) and isinstance(event.obj, kueue.LocalQueue)
    }
    problems = [
        f"arrivals[{number}].generator.jobs[{index}].queue: "
        f"LocalQueue {made.queue} is not among the manifests{did_you_mean(made.queue, known)}"
        for number, source in enumerate(scenario.arrivals)
        for index, made in enumerate(source.generator.jobs if source.generator is not None else ())
        if made.queue not in known
    ]
    if problems:
        raise ScenarioError("\n".join(problems))
    return known


def _check_nodes(scenario: Scenario, plans: Iterable[Plan]) -> None:
    """Raises ScenarioError for interventions in nodes that have no effect in any variant."""
    paths = [f"interventions[{number}]" for number, one in enumerate(scenario.interventions) if one.nodes]
    for index, variant in enumerate(scenario.variants):
        changes = enumerate(variant.interventions)
        paths += [f"variants[{index}].interventions[{number}]" for number, one in changes if one.nodes]
    if not paths or any(map(_has_topology, plans)):
        return
    raise ScenarioError(
        f"{paths[0]}.nodes: no flavor has a topology, and quota alone does not say where pods are; "
        "patch the nominalQuota instead"
    )


def _has_topology(plan: Plan) -> bool:
    events = chain(plan.objects, *(change.events for change in plan.changes))
    return any(
        isinstance(each, Upsert)
        and isinstance(each.obj, kueue.ResourceFlavor)
        and each.obj.spec.topology_name
        for each in events
    )


def _lengths(scenario: Scenario) -> float:
    """A guess of how long a scenario without a horizon takes: intervals of series are a part of it."""
    times = [one.at for one in scenario.interventions]
    for source in scenario.arrivals:
        generator = source.generator
        if generator is not None and generator.end is not None:
            times.append(generator.end)
        elif generator is not None and generator.count is not None and generator.every:
            times.append(generator.start + generator.count * generator.every)
    return max(times, default=0.0) or 24 * 3600.0


# --- objects ----------------------------------------------------------------------------------------------


def _options(prepared: Prepared, document: Mapping[str, Any]) -> Options:
    """The options of the configuration; those of the recording where there is none."""
    history = prepared.history
    if not document and history is not None and history.options is not None:
        return history.options
    return engine_options(_configuration(document))


def _configuration(document: Mapping[str, Any]) -> Configuration:
    text = json.dumps({"apiVersion": CURRENT, "kind": "Configuration", **document})
    try:
        return parse_configuration(text)
    except ConfigurationError as error:
        raise ScenarioError("\n".join(f"configuration: {one}" for one in error.problems)) from None


def _manifests(
    prepared: Prepared, files: Iterable[str], configuration: Mapping[str, Any], where: str
) -> list[Object]:
    """The objects in files; jobs among them are Workloads."""
    paths = [prepared.folder / name for name in files]
    if not paths:
        return []
    try:
        return read(Files(paths), _configuration(configuration)).manifests
    except InputError as error:
        raise ScenarioError("\n".join(f"{where}: {line}" for line in str(error).splitlines())) from None


def _decoded(manifest: Object) -> Any:
    try:
        return decoded([manifest])[0]
    except DecodeError as error:
        raise ScenarioError(str(error)) from None


def _patch(objects: dict[Identity, Object], patches: Iterable[Patch], where: str) -> list[Identity]:
    """Patches objects; which ones."""
    found = []
    for number, one in enumerate(patches):
        identity = (one.kind, one.namespace, one.name)
        if identity not in objects:
            title = f"{one.namespace}/{one.name}" if one.namespace else one.name
            raise ScenarioError(f"{where}: patches[{number}]: {one.kind} {title} is not among the manifests")
        objects[identity] = merge_patch(objects[identity], one.patch)
        found.append(identity)
    return found


def _change(
    prepared: Prepared, one: Intervention, objects: dict[Identity, Object], hosts: Hosts, where: str
) -> ObjectChange:
    """What an intervention does to the objects and hosts as those before it left them."""
    changed = []
    for manifest in _manifests(prepared, one.apply, {}, f"{where}.apply"):
        objects[manifest_identity(manifest)] = manifest
        changed.append(manifest_identity(manifest))
    changed += _patch(objects, one.patches, where)
    drained: frozenset[str] = frozenset()
    if one.nodes is not None:
        nodes, drained = intervene(objects, one.nodes, f"{where}.nodes")
        changed += nodes
    events: list[Event] = [Upsert(_decoded(objects[identity])) for identity in dict.fromkeys(changed)]
    for number, name in enumerate(one.delete):
        identity = (name.kind, name.namespace, name.name)
        if objects.pop(identity, None) is None:
            title = f"{name.namespace}/{name.name}" if name.namespace else name.name
            raise ScenarioError(f"{where}.delete[{number}]: {name.kind} {title} is not among the manifests")
        events.append(Removed(*identity))
    return hosts.change(one.at, events, objects.values(), drained)


# --- jobs -------------------------------------------------------------------------------------------------


def _sources(prepared: Prepared, seed: int, start: float, priorities: Priorities) -> Iterator[Iterator[Job]]:
    """The jobs of each source. The same seed gives the same jobs in every variant."""
    scenario = prepared.scenario
    for number, source in enumerate(scenario.arrivals):
        random = Random(f"{seed} arrivals {number}")
        where = f"arrivals[{number}]"
        match source.manifests, source.generator, source.trace:
            case Manifests() as manifests, _, _:
                law = manifests.run_time or scenario.run_time
                yield iter(_written(prepared.workloads[number], manifests.at, law, random, where))
            case _, Generator() as generator, _:
                made = Generated(generator, f"g{number}", f"{where}.generator", random, priorities, start)
                yield made.jobs()
            case _, _, Trace() as trace:
                yield TraceJobs(
                    trace, prepared.folder, f"{where}.trace", f"t{number}", random, prepared.local_queues
                ).jobs()
            case _:
                yield prepared.generators[number].jobs()


def _written(manifests: Iterable[Object], at: float, law: Law, random: Random, where: str) -> Iterator[Job]:
    """Workloads of files."""
    for manifest in manifests:
        workload: kueue.Workload = _decoded(manifest)
        limit = workload.spec.maximum_execution_time_seconds
        try:
            draw = draw_of(law, random, declared=limit)
        except ValueError as error:
            raise ScenarioError(f"{where}: {describe(manifest)}: {error}") from None
        metadata = workload.metadata
        labels = metadata.labels or {}
        job_class = labels.get(JOB_CLASS_LABEL, "manifests")
        yield Job(at, metadata.namespace, metadata.name, job_class, workload.spec, draw())


def _outside(latencies: Latencies, random: Random) -> Outside:
    draws: dict[str, Any] = {}
    for name in ("pod_start", "checks", "eviction", "node_failure"):
        law: Law | None = getattr(latencies, name)
        if law is not None:
            try:
                draws[name] = draw_of(law, random)
            except ValueError as error:
                raise ScenarioError(f"latencies.{camel(name)}: {error}") from None
    limit = None
    if latencies.requests_per_second:
        limit = Limit(
            latencies.requests_per_second,
            latencies.request_burst,
            latencies.requests_per_admission,
            latencies.requests_per_preemption,
            latencies.requests_per_pending,
            latencies.cycles_wait_for_writes,
        )
    return Outside(**draws, cycle=latencies.cycle, limit=limit)
