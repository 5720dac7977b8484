"""`delete workload`."""

from __future__ import annotations

import sys

import click

from pykueue.api.resources import WORKLOADS
from pykueue.plugin import deletion

from .errors import fail
from .names import shell
from .options import Verb, dry_run_option
from .session import Session, dry_run_of, run


@click.command("workload", cls=Verb.command_class)
@click.argument("names", nargs=-1, metavar="NAME...", shell_complete=shell(WORKLOADS))
@click.option("-y", "--yes", is_flag=True, help="Delete jobs without asking.")
@click.option("--all", "all_of_them", is_flag=True, help="Delete all Workloads of the namespace.")
@click.option("-A", "--all-namespaces", is_flag=True, help="With --all: of all namespaces.")
@dry_run_option
@click.pass_context
def workload(
    ctx: click.Context,
    /,
    names: tuple[str, ...],
    yes: bool,
    all_of_them: bool,
    all_namespaces: bool,
    dry_run: str,
) -> None:
    """Delete Workloads: the jobs that own them, after confirmation, or the Workload where it has none.

    The garbage collector deletes the Workload of a deleted job.
    """
    if not all_of_them and not names:
        fail("requires at least 1 arg(s), only received 0")
    if all_of_them and names:
        fail("name cannot be provided when a selector is specified")
    if all_namespaces and names:
        fail("a resource cannot be retrieved by name across all namespaces")
    strategy = dry_run_of(dry_run)
    suffix = "" if strategy == "none" else f" ({strategy} dry run)"

    async def work(session: Session) -> None:
        if all_of_them:
            found = (
                await session.client.list(WORKLOADS, None if all_namespaces else session.namespace)
            ).items
        else:
            report = lambda text: click.echo(text, err=True)  # noqa: E731
            found = await deletion.named(session.client, names, session.namespace, report)
        targets = await deletion.targets(session.types, found)
        if strategy == "none" and not yes and any(target.jobs for target in targets):
            click.echo(deletion.confirmation(targets, all_of_them=all_of_them), nl=False)
            click.echo("Do you want to proceed (y/n)? ", nl=False)
            if next(iter(sys.stdin.readline().split()), "").lower() != "y":
                click.echo("Deletion is canceled")
                return
        for target in targets:
            if strategy != "client":
                await deletion.delete(session.client, target, dry_run=strategy == "server")
            for name in target.names:
                click.echo(f"{name} deleted{suffix}")

    run(ctx, work)
