"""Job kinds as data: the description language, and the kinds of other projects as values of it.

One module per family of kinds. What no description can express is code in `pykueue.jobs`.
"""

from __future__ import annotations

from .appwrapper import APP_WRAPPER
from .description import (
    ALL,
    AddedContainer,
    AllOf,
    Amount,
    ConditionIs,
    Counter,
    CountIn,
    FieldIn,
    JobKind,
    Not,
    Path,
    Place,
    PodSetPaths,
    Predicate,
    Rule,
    Sign,
    Slot,
    field_path,
    filled,
    has_pods_named_by_status,
    is_exempt,
    pod_count,
    pod_selector,
    pod_set_slots,
    shows,
    true_condition,
    value_at,
    values_at,
    with_value,
)
from .kubeflow import KUBEFLOW_KINDS
from .leaderworkerset import LEADER_WORKER_SET
from .ray import RAY_KINDS
from .spark import SPARK_APPLICATION
from .trainjob import TRAIN_JOB

#: Every kind of another project that is started and stopped by its own fields, in the order of
#: docs/reference/kueue-integrations.md 9.1.
DESCRIBED: tuple[JobKind, ...] = (*KUBEFLOW_KINDS, TRAIN_JOB, *RAY_KINDS, APP_WRAPPER, SPARK_APPLICATION)

__all__ = [
    "ALL",
    "DESCRIBED",
    "LEADER_WORKER_SET",
    "AddedContainer",
    "AllOf",
    "Amount",
    "ConditionIs",
    "CountIn",
    "Counter",
    "FieldIn",
    "JobKind",
    "Not",
    "Path",
    "Place",
    "PodSetPaths",
    "Predicate",
    "Rule",
    "Sign",
    "Slot",
    "field_path",
    "filled",
    "has_pods_named_by_status",
    "is_exempt",
    "pod_count",
    "pod_selector",
    "pod_set_slots",
    "shows",
    "true_condition",
    "value_at",
    "values_at",
    "with_value",
]
