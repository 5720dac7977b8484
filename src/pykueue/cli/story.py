"""`pykueue story`: what happened to a Workload, and why, as the manager recorded it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click

from pykueue.api import kueue
from pykueue.api.resources import EVENTS, KUEUE_GROUP, WORKLOADS, Resource
from pykueue.engine.story import lines
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.manager.install_names import story_path
from pykueue.questions.cluster_state import followed_kinds, typed
from pykueue.questions.story import story_from_objects
from pykueue.questions.targets import WORKLOAD_TYPES, TargetError, find_workload

from .connection import ask, from_leader


async def read(client: Client, namespace: str, target: str) -> dict[str, Any]:
    """The history of the Workload that `NAME`, `workload/NAME` or `KIND/NAME` of a job names.

    Raises ClickException where there is none, ApiError, ConnectionError and TimeoutError.
    """
    kind, _, name = target.rpartition("/")
    if kind.lower().removesuffix(f".{KUEUE_GROUP}") in WORKLOAD_TYPES:
        return await read_workload(client, namespace, name)
    if kind or not name:
        return await read_workload(client, namespace, await name_of_target(client, namespace, target))
    try:
        return await read_workload(client, namespace, name)
    except click.ClickException as error:
        try:
            name = await name_of_target(client, namespace, target)  # a job may have the name
        except (click.ClickException, ApiError):
            raise error from None
        return await read_workload(client, namespace, name)


async def name_of_target(client: Client, namespace: str, target: str) -> str:
    """The name of the Workload that a job has. Raises ClickException and ApiError."""
    kind = await workload_kind(client)
    workloads = [typed(item, kind) for item in (await client.list(kind, namespace)).items]
    try:
        return find_workload(
            (each for each in workloads if isinstance(each, kueue.Workload)), target, namespace
        ).metadata.name
    except TargetError as error:
        raise click.ClickException(str(error)) from None


async def workload_kind(client: Client) -> Resource:
    """Workloads in the version that the cluster serves. Raises ApiError."""
    return next(kind for kind in await followed_kinds(client) if kind.kind == WORKLOADS.kind)


async def read_workload(client: Client, namespace: str, name: str) -> dict[str, Any]:
    """The history of a Workload.

    Raises ClickException where there is none, ApiError, ConnectionError and TimeoutError.
    """
    try:
        return await from_leader(client, story_path(namespace, name))
    except ApiError as error:
        if error.not_found and not error.details.get("name"):
            return await retained(client, namespace, name)
        if error.not_found:
            raise click.ClickException(
                f"no history of Workload {namespace}/{name}: it does not exist, "
                "or nothing has happened to it since the manager leads"
            ) from None
        raise


async def retained(client: Client, namespace: str, name: str) -> dict[str, Any]:
    """What a cluster without the manager of pykueue shows. Raises ClickException and ApiError."""
    kind = await workload_kind(client)
    found = await client.find(kind, name, namespace)
    if found is None:
        raise click.ClickException(f"there is no Workload {namespace}/{name}")
    selector = f"involvedObject.name={name},involvedObject.kind=Workload"
    events, unread = [], ""
    try:
        events = (await client.list(EVENTS, namespace, field_selector=selector)).items
    except ApiError as error:
        unread = f"events: {error.message}"
    workload = typed(found, kind)
    assert isinstance(workload, kueue.Workload)
    document = story_from_objects(workload, events)
    if unread:
        document["notes"].append(unread)
    return document


def run(target: str, namespace: str, output: str, kubeconfig: Path | None) -> None:
    """Carry out the command, whose options `questions` describes."""
    document = ask(kubeconfig, partial(read, namespace=namespace, target=target))
    click.echo(json.dumps(document) if output == "json" else lines(document))
    for note in document.get("notes", ()) if output == "text" else ():
        click.echo(f"note: {note}", err=True)
