"""What ClusterQueues, flavors and AdmissionChecks name, and which admission checks apply to a Workload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykueue.api.admission_checks import CheckRule, required_with, required_without
from pykueue.api.hybrid import flavors_in
from pykueue.api.objects import get

from . import conditions


def flavor_names(cluster_queue: Mapping[str, Any]) -> list[str]:
    """The flavors a ClusterQueue or Cohort names, in order, each once."""
    names = (
        str(flavor.get("name"))
        for group in get(cluster_queue, "spec", "resourceGroups") or ()
        for flavor in group.get("flavors") or ()
    )
    return list(dict.fromkeys(names))


def topology_name(flavor: Mapping[str, Any]) -> str:
    """The Topology a flavor names; empty where it names none."""
    return str(get(flavor, "spec", "topologyName") or "")


def check_rules(cluster_queue: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The admission checks of a ClusterQueue with the flavors each is for."""
    return get(cluster_queue, "spec", "admissionChecksStrategy", "admissionChecks") or []


def check_names(cluster_queue: Mapping[str, Any]) -> list[str]:
    """The admission checks a ClusterQueue names."""
    return list(dict.fromkeys(str(rule.get("name")) for rule in check_rules(cluster_queue)))


def is_check_of(check: Mapping[str, Any], controller: str) -> bool:
    """Whether an AdmissionCheck belongs to the controller of this name."""
    return bool(get(check, "spec", "controllerName") == controller)


def parameters_name(check: Mapping[str, Any]) -> str:
    """The object that an AdmissionCheck names as its parameters; empty where it names none."""
    return str(get(check, "spec", "parameters", "name") or "")


def required_checks(cluster_queue: Mapping[str, Any], workload: Mapping[str, Any]) -> frozenset[str]:
    """The checks that apply to a Workload (docs/reference/kueue-semantics.md 11.4).

    With a reservation: those for any of its flavors. Without one: those for all flavors of the queue.
    """
    if not check_rules(cluster_queue):
        return frozenset()
    assignments = get(workload, "status", "admission", "podSetAssignments")
    reserved = conditions.has_quota(workload) and assignments is not None
    if reserved:
        assigned = {flavor for each in assignments for flavor in flavors_in(each)}
        return checks_for(cluster_queue, assigned)
    return frozenset(required_without(_rules(cluster_queue), set(flavor_names(cluster_queue))))


def checks_for(cluster_queue: Mapping[str, Any], flavors: Iterable[str]) -> frozenset[str]:
    """The checks that apply when a Workload is assigned these flavors."""
    rules = _rules(cluster_queue)
    return frozenset(required_with(rules, flavors)) if rules else frozenset()


def _rules(cluster_queue: Mapping[str, Any]) -> list[CheckRule]:
    return [
        (str(rule.get("name")), frozenset(rule.get("onFlavors") or ())) for rule in check_rules(cluster_queue)
    ]
