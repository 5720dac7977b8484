"""Writes the ledgers of Budgets, acts at their thresholds, and sees that no use is lost.

Three things are on record before they can be forgotten (`Budgets.guard`, which every write of the manager
passes): that a run began, before it ends; how long it was, before the workload is admitted again; and the
same before the workload loses the finalizer that keeps it. So whatever a crash interrupts, the ledger and the
conditions of the Workload together say what is still to be counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pykueue.api import conditions, encode
from pykueue.api.budgets import BUDGET_EXHAUSTED, BUDGET_LABEL, BUDGET_LEDGERS, BUDGETS, Budget, BudgetLedger
from pykueue.api.decoding import DecodeError, decode_as
from pykueue.api.kueue.names import RESOURCE_IN_USE_FINALIZER
from pykueue.api.meta import set_condition
from pykueue.api.objects import Object, get, key_of, replaced, spec_differs
from pykueue.api.resources import WORKLOADS, Resource
from pykueue.api.validation import FieldError
from pykueue.api.validation.budgets import budget_errors, duplicate_errors
from pykueue.clock import Clock
from pykueue.engine import Engine
from pykueue.engine.budgets.rules import LedgerKey
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.manager.cluster import Cluster
from pykueue.manager.policies import in_force
from pykueue.manager.workloads import transitions
from pykueue.manager.writes import Writer

from .books import Books, KeptLedger, runs
from .ledger import Ledger, Terms, grace
from .status import budget_status

#: Seconds in which changes are collected before they are written.
_BATCH = 1.0
#: Seconds after which the use of running workloads is written although nothing happened.
_HEARTBEAT = 60
#: Attempts to write a ledger that others changed.
_ATTEMPTS = 5


class Budgets:
    """Keeps the ledgers of all Budgets."""

    def __init__(
        self,
        cluster: Cluster,
        engine: Engine,
        writer: Writer,
        recorder: EventRecorder,
        clock: Clock,
        workers: int = 1,
    ) -> None:
        self._cluster = cluster
        self._writer = writer
        self._recorder = recorder
        self._clock = clock
        self.books = Books(engine, clock)
        self._loaded = asyncio.Event()
        #: Names of all Budgets.
        self._names: set[str] = set()
        self._locks: dict[LedgerKey, asyncio.Lock] = {}
        self.ledgers: Controller[LedgerKey] = Controller(
            "budget ledgers", self._reconcile, clock=clock, workers=workers, wait_for=[self._until_loaded]
        )
        self.status: Controller[str] = Controller(
            "budgets", self._write_status, clock=clock, workers=workers, wait_for=[self._until_loaded]
        )
        cluster.budgets.on_event(self._budget_changed)
        cluster.budget_ledgers.on_event(self._ledger_changed)
        cluster.workloads.on_event(self._workload_changed)
        cluster.local_queues.on_event(self._link_changed)
        cluster.cluster_queues.on_event(self._link_changed)
        cluster.cohorts.on_event(self._link_changed)
        writer.guard = self.guard

    async def run(self) -> None:
        """Work until cancelled."""
        await self._cluster.synced()
        self._load()
        self._loaded.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.ledgers.run())
            tasks.create_task(self.status.run())

    async def _until_loaded(self) -> None:
        await self._loaded.wait()

    def _load(self) -> None:
        for obj in self._cluster.budgets.list():
            self._set_budget(obj)
        for obj in self._cluster.budget_ledgers.list():
            self.books.load(obj)
        if self.books.budgets:
            uids = [each["metadata"]["uid"] for each in self._cluster.workloads.list()]
            self.books.close_missing(uids)
            self._observe_all()
        for key in self.books.ledgers:
            self.ledgers.queue.add(key)
        for obj in self._cluster.budgets.list():
            self.status.queue.add(obj["metadata"]["name"])

    # What leads to work

    def _budget_changed(self, type_: str, old: Any, new: Any) -> None:
        if new is None:
            self._names.discard(old["metadata"]["name"])
        else:
            self._names.add(new["metadata"]["name"])
        if not self._loaded.is_set() or not (new is None or spec_differs(old, new)):
            return
        if new is None:
            self.books.set_budget(old["metadata"]["name"], None)
        else:
            self._set_budget(new)
            self._observe_all()
        for key in self.books.ledgers:
            self.ledgers.queue.add(key)
        for each in self._cluster.budgets.list():
            self.status.queue.add(each["metadata"]["name"])

    def _set_budget(self, obj: Object) -> None:
        name = obj["metadata"]["name"]
        try:
            self.books.set_budget(name, decode_as(Budget, obj))
        except DecodeError:
            self.books.set_budget(name, None)

    def _ledger_changed(self, type_: str, old: Any, new: Any) -> None:
        """A ledger that another client deleted or changed is written again, with what was recorded."""
        if not self._loaded.is_set():
            return
        obj = old if new is None else new
        key = str(get(obj, "spec", "budget") or ""), str(get(obj, "spec", "value") or "")
        if key in self.books.ledgers:
            self.ledgers.queue.add_after(key, _BATCH)

    def _workload_changed(self, type_: str, old: Any, new: Any) -> None:
        if not self.books.budgets or not self._loaded.is_set():
            return
        if new is None:
            changed = self.books.gone(str(get(old, "metadata", "uid")))
        else:
            changed = self.books.observe(new)
        for key in changed:
            self.ledgers.queue.add_after(key, _BATCH)

    def _link_changed(self, type_: str, old: Any, new: Any) -> None:
        """Other queues are below a cohort, or a LocalQueue leads elsewhere."""
        if self.books.budgets and self._loaded.is_set() and spec_differs(old, new):
            self._observe_all()

    def _observe_all(self) -> None:
        for workload in self._cluster.workloads.list():
            for key in self.books.observe(workload):
                self.ledgers.queue.add_after(key, _BATCH)

    # What must be on record first

    async def guard(self, resource: Resource, obj: Mapping[str, Any], desired: Mapping[str, Any]) -> None:
        """Write what a change of a Workload would otherwise lose; raises ApiError if that is not possible."""
        if resource != WORKLOADS or not self._names:
            return
        was, will = runs(obj), runs(desired)
        released = _has_finalizer(obj) and not _has_finalizer(desired)
        if was == will and not released:
            return
        await self._until_loaded()
        uid = str(get(obj, "metadata", "uid"))
        known = self._cluster.workload(key_of(obj))
        if known is None or known["metadata"]["uid"] != uid:
            return  # it was deleted, and what it used was counted then
        self.books.observe(dict(obj))
        if released and was:
            # It is being deleted while it runs: if this manager dies now, the next one finds no more of it.
            for key in self.books.running.get(uid, ()):
                self.books.ledgers[key].changed(uid)
        for key, kept in list(self.books.ledgers.items()):
            if uid in kept.unwritten:
                await self._persist(key)

    # Work

    async def _reconcile(self, key: LedgerKey) -> float | None:
        kept, terms = self.books.ledgers.get(key), self.books.terms(key)
        if kept is None or terms is None:
            return None
        now = self.books.now()
        before = kept.ledger.action
        kept.ledger.advance(now, terms)
        if kept.ledger.action != before:
            kept.version += 1
        stored = self._cluster.budget_ledgers.get("", kept.name)
        if stored is None or stored["metadata"]["resourceVersion"] != kept.resource_version:
            kept.version += 1  # another client deleted or changed it
        due = bool(kept.ledger.running) and now - kept.written_at >= _HEARTBEAT
        rolled = kept.ledger.window is not None and kept.written_at < kept.ledger.window[0]
        if kept.version > kept.written or due or rolled:
            kept.version += due or rolled
            await self._persist(key)
        if kept.ledger.action != before:
            self._report(key, kept.ledger)
        await self._evict(kept, terms, now)
        self.status.queue.add_after(key[0], _BATCH)
        change = kept.ledger.next_change(terms)
        waits = [float(_HEARTBEAT)] if kept.ledger.running else []
        if change is not None:
            waits.append(max(1.0, change - self._clock.time()))
        return min(waits, default=None)

    def _report(self, key: LedgerKey, ledger: Ledger) -> None:
        budget = self._cluster.budgets.get("", key[0])
        if budget is None:
            return
        used = ", ".join(f"{ledger.percent(name)} percent of {name}" for name in sorted(ledger.limit))
        subject = f" by {key[1]}" if key[1] else ""
        if ledger.action:
            text = f"{ledger.action}: {used} used{subject}"
            self._recorder.event(budget, WARNING, "BudgetThreshold", text)
        else:
            self._recorder.event(
                budget, NORMAL, "BudgetAvailable", f"Below all thresholds: {used} used{subject}"
            )

    async def _evict(self, kept: KeptLedger, terms: Terms, now: int) -> None:
        """Evict what may run no longer: the Budget is used up, or the default maximum is over."""
        ledger = kept.ledger
        over = (
            ledger.action == "Evict"
            and ledger.action_since is not None
            and now >= ledger.action_since + grace(terms)
        )
        for run in list(ledger.running.values()):
            if over:
                text = f"Budget {ledger.budget} is exhausted"
            elif 0 < run.reserved_seconds <= run.seconds:
                text = f"The maximum execution time for which Budget {ledger.budget} has hours is over"
            else:
                continue
            namespace, _, name = run.workload.partition("/")

            def step(workload: Object, uid: str = run.uid, text: str = text) -> Object | None:
                if get(workload, "metadata", "uid") != uid or not runs(workload):
                    return None
                if conditions.is_evicted(workload):
                    return None
                if not over and get(workload, "spec", "maximumExecutionTimeSeconds"):
                    return None  # it is deactivated for its own limit
                return transitions.evicted(workload, BUDGET_EXHAUSTED, text, self._clock.time())

            written = await self._writer.update(self._cluster.workloads, (namespace, name), step)
            if written is not None:
                self._recorder.event(written, NORMAL, f"EvictedDueTo{BUDGET_EXHAUSTED}", text)

    # Writing

    async def _persist(self, key: LedgerKey) -> None:
        """Write a ledger as it is now."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        kept = self.books.ledgers.get(key)
        if kept is None:
            return
        wanted = kept.version
        async with lock:
            for _ in range(_ATTEMPTS):
                kept = self.books.ledgers.get(key)
                if kept is None or kept.written >= wanted:
                    return
                if await self._write(key, kept):
                    return
        raise ApiError(409, "Conflict", f"BudgetLedger {kept.name} is being changed by another client")

    async def _write(self, key: LedgerKey, kept: KeptLedger) -> bool:
        """One attempt; whether it succeeded."""
        informer, terms = self._cluster.budget_ledgers, self.books.terms(key)
        assert terms is not None
        now = self.books.now()
        kept.ledger.advance(now, terms)
        version, spec = kept.version, encode(kept.ledger.spec())
        current = informer.get("", kept.name)
        if current is None:
            try:
                written = await self._writer.create(informer, self._object(key, kept, spec))
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
                found = await self._writer.reread(informer, ("", kept.name))
                if found is not None and not self.books.owns(found, key):
                    raise  # of a Budget that was deleted; the garbage collector removes it
                if found is not None:
                    self._compare(key, kept, found)
                return False
        elif current["metadata"]["resourceVersion"] != kept.resource_version:
            if not self.books.owns(current, key):
                raise ApiError(409, "Conflict", f"BudgetLedger {kept.name} is of a Budget that was deleted")
            self._compare(key, kept, current)
            return False
        else:
            try:
                written = await self._writer.change(informer, current, replaced(current, ("spec",), spec))
            except ApiError as error:
                if error.conflict or error.not_found:
                    return False
                raise
        kept.resource_version = written["metadata"]["resourceVersion"]
        kept.mark_written(version, now)
        return True

    def _compare(self, key: LedgerKey, kept: KeptLedger, stored: Object) -> None:
        """Another version is stored: it is taken over if it knows of more use, otherwise overwritten.

        The first is what another leader wrote before; the second what a client took away, or a write of this
        manager that had no answer.
        """
        try:
            other = Ledger.read(decode_as(BudgetLedger, stored).spec)
        except (DecodeError, ValueError):
            other = None
        total = kept.ledger.total
        if other is not None and any(amount > total.get(name, 0) for name, amount in other.total.items()):
            self.books.load(stored)
            uids = [each["metadata"]["uid"] for each in self._cluster.workloads.list()]
            self.books.close_missing(uids)
            self._observe_all()
            self.books.ledgers[key].version += 1
        else:
            kept.resource_version = stored["metadata"]["resourceVersion"]

    def _object(self, key: LedgerKey, kept: KeptLedger, spec: Any) -> Object:
        budget = self.books.budgets[key[0]]
        return {
            "apiVersion": BUDGET_LEDGERS.api_version,
            "kind": BUDGET_LEDGERS.kind,
            "metadata": {
                "name": kept.name,
                "labels": {BUDGET_LABEL: key[0]} if len(key[0]) <= 63 else {},
                "ownerReferences": [
                    {
                        "apiVersion": BUDGETS.api_version,
                        "kind": BUDGETS.kind,
                        "name": key[0],
                        "uid": budget.metadata.uid,
                    }
                ],
            },
            "spec": spec,
        }

    # Status

    async def _write_status(self, name: str) -> float | None:
        await self._writer.update(self._cluster.budgets, ("", name), self._judged)
        return None

    def _judged(self, obj: Object) -> Mapping[str, Any]:
        name = obj["metadata"]["name"]
        active, reason, message = in_force(Budget, obj, self._cluster.budgets.list(), _errors, "budget")
        ledgers = [kept.ledger for key, kept in sorted(self.books.ledgers.items()) if key[0] == name]
        status = budget_status(ledgers, self.books)
        closed = [each.value for each in ledgers if each.action in ("NoAdmission", "Evict")]
        generation, now = get(obj, "metadata", "generation"), self._clock.time()
        known = get(obj, "status", "conditions") or ()
        found = set_condition(
            known, "Active", "True" if active else "False", reason, message, now, generation
        )
        text = f"No workload is admitted: {', '.join(each or 'the budget is used' for each in closed[:10])}"
        found = set_condition(
            found,
            "Exhausted",
            "True" if closed else "False",
            "ThresholdReached" if closed else "Available",
            text if closed else "Workloads are admitted",
            now,
            generation,
        )
        changed = replaced(obj, ("status",), {**status, "conditions": found})
        return changed if _apart_from_forecasts(changed) != _apart_from_forecasts(obj) else obj


def _errors(budget: Budget, before: Sequence[Object]) -> Iterable[FieldError]:
    return (*budget_errors(budget), *duplicate_errors(budget, before))


def _apart_from_forecasts(obj: Mapping[str, Any]) -> Any:
    """The status without what changes as time goes by although nothing happens."""
    status = obj.get("status") or {}
    ledgers = [
        {name: value for name, value in each.items() if name != "forecast"}
        for each in status.get("ledgers") or ()
    ]
    return {**status, "ledgers": ledgers}


def _has_finalizer(obj: Mapping[str, Any]) -> bool:
    return RESOURCE_IN_USE_FINALIZER in (get(obj, "metadata", "finalizers") or ())
