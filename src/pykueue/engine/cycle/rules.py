"""What the options say about cycles."""

from __future__ import annotations

from pykueue.engine.options import Options


class CycleRules:
    """The feature gates and settings that cycles consult, looked up once."""

    __slots__ = (
        "by_priority",
        "fair_sharing",
        "fine_reasons",
        "gates_work",
        "keep_scan",
        "non_borrowing_first",
        "places_again",
        "preemptors_first",
        "recompute",
    )

    def __init__(self, options: Options) -> None:
        self.fair_sharing = options.fair_sharing
        self.recompute = options.enabled("RecomputeAssignmentUponPreemptionTargetsOverlap")
        self.preemptors_first = options.enabled("PrioritizePreemptorWorkloads")
        self.by_priority = options.enabled("PrioritySortingWithinCohort")
        self.keep_scan = options.enabled("FlavorFungibilityPreserveScanProgress")
        self.gates_work = options.enabled("ConcurrentAdmission") or options.enabled(
            "MultiKueueOrchestratedPreemption"
        )
        self.fine_reasons = options.enabled("UnadmittedWorkloadsObservability")
        self.places_again = options.enabled("TASRecomputeAssignmentWithinSchedulingCycle")
        self.non_borrowing_first = options.enabled("FairSharingPrioritizeNonBorrowing")
