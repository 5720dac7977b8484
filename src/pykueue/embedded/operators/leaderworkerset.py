"""LeaderWorkerSets: groups of a leader and its workers (docs/reference/operators.md 9).

The pods are made as the StatefulSets of the real controller make them, with the same names, labels and
variables; leaders belong to the set, and workers to their leader.
"""

from __future__ import annotations

import hashlib

from pykueue.api.jobkinds import pod_set_slots, value_at
from pykueue.api.jobkinds.leaderworkerset import (
    GROUP_INDEX_LABEL,
    LEADER_WORKER_SET,
    SET_LABEL,
    SIZE,
    WORKER_INDEX_LABEL,
)
from pykueue.api.objects import Object, controller_reference, is_deleting, labels_of
from pykueue.api.pods import is_ready, is_terminal, phase
from pykueue.api.resources import PODS, SERVICES
from pykueue.embedded.operators.pods import headless_service, index_of, restarts, templated, with_variables
from pykueue.embedded.operators.reconciliation import Operator, Pass, hash_of

_PREFIX = "leaderworkerset.sigs.k8s.io/"
_KEY_LABEL, _REVISION_LABEL = f"{_PREFIX}group-key", f"{_PREFIX}template-revision-hash"
_TEMPLATES = ("spec", "leaderWorkerTemplate")


class LeaderWorkerOperator(Operator):
    """Carries out LeaderWorkerSets."""

    kind = LEADER_WORKER_SET
    owns = (PODS, SERVICES)
    label = SET_LABEL

    def reconcile(self, work: Pass) -> None:
        """One pass: the groups as the set says, one group at a time when its templates changed."""
        _Sync(work).run()

    def report_failure(self, work: Pass, error: Exception) -> None:
        """Report the pods that there are: the status rests on nothing else."""
        self.reconcile(work)


class _Group:
    """The pods of one group by their index: 0 is the leader's."""

    def __init__(self, index: int, pods: list[Object]) -> None:
        self.index = index
        self.pods = {index_of(pod, WORKER_INDEX_LABEL): pod for pod in pods}

    @property
    def leader(self) -> Object | None:
        return self.pods.get(0)

    def is_ready(self, size: int) -> bool:
        wanted = [self.pods.get(index) for index in range(size)]
        return all(pod is not None and phase(pod) == "Running" and is_ready(pod) for pod in wanted)

    def is_going(self) -> bool:
        return any(is_deleting(pod) for pod in self.pods.values())

    def revision(self) -> str:
        return labels_of(self.leader or {}).get(_REVISION_LABEL, "")


class _Sync:
    """One pass over a set."""

    def __init__(self, work: Pass) -> None:
        self._work = work
        template = value_at(work.job, _TEMPLATES) or {}
        relevant = {"template": template, "network": work.spec.get("networkConfig")}
        self._revision = hash_of(relevant)[:10]
        size, replicas = value_at(work.job, SIZE), work.spec.get("replicas")
        self._size = 1 if size is None else int(size)
        self._replicas = 1 if replicas is None else int(replicas)
        self._policy = str(template.get("restartPolicy") or "RecreateGroupOnPodRestart")
        by_group: dict[int, list[Object]] = {}
        for pod in work.labelled(PODS, SET_LABEL):
            by_group.setdefault(index_of(pod, GROUP_INDEX_LABEL) or 0, []).append(pod)
        self._groups = {index: _Group(index, pods) for index, pods in by_group.items()}

    def run(self) -> None:
        work = self._work
        network = value_at(work.spec, ("networkConfig", "subdomainPolicy")) or "Shared"
        for name in (
            [work.name] if network == "Shared" else [f"{work.name}-{n}" for n in range(self._replicas)]
        ):
            selector = {SET_LABEL: work.name}
            work.ensure(SERVICES, headless_service(name, selector, publishNotReadyAddresses=True))
        for index in range(self._replicas):
            self._reconcile_group(self._groups.get(index) or _Group(index, []))
        for index, group in self._groups.items():
            if index >= self._replicas:
                work.delete_all(PODS, group.pods.values())
        self._update()
        self._report()

    def _reconcile_group(self, group: _Group) -> None:
        work = self._work
        if self._must_recreate(group):
            if work.delete_all(PODS, group.pods.values()):
                work.event("RecreateGroup", f"Group {group.index} is recreated because a pod restarted")
            return
        going = self._policy != "None" and group.is_going()
        if going:
            return  # the group comes back as a whole
        for pod in group.pods.values():
            if is_terminal(pod):
                work.delete(PODS, pod)
        leader = group.leader
        if leader is None:
            if not group.pods:
                work.create(PODS, self._pod(group.index, 0, None))
            return
        needs_ready = work.spec.get("startupPolicy") == "LeaderReady"
        if needs_ready and not (phase(leader) == "Running" and is_ready(leader)):
            return
        for index in range(1, self._size):
            if index not in group.pods:
                work.create(PODS, self._pod(group.index, index, leader))

    def _must_recreate(self, group: _Group) -> bool:
        """Whether a pod of a whole group has restarted or is gone."""
        if self._policy == "None" or not group.pods:
            return False
        restarted = restarts(pod for pod in group.pods.values() if phase(pod) in ("Pending", "Running"))
        ended = any(is_terminal(pod) for pod in group.pods.values())
        return bool(restarted) or ended or group.is_going() or (group.leader is None)

    def _update(self) -> None:
        """Recreate the highest group of an older revision, once the others are ready."""
        work = self._work
        partition = value_at(work.spec, ("rolloutStrategy", "rollingUpdateConfiguration", "partition")) or 0
        for index in range(self._replicas - 1, int(partition) - 1, -1):
            group = self._groups.get(index)
            if group is None or group.leader is None:
                return
            if group.revision() != self._revision:
                work.delete_all(PODS, group.pods.values())
                return
            if not group.is_ready(self._size):
                return

    # Pods

    def _pod(self, group: int, index: int, leader: Object | None) -> Object:
        work = self._work
        slots = list(pod_set_slots(work.job, LEADER_WORKER_SET))
        slot = slots[0] if index == 0 else slots[-1]
        leader_name = f"{work.name}-{group}"
        name = leader_name if index == 0 else f"{leader_name}-{index}"
        key = hashlib.sha1(f"{work.namespace}/{leader_name}".encode(), usedforsecurity=False).hexdigest()
        labels = {
            SET_LABEL: work.name,
            GROUP_INDEX_LABEL: str(group),
            WORKER_INDEX_LABEL: str(index),
            _KEY_LABEL: key,
            _REVISION_LABEL: self._revision,
        }
        pod = templated(value_at(work.job, slot.template) or {}, name, labels)
        metadata: Object = pod["metadata"]
        own = {f"{_PREFIX}size": str(self._size)}
        if index:
            own[f"{_PREFIX}leader-name"] = leader_name
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **own}
        if leader is not None:
            metadata["ownerReferences"] = [controller_reference(leader, "v1", "Pod")]
        shared = (value_at(work.spec, ("networkConfig", "subdomainPolicy")) or "Shared") == "Shared"
        subdomain = work.name if shared else leader_name
        pod["spec"] |= {"hostname": name, "subdomain": subdomain}
        variables = {
            "LWS_LEADER_ADDRESS": f"{leader_name}.{subdomain}.{work.namespace}",
            "LWS_GROUP_SIZE": str(self._size),
            "LWS_WORKER_INDEX": str(index),
        }
        return with_variables(pod, variables)

    # Status

    def _report(self) -> None:
        work = self._work
        groups = [self._groups[index] for index in range(self._replicas) if index in self._groups]
        whole = [group for group in groups if group.leader is not None]
        ready = sum(group.is_ready(self._size) for group in whole)
        updated = sum(group.revision() == self._revision for group in whole)
        work.put(
            replicas=len(whole),
            readyReplicas=ready,
            updatedReplicas=updated,
            hpaPodSelector=f"{SET_LABEL}={work.name},{WORKER_INDEX_LABEL}=0",
            observedGeneration=work.generation,
        )
        if ready == updated == self._replicas:
            self._state("Available", "AllGroupsReady", "All replicas are ready")
        elif updated < len(whole):
            self._state("UpdateInProgress", "GroupsUpdating", "Rolling Upgrade is in progress")
        else:
            self._state("Progressing", "GroupsProgressing", "Replicas are progressing")

    def _state(self, type_: str, reason: str, message: str) -> None:
        """Set a condition; what excludes it becomes False, with its reason as it was."""
        work = self._work
        excluded = ("Progressing", "UpdateInProgress") if type_ == "Available" else ("Available",)
        for other in excluded:
            work.deny(other)
        if work.set_condition(type_, True, reason, message):
            work.event(reason, message)
