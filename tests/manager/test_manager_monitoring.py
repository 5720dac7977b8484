"""Alerts and dashboards: the metrics and labels that they name exist, and Prometheus accepts the expressions.

With promtool on the PATH, or named by PROMTOOL, the alerts are also evaluated over series.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pykueue.manager.install.monitoring import alerts_text, dashboard_text, dashboards

ROOT = Path(__file__).parents[2]
#: Metric -> its type and labels, as the page of metrics has them, which is compared with what is served.
METRICS = {
    cells[0]: (cells[1], {label.strip() for label in cells[2].split(",")} | {"replica_role"})
    for line in (ROOT / "docs/use/metrics.md").read_text().splitlines()
    if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 4
}
_METRIC = re.compile(r"\b((?:kueue|multikueue|leader_election)_\w+)(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"\b(?:by|on) \(([^)]*)\)")


def alert_expressions() -> Iterator[tuple[str, str]]:
    for group in yaml.safe_load(alerts_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


def panel_expressions() -> Iterator[tuple[str, str]]:
    for name, dashboard in dashboards().items():
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                yield f"{name}: {panel['title']}", target["expr"]


EXPRESSIONS = [*alert_expressions(), *panel_expressions()]


@pytest.mark.parametrize(("name", "expression"), EXPRESSIONS, ids=[name for name, _ in EXPRESSIONS])
def test_metrics_and_labels_of_an_expression_exist(name: str, expression: str) -> None:
    found = _METRIC.findall(expression)
    assert found
    labels: set[str] = {"le"}
    for metric, selectors in found:
        base = metric if metric in METRICS else metric.removesuffix("_bucket")
        assert base in METRICS, metric
        kind, known = METRICS[base]
        assert metric == base or kind == "histogram", f"{metric} is a {kind}"
        used = {selector.partition("=")[0].strip("! ~") for selector in selectors.split(",") if selector}
        assert used <= known, f"{metric} has no {used - known}"
        labels |= known
    grouped = {label.strip() for group in _GROUPED.findall(expression) for label in group.split(",")}
    assert grouped <= labels


def test_legends_name_labels_of_the_result() -> None:
    for dashboard in dashboards().values():
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                wanted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                grouped = {
                    label.strip() for group in _GROUPED.findall(target["expr"]) for label in group.split(",")
                }
                assert wanted <= grouped, panel["title"]


def test_every_alert_is_on_the_page_with_what_to_do() -> None:
    page = (ROOT / "docs/use/monitoring.md").read_text()
    assert re.findall(r"^\| `(Kueue\w+)` \|", page, re.MULTILINE) == [name for name, _ in alert_expressions()]


def test_panels_do_not_overlap() -> None:
    for dashboard in dashboards().values():
        places = [tuple(panel["gridPos"].values()) for panel in dashboard["panels"]]
        cells = [(x + i, y + j) for x, y, w, h in places for i in range(w) for j in range(h)]
        assert len(cells) == len(set(cells))
        assert dashboard_text(dashboard).endswith("}\n")


@pytest.fixture(scope="module")
def promtool() -> str:
    program = os.environ.get("PROMTOOL") or shutil.which("promtool")
    if not program:
        pytest.skip("promtool is not installed: put it on PATH or name it in PROMTOOL")
    return program


def test_prometheus_accepts_alerts_and_panels(promtool: str, tmp_path: Path) -> None:
    panels = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, (_, expression) in enumerate(panel_expressions())
    ]
    (tmp_path / "alerts.yaml").write_text(alerts_text())
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": panels}]}))
    done = subprocess.run(
        [promtool, "check", "rules", "alerts.yaml", "panels.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_when_they_should(promtool: str, tmp_path: Path) -> None:
    (tmp_path / "alerts.yaml").write_text(alerts_text())
    shutil.copy(Path(__file__).with_name("monitoring_alerts.yaml"), tmp_path / "tests.yaml")
    done = subprocess.run(
        [promtool, "test", "rules", "tests.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
