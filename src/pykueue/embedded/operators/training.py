"""The Kubeflow training operator's five kinds (docs/reference/operators.md 2 and 3)."""

from __future__ import annotations

from typing import Any

from pykueue.api.jobkinds import JobKind, Slot, pod_count, pod_set_slots, value_at
from pykueue.api.jobkinds.kubeflow import (
    INDEX_LABEL,
    JAX_JOB,
    JOB_LABEL,
    JOB_ROLE_LABEL,
    OPERATOR_LABEL,
    PADDLE_JOB,
    PYTORCH_JOB,
    ROLE_LABEL,
    TF_JOB,
    XGBOOST_JOB,
)
from pykueue.api.objects import Object, is_deleting, labels_of
from pykueue.api.pods import phase
from pykueue.api.resources import PODS, SERVICES
from pykueue.embedded.operators.pods import (
    exit_code,
    from_slot,
    headless_service,
    in_phase,
    index_of,
    restarts,
    running,
    with_variables,
)
from pykueue.embedded.operators.reconciliation import Operator, Pass
from pykueue.embedded.operators.rendezvous import Replicas, variables
from pykueue.kube.events import NORMAL, WARNING

#: An exit code from which on a policy ExitCode tries again; smaller ones are the program's own verdict.
_RETRYABLE = 128
#: Roles whose pods have the label of a master, and whose end is the job's.
_LEADERS = ("chief", "master")


class TrainingOperator(Operator):
    """One of its kinds: the container that every template must have, its port, the default restart policy."""

    owns = (PODS, SERVICES)

    def __init__(self, kind: JobKind, container: str, port_name: str, port: int, policy: str) -> None:
        self.kind = kind
        self.container = container
        self.port_name = port_name
        self.port = port
        self.policy = policy

    def reconcile(self, work: Pass) -> None:
        """One pass, in the order of docs/reference/operators.md 2.2."""
        _Sync(self, work).run()


TRAINING = (
    TrainingOperator(PYTORCH_JOB, "pytorch", "pytorchjob-port", 23456, "OnFailure"),
    TrainingOperator(TF_JOB, "tensorflow", "tfjob-port", 2222, "Never"),
    TrainingOperator(XGBOOST_JOB, "xgboost", "xgboostjob-port", 9999, "Never"),
    TrainingOperator(PADDLE_JOB, "paddle", "master", 36543, "OnFailure"),
    TrainingOperator(JAX_JOB, "jax", "jaxjob-port", 6666, "Never"),
)


class _Role:
    """The pods of one replica type."""

    def __init__(self, operator: TrainingOperator, work: Pass, slot: Slot) -> None:
        self.slot = slot
        self.name = slot.name
        self.replicas = pod_count(slot.element, slot.paths)
        self.policy = str(slot.element.get("restartPolicy") or operator.policy)
        self.pods = [pod for pod in work.pods() if labels_of(pod).get(ROLE_LABEL) == slot.name]
        self.active = running(self.pods)
        self.succeeded = in_phase(self.pods, "Succeeded")
        self.failed = sum(
            phase(pod) == "Failed" or (phase(pod) == "Running" and is_deleting(pod)) for pod in self.pods
        )

    @property
    def has_succeeded(self) -> bool:
        return self.succeeded >= self.replicas


class _Sync:
    """One pass over a job."""

    def __init__(self, operator: TrainingOperator, work: Pass) -> None:
        self._operator = operator
        self._work = work
        self._kind = operator.kind.resource.kind
        self._policy: Object = work.spec.get("runPolicy") or {}
        self._roles = [_Role(operator, work, slot) for slot in pod_set_slots(work.job, operator.kind)]

    def run(self) -> None:
        work = self._work
        if work.is_true("Succeeded") or work.is_true("Failed"):
            self._clean_up()
            return
        self._set("Created", True, f"{self._kind} {work.name} is created.")
        if self._policy.get("suspend"):
            self._suspend()
            return
        if work.is_true("Suspended"):
            text = f"{self._kind} {work.name} is resumed."
            self._set("Suspended", False, text, reason="Resumed")
            work.put(startTime=work.time)
            self._event("Resumed", text)
        elif not work.status.get("startTime"):
            work.put(startTime=work.time)
        if self._exceeds_limits():
            return
        for role in self._roles:
            self._reconcile_role(role)
        self._report()

    # Conditions

    def _set(self, type_: str, value: bool, message: str, reason: str = "") -> bool:
        return self._work.set_condition(type_, value, f"{self._kind}{reason or type_}", message, append=True)

    def _event(self, reason: str, message: str, type_: str = NORMAL) -> None:
        self._work.event(f"{self._kind}{reason}", message, type_)

    # Suspending and ending

    def _suspend(self) -> None:
        """Delete the pods; they are not counted any more at once, though they may still be terminating."""
        work = self._work
        self._delete_pods(work.pods())
        statuses = work.status.get("replicaStatuses")
        if statuses:
            work.put(replicaStatuses={name: {**one, "active": 0} for name, one in statuses.items()})
        text = f"{self._kind} {work.name} is suspended."
        work.deny("Running", f"{self._kind}Suspended", text, append=True)
        if self._set("Suspended", True, text):
            self._event("Suspended", text)

    def _delete_pods(self, pods: list[Object]) -> None:
        """Delete pods, each with its Service."""
        work = self._work
        names = {pod["metadata"]["name"] for pod in pods if work.delete(PODS, pod)}
        work.delete_all(SERVICES, (one for one in work.owned(SERVICES) if one["metadata"]["name"] in names))

    def _clean_up(self) -> None:
        work = self._work
        policy = self._policy.get("cleanPodPolicy") or "None"
        if policy != "None":
            going = work.pods()
            if policy == "Running":
                going = [pod for pod in going if phase(pod) in ("Pending", "Running")]
            self._delete_pods(going)
        statuses = work.status.get("replicaStatuses")
        if work.is_true("Succeeded") and statuses:
            work.put(
                replicaStatuses={
                    name: {**one, "active": 0, "succeeded": one.get("succeeded", 0) + one.get("active", 0)}
                    for name, one in statuses.items()
                }
            )
        ttl, ended = self._policy.get("ttlSecondsAfterFinished"), work.status.get("completionTime")
        if ttl is not None and ended and work.has_elapsed(float(ttl), ended):
            work.delete(self._operator.kind.resource, work.job)

    def _end(self, type_: str, message: str, *, completed: bool = True, event: str = NORMAL) -> None:
        """The job has succeeded or failed."""
        work = self._work
        work.deny("Running", append=True)
        self._set(type_, True, message)
        if completed:
            work.put(completionTime=work.time)
        self._event(type_, message, event)
        work.look_again(0.0)

    def _exceeds_limits(self) -> bool:
        work = self._work
        limit = self._policy.get("activeDeadlineSeconds")
        if limit is not None and work.has_elapsed(float(limit), work.status["startTime"]):
            self._stop_with("it was active longer than specified deadline")
            return True
        backoff = self._policy.get("backoffLimit")
        if backoff is not None:
            counted = [pod for role in self._roles if role.policy != "Never" for pod in role.pods]
            total = restarts(pod for pod in counted if phase(pod) == "Running")
            if total and total >= int(backoff):
                text = (
                    f"{self._kind} {work.name} has failed because it has reached the specified backoff limit"
                )
                self._stop_with(text)
                return True
        return False

    def _stop_with(self, cause: str) -> None:
        self._end("Failed", f"{self._kind} {self._work.name} has failed because {cause}.")
        self._clean_up()

    # Pods

    def _reconcile_role(self, role: _Role) -> None:
        work = self._work
        by_index: dict[int, Object] = {}
        for pod in role.pods:
            index = index_of(pod, INDEX_LABEL)
            if index is not None:
                by_index[index] = pod
        for index in range(role.replicas):
            found = by_index.get(index)
            if found is None:
                work.create(PODS, self._pod(role, index))
            elif phase(found) == "Failed" and not is_deleting(found):
                self._failed(role, found)
            if work.child(SERVICES, f"{work.name}-{role.name}-{index}") is None and not self._is_over:
                work.create(SERVICES, self._service(role, index))
        self._delete_pods([pod for index, pod in by_index.items() if index >= role.replicas])

    @property
    def _is_over(self) -> bool:
        return self._work.is_true("Failed")

    def _failed(self, role: _Role, pod: Object) -> None:
        work = self._work
        name = pod["metadata"]["name"]
        code = exit_code(pod, self._operator.container)
        permanent = role.policy == "ExitCode" and code is not None and code < _RETRYABLE
        if permanent:
            text = f"{self._kind} {work.name} is failed because {role.slot.written} replica(s) failed."
            completed = self._kind == TF_JOB.resource.kind
            self._end("Failed", text, completed=completed, event=WARNING)
        elif role.policy != "Never":
            work.delete(PODS, pod)
            text = f"{self._kind} {work.name} is restarting because {role.slot.written} replica(s) failed."
            self._event("Restarting", f"{text} Pod {name} is deleted.", WARNING)
            work.remove_condition("Running")
            self._set("Restarting", True, text)

    def _pod(self, role: _Role, index: int) -> Object:
        operator, work = self._operator, self._work
        pod = from_slot(work.job, operator.kind, role.slot, index)
        if self._is_master(role, index):
            pod["metadata"]["labels"][JOB_ROLE_LABEL] = "master"
        policy = "Never" if role.policy == "ExitCode" else role.policy
        port = {"name": operator.port_name, "containerPort": operator.port}
        containers = []
        for one in pod["spec"].get("containers") or ():
            ports = one.get("ports") or []
            has_port = any(each.get("name") == operator.port_name for each in ports)
            if one.get("name") == operator.container and not has_port:
                one = {**one, "ports": [*ports, port]}
            containers.append(one)
        pod["spec"] = {**pod["spec"], "restartPolicy": policy, "containers": containers}
        replicas = Replicas(work.name, work.namespace, {each.name: each.replicas for each in self._roles})
        env = variables(self._kind, work.spec, replicas, role.name, index, operator.port)
        only = operator.container if operator.kind is TF_JOB else None
        return with_variables(pod, env, only) if env else pod

    def _is_master(self, role: _Role, index: int) -> bool:
        if role.name in _LEADERS:
            return True
        leads = any(one.name in _LEADERS for one in self._roles)
        if self._kind in ("XGBoostJob", "PaddleJob"):
            return False
        return role.name == "worker" and index == 0 and not leads

    def _service(self, role: _Role, index: int) -> Object:
        work, operator = self._work, self._operator
        selector = {
            OPERATOR_LABEL: dict(operator.kind.pod_labels)[OPERATOR_LABEL],
            JOB_LABEL: work.name,
            ROLE_LABEL: role.name,
            INDEX_LABEL: str(index),
        }
        ports = [{"name": operator.port_name, "port": operator.port}]
        return headless_service(f"{work.name}-{role.name}-{index}", selector, ports=ports)

    # Status

    def _report(self) -> None:
        work = self._work
        statuses: Object = {}
        for role in self._roles:
            counts = {"active": role.active, "succeeded": role.succeeded, "failed": role.failed}
            statuses[role.slot.written] = {name: count for name, count in counts.items() if count}
            if self._operator.kind in (PYTORCH_JOB, PADDLE_JOB, JAX_JOB):
                labels = {**dict(self._operator.kind.pod_labels), JOB_LABEL: work.name, ROLE_LABEL: role.name}
                statuses[role.slot.written]["selector"] = ",".join(
                    f"{key}={value}" for key, value in sorted(labels.items())
                )
        work.put(replicaStatuses=statuses)
        if self._is_over:
            return
        leaders = [role for role in self._roles if role.name in _LEADERS]
        deciding = leaders or [role for role in self._roles if role.name == "worker"]
        if any(role.active for role in deciding):
            work.remove_condition("Restarting")
            self._set("Running", True, f"{self._kind} {work.name} is running.")
        if self._has_succeeded(leaders, deciding):
            self._end("Succeeded", f"{self._kind} {work.name} is successfully completed.")
            return
        for role in self._roles:
            if self._fails_by(role):
                cause = f"{role.failed} {role.slot.written} replica(s) failed."
                self._end("Failed", f"{self._kind} {work.name} is failed because {cause}")
                return

    def _has_succeeded(self, leaders: list[_Role], deciding: list[_Role]) -> bool:
        spec = self._work.spec
        if not deciding:
            return False
        if leaders:
            return all(role.has_succeeded for role in leaders)
        if value_at(spec, ("elasticPolicy",)) and self._kind == PYTORCH_JOB.resource.kind:
            return any(role.succeeded for role in deciding)
        if all(role.has_succeeded for role in deciding):
            return True
        if self._operator.kind is TF_JOB and spec.get("successPolicy") != "AllWorkers":
            return any(_is_first(pod) and phase(pod) == "Succeeded" for pod in deciding[0].pods)
        return False

    def _fails_by(self, role: _Role) -> bool:
        if not role.failed:
            return False
        if self._operator.kind is TF_JOB:
            dynamic = role.name == "worker" and self._work.spec.get("enableDynamicWorker")
            return not self._work.is_true("Restarting") and not dynamic
        if self._operator.kind is XGBOOST_JOB:
            return role.policy != "ExitCode"
        return role.policy == "Never" and role.replicas > role.succeeded + role.active


def _is_first(pod: dict[str, Any]) -> bool:
    return index_of(pod, INDEX_LABEL) == 0
