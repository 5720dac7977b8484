"""`pykueue`, the command line.

Commands are imported when they are called, so that `pykueue --help` answers at once.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from types import ModuleType
from typing import Any

import click

from pykueue import extras
from pykueue.cli.memory import use_huge_pages
from pykueue.cli.plugin.errors import UsageError
from pykueue.cli.plugin.options import ARGUMENTS, flags_after_verb

#: Command name -> module of `pykueue.cli` that defines a click command of that name, and its one-line help.
COMMANDS: dict[str, tuple[str, str]] = {
    "completion": ("plugin.completion", "Print the completion script for a shell."),
    "create": ("plugin.create", "Create a ClusterQueue, LocalQueue or ResourceFlavor."),
    "delete": ("plugin.passed", "Delete a resource; the job of a Workload with it."),
    "describe": ("plugin.passed", "Show details of a resource, with kubectl."),
    "edit": ("plugin.passed", "Edit a resource on the server, with kubectl."),
    "get": ("plugin.passed", "Display a resource, with kubectl."),
    "list": ("plugin.list", "List queues, flavors, workloads, or the pods of a job."),
    "patch": ("plugin.passed", "Update fields of a resource, with kubectl."),
    "populator": ("satellites", "Create a LocalQueue in every namespace that a ClusterQueue admits from."),
    "preemptions": ("questions", "Print the latest preemptions, their preemptors and the lost work."),
    "priority-booster": (
        "satellites",
        "Lower the priority of Workloads admitted for longer than an interval.",
    ),
    "reservations": ("questions", "Print what is reserved and when, by flavor."),
    "resume": ("plugin.stop", "Resume a Workload or queue that was stopped."),
    "stop": ("plugin.stop", "Stop a Workload or the admission of a queue."),
    "version": ("plugin.version", "Print the version of the client, and the image of the manager."),
    "up": ("up", "Run the embedded cluster or parts of it."),
    "check": ("check", "Check queues and policies in a folder before they are applied."),
    "dashboard": ("dashboard", "Serve web pages, with the rights of the user who signs in."),
    "demo": ("demo", "Show how queueing whole jobs prevents a deadlock."),
    "dump": ("dump", "Print the manager's objects and state, as input for pykueue schedule."),
    "fairness": ("fairness", "Print what queues were entitled to and got, from a recording."),
    "importer": ("importer", "Create admitted Workloads for running pods."),
    "kind": ("kind", "Try kinds of jobs that JobKinds describe, and print the rights they need."),
    "manager": ("manager", "Run the manager against any cluster."),
    "manifests": ("manifests", "Print the installation for a cluster as YAML for kubectl."),
    "replay": ("replay", "Repeat a recording of the manager and compare the decisions."),
    "schedule": ("schedule", "Print decisions on plain manifests and their reasons, without a cluster."),
    "simulate": ("simulate", "Run a scenario in virtual time, decided by the production engine."),
    "trace": ("trace", "Show what is in a public trace, or fit a scenario to it."),
    "top": ("questions", "Print how full queues, cohorts, flavors and nodes are."),
    "share": ("questions", "Print what each queue is entitled to, and what it has."),
    "used": (
        "questions",
        "Print the resource-hours that workloads held, by queue, namespace or label.",
    ),
    "budget": ("questions", "Print how much of Budgets is used, and when they will be used up."),
    "whatif": ("whatif_options", "Print what other quota, policies, nodes or jobs would lead to."),
    "when": ("questions", "Print the interval in which a pending Workload will start."),
    "why": ("questions", "Print why a Workload is pending, and the smallest changes that admit it."),
    "shadow": (
        "questions",
        "Decide beside the manager of a cluster and report differences. Only reads.",
    ),
    "story": ("questions", "Print what happened to a Workload, and why."),
}

#: Commands that need an extra of the package, and which.
NEEDS: dict[str, str] = {"demo": "cluster", "up": "cluster"}

#: Commands that take kubectl's connection flags, also before their name.
PLUGIN = frozenset(name for name, (module, _) in COMMANDS.items() if module.startswith("plugin."))

#: What the program is called as kubectl's plugin.
PLUGIN_NAME = "kubectl kueue"


def _imported(name: str) -> ModuleType:
    """The module of a command, with all that it imports out of the garbage collector's way.

    Modules live as long as the process: to search them for garbage, again and again while they are imported
    and once more at the end, was a quarter of the time of a short command.
    """
    if name in sys.modules:
        return sys.modules[name]
    collecting = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        if collecting:
            gc.enable()


class LazyGroup(click.Group):
    """A group whose commands are in separate modules, imported on first use."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # For commands that pass them on to kubectl.
        ctx.meta[ARGUMENTS] = list(args)
        if args and args[0].startswith("-"):
            args = flags_after_verb(args, PLUGIN)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if ctx.info_name == PLUGIN_NAME and args[0] not in COMMANDS:
            raise UsageError(f'unknown command "{args[0]}" for "{ctx.info_name}"', PLUGIN_NAME)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(128 + signal.SIGINT)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        extra = NEEDS.get(cmd_name)
        if extra and not extras.installed(extra):
            packages = ", ".join(extras.missing(extra))
            raise click.ClickException(
                f"pykueue {cmd_name} needs the extra '{extra}' ({packages}); {extras.how_to_install(extra)}"
            )
        module = _imported(f"pykueue.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pykueue", prog_name="pykueue")
def main() -> None:
    """Job queueing for Kubernetes that speaks Kueue's API and needs no cluster to try."""


def program(name: str | None = None) -> None:
    """`main` as a process (of this name, by default its file's), which SIGTERM ends from its first moment on.

    The first process of a container has no default for it: until a command takes it up, which its imports
    delay by a second, it would be lost, and the container killed when its time is over.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    use_huge_pages()
    if "powershell_complete" in os.environ.values():
        from pykueue.cli.plugin.powershell import register

        register()
    main(prog_name=name)


def plugin() -> None:
    """`main` as kubectl's plugin `kubectl kueue`."""
    program(PLUGIN_NAME)


def kubectl_complete() -> None:
    """The program `kubectl_complete-kueue`, which kubectl runs to complete arguments of the plugin."""
    from pykueue.cli.plugin.names import kubectl_answer

    print("\n".join(kubectl_answer(main, sys.argv[1:])))


if __name__ == "__main__":
    program("pykueue")
