"""Errors of the plugin's commands, as kubectl prints them."""

from __future__ import annotations

from typing import Any, NoReturn

import click


class PluginError(click.ClickException):
    """An error as kubectl's plugins print it: one line, code 1."""

    exit_code = 1


class UsageError(PluginError):
    """Wrong flags or arguments, with a hint at --help."""

    def __init__(self, message: str, command: str) -> None:
        super().__init__(message)
        self._command = command

    def show(self, file: Any = None) -> None:
        click.echo(f"Error: {self.message}", file=file, err=file is None)
        click.echo(f"See '{self._command} --help' for usage.", file=file, err=file is None)


def fail(message: str) -> NoReturn:
    """End with an error."""
    raise PluginError(message)
