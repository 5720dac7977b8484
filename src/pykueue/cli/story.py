"""`pykueue story`: what happened to a Workload, and why, as the manager recorded it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click

from pykueue.api import kueue
from pykueue.api.resources import EVENTS, KUEUE_GROUP, WORKLOADS
from pykueue.engine.story import lines
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.manager.install_names import story_path
from pykueue.questions.cluster_state import followed_kinds, typed
from pykueue.questions.story import story_from_objects
from pykueue.questions.targets import WORKLOAD_TYPES

from .connection import ask, from_leader, kubeconfig_option


def name_of(argument: str) -> str:
    """The name in `NAME` or `TYPE/NAME`. Raises BadParameter for another type."""
    kind, slash, name = argument.rpartition("/")
    if slash and (kind.lower().removesuffix(f".{KUEUE_GROUP}") not in WORKLOAD_TYPES or not name):
        raise click.BadParameter(f"{argument!r} is not the name of a Workload; accepted: NAME, workload/NAME")
    return name


async def read(client: Client, namespace: str, name: str) -> dict[str, Any]:
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
    kind = next(kind for kind in await followed_kinds(client) if kind.kind == WORKLOADS.kind)
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


@click.command()
@click.argument("workload")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the Workload.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Format."
)
@kubeconfig_option
def story(workload: str, namespace: str, output: str, kubeconfig: Path | None) -> None:
    """Print what happened to WORKLOAD since the manager leads: decisions with reasons, and changes.

    Requires the right to get workloads/story in visibility.kueue.x-k8s.io. Beside Kueue, which records no
    decisions: what the status of the Workload and its events retain.
    """
    document = ask(kubeconfig, partial(read, namespace=namespace, name=name_of(workload)))
    click.echo(json.dumps(document) if output == "json" else lines(document))
    for note in document.get("notes", ()) if output == "text" else ():
        click.echo(f"note: {note}", err=True)
