"""`python -m bench.workloads.digests`: what all stored changes of a small hour are, a line for each kind.

With the modules of the server and the cluster as Python and compiled the lines must be the same
(tests/embedded/test_compiled_cluster.py).
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
from collections import Counter

import orjson
from bench.workloads import objects

from pykueue.api.resources import JOB_SETS, JOBS
from pykueue.clock import Clock, run_virtual
from pykueue.cluster import Cluster
from pykueue.embedded.store.memory import MemoryStore
from pykueue.embedded.store.records import Batch
from pykueue.embedded.store.table import Table
from pykueue.extras import engine_is_compiled
from pykueue.kube.client import Client


class Changes:
    """Counts and digests of the changes of each table."""

    def __init__(self, store: MemoryStore) -> None:
        self._counts: Counter[str] = Counter()
        self._digests = {table.name: hashlib.sha256() for table in store.tables()}
        for table in store.tables():
            self._follow(table)

    def _follow(self, table: Table) -> None:
        digest = self._digests[table.name]

        def published(batch: Batch) -> None:
            for event in batch.events:
                self._counts[table.name] += 1
                changed = orjson.dumps(event.record.object, option=orjson.OPT_SORT_KEYS)
                digest.update(event.type.encode() + changed)

        table.subscribe(published)

    def lines(self) -> list[str]:
        """What was seen, by kind."""
        return [
            f"{name} {count} {self._digests[name].hexdigest()}"
            for name, count in sorted(self._counts.items())
        ]


async def main(clock: Clock) -> list[str]:
    """An hour of 20 nodes with JobSets that end and others that do not, and a Job that is deleted."""
    store = MemoryStore()
    cluster = Cluster(clock=clock, rng=random.Random(1), pools=objects.pools(20), pace=None, store=store)
    await cluster.start()
    running = asyncio.create_task(cluster.run())
    await cluster.synced()
    changes = Changes(store)
    client = Client(cluster.transport("bench"), clock=clock)
    for number in range(4):
        await client.create(JOB_SETS, objects.job_set(f"set-{number}", 8, "20m" if number % 2 else "2h"))
    await client.create(JOBS, objects.job("job"))
    await clock.sleep(3000)
    await client.delete(JOBS, "job", "default")
    await clock.sleep(600)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await cluster.stop()
    return changes.lines()


if __name__ == "__main__":
    print("compiled" if engine_is_compiled() else "Python", file=sys.stderr)
    print("\n".join(run_virtual(main)))
