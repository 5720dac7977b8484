"""One container of a pod: which run it is in, and what its status says of it."""

from __future__ import annotations

from pykueue.api.backoff import exponential_delay
from pykueue.api.objects import Object
from pykueue.api.times import format_time, parse_time
from pykueue.embedded.nodes.commands import FOREVER

#: Seconds before the second restart; doubles with each up to the largest
#: (docs/reference/cluster-workloads.md,
#: 4.1).
BACKOFF_BASE = 10.0
BACKOFF_CAP = 300.0
#: A run of at least so many seconds resets the back-off.
BACKOFF_RESET = 600.0

SIGKILL_EXIT = 137
SIGTERM_EXIT = 143
#: Of a container that ended with its node.
CRASH_EXIT = 255

NEW, RUNNING, ENDED = "new", "running", "ended"


class Container:
    """Times are seconds since 1970."""

    __slots__ = (
        "backoff",
        "cause",
        "ended",
        "exit_code",
        "held",
        "image",
        "last",
        "lost",
        "name",
        "note",
        "passed_startup",
        "restart_at",
        "restarts",
        "scheme",
        "seconds",
        "spec",
        "started",
        "state",
        "will_exit",
    )

    def __init__(self, spec: Object, scheme: str) -> None:
        self.spec = spec
        #: What its ids begin with.
        self.scheme = scheme
        self.name: str = spec.get("name") or ""
        self.image: str = spec.get("image") or ""
        self.state = NEW
        self.restarts = 0
        #: Seconds of the last back-off.
        self.backoff = 0.0
        self.started = 0.0
        self.ended = 0.0
        self.exit_code = 0
        #: Why it ended and what there is to say of it, where the exit code does not tell.
        self.cause = ""
        self.note = ""
        #: Reason and message of why it cannot be started, while that is so.
        self.held: tuple[str, str] | None = None
        #: Whether the current run is past its startup probe.
        self.passed_startup = True
        #: When the next run begins, after one that has ended and is to be repeated.
        self.restart_at: float | None = None
        #: What the current run was going to come to.
        self.seconds = FOREVER
        self.will_exit = 0
        #: The terminated state of the run before this one.
        self.last: Object | None = None
        #: Whether it was ended without ever having been started.
        self.lost = False

    # Running

    def start(self, at: float, seconds: float, exit_code: int) -> None:
        """Begin a run that will take so long and end so."""
        if self.state == ENDED:
            self.last = self._terminated()
            self.restarts += 1
        self.state = RUNNING
        self.started = at
        self.restart_at = None
        self.held = None
        self.cause = self.note = ""
        self.seconds, self.will_exit = seconds, exit_code

    def end(self, at: float, exit_code: int, cause: str = "", note: str = "") -> None:
        """The run is over; a container that never ran is over too."""
        if self.state == NEW:
            self.lost = True
            self.started = at
        self.state = ENDED
        self.ended = at
        self.exit_code = exit_code
        self.cause, self.note = cause, note

    def shift(self, seconds: float) -> None:
        """Move all times after a jump of the wall clock: what lasts some seconds still lasts them."""
        self.started += seconds
        self.ended += seconds
        if self.restart_at is not None:
            self.restart_at += seconds

    def back_off(self) -> float:
        """Plan the next run; returns when it begins. The first restart comes at once."""
        if self.ended - self.started >= BACKOFF_RESET or self.restarts == 0:
            self.backoff = 0.0
        elif self.backoff == 0.0:
            self.backoff = BACKOFF_BASE
        else:
            self.backoff = min(BACKOFF_CAP, self.backoff * 2)
        self.restart_at = self.ended + self.backoff
        return self.restart_at

    @property
    def backs_off(self) -> bool:
        """Whether the container waits between two runs."""
        return self.state == ENDED and self.restart_at is not None and self.backoff > 0

    # As the API shows it

    def status(self, uid: str, waiting: str, *, ready: bool) -> Object:
        """The container's status; `waiting` is why it has not started, where it has not."""
        state: Object
        last = self.last
        if self.state == RUNNING:
            state = {"running": {"startedAt": format_time(self.started)}}
        elif self.held is not None:
            state = {"waiting": {"reason": self.held[0], "message": self.held[1]}}
            last = self._terminated() if self.state == ENDED else last
        elif self.state == NEW:
            state = {"waiting": {"reason": waiting}}
        elif self.backs_off:
            message = f"back-off {int(self.backoff)}s restarting failed container={self.name}"
            state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
            last = self._terminated()
        else:
            state = {"terminated": self._terminated()}
        ran = self.state != NEW and not self.lost
        status: Object = {
            "name": self.name,
            "image": self.image,
            "imageID": f"{self.scheme}://{self.image}" if ran else "",
            "ready": ready,
            "started": self.state == RUNNING and self.passed_startup,
            "restartCount": self.restarts,
            "state": state,
            "lastState": {} if last is None else {"terminated": last},
        }
        if ran:
            status["containerID"] = f"{self.scheme}://{uid}/{self.name}/{self.restarts}"
        return status

    def _terminated(self) -> Object:
        if self.lost:
            reason = "ContainerStatusUnknown"
        else:
            reason = self.cause or ("Completed" if self.exit_code == 0 else "Error")
        found: Object = {"exitCode": self.exit_code, "reason": reason, "finishedAt": format_time(self.ended)}
        if self.note:
            found["message"] = self.note
        if not self.lost:
            found["startedAt"] = format_time(self.started)
        return found

    def restore(self, status: Object) -> None:
        """Take over what the API shows, where nothing else is known; times are whole seconds there."""
        state = status.get("state") or {}
        self.restarts = status.get("restartCount") or 0
        self.last = (status.get("lastState") or {}).get("terminated")
        if self.restarts > 1:
            self.backoff = exponential_delay(BACKOFF_BASE, BACKOFF_CAP, self.restarts - 2)
        if state.get("running"):
            self.state = RUNNING
            self.started = parse_time(state["running"]["startedAt"])
        elif state.get("terminated"):
            self._restore_end(state["terminated"])
        elif (state.get("waiting") or {}).get("reason") == "CrashLoopBackOff" and self.last:
            self._restore_end(self.last)
            self.last = None
            self.back_off()

    def _restore_end(self, terminated: Object) -> None:
        self.state = ENDED
        self.exit_code = terminated.get("exitCode") or 0
        self.cause, self.note = terminated.get("reason") or "", terminated.get("message") or ""
        self.lost = terminated.get("reason") == "ContainerStatusUnknown"
        self.ended = parse_time(terminated["finishedAt"]) if terminated.get("finishedAt") else 0.0
        self.started = parse_time(terminated["startedAt"]) if terminated.get("startedAt") else self.ended
