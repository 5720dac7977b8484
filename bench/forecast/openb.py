"""The GPU jobs of Alibaba's trace of 2023 (openb), on as many GPUs as they hold on average.

The cluster of the trace had GPUs enough for its jobs to start at once. Here a ClusterQueue has as many as the
jobs hold on average in the days that are asked about, so that they queue. Arrivals, sizes and run times are
those of the trace; each seed draws four of five jobs.
"""

from __future__ import annotations

import csv
from pathlib import Path
from random import Random

import yaml
from bench.forecast.asking import DAY, HOUR
from bench.forecast.clusters import FLAVOR, HEAD, queue

from pykueue.simulate.plan import Plan
from pykueue.simulate.prepare import plan, prepare
from pykueue.simulate.scenario.reading import parse

#: Days of the trace that the forecast was developed with, and those that it is judged by. Before day 115 only
#: 31 jobs of months are submitted.
DEVELOPED, JUDGED = (116, 132), (132, 149)
#: Share of the jobs that a seed draws.
_DRAWN = 0.8
#: Between questions: the same backlog is not asked about too often.
_EVERY = 6 * HOUR
_RESOURCE = "nvidia.com/gpu"


def plan_of(trace: Path, days: tuple[int, int], seed: int, folder: Path) -> tuple[Plan, list[float]]:
    """What is simulated of a list of pods, and when is asked, in seconds from its start."""
    random, held, first = Random(seed), 0.0, None
    begin, end = days[0] * DAY, days[1] * DAY
    with trace.open(newline="") as source, (folder / "pods.csv").open("w", newline="") as kept:
        reader = csv.DictReader(source)
        writer = csv.DictWriter(kept, reader.fieldnames or ())
        writer.writeheader()
        for row in reader:
            if row["num_gpu"] == "0" or not row["scheduled_time"] or random.random() >= _DRAWN:
                continue
            writer.writerow(row)
            created = float(row["creation_time"])
            first = created if first is None else min(first, created)
            until = created + float(row["deletion_time"]) - float(row["scheduled_time"])
            held += int(row["num_gpu"]) * max(0.0, min(until, end) - max(created, begin))
    gpus = round(held / (end - begin))
    (folder / "queues.yaml").write_text(yaml.safe_dump_all([FLAVOR, *queue("q", _RESOURCE, gpus)]))
    source_of = {"file": "pods.csv", "format": "alibaba2023", "queue": "team/q"}
    document = HEAD | {
        "manifests": ["queues.yaml"],
        "arrivals": [{"trace": source_of}],
        # Jobs wait for GPUs alone; what else they request still tells which are alike.
        "configuration": {"resources": {"excludeResourcePrefixes": ["cpu", "memory"]}},
    }
    prepared = prepare(parse(yaml.safe_dump(document)), folder)
    at, looks = begin + random.random() * _EVERY, []
    while at < end:
        looks.append(at - (first or 0.0))
        at += _EVERY
    return plan(prepared, prepared.variants[0], seed), looks
