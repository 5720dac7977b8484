"""`pykueue story`: what happened to a Workload, and why, as the manager recorded it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click

from pykueue.engine.story import lines
from pykueue.kube.client import Client
from pykueue.web.visibility.api import story_path

from .connection import ask, from_leader, kubeconfig_option


async def read(client: Client, namespace: str, name: str) -> dict[str, Any]:
    """The history of a Workload. Raises ApiError, ConnectionError and TimeoutError."""
    return await from_leader(client, story_path(namespace, name))


@click.command()
@click.argument("workload")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the Workload.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Format."
)
@kubeconfig_option
def story(workload: str, namespace: str, output: str, kubeconfig: Path | None) -> None:
    """Print what happened to WORKLOAD since the manager leads: decisions with reasons, and changes.

    Requires the right to get workloads/story in visibility.kueue.x-k8s.io.
    """
    document = ask(kubeconfig, partial(read, namespace=namespace, name=workload))
    click.echo(json.dumps(document) if output == "json" else lines(document))
