"""`get`, `describe`, `edit`, `patch` and `delete` of Kueue's kinds, carried out by kubectl."""

from __future__ import annotations

import os
import shutil
from typing import Any

import click

from .errors import fail
from .options import ARGUMENTS, Command, Verb

#: Types that are passed on.
TYPES = ("workload", "clusterqueue", "localqueue", "resourceflavor")

VERBS = {
    "get": "Display a resource, with kubectl.",
    "describe": "Show details of a resource, with kubectl.",
    "edit": "Edit a resource on the server, with kubectl.",
    "patch": "Update fields of a resource, with kubectl.",
    "delete": "Delete a resource; the job of a Workload with it.",
}


class _Passed(Command):
    """Takes any arguments."""

    def __init__(self, name: str, help: str) -> None:
        super().__init__(
            name,
            callback=click.pass_context(_kubectl),
            help=help,
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args in (["-h"], ["--help"]):
            click.echo(self.get_help(ctx))
            ctx.exit()
        ctx.obj = {}
        return []


def _kubectl(ctx: click.Context, /) -> None:
    """Become kubectl with the arguments as they were typed."""
    program = shutil.which("kubectl")
    if program is None:
        verb = ctx.parent.info_name if ctx.parent is not None else ""
        path = os.environ.get("PATH", "")
        fail(f'kubectl, which carries out "{verb} {ctx.info_name}", is not found in PATH={path}')
    arguments: list[str] = ctx.meta[ARGUMENTS]
    os.execv(program, [program, *arguments])


def _verb(name: str) -> Verb:
    verb = Verb(name, help=VERBS[name])
    for kind in TYPES:
        if (name, kind) == ("delete", "workload"):
            from .delete import workload

            verb.add(workload)
        else:
            verb.add(_Passed(kind, f"Run `kubectl {name} {kind}`."))
    return verb


def __getattr__(name: str) -> Any:
    if name in VERBS:
        return _verb(name)
    raise AttributeError(name)
