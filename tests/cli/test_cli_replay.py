"""`pykueue replay`: what is wrong with a recording is named."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pykueue.cli.replay import replay
from pykueue.engine import Engine
from pykueue.manager.recorder.files import Limits, SegmentWriter


def ask(path: Path, *options: str) -> Result:
    return CliRunner().invoke(replay, [str(path), *options])


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


_QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "q"},
    "spec": {},
}
_WORKLOAD = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}


@pytest.mark.parametrize(
    "entry",
    [
        {"at": 1767225601.0, "upsert": {}},
        {"at": 1767225601.0, "upsert": [1]},
        {"at": 1767225601.0, "upsert": {**_WORKLOAD, "metadata": {"name": "w"}}},
        {"at": 1767225601.0, "upsert": {**_WORKLOAD, "metadata": {"name": "w", "namespace": "n"}, "spec": 5}},
        {"at": 1767225601.0, "upsert": {**_QUEUE, "spec": "x"}},
        {"at": 1767225601.0, "removed": ["Workload"]},
        {"at": "soon", "cycle": []},
        {"at": 1767225601.0, "cycle": [{"kind": "Preempt"}]},
        {"at": 1767225601.0, "cycle": 5},
    ],
)
def test_damaged_entry_is_named_under_changed_rules_too(tmp_path: Path, entry: dict[str, object]) -> None:
    writer = SegmentWriter(tmp_path, Limits(), Engine(), 1767225600.0)
    writer._write({"at": 1767225600.0, "upsert": _QUEUE})
    writer._write(entry)
    writer.close()
    found = ask(tmp_path, "--stop", "q")
    assert (found.exit_code, "line 3: " in found.stderr) == (2, True), found.output


def test_recording_without_a_time_is_no_recording(tmp_path: Path) -> None:
    head = b'{"recording": "pykueue.io/v1alpha1", "items": []}\n'
    (tmp_path / "flight-00000001.jsonl.gz").write_bytes(gzip.compress(head, mtime=0))
    found = ask(tmp_path)
    assert (found.exit_code, "line 1: at: no time" in found.stderr) == (2, True), found.output
