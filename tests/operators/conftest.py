"""`pykueue up` with a real operator beside it. Needs PYKUEUE_OPERATORS."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_processes import Kubectl, Up
from operators_catalog import OPERATORS
from operators_jobs import NODES, QUEUES, Stage
from operators_programs import Operator, RunningOperator, certificates_locked, folder_of

from pykueue.cluster import JOB_KINDS

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.operators)
            item.add_marker(pytest.mark.timeout(1800))
    # The tests of an operator follow one another: it is started once.
    items.sort(key=_operator)


def _operator(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    return str(callspec.params["operator"]) if item.path.is_relative_to(FOLDER) and callspec else ""


class Stages:
    """The cluster of the operator that was requested last."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._name = ""
        self._stage: Stage | None = None
        self._running = contextlib.ExitStack()

    def start(self, name: str) -> Stage:
        """End the one with another operator."""
        if name != self._name or self._stage is None:
            self.stop()
            with contextlib.ExitStack() as stack:
                self._stage = self._start(OPERATORS[name], stack)
                self._running = stack.pop_all()
            self._name = name
        return self._stage

    def stop(self) -> None:
        self._stage = None
        self._running.close()

    def _start(self, operator: Operator, stack: contextlib.ExitStack) -> Stage:
        folder = self._factory.mktemp(operator.name)
        (folder / "nodes.yaml").write_text(NODES)
        ours = ",".join(kind for kind in JOB_KINDS if kind not in operator.job_kinds)
        up = Up(folder / "up", f"--nodes={folder / 'nodes.yaml'}", "--in-memory", f"--job-kinds={ours}")
        stack.enter_context(certificates_locked())
        stack.callback(lambda: up.process is not None and up.process.poll() is None and up.stop())
        kubectl = Kubectl(up.start(), folder / "home")
        kubectl("apply", "--server-side", "-f", "-", stdin=QUEUES)
        running = RunningOperator(operator, up, kubectl, folder)
        stack.callback(running.stop)
        running.start()
        return Stage(kubectl, running)


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    """Ends the last cluster with the session."""
    stages = Stages(tmp_path_factory)
    yield stages
    stages.stop()


@pytest.fixture
def stage(operator: str, stages: Stages) -> Stage:
    """A cluster with the operator that the test names."""
    folder_of(OPERATORS[operator])
    return stages.start(operator)
