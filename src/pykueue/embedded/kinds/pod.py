"""Pods: defaults, which fields may change, graceful deletion, and the row `kubectl get pods` prints.

Source: docs/reference/cluster-workloads.md, 4.1, 4.2, 4.4 and 4.5;
docs/reference/kubernetes-api-machinery.md, 13, 21.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pykueue.api.meta import new_condition
from pykueue.api.objects import Object, is_deleting
from pykueue.api.pods import is_terminal
from pykueue.embedded.kinds.base import STATUS, Column, Context, Kind, Subresource
from pykueue.embedded.kinds.podspec import (
    DEFAULT_GRACE_PERIOD,
    changed,
    default_pod_spec,
    default_requests,
    default_tolerations,
    is_sidecar,
    qos_class,
    with_defaults,
)
from pykueue.embedded.kinds.podvalidation import is_label, validate_pod_spec
from pykueue.embedded.kinds.printing import age_cell, seconds_of, since
from pykueue.embedded.kinds.templates import OncePerTemplate, with_own, without_own
from pykueue.embedded.objects.errors import Cause, forbidden, invalid

TERMINAL_PHASES = ("Succeeded", "Failed")

_FROZEN = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def _field(part: str, name: str) -> Callable[[Object], str]:
    def get(pod: Object) -> str:
        return str((pod.get(part) or {}).get(name) or "")

    return get


class _Defaulted(NamedTuple):
    spec: Object
    #: Whether there was nothing to fill in.
    unchanged: bool


def _defaulted(spec: Object) -> _Defaulted:
    new = default_requests(default_pod_spec(with_defaults(spec, {"enableServiceLinks": True})))
    return _Defaulted(new, new is spec)


class _Completed(NamedTuple):
    spec: Object
    qos_class: str


def _completed(spec: Object) -> _Completed:
    accounts = {"serviceAccountName": "default", "serviceAccount": "default"}
    new = default_tolerations(with_defaults(spec, accounts))
    return _Completed(new, qos_class(new))


def _is_sound(spec: Object) -> bool:
    return not validate_pod_spec(spec)


class Pod(Kind):
    """v1 Pod."""

    kind = "Pod"
    plural = "pods"
    short_names = ("po",)
    categories = ("all",)
    subresources = (
        STATUS,
        Subresource("binding", ("create",), kind="Binding"),
        Subresource("eviction", ("create",), kind="Eviction", group="policy", version="v1"),
        Subresource("log", ("get",)),
        *(
            Subresource(name, ("create", "get"), f"Pod{name.capitalize()}Options")
            for name in ("attach", "exec")
        ),
        Subresource("portforward", ("create", "get"), "PodPortForwardOptions"),
        Subresource("ephemeralcontainers"),
        Subresource("resize"),
    )
    columns = (
        Column("Name", format="name"),
        Column("Ready", description="How many of the containers are ready."),
        Column("Status", description="What the pod is doing, in one word."),
        Column("Restarts", description="How often containers were started again."),
        Column("Age"),
        Column("IP", priority=1),
        Column("Node", priority=1),
        Column("Nominated Node", priority=1),
        Column("Readiness Gates", priority=1),
    )
    field_selectors: Mapping[str, Callable[[Object], str]] = {
        "spec.nodeName": _field("spec", "nodeName"),
        "spec.restartPolicy": _field("spec", "restartPolicy"),
        "spec.schedulerName": _field("spec", "schedulerName"),
        "spec.serviceAccountName": _field("spec", "serviceAccountName"),
        "spec.hostNetwork": lambda pod: "true" if (pod.get("spec") or {}).get("hostNetwork") else "false",
        "status.phase": _field("status", "phase"),
        "status.podIP": _field("status", "podIP"),
        "status.podIPs": _field("status", "podIP"),
        "status.nominatedNodeName": _field("status", "nominatedNodeName"),
    }

    def __init__(self) -> None:
        self._defaults = OncePerTemplate(_defaulted)
        self._completed = OncePerTemplate(_completed)
        self._is_sound = OncePerTemplate(_is_sound)

    def default(self, obj: Object) -> Object:
        spec = obj.get("spec") or {}
        defaulted = self._defaults(without_own(spec))
        if defaulted.unchanged:
            return changed(obj, "spec", spec)
        return {**obj, "spec": with_own(defaulted.spec, spec)}

    def default_change(self, obj: Object, old: Object) -> Object:
        return obj if obj.get("spec") is old.get("spec") else self.default(obj)

    def prepare_create(self, obj: Object, context: Context) -> Object:
        completed = self._completed(without_own(obj["spec"]))
        spec = with_own(completed.spec, obj["spec"])
        status: Object = {"phase": "Pending", "qosClass": completed.qos_class}
        if spec.get("schedulingGates"):
            status["conditions"] = [
                new_condition(
                    None,
                    "PodScheduled",
                    "False",
                    "SchedulingGated",
                    "Scheduling is blocked due to non-empty scheduling gates",
                    context.now,
                    lastProbeTime=None,
                )
            ]
        return {**obj, "spec": spec, "status": status}

    def prepare_update(self, new: Object, old: Object, context: Context) -> Object:
        """When its last gate goes, a pod no longer counts as held back."""
        if not (old.get("spec") or {}).get("schedulingGates") or (new.get("spec") or {}).get(
            "schedulingGates"
        ):
            return new
        status = new.get("status") or {}
        conditions = [
            one
            for one in status.get("conditions") or ()
            if (one.get("type"), one.get("reason")) != ("PodScheduled", "SchedulingGated")
        ]
        return {**new, "status": {**status, "conditions": conditions}}

    def validate(self, obj: Object) -> list[Cause]:
        spec = obj["spec"]
        sound = (
            "nodeName" not in spec
            and is_label(spec.get("hostname") or "unnamed")
            and self._is_sound(without_own(spec))
        )
        causes = [] if sound else validate_pod_spec(spec)
        if spec.get("nodeName") and spec.get("schedulingGates"):
            causes.append(
                forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
            )
        return causes

    def validate_again(self, new: Object, old: Object) -> list[Cause]:
        return [] if new["spec"] is old["spec"] else self.validate(new)

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        after, before = new["spec"], old["spec"]
        if after is before or after == before:
            return []
        return _spec_change(after, before)

    def grace_period(self, obj: Object, requested: int | None) -> int:
        if not (obj.get("spec") or {}).get("nodeName") or is_terminal(obj):
            return 0
        grace = requested
        if grace is None:
            grace = obj["spec"].get("terminationGracePeriodSeconds")
        if grace is None:
            grace = DEFAULT_GRACE_PERIOD
        return 1 if grace < 0 else int(grace)

    def cells(self, obj: Object, now: float) -> list[Any]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        row = _Row(obj, now)
        gates = spec.get("readinessGates") or ()
        passed = {one.get("type") for one in status.get("conditions") or () if one.get("status") == "True"}
        return [
            obj["metadata"]["name"],
            f"{row.ready}/{row.total}",
            row.status,
            row.restarts,
            age_cell(obj, now),
            status.get("podIP") or "<none>",
            spec.get("nodeName") or "<none>",
            status.get("nominatedNodeName") or "<none>",
            f"{sum(gate.get('conditionType') in passed for gate in gates)}/{len(gates)}"
            if gates
            else "<none>",
        ]

    def row_conditions(self, obj: Object) -> list[dict[str, Any]]:
        phase = (obj.get("status") or {}).get("phase")
        if phase not in TERMINAL_PHASES:
            return []
        return [{"type": "Completed", "status": "True", "reason": phase, "message": "The pod has completed."}]


def _spec_change(after: Object, before: Object) -> list[Cause]:
    """Reasons why a stored pod's spec may not become `after` (4.4)."""
    causes: list[Cause] = []
    allowed = dict(before)
    for key in ("containers", "initContainers"):
        new, old = after.get(key) or [], before.get(key) or []
        if len(new) != len(old):
            return [forbidden(f"spec.{key}", "pod updates may not add or remove containers")]
        if old:
            allowed[key] = [{**one, "image": other.get("image")} for one, other in zip(old, new, strict=True)]
    causes += _deadline_change(after, before, allowed)
    causes += _toleration_change(after, before, allowed)
    if (before.get("terminationGracePeriodSeconds") or 0) < 0 and after.get(
        "terminationGracePeriodSeconds"
    ) == 1:
        allowed["terminationGracePeriodSeconds"] = 1
    gates = before.get("schedulingGates") or []
    if gates:
        kept = after.get("schedulingGates") or []
        if any(one not in gates for one in kept):
            causes.append(
                forbidden("spec.schedulingGates", "only deletion is allowed, but found new scheduling gates")
            )
        _take(allowed, after, "schedulingGates")
        causes += _narrowing(after, before, allowed)
    else:
        if after.get("schedulingGates"):
            causes.append(
                forbidden("spec.schedulingGates", "only deletion is allowed, but found new scheduling gates")
            )
        _take(allowed, after, "schedulingGates")
    if not causes and allowed != after:
        fields = sorted(key for key in {*allowed, *after} if allowed.get(key) != after.get(key))
        causes.append(forbidden("spec", f"{_FROZEN}; changed: {', '.join(fields)}"))
    return causes


def _take(allowed: Object, after: Object, key: str) -> None:
    if key in after:
        allowed[key] = after[key]
    else:
        allowed.pop(key, None)


def _deadline_change(after: Object, before: Object, allowed: Object) -> list[Cause]:
    new, old = after.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    _take(allowed, after, "activeDeadlineSeconds")
    if old is None or new == old:
        return []
    if new is None:
        return [
            invalid("spec.activeDeadlineSeconds", new, "must not update from a positive integer to nil value")
        ]
    if new > old:
        return [
            invalid("spec.activeDeadlineSeconds", new, f"must be less than or equal to previous value {old}")
        ]
    return []


def _toleration_change(after: Object, before: Object, allowed: Object) -> list[Cause]:
    new, old = after.get("tolerations") or [], before.get("tolerations") or []
    _take(allowed, after, "tolerations")
    if all(one in new for one in old):
        return []
    return [
        forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
    ]


def _narrowing(after: Object, before: Object, allowed: Object) -> list[Cause]:
    """The node selection of a gated pod may become narrower, never wider or different."""
    causes: list[Cause] = []
    new, old = after.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    _take(allowed, after, "nodeSelector")
    if any(new.get(key) != value for key, value in old.items()):
        causes.append(
            invalid("spec.nodeSelector", new, "only additions are allowed (no mutations or deletions)")
        )
    new_affinity, old_affinity = after.get("affinity") or {}, before.get("affinity") or {}
    if new_affinity == old_affinity:
        return causes
    rest_of = ("podAffinity", "podAntiAffinity")
    if any(new_affinity.get(key) != old_affinity.get(key) for key in rest_of):
        return causes
    _take(allowed, after, "affinity")
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    new_terms = ((new_affinity.get("nodeAffinity") or {}).get(required) or {}).get("nodeSelectorTerms") or []
    old_terms = ((old_affinity.get("nodeAffinity") or {}).get(required) or {}).get("nodeSelectorTerms") or []
    if not old_terms:
        return causes
    path = f"spec.affinity.nodeAffinity.{required}.nodeSelectorTerms"
    if len(new_terms) != len(old_terms):
        causes.append(
            invalid(path, new_terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
        )
        return causes
    for position, (new_term, old_term) in enumerate(zip(new_terms, old_terms, strict=True)):
        for field in ("matchExpressions", "matchFields"):
            kept = new_term.get(field) or []
            if any(one not in kept for one in old_term.get(field) or ()):
                causes.append(
                    invalid(
                        f"{path}[{position}].{field}",
                        kept,
                        "only additions are allowed (no mutations or deletions)",
                    )
                )
    return causes


class _Row:
    """The STATUS, READY and RESTARTS cells (4.2); later rules overwrite earlier ones."""

    def __init__(self, pod: Object, now: float) -> None:
        spec, status = pod.get("spec") or {}, pod.get("status") or {}
        self._status = status
        self._conditions = {one.get("type"): one for one in status.get("conditions") or ()}
        init = spec.get("initContainers") or ()
        self._sidecars = {one.get("name") for one in init if is_sidecar(one)}
        self._init_total = len(init)
        self.total = len(spec.get("containers") or ()) + len(self._sidecars)
        self.ready = 0
        self._restart_count = 0
        self._last_restart = ""
        self.status = status.get("reason") or status.get("phase") or "Unknown"
        if self._conditions.get("PodScheduled", {}).get("reason") == "SchedulingGated":
            self.status = "SchedulingGated"
        initialising = self._init_containers()
        if not initialising or self._is_true("Initialized"):
            self._containers()
        if is_deleting(pod):
            if status.get("reason") == "NodeLost":
                self.status = "Unknown"
            elif not is_terminal(pod):
                self.status = "Terminating"
        self.restarts = str(self._restart_count)
        if self._restart_count and seconds_of(self._last_restart) is not None:
            self.restarts = f"{self._restart_count} ({since(self._last_restart, now)} ago)"

    def _is_true(self, condition: str) -> bool:
        return bool(self._conditions.get(condition, {}).get("status") == "True")

    def _count(self, container: Object) -> None:
        self._restart_count += container.get("restartCount") or 0
        last = ((container.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        self._last_restart = max(self._last_restart, last)

    def _init_containers(self) -> bool:
        """Count init containers up to the first unfinished one; whether there is such a one."""
        for position, container in enumerate(self._status.get("initContainerStatuses") or ()):
            self._count(container)
            state = container.get("state") or {}
            terminated, waiting = state.get("terminated"), state.get("waiting")
            if terminated and terminated.get("exitCode") == 0:
                continue
            if container.get("name") in self._sidecars and container.get("started"):
                self.ready += bool(container.get("ready"))
                continue
            if terminated:
                self.status = "Init:" + (terminated.get("reason") or _exit_text(terminated))
            elif waiting and waiting.get("reason") not in (None, "", "PodInitializing"):
                self.status = "Init:" + waiting["reason"]
            else:
                self.status = f"Init:{position}/{self._init_total}"
            return True
        return False

    def _containers(self) -> None:
        running = False
        for container in reversed(self._status.get("containerStatuses") or ()):
            self._count(container)
            state = container.get("state") or {}
            terminated, waiting = state.get("terminated"), state.get("waiting")
            if waiting and waiting.get("reason"):
                self.status = waiting["reason"]
            elif terminated:
                self.status = terminated.get("reason") or _exit_text(terminated)
            elif container.get("ready") and state.get("running"):
                running = True
                self.ready += 1
        if self.status == "Completed" and running:
            self.status = "Running" if self._is_true("Ready") else "NotReady"


def _exit_text(terminated: Object) -> str:
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"
