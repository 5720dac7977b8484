"""Completion of arguments in PowerShell, for `completion powershell`."""

from __future__ import annotations

import os
from typing import Final

from click.shell_completion import CompletionItem, ShellComplete, add_completion_class

#: The words before the cursor and the word at it, each as PowerShell passes it.
_WORDS, _INCOMPLETE = "COMP_WORDS", "COMP_INCOMPLETE"

_SCRIPT: Final = """\
Register-ArgumentCompleter -Native -CommandName %(prog_name)s -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = @($commandAst.CommandElements |
        Where-Object { $_.Extent.EndOffset -lt $cursorPosition } |
        ForEach-Object { $_.Extent.Text } | Select-Object -Skip 1)
    $env:%(complete_var)s = "powershell_complete"
    $env:COMP_WORDS = $words -join "`n"
    $env:COMP_INCOMPLETE = $wordToComplete
    try {
        %(prog_name)s | ForEach-Object {
            $type, $value, $help = $_ -split "`t", 3
            if ($type -eq "plain") {
                if (-not $help) { $help = $value }
                [System.Management.Automation.CompletionResult]::new($value, $value, "ParameterValue", $help)
            }
        }
    } finally {
        Remove-Item Env:%(complete_var)s, Env:COMP_WORDS, Env:COMP_INCOMPLETE -ErrorAction SilentlyContinue
    }
}
"""


def register() -> None:
    """Make the shell known to click."""
    add_completion_class(PowerShellComplete)


class PowerShellComplete(ShellComplete):
    """PowerShell: a native argument completer that asks the program."""

    name = "powershell"
    source_template = _SCRIPT

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the cursor, and the one at it."""
        words = os.environ.get(_WORDS, "")
        return words.split("\n") if words else [], os.environ.get(_INCOMPLETE, "")

    def format_completion(self, item: CompletionItem) -> str:
        """One candidate: its type, its text, and its help."""
        return f"{item.type}\t{item.value}\t{item.help or ''}"
