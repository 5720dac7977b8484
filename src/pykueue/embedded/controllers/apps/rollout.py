"""How a Deployment's ReplicaSets share its pods. Pure.

A rolling update keeps at most `replicas + maxSurge` pods and at least `replicas - maxUnavailable` available
ones, as the documentation of Deployments says; what a size change means in the middle of one ("proportional
scaling") too.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from pykueue.api.objects import Object

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MOST = "deployment.kubernetes.io/max-replicas"
#: Annotations of a Deployment that its ReplicaSets do not get.
_OWN_ANNOTATIONS = (
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED,
    MOST,
    "deprecated.deployment.rollback.to",
)
#: Letters of a hash in a name: no vowels, so that it is never a word, and no digits like letters.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_HASH_LENGTH = 10


def hash_text(value: Any, collisions: int = 0) -> str:
    """Ten letters that stand for a value."""
    data = orjson.dumps([value, collisions], option=orjson.OPT_SORT_KEYS)
    number = int.from_bytes(hashlib.sha256(data).digest()[:8], "big")
    letters = []
    for _ in range(_HASH_LENGTH):
        number, digit = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[digit])
    return "".join(letters)


def template_of(obj: Object) -> Object:
    """The pod template without the label that distinguishes ReplicaSets."""
    template: Object = obj["spec"]["template"]
    labels = (template.get("metadata") or {}).get("labels") or {}
    if HASH_LABEL not in labels:
        return template
    kept = {key: value for key, value in labels.items() if key != HASH_LABEL}
    return {**template, "metadata": {**template["metadata"], "labels": kept}}


def size(replica_set: Object) -> int:
    """Pods it is to have."""
    return int(replica_set["spec"].get("replicas") or 0)


def total(replica_sets: Iterable[Object]) -> int:
    """The sum of `spec.replicas` of ReplicaSets."""
    return sum(size(one) for one in replica_sets)


def counted(replica_sets: Iterable[Object], field: str) -> int:
    """The sum of a field of their statuses."""
    return sum(int((one.get("status") or {}).get(field) or 0) for one in replica_sets)


def revision(obj: Object) -> int:
    """Its number in the rollout history; 0 where it has none."""
    text = (obj["metadata"].get("annotations") or {}).get(REVISION, "")
    return int(text) if text.isdigit() else 0


def age_order(replica_set: Object) -> tuple[str, str]:
    """Sort key, oldest first."""
    return replica_set["metadata"]["creationTimestamp"], replica_set["metadata"]["name"]


class Limits:
    """What the strategy of a Deployment allows, in pods."""

    def __init__(self, deployment: Object) -> None:
        spec = deployment["spec"]
        self.replicas = int(spec["replicas"])
        self.rolling = spec["strategy"]["type"] == "RollingUpdate"
        rolling = (spec["strategy"].get("rollingUpdate") or {}) if self.rolling else {}
        surge = _pods(rolling.get("maxSurge"), self.replicas, math.ceil)
        unavailable = _pods(rolling.get("maxUnavailable"), self.replicas, math.floor)
        if self.rolling and surge == 0 and unavailable == 0:
            unavailable = 1
        #: Most pods at a time, and least available ones.
        self.most = self.replicas + surge
        self.least = max(0, self.replicas - unavailable) if self.rolling else 0


def _pods(value: Any, replicas: int, rounded: Any) -> int:
    if isinstance(value, str):
        return int(rounded(int(value.rstrip("%")) * replicas / 100))
    return int(value or 0)


def rolled_up(limits: Limits, new: Object, everything: Iterable[Object]) -> int:
    """The size that the newest ReplicaSet may have now."""
    if size(new) >= limits.replicas:
        return limits.replicas
    room = limits.most - total(everything)
    return min(limits.replicas, size(new) + max(0, room))


def rolled_down(limits: Limits, new: Object, old: list[Object]) -> list[tuple[Object, int]]:
    """The sizes that the older ReplicaSets may shrink to now: unhealthy pods first, then the oldest sets'."""
    everything = [*old, new]
    unavailable_new = size(new) - counted([new], "availableReplicas")
    budget = total(everything) - limits.least - unavailable_new
    if budget <= 0:
        return []
    sizes = {one["metadata"]["uid"]: size(one) for one in old}
    for one in sorted(old, key=age_order):
        unhealthy = size(one) - counted([one], "availableReplicas")
        gone = min(budget, max(0, unhealthy))
        sizes[one["metadata"]["uid"]] -= gone
        budget -= gone
    spare = counted(everything, "availableReplicas") - limits.least
    for one in sorted(old, key=age_order):
        gone = min(max(0, spare), sizes[one["metadata"]["uid"]])
        sizes[one["metadata"]["uid"]] -= gone
        spare -= gone
    return [(one, sizes[one["metadata"]["uid"]]) for one in old if sizes[one["metadata"]["uid"]] != size(one)]


def in_proportion(limits: Limits, everything: list[Object]) -> list[tuple[Object, int]]:
    """The sizes of ReplicaSets that share a Deployment whose size has changed."""
    allowed = limits.most if limits.replicas > 0 else 0
    left = allowed - total(everything)
    growing = left > 0
    # Larger ones first; of equals the newest when growing, the oldest when shrinking.
    ordered = sorted(everything, key=age_order, reverse=growing)
    ordered = sorted(ordered, key=size, reverse=True)
    sizes: list[int] = []
    for one in ordered:
        share = 0
        if left:
            before = int((one["metadata"].get("annotations") or {}).get(MOST) or limits.replicas)
            share = round(size(one) * allowed / before) - size(one) if before else 0
            share = max(0, min(share, left)) if growing else min(0, max(share, left))
        left -= share
        sizes.append(size(one) + share)
    if ordered and left:
        sizes[0] = max(0, sizes[0] + left)
    return list(zip(ordered, sizes, strict=True))


def replica_set_annotations(
    deployment: Object, replica_set: Object | None, number: int, limits: Limits
) -> dict[str, str]:
    """The annotations of a Deployment's newest ReplicaSet; `number` is its revision."""
    known: Mapping[str, str] = (replica_set or {"metadata": {}})["metadata"].get("annotations") or {}
    given = deployment["metadata"].get("annotations") or {}
    found = {**known, **{key: value for key, value in given.items() if key not in _OWN_ANNOTATIONS}}
    before = known.get(REVISION)
    if before is not None and before != str(number):
        history = [one for one in (known.get(REVISION_HISTORY) or "").split(",") if one]
        found[REVISION_HISTORY] = ",".join([*history, before])
    return {**found, REVISION: str(number), DESIRED: str(limits.replicas), MOST: str(limits.most)}
