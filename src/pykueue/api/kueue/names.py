"""Labels, annotations, finalizers, gates and conditions. Source: docs/reference/kueue-api.md 2 and 5.2."""

from __future__ import annotations

from typing import Final

_D = "kueue.x-k8s.io"

#: The namespace that Kueue and pykueue are installed in, unless configured otherwise.
MANAGER_NAMESPACE: Final = "kueue-system"

# Finalizers and scheduling gates
RESOURCE_IN_USE_FINALIZER: Final = f"{_D}/resource-in-use"
ADMISSION_GATE: Final = f"{_D}/admission"
TOPOLOGY_GATE: Final = f"{_D}/topology"
#: On pods that queue by themselves, until what became of them has been counted; the same string as the label.
MANAGED_FINALIZER: Final = f"{_D}/managed"
#: The preemption gate of every variant.
CONCURRENT_ADMISSION_GATE: Final = f"{_D}/concurrent-admission"
ELASTIC_JOB_GATE: Final = f"{_D}/elastic-job"

# Labels
#: On a job: the LocalQueue that it is queued in.
QUEUE_LABEL: Final = f"{_D}/queue-name"
#: On a job: the WorkloadPriorityClass that orders it in its queue.
PRIORITY_CLASS_LABEL: Final = f"{_D}/priority-class"
#: On a job: the Workload that was created for it beforehand.
PREBUILT_WORKLOAD_LABEL: Final = f"{_D}/prebuilt-workload-name"
#: On a job: seconds it may be admitted in all; then it is deactivated.
MAX_EXEC_TIME_LABEL: Final = f"{_D}/max-exec-time-seconds"
#: On Workloads: the uid of their job.
JOB_UID_LABEL: Final = f"{_D}/job-uid"
#: On pods: `true` where the manager queues them.
MANAGED_LABEL: Final = f"{_D}/managed"
#: On pods: the pod set of the Workload that they belong to.
POD_SET_LABEL: Final = f"{_D}/podset"
#: On pods of an admitted job: its ClusterQueue.
CLUSTER_QUEUE_LABEL: Final = f"{_D}/cluster-queue-name"
#: On pods of an admitted job: its LocalQueue.
LOCAL_QUEUE_LABEL: Final = f"{_D}/local-queue-name"
#: On pods: the group that is queued together.
POD_GROUP_NAME_LABEL: Final = f"{_D}/pod-group-name"
#: On pods of a group: the index of the pod in it.
POD_GROUP_POD_INDEX_LABEL: Final = f"{_D}/pod-group-pod-index"
#: On objects of a worker cluster: the manager cluster that created them (`multiKueue.origin`).
MULTIKUEUE_ORIGIN_LABEL: Final = f"{_D}/multikueue-origin"
#: On pods of a worker cluster: their job was dispatched by a manager cluster.
MULTIKUEUE_POD_LABEL: Final = f"{_D}/multikueue-worker-workload-pod"
#: On a Workload: `true` where it has variants, one for each flavor.
CONCURRENT_ADMISSION_PARENT_LABEL: Final = f"{_D}/concurrent-admission-parent"

# Annotations
#: On a job: deprecated; read where the label of the same name is missing.
QUEUE_ANNOTATION: Final = f"{_D}/queue-name"
#: On a job or Workload: names of gates, separated by commas; it is not queued until there are none.
ADMISSION_GATED_BY_ANNOTATION: Final = f"{_D}/admission-gated-by"
#: On pods: they may be deleted by force when their node is unreachable (gate FailureRecoveryPolicy).
SAFE_TO_DELETE_ANNOTATION: Final = f"{_D}/safe-to-forcefully-delete"
#: On a job: `true` where it may change its size while it runs.
ELASTIC_JOB_ANNOTATION: Final = f"{_D}/elastic-job"
#: On pod templates of a started job: its Workload.
WORKLOAD_ANNOTATION: Final = f"{_D}/workload"
#: On pod templates of an elastic job: the first of its Workloads.
WORKLOAD_SLICE_NAME_ANNOTATION: Final = f"{_D}/workload-slice-name"
#: On the Workload of an elastic job: the Workload that it replaces.
WORKLOAD_SLICE_REPLACEMENT_ANNOTATION: Final = f"{_D}/workload-slice-replacement-for"
#: On a pod template: the topology level of which one domain must have all pods.
REQUIRED_TOPOLOGY_ANNOTATION: Final = f"{_D}/podset-required-topology"
#: On a pod template: the topology level of which one domain should have all pods.
PREFERRED_TOPOLOGY_ANNOTATION: Final = f"{_D}/podset-preferred-topology"
#: On a pod template: `true` for a placement by topology without a constraint.
UNCONSTRAINED_TOPOLOGY_ANNOTATION: Final = f"{_D}/podset-unconstrained-topology"
#: On a pod template: the topology level of which one domain must have all pods of a slice.
SLICE_REQUIRED_TOPOLOGY_ANNOTATION: Final = f"{_D}/podset-slice-required-topology"
#: On a pod template: number of pods in a slice.
SLICE_SIZE_ANNOTATION: Final = f"{_D}/podset-slice-size"
#: On a pod template: levels and sizes of nested slices, as JSON.
SLICE_CONSTRAINTS_ANNOTATION: Final = f"{_D}/podset-slice-required-topology-constraints"
#: On pod templates: pod sets of the same name are placed in the same domain.
POD_SET_GROUP_NAME_ANNOTATION: Final = f"{_D}/podset-group-name"
#: On a pod template: the first index of its pods.
POD_INDEX_OFFSET_ANNOTATION: Final = f"{_D}/pod-index-offset"
#: On a Job: the fewest pods with which it may be admitted (partial admission).
MIN_PARALLELISM_ANNOTATION: Final = f"{_D}/job-min-parallelism"
#: On a Job: `true` keeps `completions` equal to `parallelism` when it is admitted with fewer pods.
COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION: Final = f"{_D}/job-completions-equal-parallelism"
#: On a Job: it is being stopped.
STOPPING_ANNOTATION: Final = f"{_D}/stopping"
#: On a started job: what starting it added to its pod templates (decision 9); of this project.
TEMPLATE_ADDITIONS_ANNOTATION: Final = "pykueue.io/template-additions"
#: On a pod template: the flavors that the pods may be split over, as JSON; of this project.
HYBRID_ASSIGNMENT_ANNOTATION: Final = "pykueue.io/hybrid-assignment"
#: On a ClusterQueue: `true` permits pod sets to be split over flavors; of this project.
HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION: Final = "pykueue.io/hybrid-assignments-allowed"
#: On such a ClusterQueue: what happens to pods whose flavor has no nodes any more, as JSON; of this project.
HYBRID_LOSS_POLICY_ANNOTATION: Final = "pykueue.io/hybrid-loss-policy"
#: On pods of a pod set that is split over flavors: the flavor of the pod; of this project.
FLAVOR_LABEL: Final = "pykueue.io/flavor"
#: On a Workload: an integer that is added to its priority.
PRIORITY_BOOST_ANNOTATION: Final = f"{_D}/priority-boost"
#: On a Workload: the only flavors that may be assigned to it, separated by commas.
ALLOWED_FLAVORS_ANNOTATION: Final = f"{_D}/workload-allowed-resource-flavors"
#: Prefix of annotations of a job that become parameters of its ProvisioningRequest.
PROVISIONING_PARAMETER_PREFIX: Final = f"provreq.{_D}/"
#: On pods with capacity from an autoscaler: their ProvisioningRequest.
CONSUME_PROVISIONING_REQUEST_ANNOTATION: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
#: On pods with capacity from an autoscaler: the class of their ProvisioningRequest.
PROVISIONING_CLASS_NAME_ANNOTATION: Final = "autoscaling.x-k8s.io/provisioning-class-name"

#: On pods and Workloads of a group whose name does not fit in a label: the name of the group.
POD_GROUP_NAME_ANNOTATION: Final = f"{_D}/pod-group-name"
#: On pods of a group: how many pods it has.
POD_GROUP_TOTAL_COUNT_ANNOTATION: Final = f"{_D}/pod-group-total-count"
#: On pods of a group: `true` queues the group before all of its pods exist.
POD_GROUP_FAST_ADMISSION_ANNOTATION: Final = f"{_D}/pod-group-fast-admission"
#: On pods of a group: `true` where the group never finishes.
POD_GROUP_SERVING_ANNOTATION: Final = f"{_D}/pod-group-serving"
#: On pods of a group: the label that has the index of the pod.
POD_GROUP_POD_INDEX_LABEL_ANNOTATION: Final = f"{_D}/pod-group-pod-index-label"
#: On pods of a group: `false` where the group fails with this pod.
RETRIABLE_IN_GROUP_ANNOTATION: Final = f"{_D}/retriable-in-group"
#: On pods of a group: the hash of what makes pods equal, which is the name of their pod set.
ROLE_HASH_ANNOTATION: Final = f"{_D}/role-hash"
#: On pods: the integration of the object that they belong to.
POD_SUSPENDING_PARENT_ANNOTATION: Final = f"{_D}/pod-suspending-parent"
#: On a Workload: `true` where it is that of a pod group.
IS_GROUP_WORKLOAD_ANNOTATION: Final = f"{_D}/is-group-workload"
#: On a Workload: group, version and kind of its job.
JOB_OWNER_GVK_ANNOTATION: Final = f"{_D}/job-owner-gvk"
#: On a Workload: the name of its job.
JOB_OWNER_NAME_ANNOTATION: Final = f"{_D}/job-owner-name"
#: On a Workload of a job with several: the number of the component.
COMPONENT_WORKLOAD_INDEX_ANNOTATION: Final = f"{_D}/component-workload-index"
#: The uid that an object which was dispatched here has on its manager cluster.
MULTIKUEUE_ORIGIN_UID_ANNOTATION: Final = f"{_D}/multikueue-origin-uid"

# Controllers
MULTIKUEUE_CONTROLLER: Final = f"{_D}/multikueue"
PROVISIONING_CONTROLLER: Final = f"{_D}/provisioning-request"

# Names with a meaning
DEFAULT_LOCAL_QUEUE: Final = "default"
DEFAULT_PRIORITY_CLASS: Final = "default"
DEFAULT_POD_SET: Final = "main"

# Condition types of a Workload
QUOTA_RESERVED: Final = "QuotaReserved"
ADMITTED: Final = "Admitted"
BLOCKED_ON_GATES: Final = "BlockedOnPreemptionGates"
PODS_READY: Final = "PodsReady"
EVICTED: Final = "Evicted"
PREEMPTED: Final = "Preempted"
REQUEUED: Final = "Requeued"
FINISHED: Final = "Finished"
DEACTIVATION_TARGET: Final = "DeactivationTarget"
WAITING_FOR_REPLACEMENT_PODS: Final = "WaitingForReplacementPods"
#: Condition type of a pod that the manager stops.
TERMINATION_TARGET: Final = "TerminationTarget"
#: Condition type of queues, checks and clusters.
ACTIVE: Final = "Active"
