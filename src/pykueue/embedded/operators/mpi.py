"""The MPI operator: a launcher Job, workers that it reaches by SSH (docs/reference/operators.md 4)."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pykueue.api.jobkinds import Slot, pod_set_slots, value_at
from pykueue.api.jobkinds.kubeflow import INDEX_LABEL, JOB_LABEL, JOB_ROLE_LABEL, MPI_JOB, OPERATOR_LABEL
from pykueue.api.objects import Object, condition_of, labels_of, true_condition
from pykueue.api.pods import is_ready, phase
from pykueue.api.resources import CONFIG_MAPS, JOBS, PODS, SECRETS, SERVICES
from pykueue.embedded.operators.launcher import aligned
from pykueue.embedded.operators.pods import (
    RUN_TIME,
    annotated_by_default,
    from_slot,
    in_phase,
    index_of,
    running,
    templated,
)
from pykueue.embedded.operators.reconciliation import Operator, Pass
from pykueue.kube.events import WARNING

_SSHD = ["/usr/sbin/sshd", "-De"]
_LAUNCHER, _WORKER = "launcher", "worker"
_ROLE_VARIABLE = "K_MPI_JOB_ROLE"
_HOST_FILE = "/etc/mpi/hostfile"
_SSH_ARGUMENTS = "-o ConnectionAttempts=10"
#: What the launcher of each implementation needs to know.
_LAUNCHER_VARIABLES = {
    "OpenMPI": {
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": _HOST_FILE,
        "OMPI_MCA_plm_rsh_args": _SSH_ARGUMENTS,
    },
    "Intel": {
        "I_MPI_HYDRA_HOST_FILE": _HOST_FILE,
        "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": _SSH_ARGUMENTS,
    },
    "MPICH": {"HYDRA_HOST_FILE": _HOST_FILE, "HYDRA_LAUNCH_EXTRA_ARGS": _SSH_ARGUMENTS},
}


class MpiOperator(Operator):
    """Carries out MPIJobs."""

    kind = MPI_JOB
    owns = (PODS, SERVICES, CONFIG_MAPS, SECRETS, JOBS)
    label = JOB_LABEL  # the launcher's pods belong to its Job

    def reconcile(self, work: Pass) -> None:
        """One pass, in the order of docs/reference/operators.md 4.2."""
        problem = _problem(work.spec)
        if problem:
            work.event("ValidationError", problem, WARNING)
            return
        _Sync(work).run()


def _problem(spec: Object) -> str:
    """Why the operator does not run the job; empty where it does."""
    roles = spec.get("mpiReplicaSpecs") or {}
    launcher = roles.get("Launcher")
    if not launcher or launcher.get("replicas", 1) != 1:
        return "spec.mpiReplicaSpecs[Launcher].replicas: must be 1"
    if "Worker" in roles and int(roles["Worker"].get("replicas") or 0) < 1:
        return "spec.mpiReplicaSpecs[Worker].replicas: must be greater than or equal to 1"
    policies = {one.get("restartPolicy") or "Never" for one in roles.values()}
    if policies - {"Never", "OnFailure"}:
        return "spec.mpiReplicaSpecs.restartPolicy: must be Never or OnFailure"
    return ""


class _Sync:
    """One pass over a job."""

    def __init__(self, work: Pass) -> None:
        self._work = work
        self._policy: Object = work.spec.get("runPolicy") or {}
        self._slots: dict[str, Slot] = {slot.name: slot for slot in pod_set_slots(work.job, MPI_JOB)}
        worker = self._slots.get(_WORKER)
        self._count = int(worker.element.get("replicas") or 0) if worker else 0
        self._workers = [pod for pod in work.pods() if labels_of(pod).get(JOB_ROLE_LABEL) == _WORKER]
        self._suspended = bool(self._policy.get("suspend"))
        self._launcher_works = bool(work.spec.get("runLauncherAsWorker"))

    def run(self) -> None:
        work = self._work
        if not work.status.get("conditions") and self._set("Created", True, "is created."):
            work.event("MPIJobCreated", f"MPIJob {work.namespace}/{work.name} is created.")
        if work.status.get("completionTime") and (work.is_true("Succeeded") or work.is_true("Failed")):
            self._clean_up()
            return
        if not self._suspended and not work.status.get("startTime"):
            work.put(startTime=work.time)
        job = work.child(JOBS, f"{work.name}-{_LAUNCHER}")
        if job is None or not true_condition(job.get("status"), "Complete", "Failed"):
            self._ensure_objects()
            if not self._suspended:
                self._reconcile_workers()
            if job is None and self._may_launch():
                work.create(JOBS, self._launcher_job())
        if job is not None:
            aligned(work, job, self._launcher_job(), self._suspended)
        if self._suspended:
            keep = self._policy.get("cleanPodPolicy") == "Running"
            work.delete_all(
                PODS,
                (pod for pod in self._workers if not keep or phase(pod) in ("Pending", "Running")),
            )
        self._report(job)

    # Objects

    def _labels(self, role: str = "") -> dict[str, str]:
        operator = dict(MPI_JOB.pod_labels)[OPERATOR_LABEL]
        labels = {OPERATOR_LABEL: operator, JOB_LABEL: self._work.name}
        return {**labels, JOB_ROLE_LABEL: role} if role else labels

    def _ensure_objects(self) -> None:
        work = self._work
        selector = self._labels()
        service = {
            "metadata": {"name": work.name, "labels": {"app": work.name}},
            "spec": {
                "clusterIP": "None",
                "selector": selector,
                "publishNotReadyAddresses": self._launcher_works,
            },
        }
        work.ensure(SERVICES, service)
        data = {"hostfile": self._host_file(), "discover_hosts.sh": self._discovery()}
        name = f"{work.name}-config"
        known = work.child(CONFIG_MAPS, name)
        if known is None:
            metadata = {"name": name, "labels": {"app": work.name}}
            work.create(CONFIG_MAPS, {"metadata": metadata, "data": data})
        elif known.get("data") != data:
            work.patch(CONFIG_MAPS, known, {"data": data})
        if work.child(SECRETS, f"{work.name}-ssh") is None:
            work.create(SECRETS, _ssh_secret(work.name))

    def _hosts(self) -> list[str]:
        workers = [f"{self._work.name}-{_WORKER}-{index}" for index in range(self._count)]
        return [f"{self._work.name}-{_LAUNCHER}", *workers] if self._launcher_works else workers

    def _host_file(self) -> str:
        work = self._work
        slots = int(work.spec.get("slotsPerWorker") or 1)
        domain = f"{work.name}.{work.namespace}.svc"
        open_mpi = (work.spec.get("mpiImplementation") or "OpenMPI") == "OpenMPI"
        end = f" slots={slots}" if open_mpi else f":{slots}"
        return "".join(f"{host}.{domain}{end}\n" for host in self._hosts())

    def _discovery(self) -> str:
        work = self._work
        names = sorted(pod["metadata"]["name"] for pod in self._workers if phase(pod) == "Running")
        lines = (f"echo {name}.{work.name}.{work.namespace}.svc\n" for name in names)
        return "".join(("#!/bin/sh\n", *lines))

    def _may_launch(self) -> bool:
        if (self._work.spec.get("launcherCreationPolicy") or "AtStartup") == "AtStartup":
            return True
        wanted = 0 if self._suspended else self._count
        return sum(map(is_ready, self._workers)) >= wanted

    def _reconcile_workers(self) -> None:
        work = self._work
        first = int(self._launcher_works)
        by_index = {index_of(pod, INDEX_LABEL): pod for pod in self._workers}
        for index in range(self._count):
            if index + first not in by_index:
                work.create(PODS, self._worker(index))
        limit = self._count + first
        work.delete_all(PODS, (pod for index, pod in by_index.items() if index is None or index >= limit))

    def _worker(self, index: int) -> Object:
        slot = self._slots[_WORKER]
        pod = from_slot(self._work.job, MPI_JOB, slot, index)
        pod["metadata"]["labels"][INDEX_LABEL] = str(index + int(self._launcher_works))
        pod["spec"]["restartPolicy"] = slot.element.get("restartPolicy") or "Never"
        first = value_at(pod, ("spec", "containers", 0)) or {}
        if not first.get("command") and not first.get("args"):
            # The server that the launcher connects to; a simulated one ends with the job.
            pod = annotated_by_default(pod, RUN_TIME, "forever")
            first = {**first, "command": _SSHD}
        return self._connected(pod, first, pod["metadata"]["name"], {_ROLE_VARIABLE: _WORKER})

    def _launcher_job(self) -> Object:
        work, slot = self._work, self._slots[_LAUNCHER]
        name = f"{work.name}-{_LAUNCHER}"
        labels = self._labels(_LAUNCHER)
        if self._launcher_works:
            labels[INDEX_LABEL] = "0"
        pod = templated(value_at(work.job, slot.template) or {}, "", labels)
        pod["spec"]["restartPolicy"] = slot.element.get("restartPolicy") or "OnFailure"
        implementation = work.spec.get("mpiImplementation") or "OpenMPI"
        variables = {_ROLE_VARIABLE: _LAUNCHER, **_LAUNCHER_VARIABLES.get(implementation, {})}
        if implementation == "OpenMPI":
            variables["OMPI_MCA_orte_set_default_slots"] = str(work.spec.get("slotsPerWorker") or 1)
        first = value_at(pod, ("spec", "containers", 0)) or {}
        volumes = [{"name": "mpi-job-config", "configMap": {"name": f"{work.name}-config"}}]
        pod = self._connected(pod, first, name, variables, volumes)
        fields = ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
        given = {field: self._policy[field] for field in fields if self._policy.get(field) is not None}
        return {
            "metadata": {"name": name, "labels": {"app": work.name}},
            "spec": {
                **given,
                "podReplacementPolicy": "Failed",
                "suspend": self._suspended,
                "template": pod,
            },
        }

    def _connected(
        self,
        pod: Object,
        first: Object,
        hostname: str,
        variables: dict[str, str],
        volumes: Iterable[Object] = (),
    ) -> Object:
        """The pod with a name under the job's Service, and the keys for SSH."""
        work = self._work
        secret = {"name": "ssh-auth", "secret": {"secretName": f"{work.name}-ssh"}}
        path = work.spec.get("sshAuthMountPath") or "/root/.ssh"
        mounts = [{"name": "ssh-auth", "mountPath": path}]
        mounts += [{"name": one["name"], "mountPath": "/etc/mpi"} for one in volumes]
        env = [{"name": name, "value": value} for name, value in variables.items()]
        container = {
            **first,
            "env": [*(first.get("env") or ()), *env],
            "volumeMounts": [*(first.get("volumeMounts") or ()), *mounts],
        }
        spec = pod["spec"]
        return {
            **pod,
            "spec": {
                **spec,
                "hostname": hostname,
                "subdomain": work.name,
                "containers": [container, *spec.get("containers", [])[1:]],
                "volumes": [*(spec.get("volumes") or ()), secret, *volumes],
            },
        }

    # Status

    def _set(self, type_: str, value: bool, text: str, reason: str = "") -> bool:
        message = f"MPIJob {self._work.namespace}/{self._work.name} {text}"
        return self._work.set_condition(type_, value, reason or f"MPIJob{type_}", message, append=True)

    def _clean_up(self) -> None:
        policy = self._policy.get("cleanPodPolicy") or "None"
        if policy == "None":
            return
        going = [pod for pod in self._workers if policy == "All" or phase(pod) in ("Pending", "Running")]
        self._work.delete_all(PODS, going)
        statuses = self._work.status.get("replicaStatuses") or {}
        if "Worker" in statuses:
            self._work.put(replicaStatuses={**statuses, "Worker": {}})

    def _report(self, job: Object | None) -> None:
        work = self._work
        launchers = [] if job is None else work.owned(PODS, job)
        launching = in_phase(launchers, "Running")
        status: Object = (job or {}).get("status") or {}
        complete, failed = (true_condition(status, type_) for type_ in ("Complete", "Failed"))
        counts: Object = {
            "Launcher": {
                "active": launching,
                "succeeded": int(complete is not None),
                "failed": int(status.get("failed") or 0),
            }
        }
        if not self._suspended and _WORKER in self._slots:
            counts["Worker"] = {
                "active": running(self._workers),
                "succeeded": in_phase(self._workers, "Succeeded"),
                "failed": in_phase(self._workers, "Failed"),
            }
        elif "Worker" in (work.status.get("replicaStatuses") or {}):
            counts["Worker"] = {}
        shown = {role: {key: value for key, value in one.items() if value} for role, one in counts.items()}
        work.put(replicaStatuses=shown)
        if self._suspended:
            self._report_suspension()
        elif work.is_true("Suspended") and self._set("Suspended", False, "is resumed.", "MPIJobResumed"):
            work.put(startTime=work.time)
            work.event("MPIJobResumed", "MPIJob resumed")
        if complete is not None or failed is not None:
            self._report_end(status, complete, failed)
        elif (
            launching
            and in_phase(self._workers, "Running") == self._count
            and self._set("Running", True, "is running.")
        ):
            work.event("MPIJobRunning", f"MPIJob {work.namespace}/{work.name} is running")

    def _report_suspension(self) -> None:
        work = self._work
        if self._set("Suspended", True, "is suspended."):
            work.event("MPIJobSuspended", "MPIJob suspended")
        self._set("Running", False, "is suspended.", "MPIJobSuspended")

    def _report_end(self, status: Object, complete: Object | None, failed: Object | None) -> None:
        work = self._work
        known = condition_of(work.status, "Running") or {}
        self._set("Running", False, "has ended.", known.get("reason", ""))
        if complete is not None:
            self._set("Succeeded", True, "successfully completed.")
            work.put(completionTime=status.get("completionTime") or work.time)
            work.event("MPIJobSucceeded", f"MPIJob {work.namespace}/{work.name} successfully completed.")
        elif failed is not None:
            reason = failed.get("reason") or "MPIJobFailed"
            message = failed.get("message") or "MPIJob has failed"
            work.set_condition("Failed", True, reason, message, append=True)
            work.put(completionTime=work.time)
            work.event(reason, message, WARNING)
        work.look_again(0.0)


def _ssh_secret(job: str) -> Object:
    """A new pair of keys."""
    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    data: dict[str, Any] = {"ssh-privatekey": private, "ssh-publickey": public + b"\n"}
    return {
        "metadata": {"name": f"{job}-ssh", "labels": {"app": job}},
        "type": "kubernetes.io/ssh-auth",
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }
