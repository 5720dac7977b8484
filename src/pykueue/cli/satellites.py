"""`pykueue populator` and `pykueue priority-booster`: controllers beside the manager."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import click

from pykueue.api.resources import CLUSTER_QUEUES, NAMESPACES, WORKLOADS
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.config import ConfigError, load
from pykueue.kube.errors import ApiError
from pykueue.kube.events import EventRecorder
from pykueue.kube.informer import InformerFactory
from pykueue.kube.leases import LeaderElector, LeadershipLost
from pykueue.kube.transport import Request
from pykueue.manager.components import Runnable
from pykueue.manager.satellites import POPULATOR, PRIORITY_BOOSTER, Satellite
from pykueue.satellites import booster
from pykueue.satellites import populator as populating
from pykueue.satellites.configuration import (
    ConfigurationError,
    booster_configuration,
    populator_configuration,
)

from .manifests import written
from .options import F, kubeconfig_option
from .process import log_to_stderr, until_stopped

#: Builds the controller from client, event recorder, clock and caches.
Build = Callable[[Client, EventRecorder, Clock, InformerFactory], Runnable]


def _options(command: F) -> F:
    for option in (
        click.option("-v", "--verbose", is_flag=True, help="Log what is done."),
        click.option("--print-role", is_flag=True, help="Print the ClusterRole that it needs and exit."),
        click.option(
            "--lease-namespace", default="kueue-system", show_default=True, help="Namespace of the Lease."
        ),
        click.option("--leader-elect", is_flag=True, help="Run on one elected replica, by a Lease."),
        click.option("--config", type=click.Path(path_type=Path), help="Configuration file."),
        kubeconfig_option,
    ):
        command = option(command)
    return command


@click.command()
@_options
def populator(config: Path | None, **flags: Any) -> None:
    """Create a LocalQueue in every namespace that the namespaceSelector of a ClusterQueue matches."""
    try:
        configuration = populator_configuration(config)
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from None

    def build(client: Client, recorder: EventRecorder, clock: Clock, caches: InformerFactory) -> Runnable:
        namespaces, queues = caches.informer(NAMESPACES), caches.informer(CLUSTER_QUEUES)
        return populating.Populator(configuration, client, recorder, clock, namespaces, queues)

    _serve(POPULATOR, build, flags)


@click.command("priority-booster")
@_options
def priority_booster(config: Path | None, **flags: Any) -> None:
    """Lower the priority of Workloads admitted for longer than an interval, so that others can preempt them.

    Requires the feature gate PriorityBoost of the manager, and withinClusterQueue: LowerPriority.
    """
    try:
        configuration = booster_configuration(config)
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from None

    def build(client: Client, recorder: EventRecorder, clock: Clock, caches: InformerFactory) -> Runnable:
        return booster.PriorityBooster(configuration, client, recorder, clock, caches.informer(WORKLOADS))

    _serve(PRIORITY_BOOSTER, build, flags)


def _serve(satellite: Satellite, build: Build, flags: dict[str, Any]) -> None:
    """Run a controller until SIGINT or SIGTERM, or print its role."""
    if flags["print_role"]:
        click.echo(written([_role(satellite)]), nl=False)
        return
    log_to_stderr(flags["verbose"])
    try:
        asyncio.run(_run(satellite.name, build, flags))
    except (ApiError, ConfigError, LeadershipLost, ConnectionError, TimeoutError) as error:
        raise click.ClickException(str(error)) from None


async def _run(name: str, build: Build, flags: dict[str, Any]) -> None:
    transport = await load(flags["kubeconfig"], user_agent=name)
    try:
        clock = Clock()
        client = Client(transport, clock=clock)
        # Watches try again forever; a wrong address is an error at once.
        await client.call(Request("GET", "/version"))

        async def lead() -> None:
            caches = InformerFactory(client, clock=clock)
            recorder = EventRecorder(client, clock, name)
            controller = build(client, recorder, clock, caches)
            async with asyncio.TaskGroup() as group:
                for each in (caches, recorder, controller):
                    group.create_task(each.run())

        run: Callable[[], Coroutine[Any, Any, None]] = lead
        if flags["leader_elect"]:
            identity = f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
            run = partial(LeaderElector(client, clock, flags["lease_namespace"], name, identity).run, lead)
        async with until_stopped(run()) as wait:
            await wait(None)
    finally:
        await transport.close()


def _role(satellite: Satellite) -> dict[str, Any]:
    """A ClusterRole with the rights of the controller and the rights to its Lease."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": satellite.name},
        "rules": [rule.object() for rule in satellite.rules],
    }
