"""`pykueue simulate`: what it prints, what it keeps, and its exit codes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pykueue.cli.simulate import simulate

EXAMPLE = Path(__file__).parents[2] / "examples" / "simulate"

SCENARIO = """
apiVersion: pykueue.io/v1alpha1
kind: Scenario
name: small
manifests: [%s]
seeds: [3, 4]
arrivals:
- generator:
    perHour: 1.2
    end: 2d
    jobs:
    - {name: train, queue: research/jobs, podSets: [{requests: {nvidia.com/gpu: 8}}], runTime: {fixed: 1h}}
variants:
- name: shared
- name: alone
  patches: [{kind: ClusterQueue, name: research, patch: {spec: {cohortName: null}}}]
assertions:
- {metric: wait.p90, variant: %s, atMost: 2h}
"""


@pytest.fixture
def invoke(tmp_path: Path):  # type: ignore[no-untyped-def]
    def call(*options: str, variant: str = "shared") -> Result:
        file = tmp_path / "scenario.yaml"
        file.write_text(SCENARIO % (EXAMPLE / "queues.yaml", variant))
        return CliRunner().invoke(simulate, [str(file), "--processes", "1", *options])

    return call


def test_variants_stand_side_by_side_and_assertions_set_the_exit_code(invoke) -> None:  # type: ignore[no-untyped-def]
    found = invoke("--by", "queue")
    assert found.exit_code == 0, found.output
    assert "small: 2 seeds" in found.stdout
    assert "ClusterQueue research" in found.stdout
    assert "2 of 2 assertions hold" in found.stdout
    failed = invoke(variant="alone")
    assert failed.exit_code == 1
    assert "FAILED wait.p90 is at most 2h0m0s: " in failed.stdout


def test_json_and_csv_have_every_figure_of_every_run(invoke) -> None:  # type: ignore[no-untyped-def]
    document = json.loads(invoke("-o", "json").stdout)
    assert [(run["variant"], run["seed"]) for run in document["runs"]] == [
        ("shared", 3),
        ("shared", 4),
        ("alone", 3),
        ("alone", 4),
    ]
    run = document["runs"][0]
    assert run["figures"]["created"] == run["groups"][0]["figures"]["created"]
    lines = invoke("-o", "csv").stdout.splitlines()
    assert lines[0].startswith("variant,seed,clusterQueue,class,wait.mean")
    assert len(lines) == 1 + 4 * 2


def test_results_are_kept_and_not_repeated(invoke, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "results"
    first = invoke("--results", str(folder), "--variant", "alone", variant="")
    log = folder / "decisions-alone-3.jsonl.gz"
    lines = gzip.decompress(log.read_bytes()).splitlines()
    assert {json.loads(line)["what"] for line in lines} == {"Create", "Admit", "End"}
    log.unlink()
    again = invoke("--results", str(folder), "--variant", "alone", "--processes", "2", variant="")
    assert (again.stdout, again.exit_code) == (first.stdout, first.exit_code)
    assert not log.exists()


def test_wrong_input_is_one_line_for_each_problem(invoke, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    found = invoke("--variant", "other")
    assert found.exit_code == 2
    assert "--variant: 'other' is not accepted; accepted: shared, alone" in found.stderr
    missing = CliRunner().invoke(simulate, [str(tmp_path / "none.yaml")])
    assert (missing.exit_code, missing.stderr) == (
        2,
        f"Error: {tmp_path}/none.yaml: cannot be read: No such file or directory\n",
    )


def test_the_example_holds_what_it_asserts() -> None:
    found = CliRunner().invoke(
        simulate, [str(EXAMPLE / "two-teams.yaml"), "--processes", "1", "--seeds", "1"]
    )
    assert found.exit_code == 0, found.output


@pytest.mark.parametrize(
    "name", ["starvation", "blocked-borrowing", "fair-ratio", "preemption-loop", "failing-nodes"]
)
def test_variants_of_an_example_behave_as_asserted(name: str) -> None:
    done = CliRunner().invoke(simulate, [str(EXAMPLE / f"{name}.yaml"), "--processes", "1"])
    assert done.exit_code == 0, done.output


def test_what_is_wrong_with_a_scenario_is_named_by_file_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    text = SCENARIO % (EXAMPLE / "queues.yaml", "shared")
    for wrong, expected in (
        (text.replace("fixed: 1h", "fixed: -1h"), 'runTime.fixed: "-1h" is not accepted'),
        (text.replace("seeds", "seed"), "seed: unknown field"),
        (text.replace("research/jobs", "research/job"), "queue: LocalQueue research/job is not among the"),
        (text.replace("gpu: 8", "gpu: x"), "podSets[0].requests.nvidia.com/gpu: 'x' is not a quantity"),
    ):
        file.write_text(wrong)
        found = CliRunner().invoke(simulate, [str(file)])
        assert found.exit_code == 2, found.output
        # One problem alone: a value that is not accepted is not missing too.
        (line,) = found.stderr.splitlines()
        assert expected in line
        number, column = map(int, line.removeprefix(f"Error: {file}:").split(":")[:2])
        place = wrong.splitlines()[number - 1][column - 1 :]
        assert place.startswith(("-1h", "[3, 4]", "research/job,", "x}"))
