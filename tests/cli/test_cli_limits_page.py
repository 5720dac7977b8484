"""The page of limits lists every limit of the source, with its value."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "pykueue"
PAGE = ROOT / "docs" / "use" / "limits.md"
UNITS = {"": 1, "s": 1, "KiB": 1024, "MiB": 1024 * 1024}
ROW = re.compile(r"\| .+ \| ([0-9]+)(?: ([A-Za-z]+))? \| .+ \| `([\w.]+)\.(\w+)` \|")


def rows() -> list[tuple[str, str, int]]:
    return [
        (match[3], match[4], int(match[1]) * UNITS[match[2] or ""])
        for match in map(ROW.fullmatch, PAGE.read_text().splitlines())
        if match is not None
    ]


def test_every_row_names_a_figure_and_a_constant() -> None:
    written = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    headings = [line for line in written if line.startswith("| what ")]
    assert len(rows()) == len(written) - len(headings)


@pytest.mark.parametrize(("module", "name", "value"), rows())
def test_figures_of_the_page_are_those_of_the_constants(module: str, name: str, value: int) -> None:
    assert getattr(importlib.import_module(f"pykueue.{module}"), name) == value


#: A constant with one of these words in its name is a limit.
WORDS = {"MAX", "MOST", "LIMIT", "LONGEST", "LARGEST", "BUDGET", "HELD", "CONNECTIONS", "TIMEOUT", "TOGETHER"}

#: Constants with such names that no client reaches, and why.
INTERNAL = {
    "api.topologies.MAX_SLICES": "a choice between two encodings",
    "api.yaml_values._LONGEST_INTEGER": "longer integers exceed 64 bits and are read as text",
    "engine.decision_log.DROPPED_TOGETHER": "how many are dropped at once, not how many are kept",
    "kube.events.FORGOTTEN_TOGETHER": "how many are forgotten at once, not how many are remembered",
    "engine.decision_log.PACKED_TOGETHER": "how entries are packed, not how many are kept",
    "engine.decision_log.SHARED_MAX": "size of a cache",
    "engine.flavors.scheduling_classes.LAST_MAX": "size of a cache",
    "engine.flavors.scheduling_classes.SEEN_MAX": "size of a cache",
    "engine.flavors.scheduling_classes.SPECS_MAX": "size of a cache",
    "engine.topology.capacity._DEMANDS_MAX": "size of a cache",
    "embedded.apiserver.webhooks.match_conditions._LONGEST": "longer names are evaluated each time",
    "questions.shadow.cycles.CHANGES_MAX": "changes without which a cycle is tried again",
    "questions.shadow.cycles._TAKEN_MAX": "entries that are removed from a list together",
    "api.cel.keys._MOST_LEVELS": "what is beyond is encoded instead, at a higher price",
    "api.cel.keys._MOST_PARTS": "what is beyond is encoded instead, at a higher price",
    "api.cel.program._MOST_REMEMBERED": "size of a cache",
    "api.cel.program._MOST_REMEMBERED_BYTES": "size of a cache",
    "api.cel.program._MOST_HELD": "size of a cache",
    "embedded.apiserver.crd.kind._MOST_REPLICAS": "the largest int32",
    "api.hybrid._MOST_PODS": "the largest int32",
    "embedded.apiserver.crd.parts._COMPILED_TOGETHER": "work between two pauses of the event loop",
    "embedded.apiserver.handlers.writes._COMPILED_TOGETHER": "work between two pauses of the event loop",
    "embedded.cel.rules._PLACES_TOGETHER": "work between two pauses of the event loop",
    "embedded.kinds.crdvalidation._FOUND_LIMIT": "a cache",
    "embedded.kinds.crdvalidation._RULED_TOGETHER": "work between two pauses of the event loop",
    "embedded.apiserver.watch.delivery._LONGEST_REST": "delay of a batch of watch events",
    "embedded.controllers.jobs.pods.MAX_NAME_PREFIX": "generated names are cut, as on a cluster",
    "embedded.controllers.nodelife.disruption.DELETION_TIMEOUT": "a period of Kubernetes' controller",
    "api.cronschedule._LONGEST": "the longest duration of Go",
    "embedded.kinds.job.DEFAULT_BACKOFF_LIMIT": "a default",
    "embedded.kinds.storage._LONGEST_NODE_ID": "a rule of Kubernetes on one field",
    "embedded.kinds.podvalidation._MAX_SECONDS": "the largest int32",
    "embedded.kinds.templates.LONGEST": "size of a cache",
    "embedded.nodes.processes.health._TIMEOUT": "a default of probes",
    "embedded.podscheduler.filters.MAX_SCORE": "scale of the scores of nodes",
    "embedded.store.sqlite._LARGEST_PROBE": "size of an internal write",
    "embedded.store.sqlite._MOST_ROWS": "rows of one internal statement",
    "engine.families._NAME_LIMIT": "longer names are shortened",
    "engine.topology.counts._VIEWS_MAX": "size of a cache",
    "jobs.topology._MOST_PODS": "the largest int32",
    "kube.http_watch.WATCH_TIMEOUT": "watches are begun again",
    "manager.checks.requests._ATTEMPTS_MAX": "attempts whose shortened names are recognised",
    "manager.checks.requests._NAME_LIMIT": "longer names are shortened, as by Kueue",
    "manager.install.options.MAX_REPLICAS": "the largest int32",
    "manager.install.options._MAX_IMAGE_PATH": "part of the syntax of image references",
    "questions.candidates.LENDERS_MAX": "changes that an answer tries, not what is refused",
    "manager.preemptions.ledger._INT64_MAX": "the largest int64",
    "questions.candidates.OTHER_NAMESPACES_MAX": "changes that an answer tries, not what is refused",
    "questions.candidates.QUEUES_MAX": "changes that an answer tries, not what is refused",
    "questions.facts.HOLDERS_MAX": "workloads that an answer names",
    "questions.smallest.PASSES_MAX": "trials of one answer",
    "questions.trials.ALONE_CYCLES_MAX": "cycles of one trial",
    "questions.trials.PLACE_CYCLES_MAX": "cycles of one trial",
    "questions.why.PLACE_DECISIONS_MAX": "decisions of one trial",
    "simulate": "a test harness",
    "web.dashboard.charts.flow._NAME_MAX": "what a picture shows",
    "web.dashboard.charts.flow.SIDE_MAX": "what a picture shows",
    "web.dashboard.charts.tree.NODES_MAX": "what a picture shows",
    "web.dashboard.charts.tree._LABEL_MAX": "what a picture shows",
    "web.dashboard.charts.tree._NAME_MAX": "what a picture shows",
    "web.dashboard.charts.trend.POINTS_MAX": "what a picture shows",
    "web.dashboard.pages.cohorts.TREES_MAX": "entries of a page; it names the others",
    "web.dashboard.pages.nodes.LEAVES_MAX": "entries of a page; it counts the others",
    "web.dashboard.pages.nodes.NAMED_MAX": "entries of a page; it counts the others",
    "web.dashboard.pages.nodes.NODES_MAX": "entries of a page; it counts the others",
    "web.dashboard.pages.overview.ALARMS_MAX": "entries of a page; it counts the others",
    "web.dashboard.pages.overview.LOCAL_MAX": "entries of a page; it counts the others",
    "web.dashboard.pages.overview.QUEUES_MAX": "entries of a page; it counts the others",
    "web.dashboard.pages.trends.QUEUES_MAX": "entries of a page; it counts the others",
    "web.dashboard.pages.workload.DECISIONS_MAX": "trials of one answer",
    "web.dashboard.pages.workload.EVENTS_MAX": "entries of a page",
    "web.dashboard.pages.workload.PODS_MAX": "entries of a page",
    "web.dashboard.pages.workloads.NAMESPACES_MAX": "what a filter offers; others can be typed",
    "web.dashboard.writes._PRIORITY_MAX": "the largest int32",
}


def constants() -> Iterator[str]:
    """Numeric constants of modules whose names say that they are limits, below pykueue."""
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.Assign | ast.AnnAssign):
                continue
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(name, ast.Name) and WORDS & set(name.id.split("_")):
                        value = getattr(importlib.import_module(f"pykueue.{module}"), name.id)
                        if isinstance(value, int | float):
                            yield f"{module}.{name.id}"


def test_every_limit_of_the_source_is_on_the_page_or_listed_as_internal() -> None:
    listed = {f"{module}.{name}" for module, name, _ in rows()}
    found = set(constants())
    outside = {name for name in found if name not in INTERNAL and name.partition(".")[0] not in INTERNAL}
    assert outside <= listed, sorted(outside - listed)
    assert set(INTERNAL) - {"simulate"} <= found, "a constant listed as internal no longer exists"
