"""kubectl's connection flags on every command of the plugin, before or after the verb, and its errors.

Wrong flags and arguments end with 1, like all other errors: kubectl and its plugins know no other code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import click

from .errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

#: Where the root command keeps the arguments as they were typed, for commands that pass them on.
ARGUMENTS = "pykueue.plugin.arguments"

#: The other names of each type, as Kueue's plugin accepts them.
ALIASES = {
    "clusterqueue": ("cq", "clusterqueues"),
    "localqueue": ("lq", "localqueues"),
    "pods": ("po", "pod"),
    "resourceflavor": ("rf", "resourceflavors"),
    "workload": ("kwl", "kueueworkload", "kueueworkloads", "workloads"),
}

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")


def global_options() -> list[click.Option]:
    """The flags of kubectl. `--cache-dir` and `--disable-compression` are accepted without an effect."""

    def option(*names: str, **settings: Any) -> click.Option:
        return click.Option(names, **settings)

    return [
        option("-n", "--namespace", help="Namespace of the request.", shell_complete=_complete("namespaces")),
        option("--kubeconfig", help="Kubeconfig file; default: $KUBECONFIG, or ~/.kube/config."),
        option("--context", help="Context of the kubeconfig.", shell_complete=_complete("contexts")),
        option("--cluster", help="Cluster of the kubeconfig.", shell_complete=_complete("clusters")),
        option("--user", help="User of the kubeconfig.", shell_complete=_complete("users")),
        option("-s", "--server", help="Address of the API server."),
        option("--token", help="Bearer token."),
        option("--as", "impersonate", metavar="USER", help="User to impersonate."),
        option("--as-group", "impersonate_groups", multiple=True, help="Group to impersonate; repeatable."),
        option("--as-uid", "impersonate_uid", help="UID to impersonate."),
        option("--as-user-extra", "impersonate_extra", multiple=True, help="Extra of the user; repeatable."),
        option("--certificate-authority", help="Certificate of the authority."),
        option("--client-certificate", help="Client certificate."),
        option("--client-key", help="Key of the client certificate."),
        option("--tls-server-name", help="Name that the server's certificate is checked against."),
        option("--insecure-skip-tls-verify", "insecure", is_flag=True, help="Do not verify the server."),
        option("--request-timeout", metavar="DURATION", help="Time limit of one request, such as 30s."),
        option("--cache-dir", hidden=True),
        option("--disable-compression", is_flag=True, hidden=True),
    ]


def flags_after_verb(args: Sequence[str], verbs: Collection[str]) -> list[str]:
    """Arguments that begin with connection flags, with the verb moved to the front; else as they are."""
    switches = {name: bool(option.is_flag) for option in global_options() for name in option.opts}
    position = 0
    while position < len(args) and args[position].startswith("-"):
        name, equals, _ = args[position].partition("=")
        if name not in switches:
            return list(args)
        position += 1 if equals or switches[name] else 2
    if position >= len(args) or args[position] not in verbs:
        return list(args)
    return [args[position], *args[:position], *args[position + 1 :]]


def _complete(what: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """A completion that is imported when it is asked for."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        from .names import complete as found

        return found(ctx, what, incomplete)

    return complete


class _Globals(click.Command):
    """Takes the connection flags; what is given here wins over what is given before the verb."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.connection = global_options()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *self.connection]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            rest = super().parse_args(ctx, self._plain_flags(args))
        except click.UsageError as error:
            raise usage(ctx, error) from None
        above = ctx.parent.obj if ctx.parent is not None and isinstance(ctx.parent.obj, dict) else {}
        here = {option.name: ctx.params.pop(option.name or "", None) for option in self.connection}
        ctx.obj = {**above, **{name: value for name, value in here.items() if value}}
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = [param.get_help_record(ctx) for param in super().get_params(ctx)]
        shared = [param.get_help_record(ctx) for param in self.connection]
        for title, records in (("Options", own), ("Connection options", shared)):
            shown = [record for record in records if record is not None]
            if shown:
                with formatter.section(title):
                    formatter.write_dl(shown)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)

    def _plain_flags(self, args: Sequence[str]) -> list[str]:
        """Switches with a value, `--yes=false`, as switches that are there or not; `-l=a` as `-la`."""
        switches = {
            name for param in [*self.params, *self.connection] for name in param.opts if _is_switch(param)
        }
        plain: list[str] = []
        for position, arg in enumerate(args):
            if arg == "--":
                return [*plain, *args[position:]]
            name, equals, value = arg.partition("=")
            if equals and name in switches:
                if value in _TRUE:
                    plain.append(name)
                elif value not in _FALSE:
                    raise click.UsageError(f'invalid argument "{value}" for "{name}" flag: not a boolean')
            elif equals and len(name) == 2 and name[0] == "-" and name[1] != "-":
                plain += [name, value]
            else:
                plain.append(arg)
        return plain


def _is_switch(param: click.Parameter) -> bool:
    return isinstance(param, click.Option) and bool(param.is_flag)


def usage(ctx: click.Context, error: click.UsageError) -> click.ClickException:
    """A usage error in the words of kubectl's plugins."""
    message = error.message
    if isinstance(error, click.NoSuchOption):
        name = error.option_name
        message = (
            f"unknown flag: {name}" if name.startswith("--") else f"unknown shorthand flag: '{name[1:]}'"
        )
    elif isinstance(error, click.BadOptionUsage) and "requires an argument" in message:
        message = f"flag needs an argument: {error.option_name}"
    elif message.startswith("Got unexpected extra argument"):
        message = "accepts no more arguments: " + message.partition("(")[2].rstrip(")")
    return UsageError(message, ctx.command_path)


class Command(_Globals):
    """A verb's command."""


class Verb(_Globals, click.Group):
    """A verb, with a command for each type. Without one it prints its help."""

    command_class = Command

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, invoke_without_command=True, **settings)
        self._aliases: dict[str, str] = {}

    def add(self, command: click.Command) -> None:
        """Add the command of a type, under the other names of the type too."""
        name = command.name or ""
        self.add_command(command)
        self._aliases |= dict.fromkeys(ALIASES[name], name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self._aliases.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:
            message = f'unknown command "{args[0]}" for "{ctx.command_path}"'
            raise UsageError(message, ctx.command_path)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        if not ctx._protected_args and not ctx.args:
            click.echo(ctx.get_help())
            return None
        return super().invoke(ctx)


def exactly_one(ctx: click.Context, arguments: Sequence[str]) -> str:
    """The one argument. Raises for more or fewer."""
    if len(arguments) != 1:
        raise UsageError(f"accepts 1 arg(s), received {len(arguments)}", ctx.command_path)
    return arguments[0]


def values_of(texts: Sequence[str]) -> list[str]:
    """The values of a flag that is repeated, or given once with commas."""
    return [part for text in texts for part in text.split(",") if part]


def required(ctx: click.Context, **values: str | None) -> None:
    """Refuse flags that are missing."""
    missing = [f'"{name}"' for name, value in values.items() if not value]
    if missing:
        raise UsageError(f"required flag(s) {', '.join(missing)} not set", ctx.command_path)


def output_options(command: F) -> F:
    """`-o` and the flags that go with it: the fields of `Output` as parameters."""
    for option in (
        click.option("-o", "--output", "form", default="", help="Form: json, yaml, name, jsonpath=..., ..."),
        click.option("--template", default="", help="Template, or its file, of the form."),
        click.option(
            "--allow-missing-template-keys/--no-allow-missing-template-keys",
            "allow_missing",
            default=True,
            help="Whether missing fields are empty in templates instead of errors.",
        ),
        click.option("--show-managed-fields", "managed_fields", is_flag=True, help="Print managedFields."),
    ):
        command = option(command)
    return command


dry_run_option = click.option(
    "--dry-run",
    default="none",
    metavar="STRATEGY",
    help="none, client (send nothing) or server (let the server check, without storing).",
)
