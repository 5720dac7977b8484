"""Gauges, computed at each scrape."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from math import inf, nan
from typing import Any

import pykueue
from pykueue.api.objects import get, is_deleting
from pykueue.api.quantity import MAX_INT64, parse
from pykueue.engine import Engine
from pykueue.manager.cluster import Cluster
from pykueue.manager.queues.activity import cluster_queue_activity, local_queue_activity
from pykueue.prometheus import Family

from .counts import Counts
from .labels import CustomLabels, Source, parent_of, root_of

#: How a workload waits.
_STATUSES = ("active", "inadmissible")


class Gauges:
    """Answers a scrape from the caches and the engine's figures.

    `local_queues` says for which LocalQueues (namespace, name) metrics are wanted.
    """

    def __init__(
        self,
        cluster: Cluster,
        engine: Engine,
        role: Callable[[], str],
        local_queues: Callable[[str, str], bool],
        custom: CustomLabels,
    ) -> None:
        self._cluster = cluster
        self._engine = engine
        self._role_now = role
        self._wants_local = local_queues
        self._custom = custom
        configuration = cluster.configuration
        self._gates = configuration.gates
        self._with_resources = configuration.metrics.enable_cluster_queue_resources
        self._shares = configuration.fair_sharing is not None
        #: Workloads of the last cycle that had victims and were skipped, by ClusterQueue.
        self.skipped: Mapping[str, int] = {}

    def collect(self) -> Iterator[Family]:
        """All gauges as they are now."""
        counts = Counts(self._cluster, self._engine, self._custom)
        yield self._build_info()
        yield from self._cluster_queues(counts)
        if self._with_resources:
            yield from self._resources()
        yield from self._cohorts()
        if self._gates["LocalQueueMetrics"]:
            yield from self._local_queues(counts)
        yield from self._budgets()

    # Budgets

    def _budgets(self) -> Iterator[Family]:
        """Of the ledgers that the status of each Budget lists."""
        labels = ["budget", "value", "resource"]
        texts = {
            "limit": "Resource-hours that a Budget allows, with credits and what was carried over.",
            "used": "Resource-hours that were used of a Budget in its window.",
            "reserved": "Resource-hours that running workloads may still use of a Budget.",
        }
        families = {
            field: Family("gauge", f"pykueue_budget_{field}_hours", text, labels)
            for field, text in texts.items()
        }
        for budget in self._cluster.budgets.list():
            for ledger in get(budget, "status", "ledgers") or ():
                for each in ledger.get("resources") or ():
                    key = [budget["metadata"]["name"], ledger.get("value") or "", each["name"]]
                    for field, family in families.items():
                        family.add(key, float(parse(each.get(field) or "0")))
        yield from families.values()

    def _gauge(self, source: Source, name: str, text: str, *labels: str, apart: bool = False) -> _Gauge:
        """A gauge of one kind of object; `apart`: it tells workloads apart by their custom labels."""
        custom = self._custom.names(source, "Workload") if apart else self._custom.names(source)
        return _Gauge(name, text, labels, custom, self._role_now())

    def _build_info(self) -> Family:
        labels = ["git_version", "git_commit", "build_date", "go_version", "compiler", "platform"]
        gauge = Family("gauge", "kueue_build_info", "What this is.", labels)
        version = f"v{pykueue.__version__}"
        compiler = platform.python_implementation()
        where = f"{sys.platform}/{platform.machine()}"
        gauge.add([version, "", "", f"python{platform.python_version()}", compiler, where], 1)
        return gauge

    # ClusterQueues

    def _cluster_queues(self, counts: Counts) -> Iterator[Family]:
        def gauge(name: str, text: str, *labels: str, apart: bool = False) -> _Gauge:
            return self._gauge("ClusterQueue", name, text, "cluster_queue", *labels, apart=apart)

        pending = gauge("pending_workloads", "Number of pending workloads.", "status", apart=True)
        kinds = gauge(
            "pending_scheduling_hashes", "Number of scheduling classes of pending workloads.", "status"
        )
        reserving = gauge("reserving_active_workloads", "Number of workloads with reserved quota.")
        admitted = gauge("admitted_active_workloads", "Number of admitted workloads.", apart=True)
        finished = gauge("finished_workloads", "Number of finished workloads that exist.")
        unadmitted = gauge(
            "unadmitted_workloads", "Number of workloads that are not admitted.", "reason", "underlying_cause"
        )
        skipped = gauge(
            "admission_cycle_preemption_skips", "Workloads with preemption targets skipped in the last cycle."
        )
        status = gauge("cluster_queue_status", "1 for the present status, 0 for others.", "status")
        info = gauge(
            "cluster_queue_info", "Always 1; labels name the cohorts above.", "parent_cohort", "root_cohort"
        )
        apart = bool(self._custom.names("Workload"))
        for queue in self._cluster.cluster_queues.list():
            name = queue["metadata"]["name"]
            view = self._engine.cluster_queue(name)
            if view is None:
                continue
            custom = self._custom.cluster_queue(name)
            if not apart:
                pending.set(view.active, (name, "active"), custom)
                pending.set(view.pending - view.active, (name, "inadmissible"), custom)
                admitted.set(view.admitted, (name,), custom)
            for each, count in zip(_STATUSES, self._engine.pending_kinds(name), strict=True):
                kinds.set(count, (name, each), custom)
            reserving.set(view.reserving, (name,), custom)
            finished.set(counts.finished[name], (name,), custom)
            skipped.set(self.skipped.get(name, 0), (name,), custom)
            current = self._status(queue)
            for each in ("pending", "active", "terminating"):
                status.set(each == current, (name, each), custom)
            parent = str(get(queue, "spec", "cohortName") or "")
            info.set(1, (name, parent, root_of(self._cluster, parent)), custom)
        for (name, each, values), count in counts.pending.items():
            pending.set(count, (name, each), (*self._custom.cluster_queue(name), *values))
        for (name, values), count in counts.admitted.items():
            admitted.set(count, (name,), (*self._custom.cluster_queue(name), *values))
        for (name, reason, cause), count in counts.unadmitted.items():
            if self._cluster.cluster_queues.get("", name) is not None:
                unadmitted.set(count, (name, reason, cause), self._custom.cluster_queue(name))
        yield from (each.family for each in (pending, reserving, admitted, finished, skipped, status))
        if self._gates["SchedulingEquivalenceHashing"]:
            yield kinds.family
        if self._gates["UnadmittedWorkloadsObservability"]:
            yield unadmitted.family
        if self._gates["MetricsForCohorts"]:
            yield info.family

    def _status(self, queue: Mapping[str, Any]) -> str:
        if is_deleting(queue):
            return "terminating"
        return (
            "active" if cluster_queue_activity(self._engine, queue["metadata"]["name"]).active else "pending"
        )

    def _resources(self) -> Iterator[Family]:
        def gauge(name: str, text: str) -> _Gauge:
            labels = ("cohort", "cluster_queue", "flavor", "resource")
            return self._gauge("ClusterQueue", name, text, *labels)

        reservation = gauge("cluster_queue_resource_reservation", "Reserved quota.")
        usage = gauge("cluster_queue_resource_usage", "Quota used by admitted workloads.")
        nominal = gauge("cluster_queue_nominal_quota", "Nominal quota.")
        borrowing = gauge("cluster_queue_borrowing_limit", "Borrowing limit.")
        lending = gauge("cluster_queue_lending_limit", "Lending limit.")
        asked = self._gauge(
            "ClusterQueue",
            "cluster_queue_resource_pending",
            "Requests of pending workloads.",
            "cluster_queue",
            "resource",
        )
        share = self._gauge(
            "ClusterQueue", "cluster_queue_weighted_share", "Weighted share.", "cluster_queue", "cohort"
        )
        for queue in self._cluster.cluster_queues.list():
            name, cohort = queue["metadata"]["name"], str(get(queue, "spec", "cohortName") or "")
            custom = self._custom.cluster_queue(name)
            view = self._engine.cluster_queue(name)
            if view is not None:
                for each, amounts in ((reservation, view.reservation), (usage, view.usage)):
                    for amount in amounts:
                        where = (cohort, name, amount.flavor, amount.resource)
                        each.set(float(amount.total), where, custom)
                share.set(_share(view.weighted_share), (name, cohort), custom)
            for resource, quantity in self._engine.pending_requests(name).items():
                asked.set(float(quantity), (name, resource), custom)
            for flavor, quota in _quotas(queue):
                where = (cohort, name, flavor, str(quota.get("name")))
                nominal.set(_amount(quota.get("nominalQuota")), where, custom)
                borrowing.set(_amount(quota.get("borrowingLimit")), where, custom)
                lending.set(_amount(quota.get("lendingLimit")), where, custom)
        yield from (each.family for each in (reservation, usage, nominal, borrowing, lending, asked))
        if self._shares:
            yield share.family

    # Cohorts

    def _cohorts(self) -> Iterator[Family]:
        def gauge(name: str, text: str, *labels: str) -> _Gauge:
            return self._gauge("Cohort", name, text, "cohort", *labels)

        info = gauge(
            "cohort_info", "Always 1; labels name the cohorts above.", "parent_cohort", "root_cohort"
        )
        quota = gauge("cohort_subtree_quota", "Quota of the subtree.", "flavor", "resource")
        held = gauge(
            "cohort_subtree_resource_reservations", "Reserved quota of the subtree.", "flavor", "resource"
        )
        admitted = gauge("cohort_subtree_admitted_active_workloads", "Number of admitted workloads.")
        share = gauge("cohort_weighted_share", "Weighted share.")
        for view in self._engine.cohorts():
            name, custom = view.name, self._custom.cohort(view.name)
            info.set(1, (name, parent_of(self._cluster, name), root_of(self._cluster, name)), custom)
            for flavor, resource, amount in view.subtree_quota:
                quota.set(inf if amount is None else float(amount), (name, flavor, resource), custom)
            for each in view.reservation:
                held.set(float(each.total), (name, each.flavor, each.resource), custom)
            admitted.set(view.admitted, (name,), custom)
            share.set(_share(view.weighted_share), (name,), custom)
        yield from (quota.family, held.family, admitted.family)
        if self._gates["MetricsForCohorts"]:
            yield info.family
        if self._shares:
            yield share.family

    # LocalQueues

    def _local_queues(self, counts: Counts) -> Iterator[Family]:
        def gauge(name: str, text: str, *labels: str, apart: bool = False) -> _Gauge:
            where = ("name", "namespace", *labels)
            return self._gauge("LocalQueue", f"local_queue_{name}", text, *where, apart=apart)

        pending = gauge("pending_workloads", "Number of pending workloads.", "status")
        reserving = gauge("reserving_active_workloads", "Number of workloads with reserved quota.")
        admitted = gauge("admitted_active_workloads", "Number of admitted workloads.", apart=True)
        finished = gauge("finished_workloads", "Number of finished workloads that exist.")
        unadmitted = gauge(
            "unadmitted_workloads",
            "Number of workloads that are not admitted.",
            "cluster_queue",
            "reason",
            "underlying_cause",
        )
        status = gauge("status", "1 for the present status, 0 for others.", "active")
        reservation = gauge("resource_reservation", "Reserved quota.", "flavor", "resource")
        usage = gauge("resource_usage", "Quota used by admitted workloads.", "flavor", "resource")
        fair = gauge(
            "admission_fair_sharing_usage", "Usage by which LocalQueues are ordered.", "cluster_queue"
        )
        apart = bool(self._custom.names("Workload"))
        for queue in self._cluster.local_queues.list():
            namespace, name = queue["metadata"].get("namespace") or "", queue["metadata"]["name"]
            view = self._engine.local_queue(namespace, name)
            if view is None or not self._wants_local(namespace, name):
                continue
            where, custom = (name, namespace), self._custom.local_queue(namespace, name)
            pending.set(view.active, (*where, "active"), custom)
            pending.set(view.pending - view.active, (*where, "inadmissible"), custom)
            reserving.set(view.reserving, where, custom)
            if not apart:
                admitted.set(view.admitted, where, custom)
            finished.set(counts.finished_local[namespace, name], where, custom)
            above = str(get(queue, "spec", "clusterQueue") or "")
            target = self._cluster.cluster_queues.get("", above)
            active = local_queue_activity(
                queue,
                None if target is None else cluster_queue_activity(self._engine, target["metadata"]["name"]),
            ).active
            for each in ("True", "False", "Unknown"):
                status.set(each == str(active), (*where, each), custom)
            for gauge_of, amounts in ((reservation, view.reservation), (usage, view.usage)):
                for amount in amounts:
                    gauge_of.set(float(amount.total), (*where, amount.flavor, amount.resource), custom)
            order = self._engine.fair_usage(namespace, name)
            if order is not None:
                fair.set(order, (*where, above), custom)
        for ((namespace, name), values), count in counts.admitted_local.items():
            if self._wants_local(namespace, name):
                custom = (*self._custom.local_queue(namespace, name), *values)
                admitted.set(count, (name, namespace), custom)
        for ((namespace, name), above, reason, cause), count in counts.unadmitted_local.items():
            if self._wants_local(namespace, name):
                custom = self._custom.local_queue(namespace, name)
                unadmitted.set(count, (name, namespace, above, reason, cause), custom)
        shown = [pending, reserving, admitted, finished, status, reservation, usage, fair]
        if self._gates["UnadmittedWorkloadsObservability"]:
            shown.append(unadmitted)
        yield from (each.family for each in shown)


class _Gauge:
    """One gauge as it is being filled."""

    def __init__(
        self, name: str, text: str, labels: tuple[str, ...], custom: tuple[str, ...], role: str
    ) -> None:
        self.family = Family("gauge", f"kueue_{name}", text, [*labels, "replica_role", *custom])
        self._role = role

    def set(self, value: float, labels: tuple[str, ...], custom: tuple[str, ...]) -> None:
        """A series of it."""
        self.family.add([*labels, self._role, *custom], float(value))


def _quotas(queue: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for group in get(queue, "spec", "resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for quota in flavor.get("resources") or ():
                yield str(flavor.get("name")), quota


def _amount(quantity: Any) -> float:
    return inf if quantity is None else float(parse(quantity))


def _share(thousandths: int) -> float:
    """As the reference has it: not a number where weight 0 meets borrowing."""
    return nan if thousandths >= MAX_INT64 else float(thousandths)
