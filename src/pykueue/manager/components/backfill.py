"""The controllers of BackfillPolicies and Reservations as components."""

from __future__ import annotations

from pykueue.api.backfill_policies import BACKFILL_POLICIES
from pykueue.api.reservations import RESERVATIONS
from pykueue.manager.backfill.controller import BackfillPolicies
from pykueue.manager.backfill.reservations import Reservations
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


def advance_reservations() -> Component:
    """The component that writes the status of Reservations."""
    return Component(
        "reservations",
        "Writes the status of Reservations: whether they are in force, and their current or next window.",
        lambda c: Reservations(c.cluster, c.connection.writer, c.clock, c.workers),
        watches=(RESERVATIONS,),
        writes=(allow(RESERVATIONS, "patch", subresource="status"),),
    )
