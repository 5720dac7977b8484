"""The ledgers of Budgets in virtual time: the arithmetic of the manager's, without objects in an API.

A workload is counted from its admission to the release of its quota, in whole seconds, as on a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from pykueue.api.budgets import BUDGET_EXHAUSTED, Budget, BudgetLedger, PastWindow, ledger_name
from pykueue.api.kueue.names import ADMITTED, EVICTED, FINISHED
from pykueue.api.meta import ObjectMeta
from pykueue.engine import Removed, Upsert, lifecycle
from pykueue.engine.budgets.rules import LedgerKey, current_use
from pykueue.engine.driver import Driver
from pykueue.engine.events import Event
from pykueue.manager.budgets.ledger import HOUR, Ledger, Run, Terms, grace
from pykueue.simulate.measures import BudgetKey, BudgetUse

_NANO = 1e-9


class BudgetLedgers:
    """All ledgers of a run. Times are seconds since 1970."""

    def __init__(self, driver: Driver, start: float) -> None:
        self._driver = driver
        self._start = start
        self._budgets: dict[str, Budget] = {}
        self._ledgers: dict[LedgerKey, Ledger] = {}
        #: Workloads that are counted, by key: their uid and their ledgers.
        self._open: dict[str, tuple[str, list[LedgerKey]]] = {}
        #: Workloads that were admitted, and when.
        self._opening: dict[str, float] = {}
        #: Ledgers that changed, and when each of the others does next.
        self._changed: dict[LedgerKey, None] = {}
        self._due: dict[LedgerKey, int] = {}
        self._use: dict[BudgetKey, BudgetUse] = {}

    def apply(self, events: Iterable[Event], now: float) -> None:
        """Budgets appear, change and go; ledgers are those with which the run begins."""
        for event in events:
            match event:
                case Upsert(Budget() as budget):
                    self._set(budget, now)
                case Upsert(BudgetLedger(spec=spec)):
                    self._ledgers[spec.budget, spec.value] = Ledger.read(spec)
                case Removed(kind="Budget", name=name):
                    self._budgets.pop(name, None)
                    for key in [key for key in self._ledgers if key[0] == name]:
                        self._drop(key)
                    for _, keys in self._open.values():
                        keys[:] = [key for key in keys if key[0] != name]

    def _set(self, budget: Budget, now: float) -> None:
        name = budget.metadata.name
        self._budgets[name] = budget
        if budget.spec.selector.label is None:
            self._ledger((name, ""), now)
        self._changed |= dict.fromkeys(key for key in self._ledgers if key[0] == name)
        for workload in list(self._driver.workloads.values()):
            if workload.condition_is(ADMITTED) and not workload.condition_is(FINISHED):
                self.open(workload.metadata.key, now)

    def _drop(self, key: LedgerKey) -> None:
        del self._ledgers[key]
        self._changed.pop(key, None)
        self._due.pop(key, None)
        self._driver.engine.apply(Removed("BudgetLedger", "", ledger_name(*key)))

    def _ledger(self, key: LedgerKey, now: float) -> Ledger:
        found = self._ledgers.get(key)
        if found is None:
            found = self._ledgers[key] = Ledger(*key, int(now), int(now))
            self._changed[key] = None
        return found

    def begin(self) -> None:
        """The workloads of the beginning are there: others that a ledger lists are gone."""
        uids = {self._driver.workloads[key].metadata.uid for key in self._opening}
        for key, ledger in self._ledgers.items():
            if key[0] in self._budgets:
                for uid in ledger.running.keys() - uids:
                    ledger.close(uid, ledger.running[uid].through, self._terms(key))
                    self._changed[key] = None

    # --- workloads --------------------------------------------------------------------------------------

    def open(self, key: str, since: float) -> None:
        """A workload is admitted, as the next `settle` finds it: it is counted from now on, or as its ledger
        says it is already."""
        if self._budgets:
            self._opening[key] = since

    def _open_now(self, key: str, since: float) -> None:
        if key not in self._driver.workloads or not self._driver.workloads[key].condition_is(ADMITTED):
            return
        workload, engine = self._driver.workloads[key], self._driver.engine
        uid = workload.metadata.uid
        counted = self._open.setdefault(key, (uid, []))[1]
        for ledger_key, rules in engine.ledgers_of(workload):
            ledger = self._ledger(ledger_key, since)
            rates = rules.rates(current_use(workload, engine.options))
            if not rates or ledger_key in counted:
                continue
            counted.append(ledger_key)
            if uid not in ledger.running:
                begin = max(int(since), ledger.complete_since)
                left = rules.seconds_left(workload) if rules.declared else 0
                ledger.open(Run(uid, key, begin, begin, rates, 0, left or 0))
                self._changed[ledger_key] = None

    def close(self, key: str, now: float) -> None:
        """A workload gave its quota back."""
        self._opening.pop(key, None)
        uid, ledgers = self._open.pop(key, ("", []))
        ran = 0
        for ledger_key in ledgers:
            ledger = self._ledgers.get(ledger_key)
            if ledger is not None and uid in ledger.running:
                terms = self._terms(ledger_key)
                ran = max(ran, int(now) - ledger.running[uid].since)
                ledger.advance(int(now), terms)
                ledger.close(uid, int(now), terms)
                self._changed[ledger_key] = None
        workload = self._driver.workloads.get(key)
        if ran and workload is not None and not workload.condition_is(FINISHED):
            # What it may still use is less by what it has run for.
            past = workload.status.accumulated_past_execution_time_seconds or 0
            status = replace(workload.status, accumulated_past_execution_time_seconds=past + ran)
            self._driver.apply(Upsert(replace(workload, status=status)))

    def _terms(self, key: LedgerKey) -> Terms:
        return Terms(self._budgets[key[0]].spec, key[1])

    # --- time -------------------------------------------------------------------------------------------

    def due(self) -> float | None:
        """When an action, a limit or a window changes next if everything goes on as it does."""
        return min(self._due.values(), default=None)

    def settle(self, now: float) -> list[str]:
        """Bring ledgers up to date; returns the workloads that were evicted."""
        if not self._budgets:
            return []
        for key, since in self._opening.items():
            self._open_now(key, since)
        self._opening.clear()
        at = int(now)
        due = [key for key, time in self._due.items() if time <= at]
        evicted: dict[str, None] = {}
        for ledger_key in dict.fromkeys([*self._changed, *due]):
            if ledger_key[0] not in self._budgets:
                continue
            ledger, terms = self._ledgers[ledger_key], self._terms(ledger_key)
            before = ledger.action
            ledger.advance(at, terms)
            self._report(ledger_key, ledger, before, now)
            change = ledger.next_change(terms)
            if change is None:
                self._due.pop(ledger_key, None)
            else:
                self._due[ledger_key] = max(change, at + 1)
            metadata = ObjectMeta(name=ledger_name(*ledger_key))
            self._driver.engine.apply(Upsert(BudgetLedger(metadata=metadata, spec=ledger.spec())))
            evicted |= dict.fromkeys(self._evictions(ledger, terms, at))
        self._changed.clear()
        for key in evicted:
            workload = self._driver.workloads[key]
            self._driver.apply(Upsert(lifecycle.evicted(workload, BUDGET_EXHAUSTED, now)))
        return list(evicted)

    def _evictions(self, ledger: Ledger, terms: Terms, now: int) -> Iterator[str]:
        """What may run no longer: the Budget is used up, or the default maximum is over."""
        since = ledger.action_since
        over = ledger.action == "Evict" and since is not None and now >= since + grace(terms)
        for run in ledger.running.values():
            workload = self._driver.workloads.get(run.workload)
            if workload is None or workload.condition_is(EVICTED):
                continue
            # A workload with a declared limit is stopped by that.
            limited = bool(workload.spec.maximum_execution_time_seconds)
            if over or (0 < run.reserved_seconds <= run.seconds and not limited):
                yield run.workload

    # --- reports ----------------------------------------------------------------------------------------

    def _report(self, key: LedgerKey, ledger: Ledger, before: str, now: float) -> None:
        for resource, limit in ledger.limit.items():
            use = self._use.setdefault(BudgetKey(*key, resource), BudgetUse())
            use.used = ledger.total.get(resource, 0) * _NANO / HOUR
            use.limit = limit * _NANO / HOUR
            past = [_share(each, resource) for each in ledger.past[:1]]
            use.highest = max(use.highest, ledger.percent(resource) / 100, *past)
            if ledger.action != before:
                use.actions.append((now - self._start, ledger.action))

    def finish(self, now: float) -> dict[BudgetKey, BudgetUse]:
        """What was used by the end of the run."""
        for key, ledger in self._ledgers.items():
            if key[0] in self._budgets:
                before = ledger.action
                ledger.advance(int(now), self._terms(key))
                self._report(key, ledger, before, now)
        return self._use


def _share(window: PastWindow, resource: str) -> float:
    """The used part of a window that is over."""
    limit, used = window.limit.get(resource), window.used.get(resource)
    return float(used) / float(limit) if limit and used else 0.0
