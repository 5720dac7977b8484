"""The controller of Budgets as a component."""

from __future__ import annotations

from pykueue.api.budgets import BUDGET_LEDGERS, BUDGETS
from pykueue.api.resources import CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, WORKLOADS
from pykueue.manager.budgets.controller import Budgets
from pykueue.manager.rights import allow

from .component import RECORD_EVENTS, WRITE_WORKLOAD_STATUS, Component


def budgets() -> Component:
    """The component that keeps the ledgers of Budgets."""
    return Component(
        "budgets",
        "Counts what workloads use of Budgets in BudgetLedgers, and acts at the thresholds of Budgets.",
        lambda c: Budgets(
            c.cluster, c.engine, c.connection.writer, c.recorder("kueue-budgets"), c.clock, c.workers
        ),
        watches=(BUDGETS, BUDGET_LEDGERS, WORKLOADS, LOCAL_QUEUES, CLUSTER_QUEUES, COHORTS),
        writes=(
            allow(BUDGETS, "patch", subresource="status"),
            allow(BUDGET_LEDGERS, "create", "patch"),
            WRITE_WORKLOAD_STATUS,
            RECORD_EVENTS,
        ),
    )
