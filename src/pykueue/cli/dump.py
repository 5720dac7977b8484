"""`pykueue dump`: what the manager decides on, as one file that `pykueue schedule -f` reads."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from pykueue.api.pods import LIVE_PODS
from pykueue.api.queue_specs import topology_name
from pykueue.api.resources import NODES, PODS, Resource
from pykueue.engine.reduction import reduced
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.manager.install_names import ENGINE_STATE_PATH
from pykueue.questions.cluster_state import KINDS, own_kinds
from pykueue.questions.pseudonyms import Pseudonyms

from .connection import ask, from_leader
from .options import kubeconfig_option


async def _listed(
    client: Client, kinds: Iterable[Resource], field_selector: str | None = None
) -> list[dict[str, Any]]:
    """The objects of some kinds, reduced to what decisions read. Raises ApiError."""
    return [
        reduced({"apiVersion": kind.api_version, "kind": kind.kind, **item})
        for kind in kinds
        for item in (await client.list(kind, field_selector=field_selector)).items
    ]


async def collect(client: Client) -> tuple[dict[str, Any], str]:
    """The dump, and why it has no EngineState (empty where it has one).

    Raises ApiError for objects that may not be listed, ConnectionError and TimeoutError.
    """
    items = await _listed(client, (*await own_kinds(client), *KINDS))
    if any(map(topology_name, items)):
        items = [*await _listed(client, (NODES,)), *await _listed(client, (PODS,), LIVE_PODS), *items]
    problem = ""
    try:
        items.append(reduced(await from_leader(client, ENGINE_STATE_PATH)))
    except ApiError as error:
        problem = str(error)
    return {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}, problem


def key_of(file: Path | None) -> bytes:
    """The key in a file, which is made if it does not exist; without a file one that is used once.

    Raises OSError.
    """
    if file is None:
        return secrets.token_bytes(32)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return file.read_bytes()
    with os.fdopen(descriptor, "wb") as out:
        key = secrets.token_hex(32).encode()
        out.write(key)
    return key


@click.command()
@click.option(
    "--pseudonyms",
    is_flag=True,
    help="Replace names of objects and values of labels by keyed pseudonyms.",
)
@click.option(
    "--key-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Key of the pseudonyms, made if there is none; without it, a key that is used once and not kept.",
)
@kubeconfig_option
def dump(pseudonyms: bool, key_file: Path | None, kubeconfig: Path | None) -> None:
    """Print the objects that decisions depend on and the state of the manager's engine, as JSON.

    `pykueue schedule -f` reads it and decides what the manager would. Objects are reduced to what decisions
    read: of pod templates neither images nor environments, arguments and volumes. They are listed with the
    rights of the user; the state of the engine requires the right to get enginestates in
    visibility.kueue.x-k8s.io.
    """
    if key_file is not None and not pseudonyms:
        raise click.UsageError("--key-file is for --pseudonyms")
    document, problem = ask(kubeconfig, collect)
    if problem:
        click.echo(f"warning: the state of the engine is not part of the dump: {problem}", err=True)
    if pseudonyms:
        try:
            found = Pseudonyms(document["items"], key_of(key_file))
        except OSError as error:
            raise click.ClickException(f"{key_file}: {error.strerror}") from None
        document["items"] = [found.renamed(item) for item in document["items"]]
    click.echo(json.dumps(document))
