"""`pykueue dump`: what the manager decides on, as one file that `pykueue schedule -f` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.manager.install_names import ENGINE_STATE_PATH
from pykueue.questions.cluster_state import KINDS, own_kinds

from .connection import ask, from_leader
from .options import kubeconfig_option


async def collect(client: Client) -> tuple[dict[str, Any], str]:
    """The dump, and why it has no EngineState (empty where it has one).

    Raises ApiError for objects that may not be listed, ConnectionError and TimeoutError.
    """
    items = [item for kind in (*await own_kinds(client), *KINDS) for item in (await client.list(kind)).items]
    problem = ""
    try:
        items.append(await from_leader(client, ENGINE_STATE_PATH))
    except ApiError as error:
        problem = str(error)
    return {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}, problem


@click.command()
@kubeconfig_option
def dump(kubeconfig: Path | None) -> None:
    """Print the objects that decisions depend on and the state of the manager's engine, as JSON.

    `pykueue schedule -f` reads it and decides what the manager would. Objects are listed with the rights of
    the user; the state of the engine takes the right to get enginestates in visibility.kueue.x-k8s.io.
    """
    document, problem = ask(kubeconfig, collect)
    if problem:
        click.echo(f"warning: the state of the engine is not part of the dump: {problem}", err=True)
    click.echo(json.dumps(document))
