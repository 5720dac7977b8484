"""What a simulation knows of one workload."""

from __future__ import annotations

from dataclasses import dataclass

from pykueue.simulate.measures import Lives, UsageKey
from pykueue.simulate.scenario.jobs import Job


@dataclass(slots=True)
class Life:
    """A workload from its creation to its end."""

    job: Job
    created: float
    lives: Lives
    counts: bool
    """It is reported: it was created after the warm-up."""
    held: tuple[tuple[UsageKey, float], ...] = ()
    """Quota it holds."""
    progress: float = 0.0
    """Seconds of its run time that need not be repeated."""
    executed: float = 0.0
    """Seconds it ran, lost ones included."""
    running_since: float | None = None
    """When its pods began to run."""
    attempt: int = 0
    """Of holding quota and running; what was planned for an earlier one does not happen."""
    waiting_since: float | None = 0.0
    pending: float = 0.0
    was_admitted: bool = False
    admissions: int = 0
    preemptions: int = 0
    displaced: bool = False
    """It is admitted and does not run: a host of its pods is out of use."""
    cluster_queue: str = ""
    """Of its LocalQueue when it was created."""
