"""`python -m bench.questions`: why workloads of long queues are pending, and whether the changes are right.

Times are CPU seconds of this process. Each change is applied to another engine, made from a dump of the
state, and must admit the workload there within the printed number of cycles; with one unit less it must not.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections import Counter
from time import process_time
from typing import Any

from pykueue.api import decode, encode
from pykueue.api.kueue import V1BETA2
from pykueue.api.quantity import Quantity, parse
from pykueue.cli.process import collect_less_often
from pykueue.engine import Engine, Options, Removed, Upsert
from pykueue.engine.driver import Driver
from pykueue.engine.dump import dump, load
from pykueue.questions import Change, why
from pykueue.questions.answers import Edit
from pykueue.questions.edits import edited
from pykueue.questions.trials import Trials

#: The bars for the head answer: milliseconds at the median and at the 95th percentile.
BARS = (20.0, 200.0)
NOW = 1_700_000_000.0


def objects(pending: int, queues: int, rng: random.Random) -> list[dict[str, Any]]:
    """Queues in five cohorts below one root, five queues for each namespace, and workloads."""

    def obj(kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
        metadata = {"name": name, "uid": f"{kind}-{name}", **({"namespace": namespace} if namespace else {})}
        return {"apiVersion": V1BETA2, "kind": kind, "metadata": metadata, "spec": spec}

    namespaces = [f"team-{number}" for number in range(0, queues, 5)]
    made = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}} for namespace in namespaces
    ]
    made += [obj("ResourceFlavor", name, {}) for name in ("on-demand", "spot")]
    made += [obj("Cohort", f"cohort-{number}", {"parentName": "root"}) for number in range(5)]
    for number in range(queues):
        resources = [
            {"name": "cpu", "nominalQuota": "40"},
            {"name": "memory", "nominalQuota": "160Gi"},
        ]
        spec = {
            "cohortName": f"cohort-{number % 5}",
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
            "resourceGroups": [
                {
                    "coveredResources": ["cpu", "memory"],
                    "flavors": [{"name": name, "resources": resources} for name in ("on-demand", "spot")],
                }
            ],
        }
        made.append(obj("ClusterQueue", f"queue-{number}", spec))
        made.append(
            obj("LocalQueue", f"queue-{number}", {"clusterQueue": f"queue-{number}"}, namespaces[number // 5])
        )
    for number in range(pending):
        queue = rng.randrange(queues)
        requests = {"cpu": str(rng.randrange(1, 8)), "memory": f"{rng.randrange(1, 32)}Gi"}
        pod = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
        pods = {"name": "main", "count": rng.randrange(1, 20), "template": {"spec": pod}}
        spec = {"queueName": f"queue-{queue}", "priority": rng.randrange(5), "podSets": [pods]}
        made.append(obj("Workload", f"w{number}", spec, namespaces[queue // 5]))
    return made


def stable(manifests: list[dict[str, Any]]) -> Driver:
    """A driver in which nothing more can be admitted."""
    driver = Driver(Options(), NOW)
    driver.apply(*(Upsert(decode(manifest)) for manifest in manifests))
    for _ in driver.until_stable():
        pass
    return driver


def manifest_of(engine: Engine, edit: Edit) -> dict[str, Any]:
    """The object that an edit changes, as a manifest."""
    obj: Any = engine.workload_object(f"{edit.namespace}/{edit.name}")
    if edit.kind == "ClusterQueue":
        obj = engine.cluster_queue_object(edit.name)
    return {"apiVersion": V1BETA2, "kind": edit.kind, **encode(obj)}


def less(edit: Edit) -> str:
    """The value of an edit, by the smallest unit nearer to what it was."""
    if edit.field.endswith("count"):
        return str(int(edit.after) + 1)
    if edit.field.endswith("priority"):
        return str(int(edit.after) - 1)
    return str(parse(edit.after) - (Quantity.of_milli(1) if "[cpu]" in edit.field else Quantity.of(1)))


def admits(engine: Engine, key: str, change: Change, now: float, instead: dict[str, str]) -> bool:
    """Whether a change, with other values for some fields, admits the workload in time."""
    before = {(edit.kind, edit.namespace, edit.name): manifest_of(engine, edit) for edit in change.edits}
    after = dict(before)
    for edit in change.edits:
        name = (edit.kind, edit.namespace, edit.name)
        after[name] = edited(after[name], edit, instead.get(edit.field))
    moved = next((edit.after for edit in change.edits if edit.field == "metadata.namespace"), "")
    asked = f"{moved}/{key.partition('/')[2]}" if moved else key
    if moved:
        engine.apply(Removed("Workload", *key.split("/")))
    for manifest in after.values():
        engine.apply(Upsert(decode(manifest)))
    found = Trials(engine, asked, now, 0).alone()
    if moved:
        engine.apply(Removed("Workload", *asked.split("/")))
    for manifest in before.values():
        engine.apply(Upsert(decode(manifest)))
    if change.without_preemption and found.preempted:
        return False
    return found.admitted and found.cycles <= change.cycles


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pending", type=int, default=10_500, help="workloads")
    parser.add_argument("--queues", type=int, default=50)
    parser.add_argument("--sample", type=int, default=500, help="workloads that are asked about")
    parser.add_argument("--places", type=int, default=3, help="of these, at their place too")
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    arguments = parser.parse_args()
    collect_less_often()
    rng = random.Random(1)
    driver = stable(objects(arguments.pending, arguments.queues, rng))
    engine, now = driver.engine, driver.now
    waiting = [key for name in engine.cluster_queues() for key in engine.pending(name)]
    sample = rng.sample(waiting, min(arguments.sample, len(waiting)))
    seconds, kinds, wrong = [], Counter[str](), 0
    other = load(dump(engine))
    for key in sample:
        start = process_time()
        answer = why(engine, key, now, place=False)
        seconds.append(process_time() - start)
        assert answer.head is not None
        for change in answer.head.changes:
            kinds[change.kind] += 1
            right = admits(other, key, change, now, {})
            numeric = change.kind in ("Quota", "Priority", "PodCount")
            for edit in change.edits if numeric and change.smallest else ():
                right = right and not admits(other, key, change, now, {edit.field: less(edit)})
            if not right:
                wrong += 1
                print(f"wrong: {key}: {change.text}", file=sys.stderr)
    engine.check()
    ordered = sorted(seconds)
    figures: dict[str, Any] = {
        "pending": len(waiting),
        "sample": len(sample),
        "head_median_ms": round(statistics.median(ordered) * 1000, 1),
        "head_p95_ms": round(ordered[int(len(ordered) * 0.95)] * 1000, 1),
        "head_max_ms": round(ordered[-1] * 1000, 1),
        "changes": dict(kinds),
        "wrong": wrong,
    }
    places = []
    for key in sample[: arguments.places]:
        start = process_time()
        why(engine, key, now)
        places.append(process_time() - start)
    figures["place_seconds"] = [round(each, 2) for each in places]
    print(f"(bars: median {BARS[0]} ms, p95 {BARS[1]} ms, no wrong change)")
    print(json.dumps(figures, indent=2))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(figures, file, indent=2)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
