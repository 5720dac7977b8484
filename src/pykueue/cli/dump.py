"""`pykueue dump`: what the manager decides on, as one file that `pykueue schedule -f` reads."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from pykueue.api import resources
from pykueue.kube.client import Client
from pykueue.kube.config import ConfigError, load
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request
from pykueue.web.visibility.api import ENGINE_STATE_PATH

#: Kinds that decisions depend on. Workloads come last, before the state of the engine: it is newer than they.
KINDS = (
    resources.NAMESPACES,
    resources.LIMIT_RANGES,
    resources.RUNTIME_CLASSES,
    resources.TOPOLOGIES,
    resources.RESOURCE_FLAVORS,
    resources.ADMISSION_CHECKS,
    resources.COHORTS,
    resources.CLUSTER_QUEUES,
    resources.LOCAL_QUEUES,
    resources.WORKLOADS,
)
#: Times the state is asked for: behind one address there are replicas that do not lead.
ATTEMPTS = 10


async def collect(client: Client) -> tuple[dict[str, Any], str]:
    """The dump, and why it has no EngineState (empty where it has one).

    Raises ApiError for objects that may not be listed, ConnectionError and TimeoutError.
    """
    items = [item for kind in KINDS for item in (await client.list(kind)).items]
    problem = ""
    for _ in range(ATTEMPTS):
        try:
            items.append(await client.call(Request("GET", ENGINE_STATE_PATH)))
            problem = ""
            break
        except ApiError as error:
            problem = str(error)
            if error.code != 503:
                break
    return {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}, problem


async def _run(kubeconfig: Path | None) -> tuple[dict[str, Any], str]:
    transport = await load(kubeconfig)
    try:
        return await collect(Client(transport))
    finally:
        await transport.close()


@click.command()
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Kubeconfig file; default: the service account of the pod, $KUBECONFIG, or ~/.kube/config.",
)
def dump(kubeconfig: Path | None) -> None:
    """Print the objects that decisions depend on and the state of the manager's engine, as JSON.

    `pykueue schedule -f` reads it and decides what the manager would. Objects are listed with the rights of
    the user; the state of the engine takes the right to get enginestates in visibility.kueue.x-k8s.io.
    """
    try:
        document, problem = asyncio.run(_run(kubeconfig))
    except (ApiError, ConfigError, ConnectionError, TimeoutError) as error:
        raise click.ClickException(str(error)) from None
    if problem:
        click.echo(f"warning: the state of the engine is not part of the dump: {problem}", err=True)
    click.echo(json.dumps(document))
