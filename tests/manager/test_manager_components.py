"""A manager is a list of components: the rights that follow from it, and what it does with no others."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pykueue.jobs.kinds import BUILT_IN, JobKinds
from pykueue.manager.builtin_components import components
from pykueue.manager.component import rules
from pykueue.manager.configuration import Configuration
from pykueue.manager.install.roles import component_rules
from pykueue.manager.rights import Rule

READ = "get list watch"
FRAMEWORKS = ("batch/job", "jobset.x-k8s.io/jobset", "pod", "deployment", "statefulset")
#: What the role of a manager of these job kinds grants anywhere in a cluster, by resource.
GRANTED = {
    "events": "create patch",
    "limitranges": READ,
    "namespaces": READ,
    "pods": f"{READ} patch delete",
    "pods/status": "patch",
    "pods/finalizers": "update",
    "statefulsets.apps": READ,
    "statefulsets/finalizers.apps": "update",
    "jobs.batch": f"{READ} patch delete",
    "jobs/status.batch": "patch",
    "jobs/finalizers.batch": "update",
    "jobsets.jobset.x-k8s.io": f"{READ} patch delete",
    "jobsets/finalizers.jobset.x-k8s.io": "update",
    "runtimeclasses.node.k8s.io": READ,
    "priorityclasses.scheduling.k8s.io": READ,
    "admissionchecks.kueue.x-k8s.io": f"{READ} patch",
    "admissionchecks/status.kueue.x-k8s.io": "patch",
    "clusterqueues.kueue.x-k8s.io": f"{READ} patch",
    "clusterqueues/status.kueue.x-k8s.io": "patch",
    "cohorts.kueue.x-k8s.io": READ,
    "cohorts/status.kueue.x-k8s.io": "patch",
    "localqueues.kueue.x-k8s.io": READ,
    "localqueues/status.kueue.x-k8s.io": "patch",
    "resourceflavors.kueue.x-k8s.io": f"{READ} patch",
    "topologies.kueue.x-k8s.io": f"{READ} patch",
    "workloadpriorityclasses.kueue.x-k8s.io": READ,
    "workloads.kueue.x-k8s.io": f"{READ} create patch delete",
    "workloads/status.kueue.x-k8s.io": "patch",
}


def rights(found: Iterable[Rule]) -> set[tuple[str, str]]:
    """Resource and verb of every right."""
    return {
        (f"{resource}.{rule.group}" if rule.group else resource, verb)
        for rule in found
        for resource in rule.resources
        for verb in rule.verbs
    }


def enabled(*frameworks: str) -> JobKinds:
    return BUILT_IN.enabled(frameworks)


def test_role_of_the_manager_grants_this_and_nothing_else() -> None:
    granted = {(resource, verb) for resource, verbs in GRANTED.items() for verb in verbs.split()}
    assert rights(component_rules(Configuration(), enabled(*FRAMEWORKS))) == granted


@pytest.mark.parametrize(
    "frameworks",
    [(), ("batch/job",), ("pod",), ("deployment",), ("statefulset", "batch/job"), BUILT_IN.frameworks],
)
def test_rights_by_job_kind_add_up_to_those_of_the_components(frameworks: tuple[str, ...]) -> None:
    kinds = enabled(*frameworks)
    assert rights(component_rules(Configuration(), kinds)) == rights(
        rules(components(Configuration(), kinds))
    )


def test_enabling_a_job_kind_adds_rules_and_changes_none() -> None:
    before: set[Rule] = set()
    for count in range(len(BUILT_IN.frameworks) + 1):
        after = set(component_rules(Configuration(), enabled(*BUILT_IN.frameworks[:count])))
        assert before <= after
        before = after
