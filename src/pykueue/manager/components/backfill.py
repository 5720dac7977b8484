"""The controller of BackfillPolicies as a component."""

from __future__ import annotations

from pykueue.api.backfill_policies import BACKFILL_POLICIES
from pykueue.manager.backfill.controller import BackfillPolicies
from pykueue.manager.rights import allow

from .component import Component


def backfill_policies() -> Component:
    """The component that writes the status of BackfillPolicies."""
    return Component(
        "backfill-policies",
        "Writes the status of BackfillPolicies: whether they are in force.",
        lambda c: BackfillPolicies(c.cluster, c.connection.writer, c.clock, c.workers),
        watches=(BACKFILL_POLICIES,),
        writes=(allow(BACKFILL_POLICIES, "patch", subresource="status"),),
    )
