"""KubeRay's jobs: a cluster for each run, and a Job that submits to it (docs/reference/operators.md 7).

The state of the Ray job is that of its submitter. Without one (HTTPMode, InteractiveMode, SidecarMode) the
annotations by which simulated programs are described, on the RayJob itself, say how it goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykueue.api.jobkinds import value_at
from pykueue.api.jobkinds.ray import RAY_CLUSTERS, RAY_JOB, submitter_template
from pykueue.api.objects import Object, annotations_of, is_deleting, labels_of, true_condition
from pykueue.api.pods import phase
from pykueue.api.resources import JOBS, PODS, SERVICES
from pykueue.embedded.nodes.durations import parse_duration
from pykueue.embedded.operators.pods import RUN_TIME, annotated_by_default, templated, with_variables
from pykueue.embedded.operators.raycluster import (
    CLUSTER_LABEL,
    HEAD_PORTS,
    TYPE_LABEL,
    direct,
    head_service_name,
)
from pykueue.embedded.operators.reconciliation import Operator, Pass
from pykueue.kube.events import WARNING

FINALIZER = "ray.io/rayjob-finalizer"
#: Of a Ray job that no submitter pod runs, in seconds, where the RayJob does not say.
DEFAULT_RUN_TIME = 10.0
_EXIT_CODE = "sim.pykueue.io/exit-code"
_TERMINAL = ("Complete", "Failed", "ValidationFailed")
_SUBMITTED, _SIDECAR, _INTERACTIVE = "K8sJobMode", "SidecarMode", "InteractiveMode"
#: Fields of the status that belong to one run.
_OF_A_RUN = (
    "rayClusterStatus",
    "rayClusterName",
    "dashboardURL",
    "jobId",
    "message",
    "reason",
    "rayJobInfo",
    "jobStatus",
)
_ORIGIN = "ray.io/originated-from-"


class RayJobOperator(Operator):
    """Carries out RayJobs."""

    kind = RAY_JOB
    owns = (RAY_CLUSTERS, JOBS, SERVICES, PODS)
    finalizer = FINALIZER

    def reconcile(self, work: Pass) -> None:
        """One step of the state machine of docs/reference/operators.md 7.2."""
        if work.deleting:
            work.finalize(FINALIZER, present=False)
            return
        _Step(work).run()


def origin(work: Pass) -> dict[str, str]:
    """The labels of what a RayJob or RayService makes."""
    return {f"{_ORIGIN}cr-name": work.name, f"{_ORIGIN}crd": work.kind.resource.kind}


class _Step:
    """One pass over a job."""

    def __init__(self, work: Pass) -> None:
        self._work = work
        self._mode = work.spec.get("submissionMode") or _SUBMITTED
        name = work.status.get("rayClusterName")
        self._cluster = work.child(RAY_CLUSTERS, name) if name else None
        self._submitter = work.child(JOBS, work.name)

    def run(self) -> None:
        states: dict[str, Callable[[], None]] = {
            "": self._new,
            "New": self._new,
            "Initializing": self._initializing,
            "Waiting": self._waiting,
            "Running": self._running,
            "Suspending": lambda: self._tear_down("Suspended"),
            "Retrying": lambda: self._tear_down("New"),
            "Suspended": self._suspended,
            "Complete": self._ended,
            "Failed": self._ended,
        }
        state = str(self._work.status.get("jobDeploymentStatus") or "")
        handler = states.get(state)
        if handler is not None:
            handler()
        self._work.put(observedGeneration=self._work.generation)

    def _enter(self, state: str, **fields: Any) -> None:
        self._work.put(jobDeploymentStatus=state, **fields)

    # States

    def _new(self) -> None:
        work = self._work
        problem = _problem(work.spec)
        if problem:
            work.event("InvalidRayJobSpec", problem, WARNING)
            self._enter("ValidationFailed", reason="ValidationFailed", message=problem)
        elif work.finalize(FINALIZER, present=True):
            self._enter(
                "Initializing",
                jobId=work.spec.get("jobId") or f"{work.name}-{work.suffix()}",
                rayClusterName=f"{work.name}-{work.suffix()}",
                startTime=work.time,
            )

    def _initializing(self) -> None:
        work = self._work
        if work.spec.get("suspend"):
            self._enter("Suspending")
        elif self._exceeds("activeDeadlineSeconds", "DeadlineExceeded") or self._exceeds(
            "preRunningDeadlineSeconds", "PreRunningDeadlineExceeded"
        ):
            return
        elif self._cluster is None:
            work.create(RAY_CLUSTERS, self._new_cluster())
            name = work.status["rayClusterName"]
            work.event("CreatedRayCluster", f"Created RayCluster {work.namespace}/{name}")
        else:
            self._copy_cluster_status()
            if value_at(self._cluster, ("status", "state")) != "ready":
                return
            name = head_service_name(self._cluster["metadata"]["name"])
            address = f"{name}.{work.namespace}.svc.cluster.local:{HEAD_PORTS['dashboard']}"
            work.put(dashboardURL=address)
            if self._mode == _INTERACTIVE and not work.spec.get("jobId"):
                self._enter("Waiting")
                return
            if self._mode == _SUBMITTED and self._submitter is None:
                work.create(JOBS, self._new_submitter())
                text = f"Created Kubernetes Job {work.namespace}/{work.name}"
                work.event("CreatedRayJobSubmitter", text)
                return  # the job runs once the submitter is there: its creation may be refused
            self._enter("Running", rayJobInfo={"startTime": work.time})

    def _waiting(self) -> None:
        work = self._work
        if work.spec.get("jobId"):
            self._enter("Running", jobId=work.spec["jobId"], rayJobInfo={"startTime": work.time})

    def _running(self) -> None:
        work = self._work
        if work.spec.get("suspend"):
            self._enter("Suspending")
            return
        if self._exceeds("activeDeadlineSeconds", "DeadlineExceeded"):
            return
        self._copy_cluster_status()
        if self._cluster is not None:
            selector = {CLUSTER_LABEL: self._cluster["metadata"]["name"], TYPE_LABEL: "head"}
            direct(work, head_service_name(work.name), selector, "dashboard")
        state = self._ray_job_state()
        if state != work.status.get("jobStatus"):
            work.put(jobStatus=state)
        if state == "SUCCEEDED":
            info = {**(work.status.get("rayJobInfo") or {}), "endTime": work.time}
            self._enter("Complete", endTime=work.time, succeeded=1, rayJobInfo=info)
        elif state == "FAILED":
            self._fail("AppFailed", "Job failed due to an application error.")

    def _suspended(self) -> None:
        if not self._work.spec.get("suspend"):
            self._enter("New")

    def _tear_down(self, state: str) -> None:
        """Delete the cluster and the submitter; go on when both objects are gone."""
        work = self._work
        clusters = work.owned(RAY_CLUSTERS)
        if work.delete_all(RAY_CLUSTERS, clusters):
            work.event("DeletedRayCluster", f"Deleted RayCluster of RayJob {work.name}")
        submitters = work.owned(JOBS)
        if work.delete_all(JOBS, submitters):
            work.event("DeletedRayJobSubmitter", f"Deleted submitter of RayJob {work.name}")
        if not clusters and not submitters:
            self._enter(state, **dict.fromkeys(_OF_A_RUN))

    def _ended(self) -> None:
        work = self._work
        if not work.spec.get("shutdownAfterJobFinishes") or not work.status.get("endTime"):
            return
        ttl = float(work.spec.get("ttlSecondsAfterFinished") or 0)
        if work.has_elapsed(ttl, work.status["endTime"]):
            work.delete_all(RAY_CLUSTERS, work.owned(RAY_CLUSTERS))

    def _exceeds(self, field: str, reason: str) -> bool:
        work = self._work
        limit = work.spec.get(field)
        if limit is None or not work.has_elapsed(float(limit), work.status["startTime"]):
            return False
        self._fail(reason, f"The RayJob has passed the {field}.")
        return True

    def _fail(self, reason: str, message: str) -> None:
        """Fail, or try again as a whole while the back-off limit allows it."""
        work = self._work
        failed = int(work.status.get("failed") or 0) + 1
        again = failed <= int(work.spec.get("backoffLimit") or 0) and reason != "DeadlineExceeded"
        self._enter(
            "Retrying" if again else "Failed",
            reason=reason,
            message=message,
            failed=failed,
            **({} if again else {"endTime": work.time}),
        )

    # The Ray job

    def _ray_job_state(self) -> str:
        """Its state, from its submitter's pods, or as its annotations say."""
        work = self._work
        if self._mode != _SUBMITTED:
            return self._described_state()
        if self._submitter is None:
            return str(work.status.get("jobStatus") or "PENDING")
        end = true_condition(self._submitter.get("status"), "Complete", "Failed")
        if end is not None:
            return "SUCCEEDED" if end["type"] == "Complete" else "FAILED"
        pods = work.owned(PODS, self._submitter)
        return "RUNNING" if any(phase(pod) == "Running" for pod in pods) else "PENDING"

    def _described_state(self) -> str:
        work = self._work
        annotations = annotations_of(work.job)
        started = value_at(work.status, ("rayJobInfo", "startTime"))
        try:
            text = annotations.get(RUN_TIME)
            length = DEFAULT_RUN_TIME if text is None else parse_duration(text)
        except ValueError:
            length = DEFAULT_RUN_TIME
        if not work.has_elapsed(length, started):
            return "RUNNING"
        return "SUCCEEDED" if annotations.get(_EXIT_CODE, "0") == "0" else "FAILED"

    # Objects

    def _copy_cluster_status(self) -> None:
        if self._cluster is not None and not is_deleting(self._cluster):
            self._work.put(rayClusterStatus=self._cluster.get("status") or {})

    def _new_cluster(self) -> Object:
        work = self._work
        metadata = work.job["metadata"]
        labels = {**labels_of(work.job), **origin(work), "ray.io/job-submission-mode": self._mode}
        found: Object = {
            "name": work.status["rayClusterName"],
            "labels": labels,
            "annotations": dict(metadata.get("annotations") or {}),
        }
        spec: Object = dict(work.spec.get("rayClusterSpec") or {})
        if self._mode == _SIDECAR:
            head = dict(spec["headGroupSpec"])
            pod = annotated_by_default(templated(head["template"], "", {}), RUN_TIME, "forever")
            containers = [
                *(pod["spec"].get("containers") or ()),
                *submitter_template(work.job)["spec"]["containers"],
            ]
            pod_spec = {**pod["spec"], "containers": containers, "restartPolicy": "Never"}
            spec["headGroupSpec"] = {**head, "template": {**pod, "spec": pod_spec}}
        return {"metadata": found, "spec": spec}

    def _new_submitter(self) -> Object:
        work = self._work
        template = work.spec.get("submitterPodTemplate") or submitter_template(work.job)
        pod = templated(template, "", origin(work))
        variables = {
            "PYTHONUNBUFFERED": "1",
            "RAY_DASHBOARD_ADDRESS": str(work.status.get("dashboardURL")),
            "RAY_JOB_SUBMISSION_ID": str(work.status.get("jobId")),
        }
        pod = with_variables(pod, variables)
        policy = pod["spec"].get("restartPolicy") or "Never"
        limit = value_at(work.spec, ("submitterConfig", "backoffLimit"))
        created_by = {"app.kubernetes.io/created-by": "kuberay-operator"}
        return {
            "metadata": {"name": work.name, "labels": {**origin(work), **created_by}},
            "spec": {
                "backoffLimit": 2 if limit is None else limit,
                "template": {**pod, "spec": {**pod["spec"], "restartPolicy": policy}},
            },
        }


def _problem(spec: Object) -> str:
    """Why the operator does not run the job; empty where it does."""
    selects = bool(spec.get("clusterSelector"))
    if not selects and not spec.get("rayClusterSpec"):
        return "one of RayClusterSpec or ClusterSelector must be set"
    if spec.get("suspend") and (selects or not spec.get("shutdownAfterJobFinishes")):
        return "a RayJob with suspend needs shutdownAfterJobFinishes, and no clusterSelector"
    if spec.get("ttlSecondsAfterFinished") and not spec.get("shutdownAfterJobFinishes"):
        return "a RayJob with shutdownAfterJobFinishes set to false cannot have ttlSecondsAfterFinished"
    return ""
