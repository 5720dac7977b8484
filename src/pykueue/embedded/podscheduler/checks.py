"""What keeps a pod off a node besides the node itself: other pods, and devices that others have."""

from __future__ import annotations

from pykueue.embedded.podscheduler.cluster import Cluster, NodeInfo
from pykueue.embedded.podscheduler.filters import Refusal
from pykueue.embedded.podscheduler.podinfo import PodInfo
from pykueue.embedded.podscheduler.relations import RelationCheck
from pykueue.embedded.podscheduler.terms import PodTerm


class Check:
    """The demands of one pod on the surroundings of nodes, as the books are now."""

    def __init__(self, cluster: Cluster, pod: PodInfo, repelled_by: tuple[PodTerm, ...]) -> None:
        self._devices = cluster.devices if cluster.devices.concern(pod) else None
        self._pod = pod
        related = repelled_by or pod.relations.demands
        self._relations = RelationCheck(cluster, pod, repelled_by) if related else None

    def refusal(self, node: NodeInfo) -> Refusal | None:
        """The first demand that keeps the pod off the node."""
        found = self._relations.refusal(node) if self._relations is not None else None
        if found is not None or self._devices is None:
            return found
        obstacle = self._devices.obstacle(self._pod, node)
        # Devices are free when the claims of pods that ended are released, not when pods are preempted.
        return Refusal((obstacle,), True) if obstacle else None


def check_of(cluster: Cluster, pod: PodInfo, repelled_by: tuple[PodTerm, ...]) -> Check | None:
    """The pod's demands; None where it has none."""
    if not repelled_by and not pod.relations.demands and not cluster.devices.concern(pod):
        return None
    return Check(cluster, pod, repelled_by)
