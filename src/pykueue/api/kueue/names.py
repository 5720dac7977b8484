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
QUEUE_LABEL: Final = f"{_D}/queue-name"
PRIORITY_CLASS_LABEL: Final = f"{_D}/priority-class"
PREBUILT_WORKLOAD_LABEL: Final = f"{_D}/prebuilt-workload-name"
MAX_EXEC_TIME_LABEL: Final = f"{_D}/max-exec-time-seconds"
JOB_UID_LABEL: Final = f"{_D}/job-uid"
MANAGED_LABEL: Final = f"{_D}/managed"
POD_SET_LABEL: Final = f"{_D}/podset"
CLUSTER_QUEUE_LABEL: Final = f"{_D}/cluster-queue-name"
LOCAL_QUEUE_LABEL: Final = f"{_D}/local-queue-name"
POD_GROUP_NAME_LABEL: Final = f"{_D}/pod-group-name"
POD_GROUP_POD_INDEX_LABEL: Final = f"{_D}/pod-group-pod-index"
MULTIKUEUE_ORIGIN_LABEL: Final = f"{_D}/multikueue-origin"
#: Of the pods of jobs that a manager cluster dispatched here.
MULTIKUEUE_POD_LABEL: Final = f"{_D}/multikueue-worker-workload-pod"
CONCURRENT_ADMISSION_PARENT_LABEL: Final = f"{_D}/concurrent-admission-parent"

# Annotations
#: Deprecated: read where the label of the same name is missing.
QUEUE_ANNOTATION: Final = f"{_D}/queue-name"
ADMISSION_GATED_BY_ANNOTATION: Final = f"{_D}/admission-gated-by"
ELASTIC_JOB_ANNOTATION: Final = f"{_D}/elastic-job"
WORKLOAD_ANNOTATION: Final = f"{_D}/workload"
WORKLOAD_SLICE_NAME_ANNOTATION: Final = f"{_D}/workload-slice-name"
WORKLOAD_SLICE_REPLACEMENT_ANNOTATION: Final = f"{_D}/workload-slice-replacement-for"
REQUIRED_TOPOLOGY_ANNOTATION: Final = f"{_D}/podset-required-topology"
PREFERRED_TOPOLOGY_ANNOTATION: Final = f"{_D}/podset-preferred-topology"
UNCONSTRAINED_TOPOLOGY_ANNOTATION: Final = f"{_D}/podset-unconstrained-topology"
SLICE_REQUIRED_TOPOLOGY_ANNOTATION: Final = f"{_D}/podset-slice-required-topology"
SLICE_SIZE_ANNOTATION: Final = f"{_D}/podset-slice-size"
SLICE_CONSTRAINTS_ANNOTATION: Final = f"{_D}/podset-slice-required-topology-constraints"
POD_SET_GROUP_NAME_ANNOTATION: Final = f"{_D}/podset-group-name"
POD_INDEX_OFFSET_ANNOTATION: Final = f"{_D}/pod-index-offset"
MIN_PARALLELISM_ANNOTATION: Final = f"{_D}/job-min-parallelism"
COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION: Final = f"{_D}/job-completions-equal-parallelism"
STOPPING_ANNOTATION: Final = f"{_D}/stopping"
#: Of this project: what starting a job added to its pod templates (decision 9).
TEMPLATE_ADDITIONS_ANNOTATION: Final = "pykueue.io/template-additions"
PRIORITY_BOOST_ANNOTATION: Final = f"{_D}/priority-boost"
ALLOWED_FLAVORS_ANNOTATION: Final = f"{_D}/workload-allowed-resource-flavors"
PROVISIONING_PARAMETER_PREFIX: Final = f"provreq.{_D}/"
#: Of the cluster autoscaler: the capacity that a pod uses.
CONSUME_PROVISIONING_REQUEST_ANNOTATION: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
PROVISIONING_CLASS_NAME_ANNOTATION: Final = "autoscaling.x-k8s.io/provisioning-class-name"

POD_GROUP_NAME_ANNOTATION: Final = f"{_D}/pod-group-name"
POD_GROUP_TOTAL_COUNT_ANNOTATION: Final = f"{_D}/pod-group-total-count"
POD_GROUP_FAST_ADMISSION_ANNOTATION: Final = f"{_D}/pod-group-fast-admission"
POD_GROUP_SERVING_ANNOTATION: Final = f"{_D}/pod-group-serving"
POD_GROUP_POD_INDEX_LABEL_ANNOTATION: Final = f"{_D}/pod-group-pod-index-label"
RETRIABLE_IN_GROUP_ANNOTATION: Final = f"{_D}/retriable-in-group"
ROLE_HASH_ANNOTATION: Final = f"{_D}/role-hash"
POD_SUSPENDING_PARENT_ANNOTATION: Final = f"{_D}/pod-suspending-parent"
IS_GROUP_WORKLOAD_ANNOTATION: Final = f"{_D}/is-group-workload"
JOB_OWNER_GVK_ANNOTATION: Final = f"{_D}/job-owner-gvk"
JOB_OWNER_NAME_ANNOTATION: Final = f"{_D}/job-owner-name"
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
