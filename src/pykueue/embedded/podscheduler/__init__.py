"""The pod scheduler: one pod at a time, by priority and time, to the node that suits it best."""

from pykueue.embedded.podscheduler.scheduler import PodScheduler

__all__ = ["PodScheduler"]
