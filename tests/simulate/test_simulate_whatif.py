"""What a change or another job leads to: starts with and without it, and who starts later."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from test_simulate_forecast import NOW, PAST, admitted, state, workload
from test_simulate_scenarios import queue

from pykueue.api import decode, kueue
from pykueue.api.meta import format_time
from pykueue.engine import Upsert
from pykueue.simulate.changes import ChangedState, ChangeError
from pykueue.simulate.futures import State
from pykueue.simulate.whatif import Question, Start, WhatIf
from pykueue.simulate.whatif import whatif as answer_whatif


def whatif(before: State, changed: ChangedState, **question: object) -> WhatIf:
    asked = Question(futures=5, arrivals=False, **question)  # type: ignore[arg-type]
    return answer_whatif(before, changed.state(), changed.texts, asked)


def in_minutes(start: Start | None) -> tuple[int, ...]:
    """Earliest, median and latest start, in minutes from now."""
    assert start is not None
    times = (start.earliest, start.median, start.latest)
    by_time = {format_time(int(NOW + 60 * minutes)): minutes for minutes in range(24 * 60)}
    return tuple(by_time[time] for time in times)


def with_queues(before: State, manifests: list[dict[str, Any]]) -> State:
    """The state with other queues and flavors."""
    before.objects = [*before.objects[:1], *(Upsert(decode(each)) for each in manifests)]
    return before


def with_spec(some: kueue.Workload, **fields: Any) -> kueue.Workload:
    return replace(some, spec=replace(some.spec, **fields))


#: One workload runs for another six minutes; two are pending, and each runs for ten.
BUSY = [*PAST, admitted("running", 240), workload("first", 120), workload("second", 60)]


def test_more_quota_lets_the_workload_and_those_before_it_start_earlier() -> None:
    before = state(*BUSY)
    changed = ChangedState(before)
    changed.set_quota("ClusterQueue", "q", "default", "cpu", "+2")
    answer = whatif(before, changed, target="team/second")
    assert answer.changes == ["nominalQuota of cpu in flavor default of ClusterQueue q: 1 -> 3"]
    assert (in_minutes(answer.before), in_minutes(answer.after)) == ((16, 16, 16), (0, 0, 0))
    (other,) = answer.others
    assert (other.workload, other.earlier, other.later, other.seconds) == ("team/first", 1.0, 0.0, -360)


def test_a_stopped_queue_holds_back_every_pending_workload() -> None:
    before = state(*BUSY)
    changed = ChangedState(before)
    changed.set_stop_policy("team/q", "Hold")
    answer = whatif(before, changed)
    assert [(one.workload, one.later, one.seconds) for one in answer.others] == [
        ("team/first", 1.0, None),
        ("team/second", 1.0, None),
    ]
    assert (answer.workload, answer.before, answer.after) == ("", None, None)


def test_a_job_that_is_not_submitted_displaces_those_of_lower_priority() -> None:
    preemptive = queue(preemption={"withinClusterQueue": "LowerPriority"})
    before = with_queues(state(*BUSY), preemptive)
    job = with_spec(workload("urgent", 0), priority=100)
    answer = whatif(before, ChangedState(before), submit=job)
    assert (answer.workload, answer.submitted, answer.after) == ("team/urgent", False, None)
    assert in_minutes(answer.before) == (0, 0, 0)
    effects = {one.workload: (one.preempted, one.later, one.seconds) for one in answer.others}
    # The preempted workload was created before the others: it starts again in ten minutes, before them, and
    # repeats its work.
    assert effects == {
        "team/running": (1.0, 0.0, None),
        "team/first": (0.0, 1.0, 840),
        "team/second": (0.0, 1.0, 840),
    }


def test_alternatives_are_fewer_pods_other_queues_and_flavors_with_labels() -> None:
    objects = queue(cpu=2)
    groups = objects[1]["spec"]["resourceGroups"]
    groups[0]["flavors"].append({"name": "spot", "resources": [{"name": "cpu", "nominalQuota": "4"}]})
    objects += [each for each in queue("other", cpu=8) if each["kind"] != "ResourceFlavor"]
    objects += [
        {**objects[0], "metadata": {"name": "spot"}, "spec": {"nodeLabels": {"pool": "spot"}}},
    ]
    before = with_queues(state(*PAST, admitted("running", 240)), objects)
    job = workload("wide", 0)
    job = with_spec(job, pod_sets=[replace(job.spec.pod_sets[0], count=6)])
    answer = whatif(before, ChangedState(before), submit=job)
    assert answer.before is not None
    assert (answer.before.started, answer.before.median) == (0, "")
    found = {one.kind: (one.text, one.start.started) for one in answer.alternatives[1:]}
    assert (answer.alternatives[0].text, answer.alternatives[0].kind) == (
        "4 of 6 pods of pod set main",
        "PodCount",
    )
    assert in_minutes(answer.alternatives[0].start) == (0, 0, 0)
    assert found == {
        "PodCount": ("3 of 6 pods of pod set main", 5),
        "Queue": ("LocalQueue other (ClusterQueue other)", 5),
        "Flavor": ("flavor spot (nodeSelector pool=spot)", 0),
    }


def test_changes_that_make_no_valid_object_are_refused() -> None:
    changed = ChangedState(state(*BUSY))
    with pytest.raises(ChangeError, match="ClusterQueue p does not exist"):
        changed.set_quota("ClusterQueue", "p", "default", "cpu", "2")
    with pytest.raises(ChangeError, match="has no quota for spot/cpu; accepted: default/cpu"):
        changed.set_quota("ClusterQueue", "q", "spot", "cpu", "2")
    with pytest.raises(ChangeError, match="-1 is less than 0"):
        changed.set_quota("ClusterQueue", "q", "default", "cpu", "-2")
    with pytest.raises(ChangeError, match=r"spec.preemption.withinClusterQueue: Invalid enum value 'Always'"):
        changed.set_policy("q", "withinClusterQueue", "Always")
    with pytest.raises(ChangeError, match=r"spec\.colour: there is no such field of text"):
        changed.set_policy("q", "colour", "red")
    with pytest.raises(ChangeError, match="Node n does not exist"):
        changed.remove_node("n")
    assert changed.texts == []
