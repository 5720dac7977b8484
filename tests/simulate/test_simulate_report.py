"""Reports and tables of simulations: what is in them, and that names of scenarios stay text."""
# ruff: noqa: E501 (the arrivals are one source a line)

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import plotly.graph_objects
import pytest
import yaml
from click.testing import CliRunner
from test_simulate_scenarios import job, queue

from pykueue.cli.simulate import simulate as command
from pykueue.simulate import Simulated, simulate
from pykueue.simulate.report.page import page
from pykueue.simulate.scenario.reading import ScenarioError
from pykueue.simulate.tables import TABLES

#: A name that runs as a script where it is taken for markup.
HOSTILE = "</script><script>document.title='ran'</script><img src=x onerror=document.title='ran'>"

OBJECTS = [
    *queue("q", 4, "c", preemption={"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}),
    *queue("r", 4, "c", preemption={"reclaimWithinCohort": "Any"})[1:],
    {
        "apiVersion": "pykueue.io/v1alpha1",
        "kind": "Budget",
        "metadata": {"name": "plenty"},
        "spec": {"selector": {"clusterQueue": "q"}, "resources": [{"name": "cpu", "hours": "1000"}]},
    },
]


def scenario(**more: Any) -> dict[str, Any]:
    """Two queues that borrow from each other, with preemptions in the first variant only."""
    loads = [
        {"generator": {"perHour": 12, "end": "6h", "jobs": [job(HOSTILE), job("large", podSets=[{"requests": {"cpu": 4}}])]}},
        {"generator": {"perHour": 9, "end": "6h", "jobs": [job("urgent", queue="team/r", priority=5, podSets=[{"requests": {"cpu": 2}}])]}},
    ]  # fmt: skip
    alone = [{"kind": "ClusterQueue", "name": name, "patch": {"spec": {"cohortName": None}}} for name in "qr"]
    head = {"apiVersion": "pykueue.io/v1alpha1", "kind": "Scenario", "name": HOSTILE}
    variants = [{"name": "shared"}, {"name": "alone", "patches": alone}]
    return {**head, "manifests": ["queues.yaml"], "arrivals": loads, "variants": variants, **more}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    folder = tmp_path_factory.mktemp("scenario")
    (folder / "queues.yaml").write_text(yaml.safe_dump_all(OBJECTS))
    (folder / "scenario.yaml").write_text(yaml.safe_dump(scenario(seeds=[1, 2])))
    return simulate(folder / "scenario.yaml")


@pytest.fixture(scope="module")
def report(simulated: Simulated) -> str:
    return page(simulated.prepared, simulated.outcomes, simulated.verdicts)


def data(report: str) -> dict[str, Any]:
    """What the script of a report reads."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', report, re.S)
    assert found is not None
    return json.loads(found[1])  # type: ignore[no-any-return]


def test_names_of_a_scenario_stay_text(report: str) -> None:
    assert "<script>document" not in report
    assert "<img" not in report
    assert html.escape(HOSTILE).replace("&#x27;", "&#39;") in report
    for chart in data(report)["charts"].values():
        assert "<script" not in json.dumps(chart)


def test_page_loads_nothing_and_runs_only_its_own_scripts(report: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', report)
    assert policy is not None
    scripts = re.findall(r"<script>(.*?)</script>", report, re.S)
    assert len(scripts) == 2
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"&#39;sha256-{digest}&#39;" in policy[1] or f"'sha256-{digest}'" in policy[1]
    assert policy[1].startswith("default-src 'none'")
    assert not re.search(r"<(?:link|script|img|iframe)[^>]*(?:src|href)=", report)


def test_charts_are_accepted_by_their_library(report: str) -> None:
    charts = data(report)["charts"]
    assert {name.rpartition("-")[0] for name in charts} == {
        "waits-by-class", "waits-by-size", "waits-by-queue", "usage", "preemptions", "fairness", "lost-work",
    }  # fmt: skip
    for chart in charts.values():
        plotly.graph_objects.Figure(chart["data"], chart["layout"])


def test_numbers_of_preemptions_are_readable_on_both_themes(report: str) -> None:
    (heat,) = data(report)["charts"]["preemptions-0"]["data"]
    # The library chooses the colour of a number by that of its cell, which is to be seen as it is.
    assert all(colour.startswith("#") for _, colour in heat["colorscale"])
    numbers = [number for line in heat["z"] for number in line]
    assert None in numbers
    assert 0 not in numbers


def test_timeline_leads_to_the_explanation_of_a_decision(report: str) -> None:
    lane = data(report)["lanes"][0]
    assert (lane["variant"], lane["seed"]) == ("shared", 1)
    entries = [entry for workload in lane["workloads"] for entry in workload["entries"]]
    assert {"Created", "Pending", "Admitted", "Preempted", "Finished"} <= {what for _, what, *_ in entries}
    texts = [text for _, what, text, _ in entries if what == "Pending"]
    assert any("insufficient unused quota for cpu in flavor default" in text for text in texts)
    preempted = next(entry for entry in entries if entry[1] == "Preempted")
    assert preempted[3] in {workload["name"] for workload in lane["workloads"]}
    for workload in lane["workloads"]:
        for begin, end, _ in workload["spans"]:
            assert 0 <= begin < end <= lane["end"]


def test_tables_agree_with_figures(simulated: Simulated) -> None:
    assert simulated.runs.shape[0] == 4
    for name in TABLES:
        frame = simulated.frame(name)
        assert frame.shape[0], name
        assert set(frame["variant"]) <= {"shared", "alone"}
    for row in simulated.runs.iter_rows(named=True):
        rows = simulated.waits.filter(variant=row["variant"], seed=row["seed"])
        assert rows["created"].sum() == row["created"]
    sizes = set(simulated.waits["size"])
    assert sizes == {"cpu 1", "cpu 2-3", "cpu 4-7"}
    assert simulated.preemptions.filter(variant="alone", preemptor="r").is_empty()
    shares = simulated.shares
    assert (shares["entitled"] - shares["received"] <= shares["deficit"] + 1e-6).all()


def test_run_in_detail_decides_the_same(simulated: Simulated, tmp_path: Path) -> None:
    (tmp_path / "queues.yaml").write_text(yaml.safe_dump_all(OBJECTS))
    file = tmp_path / "scenario.yaml"
    file.write_text(yaml.safe_dump(scenario(seeds=[1])))
    done = CliRunner().invoke(command, [str(file), "--processes", "1", "-o", "json"])
    decisions = [run["decisions"] for run in json.loads(done.stdout)["runs"]]
    assert decisions == simulated.runs.filter(seed=1)["decisions"].to_list()


def test_command_writes_report_and_tables(tmp_path: Path) -> None:
    (tmp_path / "queues.yaml").write_text(yaml.safe_dump_all(OBJECTS))
    file = tmp_path / "scenario.yaml"
    file.write_text(yaml.safe_dump(scenario(assertions=[{"metric": "jain", "atLeast": 0}])))
    options = ["--report", str(tmp_path / "r.html"), "--data", str(tmp_path / "d"), "--data-format", "csv"]
    done = CliRunner().invoke(command, [str(file), "--processes", "1", *options])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert {one.name for one in (tmp_path / "d").iterdir()} == {f"{name}.csv" for name in TABLES}
    missing = CliRunner().invoke(
        command, [str(file), "--processes", "1", "--report", str(tmp_path / "no/r.html")]
    )
    assert (missing.exit_code, "No such file or directory" in missing.stderr) == (2, True)


def test_unknown_variant_is_refused(tmp_path: Path) -> None:
    (tmp_path / "queues.yaml").write_text(yaml.safe_dump_all(OBJECTS))
    with pytest.raises(ScenarioError, match="'none' is not accepted; accepted: shared, alone"):
        simulate(yaml.safe_dump(scenario()), folder=tmp_path, variants=["none"])


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_browser_draws_every_chart_and_runs_no_other_script(report: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(report)
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000", "--dump-dom"]
    options.append(f"--user-data-dir={tmp_path / 'profile'}")
    done = subprocess.run(
        ["chromium", *options, file.as_uri()], capture_output=True, text=True, check=True, timeout=200
    )
    drawn = done.stdout
    assert len(re.findall(r'class="chart[^"]*js-plotly-plot"', drawn)) == len(data(report)["charts"]) + 1
    assert "<title>ran</title>" not in drawn
    assert 'id="story"' in drawn
    assert "Admitted" in drawn
