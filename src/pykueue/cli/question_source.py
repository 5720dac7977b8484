"""Where the questions about queues are answered: manifests, or a live cluster that is only read."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
import yaml

from pykueue.api import DecodeError, kueue
from pykueue.api.objects import Object
from pykueue.api.resources import Resource
from pykueue.cli.connection import ask
from pykueue.cli.options import SourceOptions
from pykueue.cli.schedule_run import Run, options_with
from pykueue.clock import Clock
from pykueue.engine import Engine
from pykueue.engine.events import Event, Upsert
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.manager.configuration import Configuration, ConfigurationError
from pykueue.manager.configuration import load as load_configuration
from pykueue.manifests.files import InputError
from pykueue.questions.answers import Answer, to_data
from pykueue.questions.cluster_state import read_cluster

#: Exit status where an option or a manifest is wrong, and where not everything could be read.
WRONG, INCOMPLETE = 2, 3

AnyAnswer = TypeVar("AnyAnswer", bound=Answer)
AnyObject = TypeVar("AnyObject")


@dataclass
class QuestionSource:
    """The state that a question is about."""

    engine: Engine
    workloads: list[kueue.Workload]
    surroundings: list[Event]
    """Everything that decisions depend on but the Workloads."""
    now: float
    """In seconds since 1970."""
    others: dict[Resource, list[Object]] = field(default_factory=dict)
    """Objects of further kinds that were asked for."""
    unread: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def objects(self, kind: type[AnyObject]) -> list[AnyObject]:
        """The objects of a kind on which decisions depend."""
        found = (event.obj for event in self.surroundings if isinstance(event, Upsert))
        return [obj for obj in found if isinstance(obj, kind)]


def of_manifests(paths: tuple[Path, ...], config: Path | None) -> QuestionSource:
    """The state once everything in some manifests that can be admitted is.

    Raises InputError, ConfigurationError and DecodeError.
    """
    # Imported here: answers on live clusters need no checks of manifests, which take long to load.
    from pykueue.manifests.reading import Source, read

    configuration = load_configuration(config)
    found = read(Source(paths), configuration, strict=False)
    state = found.state
    options = options_with(state if config is None else None, configuration)
    now = state.now if state is not None else float(int(Clock().time()))
    run = Run(found.manifests, options, now, state=state)
    run.until_stable()
    driver = run.driver
    return QuestionSource(driver.engine, list(driver.workloads.values()), run.surroundings, driver.now)


async def of_cluster(
    client: Client, configuration: Configuration | None, manager_namespace: str, kinds: Iterable[Resource]
) -> QuestionSource:
    """The state of a live cluster, with the objects of further kinds. Raises ApiError and DecodeError."""
    state = await read_cluster(client, configuration=configuration, manager_namespace=manager_namespace)
    source = QuestionSource(
        state.engine(),
        state.workloads(),
        state.surroundings(),
        float(int(Clock().time())),
        {},
        state.unread,
        state.notes,
    )

    async def listed(kind: Resource) -> None:
        try:
            source.others[kind] = (await client.list(kind)).items
        except ApiError as error:
            source.unread.append(f"{kind.plural}: {error.message}")

    await asyncio.gather(*map(listed, kinds))
    return source


def read_source(source: SourceOptions, kinds: Iterable[Resource] = ()) -> QuestionSource:
    """The state a question is about. Ends the process where an input is wrong; raises ClickException."""
    try:
        if source.paths:
            return of_manifests(source.paths, source.config)
        configuration = load_configuration(source.config) if source.config is not None else None
        question = partial(
            of_cluster, configuration=configuration, manager_namespace=source.manager_namespace, kinds=kinds
        )
        return ask(source.kubeconfig, question)
    except (ConfigurationError, DecodeError, InputError) as error:
        click.echo(str(error), err=True)
        sys.exit(WRONG)


def formatted(answer: AnyAnswer, output: str, text: Callable[[AnyAnswer], Iterable[str]]) -> str:
    """An answer in the format of `-o`, without a line break at its end."""
    match output:
        case "json":
            return json.dumps(to_data(answer), indent=2)
        case "yaml":
            return str(yaml.safe_dump(to_data(answer), sort_keys=False)).rstrip("\n")
        case _:
            return "\n".join(text(answer))


def print_answer(answer: Any, output: str, text: Callable[[Any], Iterable[str]]) -> None:
    """Print an answer; what could not be read goes to standard error too."""
    click.echo(formatted(answer, output, text))
    for note in answer.notes:
        click.echo(f"note: {note}", err=True)
    for each in answer.unread:
        click.echo(f"not read: {each}", err=True)


def print_and_exit(answer: Any, output: str, text: Callable[[Any], Iterable[str]]) -> None:
    """Print the answer to a question; exits with INCOMPLETE where something could not be read."""
    print_answer(answer, output, text)
    if answer.unread:
        sys.exit(INCOMPLETE)


def conclude(source: QuestionSource, answer: Any, output: str, text: Callable[[Any], Iterable[str]]) -> None:
    """`print_and_exit` with what could not be read of the source."""
    answer.unread, answer.notes = source.unread, source.notes
    print_and_exit(answer, output, text)
