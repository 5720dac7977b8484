"""Reading a scenario file: strict, every problem in one go, each with its path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from pykueue.api.meta import parse_time
from pykueue.api.yaml import YamlError, load_documents
from pykueue.manager.configuration.decode import Problem, camel, decode, shown
from pykueue.manifests.files import InputError, read_text

from .types import Generator, Intervention, Law, Scenario, Source

VERSION = "pykueue.io/v1alpha1"
KIND = "Scenario"
#: The hours that a profile may have: of a day and of a week.
PROFILES = (24, 168)


class ScenarioError(ValueError):
    """A scenario is not accepted; one line for each problem."""


def load(file: Path) -> Scenario:
    """The scenario in a file. Raises ScenarioError if it is not accepted or cannot be read."""
    try:
        return parse(read_text(file), str(file))
    except InputError as error:
        raise ScenarioError(str(error)) from None


def parse(text: str, source: str = "scenario") -> Scenario:
    """The scenario in a text; see `load`."""
    try:
        documents = load_documents(text, source)
    except (YamlError, yaml.YAMLError) as error:
        raise ScenarioError(str(error)) from None
    if len(documents) != 1:
        raise ScenarioError(f"{source}: has {len(documents)} YAML documents; exactly one is accepted")
    document: dict[str, Any] = dict(documents[0])
    problems: list[Problem] = []
    for name, accepted in (("apiVersion", VERSION), ("kind", KIND)):
        value = document.pop(name, None)
        if value != accepted:
            problems.append(Problem(name, f'{shown(value)} is not accepted; accepted: "{accepted}"'))
    scenario = decode(Scenario, document, problems)
    if scenario is not None:
        wrong = [problem.path for problem in problems]
        # A field with a value that is not accepted is there all the same.
        problems += [
            each
            for each in _broken_rules(scenario)
            if not any(path.startswith((f"{each.path}.", f"{each.path}[")) for path in wrong)
        ]
    if problems or scenario is None:
        raise ScenarioError("\n".join(f"{source}: {problem}" for problem in problems))
    return scenario


def _broken_rules(scenario: Scenario) -> Iterator[Problem]:
    """What the types of the fields do not say."""
    try:
        parse_time(scenario.start)
    except ValueError as error:
        yield Problem("start", str(error))
    if not scenario.seeds:
        yield Problem("seeds", "required")
    yield from _law("runTime", scenario.run_time)
    for number, source in enumerate(scenario.arrivals):
        yield from _source(f"arrivals[{number}]", source)
    names = Counter(variant.name for variant in scenario.variants)
    for number, variant in enumerate(scenario.variants):
        if names[variant.name] > 1:
            yield Problem(f"variants[{number}].name", f"{shown(variant.name)} is the name of two variants")
    yield from _interventions("", scenario.interventions)
    for number, variant in enumerate(scenario.variants):
        yield from _interventions(f"variants[{number}].", variant.interventions)
    for number, assertion in enumerate(scenario.assertions):
        where = f"assertions[{number}]"
        if assertion.at_most is None and assertion.at_least is None and assertion.equals is None:
            yield Problem(where, "one of atMost, atLeast and equals is required")
        if assertion.variant and assertion.variant not in names:
            accepted = ", ".join(names) or "none: the scenario has no variants"
            yield Problem(
                f"{where}.variant", f"{shown(assertion.variant)} is not accepted; accepted: {accepted}"
            )


def _interventions(path: str, interventions: Iterable[Intervention]) -> Iterator[Problem]:
    for number, one in enumerate(interventions):
        if one.nodes is None:
            continue
        where = f"{path}interventions[{number}].nodes"
        chosen = {field.name: getattr(one.nodes, field.name) for field in fields(one.nodes)}
        if not any(chosen.values()):
            yield Problem(where, f"one of {', '.join(chosen)} is required")
        for name, selection in chosen.items():
            if selection is not None and not selection.names and not selection.labels:
                yield Problem(f"{where}.{name}", "one of names and labels is required")


def _source(path: str, source: Source) -> Iterator[Problem]:
    chosen = [field.name for field in fields(source) if getattr(source, field.name)]
    if len(chosen) != 1:
        accepted = ", ".join(camel(field.name) for field in fields(source))
        yield Problem(path, f"exactly one of {accepted} is required")
    if source.manifests is not None and source.manifests.run_time is not None:
        yield from _law(f"{path}.manifests.runTime", source.manifests.run_time)
    if source.trace is not None:
        yield from _law(f"{path}.trace.runTime", source.trace.run_time)
    if source.generator is not None:
        yield from _generator(f"{path}.generator", source.generator)


def _generator(path: str, generator: Generator) -> Iterator[Problem]:
    given = [
        name
        for name, value in (
            ("every", generator.every),
            ("perHour", generator.per_hour),
            ("users", generator.users),
        )
        if value is not None
    ]
    if len(given) != 1:
        yield Problem(path, "exactly one of every, perHour and users is required")
    if generator.profile and len(generator.profile) not in PROFILES:
        accepted = " or ".join(map(str, PROFILES))
        yield Problem(f"{path}.profile", f"{len(generator.profile)} numbers; accepted: {accepted}")
    if generator.profile and not any(generator.profile):
        yield Problem(f"{path}.profile", "all numbers are 0; accepted: at least one above 0")
    if generator.profile and generator.per_hour is None:
        yield Problem(f"{path}.profile", "applies to perHour only")
    if generator.every == 0 and generator.count is None:
        yield Problem(f"{path}.count", "required where every is 0s")
    if generator.count is None and generator.end is None:
        yield Problem(path, "one of count and end is required")
    if generator.think_time is not None:
        yield from _law(f"{path}.thinkTime", generator.think_time)
    if not generator.jobs or not sum(one.weight for one in generator.jobs):
        yield Problem(f"{path}.jobs", "at least one class with a weight above 0 is required")
    for number, one in enumerate(generator.jobs):
        where = f"{path}.jobs[{number}]"
        yield from _law(f"{where}.runTime", one.run_time)
        if one.queue.count("/") != 1 or not all(one.queue.split("/")):
            yield Problem(f"{where}.queue", f'{shown(one.queue)} is not accepted; accepted: "namespace/name"')
        if not one.pod_sets:
            yield Problem(f"{where}.podSets", "at least one pod set is required")


def _law(path: str, law: Law) -> Iterator[Problem]:
    chosen: Iterable[str] = [field.name for field in fields(law) if getattr(law, field.name) is not None]
    if len(list(chosen)) != 1:
        accepted = ", ".join(camel(field.name) for field in fields(law))
        yield Problem(path, f"exactly one of {accepted} is required")
    if law.uniform is not None and law.uniform.minimum > law.uniform.maximum:
        yield Problem(f"{path}.uniform", "minimum is above maximum")
