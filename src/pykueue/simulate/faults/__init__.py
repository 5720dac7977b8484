"""Faults by seed: the whole stack in virtual time while requests, watches, clocks and users misbehave.

`python -m pykueue.simulate.faults --seed N` plays one run and prints what went wrong in it, if anything did.
Everything a run does follows from its seed. docs/develop/testing.md describes how runs are made and checked.
"""

from pykueue.simulate.faults.run import Report, play
from pykueue.simulate.faults.transport import FaultyTransport, Rates

__all__ = ["FaultyTransport", "Rates", "Report", "play"]
