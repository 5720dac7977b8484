"""`pykueue`, the command line.

Commands are imported when they are called, so that `pykueue --help` answers at once.
"""

from __future__ import annotations

import importlib
import signal
import sys

import click

import pykueue

#: Command name -> module of `pykueue.cli` that defines a click command of that name, and its one-line help.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("up", "Run the embedded cluster or parts of it."),
    "demo": ("demo", "Show how queueing whole jobs prevents a deadlock."),
    "dump": ("dump", "Print the manager's objects and state, as input for pykueue schedule."),
    "kind": ("kind", "Try kinds of jobs that JobKinds describe, and print the rights they need."),
    "manager": ("manager", "Run the manager against any cluster."),
    "manifests": ("manifests", "Print the installation for a cluster as YAML for kubectl."),
    "schedule": ("schedule", "Print decisions on plain manifests and their reasons, without a cluster."),
    "why": ("why", "Print why a Workload is pending, and the smallest changes that admit it."),
    "story": ("story", "Print what happened to a Workload, and why."),
}


class LazyGroup(click.Group):
    """A group whose commands live in modules of their own, imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"pykueue.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(pykueue.__version__, prog_name="pykueue")
def main() -> None:
    """Job queueing for Kubernetes that speaks Kueue's API and needs no cluster to try."""


def program(name: str | None = None) -> None:
    """`main` as a process (of this name, by default its file's), which SIGTERM ends from its first moment on.

    The first process of a container has no default for it: until a command takes it up, which its imports
    delay by a second, it would be lost, and the container killed when its time is over.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    main(prog_name=name)


if __name__ == "__main__":
    program("pykueue")
