"""Admission rules of the project's own kinds; what they say is in `api.defaults` and `api.validation`."""

from __future__ import annotations

from collections.abc import Iterable

from pykueue.api.validation import validate
from pykueue.jobs.base import Fault
from pykueue.jobs.names import RESOURCE_IN_USE
from pykueue.jobs.objects import Object, get, replaced
from pykueue.kube.resources import CLUSTER_QUEUES, COHORTS, RESOURCE_FLAVORS, WORKLOADS, Resource
from pykueue.manager.configuration import Configuration

from .review import Rules


class KindRules:
    """The rules of one of our kinds."""

    namespaced_selector = False

    def __init__(
        self, resource: Resource, configuration: Configuration, defaults: bool, subresources: tuple[str, ...]
    ) -> None:
        self.resource = resource
        self.defaults = defaults
        self.subresources = subresources
        self._gates = configuration.gates

    def default(self, obj: Object) -> Object:
        """Queues and flavors get the finalizer that keeps them while in use."""
        if self.resource == WORKLOADS:
            return obj if self._gates["PartialAdmission"] else _without_min_count(obj)
        finalizers = get(obj, "metadata", "finalizers") or []
        if RESOURCE_IN_USE in finalizers:
            return obj
        return replaced(obj, ("metadata", "finalizers"), [*finalizers, RESOURCE_IN_USE])

    def validate(self, obj: Object, old: Object | None) -> Iterable[Fault]:
        for error in validate(obj, old):
            yield Fault(error.path, error.message, error.reason)

    def warnings(self, obj: Object) -> Iterable[str]:
        return ()


def _without_min_count(workload: Object) -> Object:
    pod_sets = get(workload, "spec", "podSets") or []
    return replaced(
        workload,
        ("spec", "podSets"),
        [{key: value for key, value in pod_set.items() if key != "minCount"} for pod_set in pod_sets],
    )


def kind_rules(configuration: Configuration) -> list[Rules]:
    """Rules of every kind that has any beyond its schema (reference/kueue-api.md 1.0)."""
    return [
        KindRules(CLUSTER_QUEUES, configuration, defaults=True, subresources=()),
        KindRules(RESOURCE_FLAVORS, configuration, defaults=True, subresources=()),
        KindRules(COHORTS, configuration, defaults=False, subresources=()),
        KindRules(WORKLOADS, configuration, defaults=True, subresources=("status",)),
    ]
