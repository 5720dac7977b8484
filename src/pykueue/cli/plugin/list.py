"""`list clusterqueue|localqueue|workload|resourceflavor|pods`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pykueue.api.objects import Object, get
from pykueue.api.resources import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, WORKLOADS, Resource
from pykueue.kube.errors import ApiError
from pykueue.plugin import listing
from pykueue.plugin.errors import PluginError as WrongInput
from pykueue.plugin.listing import Listing, Query
from pykueue.plugin.output import Output, Printer, printer
from pykueue.plugin.tables import table

from .errors import fail
from .names import shell
from .options import F, Verb, output_options, required
from .session import Session, nothing_found, run, warn

list = Verb("list", help="List queues, flavors, workloads, or the pods of a job.")

_selectors = (
    click.option("--field-selector", default="", help="Field selector, such as metadata.name=a."),
    click.option("-l", "--selector", default="", help="Label selector, such as a=b,c!=d."),
)
_all_namespaces = click.option("-A", "--all-namespaces", is_flag=True, help="List all namespaces.")
_cluster_queue_filter = click.option(
    "-c",
    "--clusterqueue",
    default="",
    help="Only those of a ClusterQueue.",
    shell_complete=shell(CLUSTER_QUEUES),
)


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _form(settings: dict[str, Any]) -> tuple[Output, Printer | None]:
    """The output flags taken out of the settings; a printer where a form is given."""
    names = ("form", "template", "allow_missing", "managed_fields")
    output = Output(**{name: settings.pop(name) for name in names})
    try:
        return output, printer(output) if output.given else None
    except WrongInput as error:
        fail(str(error))


def _echo(found: Listing, form: Printer | None, namespace: str | None, all_namespaces: bool) -> None:
    """Print a list in a form or as a table; an empty one also with a message on standard error."""
    if form is not None:
        try:
            click.echo(form(found.document), nl=False)
        except WrongInput as error:
            fail(str(error))
    if not found.items:
        nothing_found(namespace)
    elif form is None:
        if all_namespaces:
            listing.with_namespaces(found)
        click.echo(table(found.headers, found.rows), nl=False)


def _cluster_wide(
    ctx: click.Context,
    resource: Resource,
    fill: Callable[[Listing, float], None],
    keep: Callable[[Object], bool],
    settings: dict[str, Any],
) -> None:
    output, form = _form(settings)
    query = Query(None, settings["selector"], settings["field_selector"])

    async def work(session: Session) -> Listing:
        found = await listing.objects(session.client, resource, query)
        found.items = [one for one in found.items if keep(one)]
        fill(found, session.clock.time())
        return found

    _echo(run(ctx, work, managed_fields=output.managed_fields), form, None, False)


@click.command("clusterqueue", cls=Verb.command_class)
@_options(*_selectors)
@click.option(
    "--active", multiple=True, metavar="true|false", help="Only active, or inactive, ClusterQueues."
)
@output_options
@click.pass_context
def cluster_queue(ctx: click.Context, /, active: tuple[str, ...], **settings: Any) -> None:
    """List ClusterQueues."""
    wanted = [part for text in active for part in text.split(",")]
    for value in wanted:
        if value.lower() not in ("true", "false"):
            fail(f'invalid argument "{value}" for "--active" flag: accepted values: true, false')
    if len(wanted) > 1:
        fail("only one active flag can be provided")

    def keep(queue: Object) -> bool:
        return not wanted or listing.is_active(queue) == (wanted[0].lower() == "true")

    _cluster_wide(ctx, CLUSTER_QUEUES, listing.cluster_queue_table, keep, settings)


@click.command("resourceflavor", cls=Verb.command_class)
@_options(*_selectors)
@output_options
@click.pass_context
def resource_flavor(ctx: click.Context, /, **settings: Any) -> None:
    """List ResourceFlavors."""
    _cluster_wide(ctx, RESOURCE_FLAVORS, listing.flavor_table, lambda _: True, settings)


@click.command("localqueue", cls=Verb.command_class)
@_options(_all_namespaces, _cluster_queue_filter, *_selectors)
@output_options
@click.pass_context
def local_queue(ctx: click.Context, /, all_namespaces: bool, clusterqueue: str, **settings: Any) -> None:
    """List LocalQueues."""
    output, form = _form(settings)

    async def work(session: Session) -> tuple[Listing, str | None]:
        namespace = None if all_namespaces else session.namespace
        query = Query(namespace, settings["selector"], settings["field_selector"])
        found = await listing.objects(session.client, LOCAL_QUEUES, query)
        if clusterqueue:
            found.items = [one for one in found.items if get(one, "spec", "clusterQueue") == clusterqueue]
        listing.local_queue_table(found, session.clock.time())
        return found, namespace

    found, namespace = run(ctx, work, managed_fields=output.managed_fields)
    _echo(found, form, namespace, all_namespaces)


@click.command("workload", cls=Verb.command_class)
@_options(_all_namespaces, _cluster_queue_filter)
@click.option(
    "-q", "--localqueue", default="", help="Only those of a LocalQueue.", shell_complete=shell(LOCAL_QUEUES)
)
@click.option(
    "--status",
    "states",
    multiple=True,
    metavar="STATUS",
    help="all, pending, quotareserved, admitted or finished; repeatable.",
)
@click.option("--for", "job", default="", metavar="TYPE[.VERSION][.GROUP]/NAME", help="Only those of a job.")
@_options(*_selectors)
@output_options
@click.pass_context
def workload(
    ctx: click.Context,
    /,
    all_namespaces: bool,
    clusterqueue: str,
    localqueue: str,
    states: tuple[str, ...],
    job: str,
    **settings: Any,
) -> None:
    """List Workloads with the jobs they belong to, their state, and positions in their queue."""
    wanted = {state.lower() for state in states}
    for state in states:
        if state.lower() not in ("all", *listing.STATES):
            fail(f'invalid status value ({state}). Must be "all", "pending", "admitted" or "finished"')
    output, form = _form(settings)

    def keep(one: Object) -> bool:
        return (
            (not localqueue or get(one, "spec", "queueName") == localqueue)
            and (not clusterqueue or get(one, "status", "admission", "clusterQueue") == clusterqueue)
            and (not wanted or "all" in wanted or listing.state_of(one) in wanted)
        )

    async def work(session: Session) -> tuple[Listing, str | None]:
        namespace = None if all_namespaces else session.namespace
        query = Query(namespace, settings["selector"], settings["field_selector"])
        if job:
            owner, _ = await _job(session, job, namespace)
            if owner is None:
                return Listing(WORKLOADS, []), namespace
            found = await listing.workloads_of(session.client, query, owner["metadata"]["uid"])
        else:
            found = await listing.objects(session.client, WORKLOADS, query)
        found.items = [one for one in found.items if keep(one)]
        if form is None:
            now = session.clock.time()
            await listing.workload_table(found, session.client, session.types, now, warn)
        return found, namespace

    found, namespace = run(ctx, work, managed_fields=output.managed_fields)
    _echo(found, form, namespace, all_namespaces)


async def _job(session: Session, argument: str, namespace: str | None) -> tuple[Object | None, Resource]:
    """The job that `--for` names and its resource; None where there is none."""
    resource, name = await session.types.named(argument)
    if namespace is None and resource.namespaced:
        found = await session.client.list(resource, field_selector=f"metadata.name={name}")
        return (found.items[0] if found.items else None), resource
    try:
        return await session.client.get(resource, name, namespace), resource
    except ApiError as error:
        if not error.not_found:
            raise
        return None, resource


@click.command("pods", cls=Verb.command_class)
@_options(_all_namespaces)
@click.option("--for", "job", default="", metavar="TYPE[.VERSION][.GROUP]/NAME", help="The job (required).")
@_options(*_selectors)
@output_options
@click.pass_context
def pods(ctx: click.Context, /, all_namespaces: bool, job: str, **settings: Any) -> None:
    """List the pods of a job, or of the group of a pod."""
    required(ctx, **{"for": job})
    wide = settings["form"] == "wide"
    if wide:
        settings["form"] = ""
    output, form = _form(settings)

    async def work(session: Session) -> tuple[str, str | None]:
        namespace = None if all_namespaces else session.namespace
        owner, resource = await _job(session, job, namespace)
        if owner is None:
            return "", namespace
        query = Query(namespace, settings["selector"], settings["field_selector"])
        request = listing.pods_of(owner, resource, query)
        pages = await listing.pod_pages(session.client, request, as_table=form is None)
        if form is None:
            headers, rows = listing.pod_rows(pages, wide=wide, namespaces=all_namespaces)
            return (table(headers, rows) if rows else ""), namespace
        items = [{"apiVersion": "v1", "kind": "Pod", **one} for page in pages for one in page["items"]]
        return "".join(form(one) for one in items), namespace

    text, namespace = run(ctx, work, managed_fields=output.managed_fields)
    if text:
        click.echo(text, nl=False)
    elif namespace is None:
        click.echo("No resources found.", err=True)
    else:
        nothing_found(namespace)


for _command in (cluster_queue, local_queue, workload, resource_flavor, pods):
    list.add(_command)
