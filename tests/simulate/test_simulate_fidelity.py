"""The simulation of a recording repeats its admissions, however late things were written and decided."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from pykueue.api import decode, kueue
from pykueue.api.meta import format_time
from pykueue.cli.replay import replay
from pykueue.engine import Admit, Engine, Options, Preempt, Removed, Upsert, lifecycle
from pykueue.manager.recorder.files import Limits, SegmentWriter
from queue_manifests import cluster_queue, flavor, local_queue

START = 1767225600.0
PREEMPTING = cluster_queue("q", {"cpu": 2}, preemption={"withinClusterQueue": "LowerPriority"})


class Recorded:
    """An engine whose events and cycles come when a test says so; times are seconds from the start."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._workloads: dict[str, kueue.Workload] = {}
        self._admissions: dict[str, Admit] = {}

    def create(self, at: float, name: str, queue: str = "q", priority: int = 0) -> None:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        template = {"spec": {"containers": [container]}}
        manifest = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "creationTimestamp": format_time(int(START + at)),
            },
            "spec": {
                "queueName": queue,
                "priority": priority,
                "podSets": [{"name": "main", "count": 1, "template": template}],
            },
        }
        self._put(at, decode(manifest))

    def cycle(self, at: float) -> list[tuple[str, str]]:
        """What is decided: kinds and names, but of workloads that stay pending."""
        decisions = self._engine.cycle(START + at)
        self._admissions |= {_name(each.key): each for each in decisions if isinstance(each, Admit)}
        return [
            (type(each).__name__, _name(each.key)) for each in decisions if isinstance(each, Admit | Preempt)
        ]

    def admitted(self, at: float, name: str) -> None:
        """The engine sees an admission, with the second in which it was written."""
        admission = self._admissions[name].admission
        self._put(at, lifecycle.reserved(self._workloads[name], admission, True, int(START + at)))

    def undone(self, name: str) -> None:
        """Its admission could not be written."""
        self._engine.forget(f"default/{name}")

    def preempted(self, at: float, name: str) -> None:
        self._put(at, lifecycle.preempted(self._workloads[name], "InClusterQueue", int(START + at)))

    def released(self, at: float, name: str) -> None:
        self._put(at, lifecycle.released(self._workloads[name], int(START + at)))

    def finished(self, at: float, name: str) -> None:
        self._put(at, lifecycle.finished(self._workloads[name], "Succeeded", int(START + at)))
        self._engine.apply(Removed("Workload", "default", name), START + at)

    def _put(self, at: float, workload: kueue.Workload) -> None:
        self._workloads[workload.metadata.name] = workload
        self._engine.apply(Upsert(workload), START + at)


def _name(key: str) -> str:
    return key.partition("/")[2]


@contextmanager
def recording(folder: Path, queues: Sequence[dict[str, Any]]) -> Iterator[Recorded]:
    """What happens in it is recorded."""
    engine = Engine(Options())
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    for each in (namespace, flavor(), *queues):
        engine.apply(Upsert(decode(each)), START)
    engine.recorder = writer = SegmentWriter(folder, Limits(), engine, START)
    yield Recorded(engine)
    writer.close()


def ask(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(replay, [str(folder), "--simulated", *options])


def answer(folder: Path) -> dict[str, Any]:
    found = ask(folder, "-o", "json")
    assert found.exit_code == 0, found.output
    fidelity: dict[str, Any] = json.loads(found.stdout)["fidelity"]
    return fidelity


def test_late_cycles_and_writes_are_repeated(tmp_path: Path) -> None:
    with recording(tmp_path, [PREEMPTING, local_queue("q")]) as it:
        it.create(0.0, "first")
        it.create(0.1, "second")
        assert it.cycle(0.5) == [("Admit", "first")]
        assert it.cycle(0.6) == [("Admit", "second")]
        it.admitted(0.9, "first")
        it.create(1.0, "urgent", priority=100)
        # The second one counts as admitted later as long as its admission was not seen: both are in the
        # same second afterwards, and it would be the turn of the first one.
        assert it.cycle(1.2) == [("Preempt", "second")]
        it.admitted(1.4, "second")
        it.preempted(1.5, "second")
        it.released(1.7, "second")
        assert it.cycle(1.8) == [("Admit", "urgent")]
        it.admitted(2.0, "urgent")
        it.finished(5.0, "first")
        assert it.cycle(5.3) == [("Admit", "second")]
        it.admitted(5.4, "second")
        it.finished(6.0, "urgent")
        it.finished(9.0, "second")
    found = answer(tmp_path)
    assert (found["recorded"], found["simulated"], found["equal"], found["atOnce"]) == (4, 4, 4, 4)
    assert ask(tmp_path).stdout == (
        "2026-01-01T00:00:00Z to 2026-01-01T00:00:09Z: 4 admissions, 4 simulated;"
        " 4 (100.00%) are equal and in the same order, 4 at the same time\n"
    )


def test_a_job_that_ends_before_it_is_preempted_has_ended(tmp_path: Path) -> None:
    with recording(tmp_path, [PREEMPTING, local_queue("q")]) as it:
        for name in ("first", "second"):
            it.create(0.0, name)
            it.cycle(0.1)
            it.admitted(0.2, name)
        it.create(1.0, "urgent", priority=100)
        assert it.cycle(1.1) == [("Preempt", "first")]
        it.finished(1.3, "first")
        assert it.cycle(1.5) == [("Admit", "urgent")]
        it.admitted(1.6, "urgent")
        it.finished(3.0, "second")
        it.finished(4.0, "urgent")
    found = answer(tmp_path)
    assert (found["recorded"], found["simulated"], found["equal"], found["atOnce"]) == (3, 3, 3, 3)


def test_what_is_not_repeated_is_attributed_to_the_event_it_began_with(tmp_path: Path) -> None:
    with recording(tmp_path, [cluster_queue("q", {"cpu": 1}), local_queue("q")]) as it:
        it.create(0.0, "first")
        assert it.cycle(0.5) == [("Admit", "first")]
        it.create(0.6, "urgent", priority=100)
        it.undone("first")
        assert it.cycle(1.2) == [("Admit", "urgent")]
        it.admitted(1.3, "urgent")
        it.finished(2.0, "urgent")
        assert it.cycle(2.1) == [("Admit", "first")]
        it.admitted(2.2, "first")
        it.finished(4.0, "first")
    found = answer(tmp_path)
    # That a write failed is not simulated.
    assert (found["recorded"], found["simulated"], found["equal"], found["atOnce"]) == (2, 2, 1, 0)
    lines = ask(tmp_path).stdout.splitlines()
    assert lines[0].endswith(
        "2 admissions, 2 simulated; 1 (50.00%) are equal and in the same order, 0 at the same time"
    )
    assert lines[1:] == [
        "because in the recording the admission of default/first is undone at 2026-01-01T00:00:00.600000Z,"
        " in the simulation not:",
        "  default/urgent, admission 1: recorded 2026-01-01T00:00:01.200000Z,"
        " simulated 2026-01-01T00:00:02.400000Z",
    ]


def test_what_the_end_of_a_recording_left_undecided_stays_so(tmp_path: Path) -> None:
    with recording(tmp_path, [cluster_queue("q", {"cpu": 2}), local_queue("q")]) as it:
        it.create(0.0, "first")
        assert it.cycle(0.5) == [("Admit", "first")]
        it.admitted(0.6, "first")
        it.create(0.7, "second")
    found = answer(tmp_path)
    assert (found["recorded"], found["simulated"], found["equal"]) == (1, 1, 1)


def test_simulated_is_not_accepted_together_with_changes(tmp_path: Path) -> None:
    found = ask(tmp_path, "--stop", "q")
    expected = "Error: --simulated is not accepted together with changes\n"
    assert (found.exit_code, found.stderr) == (2, expected)
