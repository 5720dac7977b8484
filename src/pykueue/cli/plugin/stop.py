"""`stop` and `resume` of Workloads, LocalQueues and ClusterQueues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pykueue.api.objects import Object, get
from pykueue.api.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS, Resource
from pykueue.plugin.output import Output

from .names import shell
from .options import F, Verb, dry_run_option, exactly_one, output_options
from .session import Session, change_printer, dry_run_of, run

stop = Verb("stop", help="Stop a Workload or the admission of a queue.")
resume = Verb("resume", help="Resume a Workload or queue that was stopped.")

_keep = click.option("--keep-already-running", is_flag=True, help="Do not evict admitted Workloads.")


def _is_active(obj: dict[str, Any]) -> bool:
    """Whether a Workload or queue is not stopped, for completion."""
    return get(obj, "spec", "active") is not False and get(obj, "spec", "stopPolicy") in (None, "None")


def _is_stopped(obj: dict[str, Any]) -> bool:
    return not _is_active(obj)


def _change(
    ctx: click.Context,
    resource: Resource,
    names: tuple[str, ...],
    spec: dict[str, Any],
    settings: dict[str, Any],
) -> None:
    """Patch the spec of the one named object and print it."""
    name = exactly_one(ctx, names)
    dry_run = dry_run_of(settings.pop("dry_run"))
    operation = settings.pop("operation", "")
    echo = change_printer(Output(**settings), operation, dry_run)

    async def work(session: Session) -> Object:
        namespace = session.namespace if resource.namespaced else None
        found = await session.client.get(resource, name, namespace)
        if dry_run == "client":
            return {**found, "spec": {**found["spec"], **spec}}
        return await session.client.patch(
            resource, name, namespace, {"spec": spec}, dry_run=dry_run == "server"
        )

    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    echo({**head, **run(ctx, work, managed_fields=settings["managed_fields"])})


def _names(resource: Resource, *, stopped: bool) -> Callable[[F], F]:
    complete = shell(resource, keep=_is_stopped if stopped else _is_active)
    return click.argument("names", nargs=-1, metavar="NAME", shell_complete=complete)


@click.command("workload", cls=Verb.command_class)
@_names(WORKLOADS, stopped=False)
@dry_run_option
@output_options
@click.pass_context
def stop_workload(ctx: click.Context, /, names: tuple[str, ...], **settings: Any) -> None:
    """Deactivate a Workload: it is evicted where it runs, and not admitted again."""
    _change(ctx, WORKLOADS, names, {"active": False}, {**settings, "operation": "stopped"})


@click.command("workload", cls=Verb.command_class)
@_names(WORKLOADS, stopped=True)
@dry_run_option
@output_options
@click.pass_context
def resume_workload(ctx: click.Context, /, names: tuple[str, ...], **settings: Any) -> None:
    """Activate a Workload."""
    _change(ctx, WORKLOADS, names, {"active": True}, {**settings, "operation": "resumed"})


@click.command("clusterqueue", cls=Verb.command_class)
@_names(CLUSTER_QUEUES, stopped=False)
@_keep
@dry_run_option
@output_options
@click.pass_context
def stop_cluster_queue(
    ctx: click.Context, /, names: tuple[str, ...], keep_already_running: bool, **settings: Any
) -> None:
    """Stop admission in a ClusterQueue and evict what it has admitted."""
    _change(ctx, CLUSTER_QUEUES, names, {"stopPolicy": _policy(keep_already_running)}, settings)


@click.command("localqueue", cls=Verb.command_class)
@_names(LOCAL_QUEUES, stopped=False)
@_keep
@dry_run_option
@output_options
@click.pass_context
def stop_local_queue(
    ctx: click.Context, /, names: tuple[str, ...], keep_already_running: bool, **settings: Any
) -> None:
    """Stop admission from a LocalQueue and evict what was admitted from it."""
    _change(ctx, LOCAL_QUEUES, names, {"stopPolicy": _policy(keep_already_running)}, settings)


@click.command("clusterqueue", cls=Verb.command_class)
@_names(CLUSTER_QUEUES, stopped=True)
@dry_run_option
@output_options
@click.pass_context
def resume_cluster_queue(ctx: click.Context, /, names: tuple[str, ...], **settings: Any) -> None:
    """Resume admission in a ClusterQueue."""
    _change(ctx, CLUSTER_QUEUES, names, {"stopPolicy": "None"}, settings)


@click.command("localqueue", cls=Verb.command_class)
@_names(LOCAL_QUEUES, stopped=True)
@dry_run_option
@output_options
@click.pass_context
def resume_local_queue(ctx: click.Context, /, names: tuple[str, ...], **settings: Any) -> None:
    """Resume admission from a LocalQueue."""
    _change(ctx, LOCAL_QUEUES, names, {"stopPolicy": "None"}, settings)


def _policy(keep_already_running: bool) -> str:
    return "Hold" if keep_already_running else "HoldAndDrain"


for _command in (stop_workload, stop_local_queue, stop_cluster_queue):
    stop.add(_command)
for _command in (resume_workload, resume_local_queue, resume_cluster_queue):
    resume.add(_command)
