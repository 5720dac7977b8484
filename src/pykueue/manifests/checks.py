"""What of a manifest an API server with the manager's webhooks would refuse."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from pykueue.api.backfill_policies import BACKFILL_POLICIES
from pykueue.api.budgets import BUDGET_LEDGERS, BUDGETS
from pykueue.api.crds import crds
from pykueue.api.jobkinds import DESCRIBED, LEADER_WORKER_SET
from pykueue.api.kueue import V1BETA2
from pykueue.api.kueue.common import GROUP
from pykueue.api.preemption_policies import PREEMPTION_POLICIES
from pykueue.api.reservations import RESERVATIONS
from pykueue.api.resources import JOB_SETS
from pykueue.api.similar import did_you_mean
from pykueue.api.validation import FieldError, validate
from pykueue.embedded.jobset.defaults import with_defaults
from pykueue.embedded.jobset.definition import definition as jobset_definition
from pykueue.embedded.jobset.validation import errors as jobset_errors
from pykueue.embedded.objects.errors import TYPE_INVALID
from pykueue.embedded.offline import Offline
from pykueue.embedded.operators.definitions import definitions as job_kind_definitions
from pykueue.jobs.kinds import BUILT_IN
from pykueue.jobs.workload import queue_name
from pykueue.manager.configuration import Configuration
from pykueue.manager.webhooks.kinds import kind_rules

from .jobs import Jobs

Manifest = dict[str, Any]

#: The group of every kind that is read.
GROUPS: Final[dict[str, str]] = {
    **dict.fromkeys(("LimitRange", "Namespace", "Node", "Pod"), ""),
    **dict.fromkeys(("Deployment", "StatefulSet"), "apps"),
    "Job": "batch",
    "JobSet": JOB_SETS.group,
    "PriorityClass": "scheduling.k8s.io",
    "RuntimeClass": "node.k8s.io",
    **dict.fromkeys(
        ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"), "resource.k8s.io"
    ),
    **dict.fromkeys(
        (
            "AdmissionCheck",
            "ClusterQueue",
            "Cohort",
            "LocalQueue",
            "ResourceFlavor",
            "Topology",
            "Workload",
            "WorkloadPriorityClass",
        ),
        GROUP,
    ),
    BACKFILL_POLICIES.kind: BACKFILL_POLICIES.group,
    RESERVATIONS.kind: RESERVATIONS.group,
    PREEMPTION_POLICIES.kind: PREEMPTION_POLICIES.group,
    BUDGETS.kind: BUDGETS.group,
    BUDGET_LEDGERS.kind: BUDGET_LEDGERS.group,
}
#: Groups of which every kind is known.
_CHECKED_GROUPS: Final = frozenset(GROUPS.values())
GROUPS.update((one.kind, one.group) for one in (*BUILT_IN.resources, LEADER_WORKER_SET.resource))
_SIMILAR_GROUP: Final = 0.8

#: What a server says where faults kept it from asking more; the faults are enough.
_INCOMPLETE: Final = "<nil>"

#: Rules of the API that leave no doubt what an object means: breaking one is a warning here, where nothing is
#: stored. (path, part of the text, what is made of it).
_TOLERATED: Final = (
    (
        re.compile(r"^spec$|\.(borrowing|lending)Limit$"),
        r"must be unset when",
        "it has no effect without a cohort",
    ),
    (
        re.compile(r"^(metadata\.name|spec\.(cohortName|cohort|parentName|clusterQueue|queueName))$"),
        r"must consist of|should match",
        "the name is taken as it is",
    ),
    (re.compile(r"\.coveredResources\[\d+\]$"), r"in one group only", "the first group counts"),
    (
        re.compile(r"^spec\.preemption(\.borrowWithinCohort\.policy)?$"),
        r"must be Never|not a valid combination",
        "borrowWithinCohort has no effect",
    ),
    (re.compile(r"^spec\.podSets$"), r"can use minCount", "all of them may shrink"),
)


class Problem(NamedTuple):
    """One thing wrong with an object."""

    text: str
    #: What is made of it where that leaves no doubt: then it is a warning. Empty for an error.
    taken_as: str = ""
    #: A value has the wrong JSON type: nothing can be made of the object.
    unreadable: bool = False

    def __str__(self) -> str:
        return f"{self.text} ({self.taken_as})" if self.taken_as else self.text


class Checks:
    """The schemas and rules of all kinds that are read, and of the group's other kinds."""

    def __init__(self, configuration: Configuration, jobs: Jobs) -> None:
        self._jobs = jobs
        self._offline = Offline(
            [*crds(), jobset_definition(), *job_kind_definitions((*DESCRIBED, LEADER_WORKER_SET))]
        )
        self._gates = configuration.gates
        self._rules = {rules.resource.kind: rules for rules in kind_rules(configuration)}

    def unknown_kind(self, api_version: str, kind: str) -> str:
        """Why there is no such kind; empty where there is, or where it belongs to others."""
        group = api_version.rpartition("/")[0]
        if group not in _CHECKED_GROUPS and GROUPS.get(kind) != group:
            wanted = GROUPS.get(kind)
            near = did_you_mean(group, [wanted], _SIMILAR_GROUP) if wanted else ""
            return f"group {group} of {kind} is not known{near}" if near else ""
        if self._offline.knows(api_version, kind):
            return ""
        if versions := self._offline.versions(group, kind):
            return f"{kind} does not exist in {api_version}; known versions: {', '.join(versions)}"
        return f"kind {kind} does not exist in {api_version}{did_you_mean(kind, self._offline.kinds(group))}"

    def unknown_fields(self, manifest: Manifest) -> list[Problem]:
        """Fields that the schema of the kind does not have."""
        return [
            Problem(f"{path}: unknown field{did_you_mean(path.rpartition('.')[2], known)}")
            for path, known in self._offline.unknown_fields(manifest)
        ]

    def refused_by_schema(self, manifest: Manifest) -> list[Problem]:
        """What an API server refuses before it asks webhooks."""
        causes = self._offline.causes(manifest)
        return [
            problem(cause.field, cause.message, unreadable=cause.reason == TYPE_INVALID)
            for cause in causes
            if cause.field != _INCOMPLETE
        ]

    def refused_by_webhooks(self, manifest: Manifest) -> list[Problem]:
        """What the admission webhooks refuse, and of other kinds than jobs what cannot be decoded."""
        version, kind = manifest["apiVersion"], manifest["kind"]
        errors: list[FieldError] = []
        if (version, kind) == (JOB_SETS.api_version, JOB_SETS.kind):
            errors += jobset_errors(with_defaults(manifest))
        if self._jobs.are_read(version, kind):
            return []
        if not self._jobs.knows(version, kind):
            errors += validate(manifest, gates=self._gates)
        elif queue_name(manifest):
            errors += self._jobs.errors(manifest)
        return [problem(error.path, error.message) for error in errors]

    def warnings(self, manifest: Manifest) -> Iterable[str]:
        """What the webhooks warn of in an object that they accept."""
        rules = self._rules.get(manifest["kind"]) if manifest["apiVersion"] == V1BETA2 else None
        return rules.warnings(manifest, None) if rules is not None else ()


def problem(path: str, message: str, unreadable: bool = False) -> Problem:
    """A broken rule, with what is made of it."""
    text = f"{path}: {message}" if path else message
    for where, words, taken_as in _TOLERATED:
        if where.search(path) and re.search(words, message):
            return Problem(text, taken_as)
    return Problem(text, unreadable=unreadable)
