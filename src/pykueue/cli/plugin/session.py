"""The connection of one command: the connection flags, a client, the namespace, output and warnings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import click

from pykueue.api.durations import parse_duration
from pykueue.api.objects import Object
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.config import load
from pykueue.kube.errors import ApiError
from pykueue.kube.kubeconfig import ConfigError, Overrides, default_files, namespace
from pykueue.plugin.errors import PluginError as WrongInput
from pykueue.plugin.listing import page_size
from pykueue.plugin.output import Output, printer
from pykueue.plugin.types import Types

from .errors import PluginError

T = TypeVar("T")

DRY_RUNS = ("none", "client", "server")


@dataclass(frozen=True)
class Session:
    """What a command works with."""

    client: Client
    types: Types
    #: The namespace of the command.
    namespace: str
    clock: Clock


def overrides_of(settings: dict[str, Any]) -> Overrides:
    """The connection flags. Raises ClickException for a time limit that cannot be read."""
    known = {field.name for field in fields(Overrides)}
    given = {name: value for name, value in settings.items() if name in known}
    limit = given.pop("request_timeout", None)
    if limit:
        try:
            seconds = float(limit) if limit.isdigit() else parse_duration(limit)
        except ValueError:
            raise PluginError(f'invalid value for "--request-timeout": {limit}; accepted: 30s, 1m') from None
        given["request_timeout"] = seconds
    return Overrides(**given)


def run(ctx: click.Context, work: Callable[[Session], Awaitable[T]], *, managed_fields: bool = False) -> T:
    """Carry out a command. Every error ends as one line on standard error and exit code 1."""
    settings: dict[str, Any] = ctx.obj
    kubeconfig = settings.get("kubeconfig") or None

    async def main() -> T:
        overrides = overrides_of(settings)
        size = page_size()
        transport = await load(
            kubeconfig,
            overrides=overrides,
            on_warning=warn,
            user_agent="kubectl-kueue",
            keep_managed_fields=managed_fields,
        )
        try:
            client = Client(transport, page_size=size)
            where = namespace(kubeconfig or default_files(), overrides)
            return await work(Session(client, Types(client), where, Clock()))
        finally:
            await transport.close()

    try:
        return asyncio.run(main())
    except (ApiError, ConfigError, ConnectionError, TimeoutError, WrongInput) as error:
        raise PluginError(" ".join(str(error).split()) or type(error).__name__) from None
    except OSError as error:
        raise PluginError(f"{error.filename or 'the API server'}: {error.strerror or error}") from None


def warn(text: str) -> None:
    """A warning on standard error, as kubectl prints them."""
    click.echo(f"Warning: {text}", err=True)


def nothing_found(where: str | None) -> None:
    """What is printed where a list is empty."""
    place = f" in {where} namespace." if where is not None else ""
    click.echo(f"No resources found{place}", err=True)


def dry_run_of(value: str) -> str:
    """`none`, `client` or `server`. Raises ClickException for another value."""
    if value not in DRY_RUNS:
        raise PluginError(f'invalid dry-run value ({value}). Must be "none", "server", or "client"')
    return value


def change_printer(output: Output, operation: str, dry_run: str) -> Callable[[Object], None]:
    """Prints a changed object: `TYPE/NAME created (server dry run)`, or in the form that is wanted."""
    suffix = "" if dry_run == "none" else f" ({dry_run} dry run)"
    # For queues, stop and resume print no verb: only a dry run follows the name, after two spaces.
    verb = f" {operation}{suffix}" if operation or suffix else ""
    try:
        text = printer(output, verb)
    except WrongInput as error:
        raise PluginError(str(error)) from None
    return lambda obj: click.echo(text(obj), nl=False)
