# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""The kind BackfillPolicy (pykueue.io/v1alpha1): reservations for workloads that do not fit yet.

Source of the rules: docs/reference/policies.md 4.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pykueue.api.kueue.common import Conditions, ObjectName
from pykueue.api.meta import ObjectMeta, parse_time
from pykueue.api.model import DEFAULTED, Cel, Model, Rule, checked, set_of
from pykueue.api.preemption_policies import Duration
from pykueue.api.resources import OWN_GROUP, Resource

BACKFILL_POLICIES: Final = Resource(OWN_GROUP, "v1alpha1", "backfillpolicies", "BackfillPolicy", False)

#: Condition of a Workload that was admitted before others that were first in order.
BACKFILLED: Final = "Backfilled"

#: What the condition says of a workload that ends before another starts.
_ENDS: Final = re.compile(r": ends by (\S+Z), before ")

#: Most workloads of a ClusterQueue that have reservations under the strategy EASY.
DEPTH_MAX: Final = 1000


@checked(
    Cel(
        "!(has(self.clusterQueues) && size(self.clusterQueues) > 0 && has(self.cohort))",
        "clusterQueues and cohort are not accepted together",
    ),
    Cel(
        "self.strategy == 'EASY' || self.depth == 1",
        "depth is for strategy EASY: Conservative reserves for all pending workloads",
    ),
)
class BackfillPolicySpec(Model):
    """Which ClusterQueues the policy applies to, and which of their pending workloads have reservations.

    A policy that names a ClusterQueue takes precedence over one for its cohort, that over one for a cohort
    above, and that over one for all ClusterQueues. It replaces the queueing strategy of the ClusterQueue.
    """

    cluster_queues: Annotated[list[ObjectName], set_of(maxItems=256)] = []
    """ClusterQueues that the policy applies to."""
    cohort: ObjectName | None = None
    """Cohort that the policy applies to, with all cohorts and ClusterQueues below it."""
    strategy: Annotated[Literal["EASY", "Conservative"], DEFAULTED] = "EASY"
    """EASY: the first workloads of each ClusterQueue have reservations. Conservative: all workloads have,
    as far as the first 100; those behind these wait."""
    depth: Annotated[int, Rule(minimum=1, maximum=DEPTH_MAX), DEFAULTED] = 1
    """With EASY: number of workloads of each ClusterQueue that have reservations."""
    assumed_run_time: Annotated[Duration, DEFAULTED] = "24h"
    """Run time of workloads without maximumExecutionTimeSeconds. One that runs for longer is assumed to need
    twice that, and so on."""
    fitted_percentile: Annotated[int, Rule(minimum=50, maximum=99)] | None = None
    """Workloads without maximumExecutionTimeSeconds are assumed to run for as long as this percentage of the
    finished workloads like them at most; with fewer than 20 of those, for assumedRunTime."""


class BackfillPolicyStatus(Model):
    """Observed state of a BackfillPolicy."""

    conditions: Conditions = []
    """Active says whether the policy is in force."""


class BackfillPolicy(Model):
    """Reservations of ClusterQueues. Only administrators should be able to write it."""

    metadata: ObjectMeta
    spec: BackfillPolicySpec = BackfillPolicySpec()
    status: BackfillPolicyStatus = BackfillPolicyStatus()


def promised_end(message: str) -> float | None:
    """By when a workload is to end as the message of its condition Backfilled says, in seconds since 1970.

    None: when it ends is of no importance.
    """
    found = _ENDS.search(message)
    return parse_time(found.group(1)) if found is not None else None
