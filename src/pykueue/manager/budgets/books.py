"""The ledgers of all Budgets in memory, kept by what Workloads show: which runs begin, change and end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pykueue.api import DecodeError, conditions, kueue
from pykueue.api.budgets import Budget, BudgetLedger, ledger_name
from pykueue.api.decoding import decode_as
from pykueue.api.meta import parse_time
from pykueue.api.objects import Object, get
from pykueue.clock import Clock, Jumps
from pykueue.engine import Engine
from pykueue.engine.budgets.rules import BudgetRules, LedgerKey, current_use

from .ledger import Ledger, Run, Terms


class KeptLedger:
    """A ledger, and how much of it is written."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        #: Grows with every change that must be written.
        self.version = 1
        self.written = 0
        #: When it was last written, in seconds since 1970.
        self.written_at = 0
        #: resourceVersion of the object that this ledger goes on from; None: not known to exist.
        self.resource_version: str | None = None
        #: Workloads that began or ended since: version of the change, by uid.
        self.unwritten: dict[str, int] = {}

    @property
    def name(self) -> str:
        """Name of the BudgetLedger."""
        return ledger_name(self.ledger.budget, self.ledger.value)

    def changed(self, uid: str) -> None:
        """The run of a workload began, changed or ended."""
        self.version += 1
        self.unwritten[uid] = self.version

    def mark_written(self, version: int, at: int) -> None:
        """That version is in the API."""
        self.written, self.written_at = max(self.written, version), at
        self.unwritten = {uid: each for uid, each in self.unwritten.items() if each > version}


class Books:
    """All ledgers. Nothing here awaits: what is seen together changes together."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._jumps: Jumps | None = None
        self.budgets: dict[str, Budget] = {}
        self.ledgers: dict[LedgerKey, KeptLedger] = {}
        #: Ledgers in which a workload runs, by uid.
        self.running: dict[str, set[LedgerKey]] = {}

    # --- time -------------------------------------------------------------------------------------------

    def now(self) -> int:
        """The time in whole seconds. A jump of the wall clock is taken into account first: what runs is
        counted by the time that passed, not by that which the clock shows."""
        if self._jumps is None:
            self._jumps = Jumps(self._clock)
        now = self._clock.time()
        jump = self._jumps.seconds()
        if jump:
            for key, kept in self.ledgers.items():
                terms = self.terms(key)
                if terms is not None:
                    kept.ledger.advance(int(now - jump), terms)
                kept.ledger.shift(int(now) - int(now - jump))
                kept.version += 1
        return int(now)

    def terms(self, key: LedgerKey) -> Terms | None:
        """What its Budget allows a ledger; None: there is no such Budget."""
        budget = self.budgets.get(key[0])
        return Terms(budget.spec, key[1]) if budget is not None else None

    # --- budgets ----------------------------------------------------------------------------------------

    def set_budget(self, name: str, budget: Budget | None) -> None:
        """Add, update or remove (None) a Budget; one with another uid gets new ledgers."""
        known = self.budgets.get(name)
        if budget is None or (known is not None and known.metadata.uid != budget.metadata.uid):
            self.budgets.pop(name, None)
            for key in [key for key in self.ledgers if key[0] == name]:
                self._drop(key)
        if budget is None:
            return
        self.budgets[name] = budget
        if budget.spec.selector.label is None:
            self.ensure((name, ""))
        for key, kept in self.ledgers.items():
            if key[0] == name:
                kept.version += 1

    def _drop(self, key: LedgerKey) -> None:
        for uid in self.ledgers.pop(key).ledger.running:
            self._left(uid, key)

    def _left(self, uid: str, key: LedgerKey) -> None:
        keys = self.running.get(uid, set())
        keys.discard(key)
        if not keys:
            self.running.pop(uid, None)

    def load(self, obj: Mapping[str, Any]) -> LedgerKey | None:
        """Go on from a BudgetLedger of a Budget that exists; returns its key."""
        try:
            ledger = Ledger.read(decode_as(BudgetLedger, obj).spec)
        except (DecodeError, ValueError):
            return None
        key = ledger.budget, ledger.value
        if not self.owns(obj, key):
            return None
        if key in self.ledgers:
            self._drop(key)
        kept = self.ledgers[key] = KeptLedger(ledger)
        kept.version, kept.resource_version = 0, get(obj, "metadata", "resourceVersion")
        kept.written_at = max(ledger.now, ledger.window[0] if ledger.window is not None else 0)
        for uid in ledger.running:
            self.running.setdefault(uid, set()).add(key)
        return key

    def owns(self, obj: Mapping[str, Any], key: LedgerKey) -> bool:
        """Whether an object belongs to the Budget of that name as it is now."""
        budget = self.budgets.get(key[0])
        owners = get(obj, "metadata", "ownerReferences") or ()
        return budget is not None and any(each.get("uid") == budget.metadata.uid for each in owners)

    def ensure(self, key: LedgerKey) -> KeptLedger:
        """The ledger of that key, begun if there is none."""
        kept = self.ledgers.get(key)
        if kept is None:
            budget = self.budgets[key[0]]
            since = int(parse_time(budget.metadata.creation_timestamp or "1970-01-01T00:00:00Z"))
            kept = self.ledgers[key] = KeptLedger(Ledger(key[0], key[1], since, since))
            terms = self.terms(key)
            assert terms is not None
            kept.ledger.advance(max(since, int(self._clock.time())), terms)
        return kept

    # --- workloads --------------------------------------------------------------------------------------

    def observe(self, obj: Object) -> set[LedgerKey]:
        """What a Workload shows is entered; returns the ledgers in which that changed anything."""
        uid = str(get(obj, "metadata", "uid"))
        now = self.now()
        if not runs(obj):
            changed = set()
            for key in sorted(self.running.get(uid, ())):
                self._close(uid, key, ended(obj, now))
                changed.add(key)
            if not conditions.is_finished(obj):
                found = _decoded(obj)
                changed |= {key for key, _ in self._ledgers_of(found) if key not in self.ledgers}
                for key in changed - self.ledgers.keys():
                    self.ensure(key)
            return changed
        return self._observe_running(obj, uid, now)

    def _observe_running(self, obj: Object, uid: str, now: int) -> set[LedgerKey]:
        workload = _decoded(obj)
        if workload is None:
            return set()
        changed: set[LedgerKey] = set()
        counted: set[LedgerKey] = set()
        for key, rules in self._ledgers_of(workload):
            # Its labels may have changed since: it stays in the ledger in which it began.
            begun = next((each for each in self.running.get(uid, ()) if each[0] == key[0]), None)
            key = begun or key
            terms, kept = self.terms(key), self.ensure(key)
            if terms is None:
                continue
            counted.add(key)
            rates = rules.rates(current_use(workload, self._engine.options))
            if begun is None:
                if not rates:
                    continue
                since = max(int(conditions.since(obj, conditions.ADMITTED)), kept.ledger.complete_since)
                left = rules.seconds_left(workload) if rules.declared else 0
                metadata = obj["metadata"]
                name = f"{metadata.get('namespace') or ''}/{metadata['name']}"
                kept.ledger.open(Run(uid, name, since, since, rates, 0, left or 0))
                self.running.setdefault(uid, set()).add(key)
            elif kept.ledger.running[uid].rates != rates:
                kept.ledger.set_rates(uid, rates, now, terms)
            else:
                continue
            kept.changed(uid)
            changed.add(key)
        for key in sorted(self.running.get(uid, set()) - counted):
            self._close(uid, key, now)
            changed.add(key)
        return changed

    def _ledgers_of(self, workload: kueue.Workload | None) -> Iterator[tuple[LedgerKey, BudgetRules]]:
        if workload is None:
            return
        for key, rules in self._engine.ledgers_of(workload):
            if key[0] in self.budgets:
                yield key, rules

    def gone(self, uid: str) -> set[LedgerKey]:
        """A Workload was deleted: what it used until now is counted."""
        changed = set(self.running.get(uid, ()))
        now = self.now()
        for key in sorted(changed):
            self._close(uid, key, now)
        return changed

    def close_missing(self, uids: Iterable[str]) -> set[LedgerKey]:
        """Ends runs of workloads that are not among `uids`, which were deleted while no manager ran.

        When they ended is not known: they are counted up to the last time that was written.
        """
        changed: set[LedgerKey] = set()
        for uid in self.running.keys() - set(uids):
            for key in sorted(self.running[uid]):
                self._close(uid, key, self.ledgers[key].ledger.running[uid].through)
                changed.add(key)
        return changed

    def _close(self, uid: str, key: LedgerKey, end: int) -> None:
        kept, terms = self.ledgers[key], self.terms(key)
        if terms is not None:
            kept.ledger.advance(min(end, self.now()), terms)
            kept.ledger.close(uid, end, terms)
        kept.changed(uid)
        self._left(uid, key)


def _decoded(obj: Object) -> kueue.Workload | None:
    try:
        return decode_as(kueue.Workload, obj)
    except DecodeError:
        return None


def runs(obj: Mapping[str, Any]) -> bool:
    """Whether a Workload uses what it was admitted for."""
    return conditions.may_run(obj) and not conditions.is_finished(obj)


def ended(obj: Mapping[str, Any], now: int) -> int:
    """When a Workload that runs no more ended, as its conditions say."""
    if conditions.is_finished(obj):
        return int(conditions.since(obj, conditions.FINISHED))
    if conditions.is_false(obj, conditions.ADMITTED):
        return int(conditions.since(obj, conditions.ADMITTED))
    return now
