"""Runs of a manager cluster and its workers, while connections, clusters, clocks and credentials fail.

What must hold is the guarantee of docs/use/multikueue.md: a job runs in one cluster at a time, is never lost,
and finishes once.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import click

from pykueue.api import conditions
from pykueue.api.kueue import names
from pykueue.api.objects import Object, get, labels_of
from pykueue.api.resources import (
    CLUSTER_QUEUES,
    JOB_SETS,
    JOBS,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    NAMESPACES,
    PODS,
    RESOURCE_FLAVORS,
    SECRETS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from pykueue.clock import VIRTUAL_EPOCH, Clock
from pykueue.jobs.kinds import BUILT_IN
from pykueue.jobs.slices import OUT_OF_SYNC, REPLACED
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Transport
from pykueue.manager.components import Component, Context, Runnable
from pykueue.manager.components.builtin import components
from pykueue.manager.configuration import parse
from pykueue.manager.multikueue import MultiKueue
from pykueue.manager.multikueue.access import configure_check
from pykueue.manager.multikueue.kubeconfig import Target

from .placements import Placements, has_ended, is_dispatched, unit_of_workload
from .playing import play_to_end
from .pod_users import pod_manifest
from .run import LOOK, PATIENCE, Report
from .scenario import job as job_manifest
from .scenario import jobset
from .sites import Site, watched
from .stage import installed_store
from .trace import Trace
from .transport import FaultyTransport, Rates

#: Seconds after which a worker is lost in these runs.
LOST = 60
#: Seconds by which the manager's count may begin earlier than that of the run.
SLACK = 3.0
#: Seconds with faults.
TROUBLE = 400.0
#: Seconds by which the clocks of clusters may differ.
OFFSETS = (0.0, 0.0, -300.0, -20.0, 45.0, 600.0)
_CONFIGURATION = f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
multiKueue:
  workerLostTimeout: {LOST}s
  gcInterval: 30s
"""
_ELASTIC = "featureGates: {ElasticJobsViaWorkloadSlices: true}\n"
_INCREMENTAL = """  dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental
  incrementalDispatcherConfig: {stepSize: 1}
"""
_CALM_RATES = Rates(no_events=True)
#: The resource of each kind of jobs that there can be in these runs.
_RESOURCES = {"Job": JOBS, "JobSet": JOB_SETS, "Pod": PODS, "PodGroup": PODS}
_FRAMEWORKS = {"Job": "batch/job", "JobSet": "jobset.x-k8s.io/jobset", "Pod": "pod"}
ALL = tuple(_RESOURCES)
#: CPUs of a worker; a job of more pods than the fewest might never run.
_QUOTAS = (3, 6)


class ClusterRun:
    """The parts of one run."""

    def __init__(
        self,
        seed: int,
        rng: random.Random,
        clock: Clock,
        elastic: bool = False,
        kinds: Sequence[str] = ("Job",),
    ) -> None:
        self.seed = seed
        #: Kinds of the jobs.
        self._kinds = tuple(kinds)
        self._resources = tuple(dict.fromkeys(_RESOURCES[kind] for kind in kinds))
        #: Whether most jobs are elastic, and users change their size.
        self._elastic = elastic
        self.clock = clock
        self.trace = Trace()
        self.faults: Counter[str] = Counter()
        self._rng = rng
        self._placements = Placements(self.trace)
        frameworks = [_FRAMEWORKS[resource.kind] for resource in self._resources]
        every = (_ELASTIC if elastic else "") + _integrations(frameworks) + _CONFIGURATION
        configuration = parse(every + (_INCREMENTAL if rng.random() < 0.3 else ""))
        self._workers = {
            f"w{number}": self._site(f"w{number}", parse(every))
            for number in range(1, rng.choice((2, 2, 3)) + 1)
        }
        self._manager = self._site("manager", configuration)
        self._manager.connect = self._connect
        self._manager.components = [
            self._captured(one) for one in components(configuration, BUILT_IN.enabled(frameworks))
        ]
        self._multikueue: MultiKueue | None = None
        #: Names of the MultiKueueClusters, by worker.
        self._registered = {name: name for name in self._workers}
        self._worker_rates = _CALM_RATES

    def _site(self, name: str, configuration: Any) -> Site:
        site = Site(
            name,
            installed_store(),
            random.Random(self._rng.getrandbits(64)),
            configuration,
            self.trace,
            self._rng.choice(OFFSETS),
            self._resources,
        )
        return watched(site, self._placements.job_stored, self._placements.workload_stored)

    def _captured(self, component: Component) -> Component:
        if component.name != "multikueue":
            return component

        def build(context: Context) -> Runnable:
            found = component.build(context)
            assert isinstance(found, MultiKueue)
            self._multikueue = found
            return found

        return replace(component, build=build)

    def _connect(self, target: Target) -> Transport:
        site = self._workers[target.server.removeprefix("https://").partition(".")[0]]
        rng = random.Random(self._rng.getrandbits(64))
        inner = site.server.transport("manager")
        faulty = FaultyTransport(inner, self.clock, rng, self._worker_rates, self.trace)
        return site.line.transport(faulty)

    @property
    def starts(self) -> int:
        """Starts of jobs on workers that were checked."""
        return self._placements.checked

    @property
    def sites(self) -> list[Site]:
        """All clusters, the manager first."""
        return [self._manager, *self._workers.values()]

    # The run

    async def play(self) -> None:
        """From an empty cluster to a settled one."""
        for site in self.sites:
            await site.start()
            await site.manager.synced()
            await asyncio.sleep(0)
            await self._set_up(site)
        work = asyncio.create_task(self._story())
        stopped = asyncio.create_task(self.trace.stopped.wait())
        await asyncio.wait((work, stopped), return_when=asyncio.FIRST_COMPLETED)
        for task in (work, stopped):
            task.cancel()
        await asyncio.gather(work, stopped, return_exceptions=True)
        for site in self.sites:
            self.faults += site.transport.faults
            await site.stop()
        if not work.cancelled() and work.done():
            work.result()

    async def _story(self) -> None:
        helpers = [asyncio.create_task(site.restart_dead()) for site in self.sites]
        helpers.append(asyncio.create_task(self._watch_connections()))
        try:
            await self._register()
            await self.clock.sleep(5.0)
            self._set_rates(trouble=True)
            troubles = [
                asyncio.create_task(one())
                for one in (self._cut_lines, self._kill, self._set_back, self._rotate, self._rename)
            ]
            helpers += troubles
            await asyncio.gather(self._submit(), self.clock.sleep(TROUBLE))
            for task in troubles:
                task.cancel()
            await asyncio.gather(*troubles, return_exceptions=True)
            await self._calm()
            await self._settle()
        finally:
            for task in helpers:
                task.cancel()
            results = await asyncio.gather(*helpers, return_exceptions=True)
            for result in results:
                if isinstance(result, Exception):
                    self.trace.violate(f"a part of the run failed: {result!r}")

    def _set_rates(self, trouble: bool) -> None:
        level = self._rng.choice((0.0, 0.005, 0.02)) if trouble else 0.0
        own = replace(
            _CALM_RATES,
            conflict=2 * level, error=level, lost=level, unsure=level, drop=level / 4,
            slow=4 * level, delay=2.0, crash=level / 10,
        )  # fmt: skip
        self._worker_rates = replace(own, crash=0.0, lost=level / 2, unsure=level)
        for site in self.sites:
            site.rates = own
            site.transport.rates = own

    async def _calm(self) -> None:
        self.trace.note("run", "no more faults")
        self._set_rates(trouble=False)
        for site in self._workers.values():
            site.line.cut()  # connections with faults end
            site.line.restore()
        # Those that died meanwhile are restarted.
        await self.clock.sleep(30.0)
        for workload in (await self._manager.client.list(WORKLOADS)).items:
            if get(workload, "spec", "active") is False:
                await self._patch(WORKLOADS, [workload["metadata"]["name"]], {"spec": {"active": True}})

    async def _settle(self) -> None:
        ends = self.clock.time() + PATIENCE
        left: list[str] = []
        while self.clock.time() < ends:
            await self.clock.sleep(LOOK)
            left = [one async for one in self._unsettled()]
            if not left:
                return
        for site in self.sites:
            for workload in (await site.client.list(WORKLOADS)).items:
                status = workload.get("status")
                self.trace.note("state", f"{site.name}: {workload['metadata']['name']}: {status}")
        for one in left:
            self.trace.violate(f"in the end {one}")

    async def _unsettled(self) -> Any:
        for resource in self._resources:
            for job in (await self._manager.client.list(resource)).items:
                if not has_ended(job):
                    yield f"{resource.kind} {job['metadata']['name']} has not ended"
        for workload in (await self._manager.client.list(WORKLOADS)).items:
            if not conditions.is_finished(workload):
                yield f"workload {workload['metadata']['name']} is not finished"
        for worker in self._workers.values():
            for resource in (WORKLOADS, *self._resources):
                for one in (await worker.client.list(resource)).items:
                    if names.MULTIKUEUE_ORIGIN_LABEL in labels_of(one):
                        yield f"{one['metadata']['name']} is left on {worker.name}"

    # Set-up

    async def _set_up(self, site: Site) -> None:
        cpu = 100 if site is self._manager else self._rng.choice(_QUOTAS)
        await site.client.create(RESOURCE_FLAVORS, _object(RESOURCE_FLAVORS, "f"))
        flavors = [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": cpu}]}]
        groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
        spec = {
            "namespaceSelector": {},
            "resourceGroups": groups,
            "preemption": {"withinClusterQueue": "LowerPriority"},
        }
        await site.client.create(CLUSTER_QUEUES, _object(CLUSTER_QUEUES, "cq", spec=spec))
        queue = _object(LOCAL_QUEUES, "lq", spec={"clusterQueue": "cq"})
        await site.client.create(LOCAL_QUEUES, queue)
        for name, value in (("low", 1), ("high", 5)):
            await site.client.create(
                WORKLOAD_PRIORITY_CLASSES, _object(WORKLOAD_PRIORITY_CLASSES, name, value=value)
            )

    async def _register(self) -> None:
        client = self._manager.client
        await client.create(NAMESPACES, _object(NAMESPACES, "kueue-system"))
        for name in self._workers:
            await client.create(SECRETS, _secret(name, 0))
            await client.create(MULTIKUEUE_CLUSTERS, _cluster(name, name))
        await configure_check(client, "mk", self._registered.values())
        strategy = {"admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]}}
        await client.patch(CLUSTER_QUEUES, "cq", None, {"spec": strategy})

    # Users

    async def _submit(self) -> None:
        rng = self._rng
        acts: list[asyncio.Task[None]] = []
        for number in range(rng.randint(4, 9)):
            await self.clock.sleep(rng.uniform(0.0, TROUBLE / 12))
            name = f"j{number}"
            resource, made = self._made(name)
            for one in made:
                await self._retry(partial(self._manager.client.create, resource, one))
            self.trace.note("user", f"creates {resource.kind} {name}")
            parts = [one["metadata"]["name"] for one in made]
            if rng.random() < 0.5:
                acts.append(asyncio.create_task(self._act(name, resource, parts)))
            if self._elastic:
                acts.append(asyncio.create_task(self._resize(name)))
        await asyncio.gather(*acts)

    def _made(self, name: str) -> tuple[Resource, list[Object]]:
        """A job: one object, or the pods of a group."""
        # Without a choice the run of a seed stays what it was.
        kind = self._kinds[0] if len(self._kinds) == 1 else self._rng.choice(self._kinds)
        resource = _RESOURCES[kind]
        pods = self._rng.choice((1, 1, 2, 3))
        labels = {names.QUEUE_LABEL: "lq", names.PRIORITY_CLASS_LABEL: self._rng.choice(("low", "high"))}
        if kind == "JobSet":
            return resource, [jobset(name, labels, pods, 1)]
        if kind == "Pod":
            return resource, [pod_manifest(name, labels, {}, 1)]
        if kind == "PodGroup":
            labels[names.POD_GROUP_NAME_LABEL] = name
            total = {
                names.POD_GROUP_TOTAL_COUNT_ANNOTATION: str(pods),
                # Users replace no pods here.
                names.RETRIABLE_IN_GROUP_ANNOTATION: "false",
            }
            return resource, [pod_manifest(f"{name}-{part}", labels, total, 1) for part in range(pods)]
        return resource, [self._job(name, labels, pods)]

    def _job(self, name: str, labels: dict[str, str], pods: int) -> Object:
        if not self._elastic or self._rng.random() < 0.2:
            return job_manifest(name, labels, {}, pods, 1, pods)
        # With more to do than it has pods, growing and shrinking makes a difference.
        return job_manifest(name, labels, {names.ELASTIC_JOB_ANNOTATION: "true"}, pods, 1, 4)

    async def _resize(self, name: str) -> None:
        """Change the size of a job a few times; one that is not elastic is stopped and queued again."""
        for _ in range(self._rng.randint(0, 3)):
            await self.clock.sleep(self._rng.uniform(1.0, 40.0))
            pods = self._rng.randint(1, min(_QUOTAS))
            self.trace.note("user", f"sets parallelism {pods} of {name}")
            await self._patch(JOBS, [name], {"spec": {"parallelism": pods}})

    async def _act(self, name: str, resource: Resource, parts: Sequence[str]) -> None:
        await self.clock.sleep(self._rng.uniform(0.0, 30.0))
        act = self._rng.choice(("delete", "stop", "raise", "lower"))
        self.trace.note("user", f"{act}: {name}")
        if act == "delete":
            delete = partial(self._manager.client.delete, resource, propagation="Background")
            for part in parts:
                await self._retry(partial(delete, part, "default"))
        elif act == "stop":
            await self._set_active(name, False)
            await self.clock.sleep(self._rng.uniform(1.0, 60.0))
            await self._set_active(name, True)
        else:
            label = {names.PRIORITY_CLASS_LABEL: "high" if act == "raise" else "low"}
            await self._patch(resource, parts, {"metadata": {"labels": label}})

    async def _set_active(self, job: str, active: bool) -> None:
        for workload in (await self._manager.client.list(WORKLOADS)).items:
            if unit_of_workload(workload) == job and not conditions.is_finished(workload):
                await self._patch(WORKLOADS, [workload["metadata"]["name"]], {"spec": {"active": active}})

    async def _patch(self, resource: Resource, parts: Sequence[str], patch: Object) -> None:
        for part in parts:
            await self._retry(partial(self._manager.client.patch, resource, part, "default", patch))

    async def _retry(self, request: Callable[[], Any]) -> None:
        """Send a request again while webhooks cannot be called; what is refused or gone is left."""
        for _ in range(30):
            try:
                await request()
                return
            except ApiError as error:
                if error.code < 500:
                    return
            await self.clock.sleep(2.0)

    # Faults

    async def _some_time(self) -> str:
        """Wait; the worker that something happens to."""
        await self.clock.sleep(self._rng.uniform(5.0, TROUBLE / 6))
        return self._rng.choice(list(self._workers))

    async def _cut_lines(self) -> None:
        while True:
            worker = self._workers[await self._some_time()]
            seconds = self._rng.choice((1.0, 10.0, LOST - 10.0, 2.5 * LOST))
            self._note("cut", f"{worker.name} cannot be reached for {seconds:g} s")
            worker.line.cut()
            try:
                await self.clock.sleep(seconds)
            finally:
                worker.line.restore()

    async def _kill(self) -> None:
        while True:
            name = await self._some_time()
            site = self._rng.choice((self._manager, self._workers[name]))
            self._note("killed", f"the manager of {site.name} is killed")
            site.kill_manager()

    async def _set_back(self) -> None:
        if self._rng.random() < 0.5:
            return
        worker = self._workers[await self._some_time()]
        store = worker.snapshot()
        await self.clock.sleep(self._rng.uniform(0.0, 100.0))
        self._note("set back", f"{worker.name} is restored from an older state")
        jobs = [
            {"kind": resource.kind, **record.object}
            for resource in self._resources
            for record in store.table(f"{resource.group}/{resource.plural}")
            if is_dispatched(record.object)
        ]
        workloads = (await self._manager.client.list(WORKLOADS)).items
        finished = {unit_of_workload(one) for one in workloads if _has_run(one)}
        worker.line.cut()
        self._placements.restored(worker.name, jobs, finished)
        await asyncio.shield(asyncio.ensure_future(worker.set_back(store)))
        # Again without what was written while the former cluster stopped.
        self._placements.restored(worker.name, jobs, finished)
        worker.line.restore()

    async def _rotate(self) -> None:
        count = 0
        while True:
            name = await self._some_time()
            count += 1
            self._note("rotated", f"the kubeconfig of {name} changes")
            secret = _secret(name, count)
            await self._manager.client.patch(
                SECRETS, secret["metadata"]["name"], "kueue-system", {"data": secret["data"]}
            )

    async def _rename(self) -> None:
        if self._rng.random() < 0.6:
            return
        name = await self._some_time()
        self._note("renamed", f"{name} is called {name}-new")
        client = self._manager.client
        await client.delete(MULTIKUEUE_CLUSTERS, name, None)
        self._registered[name] = f"{name}-new"
        await client.create(MULTIKUEUE_CLUSTERS, _cluster(f"{name}-new", name))
        spec = {"spec": {"clusters": list(self._registered.values())}}
        await client.patch(MULTIKUEUE_CONFIGS, "mk", None, spec)

    def _note(self, fault: str, text: str) -> None:
        self.faults[fault] += 1
        self.trace.note("fault", text)

    async def _watch_connections(self) -> None:
        """Excuse what runs on workers that were not reached for the timeout."""
        since: dict[str, float] = {}
        while True:
            now = self.clock.monotonic()
            connected = () if self._multikueue is None else self._multikueue.connected()
            for worker, name in self._registered.items():
                if name in connected:
                    since.pop(worker, None)
                elif now - since.setdefault(worker, now) >= LOST - SLACK:
                    self._placements.excuse(worker, "not reached for workerLostTimeout")
            await self.clock.sleep(0.5)


def _integrations(frameworks: Sequence[str]) -> str:
    return f"integrations: {{frameworks: [{', '.join(frameworks)}]}}\n"


def _has_run(workload: Object) -> bool:
    """Whether its job has ended; not that of a slice that another one has replaced."""
    over = (REPLACED, OUT_OF_SYNC)
    return conditions.is_finished(workload) and conditions.reason(workload, conditions.FINISHED) not in over


def _object(resource: Resource, name: str, **fields: Any) -> Object:
    metadata = {"name": name, **({"namespace": "default"} if resource.namespaced else {})}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}


def _cluster(name: str, worker: str) -> Object:
    source = {"kubeConfig": {"location": f"{worker}-kubeconfig", "locationType": "Secret"}}
    return _object(MULTIKUEUE_CLUSTERS, name, spec={"clusterSource": source})


def _secret(worker: str, version: int) -> Object:
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"https://{worker}.test"}}],
        "users": [{"name": "u", "user": {"token": f"token-{version}"}}],
    }
    secret = _object(SECRETS, f"{worker}-kubeconfig")
    secret["metadata"]["namespace"] = "kueue-system"
    secret["data"] = {"kubeconfig": base64.b64encode(json.dumps(content).encode()).decode()}
    return secret


def chosen_of_clusters(text: str) -> tuple[str, ...]:
    """The kinds of a list with commas, or `all`. Raises click.BadParameter for an unknown one."""
    found = ALL if text == "all" else tuple(text.split(","))
    for name in found:
        if name not in ALL:
            raise click.BadParameter(f"{name} is no kind of runs with --clusters; there are {', '.join(ALL)}")
    return found


def play_clusters(seed: int, elastic: bool = False, kinds: Sequence[str] = ("Job",)) -> Report:
    """Play the run of this seed, in virtual time; `elastic`: most jobs change their size."""
    installed_store()  # the first time outside an event loop
    run, lasted = play_to_end(
        lambda: ClusterRun(seed, random.Random(seed), Clock(VIRTUAL_EPOCH.timestamp()), elastic, kinds)
    )
    return Report(
        seed,
        run.trace.violations,
        run.faults,
        run.starts,
        lasted,
        run.trace.digest(),
        run.trace.entries,
        sum(site.deaths for site in run.sites),
        " --clusters"
        + " --elastic" * elastic
        + ("" if tuple(kinds) == ("Job",) else f" --kinds {','.join(kinds)}"),
    )
