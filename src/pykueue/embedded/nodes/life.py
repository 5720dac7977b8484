"""The life of one simulated pod, from its binding to its end.

What happens is fixed by the pod's program and a few instants; `advance` carries it on to a given time.
Source: docs/reference/cluster-workloads.md, 4.1 and 4.5. Times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from pykueue.api.objects import Object
from pykueue.embedded.nodes.behaviour import Program
from pykueue.embedded.nodes.commands import FOREVER, understand
from pykueue.embedded.nodes.containers import (
    CRASH_EXIT,
    NEW,
    RUNNING,
    SIGKILL_EXIT,
    SIGTERM_EXIT,
    Container,
)
from pykueue.embedded.nodes.podstate import DEADLINE, PodState, Stop

#: When enough siblings ran at once, at or after a time; None while that is open.
Gathered = Callable[[float], float | None]


class PodLife(PodState):
    """One pod on its node."""

    def __init__(self, pod: Object, program: Program) -> None:
        super().__init__(pod, "sim")
        self.program = program
        #: Whether the node has crashed and is not back, and when it was back the last time.
        self._crashed = False
        self._resumed = -inf
        for container in self.containers:
            if container.state == RUNNING:
                container.seconds, container.will_exit = self._outcome(container)

    # Living

    def advance(self, now: float, gathered: Gathered) -> float | None:
        """Let everything happen that is due by `now`; the time of what comes next, None if nothing will."""
        self._now = now
        if self.over:
            return None
        if self._crashed:
            self._crashed, self._resumed = False, now
        if self.acknowledged is None:
            self.acknowledged = now
        following: list[float] = []
        deadline = self._spec.get("activeDeadlineSeconds")
        if deadline is not None and self._stop is None:
            at = self.acknowledged + deadline
            if now >= at:
                self._stop = Stop(at, at + self._grace, ending=DEADLINE)
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

    def crash(self, at: float, gathered: Gathered) -> None:
        """The node has crashed, and with it everything that ran; the next `advance` is its return."""
        if self._crashed or self.acknowledged is None:
            return
        self.advance(at, gathered)
        if self.over:
            return
        self._crashed = True
        for container in self.containers:
            container.restart_at = None
            if container.state == RUNNING:
                container.end(at, CRASH_EXIT, "Unknown")

    def shift(self, seconds: float) -> None:
        super().shift(seconds)
        self._resumed += seconds

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
        begin = max(self.acknowledged + self.program.start_delay, self._resumed)
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
                container.restart_at = max(container.back_off(), self._resumed)
            if container.restart_at > limit:
                return container.restart_at
            self._start(container, container.restart_at)

    def _natural_end(self, container: Container, gathered: Gathered) -> float:
        begin: float | None = container.started
        if self.program.waits_for and container in self._regular:
            begin = gathered(container.started)
        return inf if begin is None else max(begin, container.started) + container.seconds

    def _wind_down(self, stop: Stop, now: float, gathered: Gathered) -> float:
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
                specified = container.spec.get(probe)
                if specified:
                    more = (specified.get("successThreshold") or 1) - 1
                    delay += (specified.get("initialDelaySeconds") or 0) + more * (
                        specified.get("periodSeconds") or 10
                    )
        return container.started + delay

    def _is_ready(self, container: Container) -> bool:
        return container.state == RUNNING and self._ready_at(container) <= self._now
