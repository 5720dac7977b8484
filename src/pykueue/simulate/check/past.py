"""A recorded period under other manifests: which queues wait longer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pykueue.simulate.figures import figure, shown
from pykueue.simulate.prepare import prepare
from pykueue.simulate.runs import run
from pykueue.simulate.scenario.reading import ScenarioError
from pykueue.simulate.scenario.types import Scenario, Variant, Where

from .findings import Finding
from .policy import Policy, PolicyError

#: A wait is longer from this factor on, and from so many seconds.
_LONGER: Final = 1.2
_SECONDS: Final = 60.0


def past(policy: Policy, folder: Path, recording: Path) -> Iterator[Finding]:
    """Queues whose workloads wait longer in a recorded period with the manifests of the policy's folder.

    `recording` is a directory or file of the flight recorder, or a dump. Both runs are simulated, so that
    they differ in nothing else. Raises PolicyError for a recording that cannot be read.
    """
    before, after = (
        Variant("recorded"),
        Variant("checked", policy.configuration, apply=(str(folder.resolve()),)),
    )
    scenario = Scenario("past", recording=str(recording.resolve()), variants=(before, after))
    try:
        prepared = prepare(scenario, Path())
        first, second = (run(prepared, variant, scenario.seeds[0]) for variant in prepared.variants)
    except ScenarioError as error:
        raise PolicyError(str(error)) from None
    for name in sorted({group.cluster_queue for group in (*first.lives, *second.lives)}):
        where = Where(cluster_queue=name)
        old, new = (figure(outcome, "wait.p90", where) for outcome in (first, second))
        admitted = [
            sum(lives.wait.count for group, lives in one.lives.items() if group.cluster_queue == name)
            for one in (first, second)
        ]
        title = f"ClusterQueue {name}"
        if admitted[1] < admitted[0]:
            message = f"in the recorded period {admitted[1]} workloads are admitted, instead of {admitted[0]}"
            yield Finding("longer-waits", title, message, policy.place(title))
        elif not math.isnan(new) and new > _SECONDS and new > (0 if math.isnan(old) else old) * _LONGER:
            preempted = [figure(one, "preemptions", where) for one in (first, second)]
            message = (
                f"in the recorded period 90 % of its workloads wait up to {shown('wait.p90', new)}, instead "
                f"of {shown('wait.p90', old)}; {preempted[1]:.0f} preemptions, instead of {preempted[0]:.0f}"
            )
            yield Finding("longer-waits", title, message, policy.place(title))
