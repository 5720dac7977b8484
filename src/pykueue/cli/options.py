"""Values of options that several commands have."""

from __future__ import annotations

import click

from pykueue.api.durations import parse_duration


def duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """A duration such as 90s or 24h, in seconds; None where it is not given."""
    if value is None:
        return None
    try:
        seconds = parse_duration(value, days=True)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if seconds <= 0:
        raise click.BadParameter("must be greater than 0")
    return seconds
