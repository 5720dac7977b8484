"""A pod on its node: what its containers are in, and how the node's agent reports it in the pod's status.

What makes the containers start and end is not here: a simulation, or real processes. All of it can be taken
up again from the status in the API. Source: docs/reference/cluster-workloads.md, 4.1 and 4.5. Times are
seconds
since 1970.
"""

from __future__ import annotations

from typing import NamedTuple

from pykueue.api.meta import new_condition
from pykueue.api.objects import Object
from pykueue.api.times import format_time, parse_time
from pykueue.embedded.kinds.podspec import DEFAULT_GRACE_PERIOD, is_sidecar
from pykueue.embedded.nodes.containers import ENDED, NEW, Container

_OWN_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


class Ending(NamedTuple):
    """Why a node ends a pod on its own account; the pod has failed then, however its containers ended."""

    reason: str
    message: str
    #: Reason of the condition DisruptionTarget, "" for none.
    disruption: str = ""


DEADLINE = Ending("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
SHUTDOWN = Ending(
    "Terminated",
    "Pod was terminated in response to imminent node shutdown.",
    "TerminationByKubelet",
)


class Stop:
    """All containers get SIGTERM at `at` and SIGKILL at `kill_at`."""

    __slots__ = ("at", "ending", "fraction", "kill_at", "reached")

    def __init__(
        self, at: float, kill_at: float, *, fraction: float = 0.0, ending: Ending | None = None
    ) -> None:
        self.at = at
        self.kill_at = kill_at
        #: How much later the order was seen than its whole second says.
        self.fraction = fraction
        #: Why the node itself gave the order, if it did.
        self.ending = ending
        #: Whether what happened before the order has been carried out.
        self.reached = False


class PodState:
    """One pod on its node; `scheme` begins the ids of its containers."""

    def __init__(self, pod: Object, scheme: str) -> None:
        spec, status = pod["spec"], pod.get("status") or {}
        self.uid: str = pod["metadata"]["uid"]
        self._spec = spec
        self._policy: str = spec.get("restartPolicy") or "Always"
        self._init = [Container(one, scheme) for one in spec.get("initContainers") or ()]
        self._sidecars = [one for one in self._init if is_sidecar(one.spec)]
        self._regular = [Container(one, scheme) for one in spec.get("containers") or ()]
        #: When the node took notice of the pod.
        self.acknowledged: float | None = None
        #: Whether the pod's sandbox was made, and with it the pod has its address.
        self.sandbox = False
        self.address = ""
        self.over = False
        self._stop: Stop | None = None
        #: The deletionTimestamp that was observed last.
        self._deletion: str | None = None
        self._init_failed = False
        self._now = 0.0
        self._restore(status)

    def _restore(self, status: Object) -> None:
        if not status.get("startTime"):
            return
        self.acknowledged = parse_time(status["startTime"])
        self.address = status.get("podIP") or ""
        self.sandbox = bool(self.address)
        for field, containers in (
            ("initContainerStatuses", self._init),
            ("containerStatuses", self._regular),
        ):
            known = {one.get("name"): one for one in status.get(field) or ()}
            for container in containers:
                if container.name in known:
                    container.restore(known[container.name])

    def _is_ready(self, container: Container) -> bool:
        raise NotImplementedError

    # What the API server says

    def observe(self, pod: Object, now: float) -> None:
        """Take in what others changed: above all whether the pod is to be deleted."""
        metadata = pod["metadata"]
        deletion = metadata.get("deletionTimestamp")
        if deletion is None or deletion == self._deletion or self.over:
            return
        self._deletion = deletion
        deadline = parse_time(deletion)
        stop = self._stop
        if stop is None:
            ordered = deadline - (metadata.get("deletionGracePeriodSeconds") or 0)
            # The API keeps whole seconds: an order received within its second was given just now.
            at = now if ordered < now < ordered + 1 else ordered
            self._stop = Stop(at, deadline + at - ordered, fraction=at - ordered)
        else:
            stop.kill_at = min(stop.kill_at, deadline + stop.fraction)

    def shut_down(self, at: float, last_call: float) -> None:
        """The node shuts down since `at`; everything must have ended by `last_call`."""
        if self.over:
            return
        if self._stop is None:
            self._stop = Stop(at, min(at + self._grace, last_call), ending=SHUTDOWN)
        else:
            self._stop.kill_at = min(self._stop.kill_at, last_call)

    def shift(self, seconds: float) -> None:
        """Move all times after a jump of the wall clock: run times and grace periods keep their length."""
        if self.acknowledged is not None:
            self.acknowledged += seconds
        if self._stop is not None:
            self._stop.at += seconds
            self._stop.kill_at += seconds
        for container in self.containers:
            container.shift(seconds)

    @property
    def _ending(self) -> Ending | None:
        return None if self._stop is None else self._stop.ending

    @property
    def containers(self) -> list[Container]:
        """All containers, in the order in which they start."""
        return [*self._init, *self._regular]

    @property
    def running_since(self) -> float | None:
        """When the first regular container of the current life started, if any has."""
        starts = [one.started for one in self._regular if one.state != NEW and not one.lost]
        return min(starts, default=None)

    @property
    def ended_at(self) -> float:
        """When the last container ended, once all of it is over."""
        return max(
            (one.ended for one in (*self._regular, *self._init) if one.state == ENDED), default=self._now
        )

    @property
    def _grace(self) -> float:
        grace = self._spec.get("terminationGracePeriodSeconds")
        return float(DEFAULT_GRACE_PERIOD if grace is None else grace)

    # Telling

    @property
    def phase(self) -> str:
        """As a kubelet reports it (4.1)."""
        if self.over:
            failed = self._init_failed or self._ending is not None
            return "Failed" if failed or any(one.exit_code for one in self._regular) else "Succeeded"
        return "Running" if any(one.state != NEW for one in self._regular) else "Pending"

    def status(self, pod: Object, host: str, *, trusted: bool = True) -> Object:
        """The pod's status as it is now, `pod` being what the API shows and `host` the node's address.

        Of a node that is not `trusted`, as it is not ready, no pod that counts as not ready becomes so.
        """
        shown = pod.get("status") or {}
        phase = self.phase
        waiting = "PodInitializing" if self._init and self.sandbox else "ContainerCreating"
        new: Object = {**shown, "phase": phase, "hostIP": host, "hostIPs": [{"ip": host}]}
        if self.acknowledged is not None and not shown.get("startTime"):
            new["startTime"] = format_time(self.acknowledged)
        if self.address and not shown.get("podIP"):
            new["podIP"], new["podIPs"] = self.address, [{"ip": self.address}]
        new["containerStatuses"] = [
            one.status(self.uid, waiting, ready=self._is_ready(one)) for one in self._regular
        ]
        if self._init:
            new["initContainerStatuses"] = [
                one.status(self.uid, waiting, ready=self._init_ready(one)) for one in self._init
            ]
        conditions = self._conditions(pod, phase)
        if self.over and self._ending is not None:
            new["reason"], new["message"], disruption = self._ending
            if disruption and not any(one.get("type") == "DisruptionTarget" for one in conditions):
                conditions.append(
                    new_condition(None, "DisruptionTarget", "True", disruption, new["message"], self._now)
                )
        if not trusted:
            kept = [
                one
                for one in shown.get("conditions") or ()
                if one.get("type") == "Ready" and one.get("status") == "False"
            ]
            if kept and not self.over:
                conditions = [kept[0] if one["type"] == "Ready" else one for one in conditions]
        new["conditions"] = conditions
        return new

    def _init_ready(self, container: Container) -> bool:
        if container in self._sidecars:
            return self._is_ready(container)
        return container.state == ENDED and container.exit_code == 0 and not container.lost

    def _conditions(self, pod: Object, phase: str) -> list[Object]:
        shown = list((pod.get("status") or {}).get("conditions") or ())
        since = {one.get("type"): one for one in shown}
        conditions: list[Object] = []

        def add(kind: str, true: bool, reason: str = "", message: str = "") -> None:
            value = "True" if true else "False"
            conditions.append(
                new_condition(since.get(kind), kind, value, reason or None, message or None, self._now)
            )

        add("PodReadyToStartContainers", self.sandbox and not self.over)
        waiting = [one.name for one in self._init if one not in self._sidecars and not self._init_ready(one)]
        if waiting and phase != "Succeeded":
            named = " ".join(waiting)
            add(
                "Initialized",
                False,
                "ContainersNotInitialized",
                f"containers with incomplete status: [{named}]",
            )
        else:
            add("Initialized", True, "PodCompleted" if phase == "Succeeded" else "")
        unready = [one.name for one in (*self._sidecars, *self._regular) if not self._is_ready(one)]
        if self.over:
            reason = "PodCompleted" if phase == "Succeeded" else "PodFailed"
            add("Ready", False, reason)
            add("ContainersReady", False, reason)
        elif unready:
            message = f"containers with unready status: [{' '.join(unready)}]"
            add("Ready", False, "ContainersNotReady", message)
            add("ContainersReady", False, "ContainersNotReady", message)
        else:
            gates = [one.get("conditionType") for one in self._spec.get("readinessGates") or ()]
            missing = [one for one in gates if since.get(one, {}).get("status") != "True"]
            if missing:
                message = f'the status of pod readiness gate "{missing[0]}" is not "True", but False'
                add("Ready", False, "ReadinessGatesNotReady", message)
            else:
                add("Ready", True)
            add("ContainersReady", True)
        if "PodScheduled" not in since:
            add("PodScheduled", True)
        return [*conditions, *(one for one in shown if one.get("type") not in _OWN_CONDITIONS)]
