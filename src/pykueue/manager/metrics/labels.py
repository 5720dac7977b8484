"""Labels of metrics beyond their own: custom ones that administrators take from objects, and where in the
tree of cohorts a ClusterQueue stands.

Custom labels are the gate CustomMetricLabels and `metrics.customLabels` (docs/reference/kueue-api.md 3 and
6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from pykueue.api.objects import annotations_of, get, labels_of
from pykueue.manager.cluster import Cluster

#: The value of a label whose object has one that is not told apart (docs/reference/kueue-api.md 2.5).
UNTRACKED_VALUE = "kueue.x-k8s.io/_UNTRACKED_VALUE_"

Source = Literal["ClusterQueue", "LocalQueue", "Cohort", "Workload"]

_Read = Callable[[Mapping[str, Any]], str]


class CustomLabels:
    """Names and values of the labels that are added, by the kind of object that they are taken from."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._names: dict[str, list[str]] = {}
        self._reads: dict[str, list[_Read]] = {}
        configuration = cluster.configuration
        if not configuration.gates["CustomMetricLabels"]:
            return
        for label in configuration.metrics.custom_labels:
            self._names.setdefault(label.source_kind, []).append(f"custom_{label.name}")
            read = _reader(
                label.source_annotation_key,
                label.source_label_key or label.name,
                frozenset(label.tracked_values),
            )
            self._reads.setdefault(label.source_kind, []).append(read)

    def __bool__(self) -> bool:
        return bool(self._names)

    def names(self, *sources: Source) -> tuple[str, ...]:
        """What the labels are called on metrics of these kinds."""
        return tuple(name for source in sources for name in self._names.get(source, ()))

    def cluster_queue(self, name: str) -> tuple[str, ...]:
        """Values for metrics of a ClusterQueue."""
        if "ClusterQueue" not in self._names:
            return ()
        return self._values("ClusterQueue", self._cluster.cluster_queues.get("", name))

    def local_queue(self, namespace: str, name: str) -> tuple[str, ...]:
        """Values for metrics of a LocalQueue."""
        if "LocalQueue" not in self._names:
            return ()
        return self._values("LocalQueue", self._cluster.local_queues.get(namespace, name))

    def cohort(self, name: str) -> tuple[str, ...]:
        """Values for metrics of a cohort."""
        return self._values("Cohort", self._cluster.cohorts.get("", name)) if "Cohort" in self._names else ()

    def workload(self, workload: Mapping[str, Any]) -> tuple[str, ...]:
        """Values for the few metrics that tell workloads apart."""
        return self._values("Workload", workload) if "Workload" in self._names else ()

    def _values(self, source: str, obj: Mapping[str, Any] | None) -> tuple[str, ...]:
        reads = self._reads.get(source, ())
        return tuple("" if obj is None else read(obj) for read in reads)


def _reader(annotation: str, label: str, tracked: frozenset[str]) -> _Read:
    def read(obj: Mapping[str, Any]) -> str:
        value = (annotations_of(obj).get(annotation) if annotation else labels_of(obj).get(label)) or ""
        # Only tracked values have series, which bounds their number whatever the objects say.
        return UNTRACKED_VALUE if tracked and value and value not in tracked else value

    return read


def cohorts_above(cluster: Cluster, cohort: str) -> Iterator[str]:
    """The cohort and those above it, nearest first; a cycle ends where it began."""
    seen: set[str] = set()
    while cohort and cohort not in seen:
        yield cohort
        seen.add(cohort)
        cohort = parent_of(cluster, cohort)


def parent_of(cluster: Cluster, cohort: str) -> str:
    """The cohort above a cohort; empty where there is none."""
    return str(get(cluster.cohorts.get("", cohort) or {}, "spec", "parentName") or "")


def root_of(cluster: Cluster, cohort: str) -> str:
    """The topmost cohort above a cohort, itself included; empty for the empty name."""
    *_, root = ("", *cohorts_above(cluster, cohort))
    return root
