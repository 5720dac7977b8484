"""Options that several commands have, and their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from pykueue.api.durations import parse_duration
from pykueue.api.quantity import QuantityError, parse

kubeconfig_option = click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Kubeconfig file; default: the service account of the pod, $KUBECONFIG, or ~/.kube/config.",
)

F = TypeVar("F", bound=Callable[..., Any])


def satellite_options(verb: str) -> Callable[[F], F]:
    """Adds an option for each controller that can go with the manager; `verb` is what the command does."""

    def add(command: F) -> F:
        for name, parameter, title in (
            ("priority-booster", "booster_config", "priority booster"),
            ("populator", "populator_config", "populator"),
        ):
            command = click.option(
                f"--{name}",
                parameter,
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                help=f"{verb} the {title} too, with this configuration file; see pykueue {name}.",
            )(command)
        return command

    return add


@dataclass(frozen=True)
class SourceOptions:
    """What a question is about: a cluster, or manifests."""

    kubeconfig: Path | None
    manager_namespace: str
    config: Path | None
    paths: tuple[Path, ...] = ()
    """Of manifests; empty: a cluster."""


def duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """A duration such as 90s or 24h, in seconds; None where it is not given."""
    seconds = _seconds(value)
    if seconds is not None and seconds <= 0:
        raise click.BadParameter("must be greater than 0")
    return seconds


def duration_or_zero(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """The same, and `0s`."""
    seconds = _seconds(value)
    if seconds is not None and seconds < 0:
        raise click.BadParameter("must not be negative")
    return seconds


def _seconds(value: str | None) -> float | None:
    try:
        return None if value is None else parse_duration(value, days=True)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """A size such as 500Mi, in bytes."""
    try:
        bytes_ = parse(value).value()
    except QuantityError as error:
        raise click.BadParameter(str(error)) from None
    if bytes_ <= 0:
        raise click.BadParameter("must be greater than 0")
    return bytes_


def checked(
    read: Callable[[click.Context, click.Parameter, str], Any],
) -> Callable[[click.Context, click.Parameter, str], str]:
    """A callback that accepts what `read` does, and gives the text as it is."""

    def check(ctx: click.Context, param: click.Parameter, value: str) -> str:
        read(ctx, param, value)
        return value

    return check
