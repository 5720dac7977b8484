"""`completion bash|zsh|fish|powershell`: the script that switches completion on."""

from __future__ import annotations

import click

from .errors import fail
from .names import script
from .options import Command, exactly_one

SHELLS = ("bash", "fish", "powershell", "zsh")


@click.command("completion", cls=Command)
@click.argument("shells", nargs=-1, metavar="SHELL")
@click.pass_context
def completion(ctx: click.Context, /, shells: tuple[str, ...]) -> None:
    """Print the completion script for a shell: bash, fish, powershell or zsh.

    For example `source <(pykueue completion bash)`. Completion of `kubectl kueue` needs no script: kubectl
    finds the program kubectl_complete-kueue, which is installed beside pykueue.
    """
    shell = exactly_one(ctx, shells)
    if shell not in SHELLS:
        fail(f'no completion for shell "{shell}"; accepted values: {", ".join(SHELLS)}')
    root = ctx.find_root()
    program = (root.info_name or "pykueue").split()[0]
    click.echo(script(root.command, shell, "pykueue" if program == "kubectl" else program), nl=False)
