"""What must hold after every write that reaches the store, and once everything has settled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pykueue.api import conditions
from pykueue.api.hybrid import parts_in
from pykueue.api.kueue import names
from pykueue.api.kueue.names import QUEUE_LABEL
from pykueue.api.objects import Object, annotations_of, controller_of, get, is_deleting, key_of, labels_of
from pykueue.api.pods import is_terminal
from pykueue.api.quantity import parse
from pykueue.api.resources import (
    CLUSTER_QUEUES,
    COHORTS,
    LOCAL_QUEUES,
    PODS,
    RESOURCE_FLAVORS,
    WORKLOADS,
    Resource,
)
from pykueue.clock import Clock
from pykueue.embedded.apiserver.server import Server
from pykueue.manager.configuration import Configuration

from .causes import Causes
from .jobkinds import (
    KINDS,
    OPERATED,
    active,
    ended,
    is_part,
    requests,
    stops_in_steps,
    suspended,
    templates,
    written_templates,
)
from .priority_order import PriorityOrder
from .queue_status import may_queue, miscounted
from .quiet import AFTERMATH, misplaced
from .quota import Books, holds_quota, usage
from .settled import unfinished
from .staleness import Staleness
from .stored import Stored, shows_quota
from .trace import Trace
from .writers import writer

#: Seconds after the manager has seen a smaller quota during which its earlier decisions may be written.
OVERHANG = 15.0

#: Seconds after a job is stopped during which its controller may still make pods of a start it saw before.
#: A Job's status does not have an observedGeneration, so it is not possible to wait for that.
CONTROLLER_LAG = 3.0

_WATCHED = (WORKLOADS, *KINDS.values(), PODS, CLUSTER_QUEUES, LOCAL_QUEUES, COHORTS)


class Invariants(Stored):
    """Sees every write of the run in the step in which it is stored.

    `knows_quotas` says whether the manager has seen the newest ClusterQueues and Cohorts: until then its
    reservations rest on the quotas that were. `remembers` says whether it has seen the quota of a Workload.
    `knows_time` says whether its clock is not behind: it can tell when pods have to have ended.
    """

    def __init__(
        self, server: Server, clock: Clock, trace: Trace, causes: Causes, configuration: Configuration
    ) -> None:
        super().__init__(server)
        self._order = PriorityOrder(self, configuration)
        #: Since when nothing fails any more, in seconds since 1970.
        self.calm_since = float("inf")
        #: When Workloads and ClusterQueues were last written, by uid.
        self._written: dict[str, float] = {}
        self._clock = clock
        self._trace = trace
        self._causes = causes
        self.knows_quotas: Callable[[], bool] = lambda: True
        self.remembers: Callable[[Object], bool] = lambda workload: True
        self.knows_time: Callable[[], bool] = lambda: True
        self._excused_until = 0.0
        self._stopped: dict[str, float] = {}
        #: The pod templates of jobs as their users wrote them, by uid.
        self._templates: dict[str, list[bytes]] = {}
        #: Edits by hand of Workloads and jobs.
        self.staleness = Staleness()
        #: When Workloads and jobs were last edited by hand, by uid.
        self._edited: dict[str, float] = {}
        #: The uid of the Workload that was edited last, by the uid of its job.
        self._edited_workloads: dict[str, str] = {}
        #: Workloads of running jobs that lost their quota by hand, as they were before.
        self._owed: dict[str, Object] = {}
        #: The same, when their job has stopped: a restoration may be under way.
        self._settled: dict[str, Object] = {}
        #: Uids of Workloads whose finalizers were removed by hand: they vanish when a user deletes them.
        self._unprotected: set[str] = set()
        self.writes = 0
        #: When the last of them was made, in seconds since 1970.
        self.last_write = 0.0
        for resource in _WATCHED:
            server.core.on_stored(f"{resource.group}/{resource.plural}", self._on_stored(resource))

    def _on_stored(self, resource: Resource) -> Callable[[Any, Any], None]:
        check = {
            WORKLOADS: self._workload,
            **dict.fromkeys(KINDS.values(), self._job),
            PODS: self._pod,
            CLUSTER_QUEUES: self._quotas,
            LOCAL_QUEUES: lambda before, after: None,
            COHORTS: self._quotas,
        }[resource]

        def stored(new: Any, old: Any) -> None:
            self.writes += 1
            self.last_write = self._clock.time()
            after, before = (
                None if record is None else {"kind": resource.kind, **record.object} for record in (new, old)
            )
            obj = after if after is not None else before
            assert obj is not None
            self._written[obj["metadata"]["uid"]] = self.last_write
            verb = "deleted" if after is None else "created" if before is None else "changed"
            self._trace.note("write", f"{resource.kind} {obj['metadata']['name']} {verb}{_gist(after)}")
            try:
                unprotected = after is None and obj["metadata"]["uid"] in self._unprotected
                if writer() == "editor" or unprotected:
                    self._edit(resource, before, after)
                else:
                    check(before, after)
                self._note_causes(resource, before, after)
                self._settle_debts()
            except Exception as error:  # it must not become an answer of the server
                self._trace.violate(f"{obj['metadata']['name']} could not be checked: {error!r}")

        return stored

    def _note_causes(self, resource: Resource, before: Object | None, after: Object | None) -> None:
        if resource is WORKLOADS:
            self._causes.workload_stored(before, after)
        elif resource in (CLUSTER_QUEUES, LOCAL_QUEUES):
            self._causes.queue_stored(resource, before, after)
        elif resource in KINDS.values() and after is not None:
            self._causes.job_stored(before, after, by_manager=writer() == "manager")

    def _violate(self, obj: Mapping[str, Any], what: str) -> None:
        self._trace.violate(f"{obj['metadata']['name']}: {what}")

    # Edits by hand

    def forget(self) -> None:
        """The manager died: what it remembered of edited statuses is gone."""
        self._owed.clear()

    def stood_still(self, seconds: float) -> None:
        """Everything paused: what was under way before arrives so much later."""
        for times in (self._edited, self._stopped):
            for uid in times:
                times[uid] += seconds
        self._excused_until += seconds

    def _edit(self, resource: Resource, before: Object | None, after: Object | None) -> None:
        obj = after or before
        assert obj is not None
        uid = obj["metadata"]["uid"]
        if after is not None and not after["metadata"].get("finalizers"):
            self._unprotected.add(uid)
        if resource in KINDS.values() and after is not None:
            self._note_stop(before, after)
            # What it has given back may have been given to others.
            self._excused_until = max(self._excused_until, self._clock.time() + OVERHANG)
        elif resource is WORKLOADS and before is not None and uid not in self._owed:
            has = after is not None and shows_quota(after)
            if shows_quota(before) and conditions.is_admitted(before) and not has and self.remembers(before):
                self._owed[uid] = before
        self._edited[uid] = self._clock.time()
        self.staleness.note(resource, obj, after is None)
        job = self.job_of(before or obj) if resource is WORKLOADS else None
        if job is not None:
            self._edited_workloads[job["metadata"]["uid"]] = uid

    def observe(self) -> None:
        """The manager is about to send a request: what of the edits does it know?"""
        self.staleness.observe(self._clock.time())

    def _may_be_stale(self, obj: Mapping[str, Any]) -> bool:
        """Whether the write under way may rest on what the object was before an edit."""
        return self.staleness.excuses(obj["metadata"]["uid"], self._clock.time())

    def _just_edited(self, obj: Mapping[str, Any]) -> bool:
        return self._was_just_edited(obj["metadata"]["uid"])

    def _was_just_edited(self, uid: str) -> bool:
        """Whether the manager's reaction to an edit may still be under way."""
        edited = self._edited.get(uid)
        return edited is not None and self._clock.time() < edited + OVERHANG

    def _holders(self) -> Iterable[Object]:
        """All Workloads, those whose running job is owed its quota as they were when they had it."""
        stored = {w["metadata"]["uid"]: w for w in self.objects(WORKLOADS)}
        yield from map(self.counted, {**stored, **self._owed}.values())

    def _holders_of(self, job: Mapping[str, Any]) -> list[Object]:
        """Those of them that a job controls."""
        uid = job["metadata"]["uid"]
        return [one for one in self._holders() if (controller_of(one) or {}).get("uid") == uid]

    def _settle_debts(self) -> None:
        """A job that has stopped need not get its quota back."""
        for uid, owed in list(self._owed.items()):
            if not self._still_runs(owed):
                self._settled[uid] = self._owed.pop(uid)

    def _still_runs(self, workload: Object) -> bool:
        """Whether the job of a Workload runs, whatever its status says."""
        job = self.job_of(workload)
        return job is not None and not ended(job) and not _has_stopped(job)

    # Queues

    def _quotas(self, before: Object | None, after: Object | None) -> None:
        if before is None or after is None or before.get("spec") != after.get("spec"):
            self._excused_until = float("inf")

    def _excused(self) -> bool:
        now = self._clock.time()
        if self._excused_until == float("inf") and self.knows_quotas():
            self._excused_until = now + OVERHANG
        return now < self._excused_until

    # Workloads

    def _workload(self, before: Object | None, after: Object | None) -> None:
        had = before is not None and holds_quota(before)
        has = after is not None and holds_quota(after)
        if before is not None and after is not None:
            if writer() == "manager":
                for what in self._causes.missing(before, after):
                    self._violate(after, what)
            edited = before["metadata"]["uid"] in self._edited
            if not edited:
                self._conditions(before, after)
            if conditions.is_finished(before) and not conditions.is_finished(after) and not edited:
                self._violate(after, "is not finished any more")
            if had and has and admission_of(before) != admission_of(after):
                self._violate(after, "its admission changed while it holds quota")
        if after is not None:
            if before is None or not _is_inconsistent(before):
                self._consistent(after)
            owed = self._owed.pop(after["metadata"]["uid"], None) if has and not had else None
            if owed is not None and get(owed, "status", "admission") == get(after, "status", "admission"):
                return  # restored
            if has and not had:
                self._reserved(after, before)
            if has:
                self._within_quota(after, before if had else None)
        if before is not None and had and not has:
            if after is None or not conditions.is_finished(after):
                self._quota_returned(before)
            else:
                self._finished(after)

    def _conditions(self, before: Object, after: Object) -> None:
        """Conditions' lastTransitionTime changes only with status."""
        known = {c["type"]: c for c in get(before, "status", "conditions") or ()}
        for condition in get(after, "status", "conditions") or ():
            old = known.get(condition["type"])
            if old is None:
                continue
            same = old["status"] == condition["status"]
            if same and old["lastTransitionTime"] != condition["lastTransitionTime"]:
                self._violate(after, f"{condition['type']} has a new time without a new status")

    def _consistent(self, workload: Object) -> None:
        if what := _is_inconsistent(workload):
            self._violate(workload, what)

    def _reserved(self, workload: Object, before: Object | None) -> None:
        """A job holds quota once, and gets it in its turn.

        A workload whose end was only claimed by hand shows again the quota that it had.
        """
        for other in self.objects(WORKLOADS):
            owner, mine = controller_of(other), controller_of(workload)
            same = owner is not None and mine is not None and owner.get("uid") == mine.get("uid")
            if (
                same
                and not self._may_be_stale(workload)
                and key_of(other) != key_of(workload)
                and holds_quota(other)
            ):
                self._violate(workload, f"its job has quota twice, also as {other['metadata']['name']}")
        had = before is not None and conditions.has_quota(before) and conditions.is_finished(before)
        if not conditions.is_active(workload) and not had and not self._is_restored(workload):
            self._violate(workload, "got quota although spec.active is false")
        for what in self._order.overtaken(workload, self._is_known):
            self._violate(workload, what)

    def _within_quota(self, workload: Object, before: Object | None) -> None:
        """No write makes a Workload use more than the tree of its ClusterQueue has left beside the others.

        `before` is the Workload as it was, where it had quota then.
        """
        used = {} if before is None else usage(self.counted(before))
        grown = {
            pair: amount
            for pair, amount in usage(self.counted(workload)).items()
            if amount > used.get(pair, 0)
        }
        if not grown or self._excused():
            return
        others = [w for w in self._holders() if key_of(w) != key_of(workload)]
        books = Books(self.objects(CLUSTER_QUEUES), self.objects(COHORTS), others)
        name = conditions.cluster_queue(workload)
        for pair, amount in grown.items():
            left = books.available(name, pair)
            if amount > left:
                pair_text = "/".join(pair)
                self._violate(workload, f"got {amount}m {pair_text} of {name}, which had {left}m left")

    def _is_known(self, obj: Object) -> bool:
        """Whether the manager has known an object as it is for longer than its requests may have taken."""
        written = max(self._written.get(obj["metadata"]["uid"], 0.0), self.calm_since)
        return self._clock.time() > written + AFTERMATH

    def _is_restored(self, workload: Object) -> bool:
        """Whether it got the admission back that was taken by hand, perhaps just after its job stopped."""
        taken = self._settled.get(workload["metadata"]["uid"])
        same = taken is not None and get(taken, "status", "admission") == get(workload, "status", "admission")
        return same and (self._may_be_stale(workload) or self._group_runs(workload))

    def _group_runs(self, workload: Object) -> bool:
        """Whether a pod of the group that the Workload is named after runs, as far as the manager knows."""
        namespace, group = workload["metadata"]["namespace"], workload["metadata"]["name"]
        return any(
            not is_terminal(pod) or not self.staleness.knows(PODS, pod, False)
            for pod in self.objects(PODS)
            if pod["metadata"]["namespace"] == namespace
            and labels_of(pod).get(names.POD_GROUP_NAME_LABEL) == group
            and get(pod, "spec", "nodeName")
        )

    def _quota_returned(self, workload: Object) -> None:
        """Quota goes back only when nothing runs on it any more."""
        job = self.job_of(workload)
        if job is None or is_deleting(job) or ended(job):
            return
        if self._may_be_stale(job):
            return
        if not suspended(job):
            self._violate(workload, f"gave its quota back while the job {_name(job)} is not suspended")
        elif active(job):
            self._violate(workload, f"gave its quota back while pods of {_name(job)} are active")
        elif job["metadata"]["uid"] not in self._edited and self._lacks_templates(job):
            self._violate(workload, f"gave its quota back before {_name(job)} had the templates of its user")
        if not self._just_stopped(job):
            self._without_pods(workload, job)

    def _finished(self, workload: Object) -> None:
        """A Job or JobSet has ended when its pods have, whatever its status says.

        For other kinds the leader decides, and the operator may leave the workers running
        (docs/reference/operators.md 0, facts 7 and 8): quota is released on its word.
        """
        job = self.job_of(workload)
        if job is None or job["kind"] in OPERATED:
            return
        if not is_deleting(job):
            self._without_pods(workload, job)

    def _without_pods(self, workload: Object, job: Object) -> None:
        for pod in self.objects(PODS):
            uid = job["metadata"]["uid"]
            # Pods of a RayCluster may outlive it: only their label names the job then.
            ours = labels_of(pod).get(names.JOB_UID_LABEL) == uid or any(
                owner["metadata"]["uid"] == uid for owner in self.owners(pod)
            )
            if ours and not is_terminal(pod) and not is_deleting(pod):
                self._violate(workload, f"gave its quota back while pod {_name(pod)} runs")

    def _just_stopped(self, job: Mapping[str, Any]) -> bool:
        stopped = self._stopped.get(job["metadata"]["uid"])
        return stopped is not None and self._clock.time() < stopped + CONTROLLER_LAG

    # Jobs

    def _job(self, before: Object | None, after: Object | None) -> None:
        if after is None or not labels_of(after).get(QUEUE_LABEL) or is_part(after):
            return
        # An AppWrapper that is being deleted has the phase Terminating.
        if before is not None and ended(before) and not ended(after) and not is_deleting(after):
            self._violate(after, "the job has not ended any more")
        self._note_stop(before, after)
        uid = after["metadata"]["uid"]
        if before is None:
            self._templates[uid] = self.written(after)
        elif (
            uid not in self._edited
            and not stops_in_steps(after["kind"])
            and not _has_stopped(before)
            and self._lacks_templates(after)
        ):
            self._violate(after, "has stopped, and its pod templates are not what its user wrote")
        if before is not None and writer() == "manager" and (what := self._causes.stopped(before, after)):
            self._violate(after, what)
        if not suspended(after) and (before is None or suspended(before)):
            self._started(after)

    def _lacks_templates(self, job: Object) -> bool:
        """Whether a job has stopped and its pod templates differ from what its user wrote in any byte."""
        written = self._templates.get(job["metadata"]["uid"])
        return _has_stopped(job) and not ended(job) and written not in (None, self.written(job))

    def written(self, job: Object) -> list[bytes]:
        """What of a job that has stopped must be as its user wrote it."""
        return written_templates(job)

    def _note_stop(self, before: Object | None, after: Object) -> None:
        if before is not None and suspended(after) and not suspended(before):
            self._stopped[after["metadata"]["uid"]] = self._clock.time()

    def charged(self, job: Object) -> Mapping[str, int]:
        """What the pods of a job request of quota: thousandths by resource."""
        return requests(job)

    def _started(self, job: Object) -> None:
        """A job starts only admitted, with no more than was admitted."""
        edited = self._edited_workloads.get(job["metadata"]["uid"], "")
        if self.staleness.excuses(edited, self._clock.time()):
            return  # the start was under way
        admitted = [
            workload
            for workload in self.workloads_of(job)
            if conditions.is_admitted(workload) and shows_quota(workload)
        ]
        if not admitted:
            self._violate(job, "the job was started without an admitted workload")
            return
        self._placed(job, admitted[0])
        used = usage(self.counted(admitted[0]))
        allowed = {resource: 0 for _, resource in used}
        for (_, resource), amount in used.items():
            allowed[resource] += amount
        for resource, amount in self.charged(job).items():
            if amount > allowed.get(resource, 0):
                self._violate(
                    job, f"runs with {amount}m {resource}, admitted are {allowed.get(resource, 0)}m"
                )

    def _placed(self, job: Object, workload: Object) -> None:
        """A started job has exactly the node labels and tolerations of its flavors."""
        flavors = {flavor["metadata"]["name"]: flavor for flavor in self.objects(RESOURCE_FLAVORS)}
        assigned = get(workload, "status", "admission", "podSetAssignments") or ()
        for full, assignment in zip(templates(job), assigned, strict=True):
            split = [part.flavor for part in parts_in(assignment)]  # given to each pod when it is ungated
            got = [
                flavors[name] for name in set((assignment.get("flavors") or {}).values()) if name not in split
            ]
            labels = {k: v for one in got for k, v in (get(one, "spec", "nodeLabels") or {}).items()}
            tolerations = [t for one in got for t in get(one, "spec", "tolerations") or ()]
            template = get(full, "spec") or {}
            if (template.get("nodeSelector") or {}) != labels:
                self._violate(job, f"has the nodeSelector {template.get('nodeSelector')}, not {labels}")
            if (template.get("tolerations") or []) != tolerations:
                self._violate(job, f"has the tolerations {template.get('tolerations')}, not {tolerations}")

    # Pods

    def _pod(self, before: Object | None, after: Object | None) -> None:
        """A pod of a job that waits its turn is never created."""
        if before is not None or after is None:
            return
        for job in self.owners(after):
            if is_part(job):
                continue
            workload = self._edited_workloads.get(job["metadata"]["uid"], "")
            if self._just_stopped(job) or self._just_edited(job) or self._was_just_edited(workload):
                continue
            mine = self._holders_of(job)
            if any(map(self._just_edited, mine)):
                continue
            if labels_of(job).get(QUEUE_LABEL) and not any(map(holds_quota, mine)):
                self._violate(after, f"a pod of {_name(job)} came although the job holds no quota")

    # Not after a write, but when nothing happens any more

    def unreacted(self) -> list[str]:
        """What a manager that works would have put right by now, although jobs still wait and run."""
        restored = (
            f"job {_name(job)} does not have the pod templates of its user"
            for job in self.jobs()
            if self._lacks_templates(job)
        )
        return [
            *miscounted(self, self.waits),
            *misplaced(self),
            *restored,
            *self._order.passed_over(self._holders()),
        ]

    def waits(self, workload: Object) -> bool:
        """Whether a Workload is in its queue, if that is open."""
        return may_queue(workload)

    def unsettled(self) -> list[str]:
        """Jobs, Workloads and queues that have neither come to their end nor say why not."""
        return [*miscounted(self, self.waits), *unfinished(self)]


def _has_stopped(job: Mapping[str, Any]) -> bool:
    """Whether it is suspended without pods, and its template is as it was before it started."""
    stopping = annotations_of(job).get(names.STOPPING_ANNOTATION) == "true"
    return suspended(job) and not active(job) and not stopping


def admission_of(workload: Mapping[str, Any]) -> Any:
    """The admission without the domains of its pods, which may be chosen later and change with the nodes."""
    admission = dict(get(dict(workload), "status", "admission") or {})
    given = admission.get("podSetAssignments") or ()
    domains = ("topologyAssignment", "delayedTopologyRequest")
    admission["podSetAssignments"] = [
        _per_pod(one) if parts_in(one) else {key: value for key, value in one.items() if key not in domains}
        for one in given
    ]
    return admission


def _per_pod(given: Mapping[str, Any]) -> Object:
    """What a pod set that is split keeps: its pods may get other flavors, and become fewer."""
    count = int(given["count"])
    usage = {name: parse(amount).nanos // count for name, amount in given["resourceUsage"].items()}
    return {"name": given["name"], "usage": usage, "flavors": sorted(given["flavors"])}


def _is_inconsistent(workload: Mapping[str, Any]) -> str:
    """What in its status contradicts itself; empty where nothing does."""
    has = conditions.has_quota(workload)
    if conditions.is_admitted(workload) and not has:
        return "is admitted without quota"
    if has != bool(get(workload, "status", "admission")) and not conditions.is_finished(workload):
        return "QuotaReserved and status.admission contradict each other"
    return ""


def _name(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"]["name"])


def _gist(obj: Mapping[str, Any] | None) -> str:
    """The fields of an object that the trace shows."""
    if obj is None:
        return ""
    parts = [f" rv={obj['metadata']['resourceVersion']}"]
    present = get(obj, "status", "conditions") or ()
    parts += [f"{c['type']}={c['status'][0]}({c.get('reason')})" for c in present]
    for field in ("active", "suspend", "parallelism", "stopPolicy", "priority", "queueName"):
        value = get(obj, "spec", field)
        if value is not None:
            parts.append(f"{field}={value}")
    for field in ("active", "ready", "succeeded"):
        value = get(obj, "status", field)
        if value:
            parts.append(f"status.{field}={value}")
    return " ".join(parts)
