"""How a long-running process logs: one JSON object per line for machines, or a line of text for people.

The flags are those that administrators know from controllers written in Go (docs/reference/kueue-api.md 3).
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from pykueue.kube.tracing import at_work

F = TypeVar("F", bound=Callable[..., Any])

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "error": logging.ERROR, "panic": logging.CRITICAL}
#: Up to this verbosity a number means `info`; above it, `debug`.
_VERBOSE = 2
_STACK_LEVELS = {"info": logging.INFO, "error": logging.ERROR, "panic": logging.CRITICAL}


def _iso(seconds: float, spec: str) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=spec).replace("+00:00", "Z")


_TIMES: dict[str, Callable[[float], object]] = {
    "epoch": lambda seconds: seconds,
    "millis": lambda seconds: seconds * 1e3,
    "nano": lambda seconds: int(seconds * 1e9),
    "iso8601": lambda seconds: _iso(seconds, "milliseconds"),
    "rfc3339": lambda seconds: _iso(seconds, "seconds"),
    "rfc3339nano": lambda seconds: _iso(seconds, "microseconds"),
}


def _name(level: int) -> str:
    return "panic" if level >= logging.CRITICAL else logging.getLevelName(level).lower()


class _Formatter(logging.Formatter):
    def __init__(self, time_encoding: str, stack_level: int) -> None:
        super().__init__()
        self._time = _TIMES[time_encoding]
        self._stack_level = stack_level

    def _stack(self, record: logging.LogRecord) -> str:
        if not record.exc_info or record.levelno < self._stack_level:
            return ""
        return "".join(traceback.format_exception(*record.exc_info)).rstrip()


class JsonFormatter(_Formatter):
    """One object per line: level, ts, logger, caller, msg, what was being worked on, and the error."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "level": _name(record.levelno),
            "ts": self._time(record.created),
            "logger": record.name,
            "caller": f"{record.filename}:{record.lineno}",
            "msg": record.getMessage(),
            **at_work(),
        }
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = str(record.exc_info[1])
        if stack := self._stack(record):
            fields["stacktrace"] = stack
        return json.dumps(fields, ensure_ascii=False, default=str)


class ConsoleFormatter(_Formatter):
    """Columns separated by tabs, then what was being worked on as JSON."""

    def format(self, record: logging.LogRecord) -> str:
        columns = [str(self._time(record.created)), _name(record.levelno).upper(), record.name]
        # A message of several lines must not pass for several messages.
        columns.append(record.getMessage().replace("\n", "\\n"))
        if work := at_work():
            columns.append(json.dumps(dict(work), ensure_ascii=False))
        stack = self._stack(record)
        return "\t".join(columns) + (f"\n{stack}" if stack else "")


def parse_level(text: str) -> int:
    """A level's name, or a verbosity. Raises ValueError."""
    if text in _LEVELS:
        return _LEVELS[text]
    if text.isdigit():
        return logging.INFO if int(text) <= _VERBOSE else logging.DEBUG
    raise ValueError(f"{text!r}: accepted values: {', '.join(_LEVELS)} and whole numbers")


def log_options(command: F) -> F:
    """Adds the logging flags to a command, which gets their values by the names of `start_logging`."""
    for option in (
        click.option(
            "--zap-log-level",
            "log_level",
            metavar="LEVEL",
            help="debug, info, error, panic, or a number: up to 2 is info, above it debug.  [default: info]",
        ),
        click.option(
            "--zap-encoder",
            "encoder",
            type=click.Choice(["json", "console"]),
            help="[default: console on a terminal, json elsewhere]",
        ),
        click.option(
            "--zap-devel",
            "devel",
            is_flag=True,
            help="Defaults for development: console encoder, level debug.",
        ),
        click.option(
            "--zap-stacktrace-level",
            "stack_level",
            type=click.Choice(list(_STACK_LEVELS)),
            default="error",
            show_default=True,
            help="Level from which on errors are logged with a stack trace.",
        ),
        click.option(
            "--zap-time-encoding",
            "time_encoding",
            type=click.Choice(list(_TIMES)),
            default="rfc3339nano",
            show_default=True,
        ),
    ):
        command = option(command)
    return command


def start_logging(
    log_level: str | None, encoder: str | None, devel: bool, stack_level: str, time_encoding: str
) -> None:
    """Log to stderr from now on. Raises click.BadParameter for a level that is none."""
    try:
        level = parse_level(log_level) if log_level is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--zap-log-level") from None
    if level is None:
        level = logging.DEBUG if devel else logging.INFO
    if encoder is None:
        encoder = "console" if devel or sys.stderr.isatty() else "json"
    kind = JsonFormatter if encoder == "json" else ConsoleFormatter
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(kind(time_encoding, _STACK_LEVELS[stack_level]))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # Python's own loop and libraries tell of every select and connection at debug.
    for noisy in ("asyncio", "aiohttp"):
        logging.getLogger(noisy).setLevel(max(level, logging.INFO))
    logging.captureWarnings(True)
