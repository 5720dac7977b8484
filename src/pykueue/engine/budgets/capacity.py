"""Budgets as a shared capacity: what is used, what running workloads may still use, and what is left.

What is used comes from the ledgers that the manager writes. What admitted workloads may still use is counted
from their reservations until they are in a ledger, and from the ledger after that, so that nothing is counted
twice and a workload that ends stays counted until the ledger says how much it used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from pykueue.api import kueue
from pykueue.api.budgets import LEDGERS_MAX, RUNNING_MAX, Budget, BudgetLedger
from pykueue.api.quantity import Quantity
from pykueue.engine.capacity import AssignedPodSet, SharedCapacity
from pykueue.engine.queues.cluster_queue import PODS
from pykueue.engine.undo_log import UndoLog

from .rules import HOUR, BudgetRules, LedgerKey, LedgerView, budget_rules, ledger_view, use_of

#: Actions under which no workload is admitted.
_CLOSED = ("NoAdmission", "Evict")

#: By ledger: seconds that a workload may run (None: it declares none; -1: nothing is set aside).
_Ledgers = tuple[tuple[LedgerKey, int | None], ...]
#: (pod set, ((resource, amount of a pod in quota units), ...)).
_PerPod = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]

_NOT_SET_ASIDE = -1


class BudgetRequest(NamedTuple):
    """What a workload requests of Budgets."""

    uid: str
    ledgers: _Ledgers
    per_pod: _PerPod


class LedgerDemand(NamedTuple):
    """What a workload demands of one ledger."""

    key: LedgerKey
    seconds: int | None
    amounts: tuple[tuple[str, int], ...]
    """(resource, nanos of resource-seconds that are set aside), for every resource that it uses."""


class BudgetDemand(NamedTuple):
    """What a workload demands with its flavors, and reserves once it is admitted."""

    uid: str
    ledgers: tuple[LedgerDemand, ...]
    replaces: str = ""
    """The uid of the workload slice that it replaces."""


class BudgetShortage(NamedTuple):
    """What one resource of a ledger lacks for a workload. Amounts are nanos of resource-seconds."""

    key: LedgerKey
    resource: str
    seconds: int | None
    """For which something is set aside; None: the workload declares no maximum, 0: nothing is set aside."""
    requested: int
    """What is set aside."""
    left: int
    used: int
    limit: int
    closed: bool
    """A threshold keeps the workload from starting, whatever it requests."""


class BudgetCapacity(SharedCapacity):
    """All Budgets. `path_of` returns the path of the ClusterQueue of a workload from its root cohort."""

    name: ClassVar[str] = "budgets"
    sets_aside: ClassVar[bool] = True

    def __init__(self, undo_log: UndoLog, path_of: Callable[[kueue.Workload], tuple[str, ...]]) -> None:
        self._undo_log = undo_log
        self._path_of = path_of
        self.budgets: dict[str, Budget] = {}
        self.ledgers: dict[LedgerKey, BudgetLedger] = {}
        self._rules: dict[str, BudgetRules] = {}
        self._views: dict[LedgerKey, LedgerView] = {}
        #: How often each reservation is made, by ledger and uid.
        self._made: dict[LedgerKey, dict[str, dict[LedgerDemand, int]]] = {}
        #: What reservations come to of workloads that are not in the ledger.
        self._unrecorded: dict[LedgerKey, dict[str, int]] = {}

    @property
    def on(self) -> bool:
        """Whether there is any Budget."""
        return bool(self._rules)

    @property
    def by_cohort(self) -> bool:
        """Whether a Budget is for a cohort, so that links between queues matter."""
        return any(rules.cohort for rules in self._rules.values())

    # --- objects ----------------------------------------------------------------------------------------

    def set_budget(self, name: str, budget: Budget | None) -> bool:
        """Add, update or remove (None) a Budget; returns whether that may change decisions."""
        known = self.budgets.get(name)
        self._undo_log.replace(self.budgets, name, budget)
        if known is not None and budget is not None and known.spec == budget.spec:
            return False
        self._undo_log.replace(self._rules, name, budget_rules(budget) if budget is not None else None)
        return known is not None or budget is not None

    def set_ledger(self, key: LedgerKey, ledger: BudgetLedger | None) -> bool:
        """Add, update or remove (None) a ledger; returns whether more may be left than before."""
        before = self._views.get(key)
        self._undo_log.record_undo(self.set_ledger, key, self.ledgers.get(key))
        if ledger is None:
            self.ledgers.pop(key, None)
            self._views.pop(key, None)
        else:
            self.ledgers[key] = ledger
            self._views[key] = ledger_view(ledger)
        self._count_unrecorded(key)
        now = self._views.get(key)
        if before is None or now is None:
            return True
        return (
            before.action != now.action
            or before.limit != now.limit
            or not before.reserved.keys() <= now.reserved.keys()
            or any(_total(now, name) < _total(before, name) for name in {*before.limit, *before.used})
        )

    def _count_unrecorded(self, key: LedgerKey) -> None:
        counted: dict[str, int] = {}
        view = self._views.get(key)
        for uid, made in self._made.get(key, {}).items():
            if view is not None and uid in view.reserved:
                continue
            for demand, count in made.items():
                for name, amount in demand.amounts:
                    counted[name] = counted.get(name, 0) + amount * count
        self._unrecorded[key] = counted

    # --- the contract -----------------------------------------------------------------------------------

    def request_of(self, workload: kueue.Workload, scheduling_class: Any) -> BudgetRequest | None:
        ledgers = [
            (key, rules.seconds_left(workload) if rules.declared else _NOT_SET_ASIDE)
            for key, rules in self.ledgers_of(workload)
        ]
        if not ledgers:
            return None
        per_pod: _PerPod = ()
        if scheduling_class is not None:
            per_pod = tuple(
                [(pods.name, tuple(sorted(pods.per_pod.items()))) for pods in scheduling_class.pod_sets]
            )
        return BudgetRequest(workload.metadata.uid, tuple(ledgers), per_pod)

    def ledgers_of(self, workload: kueue.Workload) -> list[tuple[LedgerKey, BudgetRules]]:
        """The ledgers that a workload is counted in, with their Budgets."""
        metadata = workload.metadata
        path = self._path_of(workload)
        return [
            (self._key(rules, metadata.uid, metadata.labels), rules)
            for _, rules in sorted(self._rules.items())
            if rules.covers(metadata.namespace, workload.spec.queue_name, path)
        ]

    def _key(self, rules: BudgetRules, uid: str, labels: Mapping[str, str]) -> LedgerKey:
        """The ledger of a workload: that in which it runs, whatever its labels say by now."""
        key = rules.name, rules.value(labels)
        view = self._views.get(key)
        if not rules.label or (view is not None and uid in view.reserved):
            return key
        running = (
            other for other, each in self._views.items() if other[0] == rules.name and uid in each.reserved
        )
        return next(running, key)

    def demand(self, request: BudgetRequest, pod_sets: Sequence[AssignedPodSet]) -> BudgetDemand | None:
        per_pod = {name: dict(amounts) for name, amounts in request.per_pod}
        return self._demand(
            request,
            [
                (resource, flavor, count * (1 if resource == PODS else per_pod[pods.name].get(resource, 0)))
                for pods in pod_sets
                for resource, flavor, count in pods.uses()
            ],
        )

    def read(self, request: BudgetRequest, admission: kueue.Admission) -> BudgetDemand | None:
        return self._demand(request, use_of(admission))

    def _demand(self, request: BudgetRequest, use: list[tuple[str, str, int]]) -> BudgetDemand | None:
        found: list[LedgerDemand] = []
        for key, seconds in request.ledgers:
            rules = self._rules.get(key[0])
            rates = rules.rates(use) if rules is not None else {}
            if rates:
                length = max(0, seconds or 0)
                amounts = tuple([(name, rate * length) for name, rate in sorted(rates.items())])
                found.append(LedgerDemand(key, seconds, amounts))
        return BudgetDemand(request.uid, tuple(found)) if found else None

    def continuing(self, demand: BudgetDemand, held: BudgetDemand) -> BudgetDemand:
        return demand._replace(replaces=held.uid)

    def fits(self, demand: BudgetDemand) -> bool:
        return not self._shortage(demand)

    def within_nominal(self, demand: BudgetDemand) -> str:
        for each in demand.ledgers:
            view = self._views.get(each.key)
            if view is not None and view.action == "NoBorrowing":
                return f"{_named(each.key)} allows no borrowing: its threshold for that is reached"
        return ""

    def explain(self, demand: BudgetDemand) -> str:
        return self._shortage(demand)

    def frees(self, reservation: BudgetDemand, demand: BudgetDemand) -> bool:
        return False

    def reserve(self, reservation: BudgetDemand) -> None:
        self._add(reservation, 1)

    def release(self, reservation: BudgetDemand) -> None:
        self._add(reservation, -1)

    def encode(self, reservation: BudgetDemand) -> Any:
        return [reservation.uid, [list(each) for each in reservation.ledgers], reservation.replaces]

    def decode(self, data: Any) -> BudgetDemand:
        uid, ledgers, replaces = data
        return BudgetDemand(
            uid,
            tuple(
                [
                    LedgerDemand(
                        (key[0], key[1]), seconds, tuple([(name, amount) for name, amount in amounts])
                    )
                    for key, seconds, amounts in ledgers
                ]
            ),
            replaces,
        )

    def problems(self, reservations: Iterable[BudgetDemand]) -> Iterable[str]:
        expected: dict[LedgerKey, dict[str, int]] = {}
        for reservation in reservations:
            for each in reservation.ledgers:
                view = self._views.get(each.key)
                counted = expected.setdefault(each.key, {})
                for name, amount in each.amounts:
                    if view is None or reservation.uid not in view.reserved:
                        counted[name] = counted.get(name, 0) + amount
        for key in sorted(expected.keys() | self._unrecorded.keys()):
            found = {name: amount for name, amount in self._unrecorded.get(key, {}).items() if amount}
            wanted = {name: amount for name, amount in expected.get(key, {}).items() if amount}
            if found != wanted:
                yield f"{_named(key)} counts {found} outside of its ledger, {wanted} is reserved"

    def shortages(self, demand: BudgetDemand) -> list[BudgetShortage]:
        """What ledgers lack for a demand, by resource."""
        found = []
        for each in demand.ledgers:
            key, view = each.key, self._views.get(each.key)
            if key[0] not in self._rules:
                continue
            closed = view is not None and view.action not in ("", "Warn")
            seconds = 0 if each.seconds == _NOT_SET_ASIDE else each.seconds
            for resource, amount in each.amounts:
                limit = self.limit(key, resource)
                left = limit - self.committed(key, resource, demand.replaces)
                if closed or (seconds and amount > left):
                    used = view.used.get(resource, 0) if view is not None else 0
                    found.append(BudgetShortage(key, resource, seconds, amount, left, used, limit, closed))
        return found

    # --- arithmetic -------------------------------------------------------------------------------------

    def _add(self, reservation: BudgetDemand, sign: int) -> None:
        for each in reservation.ledgers:
            by_uid = self._made.setdefault(each.key, {})
            made = by_uid.setdefault(reservation.uid, {})
            count = made.get(each, 0) + sign
            if count:
                made[each] = count
            else:
                del made[each]
                if not made:
                    del by_uid[reservation.uid]
            view = self._views.get(each.key)
            if view is None or reservation.uid not in view.reserved:
                counted = self._unrecorded.setdefault(each.key, {})
                for name, amount in each.amounts:
                    counted[name] = counted.get(name, 0) + sign * amount

    def committed(self, key: LedgerKey, resource: str, without: str = "") -> int:
        """What is used or may still be used by admitted workloads, without the one with that uid."""
        view = self._views.get(key)
        found = self._unrecorded.get(key, {}).get(resource, 0)
        if view is not None:
            found += _total(view, resource)
        if without:
            if view is not None and without in view.reserved:
                found -= view.reserved[without].get(resource, 0)
            else:
                made = self._made.get(key, {}).get(without, {})
                found -= sum(dict(each.amounts).get(resource, 0) * count for each, count in made.items())
        return found

    def limit(self, key: LedgerKey, resource: str) -> int:
        """What a ledger allows, in nanos of resource-seconds."""
        view = self._views.get(key)
        if view is not None and resource in view.limit:
            return view.limit[resource]
        return self._rules[key[0]].limit[resource]

    def _shortage(self, demand: BudgetDemand) -> str:
        """Why a demand does not fit; empty if it does."""
        for each in demand.ledgers:
            if each.key[0] in self._rules and (found := self._ledger_shortage(demand, each)):
                return found
        return ""

    def _ledger_shortage(self, demand: BudgetDemand, each: LedgerDemand) -> str:
        key, name = each.key, _named(each.key)
        view = self._views.get(key)
        if view is None:
            if sum(1 for other in self._views if other[0] == key[0]) >= LEDGERS_MAX:
                return f"{name} has ledgers of {LEDGERS_MAX} values already"
        elif demand.uid in view.reserved:
            return f"{name} does not show yet what the workload used before its eviction"
        elif view.action in _CLOSED:
            return f"{name} is exhausted: {self._use_text(key, each)}"
        running = len(self._made.get(key, {}).keys() | (view.reserved.keys() if view is not None else set()))
        if running >= RUNNING_MAX and demand.uid not in self._made.get(key, {}):
            return f"{name} counts {RUNNING_MAX} running workloads already"
        if each.seconds == _NOT_SET_ASIDE:
            return ""
        if each.seconds is None:
            return (
                f"{name} sets aside what a workload may use: "
                "a maximum execution time must be declared (label kueue.x-k8s.io/max-exec-time-seconds)"
            )
        if each.seconds == 0:
            return f"{name}: the workload has run for its maximum execution time"
        for resource, amount in each.amounts:
            left = self.limit(key, resource) - self.committed(key, resource, demand.replaces)
            if amount > left:
                return (
                    f"insufficient {resource} in {name}: {hours(amount)} resource-hours requested "
                    f"(maximum execution time {each.seconds}s), {hours(max(0, left))} left"
                )
        return ""

    def _use_text(self, key: LedgerKey, each: LedgerDemand) -> str:
        view = self._views[key]
        return ", ".join(
            f"{hours(view.used.get(resource, 0))} of {hours(self.limit(key, resource))} resource-hours of "
            f"{resource} used"
            for resource, _ in each.amounts
        )


def hours(nanos: int) -> str:
    """Nanos of resource-seconds as resource-hours, to a hundredth, rounded down."""
    hundredths = nanos * 100 // (HOUR * 10**9)
    return str(Quantity(hundredths * 10**7)) if hundredths % 100 == 0 else f"{hundredths / 100:.2f}"


def _total(view: LedgerView, resource: str) -> int:
    return view.used.get(resource, 0) + sum(each.get(resource, 0) for each in view.reserved.values())


def _named(key: LedgerKey) -> str:
    return f"Budget {key[0]} ({key[1]})" if key[1] else f"Budget {key[0]}"
