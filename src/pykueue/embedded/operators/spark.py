"""The Spark operator, and the driver program that makes its executors (docs/reference/operators.md 11).

A change of the specification is noticed by a hash that the driver's pod carries, so one that is made while
there is no driver starts no new submission by itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from pykueue.api.jobkinds import Slot, pod_count, pod_set_slots, value_at
from pykueue.api.jobkinds.spark import SPARK_APPLICATION, role_template
from pykueue.api.objects import Object, annotations_of, controller_reference, is_deleting, labels_of
from pykueue.api.pods import is_terminal, phase
from pykueue.api.resources import PODS, SERVICES
from pykueue.embedded.operators.pods import (
    RUN_TIME,
    annotated_by_default,
    from_slot,
    index_of,
    stays,
    templated,
)
from pykueue.embedded.operators.reconciliation import Operator, Pass, hash_of
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING

_APP_LABEL, _EXECUTOR_LABEL = "sparkoperator.k8s.io/app-name", "spark-exec-id"
_SUBMISSION_LABEL = "sparkoperator.k8s.io/submission-id"
_HASH = "sim.pykueue.io/spec-hash"
#: Seconds until a driver that is missing counts as lost after its submission.
_GRACE = 10.0
_RETRY_INTERVAL = 5.0
#: HTTP codes of answers that the same request would get again.
_REFUSALS = (400, 403, 404, 422)
_OF_A_RUN = ("sparkApplicationId", "driverInfo", "executorState")
_ATTEMPTS = ("submissionAttempts", "executionAttempts", "lastSubmissionAttemptTime")
_PHASES = {"Pending": "PENDING", "Running": "RUNNING", "Succeeded": "COMPLETED", "Failed": "FAILED"}


class SparkOperator(Operator):
    """Carries out SparkApplications."""

    kind = SPARK_APPLICATION
    owns = (PODS, SERVICES)
    label = _APP_LABEL

    def reconcile(self, work: Pass) -> None:
        """One step of the state machine of docs/reference/operators.md 11.3."""
        _Step(work).run()

    def report_failure(self, work: Pass, error: Exception) -> None:
        """A submission that is refused has failed; other errors are tried again."""
        if isinstance(error, ApiError) and error.code in _REFUSALS:
            _Step(work).submission_failed(str(error))


class _Step:
    """One pass over an application."""

    def __init__(self, work: Pass) -> None:
        self._work = work
        self._state = str(value_at(work.status, ("applicationState", "state")) or "")
        self._slots: dict[str, Slot] = {slot.name: slot for slot in pod_set_slots(work.job, work.kind)}
        self._driver = next(iter(work.pods()), None)
        self._executors = [
            pod for pod in work.labelled(PODS, _APP_LABEL) if _EXECUTOR_LABEL in labels_of(pod)
        ]
        relevant = {key: work.spec[key] for key in work.spec if key not in ("suspend", "timeToLiveSeconds")}
        self._hash = hash_of(relevant)

    def run(self) -> None:
        states: dict[str, Callable[[], None]] = {
            "": self._submit,
            "SUBMITTED": self._follow_driver,
            "RUNNING": self._follow_driver,
            "UNKNOWN": self._follow_driver,
            "SUCCEEDING": self._succeeding,
            "FAILING": self._failing,
            "INVALIDATING": self._invalidating,
            "SUBMISSION_FAILED": self._submission_failed,
            "PENDING_RERUN": self._rerun,
            "SUSPENDING": self._suspending,
            "SUSPENDED": self._suspended,
            "RESUMING": self._submit,
            "COMPLETED": self._ended,
            "FAILED": self._ended,
        }
        ended = ("COMPLETED", "FAILED", "SUSPENDING", "SUSPENDED")
        if self._work.spec.get("suspend") and self._state not in ended:
            self._enter("SUSPENDING", WARNING)
        elif self._is_outdated():
            self._enter("INVALIDATING", None)
        else:
            states.get(self._state, lambda: None)()

    def _enter(self, state: str, event: str | None, message: str = "", **fields: Any) -> None:
        work = self._work
        shown = {"state": state, **({"errorMessage": message} if message else {})}
        work.put(applicationState=shown, **fields)
        if event is not None:
            name = "".join(word.capitalize() for word in state.split("_"))
            text = f"SparkApplication {work.name} is {state.lower().replace('_', ' ')}"
            work.event(f"SparkApplication{name}", message or text, event)

    def _is_outdated(self) -> bool:
        if self._driver is None or self._state not in ("SUBMITTED", "RUNNING", "UNKNOWN"):
            return False
        return annotations_of(self._driver).get(_HASH, self._hash) != self._hash

    # States

    def _submit(self) -> None:
        work, status = self._work, self._work.status
        if self._driver is not None:
            return  # that of the last run is still terminating
        submission = str(uuid.uuid5(uuid.NAMESPACE_OID, work.suffix() + work.suffix()))
        driver = self._new_driver(submission)
        work.create(PODS, driver)
        ui = {"ports": [{"name": "spark-driver-ui-port", "port": 4040}]}
        selector = {_APP_LABEL: work.name, "spark-role": "driver"}
        work.ensure(
            SERVICES,
            {
                "metadata": {"name": f"{work.name}-ui-svc", "labels": selector},
                "spec": {"selector": selector, **ui},
            },
        )
        self._enter(
            "SUBMITTED",
            NORMAL,
            submissionID=submission,
            driverInfo={"podName": driver["metadata"]["name"]},
            sparkApplicationId=f"spark-{submission.replace('-', '')}",
            lastSubmissionAttemptTime=work.time,
            submissionAttempts=int(status.get("submissionAttempts") or 0) + 1,
            executionAttempts=int(status.get("executionAttempts") or 0) + 1,
        )

    def submission_failed(self, message: str) -> None:
        """Report that the driver could not be created, if this was to be done."""
        work = self._work
        waits = ("", "RESUMING", "PENDING_RERUN", "SUBMISSION_FAILED")
        if self._state in waits and self._driver is None and not work.spec.get("suspend"):
            attempts = int(work.status.get("submissionAttempts") or 0) + 1
            fields = {"lastSubmissionAttemptTime": work.time, "submissionAttempts": attempts}
            self._enter("SUBMISSION_FAILED", None, message, **fields)

    def _submission_failed(self) -> None:
        """Submit again while the retries for it last."""
        work = self._work
        spec = work.spec.get("restartPolicy") or {}
        attempts = int(work.status.get("submissionAttempts") or 0)
        allowed = int(spec.get("onSubmissionFailureRetries") or 0)
        policy = self._retry_policy()
        if policy == "Never" or (policy == "OnFailure" and attempts > allowed):
            message = str(value_at(work.status, ("applicationState", "errorMessage")) or "")
            self._enter("FAILED", None, message)
            return
        interval = float(spec.get("onSubmissionFailureRetryInterval") or _RETRY_INTERVAL)
        if work.has_elapsed(interval * attempts, work.status["lastSubmissionAttemptTime"]):
            self._submit()

    def _follow_driver(self) -> None:
        work, driver = self._work, self._driver
        if driver is None or is_deleting(driver):
            submitted = work.status["lastSubmissionAttemptTime"]
            if self._state == "SUBMITTED" and driver is None and not work.has_elapsed(_GRACE, submitted):
                return
            self._enter("FAILING", None, "driver pod not found", terminationTime=work.time)
            return
        state = phase(driver)
        if state == "Running":
            self._make_executors(driver)
            if self._state != "RUNNING":
                self._enter("RUNNING", None)
                work.event("SparkDriverRunning", f"Driver {driver['metadata']['name']} is running")
        elif state in ("Succeeded", "Failed"):
            self._delete_executors()
            succeeded = state == "Succeeded"
            message = "" if succeeded else "driver container failed"
            self._enter("SUCCEEDING" if succeeded else "FAILING", None, message, terminationTime=work.time)
        self._report_executors(state == "Running")

    def _succeeding(self) -> None:
        if self._retry_policy() == "Always":
            self._clear_run()
        else:
            self._enter("COMPLETED", None)

    def _failing(self) -> None:
        work = self._work
        policy, spec = self._retry_policy(), work.spec.get("restartPolicy") or {}
        attempts = int(work.status.get("executionAttempts") or 0)
        if policy == "Always" or (
            policy == "OnFailure" and attempts <= int(spec.get("onFailureRetries") or 0)
        ):
            interval = float(spec.get("onFailureRetryInterval") or _RETRY_INTERVAL)
            pause = interval * int(work.status.get("submissionAttempts") or 1)
            if work.has_elapsed(pause, work.status["lastSubmissionAttemptTime"]):
                self._clear_run()
        else:
            message = str(value_at(work.status, ("applicationState", "errorMessage")) or "")
            self._enter("FAILED", None, message)

    def _clear_run(self) -> None:
        self._work.put(**dict.fromkeys((*_OF_A_RUN, "terminationTime")))
        self._enter("PENDING_RERUN", WARNING)

    def _invalidating(self) -> None:
        self._delete_run()
        self._work.put(**dict.fromkeys((*_OF_A_RUN, *_ATTEMPTS)))
        self._enter("PENDING_RERUN", WARNING)

    def _rerun(self) -> None:
        self._delete_run()
        if self._driver is None:
            self._submit()

    def _suspending(self) -> None:
        """Request the driver's deletion, which is not awaited; its executors go with it."""
        self._delete_run()
        self._work.put(**dict.fromkeys(_OF_A_RUN))
        self._enter("SUSPENDED", WARNING)

    def _suspended(self) -> None:
        self._delete_run()
        if not self._work.spec.get("suspend") and self._driver is None:
            self._enter("RESUMING", WARNING)

    def _ended(self) -> None:
        work = self._work
        self._report_executors(False)
        ttl, ended = work.spec.get("timeToLiveSeconds"), work.status.get("terminationTime")
        if ttl is not None and ended and work.has_elapsed(float(ttl), ended):
            work.delete(work.kind.resource, work.job)

    def _retry_policy(self) -> str:
        return str((self._work.spec.get("restartPolicy") or {}).get("type") or "Never")

    # Pods

    def _new_driver(self, submission: str) -> Object:
        """The driver's pod, as spark-submit makes it."""
        work = self._work
        pod = self._pod(self._slots["driver"], 0, submission)
        given = value_at(work.spec, ("driver", "podName"))
        if given:
            pod["metadata"]["name"] = given
        annotations = pod["metadata"].get("annotations") or {}
        pod["metadata"]["annotations"] = {**annotations, _HASH: self._hash}
        return pod

    def _pod(self, slot: Slot, index: int, submission: str) -> Object:
        work = self._work
        template = role_template(work.job, slot.name, value_at(work.job, slot.template) or {})
        named = from_slot(work.job, work.kind, slot, index)
        common = {
            key: value for key, value in labels_of(work.job).items() if not key.startswith("kueue.x-k8s.io/")
        }
        labels = {
            **common,
            "sparkoperator.k8s.io/launched-by-spark-operator": "true",
            _SUBMISSION_LABEL: submission,
            **named["metadata"]["labels"],
        }
        pod = templated(template, named["metadata"]["name"], labels)
        pod["spec"]["restartPolicy"] = "Never"
        return pod

    def _make_executors(self, driver: Object) -> None:
        """What the driver program does: keep the requested number of executors, under new numbers."""
        work, slot = self._work, self._slots["executor"]
        staying = [pod for pod in stays(work.owned(PODS, driver)) if not is_terminal(pod)]
        last = max((index_of(pod, _EXECUTOR_LABEL) or 0 for pod in self._executors), default=0)
        for number in range(pod_count(slot.element, slot.paths) - len(staying)):
            submission = labels_of(driver).get(_SUBMISSION_LABEL, "")
            pod = self._pod(slot, last + number + 1, submission)
            pod = annotated_by_default(pod, RUN_TIME, "forever")  # it ends with the driver
            pod["metadata"]["ownerReferences"] = [controller_reference(driver, "v1", "Pod")]
            work.create(PODS, pod)

    def _delete_executors(self) -> None:
        self._work.delete_all(PODS, self._executors)

    def _delete_run(self) -> None:
        work = self._work
        if self._driver is not None:
            work.delete(PODS, self._driver)
        self._delete_executors()
        work.delete_all(SERVICES, work.owned(SERVICES))

    def _report_executors(self, driver_runs: bool) -> None:
        work = self._work
        shown = {pod["metadata"]["name"]: _PHASES.get(phase(pod), "PENDING") for pod in self._executors}
        for name, state in (work.status.get("executorState") or {}).items():
            if name not in shown:
                ended = state in ("COMPLETED", "FAILED")
                shown[name] = state if ended else "UNKNOWN" if driver_runs else "COMPLETED"
        if shown:
            work.put(executorState=shown)
