"""Pod groups: pods that are one job together (docs/reference/kueue-integrations.md 9.4, "Pod", group rules).

Pure: what a group's pods say about it. A group is admitted whole; pods that fail are replaced under the same
admission, and pods beyond what it asks for are removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

from pykueue.api.kueue import names
from pykueue.api.meta import parse_time
from pykueue.api.objects import Object, annotations_of, get, is_deleting, labels_of
from pykueue.api.pods import is_ready, is_terminal

from .base import Outcome
from .pod import RANKS, is_gated, is_stopped_by_us, template_of, total_count
from .podsets import count_of, pod_set
from .workload import queue_name


class GroupError(ValueError):
    """The pods of a group contradict each other: no Workload can stand for them."""


def role(pod: Mapping[str, Any]) -> str:
    """The pod set it belongs to."""
    return annotations_of(pod).get(names.ROLE_HASH_ANNOTATION, names.DEFAULT_POD_SET)


def _phase(pod: Mapping[str, Any]) -> str:
    return str(get(pod, "status", "phase") or "")


def is_held(pod: Mapping[str, Any]) -> bool:
    """Whether it has the finalizer that keeps it until its Workload has taken note of its end."""
    return names.MANAGED_FINALIZER in (get(pod, "metadata", "finalizers") or ())


def _never_ran(pod: Mapping[str, Any]) -> bool:
    """Deleted before it was bound to a node: no kubelet will write a phase for it."""
    return is_deleting(pod) and not get(pod, "spec", "nodeName")


def has_ended(pod: Mapping[str, Any]) -> bool:
    """Whether a pod will not run any more: it is terminal, or was deleted before it ran."""
    return is_terminal(pod) or _never_ran(pod)


def _age(pod: Mapping[str, Any]) -> tuple[str, str]:
    return str(pod["metadata"].get("creationTimestamp")), str(pod["metadata"]["name"])


@dataclass(frozen=True)
class PodGroup:
    """The pods of one group as they are, oldest first; there is at least one."""

    pods: tuple[Object, ...]
    #: With it, pods that are being deleted hold nothing (gate FastQuotaReleaseInPodIntegration).
    fast_release: bool = False

    @classmethod
    def of(cls, pods: Iterable[Object], fast_release: bool = False) -> PodGroup:
        """The group of these pods, oldest first."""
        return cls(tuple(sorted(pods, key=_age)), fast_release)

    @property
    def first(self) -> Object:
        """The pod that speaks for the group: queue, priority, parameters."""
        return next((pod for pod in self.pods if not is_deleting(pod)), self.pods[0])

    @cached_property
    def total(self) -> int:
        """How many pods it is to have."""
        return total_count(self.first) or 0

    def _says(self, annotation: str) -> bool:
        return annotations_of(self.first).get(annotation) == "true"

    @property
    def is_fast(self) -> bool:
        """Whether one pod is enough to queue for all of them."""
        return self._says(names.POD_GROUP_FAST_ADMISSION_ANNOTATION)

    @property
    def is_serving(self) -> bool:
        """Whether the group is serving: it never finishes and has no reclaimable pods."""
        return self._says(names.POD_GROUP_SERVING_ANNOTATION)

    # Pods

    @cached_property
    def runnable(self) -> list[Object]:
        """Those that run, may run, or have succeeded: all but what needs to be replaced."""
        return [pod for pod in self.pods if _phase(pod) != "Failed" and not _never_ran(pod)]

    @cached_property
    def lost(self) -> list[Object]:
        """Those that failed or were deleted before they ran, oldest first."""
        kept = {pod["metadata"]["uid"] for pod in self.runnable}
        return [pod for pod in self.pods if pod["metadata"]["uid"] not in kept]

    @property
    def missing(self) -> int:
        """How many pods it waits for."""
        return max(0, self.total - len(self.runnable))

    def replaced(self) -> list[Object]:
        """Lost pods that others have taken the place of; nothing more is to be learned from them."""
        return self.lost[: len(self.lost) - self.missing] if self.missing < len(self.lost) else []

    def waiting(self) -> list[Object]:
        """Pods that wait for the group's admission."""
        return [pod for pod in self.pods if is_gated(pod) and not is_deleting(pod) and not is_terminal(pod)]

    def started(self) -> list[Object]:
        """Ungated pods that are neither terminated nor terminating."""
        return [
            pod for pod in self.pods if not is_gated(pod) and not is_terminal(pod) and not is_deleting(pod)
        ]

    # States

    def active_until(self, now: float) -> float | None:
        """When no pod runs any more at the latest; None when that is so now, infinity where it is unknown."""
        running = [pod for pod in self.pods if _phase(pod) == "Running"]
        if self.fast_release:
            running = [pod for pod in running if not is_deleting(pod)]
        ends = [
            parse_time(pod["metadata"]["deletionTimestamp"]) if is_deleting(pod) else inf for pod in running
        ]
        return max((end for end in ends if end >= now), default=None)

    def is_active(self, now: float) -> bool:
        """Whether some pod still runs, within the time it has to end."""
        return self.active_until(now) is not None

    def is_suspended(self) -> bool:
        """Whether it waits, as a whole or in part."""
        return any(map(is_gated, self.pods))

    def is_abandoned(self) -> bool:
        """Whether its user has deleted the last of it; what the manager deletes itself it expects back."""
        if not all(map(is_deleting, self.pods)):
            return False
        latest = max(map(_deleted_at, self.pods))
        return not all(is_stopped_by_us(pod) for pod in self.pods if _deleted_at(pod) == latest)

    def is_over(self) -> bool:
        """Whether no pod of the group runs or will run."""
        return all(is_deleting(pod) or is_terminal(pod) for pod in self.pods)

    def pods_ready(self) -> bool:
        """Whether all its pods are there and ready, or have succeeded."""
        fine = [pod for pod in self.runnable if is_ready(pod) or _phase(pod) == "Succeeded"]
        return len(fine) >= self.total

    def outcome(self, has_quota: bool = True) -> Outcome | None:
        """How it ended; None while it has not.

        Without quota, one with a failed pod that is not to be retried has ended. Its other pods would wait
        for a replacement: those of a dispatched group are still there; on one cluster its eviction deleted
        them.
        """
        if self.is_serving:
            return None
        succeeded = sum(_phase(pod) == "Succeeded" for pod in self.pods)
        text = f"Pods succeeded: {succeeded}/{self.total}."
        if succeeded >= self.total:
            return Outcome(True, text)
        marks = (annotations_of(pod).get(names.RETRIABLE_IN_GROUP_ANNOTATION) for pod in self.pods)
        if "false" not in marks:
            return None
        over = all(map(has_ended, self.pods))
        return Outcome(False, text) if over or (not has_quota and self._lacks_failed_pod()) else None

    def _lacks_failed_pod(self) -> bool:
        """Whether it waits as a whole, for a pod in place of one that failed."""
        failed = any(_phase(pod) == "Failed" for pod in self.pods)
        return failed and self.missing > 0 and not self.started()

    def reclaimable(self) -> dict[str, int]:
        """Pods per role that will not run again although the group goes on."""
        if self.is_serving:
            return {}
        return dict(Counter(role(pod) for pod in self.pods if _phase(pod) == "Succeeded"))

    # Its Workload

    @cached_property
    def kept(self) -> list[Object]:
        """Pods that have succeeded and count although the Workload they ran with is gone, oldest first.

        One without the finalizer has ended with an earlier group of this name.
        """
        if self.is_serving or self.outcome() is not None:
            return []
        succeeded = [pod for pod in self.pods if _phase(pod) == "Succeeded"]
        return [pod for pod in succeeded if is_held(pod) and not is_deleting(pod)]

    @property
    def _able(self) -> list[Object]:
        """The pods that a new Workload is for, those that have succeeded first."""
        return [*self.kept, *(pod for pod in self.runnable if not is_terminal(pod))]

    def is_complete(self) -> bool:
        """Whether there are enough pods to queue, and one of them has yet to run."""
        able = self._able
        return len(able) > len(self.kept) and (self.is_fast or len(able) >= self.total)

    def check(self, label_keys: Iterable[str] = (), annotation_keys: Iterable[str] = ()) -> None:
        """Raises GroupError where the pods contradict each other.

        Of labels and annotations that their Workload gets, a pod without one contradicts none.
        """
        fast = names.POD_GROUP_FAST_ADMISSION_ANNOTATION
        said: dict[str, set[Any]] = {
            "queue names": {queue_name(pod) for pod in self.pods},
            "total counts": {total_count(pod) for pod in self.pods},
            "fast admission annotations": {annotations_of(pod).get(fast) for pod in self.pods},
        }
        for key in label_keys:
            values = {labels_of(pod).get(key) for pod in self.pods}
            said[f"values of the label {key}"] = values - {None}
        for key in annotation_keys:
            values = {annotations_of(pod).get(key) for pod in self.pods}
            said[f"values of the annotation {key}"] = values - {None}
        for what, values in said.items():
            if len(values) > 1:
                listed = ", ".join(sorted(map(str, values)))
                raise GroupError(f"the pods of the group have different {what}: {listed}")

    def labels(self, keys: Iterable[str]) -> dict[str, str]:
        """The labels of these keys that any of its pods has."""
        return {key: labels_of(pod)[key] for key in keys for pod in self.pods if key in labels_of(pod)}

    def annotations(self, keys: Iterable[str]) -> dict[str, str]:
        """The annotations of these keys that any of its pods has."""
        return {
            key: annotations_of(pod)[key] for key in keys for pod in self.pods if key in annotations_of(pod)
        }

    def pod_sets(self) -> list[Object]:
        """One pod set per role, by name, of the first pods that make the group complete."""
        chosen = self._able[: self.total]
        if self.is_fast:
            sample = next(pod for pod in chosen if not is_terminal(pod))
            return [pod_set(template_of(sample), self.total, role(sample), RANKS)]
        counts = Counter(map(role, chosen))
        # The template of a pod that has run also has what its admission added: rather one that has not.
        by_age = sorted(chosen, key=lambda pod: (is_terminal(pod), _age(pod)))
        samples = {role(pod): pod for pod in reversed(by_age)}
        return [pod_set(template_of(samples[name]), counts[name], name, RANKS) for name in sorted(counts)]

    def excess(self, pod_sets: Iterable[Mapping[str, Any]]) -> list[Object]:
        """Pods beyond the counts of the Workload: those of unknown roles, and the newest.

        Pods that have ended stay before those that run, and those before what still waits.
        """
        sizes = {str(one.get("name")): count_of(one) for one in pod_sets}
        surplus: list[Object] = []
        for name in sorted({role(pod) for pod in self.runnable}):
            members = [pod for pod in self.runnable if role(pod) == name]
            ordered = sorted(members, key=lambda pod: (not is_terminal(pod), is_gated(pod), _age(pod)))
            surplus += ordered[sizes.get(name, 0) :]
        return [pod for pod in surplus if not is_deleting(pod)]


def _deleted_at(pod: Mapping[str, Any]) -> float:
    """When its deletion was asked for, in seconds since 1970."""
    metadata = pod["metadata"]
    return parse_time(metadata["deletionTimestamp"]) - float(metadata.get("deletionGracePeriodSeconds") or 0)
