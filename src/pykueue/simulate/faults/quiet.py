"""What must hold whenever the manager has had time to react, while jobs still wait and run.

There are no faults by then, but queues may still be stopped and workloads deactivated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pykueue.api import conditions
from pykueue.api.kueue.names import QUEUE_LABEL
from pykueue.api.objects import Object, is_deleting, labels_of
from pykueue.api.resources import WORKLOADS
from pykueue.clock import Clock
from pykueue.manager.manager import Manager

from .jobkinds import ended, suspended
from .leaks import is_retrying
from .stored import Stored
from .trace import Trace

#: Seconds until delayed requests, stalled watches and waits that servers asked for have passed.
AFTERMATH = 30.0
#: Seconds without a write after which the manager has nothing left to do: longer than it takes to publish
#: the status of a queue (1 s) and to give up a decision that could not be written (5 s, and 1 s to undo it).
QUIET = 8.0
#: Seconds between two looks at whether it is quiet.
LOOK = 1.0


class QuietTimes:
    """Looks at the cluster each time it becomes quiet."""

    def __init__(
        self,
        clock: Clock,
        trace: Trace,
        last_write: Callable[[], float],
        manager: Callable[[], Manager],
        look: Callable[[], Iterable[str]],
    ) -> None:
        self._clock = clock
        self._trace = trace
        self._last_write = last_write
        self._manager = manager
        self._look = look

    async def watch(self) -> None:
        """Look until cancelled."""
        await self._clock.sleep(AFTERMATH)
        seen = -1.0
        while True:
            last = self._last_write()
            if last != seen and self._clock.time() >= last + QUIET and not is_retrying(self._manager()):
                seen = last
                for found in self._look():
                    self._trace.violate(f"while it is quiet {found}")
            await self._clock.sleep(LOOK)


def misplaced(stored: Stored) -> Iterable[str]:
    """Jobs that do not do what their Workload says: that wait although admitted, or run although not."""
    for workload in stored.objects(WORKLOADS):
        job = stored.job_of(workload)
        if job is not None and is_to_run(workload) and not ended(job) and suspended(job):
            yield f"job {job['metadata']['name']} is suspended and its workload is admitted"
    for job in stored.jobs():
        if not labels_of(job).get(QUEUE_LABEL) or ended(job) or suspended(job):
            continue
        if not any(is_to_run(w) or stored.goes_on(w) for w in stored.workloads_of(job)):
            yield f"job {job['metadata']['name']} runs and no workload of it is admitted"


def is_to_run(workload: Object) -> bool:
    """Whether the job of the Workload has to run by its status."""
    return (
        conditions.may_run(workload)
        and not conditions.is_evicted(workload)
        and not conditions.is_finished(workload)
        and not is_deleting(workload)
    )
