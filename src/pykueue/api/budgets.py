# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""The kinds Budget and BudgetLedger (pykueue.io/v1alpha1): resource-hours that workloads may use in a window.

A Budget says who may use how much; its BudgetLedgers say how much was used. Amounts of a ledger are
resource-seconds, weighted by flavor: cpus, bytes or units times seconds. Source of the rules:
docs/reference/policies.md 2.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, Final, Literal

from pykueue.api.kueue.common import Amounts, Conditions, ObjectName
from pykueue.api.meta import ObjectMeta
from pykueue.api.model import DEFAULTED, Cel, Model, Rule, atomic, checked, map_by
from pykueue.api.preemption_policies import Duration
from pykueue.api.quantity import Quantity
from pykueue.api.resources import OWN_GROUP, Resource

BUDGETS: Final = Resource(OWN_GROUP, "v1alpha1", "budgets", "Budget", False)
BUDGET_LEDGERS: Final = Resource(OWN_GROUP, "v1alpha1", "budgetledgers", "BudgetLedger", False)

#: Label of a BudgetLedger: the name of its Budget.
BUDGET_LABEL: Final = "pykueue.io/budget"
#: Reason of the condition Evicted of workloads whose Budget is used up.
BUDGET_EXHAUSTED: Final = "BudgetExhausted"

#: Values of a label that a Budget keeps ledgers of; workloads with further values are not admitted.
LEDGERS_MAX: Final = 1000
#: Workloads that run at a time under one ledger; further workloads are not admitted.
RUNNING_MAX: Final = 2000
#: Ledgers listed in the status of a Budget, those with the highest use first.
SHOWN_MAX: Final = 50
#: Past windows that a ledger keeps.
PAST_MAX: Final = 12
#: Parts of a rolling window: use is forgotten a part at a time.
PARTS: Final = 60
#: Hours of use that forecasts are made from.
HOURS_MAX: Final = 48

Action = Literal["Warn", "NoBorrowing", "NoAdmission", "Evict"]
Weekday = Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
LabelKey = Annotated[str, Rule(minLength=1, maxLength=317)]
Resources = Annotated[Amounts, Rule(maxProperties=16)]


class LocalQueueReference(Model):
    """A LocalQueue."""

    namespace: Annotated[str, Rule(minLength=1, maxLength=63)]
    """Namespace of the LocalQueue."""
    name: ObjectName
    """Name of the LocalQueue."""


@checked(
    Cel(
        "[has(self.localQueue), has(self.clusterQueue), has(self.cohort), has(self.namespace), "
        "has(self.label)].filter(x, x).size() == 1",
        "exactly one of localQueue, clusterQueue, cohort, namespace and label must be set",
    )
)
class BudgetSelector(Model):
    """Whose workloads the budget is for."""

    local_queue: LocalQueueReference | None = None
    """Workloads of a LocalQueue."""
    cluster_queue: ObjectName | None = None
    """Workloads of a ClusterQueue."""
    cohort: ObjectName | None = None
    """Workloads of all ClusterQueues of a cohort and of the cohorts below it."""
    namespace: Annotated[str | None, Rule(minLength=1, maxLength=63)] = None
    """Workloads of a namespace."""
    label: LabelKey | None = None
    """Key of a label of jobs: each value has a separate budget, and jobs without the label share one."""


class FlavorWeight(Model):
    """What use of one flavor counts."""

    name: ObjectName
    """Name of the ResourceFlavor."""
    weight: Quantity
    """Factor of its use: 0 is free, 500m counts half. Thousandths are the smallest part."""


class BudgetResource(Model):
    """Hours of one resource."""

    name: Annotated[str, Rule(minLength=1, maxLength=317)]
    """Name of the resource, such as nvidia.com/gpu or cpu."""
    hours: Quantity
    """Resource-hours of a window: for cpu, CPUs times hours; for memory, bytes times hours."""
    flavor_weights: Annotated[list[FlavorWeight], map_by("name", maxItems=64)] = []
    """Weights of flavors; a flavor that is not listed has weight 1."""


@checked(
    Cel(
        "!(has(self.calendar) && has(self.rolling))",
        "calendar and rolling are not accepted together",
    ),
    Cel("has(self.calendar) || has(self.rolling)", "one of calendar and rolling must be set"),
)
class BudgetWindow(Model):
    """When the budget starts again."""

    calendar: Literal["Daily", "Weekly", "Monthly", "Quarterly", "Yearly"] | None = None
    """Windows that begin at midnight of the first day of each such period."""
    rolling: Duration | None = None
    """Use counts for this long, in steps of a sixtieth of it."""
    time_zone: Annotated[str, DEFAULTED, Rule(maxLength=64)] = "UTC"
    """Time zone of calendar windows, by its name in the IANA database."""
    first_weekday: Annotated[Weekday, DEFAULTED] = "Monday"
    """First day of weekly windows."""
    first_day: Annotated[int, DEFAULTED, Rule(minimum=1, maximum=28)] = 1
    """Day of the month on which monthly, quarterly and yearly windows begin."""
    first_month: Annotated[int, DEFAULTED, Rule(minimum=1, maximum=12)] = 1
    """Month in which yearly windows, and the first of the quarterly windows, begin."""


class Threshold(Model):
    """What happens once a percentage of the budget is used."""

    percent: Annotated[int, Rule(minimum=1, maximum=1000)]
    """Percentage of the hours of any of the resources, credits and carried over hours included."""
    action: Action
    """Warn: an event and a condition. NoBorrowing: workloads are admitted only within nominal quota.
    NoAdmission: no workload is admitted. Evict: no workload is admitted, and after grace those that run are
    evicted."""
    grace: Duration | None = None
    """How long workloads may still run after Evict."""


class CarryOver(Model):
    """What is left of a window is added to the next one."""

    percent: Annotated[int, Rule(minimum=1, maximum=100)]
    """Percentage of the remaining hours that is carried over."""
    max_percent: Annotated[int, DEFAULTED, Rule(minimum=1, maximum=1000)] = 100
    """Most that is carried over, as a percentage of the hours of a window."""


class Credit(Model):
    """Hours granted beside those of the window."""

    name: Annotated[str, Rule(minLength=1, maxLength=63)]
    """Name of the credit."""
    resource: Annotated[str, Rule(minLength=1, maxLength=317)]
    """Name of the resource, one of spec.resources."""
    hours: Quantity
    """Resource-hours."""
    reason: Annotated[str, Rule(minLength=1, maxLength=1024)]
    """Why it was granted."""
    granted_by: Annotated[str, Rule(minLength=1, maxLength=253)]
    """Who granted it."""
    value: Annotated[str | None, Rule(maxLength=63)] = None
    """Value of the label that it is for; not set: every value has it."""
    not_before: Annotated[str | None, Rule(format="date-time")] = None
    """When it begins to count; not set: at once."""
    not_after: Annotated[str | None, Rule(format="date-time")] = None
    """When it ceases to count; not set: never."""


class BudgetSpec(Model):
    """Who may use how much, and what happens then."""

    selector: BudgetSelector
    """Whose workloads the budget is for."""
    resources: Annotated[list[BudgetResource], map_by("name", minItems=1, maxItems=16)]
    """Hours by resource. Resources that are not listed are not limited."""
    window: BudgetWindow | None = None
    """When the budget starts again; not set: never."""
    thresholds: Annotated[list[Threshold], atomic(maxItems=16)] = []
    """What happens as the budget is used; none: NoAdmission at 100 percent."""
    reservation: Annotated[Literal["None", "Declared"], DEFAULTED] = "None"
    """Declared: an admission sets aside what the workload uses until its maximum execution time, and needs
    that much to be left. What it does not use is returned when it ends."""
    default_maximum: Duration | None = None
    """Maximum execution time of workloads that declare none, after which they are evicted. Without it they
    are not admitted under reservation Declared."""
    carry_over: CarryOver | None = None
    """What is left of a calendar window is added to the next one."""
    credits: Annotated[list[Credit], map_by("name", maxItems=256)] = []
    """Hours granted beside those of the window."""


class Forecast(Model):
    """When the budget is used up if use goes on as in the last 48 hours."""

    resource: Annotated[str, Rule(maxLength=317)]
    """The resource that is used up first."""
    p10: str | None = None
    """With a probability of 10 percent it is used up before."""
    p50: str | None = None
    """With a probability of 50 percent it is used up before."""
    p90: str | None = None
    """With a probability of 90 percent it is used up before."""


class BudgetUse(Model):
    """One resource of one ledger."""

    name: Annotated[str, Rule(maxLength=317)]
    """Name of the resource."""
    limit: Quantity = Quantity(0)
    """Resource-hours, credits and carried over hours included."""
    used: Quantity = Quantity(0)
    """Resource-hours used."""
    reserved: Quantity = Quantity(0)
    """Resource-hours that running workloads may still use, under reservation Declared."""
    remaining: Quantity = Quantity(0)
    """Resource-hours neither used nor reserved; 0 if more was used than allowed."""
    percent: int = 0
    """Used hours as a percentage of the limit, rounded down."""


class LedgerSummary(Model):
    """One ledger in the status of its Budget."""

    value: Annotated[str, Rule(maxLength=63)] = ""
    """Value of the label; empty for jobs without it, and for Budgets of another selector."""
    ledger: Annotated[str, Rule(maxLength=253)]
    """Name of the BudgetLedger."""
    resources: Annotated[list[BudgetUse], atomic(maxItems=16)] = []
    """Use by resource."""
    running: int = 0
    """Number of workloads that use it now."""
    action: Annotated[str, Rule(maxLength=16)] = ""
    """The strictest action that is in force."""
    forecast: Forecast | None = None
    """When it is used up; not set where it is not expected to be within a year."""


class PrintedUse(Model):
    """The resource that is used most, as `kubectl get` prints it: decimal hours, no quantities."""

    resource: Annotated[str, Rule(maxLength=317)]
    """Name of the resource."""
    used: Annotated[str, Rule(maxLength=64)]
    """Resource-hours used; for sizes in bytes, in Gi-hours."""
    reserved: Annotated[str, Rule(maxLength=64)]
    """Resource-hours that running workloads may still use, under reservation Declared."""
    left: Annotated[str, Rule(maxLength=64)]
    """Resource-hours neither used nor reserved."""
    limit: Annotated[str, Rule(maxLength=64)]
    """Resource-hours, credits and carried over hours included."""
    percent: Annotated[str, Rule(maxLength=64)]
    """Used hours as a percentage of the limit."""


class BudgetStatus(Model):
    """Observed state of a Budget."""

    conditions: Conditions = []
    """Active: whether the budget is in force. Exhausted: whether no workload is admitted under a ledger."""
    window_start: str | None = None
    """When the current window began."""
    window_end: str | None = None
    """When the current window ends."""
    complete_since: str | None = None
    """Use is counted from this time on."""
    ledgers: Annotated[list[LedgerSummary], atomic(maxItems=SHOWN_MAX)] = []
    """The ledgers with the highest use."""
    ledger_count: int = 0
    """Number of ledgers."""
    printed: PrintedUse | None = None
    """The resource that is used most, of the first of the ledgers."""


class Budget(Model):
    """Resource-hours that workloads may use in a window. Only administrators should be able to write it."""

    metadata: ObjectMeta
    spec: BudgetSpec
    status: BudgetStatus = BudgetStatus()


class RunningWorkload(Model):
    """A workload whose use is being counted."""

    uid: Annotated[str, Rule(maxLength=64)]
    """The uid of the Workload."""
    workload: Annotated[str, Rule(maxLength=512)]
    """The Workload, namespace/name."""
    since: str
    """When it was admitted, or when the Budget began to count."""
    through: str
    """Use until this time is in the amounts of the ledger."""
    rates: Resources = {}
    """Resource-seconds that it uses in a second."""
    seconds: int = 0
    """Seconds of this run that are in the amounts of the ledger."""
    reserved_seconds: int = 0
    """Seconds that were set aside when it was admitted; 0: none were."""


class Span(Model):
    """Use in some time."""

    start: str
    """When it began."""
    used: Resources = {}
    """Resource-seconds."""


class PastWindow(Model):
    """A window that is over."""

    start: str
    """When it began."""
    end: str
    """When it ended."""
    used: Resources = {}
    """Resource-seconds used."""
    limit: Resources = {}
    """Resource-seconds allowed."""


class BudgetLedgerSpec(Model):
    """How much was used. Written by the manager alone."""

    budget: ObjectName
    """Name of the Budget."""
    value: Annotated[str, Rule(maxLength=63)] = ""
    """Value of the label, for Budgets that select by label."""
    complete_since: str
    """Use is counted from this time on."""
    window_start: str | None = None
    """When the current window began."""
    window_end: str | None = None
    """When the current window ends."""
    used: Resources = {}
    """Resource-seconds used in the current window."""
    total: Resources = {}
    """Resource-seconds used since completeSince."""
    carried: Resources = {}
    """Resource-seconds carried over from the last window."""
    limit: Resources = {}
    """Resource-seconds allowed, credits and carried over hours included."""
    action: Annotated[str, Rule(maxLength=16)] = ""
    """The strictest action that is in force."""
    action_since: str | None = None
    """Since when it is."""
    running: Annotated[list[RunningWorkload], map_by("uid", maxItems=RUNNING_MAX)] = []
    """Workloads whose use is being counted."""
    parts: Annotated[list[Span], atomic(maxItems=PARTS + 2)] = []
    """Use by parts of a rolling window."""
    hours: Annotated[list[Span], atomic(maxItems=HOURS_MAX)] = []
    """Use by hour, for forecasts."""
    past: Annotated[list[PastWindow], atomic(maxItems=PAST_MAX)] = []
    """Windows that are over, the latest first."""


class BudgetLedger(Model):
    """How much of a Budget was used. Only the manager should be able to write it."""

    metadata: ObjectMeta
    spec: BudgetLedgerSpec


def ledger_name(budget: str, value: str) -> str:
    """Name of the ledger of a Budget for a value of its label; empty where there is none."""
    digest = sha256(f"{budget}\n{value}".encode()).hexdigest()[:10]
    return f"{budget[:242]}-{digest}"
