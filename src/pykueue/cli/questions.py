"""The commands that answer questions about queues and workloads: their arguments, options and help.

What they do is imported when they run: help and completion need neither the engine nor a client.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pykueue.api.kueue.names import MANAGER_NAMESPACE
from pykueue.cli.options import F, SourceOptions, duration, kubeconfig_option

#: Parts of the answer of `pykueue top` that can be printed alone.
SECTIONS = ("queues", "flavors", "nodes")
#: What `pykueue used` groups by, besides labels.
GROUPS = ("clusterqueue", "localqueue", "namespace", "priority")
#: Decisions that `pykueue why` tries for a workload at its place.
PLACE_DECISIONS = 2500
#: Futures that `pykueue when` simulates.
FUTURES = 40


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of a live cluster to a command, which gets them as `source`."""

    @functools.wraps(command)
    def with_source(
        kubeconfig: Path | None,
        manager_namespace: str,
        config: Path | None,
        paths: tuple[Path, ...] = (),
        **others: Any,
    ) -> None:
        command(source=SourceOptions(kubeconfig, manager_namespace, config, paths), **others)

    found: Callable[..., None] = with_source
    for option in (
        kubeconfig_option,
        click.option(
            "--manager-namespace",
            default=MANAGER_NAMESPACE,
            show_default=True,
            help="Namespace whose ConfigMap has the configuration of the manager.",
        ),
        click.option(
            "--config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Configuration file (config.kueue.x-k8s.io) in place of that of the manager.",
        ),
    ):
        found = option(found)
    return found


def source_options_named(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the options of a live cluster, and one of these names for manifests in its place."""
    manifests = click.option(
        *names,
        "paths",
        type=click.Path(path_type=Path, allow_dash=True),
        multiple=True,
        help="Answer on manifests, without a cluster: "
        "a YAML or JSON file, a directory, or - for standard input.",
    )
    return lambda command: manifests(cluster_options(command))


source_options = source_options_named("-f", "--filename")


def workload_options(command: F) -> F:
    """Adds the argument and the option that name a Workload, or the Workload of a job."""
    command = click.option(
        "-n", "--namespace", default="default", show_default=True, help="Namespace of the Workload."
    )(command)
    return click.argument("target", metavar="WORKLOAD|KIND/JOB")(command)


def futures_options(command: F) -> F:
    """Adds the options of the futures that are simulated."""
    for option in (
        click.option(
            "--arrivals/--no-arrivals",
            default=True,
            show_default=True,
            help="Assume that workloads like those of the last 24 hours keep arriving.",
        ),
        click.option("--seed", type=int, default=0, show_default=True, help="Of what is drawn at random."),
        click.option(
            "--futures",
            type=click.IntRange(min=1),
            default=FUTURES,
            show_default=True,
            help="Futures to simulate.",
        ),
    ):
        command = option(command)
    return command


def output_options(module: str, kind: str) -> Callable[[F], F]:
    """Adds `-o` and `--print-schema` for an answer of that kind, a class of that module."""

    def print_schema(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value:
            from pykueue.questions.answers import schema_of

            found = getattr(importlib.import_module(module), kind)
            click.echo(json.dumps(schema_of(found), indent=2))
            ctx.exit()

    def add(command: F) -> F:
        command = click.option(
            "--print-schema",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=print_schema,
            help="Print the JSON Schema of the json and yaml output and exit.",
        )(command)
        return click.option(
            "-o",
            "--output",
            type=click.Choice(["text", "json", "yaml"]),
            default="text",
            show_default=True,
            help="Format.",
        )(command)

    return add


@click.command()
@workload_options
@source_options
@click.option(
    "--place/--no-place",
    default=True,
    show_default=True,
    help="Answer also for the Workload at its place, with the queue as it is.",
)
@click.option(
    "--place-decisions",
    type=click.IntRange(min=1),
    default=PLACE_DECISIONS,
    show_default=True,
    help="Decisions to try for that answer, about 10000 a second; what takes more is not determined.",
)
@output_options("pykueue.questions.answers", "Why")
def why(**options: Any) -> None:
    """Print why a Workload, or the Workload of a job, is pending, and the smallest changes that admit it.

    Each change is verified by deciding on a copy of the present state; nothing is written. Works on clusters
    that Kueue manages too, with the rights to list Kueue's objects.

    Exit status: 0; 1 if there is no such Workload, or the cluster cannot be read; 2 if an option or a
    manifest is wrong; 3 if there is no verdict, because not everything could be read.
    """
    from pykueue.cli.why import run

    run(**options)


@click.command()
@click.argument("section", type=click.Choice(SECTIONS), required=False)
@source_options
@click.option("--watch", is_flag=True, help="Print again whenever --interval has passed, until interrupted.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.5),
    default=2.0,
    show_default=True,
    help="Seconds between two looks at the cluster with --watch.",
)
@output_options("pykueue.questions.top", "Top")
def top(**options: Any) -> None:
    """Print how full queues, cohorts, flavors and nodes are, or one SECTION of that.

    The section `nodes` has the placement of workloads on the nodes of flavors with a topology as well.

    Exit status: 0; 1 if the cluster cannot be read; 2 if an option or a manifest is wrong; 3 if not
    everything could be read.
    """
    from pykueue.cli.top import run

    run(**options)


@click.command()
@source_options
@output_options("pykueue.questions.share", "Shares")
def share(**options: Any) -> None:
    """Print what each ClusterQueue and cohort is entitled to, has received, borrows and lends.

    A second table has the past usage of LocalQueues, where their status shows it (admission fair sharing).

    Exit status: 0; 1 if the cluster cannot be read; 2 if an option or a manifest is wrong; 3 if not
    everything could be read.
    """
    from pykueue.cli.share import run

    run(**options)


@click.command()
@click.argument("name", required=False)
@source_options
@output_options("pykueue.questions.budgets", "Budgets")
def budget(**options: Any) -> None:
    """Print how much of Budgets is used, and when they will be used up.

    With NAME it prints that Budget alone, with its use by hour and its past windows.

    Exit status: 0; 1 if the cluster cannot be read or there is no Budget of that name; 2 if an option or a
    manifest is wrong; 3 if not everything could be read.
    """
    from pykueue.cli.budget import run

    run(**options)


@click.command()
@click.argument("name", required=False)
@source_options
@output_options("pykueue.questions.reservations", "ReservationsAnswer")
def reservations(**options: Any) -> None:
    """Print what is reserved: the windows of Reservations, and the capacity reserved for pending Workloads.

    With NAME it prints that Reservation alone, with its next windows and the Workloads that it holds back.

    Exit status: 0; 1 if the cluster cannot be read or there is no Reservation of that name; 2 if an option or
    a manifest is wrong; 3 if not everything could be read.
    """
    from pykueue.cli.reservations import run

    run(**options)


@click.command()
@source_options
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Number of preemptions to print, the latest first.",
)
@output_options("pykueue.questions.preemptions", "Preemptions")
def preemptions(**options: Any) -> None:
    """Print the latest preemptions, and the totals that PreemptionPolicies count.

    Without PreemptionPolicies it prints the last preemption of each Workload that was not admitted again, as
    its conditions show it. Works on clusters that Kueue manages too.

    Exit status: 0; 1 if the cluster cannot be read; 2 if an option or a manifest is wrong; 3 if not
    everything could be read.
    """
    from pykueue.cli.preemptions import run

    run(**options)


@click.command()
@source_options
@click.option(
    "--by",
    default="clusterqueue",
    show_default=True,
    metavar="GROUP",
    help=f"Group by {', '.join(GROUPS)} or label=KEY (a label of the Workload).",
)
@click.option(
    "--since",
    default="24h",
    show_default=True,
    callback=duration,
    metavar="DURATION",
    help="Length of the window, which ends now.",
)
@output_options("pykueue.questions.used", "Used")
def used(**options: Any) -> None:
    """Print the resource-hours that workloads held, from the running and finished Workloads that exist.

    Exit status: 0; 1 if the cluster cannot be read; 2 if an option or a manifest is wrong; 3 if not
    everything could be read.
    """
    from pykueue.cli.used import run

    run(**options)


@click.command()
@workload_options
@source_options
@futures_options
@click.option(
    "--scores",
    "scores_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with past answers, by which they are scored. Default: in the state directory of the user.",
)
@output_options("pykueue.simulate.forecast", "When")
def when(**options: Any) -> None:
    """Print when a pending Workload, or the Workload of a job, will start: an interval of 80 %.

    The present state is simulated forward many times by the production engine; run times are those of the
    finished Workloads. Nothing is written to the cluster. Works on clusters that Kueue manages too.

    Exit status: 0; 1 if there is no such Workload, it is not pending, or the cluster cannot be read; 2 if an
    option or a manifest is wrong; 3 if not everything could be read.
    """
    from pykueue.cli.when import run

    run(**options)


@click.command()
@workload_options
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Format."
)
@kubeconfig_option
def story(**options: Any) -> None:
    """Print what happened to a Workload, or to the Workload of a job, since the manager leads.

    Decisions with their reasons, and changes. Requires the right to get workloads/story in
    visibility.kueue.x-k8s.io, and to list Workloads for the name of a job. Beside Kueue, which records no
    decisions: what the status of the Workload and its events retain.
    """
    from pykueue.cli.story import run

    run(**options)


@click.command()
@cluster_options
@click.option("--for", "length", callback=duration, metavar="DURATION", help="End after this time.")
@click.option(
    "--settle",
    default="2s",
    show_default=True,
    callback=duration,
    metavar="DURATION",
    help="How long changes are held back, so that they are compared in the order of their resourceVersions.",
)
@click.option(
    "--window",
    default="5s",
    show_default=True,
    callback=duration,
    metavar="DURATION",
    help="Longest time between a decision of the manager and its write: earlier states are tried that far.",
)
@click.option(
    "--patience",
    default="10s",
    show_default=True,
    callback=duration,
    metavar="DURATION",
    help="How long nothing changes before decisions that the manager does not make are reported.",
)
@click.option(
    "--manager-log",
    type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True),
    metavar="FILE",
    help="Log of Kueue's manager, which shows the snapshots of its cycles; it may still be written. "
    "-: standard input.",
)
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Port of /metrics; 0: any free port.")
@output_options("pykueue.questions.shadow", "Report")
def shadow(**options: Any) -> None:
    """Decide beside the manager of a cluster, Kueue or pykueue, and report every difference.

    Only reads. Differences are logged as they occur; the report is printed at the end.

    Exit status: 0; 1 if the cluster cannot be read; 2 if an option is wrong; 3 if the user's rights do not
    suffice; 4 if pykueue decided otherwise and nothing but its decision explains it.
    """
    from pykueue.cli.shadow import run

    run(**options)
