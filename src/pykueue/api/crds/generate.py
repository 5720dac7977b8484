"""CustomResourceDefinitions from the types. Names, columns and versions: docs/reference/kueue-api.md 1.0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pykueue.api import kueue
from pykueue.api.backfill_policies import BackfillPolicy
from pykueue.api.budgets import Budget, BudgetLedger
from pykueue.api.crds.schema import Schema, object_schema
from pykueue.api.crds.v1beta1 import v1beta1_schema
from pykueue.api.model import Model
from pykueue.api.preemption_policies import PreemptionPolicy
from pykueue.api.reservations import Reservation
from pykueue.api.userkinds import manifest

_DEPRECATION: Final = "This version is deprecated. Use v1beta2 instead."

#: Lets an API server accept the definition, and read what it holds, where objects were stored so.
_UNSERVED_V1ALPHA1: Final[Mapping[str, Any]] = {
    "name": "v1alpha1",
    "served": False,
    "storage": False,
    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
}


@dataclass(frozen=True)
class _Column:
    name: str
    path: str
    type: str = "string"
    description: str = ""
    priority: int = 0


@dataclass(frozen=True)
class _Kind:
    type: type[Model]
    plural: str
    short_names: tuple[str, ...]
    namespaced: bool = False
    columns: tuple[_Column, ...] = ()
    columns_v1beta1: tuple[_Column, ...] | None = None
    selectable: tuple[str, ...] = ()
    deprecated: bool = True
    #: Whether Kueue 0.11 stored it as v1alpha1, having nothing newer.
    kept_as_v1alpha1: bool = False
    group: str = kueue.GROUP
    #: The only version of a kind of our own; empty: those of Kueue's kinds.
    version: str = ""
    status: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", "status" in self.type.__struct_fields__)


def _of_condition(type: str) -> str:
    return f'.status.conditions[?(@.type=="{type}")].status'


_AGE = _Column("Age", ".metadata.creationTimestamp", "date", "Time since this object was created")
_STRATEGY = _Column(
    "Strategy", ".spec.queueingStrategy", "string", "Order in which workloads are admitted", 1
)
_PENDING = _Column("Pending Workloads", ".status.pendingWorkloads", "integer", "Workloads waiting for quota")


def _admitted(priority: int) -> _Column:
    return _Column(
        "Admitted Workloads",
        ".status.admittedWorkloads",
        "integer",
        "Workloads admitted and not finished",
        priority,
    )


def _cluster_queue_columns(cohort_field: str) -> tuple[_Column, ...]:
    cohort = _Column("Cohort", f".spec.{cohort_field}", "string", "Cohort this ClusterQueue belongs to")
    return (cohort, _STRATEGY, _PENDING, _admitted(1))


_KINDS: Final = (
    _Kind(kueue.AdmissionCheck, "admissionchecks", ("ac",)),
    _Kind(
        kueue.ClusterQueue,
        "clusterqueues",
        ("cq",),
        columns=_cluster_queue_columns("cohortName"),
        columns_v1beta1=_cluster_queue_columns("cohort"),
    ),
    _Kind(kueue.Cohort, "cohorts", ("co",), kept_as_v1alpha1=True),
    _Kind(
        kueue.LocalQueue,
        "localqueues",
        ("queue", "queues", "lq"),
        namespaced=True,
        columns=(
            _Column("ClusterQueue", ".spec.clusterQueue", "string", "ClusterQueue that admits the workloads"),
            _PENDING,
            _admitted(0),
        ),
    ),
    _Kind(
        kueue.MultiKueueCluster,
        "multikueueclusters",
        ("mkc",),
        columns=(_Column("Connected", _of_condition("Active"), "string", "Whether it is connected"), _AGE),
    ),
    _Kind(kueue.MultiKueueConfig, "multikueueconfigs", ("mkconf",), deprecated=False),
    _Kind(kueue.ProvisioningRequestConfig, "provisioningrequestconfigs", ("prc",)),
    _Kind(kueue.ResourceFlavor, "resourceflavors", ("flavor", "flavors", "rf")),
    _Kind(kueue.Topology, "topologies", ("topo",), kept_as_v1alpha1=True),
    _Kind(
        kueue.WorkloadPriorityClass,
        "workloadpriorityclasses",
        ("wpc",),
        columns=(_Column("Value", ".value", "integer", "The priority"),),
    ),
    _Kind(
        kueue.Workload,
        "workloads",
        ("kwl", "kueueworkload", "kueueworkloads"),
        namespaced=True,
        columns=(
            _Column("Queue", ".spec.queueName", "string", "LocalQueue the workload waits in"),
            _Column(
                "Reserved in", ".status.admission.clusterQueue", "string", "ClusterQueue that gave the quota"
            ),
            _Column("Admitted", _of_condition("Admitted"), "string", "Whether it is admitted"),
            _Column("Finished", _of_condition("Finished"), "string", "Whether it is finished"),
            _AGE,
        ),
        selectable=(".status.admission.clusterQueue",),
    ),
    _Kind(
        manifest.JobKind,
        "jobkinds",
        (),
        columns=(
            _Column("Kind", ".spec.kind", "string", "Kind of the jobs"),
            _Column("Version", ".spec.version", "string", "Version in which jobs are read"),
            _Column("Active", _of_condition("Active"), "string", "Whether jobs of the kind are queued"),
            _Column("Reason", '.status.conditions[?(@.type=="Active")].reason', "string", "Why, or why not"),
            _AGE,
        ),
        group=manifest.GROUP,
        version=manifest.VERSION,
    ),
    _Kind(
        Reservation,
        "reservations",
        ("resv",),
        columns=(
            _Column("ClusterQueue", ".spec.clusterQueue", "string", "ClusterQueue it is for"),
            _Column("Cohort", ".spec.cohort", "string", "Cohort it is for"),
            _Column("Purpose", ".spec.purpose", "string", "Capacity or Maintenance"),
            _Column("Reserved", ".status.printed", "string", "What is reserved, by flavor"),
            _Column("State", ".status.state", "string", "Upcoming, Open, Over or Invalid"),
            _Column("Start", ".status.windowStart", "string", "When the current or next window begins"),
            _Column("End", ".status.windowEnd", "string", "When it ends"),
            _Column("Next", ".status.nextStart", "string", "When the window after it begins", 1),
            _Column("Active", _of_condition("Active"), "string", "Whether it is in force"),
            _AGE,
        ),
        group=manifest.GROUP,
        version=manifest.VERSION,
    ),
    _Kind(
        BackfillPolicy,
        "backfillpolicies",
        ("bfp",),
        columns=(
            _Column("Strategy", ".spec.strategy", "string", "Which workloads have reservations"),
            _Column("Cohort", ".spec.cohort", "string", "Cohort it applies to"),
            _Column("ClusterQueues", ".spec.clusterQueues", "string", "ClusterQueues it applies to"),
            _Column("Active", _of_condition("Active"), "string", "Whether the policy is in force"),
            _AGE,
        ),
        group=manifest.GROUP,
        version=manifest.VERSION,
    ),
    _Kind(
        PreemptionPolicy,
        "preemptionpolicies",
        ("pp",),
        columns=(
            _Column("Cohort", ".spec.cohort", "string", "Cohort it applies to"),
            _Column("ClusterQueues", ".spec.clusterQueues", "string", "ClusterQueues it applies to"),
            _Column("Active", _of_condition("Active"), "string", "Whether the policy is in force"),
            _AGE,
        ),
        group=manifest.GROUP,
        version=manifest.VERSION,
    ),
    _Kind(
        Budget,
        "budgets",
        ("bud",),
        columns=(
            _Column("Value", ".status.ledgers[0].value", "string", "Value of the label with the highest use"),
            _Column("Resource", ".status.printed.resource", "string", "The resource that is used most"),
            _Column("Used", ".status.printed.used", "string", "Hours of it that were used"),
            _Column("Reserved", ".status.printed.reserved", "string", "Hours that workloads may still use"),
            _Column("Left", ".status.printed.left", "string", "Hours neither used nor reserved"),
            _Column("Limit", ".status.printed.limit", "string", "Hours that are allowed"),
            _Column("Percent", ".status.printed.percent", "string", "Used percentage"),
            _Column("Action", ".status.ledgers[0].action", "string", "The strictest action in force"),
            _Column("Used up", ".status.ledgers[0].forecast.p50", "string", "When it is used up", 1),
            _Column("Window ends", ".status.windowEnd", "string", "When the window ends", 1),
            _Column("Ledgers", ".status.ledgerCount", "integer", "Number of ledgers", 1),
            _Column("Active", _of_condition("Active"), "string", "Whether the budget is in force"),
            _AGE,
        ),
        group=manifest.GROUP,
        version=manifest.VERSION,
    ),
    _Kind(
        BudgetLedger,
        "budgetledgers",
        (),
        columns=(
            _Column("Budget", ".spec.budget", "string", "Its Budget"),
            _Column("Value", ".spec.value", "string", "Value of the label"),
            _Column("Action", ".spec.action", "string", "The strictest action in force"),
            _AGE,
        ),
        group=manifest.GROUP,
        version=manifest.VERSION,
    ),
)


def generate() -> list[Schema]:
    """All definitions, ordered by name."""
    return sorted((_definition(kind) for kind in _KINDS), key=lambda crd: str(crd["metadata"]["name"]))


def _definition(kind: _Kind) -> Schema:
    name = kind.type.__name__
    schema = object_schema(kind.type)
    older = kind.columns if kind.columns_v1beta1 is None else kind.columns_v1beta1
    versions = (
        [_version(kind, kind.version, schema, kind.columns)]
        if kind.version
        else [
            *([_UNSERVED_V1ALPHA1] if kind.kept_as_v1alpha1 else ()),
            _version(kind, "v1beta1", v1beta1_schema(name, schema), older),
            _version(kind, "v1beta2", schema, kind.columns),
        ]
    )
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": {
                "kind": name,
                "listKind": f"{name}List",
                "plural": kind.plural,
                "singular": name.lower(),
                "shortNames": list(kind.short_names),
            },
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": versions,
        },
    }


def _version(kind: _Kind, version: str, schema: Schema, columns: tuple[_Column, ...]) -> Schema:
    current = version in ("v1beta2", kind.version)
    result: dict[str, Any] = {
        "name": version,
        "served": True,
        "storage": current,
        "schema": {"openAPIV3Schema": schema},
    }
    if kind.deprecated and not current:
        result |= {"deprecated": True, "deprecationWarning": _DEPRECATION}
    if columns:
        result["additionalPrinterColumns"] = [_column(column) for column in columns]
    if kind.status:
        result["subresources"] = {"status": {}}
    if kind.selectable and current:
        result["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    return result


def _column(column: _Column) -> Schema:
    result: dict[str, Any] = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
        "description": column.description,
    }
    if column.priority:
        result["priority"] = column.priority
    return result
