"""MultiKueue: dispatches Workloads and their jobs to worker clusters.

Source: docs/reference/admission-checks.md, part C.
"""

from pykueue.manager.multikueue.controller import MultiKueue

__all__ = ["MultiKueue"]
