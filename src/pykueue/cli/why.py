"""`pykueue why`: why a Workload is pending, and the smallest changes that admit it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from pykueue.api import DecodeError
from pykueue.cli import why_text
from pykueue.cli.connection import ask, from_leader
from pykueue.cli.options import SourceOptions
from pykueue.cli.question_source import INCOMPLETE, WRONG, formatted
from pykueue.cli.question_source import of_manifests as manifest_state
from pykueue.clock import Clock
from pykueue.engine import Engine
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.manager.configuration import Configuration, ConfigurationError
from pykueue.manager.configuration import load as load_configuration
from pykueue.manager.install_names import why_path
from pykueue.manifests.files import InputError
from pykueue.questions import TargetError, Why, answer_from, competing, find_workload, from_status
from pykueue.questions import why as answer_why
from pykueue.questions.cluster_state import ClusterState, read_cluster
from pykueue.questions.targets import AmbiguousTargetError, job_resources, without_workload
from pykueue.questions.why import PLACE_DECISIONS_MAX

#: Exit status where there is no such Workload or the cluster cannot be read.
_FAILED = 1


@dataclass(frozen=True)
class Question:
    """What was asked."""

    target: str
    namespace: str
    place: bool
    place_decisions: int = PLACE_DECISIONS_MAX
    """The most decisions that are tried for the workload at its place."""


def of_manifests(question: Question, paths: tuple[Path, ...], config: Path | None) -> Why:
    """The answer on manifests, once everything that can be admitted is.

    Raises InputError, ConfigurationError, DecodeError and TargetError.
    """
    source = manifest_state(paths, config)
    workload = find_workload(source.workloads, question.target, question.namespace)
    workload, notes = competing(source.workloads, workload)
    key = workload.metadata.key
    if source.engine.workload(key) is None:
        return from_status(workload, (), notes)
    answer = _answered(source.engine, key, source.now, question)
    answer.notes += notes
    return answer


def of_cluster(question: Question, state: ClusterState, now: float) -> Why:
    """The answer on a live cluster.

    Raises TargetError, DecodeError, and ApiError where the user may not list the Workloads of the namespace.
    """
    try:
        workload = find_workload(state.workloads(), question.target, question.namespace)
    except TargetError:
        if "Workload" in state.refused:  # there may be such a Workload
            raise state.refused["Workload"] from None
        raise
    if state.unread or workload.condition_is("Finished"):
        return from_status(workload, state.unread, state.notes)
    engine = state.engine()
    workload, notes = competing(state.workloads(), workload)
    if engine.workload(workload.metadata.key) is None:
        return from_status(workload, (), [*notes, *state.notes])
    answer = _answered(engine, workload.metadata.key, now, question)
    answer.notes += [*notes, *state.notes]
    return answer


def _answered(engine: Engine, key: str, now: float, question: Question) -> Why:
    return answer_why(engine, key, now, place=question.place, place_decisions_max=question.place_decisions)


async def _answer(
    client: Client, question: Question, configuration: Configuration | None, manager_namespace: str
) -> Why:
    """The answer on a live cluster. Raises TargetError, DecodeError, ApiError, ConnectionError."""
    state = await read_cluster(
        client,
        configuration=configuration,
        manager_namespace=manager_namespace,
        namespace=question.namespace,
    )
    try:
        answer = of_cluster(question, state, float(int(Clock().time())))
    except AmbiguousTargetError:
        raise
    except TargetError as error:
        raise TargetError(await _of_job(client, question, state) or str(error)) from None
    if not answer.unread:
        return answer
    # The user may not read all that decisions depend on; pykueue's manager answers within the user's rights.
    try:
        found = await from_leader(client, why_path(*answer.workload.split("/")))
    except ApiError:
        return answer
    served = answer_from(found)
    served.notes.append("answered by the manager")
    return served


async def _of_job(client: Client, question: Question, state: ClusterState) -> str:
    """Why the job that was asked about has no Workload; empty where there is no such job."""
    name = question.target.rpartition("/")[2]
    queues = [
        manifest["metadata"]["name"]
        for manifest in state.manifests
        if manifest["kind"] == "LocalQueue" and manifest["metadata"].get("namespace") == question.namespace
    ]
    for kind in job_resources(question.target):
        try:
            job = await client.find(kind, name, question.namespace)
        except ApiError:
            continue  # the error about the Workload stands
        if job is not None:
            return without_workload({"kind": kind.kind, **job}, queues)
    return ""


def run(
    source: SourceOptions, target: str, namespace: str, place: bool, place_decisions: int, output: str
) -> None:
    """Carry out the command, whose options `questions` describes."""
    question = Question(target, namespace, place, place_decisions)
    try:
        if source.paths:
            answer = of_manifests(question, source.paths, source.config)
        else:
            configuration = load_configuration(source.config) if source.config is not None else None
            answer = ask(
                source.kubeconfig,
                partial(
                    _answer,
                    question=question,
                    configuration=configuration,
                    manager_namespace=source.manager_namespace,
                ),
            )
    except (ConfigurationError, DecodeError, InputError) as error:
        click.echo(str(error), err=True)
        sys.exit(WRONG)
    except TargetError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(_FAILED)
    click.echo(formatted(answer, output, why_text.lines))
    if why_text.lacks_verdict(answer):
        sys.exit(INCOMPLETE)
