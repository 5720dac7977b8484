"""The file of `pykueue up --clusters`: what it declares, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_processes import PATIENCE, ROOT
from click.testing import CliRunner

from pykueue.cli.clusters_file import ClustersError, load_clusters
from pykueue.cli.up import up
from pykueue.embedded.nodes.pool import PoolError

EXAMPLE = ROOT / "examples" / "multikueue" / "clusters.yaml"


def written(folder: Path, text: str) -> Path:
    path = folder / "clusters.yaml"
    path.write_text(text)
    return path


def test_example_has_a_manager_without_nodes_and_three_workers_with_manifests_beside_the_file() -> None:
    found = load_clusters(EXAMPLE)
    assert [one.name for one in found.clusters] == ["manager", "west", "north", "east"]
    assert found.manager.nodes() == "pools: []\n"
    assert "count: 2" in (found.workers[0].nodes() or "")
    assert found.workers[0].manifests == [str(EXAMPLE.parent / "worker.yaml")]
    assert found.lifetime == 86_400


def test_worker_without_pools_has_the_default_nodes(tmp_path: Path) -> None:
    assert load_clusters(written(tmp_path, "workers: [{name: w}]")).workers[0].nodes() is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("workers: []", "workers: has 0; accepted: 1 to 20"),
        ("workers: [{name: a}, {name: a}]", "workers[1].name: 'a' is the name of another cluster"),
        ("workers: [{name: manager}]", "workers[0].name: 'manager' is the name of another cluster"),
        ("workers: [{name: A/b}]", "workers[0].name: 'A/b' is not lower case letters"),
        ("workers: [{name: a, node: []}]", "workers[0]: Object contains unknown field `node`"),
        ("{manager: {name: x}, workers: [{name: a}]}", "manager.name: 'x' is not accepted"),
        ("{tokenLifetime: 1s, workers: [{name: a}]}", "tokenLifetime: 1s is not accepted; accepted: 10m"),
        ("{tokenLifetime: forever, workers: [{name: a}]}", "tokenLifetime: forever is not accepted"),
        ("{tokenLifetime: soon, workers: [{name: a}]}", "tokenLifetime: 'soon' is not a duration"),
        ("workers: [", "clusters.yaml"),
        ("", "has 0 YAML documents"),
    ],
)
def test_faulty_file_is_refused_with_its_field(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ClustersError) as error:
        load_clusters(written(tmp_path, text))
    assert words in str(error.value)


@pytest.mark.parametrize("field", ["manifests: [queues.yaml, none.yaml]", "config: none.yaml"])
def test_file_that_does_not_exist_is_refused_before_a_cluster_starts(tmp_path: Path, field: str) -> None:
    (tmp_path / "queues.yaml").write_text("")
    file = written(tmp_path, f"workers: [{{name: west, {field}}}]")
    with pytest.raises(ClustersError) as raised:
        load_clusters(file)
    assert str(raised.value) == f"{file}: west: {tmp_path}/none.yaml: no such file"


def test_faulty_pool_is_refused_with_its_cluster_and_field(tmp_path: Path) -> None:
    text = "workers: [{name: w, pools: [{name: p, allocatable: {cpu: x}}]}]"
    with pytest.raises(PoolError, match="w: pools"):
        load_clusters(written(tmp_path, text))


def test_cluster_stops_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    """Its standard input, a pipe of that process, ends then; 130: before the event loop has started."""
    options = ["--data-dir", str(tmp_path), "--port", "0", "--in-memory", "--no-dashboard"]
    command = [sys.executable, "-m", "pykueue.cli.main", "up", *options, "--job-kinds", "none"]
    ended = subprocess.run(
        [*command, "--until-end-of-input"], input="", capture_output=True, text=True, timeout=PATIENCE
    )
    assert ended.returncode in (0, 130), ended.stderr


@pytest.mark.parametrize(
    "option", [["--only", "kube"], ["--nodes", str(EXAMPLE)], ["--config", str(EXAMPLE)]]
)
def test_options_of_one_cluster_are_refused_with_clusters(tmp_path: Path, option: list[str]) -> None:
    ended = CliRunner().invoke(up, ["--data-dir", str(tmp_path), "--clusters", str(EXAMPLE), *option])
    assert ended.exit_code == 2
    assert f"{option[0]} cannot be used with --clusters" in ended.output
