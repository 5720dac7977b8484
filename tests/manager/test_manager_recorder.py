"""The flight recorder: what the manager decided is decided again from its files, byte for byte."""

from __future__ import annotations

import errno
import gzip
import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import recorder_world
from manager_stack import Stack, job

from pykueue.api.resources import CLUSTER_QUEUES, JOBS
from pykueue.manager.recorder import Limits, files
from pykueue.manager.recorder.component import RETRY_SECONDS
from pykueue.manager.recorder.files import RecordingError, prepare_directory, segments
from pykueue.simulate.recorded.reading import segments as read
from pykueue.simulate.recorded.replay import replay
from queue_manifests import cluster_queue, flavor, local_queue, priority

SECRET = "s3cr3t"
QUEUES = [
    flavor(),
    cluster_queue("a", {"cpu": 4}, cohortName="lab", preemption={"withinClusterQueue": "LowerPriority"}),
    cluster_queue("b", {"cpu": 4}, cohortName="lab", preemption={"reclaimWithinCohort": "Any"}),
    local_queue("a"),
    local_queue("b"),
    priority("high", 100),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "flight"


async def work(s: Stack) -> None:
    """Jobs borrow, are preempted, end; a queue gets more quota."""
    template = job("x")["spec"]["template"]
    container = template["spec"]["containers"][0]
    container |= {"env": [{"name": "TOKEN", "value": SECRET}], "args": [SECRET]}
    await s.apply(job("borrower", 6, queue="a", template=template))
    await s.apply(job("pending", 8, queue="a"))
    await s.settle()
    await s.apply(job("owner", 4, queue="b", annotations={"note": SECRET}))
    await s.settle(10)
    if await s.suspended("borrower"):
        await s.stop_pods("borrower")
    await s.apply(job("urgent", 4, queue="a", labels={"kueue.x-k8s.io/priority-class": "high"}))
    await s.settle(10)
    await s.run_job("owner")
    await s.finish_job("owner")
    await s.settle(10)
    queue = deepcopy(await s.get(CLUSTER_QUEUES, "a"))
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "12"
    await s.patch(CLUSTER_QUEUES, "a", {"spec": {"resourceGroups": queue["spec"]["resourceGroups"]}})
    await s.settle(10)
    await s.delete(JOBS, "pending")
    await s.settle(10)


def record(folder: Path, limits: Limits | None = None, life: Any = work) -> None:
    recorder_world.record(folder, life, QUEUES, limits)


def test_replay_decides_what_the_manager_decided(folder: Path) -> None:
    record(folder)
    (file,) = segments(folder)
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    found = replay(folder)
    assert found.first_difference is None
    assert (found.different, found.recorded) == (0, found.replayed)
    kinds = {each["kind"] for each in decisions(file)}
    assert kinds == {"Admit", "Preempt", "Requeue"}
    assert (found.segments, found.gaps, found.decisions) == (1, [], len(decisions(file)))


def test_a_changed_recording_is_found_out(folder: Path) -> None:
    record(folder)
    (file,) = segments(folder)
    text = gzip.decompress(file.read_bytes()).replace(b'"nominalQuota":"12"', b'"nominalQuota":"5"')
    file.write_bytes(gzip.compress(text))
    found = replay(file)
    assert found.different > 0
    assert found.first_difference is not None
    assert found.recorded != found.replayed


def test_nothing_of_pods_is_written_but_what_decisions_read(folder: Path) -> None:
    record(folder)
    (file,) = segments(folder)
    text = gzip.decompress(file.read_bytes()).decode()
    assert '"requests":{"cpu":"1"}' in text
    assert SECRET not in text
    assert not {'"env"', '"args"', '"image"', '"volumes"'} & set(text.split(":"))


def test_what_was_flushed_before_a_crash_is_replayed(folder: Path) -> None:
    record(folder)
    (file,) = segments(folder)
    whole = replay(folder)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) * 3 // 4])
    part = replay(folder)
    assert part.different == 0
    assert 0 < part.events + part.cycles < whole.events + whole.cycles


def test_another_leader_goes_on_with_a_marked_gap(folder: Path) -> None:
    record(folder)
    record(folder)
    found = replay(folder)
    assert (found.segments, len(found.gaps), found.different) == (2, 1, 0)


def test_rotation_leaves_no_gap_and_keeps_within_its_size(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_SEGMENT_BYTES_MIN", 1)
    monkeypatch.setattr(files, "_CHUNK", 1)
    record(folder, Limits(size_bytes_max=8_000))
    found = segments(folder)
    assert len(found) > 1
    assert found[0].name > "flight-00000001.jsonl.gz"
    assert sum(each.stat().st_size for each in found[:-1]) <= 8_000
    answer = replay(folder)
    assert (answer.gaps, answer.different) == ([], 0)


def test_a_full_disk_stops_the_recording_and_not_the_manager(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full = False
    write = files.SegmentWriter._append

    def append(writer: files.SegmentWriter, data: bytes) -> None:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(writer, data)

    monkeypatch.setattr(files.SegmentWriter, "_append", append)
    series: list[tuple[float | None, float | None]] = []

    async def life(s: Stack) -> None:
        def note() -> None:
            value = s.manager.metrics.registry.value
            names = ("pykueue_flight_recorder_active", "pykueue_flight_recorder_errors_total")
            series.append((value(names[0]), value(names[1])))

        nonlocal full
        note()
        full = True
        await work(s)
        note()
        full = False
        await s.settle(RETRY_SECONDS + 10)
        note()
        await s.apply(job("later", queue="a"))
        await s.settle()

    record(folder, life=life)
    assert series == [(1, 0), (0, 1), (1, 1)]
    assert "No space left on device" in caplog.text
    found = replay(folder)
    assert (found.segments, len(found.gaps), found.different) == (2, 1, 0)
    last = decisions(segments(folder)[-1])
    assert any(each["workload"].startswith("default/job-later") for each in last)


def test_a_directory_that_others_can_read_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(RecordingError, match=r"mode is 0755; accepted: 0700"):
        prepare_directory(tmp_path)


def decisions(file: Path) -> list[dict[str, Any]]:
    (segment,) = read(file)
    return [each for entry in segment.entries() for each in entry.get("cycle", ())]
