"""The controller of PreemptionPolicies as a component."""

from __future__ import annotations

from pykueue.api.preemption_policies import PREEMPTION_POLICIES
from pykueue.api.resources import WORKLOADS
from pykueue.manager.preemptions.controller import PreemptionPolicies
from pykueue.manager.rights import allow

from .component import Component


def preemption_policies() -> Component:
    """The component that writes the status of PreemptionPolicies."""
    return Component(
        "preemption-policies",
        "Writes the status of PreemptionPolicies: whether they are in force, and the preemptions under them.",
        lambda c: PreemptionPolicies(c.cluster, c.engine, c.connection.writer, c.clock, c.workers),
        watches=(PREEMPTION_POLICIES, WORKLOADS),
        writes=(allow(PREEMPTION_POLICIES, "patch", subresource="status"),),
    )
