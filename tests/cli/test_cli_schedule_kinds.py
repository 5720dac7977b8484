"""`pykueue schedule` with jobs of every kind; the samples are those of the tests of the kinds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from pykueue.cli.schedule import schedule
from queue_manifests import NIGHTLY, cluster_queue, flavor, local_queue

SAMPLES = Path(__file__).parents[1] / "jobs" / "samples"
QUEUES = yaml.safe_dump_all(
    [
        flavor("f"),
        cluster_queue("cq", {"f": {"cpu": 100, "memory": "100Gi"}}),
        local_queue("lq", "cq"),
        NIGHTLY,
    ]
)


def decide(folder: Path) -> dict[str, Any]:
    result = CliRunner().invoke(schedule, ["-f", str(folder), "-o", "json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_samples_of_all_kinds_are_decided_on(tmp_path: Path) -> None:
    for sample in SAMPLES.glob("*.yaml"):
        shutil.copy(sample, tmp_path)
    (tmp_path / "queues.yaml").write_text(QUEUES)
    workloads = decide(tmp_path)["workloads"]
    assert {one["state"] for one in workloads.values()} == {"Admitted"}
    # Every file is a job, but for the runtime; the LeaderWorkerSet has two groups.
    assert len(workloads) == len(list(SAMPLES.glob("*.yaml"))) - 1 + 1
    ray = workloads["default/rayjob-tune"]["admission"]["podSetAssignments"]
    assert [(one["name"], one["count"]) for one in ray] == [("head", 1), ("workers", 2), ("submitter", 1)]


def test_train_job_without_its_runtime_is_an_error(tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "trainjob.yaml", tmp_path)
    (tmp_path / "queues.yaml").write_text(QUEUES)
    result = CliRunner().invoke(schedule, ["-f", str(tmp_path)])
    assert result.exit_code != 0
    assert "TrainJob default/tune: ClusterTrainingRuntime torch doesn't exist" in result.output


def test_broken_job_names_its_field_and_file(tmp_path: Path) -> None:
    text = (SAMPLES / "rayjob.yaml").read_text()
    (tmp_path / "wrong.yaml").write_text(text.replace("shutdownAfterJobFinishes: true", "suspend: false"))
    (tmp_path / "queues.yaml").write_text(QUEUES)
    result = CliRunner().invoke(schedule, ["-f", str(tmp_path)])
    assert result.exit_code != 0
    assert "wrong.yaml" in result.output
    assert "spec.shutdownAfterJobFinishes: Forbidden: must be true for a queued job" in result.output
