"""`create clusterqueue|localqueue|resourceflavor`."""

from __future__ import annotations

from typing import Any

import click

from pykueue.api.objects import Object
from pykueue.api.resources import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, Resource
from pykueue.plugin.errors import PluginError as WrongInput
from pykueue.plugin.output import Output
from pykueue.plugin.quotas import FIELDS, resource_groups
from pykueue.plugin.taints import taints
from pykueue.plugin.taints import tolerations as parsed_tolerations

from .errors import fail
from .options import Verb, dry_run_option, exactly_one, output_options, required, values_of
from .session import Session, change_printer, dry_run_of, run

create = Verb("create", help="Create a ClusterQueue, LocalQueue or ResourceFlavor.")


def _pairs(flag: str, texts: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for part in values_of(texts):
        key, equals, value = part.partition("=")
        if not equals:
            fail(f'invalid argument "{part}" for "--{flag}" flag: {part} must be formatted as key=value')
        found[key] = value
    return found


def _create(
    ctx: click.Context, resource: Resource, obj: Object, settings: dict[str, Any], cluster_queue: str = ""
) -> None:
    """Create an object, unless it is only printed; a LocalQueue's ClusterQueue must exist if named."""
    dry_run = dry_run_of(settings.pop("dry_run"))
    echo = change_printer(Output(**settings), "created", dry_run)

    async def work(session: Session) -> Object:
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        metadata = dict(obj["metadata"])
        if resource.namespaced:
            metadata["namespace"] = session.namespace
        if cluster_queue:
            await session.client.get(CLUSTER_QUEUES, cluster_queue)
        wanted = {**head, **obj, "metadata": metadata}
        if dry_run == "client":
            return wanted
        created = await session.client.create(
            resource, wanted, dry_run=dry_run == "server", field_manager="kubectl-kueue"
        )
        return {**head, **created}

    echo(run(ctx, work, managed_fields=settings["managed_fields"]))


@click.command("clusterqueue", cls=Verb.command_class)
@click.argument("names", nargs=-1, metavar="NAME")
@click.option("--cohort", default="", help="Cohort of the queue.")
@click.option("--queuing-strategy", default="BestEffortFIFO", show_default=True, help="Or StrictFIFO.")
@click.option("--namespace-selector", multiple=True, metavar="KEY=VALUE,...", help="Default: all namespaces.")
@click.option("--reclaim-within-cohort", default="Never", show_default=True, help="Or LowerPriority, Any.")
@click.option(
    "--preemption-within-cluster-queue",
    default="Never",
    show_default=True,
    help="Or LowerPriority, LowerOrNewerEqualPriority.",
)
@click.option("--nominal-quota", multiple=True, metavar="FLAVOR:RESOURCE=QUANTITY;...", help="Repeatable.")
@click.option("--borrowing-limit", multiple=True, metavar="FLAVOR:RESOURCE=QUANTITY;...", help="Repeatable.")
@click.option("--lending-limit", multiple=True, metavar="FLAVOR:RESOURCE=QUANTITY;...", help="Repeatable.")
@dry_run_option
@output_options
@click.pass_context
def cluster_queue(ctx: click.Context, /, names: tuple[str, ...], **flags: Any) -> None:
    """Create a ClusterQueue. Flavors with the same resources form one resource group."""
    name = exactly_one(ctx, names)
    given = {flag: values_of(flags.pop(flag.replace("-", "_"))) for flag in FIELDS}
    try:
        groups = resource_groups(given)
    except WrongInput as error:
        fail(str(error))
    selector = _pairs("namespace-selector", flags.pop("namespace_selector"))
    spec = {
        "cohortName": flags.pop("cohort"),
        "queueingStrategy": flags.pop("queuing_strategy"),
        "namespaceSelector": {"matchLabels": selector} if selector else {},
        "preemption": {
            "reclaimWithinCohort": flags.pop("reclaim_within_cohort"),
            "withinClusterQueue": flags.pop("preemption_within_cluster_queue"),
        },
        "resourceGroups": groups,
    }
    shown = {field: value for field, value in spec.items() if value or field == "namespaceSelector"}
    _create(ctx, CLUSTER_QUEUES, {"metadata": {"name": name}, "spec": shown}, flags)


@click.command("localqueue", cls=Verb.command_class)
@click.argument("names", nargs=-1, metavar="NAME")
@click.option("-c", "--clusterqueue", help="Name of the ClusterQueue (required).")
@click.option("-i", "--ignore-unknown-cq", is_flag=True, help="Do not check that the ClusterQueue exists.")
@dry_run_option
@output_options
@click.pass_context
def local_queue(
    ctx: click.Context,
    /,
    names: tuple[str, ...],
    clusterqueue: str | None,
    ignore_unknown_cq: bool,
    **flags: Any,
) -> None:
    """Create a LocalQueue that leads to a ClusterQueue."""
    name = exactly_one(ctx, names)
    required(ctx, clusterqueue=clusterqueue)
    obj = {"metadata": {"name": name}, "spec": {"clusterQueue": clusterqueue}}
    _create(ctx, LOCAL_QUEUES, obj, flags, "" if ignore_unknown_cq else str(clusterqueue))


@click.command("resourceflavor", cls=Verb.command_class)
@click.argument("names", nargs=-1, metavar="NAME")
@click.option("--node-labels", multiple=True, metavar="KEY=VALUE,...", help="Labels of the flavor's nodes.")
@click.option("--node-taints", multiple=True, metavar="KEY[=VALUE]:EFFECT,...", help="Taints of its nodes.")
@click.option(
    "--tolerations", multiple=True, metavar="KEY[=VALUE][:EFFECT],...", help="Tolerations that its pods get."
)
@dry_run_option
@output_options
@click.pass_context
def resource_flavor(
    ctx: click.Context,
    /,
    names: tuple[str, ...],
    node_labels: tuple[str, ...],
    node_taints: tuple[str, ...],
    tolerations: tuple[str, ...],
    **flags: Any,
) -> None:
    """Create a ResourceFlavor."""
    name = exactly_one(ctx, names)
    try:
        spec = {
            "nodeLabels": _pairs("node-labels", node_labels),
            "nodeTaints": taints(values_of(node_taints)),
            "tolerations": parsed_tolerations(values_of(tolerations)),
        }
    except WrongInput as error:
        fail(str(error))
    shown = {field: value for field, value in spec.items() if value}
    _create(ctx, RESOURCE_FLAVORS, {"metadata": {"name": name}, "spec": shown}, flags)


for _command in (cluster_queue, local_queue, resource_flavor):
    create.add(_command)
