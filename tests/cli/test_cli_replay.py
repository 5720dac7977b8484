"""`pykueue replay`: what is wrong with a recording is named."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pykueue.cli.replay import replay
from pykueue.engine import Engine
from pykueue.manager.recorder.files import Limits, SegmentWriter


def ask(path: Path) -> Result:
    return CliRunner().invoke(replay, [str(path)])


def test_a_recording_without_events_is_replayed(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, Limits(), Engine(), 1767225600.0)
    writer.close()
    found = ask(tmp_path)
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines()[0] == (
        "2026-01-01T00:00:00Z to 2026-01-01T00:00:00Z: 1 file, 0 events, 0 cycles, 0 decisions"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no recording (flight-*.jsonl.gz)"),
        (b"", "the recording is empty"),
        (b"text", "at byte 4: Error -3 while decompressing data"),
        (gzip.compress(b"{}\n", mtime=0), "line 1: no recording of format pykueue.io/v1alpha1"),
        (gzip.compress(b"[1]\n", mtime=0), "line 1: is no object"),
        (gzip.compress(b"{,\n", mtime=0), "line 1: "),
    ],
)
def test_what_is_no_recording_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "flight-00000001.jsonl.gz").write_bytes(content)
    found = ask(tmp_path)
    assert (found.exit_code, message in found.stderr) == (2, True), found.output


def test_a_line_that_is_no_entry_is_named(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, Limits(), Engine(), 1767225600.0)
    writer._write({"unknown": 1})
    writer.close()
    found = ask(tmp_path)
    assert (found.exit_code, "line 2: " in found.stderr) == (2, True), found.output
