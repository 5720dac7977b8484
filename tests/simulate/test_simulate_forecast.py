"""When a pending workload starts: intervals, and how often they hold what then happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from msgspec.structs import replace
from test_simulate_scenarios import job, queue

from pykueue.api import decode, kueue
from pykueue.api.meta import OwnerReference, format_time, parse_time
from pykueue.api.quantity import Quantity
from pykueue.engine import Options, Upsert, lifecycle
from pykueue.simulate.forecast import when
from pykueue.simulate.futures import State
from pykueue.simulate.journal import Journal
from pykueue.simulate.prepare import plan, prepare
from pykueue.simulate.run_times import BLOCK, RunTimes, family
from pykueue.simulate.scenario.reading import parse
from pykueue.simulate.scores import KEPT, Scores, read, write
from pykueue.simulate.simulation import Simulation

NOW = parse_time("2026-01-05T12:00:00Z")


def workload(name: str, created: float) -> kueue.Workload:
    """A Workload of one CPU in the queue `team/q`, created so many seconds ago."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    found: kueue.Workload = decode(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": name,
                "creationTimestamp": format_time(int(NOW - created)),
            },
            "spec": {
                "queueName": "q",
                "priority": 0,
                "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}],
            },
        }
    )
    return found


def admitted(name: str, ago: float) -> kueue.Workload:
    """A Workload that was admitted so many seconds ago."""
    usage = {"cpu": Quantity.of(1)}
    one = kueue.PodSetAssignment(name="main", flavors={"cpu": "default"}, resource_usage=usage, count=1)
    given = kueue.Admission(cluster_queue="q", pod_set_assignments=[one])
    return lifecycle.reserved(workload(name, ago), given, True, NOW - ago)


def finished(name: str, ran: float, ago: float) -> kueue.Workload:
    """A Workload that ran so long and ended so many seconds ago."""
    return lifecycle.finished(admitted(name, ago + ran), "Succeeded", NOW - ago)


def state(*workloads: kueue.Workload, cpu: int = 1) -> State:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    objects = [Upsert(decode(each)) for each in (namespace, *queue(cpu=cpu))]
    return State(Options(), list(objects), workloads, NOW)


#: Twenty workloads that ran for ten minutes, long ago.
PAST = [finished(f"past-{number}", 600.0, 3 * 86400.0) for number in range(20)]


def test_a_workload_starts_when_the_one_before_it_ends() -> None:
    answer = when(state(*PAST, admitted("running", 240), workload("next", 60)), "team/next")
    assert answer.earliest == answer.latest == "2026-01-05T12:06:00Z"
    assert (answer.ahead, answer.started, answer.known_run_times) == (0, 40, 20)
    assert [(one.workload, one.share) for one in answer.triggers] == [("team/running", 1.0)]


def test_those_ahead_of_it_go_first() -> None:
    present = [admitted("running", 240), workload("first", 120), workload("second", 60)]
    answer = when(state(*PAST, *present), "team/second", arrivals=False)
    assert (answer.median, answer.ahead) == ("2026-01-05T12:16:00Z", 1)


def test_a_workload_that_never_fits_does_not_start() -> None:
    answer = when(state(*PAST, workload("next", 60), cpu=0), "team/next", futures=3)
    assert (answer.earliest, answer.latest, answer.started) == ("", "", 0)


def test_only_a_pending_workload_has_an_answer() -> None:
    with pytest.raises(ValueError, match="Workload team/running is admitted"):
        when(state(admitted("running", 240)), "team/running")
    with pytest.raises(ValueError, match="Workload team/past-0 is finished"):
        when(state(*PAST), "team/past-0")


def test_run_times_are_those_of_alike_workloads_that_ran_longer() -> None:
    long = [finished(f"long-{number}", 3600.0 + number, 86400.0) for number in range(20)]
    times, random = RunTimes([*PAST, *long]), Random(1)
    some = workload("w", 0)
    assert {times.draw(some, random) < 700 for _ in range(50)} == {True, False}
    assert all(times.draw(some, random, elapsed=700) >= 3600 for _ in range(50))
    limited = times.draw(_with_limit(some, 300), random, elapsed=100)
    assert limited == 300


def test_few_run_times_do_not_say_that_the_next_is_one_of_them() -> None:
    some, random = workload("w", 0), Random(1)
    for count in (1, 4):
        known = [finished(f"past-{number}", 600.0, 86400.0 - number) for number in range(count)]
        times = RunTimes(known)
        others = sum(times.draw(some, random) != 600 for _ in range(1000)) / 1000
        assert others == pytest.approx(2 / (count + 1), abs=0.05)


def test_workload_that_started_this_second_after_others_that_took_none_ends_at_some_time() -> None:
    times, random = RunTimes([finished("past", 0.0, 60.0)]), Random(1)
    drawn = [times.draw(workload("w", 0), random) for _ in range(50)]
    assert all(0 <= seconds < 60 for seconds in drawn)


def test_run_times_of_a_future_are_those_of_one_time() -> None:
    past = [finished(f"w{number}", 100.0 + number, 3600.0 * (number + 1)) for number in range(200)]
    times, random, some = RunTimes(past), Random(1), workload("w", 0)
    assert {times.draw(some, random, like=0.0) < 100 + BLOCK for _ in range(50)} == {True}
    assert {times.draw(some, random, like=0.999) >= 300 - BLOCK for _ in range(50)} == {True}
    # Where too few of that time ran for as long, those of all times count.
    assert all(times.draw(some, random, elapsed=280.0, like=0.0) > 280 for _ in range(50))


def test_run_times_are_those_of_workloads_that_request_the_same() -> None:
    larger = [_with_cpu(finished(f"large-{number}", 7200.0, 3600.0), "4") for number in range(20)]
    times, random = RunTimes([*PAST, *larger]), Random(1)
    assert {times.draw(_with_cpu(workload("w", 0), "4"), random) for _ in range(20)} == {7200}
    assert {times.draw(workload("w", 0), random) for _ in range(20)} == {600}


def test_run_times_are_those_of_workloads_whose_jobs_have_the_same_name() -> None:
    sweeps = [finished(f"sweep-{number}", 7200.0, 3600.0) for number in range(20)]
    times, random = RunTimes([*PAST, *sweeps]), Random(1)
    assert {times.draw(workload("sweep-x7k2p", 0), random) for _ in range(20)} == {7200}
    assert {times.draw(workload("past-99", 0), random) for _ in range(20)} == {600}
    # A name that is not known is like all others.
    assert {times.draw(workload("new", 0), random) for _ in range(50)} == {600, 7200}


@pytest.mark.parametrize(
    ("name", "common"),
    [
        ("train", "train"),
        ("train-17", "train"),
        ("train-x7k2p", "train"),
        ("backup-29123456-bcdfg", "backup"),
        ("report.20260105t1200z", "report"),
        ("etl-3fa85f64", "etl"),
        ("llama-7b", "llama-7b"),
        ("resnet50", "resnet50"),
        ("17", "17"),
    ],
)
def test_runs_of_a_job_have_the_rest_of_their_name_in_common(name: str, common: str) -> None:
    assert family(workload(name, 0)) == common


def test_job_of_a_workload_names_it() -> None:
    some = workload("job-train-17-4f2a1", 0)
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="train-17", uid="1", controller=True)
    assert family(replace(some, metadata=replace(some.metadata, owner_references=[owner]))) == "train"


def _with_cpu(some: kueue.Workload, cpu: str) -> kueue.Workload:
    [pods] = some.spec.pod_sets
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    pods = replace(pods, template={"spec": {"containers": [container]}})
    return replace(some, spec=replace(some.spec, pod_sets=[pods]))


def _with_limit(some: kueue.Workload, seconds: int) -> kueue.Workload:
    return replace(some, spec=replace(some.spec, maximum_execution_time_seconds=seconds))


def test_past_answers_are_scored_once_the_workload_has_started(tmp_path: Path) -> None:
    file = tmp_path / "scores.json"
    for number in range(6):
        pending = workload(f"w{number}", 60)
        scores = read(file)
        scores.add(pending, "2026-01-05T11:59:00Z", "2026-01-05T12:00:30Z")
        write(file, scores)
    scores = read(file)
    assert scores.unjudged() == [f"team/w{number}" for number in range(6)]
    scores.judge([admitted(f"w{number}", 30.0 if number else 600.0) for number in range(6)])
    assert (scores.of_queue("team/q"), scores.unjudged()) == ((5, 6), [])
    file.write_text("damaged")
    assert read(file).of_queue("team/q") == (0, 0)


def test_scores_are_bounded_and_those_of_several_are_merged() -> None:
    begin, end = "2026-01-05T11:59:00Z", "2026-01-05T12:00:30Z"
    one, other = Scores(), Scores()
    for number in range(KEPT + 10):
        one.add(workload(f"w{number}", 60), begin, end)
    assert len(one.unjudged()) == KEPT
    assert one.unjudged()[0] == "team/w10"
    other.add(workload("w20", 60), begin, begin)
    other.add(workload("w20", 60), begin, end, first=True)  # the first answer stays
    other.judge([admitted("w20", 30.0)])
    one.merge(Scores(other.encode()))
    assert (one.of_queue("team/q"), len(one.unjudged())) == ((0, 1), KEPT - 1)


class Cluster(Simulation):
    """A simulated cluster that keeps its finished Workloads, as a real one does."""

    done: list[kueue.Workload]

    def _over(self, key: str, attempt: int, how: str, now: float) -> None:
        before = self.driver.workloads.get(key)
        super()._over(key, attempt, how, now)
        if before is not None and key not in self.driver.workloads:
            self.done.append(lifecycle.finished(before, "Succeeded", self.driver.now))


def test_four_of_five_starts_are_inside_the_interval(tmp_path: Path) -> None:
    load = {
        "perHour": 12,
        "end": "40h",
        "jobs": [job(run_time={"logNormal": {"median": "15m", "sigma": 0.7}}), job("big", {"fixed": "40m"})],
    }
    (tmp_path / "queues.yaml").write_text(yaml.safe_dump_all(queue(cpu=5)))
    head = {"apiVersion": "pykueue.io/v1alpha1", "kind": "Scenario", "name": "backtest"}
    document = head | {"manifests": ["queues.yaml"], "arrivals": [{"generator": load}]}
    inside: list[bool] = []
    for seed in range(2):
        prepared = prepare(parse(yaml.safe_dump(document)), tmp_path)
        for at, key, truth in _asked(prepared, seed):
            answer = when(at, key, futures=20)
            inside.append(parse_time(answer.earliest) - 1 <= truth <= parse_time(answer.latest) + 1)
    assert len(inside) >= 10
    assert 0.65 <= sum(inside) / len(inside) <= 0.95


def _asked(prepared: Any, seed: int) -> Iterator[tuple[State, str, float]]:
    """States of a simulated cluster, a pending workload of each, and when that started in truth."""
    variant = prepared.variants[0]
    for hours in range(12, 36, 3):
        found = plan(prepared, variant, seed)
        found.horizon = hours * 3600.0
        cluster = Cluster(found, Journal())
        cluster.done = []
        cluster.run()
        present = list(cluster.driver.workloads.values())
        pending = [each for each in present if not each.condition_is("QuotaReserved")]
        if not pending:
            continue
        chosen = pending[len(pending) // 2].metadata.key
        now = found.start + found.horizon
        whole = plan(prepared, variant, seed)
        whole.watched = frozenset({chosen})
        truth = Simulation(whole, Journal()).run().first_admissions[chosen]
        yield State(found.options, found.objects, [*present, *cluster.done], now), chosen, found.start + truth
