"""Objects for the benches, built as an informer would hand them over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pykueue.api import kueue
from pykueue.api.core import Namespace, Node, NodeStatus, StatusCondition
from pykueue.api.meta import LabelSelector, ObjectMeta, format_micro_time
from pykueue.api.quantity import Quantity

NAMESPACE = "bench"
#: When the virtual clock starts, in seconds since 1970.
START = 1_767_225_600.0


def namespace() -> Namespace:
    return Namespace(metadata=ObjectMeta(name=NAMESPACE))


def flavor(name: str, topology: str | None = None) -> kueue.ResourceFlavor:
    labels = {"pool": name} if topology else {}
    return kueue.ResourceFlavor(
        metadata=ObjectMeta(name=name),
        spec=kueue.ResourceFlavorSpec(node_labels=labels, topology_name=topology),
    )


def topology(name: str, levels: Sequence[str]) -> kueue.Topology:
    return kueue.Topology(
        metadata=ObjectMeta(name=name),
        spec=kueue.TopologySpec(levels=[kueue.TopologyLevel(node_label=level) for level in levels]),
    )


def node(name: str, labels: Mapping[str, str], cpu: int, ready: bool = True) -> Node:
    """A node of flavor `default`."""
    return Node(
        metadata=ObjectMeta(name=name, labels={"pool": "default", **labels}),
        status=NodeStatus(
            allocatable={"cpu": Quantity.of(cpu), "pods": Quantity.of(110)},
            conditions=[StatusCondition(type="Ready", status="True" if ready else "False")],
        ),
    )


def local_queue(name: str, cluster_queue: str) -> kueue.LocalQueue:
    return kueue.LocalQueue(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE),
        spec=kueue.LocalQueueSpec(cluster_queue=cluster_queue),
    )


def group(quotas: dict[str, tuple[int, int | None]]) -> kueue.ResourceGroup:
    """cpu quotas by flavor: (nominal, borrowing limit)."""
    return kueue.ResourceGroup(
        covered_resources=["cpu"],
        flavors=[
            kueue.FlavorQuotas(
                name=name,
                resources=[
                    kueue.ResourceQuota(
                        name="cpu",
                        nominal_quota=Quantity.of(nominal),
                        borrowing_limit=None if limit is None else Quantity.of(limit),
                    )
                ],
            )
            for name, (nominal, limit) in quotas.items()
        ],
    )


def cluster_queue(
    name: str,
    quotas: dict[str, tuple[int, int | None]],
    cohort: str | None = None,
    reclaim: str = "Never",
    within: str = "Never",
    fungibility: kueue.FlavorFungibility | None = None,
) -> kueue.ClusterQueue:
    return kueue.ClusterQueue(
        metadata=ObjectMeta(name=name),
        spec=kueue.ClusterQueueSpec(
            resource_groups=[group(quotas)],
            cohort_name=cohort,
            namespace_selector=LabelSelector(),
            preemption=kueue.ClusterQueuePreemption(
                reclaim_within_cohort=reclaim,  # type: ignore[arg-type]
                within_cluster_queue=within,  # type: ignore[arg-type]
            ),
            flavor_fungibility=fungibility or kueue.FlavorFungibility(),
        ),
    )


def cohort(name: str, parent: str | None = None) -> kueue.Cohort:
    return kueue.Cohort(metadata=ObjectMeta(name=name), spec=kueue.CohortSpec(parent_name=parent))


def workload(
    name: str,
    queue: str,
    cpu: float,
    priority: int,
    created: float,
    pods: int = 1,
    request: kueue.PodSetTopologyRequest | None = None,
) -> kueue.Workload:
    """A workload of `pods` pods of `cpu` each."""
    return kueue.Workload(
        metadata=ObjectMeta(
            name=name, namespace=NAMESPACE, uid=name, creation_timestamp=format_micro_time(created)
        ),
        spec=kueue.WorkloadSpec(
            queue_name=queue,
            priority=priority,
            pod_sets=[
                kueue.PodSet(
                    count=pods,
                    topology_request=request,
                    template={
                        "spec": {
                            "containers": [
                                {
                                    "name": "main",
                                    "image": "registry.example.com/train:v1",
                                    "command": ["run", name],
                                    "resources": {"requests": {"cpu": str(cpu)}},
                                }
                            ],
                            "restartPolicy": "Never",
                        }
                    },
                )
            ],
        ),
    )
