"""Alerts for Prometheus and dashboards for Grafana, as files and as objects of their operators.

Every expression takes the largest value of the replicas: gauges are served by all of them, counters by the
leader.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

import yaml

from pykueue.api.objects import Object

from .base import labelled
from .options import Options

#: File of the alerts beside this module.
ALERTS: Final = "alerts.yaml"
#: Label by which Grafana's sidecar finds dashboards in ConfigMaps.
DASHBOARD_LABEL: Final = "grafana_dashboard"

#: Version of the dashboard format: Grafana 10 and newer.
_SCHEMA: Final = 39
_WIDTH: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


@cache
def alerts_text() -> str:
    """The alerts as a Prometheus rule file."""
    return resources.files(__package__).joinpath(ALERTS).read_text(encoding="utf-8")


def dashboards() -> Mapping[str, Object]:
    """The dashboards by name."""
    return {"pykueue-overview": _overview(), "pykueue-queue": _queue()}


def monitoring(options: Options) -> Iterable[Object]:
    """A PrometheusRule with the alerts, and a ConfigMap for each dashboard."""
    names = options.names
    if options.alerts:
        yield labelled(
            options,
            {
                "apiVersion": "monitoring.coreos.com/v1",
                "kind": "PrometheusRule",
                "metadata": {"name": f"{names.deployment}-alerts", "namespace": names.namespace},
                "spec": yaml.safe_load(alerts_text()),
            },
        )
    if options.dashboards:
        for name, dashboard in dashboards().items():
            yield labelled(
                options,
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {
                        "name": name,
                        "namespace": names.namespace,
                        "labels": {DASHBOARD_LABEL: "1"},
                    },
                    "data": {f"{name}.json": dashboard_text(dashboard)},
                },
            )


def dashboard_text(dashboard: Object) -> str:
    """A dashboard as a file that Grafana imports."""
    return json.dumps(dashboard, indent=1) + "\n"


# Dashboards


def _overview() -> Object:
    pending = 'max by (cluster_queue) (kueue_pending_workloads{status="%s"})'
    return _dashboard(
        "pykueue-overview",
        "pykueue: overview",
        [
            _stat("Pending, to be evaluated", f"sum({pending % 'active'})"),
            _stat("Pending, inadmissible", f"sum({pending % 'inadmissible'})"),
            _stat("Admitted", "sum(max by (cluster_queue) (kueue_admitted_active_workloads))"),
            _stat("Replicas that lead", "sum(leader_election_master_status)"),
            _series(
                "Pending Workloads",
                "max by (cluster_queue) (sum by (cluster_queue, replica_role) (kueue_pending_workloads))",
                "{{cluster_queue}}",
            ),
            _series(
                "Admitted Workloads",
                "max by (cluster_queue) (kueue_admitted_active_workloads)",
                "{{cluster_queue}}",
            ),
            _series(
                "Quota in use (metrics.enableClusterQueueResources)",
                "max by (cluster_queue, flavor, resource) (kueue_cluster_queue_resource_reservation)"
                " / (max by (cluster_queue, flavor, resource) (kueue_cluster_queue_nominal_quota) > 0)",
                "{{cluster_queue}} {{flavor}} {{resource}}",
                "percentunit",
            ),
            _series(
                "Quota in use by cohort",
                "max by (cohort, flavor, resource) (kueue_cohort_subtree_resource_reservations)"
                " / (max by (cohort, flavor, resource) (kueue_cohort_subtree_quota) > 0)",
                "{{cohort}} {{flavor}} {{resource}}",
                "percentunit",
            ),
            _series(
                "Median wait for admission",
                "histogram_quantile(0.5, sum by (cluster_queue, le)"
                " (rate(kueue_admission_wait_time_seconds_bucket[$__rate_interval])))",
                "{{cluster_queue}}",
                "s",
            ),
            _series(
                "Admissions per minute",
                "60 * sum by (cluster_queue) (rate(kueue_admitted_workloads_total[$__rate_interval]))",
                "{{cluster_queue}}",
            ),
            _series(
                "Evictions per minute",
                "60 * sum by (cluster_queue, reason) (rate(kueue_evicted_workloads_total[$__rate_interval]))",
                "{{cluster_queue}} {{reason}}",
            ),
            _series(
                "Duration of scheduling cycles, 95 %",
                "histogram_quantile(0.95, sum by (le)"
                " (rate(kueue_admission_attempt_duration_seconds_bucket[$__rate_interval])))",
                "cycle",
                "s",
            ),
        ],
    )


def _queue() -> Object:
    queue = 'cluster_queue="$cluster_queue"'
    return _dashboard(
        "pykueue-queue",
        "pykueue: one ClusterQueue",
        [
            _stat("Pending", f"sum(max by (status) (kueue_pending_workloads{{{queue}}}))"),
            _stat("With quota", f"max(kueue_reserving_active_workloads{{{queue}}})"),
            _stat("Admitted", f"max(kueue_admitted_active_workloads{{{queue}}})"),
            _stat("Weighted share", f"max(kueue_cluster_queue_weighted_share{{{queue}}})"),
            _series(
                "Reserved, by flavor and resource",
                f"max by (flavor, resource) (kueue_cluster_queue_resource_reservation{{{queue}}})",
                "{{flavor}} {{resource}}",
            ),
            _series(
                "Nominal quota",
                f"max by (flavor, resource) (kueue_cluster_queue_nominal_quota{{{queue}}})",
                "{{flavor}} {{resource}}",
            ),
            _series(
                "Requested by pending Workloads",
                f"max by (resource) (kueue_cluster_queue_resource_pending{{{queue}}})",
                "{{resource}}",
            ),
            _series(
                "Why Workloads are not admitted",
                f"max by (underlying_cause) (kueue_unadmitted_workloads{{{queue}}})",
                "{{underlying_cause}}",
            ),
            _series(
                "Wait for admission: median and 95 %",
                "histogram_quantile(0.5, sum by (le)"
                f" (rate(kueue_admission_wait_time_seconds_bucket{{{queue}}}[$__rate_interval])))",
                "median",
                "s",
                "histogram_quantile(0.95, sum by (le)"
                f" (rate(kueue_admission_wait_time_seconds_bucket{{{queue}}}[$__rate_interval])))",
            ),
            _series(
                "Evictions per minute, by reason",
                f"60 * sum by (reason) (rate(kueue_evicted_workloads_total{{{queue}}}[$__rate_interval]))",
                "{{reason}}",
            ),
            _series(
                "Preemptions that it makes per minute",
                "60 * sum by (reason) (rate(kueue_preempted_workloads_total"
                '{preempting_cluster_queue="$cluster_queue"}[$__rate_interval]))',
                "{{reason}}",
            ),
            _series(
                "Finished per minute",
                f"60 * sum(rate(kueue_finished_workloads_total{{{queue}}}[$__rate_interval]))",
                "finished",
            ),
        ],
        {
            "name": "cluster_queue",
            "label": "ClusterQueue",
            "type": "query",
            "datasource": _SOURCE,
            "query": "label_values(kueue_cluster_queue_status, cluster_queue)",
            "refresh": 2,
            "sort": 1,
        },
    )


def _dashboard(uid: str, title: str, panels: list[Object], *variables: Object) -> Object:
    """Panels from left to right, in rows."""
    x = y = 0
    placed = []
    for number, panel in enumerate(panels, 1):
        width, height = (6, 4) if panel["type"] == "stat" else (12, 8)
        placed.append({"id": number, **panel, "gridPos": {"x": x, "y": y, "w": width, "h": height}})
        x += width
        if x >= _WIDTH:
            x, y = 0, y + height
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return {
        "uid": uid,
        "title": title,
        "tags": ["pykueue", "kueue"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source, *variables]},
        "panels": placed,
    }


def _target(expression: str, legend: str, letter: str) -> Object:
    return {"refId": letter, "datasource": _SOURCE, "expr": expression, "legendFormat": legend}


def _stat(title: str, expression: str) -> Object:
    return {
        "type": "stat",
        "title": title,
        "datasource": _SOURCE,
        "targets": [_target(expression, "", "A")],
        "fieldConfig": {"defaults": {"noValue": "0"}, "overrides": []},
    }


def _series(title: str, expression: str, legend: str, unit: str = "short", second: str = "") -> Object:
    targets = [_target(expression, legend, "A")]
    if second:
        targets.append(_target(second, "95 %", "B"))
    defaults: dict[str, Any] = {"unit": unit, "min": 0}
    return {
        "type": "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull"]}},
    }
