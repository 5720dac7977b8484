"""Pods of hybrid assignments whose flavor has no nodes for them any more, where the queue has a policy.

Each step is one write, and follows from what the API shows: the flavor is marked as lost, so that no pod gets
it; its pods that cannot be scheduled end; once none is left, its part shrinks to the pods that run there, and
the scheduler gives the others another flavor. So a flavor never has more pods than its part, and quota is
given back only for pods that do not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from pykueue.api import conditions
from pykueue.api.decoding import decode_as, encode
from pykueue.api.hybrid import Part, parse_request, parts_of
from pykueue.api.hybrid_losses import (
    LossPolicy,
    loss_policy,
    lost_flavors,
    marked_lost,
    marked_usable,
    split_otherwise,
)
from pykueue.api.kueue import Admission, PodSetAssignment, names
from pykueue.api.meta import parse_time, set_condition
from pykueue.api.objects import (
    Key,
    Object,
    annotations_of,
    condition_of,
    get,
    key_of,
    labels_of,
    replaced,
)
from pykueue.api.pods import is_terminal
from pykueue.clock import Clock
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.manager.cluster import Cluster
from pykueue.manager.nodes.assignments import is_placed
from pykueue.manager.nodes.outlines import is_topology_gated, slice_name
from pykueue.manager.writes import Writer

_ENDED = "UnschedulableOnAssignedFlavor"
_ENDED_TEXT = "The pod waits for a flavor that its workload has lost"


class Losses:
    """Looks at the pods of one Workload at a time, before any of them is ungated."""

    def __init__(self, cluster: Cluster, writer: Writer, recorder: EventRecorder, clock: Clock) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._writer = writer
        self._recorder = recorder
        self._clock = clock

    def policy_of(self, workload: Mapping[str, Any]) -> LossPolicy | None:
        """The policy of its ClusterQueue."""
        return loss_policy(self._cluster.cluster_queues.get("", conditions.cluster_queue(workload)))

    async def settle(self, key: Key, workload: Object) -> float | None:
        """Take the steps that are due; returns in how many seconds to look again, None: when something
        changes."""
        policy, lost = self.policy_of(workload), lost_flavors(workload)
        if policy is None:
            if lost:
                await self._usable(key, list(lost), "PolicyRemoved")
            return None
        now = self._clock.time()
        times = []
        for flavor, pods in self._unschedulable(workload):
            if flavor in lost:
                await self._end(pods)
                continue
            due = min(map(_since, pods)) + policy.lost_seconds
            if due > now:
                times.append(due)
            elif self._runs_elsewhere(workload, flavor):
                await self._lose(key, workload, flavor)
                lost[flavor] = now
                await self._end(pods)
        over = [flavor for flavor, since in lost.items() if since + policy.retry_seconds <= now]
        if over:
            await self._usable(key, over, "TriedAgain")
        if lost:
            await self._shrink_parts(key)
            times += [since + policy.retry_seconds for flavor, since in lost.items() if flavor not in over]
            times += await self._shrink_job(key, policy)
        return max(0.1, min(times) - now) if times else None

    def holds(self, workload: Mapping[str, Any]) -> Callable[[Object, str], bool]:
        """Whether a pod is to wait before it gets a flavor, asked once for each pod.

        It waits for a flavor that is lost. Of pods that come later than the first ones only one at a time may
        wait for a node of the flavor: so it is known that there is none before all of them would have to end.
        """
        policy, lost = self.policy_of(workload), lost_flavors(workload)
        later = conditions.since(workload, conditions.ADMITTED) + (policy.lost_seconds if policy else 0.0)
        waiting: set[str] = set()
        if policy is not None:
            for given in _split(workload):
                for pod in self._pods(workload, given.name):
                    if not is_topology_gated(pod) and not get(pod, "spec", "nodeName"):
                        waiting.add(_flavor(pod))

        def held(pod: Object, flavor: str) -> bool:
            if flavor in lost:
                return True
            if policy is None or _created(pod) < later:
                return False
            if flavor in waiting:
                return True
            waiting.add(flavor)
            return False

        return held

    # What there is

    def _pods(self, workload: Mapping[str, Any], pod_set: str) -> list[Object]:
        pods = self._nodes.pods_of_slice((workload["metadata"].get("namespace") or "", slice_name(workload)))
        return [
            pod for pod in pods if labels_of(pod).get(names.POD_SET_LABEL) == pod_set and not is_terminal(pod)
        ]

    def _unschedulable(self, workload: Mapping[str, Any]) -> Iterator[tuple[str, list[Object]]]:
        """Pods that have a flavor and cannot be scheduled, by flavor."""
        found: dict[str, list[Object]] = {}
        for given in _split(workload):
            for pod in self._pods(workload, given.name):
                if not is_topology_gated(pod) and _is_unschedulable(pod):
                    found.setdefault(_flavor(pod), []).append(pod)
        yield from sorted(found.items())

    def _runs_elsewhere(self, workload: Mapping[str, Any], flavor: str) -> bool:
        """Whether each pod set that has the flavor keeps pods that run: one that has none left waits."""
        return all(
            any(get(pod, "spec", "nodeName") for pod in self._pods(workload, given.name))
            for given in _split(workload)
            if any(part.flavor == flavor for part in parts_of(given))
        )

    # Steps

    async def _lose(self, key: Key, before: Object, flavor: str) -> None:
        pods = runs = 0
        for given in _split(before):
            pods += sum(part.pods for part in parts_of(given) if part.flavor == flavor)
            there = (pod for pod in self._pods(before, given.name) if _flavor(pod) == flavor)
            runs += sum(bool(get(pod, "spec", "nodeName")) for pod in there)
        text = f"{max(1, pods - runs)} of {pods} pods cannot be scheduled on flavor {flavor}"

        def step(workload: Object) -> Object | None:
            if not is_placed(workload) or flavor in lost_flavors(workload):
                return None
            return marked_lost(workload, flavor, text, self._clock.time())

        written = await self._writer.update(self._cluster.workloads, key, step)
        if written is not None:
            self._recorder.event(written, WARNING, "FlavorLost", text)

    async def _usable(self, key: Key, flavors: Sequence[str], why: str) -> None:
        def step(workload: Object) -> Object | None:
            marked = [flavor for flavor in flavors if flavor in lost_flavors(workload)]
            return marked_usable(workload, marked, why, self._clock.time()) if marked else None

        await self._writer.update(self._cluster.workloads, key, step)

    async def _end(self, pods: Sequence[Object]) -> None:
        """End pods, so that their job creates others. As a disruption, which jobs may choose not to count."""
        assert self._nodes.pods is not None
        for pod in pods:
            # The outline has no other conditions: the patch replaces those of the pod as it is.
            stored = await self._writer.reread(self._nodes.pods, key_of(pod))
            if stored is None or stored["metadata"]["uid"] != pod["metadata"]["uid"]:
                continue
            if get(stored, "spec", "nodeName") or is_terminal(stored):
                continue
            now, present = self._clock.time(), get(stored, "status", "conditions") or ()
            for kind in ("DisruptionTarget", "TerminatedByKueue"):
                present = set_condition(present, kind, "True", _ENDED, _ENDED_TEXT, now)
            desired = replaced(stored, ("status", "conditions"), list(present))
            desired = replaced(desired, ("status", "phase"), "Failed")
            try:
                await self._writer.change(self._nodes.pods, stored, desired, "status")
            except ApiError as error:
                if not error.not_found:
                    raise

    async def _shrink_parts(self, key: Key) -> None:
        """Leave the parts of lost flavors only the pods that run there."""

        def step(workload: Object) -> Object | None:
            if not is_placed(workload):
                return None
            admission = decode_as(Admission, get(workload, "status", "admission"))
            lost = lost_flavors(workload)
            given = [self._with_running(workload, one, lost) for one in admission.pod_set_assignments]
            if given == admission.pod_set_assignments:
                return None
            return replaced(
                workload, ("status", "admission"), encode(replace(admission, pod_set_assignments=given))
            )

        known = self._cluster.workload(key)
        if known is not None and step(known) is not None:
            await self._writer.update(self._cluster.workloads, key, step)

    def _with_running(
        self, workload: Mapping[str, Any], given: PodSetAssignment, lost: Mapping[str, float]
    ) -> PodSetAssignment:
        parts = parts_of(given)
        if not any(part.flavor in lost for part in parts):
            return given
        there: dict[str, int] = {}
        for pod in self._pods(workload, given.name):
            if is_topology_gated(pod):
                continue
            if not get(pod, "spec", "nodeName") and _flavor(pod) in lost:
                return given  # it may still be scheduled there
            there[_flavor(pod)] = there.get(_flavor(pod), 0) + 1
        size = _slice_size(workload, given.name)
        left = []
        for part in parts:
            gone = max(0, part.pods - there.get(part.flavor, 0)) if part.flavor in lost else 0
            left.append(Part(part.flavor, part.pods - gone // size * size))
        left = [part for part in left if part.pods]
        return split_otherwise(given, left) if left and left != parts else given

    async def _shrink_job(self, key: Key, policy: LossPolicy) -> list[float]:
        """Let a job that accepts fewer pods go on without those that have no flavor; returns when to."""
        if policy.shrink_seconds is None:
            return []
        now = self._clock.time()
        due: list[float] = []
        texts: list[str] = []

        def step(workload: Object) -> Object | None:
            texts.clear()
            due.clear()
            if not is_placed(workload):
                return None
            assert policy.shrink_seconds is not None
            since = max(lost_flavors(workload).values(), default=now)
            admission = decode_as(Admission, get(workload, "status", "admission"))
            given = list(admission.pod_set_assignments)
            for index, one in enumerate(given):
                pods = sum(part.pods for part in parts_of(one))
                if not pods or one.count is None or not _minimum(workload, one.name) <= pods < one.count:
                    continue
                if since + policy.shrink_seconds > now:
                    due.append(since + policy.shrink_seconds)
                    continue
                texts.append(f"{pods} of {one.count} pods of pod set {one.name}")
                given[index] = split_otherwise(one, parts_of(one), pods)
            if not texts:
                return None
            changed = replace(admission, pod_set_assignments=given)
            return replaced(workload, ("status", "admission"), encode(changed))

        known = self._cluster.workload(key)
        if known is not None and step(known) is not None:
            written = await self._writer.update(self._cluster.workloads, key, step)
            if written is not None and texts:
                note = f"Goes on with {', '.join(texts)}: no flavor has room for the others"
                self._recorder.event(written, NORMAL, "Shrunk", note)
        return due


def _split(workload: Mapping[str, Any]) -> list[PodSetAssignment]:
    """The pod sets that are split over flavors."""
    admission = decode_as(Admission, get(workload, "status", "admission"))
    return [given for given in admission.pod_set_assignments if parts_of(given)]


def _flavor(pod: Mapping[str, Any]) -> str:
    return labels_of(pod).get(names.FLAVOR_LABEL, "")


def _is_unschedulable(pod: Mapping[str, Any]) -> bool:
    found = condition_of(pod.get("status"), "PodScheduled") or {}
    unbound = not get(pod, "spec", "nodeName")
    return unbound and found.get("status") == "False" and found.get("reason") == "Unschedulable"


def _created(pod: Mapping[str, Any]) -> float:
    text = get(pod, "metadata", "creationTimestamp")
    return parse_time(str(text)) if text else 0.0


def _since(pod: Mapping[str, Any]) -> float:
    found = condition_of(pod.get("status"), "PodScheduled") or {}
    text = found.get("lastTransitionTime")
    return parse_time(str(text)) if text else 0.0


def _pod_set(workload: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return next((one for one in get(workload, "spec", "podSets") or () if one.get("name") == name), {})


def _slice_size(workload: Mapping[str, Any], name: str) -> int:
    template = _pod_set(workload, name).get("template") or {}
    text = annotations_of(template).get(names.HYBRID_ASSIGNMENT_ANNOTATION)
    try:
        return parse_request(text).slice_size if text else 1
    except ValueError:
        return 1


def _minimum(workload: Mapping[str, Any], name: str) -> int:
    """The fewest pods that a pod set accepts."""
    pod_set = _pod_set(workload, name)
    return int(pod_set.get("minCount") or pod_set.get("count") or 1)
