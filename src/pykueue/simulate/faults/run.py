"""One run: a scenario played to its end, with everything checked on the way."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pykueue.api import conditions
from pykueue.api.objects import Object, get, key_of
from pykueue.api.resources import CLUSTER_QUEUES, COHORTS, WORKLOADS, Resource
from pykueue.clock import VIRTUAL_EPOCH, Clock, JumpingClock, VirtualLoop
from pykueue.cluster import webhook_of
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.store.memory import MemoryStore
from pykueue.engine.errors import EngineError
from pykueue.kube.client import Client
from pykueue.manager.configuration import Configuration, parse
from pykueue.manager.manager import Manager

from .causes import Causes
from .checks import CheckController
from .edits import EditingUsers
from .invariants import Invariants
from .jobkinds import KINDS
from .jobrunner import JobRunner
from .leaks import leaks
from .playing import play_to_end
from .quiet import QuietTimes
from .realpods import RealPods
from .scenario import Scenario, scenario
from .stage import fail_webhooks, installed_store, objects_of, open_server
from .stored import Stored
from .trace import Entry, Trace
from .transport import NO_FAULTS, FaultyTransport, Rates
from .users import Users

#: Seconds everything may take to settle when there are no faults any more.
PATIENCE = 4 * 3600.0
#: Seconds between two looks at whether it has.
LOOK = 20.0
#: Seconds without faults before what users did to queues and workloads is undone.
PAUSE = 60.0
#: Seconds without events during which nothing may be done.
IDLE = 3600.0


@dataclass
class Report:
    """What came of one run."""

    seed: int
    violations: list[str]
    faults: Counter[str]
    writes: int
    #: Virtual seconds it took.
    lasted: float
    digest: str
    trace: list[Entry] = field(repr=False)
    #: Managers that died on the way.
    deaths: int = 0
    #: What the command line needs besides the seed to play it again.
    options: str = ""

    def text(self, last: int | None = None) -> str:
        """For people: what went wrong, what happened before, how to see it again."""
        entries = self.trace if last is None else self.trace[-last:]
        return "\n".join(
            [
                f"seed {self.seed}: {'; '.join(self.violations) or 'nothing went wrong'}",
                *map(str, entries),
                f"to run it again: python -m pykueue.simulate.faults --seed {self.seed}{self.options}",
            ]
        )


class Run:
    """The parts of one run."""

    invariants_class: type[Invariants] = Invariants
    users_class: type[Users] = Users

    def __init__(
        self,
        seed: int,
        plan: Scenario,
        rng: random.Random,
        clock: Clock,
        store: MemoryStore,
        pods: bool = False,
    ) -> None:
        self.seed = seed
        self.plan = plan
        self.clock = clock
        self.trace = Trace()
        self.faults: Counter[str] = Counter()
        self.deaths = 0
        self._rng = rng
        self._store = store
        self._pods = pods
        self._configuration: Configuration = parse(plan.configuration)
        self._manager_clock = JumpingClock(VIRTUAL_EPOCH.timestamp())
        self._crashed = asyncio.Event()
        self._troubled = True

    def _fork(self) -> random.Random:
        return random.Random(self._rng.getrandbits(64))

    def real_pods(self) -> RealPods:
        """What runs the pods of a run with pods."""
        return RealPods(self.server, self.clock, self._fork(), self.plan.kinds)

    def check_controller(self, client: Client) -> CheckController:
        """What answers admission checks."""
        return CheckController(client, self.clock, self._fork())

    async def play(self) -> None:
        self.server: Server = await open_server(self._store, self.clock, self._fork())
        causes = Causes(Stored(self.server), self.clock, self._configuration, not self.plan.jumps)
        self.invariants = self.invariants_class(
            self.server, self.clock, self.trace, causes, self._configuration
        )
        client = Client(self.server.transport("user"), clock=self.clock)
        self.users = self.users_class(client, self.clock, self._fork(), self.plan, self.trace)
        self.runner: JobRunner | RealPods
        if self._pods:
            self.runner = self.real_pods()
            await self.runner.start()
        else:
            runner = Client(self.server.transport("runner"), clock=self.clock)
            self.runner = JobRunner(runner, self.clock, self._fork(), self.plan.stuck)
        self.checks = self.check_controller(Client(self.server.transport("checks"), clock=self.clock))
        core = self.server.core
        for kind in KINDS.values():
            core.on_stored(f"{kind.group}/{kind.plural}", partial(self._job_stored, kind))
        core.on_stored(f"{WORKLOADS.group}/{WORKLOADS.plural}", self._workload_stored)
        self._start_manager()
        work = asyncio.create_task(self._story())
        stopped = asyncio.create_task(self.trace.stopped.wait())
        await asyncio.wait((work, stopped), return_when=asyncio.FIRST_COMPLETED)
        await self._end(work, stopped)
        if not work.cancelled():
            work.result()

    def _job_stored(self, resource: Resource, new: Any, old: Any) -> None:
        self.runner.job_stored(resource, *objects_of(old, new))

    def _workload_stored(self, new: Any, old: Any) -> None:
        before, after = objects_of(old, new)
        self.runner.workload_stored(before, after)
        self.checks.workload_stored(before, after)

    async def _end(self, *tasks: asyncio.Task[Any]) -> None:
        """Stop everything, and look at what is left."""
        await self._stop_manager()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self.runner.stop(), *self.checks.stop(), return_exceptions=True)
        await self.server.stop()
        await asyncio.sleep(0)
        if not self.trace.violations:
            for left in self._left_over():
                self.trace.violate(left)

    def _left_over(self) -> Iterable[str]:
        own = asyncio.current_task()
        for task in asyncio.all_tasks():
            if task is not own:
                yield f"a task is left: {task.get_coro()}"
        for timer in asyncio.get_running_loop()._scheduled:  # type: ignore[attr-defined]
            if not timer.cancelled():
                yield f"a timer is left: {timer}"

    # The manager and its death

    def _start_manager(self) -> None:
        rates = self.plan.rates if self._troubled else NO_FAULTS
        self.transport = FaultyTransport(
            self.server.transport("manager"),
            self.clock,
            self._fork(),
            rates,
            self.trace,
            self._crashed.set,
        )
        self.manager = Manager(self.transport, self._configuration, self._manager_clock, self._fork())
        self.invariants.knows_quotas = self._knows_quotas
        self.invariants.remembers = self._remembers
        self.invariants.knows_time = lambda: self._manager_clock.offset <= 0.0
        self.invariants.staleness.knows = self._knows
        self.transport.on_call = self.invariants.observe
        for hook in self.manager.webhooks():
            self.server.admission.register(webhook_of(hook))
        self._audit()
        self._manager_task = asyncio.create_task(self.manager.run())
        self._manager_task.add_done_callback(self._manager_ended)

    def _audit(self) -> None:
        """Have the engine check its books after every cycle."""
        engine, cycle = self.manager.engine, self.manager.engine.cycle

        def audited(now: float) -> Any:
            decisions = cycle(now)
            try:
                engine.check()
            except EngineError as error:
                self.trace.violate(f"the engine's books are wrong: {error}")
            return decisions

        engine.cycle = audited  # type: ignore[method-assign]

    def _manager_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.trace.violate(f"the manager ended: {task.exception()!r}")

    def _remembers(self, workload: Object) -> bool:
        known = self.manager.cluster.workload(key_of(workload))
        return known is not None and conditions.has_quota(known) and not self._manager_task.done()

    def _knows(self, resource: Resource, obj: Object, gone: bool) -> bool:
        """Whether the manager's cache has this version of an object or a newer one, or knows it as gone."""
        cluster, metadata = self.manager.cluster, obj["metadata"]
        known = next(
            (
                informer.get(metadata.get("namespace") or "", metadata["name"])
                for informer in (cluster.workloads, *cluster.jobs.values())
                if informer.resource == resource
            ),
            None,
        )
        if known is None or known["metadata"]["uid"] != metadata["uid"]:
            return True
        return not gone and int(known["metadata"]["resourceVersion"]) >= int(metadata["resourceVersion"])

    def _knows_quotas(self) -> bool:
        cluster = self.manager.cluster
        for informer, resource in ((cluster.cluster_queues, CLUSTER_QUEUES), (cluster.cohorts, COHORTS)):
            stored = {obj["metadata"]["name"]: obj for obj in self.invariants.objects(resource)}
            known = {obj["metadata"]["name"]: obj for obj in informer.list()}
            if {n: o.get("spec") for n, o in stored.items()} != {n: o.get("spec") for n, o in known.items()}:
                return False
        return True

    async def _stop_manager(self) -> None:
        self.transport.die()
        self.faults += self.transport.faults
        self._manager_task.cancel()
        await asyncio.gather(self._manager_task, return_exceptions=True)
        fail_webhooks(self.server, self.manager)
        await self.transport.drained()

    async def _restart_dead(self) -> None:
        """Restart the manager whenever it dies, as a Deployment would."""
        while True:
            await self._crashed.wait()
            self._crashed.clear()
            self.deaths += 1
            await self._stop_manager()
            self.invariants.forget()
            await self.clock.sleep(self._rng.uniform(0.1, 10.0))
            self._start_manager()
            if self.deaths >= self.plan.deaths:
                self.transport.rates = _without_crashes(self.transport.rates)

    async def _kill(self) -> None:
        """The manager dies at any moment, not only at a write."""
        for _ in range(self.plan.kills):
            await self.clock.sleep(self._rng.uniform(0.0, self.plan.trouble))
            self.trace.note("fault", "the manager is killed")
            self.transport.die()
            self._crashed.set()

    # What happens

    async def _story(self) -> None:
        if not self.plan.deaths:
            self.transport.rates = _without_crashes(self.transport.rates)
        restarts = asyncio.create_task(self._restart_dead())
        kills = asyncio.create_task(self._kill())
        helpers = [restarts, kills]
        try:
            await self.users.set_up()
            if self.plan.of_kind("AdmissionCheck"):
                await self.checks.activate()
            submitting = asyncio.create_task(self.users.submit())
            await asyncio.gather(self.users.meddle(), self._jump(), self.clock.sleep(self.plan.trouble))
            kills.cancel()
            await self._calm()
            quiet = asyncio.create_task(self._quiet_times().watch())
            helpers.append(quiet)
            await submitting
            await self.clock.sleep(PAUSE)
            await self.users.mend()
            await self._settle()
        finally:
            for task in helpers:
                task.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
        for look in (self._idle, self._restart_changes_nothing, self._all_goes):
            if not self.trace.violations:
                await look()

    async def _jump(self) -> None:
        """Set the manager's clock forward or back, or pause everything for a while."""
        if not self.plan.jumps:
            return
        loop = asyncio.get_running_loop()
        for _ in range(3):
            await self.clock.sleep(self._rng.uniform(0.0, self.plan.trouble / 3))
            seconds = self._rng.choice((-90.0, -5.0, 3.0, 60.0, 600.0))
            if seconds > 0 and self._rng.random() < 0.5:
                assert isinstance(loop, VirtualLoop)
                loop.advance(seconds)
                self.invariants.stood_still(seconds)
                self.trace.note("fault", f"everything stands still for {seconds:g} s")
            else:
                self._manager_clock.offset += seconds
                self.trace.note("fault", f"the manager's clock jumps by {seconds:g} s")

    async def _calm(self) -> None:
        """From now on everything works."""
        self._troubled = False
        self.invariants.calm_since = self.clock.time()
        self.transport.rates = NO_FAULTS
        self.trace.note("run", "no more faults")
        if self._crashed.is_set() or self._manager_task.done():
            await self.clock.sleep(30.0)

    def _quiet_times(self) -> QuietTimes:
        return QuietTimes(
            self.clock,
            self.trace,
            lambda: self.invariants.last_write,
            lambda: self.manager,
            lambda: self.invariants.unreacted(),
        )

    async def _settle(self) -> None:
        ends = self.clock.time() + PATIENCE
        open_: list[str] = []
        while self.clock.time() < ends:
            await self.clock.sleep(LOOK)
            open_ = self.invariants.unsettled()
            if not open_:
                break
        for one in open_:
            self.trace.violate(f"in the end {one}")
        if not open_:
            await self.clock.sleep(LOOK)
            self._look_for_leaks()

    def _look_for_leaks(self) -> None:
        for left in leaks(self.manager, self.invariants.objects(WORKLOADS)):
            self.trace.violate(left)

    async def _idle(self) -> None:
        """While nothing happens, nothing is asked for or written."""
        before = self.transport.calls
        await self.clock.sleep(IDLE)
        if self.transport.calls != before:
            self.trace.violate(f"{self.transport.calls - before} requests in {IDLE:g} s without events")

    async def _all_goes(self) -> None:
        """With its job everything goes that was made for it."""
        await self.users.leave()
        ends = self.clock.time() + PATIENCE
        while self._owned_workloads() and self.clock.time() < ends:
            await self.clock.sleep(LOOK)
        for workload in self._owned_workloads():
            self.trace.violate(f"workload {workload['metadata']['name']} outlives its job")
        await self.clock.sleep(LOOK)
        self._look_for_leaks()

    def _owned_workloads(self) -> list[Object]:
        """All but those whose owner references were removed: the garbage collector leaves them alone."""
        return [w for w in self.invariants.objects(WORKLOADS) if get(w, "metadata", "ownerReferences")]

    async def _restart_changes_nothing(self) -> None:
        """The state rebuilt from the API is the state before: nothing is written."""
        await self._stop_manager()
        before = self.invariants.writes
        self._start_manager()
        await self.clock.sleep(LOOK)
        if self.invariants.writes != before:
            self.trace.violate("a restart of the manager in a settled cluster changed objects")


def _without_crashes(rates: Rates) -> Rates:
    return replace(rates, crash=0.0)


class EditedRun(Run):
    """A run whose users also edit by hand what controllers own."""

    users_class = EditingUsers


def play(
    seed: int, pods: bool = False, edits: bool = False, policies: bool = False, backfill: bool = False
) -> Report:
    """Play the run of this seed, in virtual time.

    With `pods` the cluster's own controllers and nodes run the jobs; with `edits` users also edit statuses,
    annotations and finalizers by hand; with `policies` a PreemptionPolicy limits preemptions; with `backfill`
    workloads that do not fit have reservations.
    """
    rng = random.Random(seed)
    given = (("pods", pods), ("edits", edits), ("policies", policies), ("backfill", backfill))
    options = "".join(f" --{name}" for name, is_given in given if is_given)
    plan = scenario(rng)
    if policies:
        plan = plan.with_preemption_policy(random.Random(f"policy {seed}"))
    if backfill:
        plan = plan.with_backfill_policy(random.Random(f"backfill {seed}"))
    report = play_run(EditedRun if edits else Run, seed, plan, rng, pods)
    return replace(report, options=options)


def play_run(kind: type[Run], seed: int, plan: Scenario, rng: random.Random, pods: bool) -> Report:
    """Play a scenario; `rng` goes on from where the scenario left it."""
    store = installed_store(plan.kinds)
    run, lasted = play_to_end(lambda: kind(seed, plan, rng, Clock(VIRTUAL_EPOCH.timestamp()), store, pods))
    return Report(
        seed,
        run.trace.violations,
        run.faults,
        run.invariants.writes,
        lasted,
        run.trace.digest(),
        run.trace.entries,
        run.deaths,
    )
