"""The APIs by which pods ask to be placed as a group: what a group is in each, and how its status is set."""

from pykueue.embedded.podscheduler.modes.contract import GangMode
from pykueue.embedded.podscheduler.modes.coscheduling import COSCHEDULING, FLUENCE
from pykueue.embedded.podscheduler.modes.volcano import VOLCANO

#: The names pods may give as `schedulerName`: all are served by the one scheduler.
SCHEDULERS = ("default-scheduler", COSCHEDULING, VOLCANO, FLUENCE)

__all__ = ["SCHEDULERS", "GangMode"]
