"""What a long-running process logs: for machines and for people, and never a secret."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextvars import copy_context

import click
import pytest

from pykueue.cli.logs import ConsoleFormatter, JsonFormatter, parse_level, start_logging
from pykueue.kube.tracing import at_work, reconciling, tracing


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def start(level: str | None = None, encoder: str | None = None, devel: bool = False) -> logging.Logger:
    start_logging(level, encoder, devel, "error", "rfc3339")
    return logging.getLogger("pykueue.test")


def test_away_from_a_terminal_each_line_is_an_object_that_says_what_was_worked_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = start()
    log.debug("not told")
    with tracing(requestID="r1"):
        log.info("asked for %s\nand more", "x")

    def reconcile() -> str:
        reconciling("jobs", ("default", "a"))
        log.warning("odd")
        return at_work()["object"]

    assert copy_context().run(reconcile) == "default/a"
    assert at_work() == {}
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (first["level"], first["msg"], first["requestID"]) == ("info", "asked for x\nand more", "r1")
    assert first["caller"].startswith("test_cli_logs.py:")
    assert (second["controller"], second["object"]) == ("jobs", "default/a")
    assert second["reconcileID"].isdigit()
    assert "requestID" not in second


def test_errors_come_with_their_trace_from_the_level_that_was_chosen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = start()
    try:
        raise ValueError("broken")
    except ValueError:
        log.warning("below", exc_info=True)
        log.exception("at")
    below, at = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert "stacktrace" not in below
    assert (at["error"], "ValueError: broken" in at["stacktrace"]) == ("broken", True)


def test_terminal_output_has_columns_and_one_line_per_message(capsys: pytest.CaptureFixture[str]) -> None:
    log = start(encoder="console")
    log.info("one\ntwo")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.split("\t")[1:] == ["INFO", "pykueue.test", "one\\ntwo"]


def test_times_are_written_as_chosen() -> None:
    record = logging.LogRecord("n", logging.INFO, "p", 1, "m", (), None)
    record.created = 1.5
    formats = {
        "epoch": 1.5,
        "millis": 1500.0,
        "nano": 1500000000,
        "iso8601": "1970-01-01T00:00:01.500Z",
        "rfc3339": "1970-01-01T00:00:01Z",
        "rfc3339nano": "1970-01-01T00:00:01.500000Z",
    }
    for name, expected in formats.items():
        assert json.loads(JsonFormatter(name, logging.ERROR).format(record))["ts"] == expected
    assert ConsoleFormatter("iso8601", logging.ERROR).format(record).startswith("1970-01-01T00:00:01.500Z\t")


@pytest.mark.parametrize(
    ("text", "level"),
    [("debug", logging.DEBUG), ("error", logging.ERROR), ("2", logging.INFO), ("5", logging.DEBUG)],
)
def test_levels_have_names_and_numbers(text: str, level: int) -> None:
    assert parse_level(text) == level


def test_unknown_log_level_is_rejected() -> None:
    with pytest.raises(click.BadParameter, match="accepted values: debug, info"):
        start("loud")
    start(devel=True)
    assert logging.getLogger().level == logging.DEBUG
