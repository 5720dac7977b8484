"""MultiKueueClusters and their connections, the condition Active of MultiKueue checks, and what leads to
work on Workloads. Source: docs/reference/admission-checks.md 14 and 17.2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pykueue.api.jobkinds import JobKind
from pykueue.api.kueue import names
from pykueue.api.objects import Key, Object, condition_of, get, key_of, spec_differs
from pykueue.api.queue_specs import is_check_of, parameters_name
from pykueue.api.resources import (
    CRDS,
    KUEUE_GROUP,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    WORKLOADS,
)
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import EventRecorder
from pykueue.kube.informer import Informer
from pykueue.manager.activity import CHECK_ACTIVE, Activity, with_activity
from pykueue.manager.cluster import Cluster
from pykueue.manager.indexes import group_keys
from pykueue.manager.metrics.observer import Observer
from pykueue.manager.workloads.reservations import Reservations
from pykueue.manager.workloads.transitions import cut

from .dispatch import dispatcher
from .kubeconfig import BAD, KubeConfigError
from .quota import QuotaAutomation
from .remote import Connect, Hooks, RemoteCluster, dispatched_kinds
from .sources import SourceNotReadError, Sources
from .workloads import WorkloadDispatcher

#: Seconds between reads of a kubeconfig file, which may have changed.
FILE_POLL = 10.0
#: Seconds after which a MultiKueueCluster is inactive because what it names could not be read.
SOURCE_WAIT = 10.0
#: Workers of the incremental dispatcher's rounds where the configuration says nothing.
STEP = 3


class MultiKueue:
    """All controllers of MultiKueue."""

    def __init__(
        self,
        cluster: Cluster,
        recorder: EventRecorder,
        clock: Clock,
        metrics: Observer,
        connect: Connect,
        reservations: Reservations,
        workers: int = 1,
    ) -> None:
        self._cluster = cluster
        self._writer = cluster.connection.writer
        self._clock = clock
        self._connect = connect
        self._settings = cluster.configuration.multi_kueue
        gates = cluster.configuration.gates
        informer = cluster.connection.informer
        self._clusters = informer(MULTIKUEUE_CLUSTERS, optional=True)
        self._configs = informer(MULTIKUEUE_CONFIGS, optional=True)
        self._configs.add_index("cluster", lambda config: list(get(config, "spec", "clusters") or ()))
        self._remotes: dict[str, RemoteCluster] = {}
        #: The uid of an object of each worker, by which it is recognized under another name.
        self._identities: dict[str, str] = {}
        incremental = self._settings.incremental_dispatcher_config
        configurable = gates["MultiKueueIncrementalDispatcherConfig"]
        step = incremental.step_size if incremental is not None and configurable else STEP
        chosen = dispatcher(
            self._settings.dispatcher_name, step, gates["MultiKueueIncrementalDispatcherRespectConfigOrder"]
        )
        self._dispatch = WorkloadDispatcher(
            cluster, self._remotes, self._clusters_of, chosen, recorder, clock, metrics
        )
        reservations.on_reserving(self._dispatch.nominated_at_reservation)
        ready = [cluster.synced]
        self.controller: Controller[Key] = Controller(
            "multikueue controller", self._dispatch.reconcile, clock=clock, workers=workers, wait_for=ready
        )
        self._cluster_controller: Controller[str] = Controller(
            "multikueue cluster controller", self._reconcile_cluster, clock=clock, wait_for=ready
        )
        self._check_controller: Controller[str] = Controller(
            "multikueue check controller", self._reconcile_check, clock=clock, wait_for=ready
        )
        self._sources = Sources(cluster, self._clusters, clock, self._cluster_controller.queue.add)
        self._quota: QuotaAutomation | None = None
        if gates["MultiKueueManagerQuotaAutomation"]:
            self._quota = QuotaAutomation(cluster, self._dispatch.sessions, self._configs, clock)
        self._hooks = Hooks(
            self._worker_changed,
            self._copy_changed,
            self._verify,
            cluster.configuration.workload_name_limit,
            None if self._quota is None else self._quota.add_all,
            cluster.identifiers,
        )
        self._clusters.on_event(self._cluster_changed)
        self._configs.on_event(self._config_changed)
        cluster.checks.on_event(self._check_changed)
        cluster.workloads.on_event(self._workload_changed)
        cluster.on_job_event(self._job_changed)
        for others in (cluster.stateful_sets, cluster.leader_worker_sets, *cluster.external_jobs.values()):
            if others is not None:
                others.on_event(self._job_changed)
        cluster.on_kinds_changed(self._kinds_changed)

    def _dispatched_kinds(self) -> list[JobKind]:
        return dispatched_kinds(self._cluster.kinds, self._cluster.configuration)

    def _kinds_changed(self) -> None:
        for remote in list(self._remotes.values()):
            remote.reconnect()

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for controller in (self.controller, self._cluster_controller, self._check_controller):
                    tasks.create_task(controller.run())
                if self._quota is not None:
                    tasks.create_task(self._quota.controller.run())
                tasks.create_task(self._sources.run())
                if self._settings.gc_interval > 0:
                    tasks.create_task(self._collect_garbage())
        finally:
            for remote in self._remotes.values():
                remote.close()
            self._remotes.clear()

    def connected(self) -> frozenset[str]:
        """Names of the workers that are connected."""
        return frozenset(self._dispatch.sessions())

    async def _collect_garbage(self) -> None:
        await self._cluster.synced()
        while True:
            await self._clock.sleep(self._settings.gc_interval)
            await self._dispatch.collect_garbage()

    # What leads to work

    def _cluster_changed(self, type_: str, old: Any, new: Any) -> None:
        if spec_differs(old, new):
            self._worker_changed((old if new is None else new)["metadata"]["name"])

    def _worker_changed(self, name: str) -> None:
        """A worker was declared, connected or lost: its condition, its checks and their Workloads."""
        self._cluster_controller.queue.add(name)
        if self._quota is not None:
            self._quota.add_all()
        self._add_checks_of(name)

    def _add_checks_of(self, worker: str) -> None:
        for config in self._configs.by_index("cluster", worker):
            self._add_checks(config["metadata"]["name"])

    def _copy_changed(self, key: Key) -> None:
        """Something of a Workload has changed on a worker; its job may belong to a larger slice here."""
        self.controller.queue.add(key)
        for other in self._dispatch.replacements(key):
            self.controller.queue.add(other)

    def _config_changed(self, type_: str, old: Any, new: Any) -> None:
        self._add_checks((old if new is None else new)["metadata"]["name"])

    def _add_checks(self, config: str) -> None:
        for check in self._cluster.checks_with(names.MULTIKUEUE_CONTROLLER, config):
            name = check["metadata"]["name"]
            self._check_controller.queue.add(name)
            for workload in self._cluster.workloads_with(name):
                self.controller.queue.add(key_of(workload))

    def _check_changed(self, type_: str, old: Any, new: Any) -> None:
        check = old if new is None else new
        if _is_ours(check) and spec_differs(old, new):
            self._check_controller.queue.add(check["metadata"]["name"])

    def _workload_changed(self, type_: str, old: Any, new: Any) -> None:
        workload = old if new is None else new
        self._add(workload)
        if workload["metadata"].get("annotations"):  # groups have some, and most Workloads have none
            for part in self._dispatch.parts(workload) or ():
                self._add(part)

    def _add(self, workload: Object | None) -> None:
        """Reconcile a Workload that goes, or has gone, to workers."""
        status = workload.get("status") if workload is not None else None
        if not workload or not status:
            return
        if status.get("clusterName") or (
            status.get("admissionChecks") and self._cluster.multikueue_state(workload) is not None
        ):
            self.controller.queue.add(key_of(workload))

    def _job_changed(self, type_: str, old: Any, new: Any) -> None:
        for workload in () if new is None else self._cluster.workloads_of(new):
            self._add(workload)
        for key in () if new is None else group_keys(new, self._cluster.identifiers):
            self._add(self._cluster.workload(key))

    # Clusters

    async def _reconcile_cluster(self, name: str) -> float | None:
        obj = self._clusters.get("", name)
        if obj is None:
            remote = self._remotes.pop(name, None)
            if remote is not None:
                remote.close()
            return None
        remote = self._remotes.get(name)
        if remote is None:
            remote = self._remotes[name] = RemoteCluster(
                name,
                self._dispatched_kinds,
                self._settings.origin,
                self._connect,
                self._clock,
                self._hooks,
            )
            self._dispatch.losses.described(name)
        try:
            remote.use(self._sources.target(obj))
        except KubeConfigError as error:
            if isinstance(error, SourceNotReadError) and remote.lost_for() < SOURCE_WAIT:
                await self._write_cluster_activity(name, remote)
                return SOURCE_WAIT
            before, problem = remote.problem, (error.reason, str(error))
            remote.refuse(problem)
            if problem != before:
                self._add_checks_of(name)
        await self._write_cluster_activity(name, remote)
        by_path = get(obj, "spec", "clusterSource", "kubeConfig", "locationType") == "Path"
        return FILE_POLL if by_path else None

    async def _verify(self, name: str, worker: Client) -> None:
        """Raises KubeConfigError where a worker is the manager's own cluster.

        And ConnectionError where it is one that is connected under another name: what is removed from the one
        would be missing on the other.
        """
        definition = f"{WORKLOADS.plural}.{WORKLOADS.group}"
        try:
            found = await worker.find(CRDS, definition)
            own = await self._cluster.connection.client.find(CRDS, definition)
        except ApiError as error:
            if error.code == 403:
                return  # the account may lack this right where all kinds of jobs are served
            raise
        if found is not None and own is not None and found["metadata"]["uid"] == own["metadata"]["uid"]:
            raise KubeConfigError(BAD, "the kubeconfig leads to this cluster, which cannot be its own worker")
        if found is not None:
            self._identities[name] = found["metadata"]["uid"]
            for other in sorted(self.connected() - {name}):
                if self._identities.get(other) == found["metadata"]["uid"]:
                    raise ConnectionError(f"MultiKueueCluster {other} is the same cluster")

    async def _write_cluster_activity(self, name: str, remote: RemoteCluster) -> None:
        if remote.session is not None:
            without = f", without {', '.join(remote.denied)}: no right to read" if remote.denied else ""
            activity = Activity(True, "Active", f"Connected{without}")
        elif remote.problem is not None:
            reason, message = remote.problem
            activity = Activity(False, reason, cut(message))
        elif condition_of(get(self._clusters.get("", name) or {}, "status"), "Active") is None:
            activity = Activity(False, "ClientConnectionFailed", "connecting")
        else:
            return  # the condition from before, such as before a restart, holds until the attempt has ended
        await self._write_activity(self._clusters, name, activity)

    async def _write_activity(self, informer: Informer, name: str, activity: Activity) -> None:
        await self._writer.update(
            informer, ("", name), lambda obj: with_activity(obj, activity, self._clock.time())
        )

    # Checks

    def _clusters_of(self, check: str) -> Sequence[str]:
        obj = self._cluster.checks.get("", check)
        config = None if obj is None else self._configs.get("", parameters_name(obj))
        return () if config is None else list(get(config, "spec", "clusters") or ())

    async def _reconcile_check(self, name: str) -> float | None:
        check = self._cluster.checks.get("", name)
        if check is not None and _is_ours(check):
            activity = self._check_activity(check)
            if activity is not None:
                await self._write_activity(self._cluster.checks, name, activity)
        return None

    def _check_activity(self, check: Mapping[str, Any]) -> Activity | None:
        """None where the present condition holds until a first attempt to connect has ended."""
        reference = get(check, "spec", "parameters") or {}
        named = (reference.get("apiGroup"), reference.get("kind"))
        if named != (KUEUE_GROUP, MULTIKUEUE_CONFIGS.kind):
            text = f"spec.parameters must name a {MULTIKUEUE_CONFIGS.kind} of {KUEUE_GROUP}"
            return Activity(False, "BadConfig", text)
        config = self._configs.get("", str(reference.get("name")))
        if config is None:
            text = f"{MULTIKUEUE_CONFIGS.kind} {reference.get('name')} is not found"
            return Activity(False, "BadConfig", text)
        missing, inactive, connecting = [], [], False
        clusters = list(get(config, "spec", "clusters") or ())
        for name in clusters:
            remote = self._remotes.get(name)
            if self._clusters.get("", name) is None:
                missing.append(name)
            elif remote is None or remote.session is None:
                inactive.append(name)
                connecting = connecting or remote is None or remote.problem is None
        if connecting and condition_of(check.get("status"), "Active") is not None:
            return None
        parts = []
        if missing:
            parts.append(f"Missing clusters: {', '.join(missing)}")
        if inactive:
            parts.append(f"Inactive clusters: {', '.join(inactive)}")
        if len(missing) + len(inactive) == len(clusters):
            return Activity(False, "NoUsableClusters", cut("; ".join(parts)))
        if parts:
            return Activity(True, "SomeActiveClusters", cut("; ".join(parts)))
        return CHECK_ACTIVE


def _is_ours(check: Mapping[str, Any]) -> bool:
    return is_check_of(check, names.MULTIKUEUE_CONTROLLER)
