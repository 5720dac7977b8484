"""`pykueue up` with a real operator beside it. Needs PYKUEUE_OPERATORS."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_processes import Kubectl, Up
from operators_catalog import OPERATORS
from operators_jobs import NODES, QUEUES, Stage
from operators_programs import RunningOperator, certificates_locked, folder_of

from pykueue.cluster import JOB_KINDS

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.operators)


@pytest.fixture(scope="session")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A cluster with the operator that the parameter names."""
    operator = OPERATORS[request.param]
    folder_of(operator)
    folder = tmp_path_factory.mktemp(operator.name)
    (folder / "nodes.yaml").write_text(NODES)
    ours = ",".join(kind for kind in JOB_KINDS if kind not in operator.job_kinds)
    up = Up(folder / "up", f"--nodes={folder / 'nodes.yaml'}", "--in-memory", f"--job-kinds={ours}")
    with certificates_locked(), contextlib.ExitStack() as stack:
        stack.callback(lambda: up.process is not None and up.process.poll() is None and up.stop())
        kubectl = Kubectl(up.start(), folder / "home")
        kubectl("apply", "--server-side", "-f", "-", stdin=QUEUES)
        running = RunningOperator(operator, up, kubectl, folder)
        stack.callback(running.stop)
        running.start()
        yield Stage(kubectl, running)
