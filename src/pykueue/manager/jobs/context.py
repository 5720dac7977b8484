"""What the parts of the controller of one job kind share."""

from __future__ import annotations

from dataclasses import dataclass

from pykueue.clock import Clock
from pykueue.jobs.base import JobIntegration
from pykueue.kube.events import EventRecorder
from pykueue.manager.cluster import Cluster
from pykueue.manager.workloads.reservations import Reservations
from pykueue.manager.writes import Writer


@dataclass(frozen=True)
class JobContext:
    """A job kind, the cluster, and what reads and writes there."""

    integration: JobIntegration
    cluster: Cluster
    writer: Writer
    reservations: Reservations
    recorder: EventRecorder
    clock: Clock
