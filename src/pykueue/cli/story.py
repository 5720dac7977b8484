"""`pykueue story`: what happened to a Workload, and why, as the manager recorded it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from pykueue.engine.story import lines
from pykueue.kube.client import Client
from pykueue.kube.config import ConfigError, load
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request
from pykueue.web.visibility.api import story_path

from .dump import ATTEMPTS


async def read(client: Client, namespace: str, name: str) -> dict[str, Any]:
    """The history of a Workload. Raises ApiError, ConnectionError and TimeoutError."""
    for attempt in range(ATTEMPTS):
        try:
            found: dict[str, Any] = await client.call(Request("GET", story_path(namespace, name)))
            return found
        except ApiError as error:
            if error.code != 503 or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("not reached")


async def _run(kubeconfig: Path | None, namespace: str, name: str) -> dict[str, Any]:
    transport = await load(kubeconfig)
    try:
        return await read(Client(transport), namespace, name)
    finally:
        await transport.close()


@click.command()
@click.argument("workload")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the Workload.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Format."
)
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Kubeconfig file; default: the service account of the pod, $KUBECONFIG, or ~/.kube/config.",
)
def story(workload: str, namespace: str, output: str, kubeconfig: Path | None) -> None:
    """Print what happened to WORKLOAD since the manager leads: decisions with reasons, and changes.

    Requires the right to get workloads/story in visibility.kueue.x-k8s.io.
    """
    try:
        document = asyncio.run(_run(kubeconfig, namespace, workload))
    except (ApiError, ConfigError, ConnectionError, TimeoutError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(json.dumps(document) if output == "json" else lines(document))
