"""Runs whose jobs compete for each flavor by a variant of their Workload (concurrent admission).

Troubles, queues and what users do are those of every run; what must hold of variants is added.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pykueue.api import conditions
from pykueue.api.objects import Object, key_of
from pykueue.api.resources import WORKLOADS, Resource
from pykueue.api.variants import GATE, has_variants, parent_reference
from pykueue.manager.variants.family import flavor_of

from .invariants import Invariants, admission_of
from .quota import holds_quota
from .run import Report, Run, play_run
from .scenario import FLAVORS, Scenario, scenario
from .writers import writer


def variant_scenario(rng: random.Random) -> Scenario:
    """A scenario with two flavors in each ClusterQueue, most of which have concurrent admission."""
    plan = scenario(rng)
    objects = [_concurrent(rng, obj) if obj["kind"] == "ClusterQueue" else obj for obj in plan.objects]
    return replace(
        plan, configuration=f"{plan.configuration}featureGates: {{{GATE}: true}}\n", objects=objects
    )


def _concurrent(rng: random.Random, queue: Object) -> Object:
    (group,) = queue["spec"]["resourceGroups"]
    first = group["flavors"][0]
    flavors = [{**first, "name": name} for name in FLAVORS]
    spec = {**queue["spec"], "resourceGroups": [{**group, "flavors": flavors}]}
    if rng.random() < 0.8:
        mode = rng.choice(("TryPreferredFlavors", "TryPreferredFlavors", "RetainFirstAdmission"))
        migration: Object = {"mode": mode}
        if mode == "TryPreferredFlavors" and rng.random() < 0.3:
            migration["constraints"] = {"lastAcceptableFlavorName": rng.choice(FLAVORS)}
        spec |= {
            "queueingStrategy": "BestEffortFIFO",
            "concurrentAdmissionPolicy": {"migration": migration},
        }
    return {**queue, "spec": spec}


class VariantInvariants(Invariants):
    """Quota is counted with variants only; a job runs with the admission of one that holds quota."""

    def objects(self, resource: Resource) -> list[Object]:
        """Parents are left out: their variants compete, and hold quota, in their place."""
        found = super().objects(resource)
        return [one for one in found if not has_variants(one)] if resource is WORKLOADS else found

    def workloads_of(self, job: Mapping[str, Any]) -> Iterable[Object]:
        for workload in super().objects(WORKLOADS):
            if self.job_of(workload) == job and parent_reference(workload) is None:
                yield workload

    def job_of(self, workload: Mapping[str, Any]) -> Object | None:
        parent = self._parent_of(workload)
        return super().job_of(workload if parent is None else parent)

    def _parent_of(self, variant: Mapping[str, Any]) -> Object | None:
        """The parent of a variant; None for other Workloads, and where it is gone."""
        reference = parent_reference(variant)
        if reference is None:
            return None
        parent = self.find(WORKLOADS, key_of(variant)[0], str(reference["name"]))
        return parent if parent is not None and parent["metadata"]["uid"] == reference["uid"] else None

    def _family(self, parent: Object) -> list[Object]:
        uid = parent["metadata"]["uid"]
        return [one for one in self.objects(WORKLOADS) if (parent_reference(one) or {}).get("uid") == uid]

    def _holders_of(self, job: Mapping[str, Any]) -> list[Object]:
        return list(self.workloads_of(job))

    def _workload(self, before: Object | None, after: Object | None) -> None:
        workload = after or before
        assert workload is not None
        if has_variants(workload):
            self._parent(before, after)
        else:
            super()._workload(before, after)
            if after is not None:
                self._beside_others(after)

    def _parent(self, before: Object | None, after: Object | None) -> None:
        """A parent has the admission of a variant that holds quota, until its job has stopped."""
        if before is not None and after is not None:
            for what in self._causes.missing(before, after) if writer() == "manager" else ():
                self._violate(after, what)
            self._conditions(before, after)
        if after is not None:
            self._consistent(after)
        had = before is not None and holds_quota(before)
        has = after is not None and holds_quota(after)
        if after is not None and has:
            held = [one for one in self._family(after) if holds_quota(one)]
            if not had and admission_of(after) not in map(admission_of, held):
                self._violate(after, "has an admission that none of its variants holds")
        if before is not None and had and not has and not (after and conditions.is_finished(after)):
            self._quota_returned(before)

    def _beside_others(self, variant: Object) -> None:
        """The variants of a parent have different flavors."""
        parent = self._parent_of(variant)
        others = [] if parent is None else self._family(parent)
        for other in others:
            if key_of(other) != key_of(variant) and flavor_of(other) == flavor_of(variant):
                self._violate(variant, f"has the flavor of {other['metadata']['name']}")

    def _quota_returned(self, workload: Object) -> None:
        parent = self._parent_of(workload)
        if parent is not None and not conditions.is_finished(parent):
            if holds_quota(parent) and admission_of(parent) == admission_of(workload):
                self._violate(workload, "gave its quota back while its parent is admitted with it")
        elif parent_reference(workload) is None:
            super()._quota_returned(workload)

    def _reserved(self, workload: Object, before: Object | None) -> None:
        """Variants of a parent may reserve quota at the same time; their order is not that of jobs."""
        if parent_reference(workload) is None:
            super()._reserved(workload, before)
        elif not conditions.is_active(workload) and not self._is_restored(workload):
            self._violate(workload, "got quota although spec.active is false")

    def unreacted(self) -> list[str]:
        return [what for what in super().unreacted() if "job " in what or "Queue " in what]


class VariantRun(Run):
    """A run with variants."""

    invariants_class = VariantInvariants


def play_variants(seed: int) -> Report:
    """Play the run of this seed, in virtual time."""
    rng = random.Random(seed)
    plan = variant_scenario(rng)
    report = play_run(VariantRun, seed, plan, rng, rng.random() < 0.3)
    return replace(report, options=" --variants")
