"""The life of one simulated pod, from its binding to its end.

What happens is fixed by the pod's program and a few instants; `advance` carries it on to a given time, and
`status` tells it the way a kubelet would. All of it can be taken up again from the status in the API.
Source: reference/cluster-workloads.md, 4.1 and 4.5. Times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from pykueue.api.times import format_time, parse_time
from pykueue.embedded.kinds.podspec import DEFAULT_GRACE_PERIOD, is_sidecar
from pykueue.embedded.nodes.behaviour import Program
from pykueue.embedded.nodes.commands import FOREVER, understand
from pykueue.embedded.nodes.containers import ENDED, NEW, RUNNING, SIGKILL_EXIT, SIGTERM_EXIT, Container

Object = dict[str, Any]

#: When enough siblings ran at once, at or after a time; None while that is open.
Gathered = Callable[[float], float | None]

_OWN_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
_DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


class _Stop:
    """Everything is told to stop at `at`, and killed at `kill_at`."""

    __slots__ = ("at", "deadline", "fraction", "kill_at", "reached")

    def __init__(self, at: float, kill_at: float, *, fraction: float = 0.0, deadline: bool = False) -> None:
        self.at = at
        self.kill_at = kill_at
        #: How much later the order was seen than its whole second says.
        self.fraction = fraction
        #: Whether the pod's own deadline is the reason.
        self.deadline = deadline
        #: Whether what happened before the order has been carried out.
        self.reached = False


class PodLife:
    """One pod on its node."""

    def __init__(self, pod: Object, program: Program) -> None:
        spec, status = pod["spec"], pod.get("status") or {}
        self.uid: str = pod["metadata"]["uid"]
        self.program = program
        self._spec = spec
        self._policy: str = spec.get("restartPolicy") or "Always"
        self._init = [Container(one) for one in spec.get("initContainers") or ()]
        self._sidecars = [one for one in self._init if is_sidecar(one.spec)]
        self._regular = [Container(one) for one in spec.get("containers") or ()]
        #: When the node took notice of the pod; its start-up delay runs from here.
        self.acknowledged: float | None = None
        #: Whether the pod's sandbox was made, and with it the pod has its address.
        self.sandbox = False
        self.address = ""
        self.over = False
        self._stop: _Stop | None = None
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
                if container.state == RUNNING:
                    container.seconds, container.will_exit = self._outcome(container)

    # What the API server says

    def observe(self, pod: Object, now: float) -> None:
        """Take in what others changed: above all whether the pod is to be deleted."""
        metadata = pod["metadata"]
        deletion = metadata.get("deletionTimestamp")
        if deletion is None or self.over:
            return
        deadline = parse_time(deletion)
        stop = self._stop
        if stop is None:
            ordered = deadline - (metadata.get("deletionGracePeriodSeconds") or 0)
            # The API keeps whole seconds: an order heard of within its second was given just now.
            at = now if ordered < now < ordered + 1 else ordered
            self._stop = _Stop(at, deadline + at - ordered, fraction=at - ordered)
        else:
            stop.kill_at = min(stop.kill_at, deadline + stop.fraction)

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

    # Living

    def advance(self, now: float, gathered: Gathered) -> float | None:
        """Let everything happen that is due by `now`; the time of what comes next, None if nothing will."""
        self._now = now
        if self.over:
            return None
        if self.acknowledged is None:
            self.acknowledged = now
        following: list[float] = []
        deadline = self._spec.get("activeDeadlineSeconds")
        if deadline is not None and self._stop is None:
            at = self.acknowledged + deadline
            if now >= at:
                self._stop = _Stop(at, at + self._grace, deadline=True)
            else:
                following.append(at)
        stop = self._stop
        if stop is None:
            following.append(self._progress(now, gathered))
        else:
            if not stop.reached:
                self._progress(min(now, stop.at), gathered)
                stop.reached = now >= stop.at
            if not stop.reached:
                following.append(stop.at)
            elif not self.over:
                following.append(self._wind_down(stop, now, gathered))
        if self.over:
            return None
        following += [at for one in self._probed() if (at := self._ready_at(one)) > now]
        soonest = min(following, default=inf)
        return None if soonest == inf else soonest

    @property
    def _grace(self) -> float:
        grace = self._spec.get("terminationGracePeriodSeconds")
        return float(DEFAULT_GRACE_PERIOD if grace is None else grace)

    def _outcome(self, container: Container) -> tuple[float, int]:
        if container in self._sidecars:
            return FOREVER, 0
        if container in self._init:
            return understand(container.spec) or (0.0, 0)
        return self.program.run(container.spec, container.restarts, keep_running=self._policy == "Always")

    def _start(self, container: Container, at: float) -> None:
        container.start(at, FOREVER, 0)
        container.seconds, container.will_exit = self._outcome(container)

    def _progress(self, limit: float, gathered: Gathered) -> float:
        """Undisturbed life up to `limit`; when it goes on after that."""
        assert self.acknowledged is not None
        begin = self.acknowledged + self.program.start_delay
        if limit < begin:
            return begin
        self.sandbox = True
        for container in self._init:
            if container in self._sidecars:
                if container.state == NEW:
                    self._start(container, begin)
                continue
            following = self._carry_on(container, begin, limit, gathered, self._policy != "Never")
            if following is not None:
                return following
            if container.exit_code:
                self._init_failed = True
                self._finish(container.ended)
                return inf
            begin = container.ended
        nexts = [
            self._carry_on(container, begin, limit, gathered, self._policy) for container in self._regular
        ]
        open_ends = [one for one in nexts if one is not None]
        if open_ends:
            return min(open_ends)
        self._finish(max(one.ended for one in self._regular))
        return inf

    def _carry_on(
        self, container: Container, begin: float, limit: float, gathered: Gathered, again: bool | str
    ) -> float | None:
        """One container's life up to `limit`; when it goes on after that, None when it has ended for good.

        `again` is the restart policy, or whether failures are repeated.
        """
        if container.state == NEW:
            if begin > limit:
                return begin
            self._start(container, begin)
        while True:
            if container.state == RUNNING:
                end = self._natural_end(container, gathered)
                if end > limit:
                    return end
                container.end(end, container.will_exit)
            if container.restart_at is None:
                repeats = again == "Always" or (bool(container.exit_code) and again in (True, "OnFailure"))
                if not repeats or container.lost:
                    return None
                container.back_off()
            assert container.restart_at is not None
            if container.restart_at > limit:
                return container.restart_at
            self._start(container, container.restart_at)

    def _natural_end(self, container: Container, gathered: Gathered) -> float:
        begin: float | None = container.started
        if self.program.waits_for and container in self._regular:
            begin = gathered(container.started)
        return inf if begin is None else max(begin, container.started) + container.seconds

    def _wind_down(self, stop: _Stop, now: float, gathered: Gathered) -> float:
        """What is left between the order to stop and the end; when it goes on."""
        following: list[float] = []
        for container in (*self._regular, *self._init):
            container.restart_at = None
            if container.state != RUNNING:
                continue
            at, exit_code = stop.kill_at, SIGKILL_EXIT
            if not self.program.ignores_sigterm:
                obeyed = stop.at + self.program.stop_delay(container.spec)
                if obeyed <= at:
                    at, exit_code = obeyed, SIGTERM_EXIT
            natural = self._natural_end(container, gathered)
            if natural <= at:
                at, exit_code = natural, container.will_exit
            if at <= now:
                container.end(at, exit_code)
            else:
                following.append(at)
        if following:
            return min(following)
        for container in (*self._regular, *self._init):
            if container.state == NEW:
                container.end(stop.at, SIGKILL_EXIT)
        self.over = True
        return inf

    def _finish(self, at: float) -> None:
        """The regular containers are done: the sidecars may go."""
        for container in self._sidecars:
            if container.state == RUNNING:
                container.end(at, 0)
        self.over = True

    # Telling

    def _probed(self) -> Iterable[Container]:
        return (one for one in (*self._regular, *self._sidecars) if one.state == RUNNING)

    def _ready_at(self, container: Container) -> float:
        delay = self.program.ready_delay
        if delay is None:
            delay = 0.0
            for probe in ("startupProbe", "readinessProbe"):
                said = container.spec.get(probe)
                if said:
                    more = (said.get("successThreshold") or 1) - 1
                    delay += (said.get("initialDelaySeconds") or 0) + more * (said.get("periodSeconds") or 10)
        return container.started + delay

    def _is_ready(self, container: Container) -> bool:
        return container.state == RUNNING and self._ready_at(container) <= self._now

    @property
    def phase(self) -> str:
        """As a kubelet tells it (4.1)."""
        if self.over:
            failed = self._init_failed or (self._stop is not None and self._stop.deadline)
            return "Failed" if failed or any(one.exit_code for one in self._regular) else "Succeeded"
        return "Running" if any(one.state != NEW for one in self._regular) else "Pending"

    def status(self, pod: Object, host: str) -> Object:
        """The pod's status as it is now, `pod` being what the API shows and `host` the node's address."""
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
        if self.over and self._stop is not None and self._stop.deadline:
            new["reason"], new["message"] = "DeadlineExceeded", _DEADLINE_MESSAGE
        new["conditions"] = self._conditions(pod, phase)
        return new

    def _init_ready(self, container: Container) -> bool:
        if container in self._sidecars:
            return self._is_ready(container)
        return container.state == ENDED and container.exit_code == 0 and not container.lost

    def _conditions(self, pod: Object, phase: str) -> list[Object]:
        shown = list((pod.get("status") or {}).get("conditions") or ())
        since = {one.get("type"): one for one in shown}
        stamp = format_time(self._now)
        conditions: list[Object] = []

        def add(kind: str, true: bool, reason: str = "", message: str = "") -> None:
            value = "True" if true else "False"
            new: Object = {"type": kind, "status": value}
            old = since.get(kind)
            kept = old.get("lastTransitionTime") if old is not None and old.get("status") == value else None
            new["lastTransitionTime"] = kept or stamp
            if reason:
                new["reason"] = reason
            if message:
                new["message"] = message
            conditions.append(new)

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
