"""`pykueue whatif`: its arguments, options and help. What it does is imported when it runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pykueue.cli.options import F, duration
from pykueue.cli.questions import futures_options, output_options, source_options_named

if TYPE_CHECKING:
    from pykueue.simulate.changes import Change

_STOP_POLICIES = ("None", "Hold", "HoldAndDrain")


def _changes(
    form: str, make: Callable[[str, str], Change]
) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], list[Change]]:
    """Reads the values of an option, each `NAME=VALUE` as `form` shows it."""

    def read(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[Change]:
        found = []
        for text in values:
            name, _, value = text.partition("=")
            try:
                found.append(make(name, value))
            except ValueError:
                raise click.BadParameter(f"{text!r} is not accepted; accepted: {form}") from None
        return found

    return read


def _parts(text: str, count: int) -> list[str]:
    """The parts between slashes, of which the last may have slashes. Raises ValueError."""
    parts = text.split("/", count - 1)
    if len(parts) < count or not all(parts):
        raise ValueError(text)
    return parts


def _required(value: str) -> str:
    if not value:
        raise ValueError(value)
    return value


def _quota(kind: str) -> Callable[[str, str], Change]:
    def make(name: str, value: str) -> Change:
        owner, flavor, resource = _parts(name, 3)
        amount = _required(value)
        return lambda state: state.set_quota(kind, owner, flavor, resource, amount)

    return make


def _weight(name: str, value: str) -> Change:
    weight = _required(value)
    return lambda state: state.set_weight(name, weight)


def _stop(name: str, value: str) -> Change:
    policy = value or "Hold"
    if policy not in _STOP_POLICIES:
        raise ValueError(value)
    return lambda state: state.set_stop_policy(name, policy)


def _policy(name: str, value: str) -> Change:
    queue, field = _parts(name, 2)
    policy = _required(value)
    return lambda state: state.set_policy(queue, field, policy)


def _add_nodes(name: str, value: str) -> Change:
    count = int(value or "1")
    if count < 1:
        raise ValueError(value)
    return lambda state: state.add_nodes(name, count)


def _remove_node(name: str, value: str) -> Change:
    return lambda state: state.remove_node(name)


#: Option, form of its value, reader, help.
_OPTIONS: tuple[tuple[str, str, Callable[[str, str], Change], str], ...] = (
    (
        "quota",
        "CLUSTERQUEUE/FLAVOR/RESOURCE=AMOUNT",
        _quota("ClusterQueue"),
        "Another nominalQuota. An amount with a sign (+4, -4) is added to the present one.",
    ),
    ("cohort-quota", "COHORT/FLAVOR/RESOURCE=AMOUNT", _quota("Cohort"), "The same of a Cohort."),
    ("weight", "NAME=WEIGHT", _weight, "Another fair sharing weight of a ClusterQueue or Cohort."),
    (
        "stop",
        "CLUSTERQUEUE[=POLICY]|NAMESPACE/LOCALQUEUE[=POLICY]",
        _stop,
        f"Another stopPolicy: {', '.join(_STOP_POLICIES)}; default: Hold.",
    ),
    (
        "policy",
        "CLUSTERQUEUE/FIELD=VALUE",
        _policy,
        "Another value of a field such as withinClusterQueue, queueingStrategy or cohortName.",
    ),
    ("add-nodes", "NODE=COUNT", _add_nodes, "More nodes like an existing one."),
    ("remove-node", "NODE", _remove_node, "One node less."),
)


def change_options(replaced: str) -> Callable[[F], F]:
    """Adds the options of changes, which `taken_changes` collects, and those of manifests and configuration.

    `replaced` names the objects that the manifests replace.
    """

    def add(command: F) -> F:
        command = click.option(
            "--with-config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Another configuration of the manager.",
        )(command)
        command = click.option(
            "--with",
            "overrides",
            type=click.Path(path_type=Path),
            multiple=True,
            help=f"Manifests in place of {replaced}, or in addition: a file or a directory.",
        )(command)
        for name, form, make, text in reversed(_OPTIONS):
            command = click.option(
                f"--{name}", multiple=True, metavar=form, callback=_changes(form, make), help=text
            )(command)
        return command

    return add


def taken_changes(options: dict[str, Any]) -> list[Change]:
    """The changes among the values of options, which are removed from these."""
    return [change for name, *_ in _OPTIONS for change in options.pop(name.replace("-", "_"))]


@click.command()
@click.argument("target", metavar="[WORKLOAD|KIND/JOB]", required=False)
@click.option(
    "-n", "--namespace", default="default", show_default=True, help="Namespace of the Workload or job."
)
@click.option(
    "-f",
    "--filename",
    "job",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Manifest of a job, or Workload, that is not submitted yet: the question is about it.",
)
@change_options("the objects of the same name")
@source_options_named("--state")
@futures_options
@click.option(
    "--window",
    default="24h",
    show_default=True,
    callback=duration,
    help="Time for which the starts of other workloads are compared.",
)
@click.option(
    "--alternatives/--no-alternatives",
    default=True,
    show_default=True,
    help="Try the Workload with fewer pods, in other queues and in other flavors too.",
)
@output_options("pykueue.simulate.whatif", "WhatIf")
def whatif(**options: Any) -> None:
    """Print what changes of the cluster, or a job that is not submitted yet (-f), would lead to.

    With a pending Workload, or with -f: when it starts, without the changes and with them, and how it would
    start if it were submitted otherwise. Always: which other workloads start later or earlier, or are
    preempted. The futures are those of `pykueue when`; nothing is written to the cluster. Works on clusters
    that Kueue manages too.

    Exit status: 0; 1 if there is no such Workload or object, or the cluster cannot be read; 2 if an option or
    a manifest is wrong; 3 if not everything could be read.
    """
    from pykueue.cli.whatif import run

    run(changes=taken_changes(options), **options)
