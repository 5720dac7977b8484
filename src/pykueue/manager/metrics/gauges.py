"""Gauges: how things stand, worked out when somebody asks. Nothing is kept up to date while nobody does."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import pykueue
from pykueue.api.quantity import parse
from pykueue.engine import Engine
from pykueue.jobs.objects import get
from pykueue.manager.activity import local_queue_activity
from pykueue.manager.cluster import Cluster
from pykueue.manager.workloads import reading


class Gauges(Collector):
    """Answers a scrape from the caches and the engine's figures.

    `local_queues` says for which LocalQueues (namespace, name) metrics are wanted.
    """

    def __init__(
        self,
        cluster: Cluster,
        engine: Engine,
        role: Callable[[], str],
        local_queues: Callable[[str, str], bool],
    ) -> None:
        self._cluster = cluster
        self._engine = engine
        self._role_now = role
        self._wants_local = local_queues
        self._with_resources = cluster.configuration.metrics.enable_cluster_queue_resources

    @property
    def _role(self) -> str:
        return self._role_now()

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: names do not depend on what exists."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All gauges as they are now."""
        yield self._build_info()
        yield from self._cluster_queues()
        if self._with_resources:
            yield from self._resources()
        yield from self._local_queues()

    def _gauge(self, name: str, text: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"kueue_{name}", text, labels=[*labels, "replica_role"])

    def _set(self, gauge: GaugeMetricFamily, value: float, *labels: str) -> None:
        gauge.add_metric([*labels, self._role], value)

    def _build_info(self) -> Metric:
        labels = ["git_version", "git_commit", "build_date", "go_version", "compiler", "platform"]
        gauge = GaugeMetricFamily("kueue_build_info", "What this is.", labels=labels)
        version = f"v{getattr(pykueue, '__version__', '0')}"
        compiler = platform.python_implementation()
        where = f"{sys.platform}/{platform.machine()}"
        gauge.add_metric([version, "", "", f"python{platform.python_version()}", compiler, where], 1)
        return gauge

    def _cluster_queues(self) -> Iterator[Metric]:
        pending = self._gauge("pending_workloads", "Workloads that wait.", "cluster_queue", "status")
        reserving = self._gauge("reserving_active_workloads", "Workloads that hold quota.", "cluster_queue")
        admitted = self._gauge("admitted_active_workloads", "Admitted workloads.", "cluster_queue")
        finished = self._gauge("finished_workloads", "Finished workloads that are kept.", "cluster_queue")
        status = self._gauge("cluster_queue_status", "1 for the status it has.", "cluster_queue", "status")
        info = self._gauge(
            "cluster_queue_info", "Its place in the tree.", "cluster_queue", "parent_cohort", "root_cohort"
        )
        kept = self._finished()
        for queue in self._cluster.cluster_queues.list():
            name = queue["metadata"]["name"]
            view = self._engine.cluster_queue(name)
            if view is None:
                continue
            self._set(pending, view.active, name, "active")
            self._set(pending, view.pending - view.active, name, "inadmissible")
            self._set(reserving, view.reserving, name)
            self._set(admitted, view.admitted, name)
            self._set(finished, kept.get(name, 0), name)
            current = self._status(queue)
            for each in ("pending", "active", "terminating"):
                self._set(status, float(each == current), name, each)
            parent = str(get(queue, "spec", "cohortName") or "")
            self._set(info, 1, name, parent, self._root(parent))
        yield from (pending, reserving, admitted, finished, status, info)

    def _status(self, queue: Mapping[str, Any]) -> str:
        if queue["metadata"].get("deletionTimestamp"):
            return "terminating"
        return "active" if self._cluster.activity(queue).active else "pending"

    def _root(self, cohort: str) -> str:
        """The topmost cohort above; a cycle ends where it began."""
        seen: set[str] = set()
        while cohort and cohort not in seen:
            seen.add(cohort)
            above = str(get(self._cluster.cohorts.get("", cohort) or {}, "spec", "parentName") or "")
            if not above:
                return cohort
            cohort = above
        return cohort

    def _finished(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for workload in self._cluster.workloads.list():
            if reading.is_finished(workload):
                name = reading.cluster_queue(workload)
                counts[name] = counts.get(name, 0) + 1
        return counts

    def _resources(self) -> Iterator[Metric]:
        labels = ("cohort", "cluster_queue", "flavor", "resource")
        reservation = self._gauge("cluster_queue_resource_reservation", "Reserved.", *labels)
        usage = self._gauge("cluster_queue_resource_usage", "Used by admitted workloads.", *labels)
        nominal = self._gauge("cluster_queue_nominal_quota", "Its own quota.", *labels)
        borrowing = self._gauge("cluster_queue_borrowing_limit", "Most it may borrow.", *labels)
        lending = self._gauge("cluster_queue_lending_limit", "Most it lends.", *labels)
        for queue in self._cluster.cluster_queues.list():
            name, cohort = queue["metadata"]["name"], str(get(queue, "spec", "cohortName") or "")
            view = self._engine.cluster_queue(name)
            for gauge, amounts in ((reservation, view.reservation), (usage, view.usage)) if view else ():
                for amount in amounts:
                    where = (cohort, name, amount.flavor, amount.resource)
                    self._set(gauge, float(amount.total), *where)
            for flavor, quota in _quotas(queue):
                where = (cohort, name, flavor, str(quota.get("name")))
                self._set(nominal, _amount(quota.get("nominalQuota")), *where)
                self._set(borrowing, _amount(quota.get("borrowingLimit")), *where)
                self._set(lending, _amount(quota.get("lendingLimit")), *where)
        yield from (reservation, usage, nominal, borrowing, lending)

    def _local_queues(self) -> Iterator[Metric]:
        pending = self._gauge(
            "local_queue_pending_workloads", "Workloads that wait.", "name", "namespace", "status"
        )
        reserving = self._gauge("local_queue_reserving_active_workloads", "Hold quota.", "name", "namespace")
        admitted = self._gauge("local_queue_admitted_active_workloads", "Admitted.", "name", "namespace")
        status = self._gauge("local_queue_status", "1 for the status it has.", "name", "namespace", "active")
        labels = ("name", "namespace", "flavor", "resource")
        reservation = self._gauge("local_queue_resource_reservation", "Reserved.", *labels)
        usage = self._gauge("local_queue_resource_usage", "Used by admitted workloads.", *labels)
        for queue in self._cluster.local_queues.list():
            namespace, name = queue["metadata"].get("namespace") or "", queue["metadata"]["name"]
            view = self._engine.local_queue(namespace, name)
            if view is None or not self._wants_local(namespace, name):
                continue
            self._set(pending, view.active, name, namespace, "active")
            self._set(pending, view.pending - view.active, name, namespace, "inadmissible")
            self._set(reserving, view.reserving, name, namespace)
            self._set(admitted, view.admitted, name, namespace)
            target = self._cluster.cluster_queues.get("", str(get(queue, "spec", "clusterQueue") or ""))
            active = local_queue_activity(
                queue, None if target is None else self._cluster.activity(target)
            ).active
            for each in ("True", "False", "Unknown"):
                self._set(status, float(each == str(active)), name, namespace, each)
            for gauge, amounts in ((reservation, view.reservation), (usage, view.usage)):
                for amount in amounts:
                    self._set(gauge, float(amount.total), name, namespace, amount.flavor, amount.resource)
        yield from (pending, reserving, admitted, status, reservation, usage)


def _quotas(queue: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for group in get(queue, "spec", "resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for quota in flavor.get("resources") or ():
                yield str(flavor.get("name")), quota


def _amount(quantity: Any) -> float:

    return float("inf") if quantity is None else float(parse(quantity))
