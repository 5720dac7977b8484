"""Labels, annotations and finalizers that jobs and their Workloads carry (reference/kueue-api.md 2)."""

from __future__ import annotations

from typing import Final

DOMAIN: Final = "kueue.x-k8s.io"

# On jobs.
QUEUE_NAME: Final = f"{DOMAIN}/queue-name"
PRIORITY_CLASS: Final = f"{DOMAIN}/priority-class"
PREBUILT_WORKLOAD: Final = f"{DOMAIN}/prebuilt-workload-name"
MAX_EXEC_TIME: Final = f"{DOMAIN}/max-exec-time-seconds"
ADMISSION_GATED_BY: Final = f"{DOMAIN}/admission-gated-by"
MIN_PARALLELISM: Final = f"{DOMAIN}/job-min-parallelism"
COMPLETIONS_EQUAL_PARALLELISM: Final = f"{DOMAIN}/job-completions-equal-parallelism"
STOPPING: Final = f"{DOMAIN}/stopping"
ELASTIC_JOB: Final = f"{DOMAIN}/elastic-job"
PROVISIONING_PREFIX: Final = "provreq.kueue.x-k8s.io/"

# On Workloads.
JOB_UID: Final = f"{DOMAIN}/job-uid"
RESOURCE_IN_USE: Final = f"{DOMAIN}/resource-in-use"

# On pod templates of started jobs.
POD_SET: Final = f"{DOMAIN}/podset"
LOCAL_QUEUE_NAME: Final = f"{DOMAIN}/local-queue-name"
CLUSTER_QUEUE_NAME: Final = f"{DOMAIN}/cluster-queue-name"
WORKLOAD_NAME: Final = f"{DOMAIN}/workload"

#: The LocalQueue and the WorkloadPriorityClass that apply where a job names none.
DEFAULT_NAME: Final = "default"
#: Name of the only pod set of a job that has one.
DEFAULT_POD_SET: Final = "main"
#: Most pod sets of a Workload.
MAX_POD_SETS: Final = 18
#: `spec.managedBy` of jobs that run on another cluster.
MULTI_KUEUE: Final = f"{DOMAIN}/multikueue"
