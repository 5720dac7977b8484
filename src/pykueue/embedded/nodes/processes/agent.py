"""The program that runs the containers of all process nodes: `python -m ...processes.agent FD FD`.

It is process 1 of a process namespace, with mounts and a network of its own, where the user may have these.
When it ends, for whatever reason, the kernel ends every container with it and takes down the network; and it
ends as soon as the program that started it does. It keeps no state and decides nothing: commands to start
processes and send signals arrive over a socket as lines of JSON, and it reports when a process ended.

Without a process namespace it kills the process groups of its containers on shutdown.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pykueue.clock import Clock
from pykueue.embedded.nodes.processes import linux
from pykueue.embedded.nodes.processes.launch import TERMINATION_LOG, Launch, LaunchError
from pykueue.embedded.nodes.processes.limits import Limits, NoLimitsError, own_group
from pykueue.embedded.nodes.processes.logfile import LogFile
from pykueue.embedded.nodes.processes.netlink import Netlink

Message = dict[str, Any]

BRIDGE = "pods"
#: Bytes of a command's output that are kept when it goes to no log.
OUTPUT_LIMIT = 10 * 1024
_CHUNK = 64 * 1024
#: Chunks of one stream that are read before others get their turn.
_TURN = 4


class Isolation(NamedTuple):
    """For each kind of namespace: empty if there is one, else why there is not."""

    processes: str
    mounts: str
    network: str


class _Run:
    """A process that was started, a container's or a command's inside one."""

    def __init__(self, name: str, pid: int, launch: Launch, group: Path | None) -> None:
        self.name = name
        self.pid = pid
        self.launch = launch
        self.group = group
        self.log: LogFile | None = None
        self.output = b""
        self.streams: dict[int, str] = {}
        #: As os.waitpid gives it.
        self.status: int | None = None


def isolate() -> Isolation:
    """Enter namespaces of one's own, each where that is allowed. Processes begin with the next fork."""
    why = ""
    try:
        linux.unshare(linux.CLONE_NEWPID)
    except OSError:
        # Not root here; root in a user namespace of its own.
        why = linux.why_not_root()
        if why:
            return Isolation(why, why, why)
        linux.become_root()
        why = _enter(linux.CLONE_NEWPID, "process namespaces")
    return Isolation(
        why,
        _enter(linux.CLONE_NEWNS, "mount namespaces"),
        _enter(linux.CLONE_NEWNET, "network namespaces"),
    )


def _enter(flag: int, name: str) -> str:
    try:
        linux.unshare(flag)
    except OSError as error:
        return f"{name}: {error.strerror or error}"
    return ""


class Agent:
    """Answers requests and reports exits on one socket, and hands out sockets of its network on another."""

    def __init__(
        self,
        control: socket.socket,
        descriptors: socket.socket,
        isolation: Isolation,
        limits: Limits | None,
        no_limits: str,
    ) -> None:
        self._control = control
        self._descriptors = descriptors
        self._isolation = isolation
        self._clock = Clock()
        self._selector = selectors.DefaultSelector()
        self._runs: dict[str, _Run] = {}
        self._by_pid: dict[int, _Run] = {}
        #: pods' network namespaces, by the pod's uid
        self._networks: dict[str, int] = {}
        self._links = 0
        self._bridge = 0
        self._services = ("", 0)
        self._own = os.pidfd_open(os.getpid())
        self._own_network = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._limits, self._no_limits = limits, no_limits
        self._waiting = b""
        # Each container takes a few; what containers themselves may open stays as it was.
        self._files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def run(self) -> None:
        """Work until the other side of the socket is gone."""
        wake_up, woken = socket.socketpair()
        for one in (wake_up, woken):
            one.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        # Ctrl-C of a terminal reaches the whole foreground group; it is not for us to act on it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(wake_up.fileno(), warn_on_full_buffer=False)
        self._selector.register(woken, selectors.EVENT_READ, lambda: self._reap(woken))
        self._selector.register(self._control, selectors.EVENT_READ, self._read_control)
        try:
            while True:
                for key, _ in self._selector.select():
                    key.data()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            pass
        finally:
            self._end_all()

    # -- the control socket

    def _read_control(self) -> None:
        data = self._control.recv(_CHUNK)
        if not data:
            raise EOFError
        *lines, self._waiting = (self._waiting + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            answer: Message = {"id": request.pop("id")}
            try:
                answer["result"] = getattr(self, "do_" + request.pop("do"))(**request)
            except (LaunchError, OSError) as error:
                answer["error"] = str(error)
                answer["stage"] = error.stage if isinstance(error, LaunchError) else ""
            self._send(answer)

    def _send(self, message: Message) -> None:
        self._control.sendall(json.dumps(message).encode() + b"\n")

    # -- what can be asked for

    def do_begin(
        self, folder: str, gateway: str, prefix: int, services: str, services_prefix: int
    ) -> Message:
        """Set up what all pods share; what there is, and why there is not more. `folder` is an empty one."""
        if not self._isolation.mounts:
            # Every container has a file there: room for it is made once, not for each, where it can be.
            with contextlib.suppress(OSError):
                linux.make_place(TERMINATION_LOG, folder, directory=False)
        network = self._isolation.network
        self._services = (services, services_prefix)
        if not network:
            try:
                with Netlink() as netlink:
                    netlink.set_up(loopback := socket.if_nametoindex("lo"))
                    self._bridge = netlink.add_bridge(BRIDGE, gateway, prefix)
                    netlink.add_local_route(services, services_prefix, loopback)
            except OSError as error:
                network = f"network links: {error.strerror or error}"
        return {
            "processes": self._isolation.processes,
            "mounts": self._isolation.mounts,
            "network": network,
            "limits": self._no_limits,
        }

    def do_connect(self, pod: str, address: str, prefix: int, gateway: str) -> None:
        """Give a pod a network namespace with an address on the bridge."""
        linux.unshare(linux.CLONE_NEWNET)
        try:
            namespace = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            inside = Netlink()
        finally:
            linux.setns(self._own_network, linux.CLONE_NEWNET)
        try:
            self._links += 1
            with Netlink() as netlink, inside:
                netlink.add_pair(f"pod{self._links}", self._bridge, "eth0", namespace, address)
                linux.setns(namespace, linux.CLONE_NEWNET)
                try:
                    for name in ("lo", "eth0"):
                        inside.set_up(socket.if_nametoindex(name))
                    inside.add_address(socket.if_nametoindex("eth0"), address, prefix)
                    # There is no way out: what leads nowhere is refused at once.
                    inside.add_route(*self._services, gateway)
                finally:
                    linux.setns(self._own_network, linux.CLONE_NEWNET)
        except OSError:
            os.close(namespace)
            raise
        self._networks[pod] = namespace

    def do_disconnect(self, pod: str) -> None:
        """The pod is over: its network goes with the last process in it."""
        namespace = self._networks.pop(pod, None)
        if namespace is not None:
            os.close(namespace)

    def do_keep_in_memory(self, folder: str, size: int | None) -> None:
        """Make a folder one in memory, of at most `size` bytes."""
        linux.mount("tmpfs", folder, "tmpfs", 0, "mode=777" + (f",size={size}" if size else ""))

    def do_let_go(self, folder: str) -> None:
        """A folder need no longer be in memory."""
        linux.unmount(folder)

    def do_start(self, run: str, launch: Message, log: str, memory: int | None, cpu: float | None) -> int:
        """Start a container; its exit is reported by the name of the run."""
        group = None
        if self._limits is not None and (memory is not None or cpu is not None):
            group = self._limits.add(run.replace("/", "-"), memory, cpu)
        wanted = Launch(
            **launch,
            network=self._networks.get(launch["pod"]) if launch["pod"] else None,
            group=None if group is None else str(group),
            new_processes=not self._isolation.processes,
            new_mounts=not self._isolation.mounts,
            files=self._files,
        )
        try:
            started = self._fork(run, wanted, group)
        except (LaunchError, OSError):
            if group is not None:
                Limits.remove(group)
            raise
        started.log = LogFile(log)
        return started.pid

    def do_enter(
        self, run: str, inside: str, argv: list[str], given: bool = False, terminal: bool = False
    ) -> int:
        """Start a command in the namespaces of a container; its output is reported with its exit.

        Where three descriptors were sent before, it is `given` those for input and output; all are the same
        if they are a terminal.
        """
        stdio = socket.recv_fds(self._descriptors, 1, 3, socket.MSG_CMSG_CLOEXEC)[1] if given else []
        try:
            return self._enter(run, inside, argv, stdio, terminal)
        finally:
            for fd in stdio:
                os.close(fd)

    def _enter(self, run: str, inside: str, argv: list[str], stdio: list[int], terminal: bool) -> int:
        target = self._runs.get(inside)
        if target is None or target.status is not None:
            raise ProcessLookupError(f"the container of run {inside} does not run")
        wanted = target.launch._replace(
            argv=argv,
            network=None,
            new_processes=False,
            new_mounts=False,
            inside=target.pid,
            entered=_flags(self._isolation),
            terminal=terminal,
        )
        return self._fork(run, wanted, None, stdio).pid

    def do_signal(self, run: str, number: int) -> None:
        """Send a signal to a container, or a command in one; one that is gone is left alone."""
        found = self._runs.get(run)
        if found is None or found.status is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            # What a container started goes with its first process; what a command in it started would stay.
            if self._isolation.processes or found.launch.inside:
                os.killpg(found.pid, number)
            else:
                os.kill(found.pid, number)

    def do_socket(self, kind: str, bind: list[Any] | None) -> None:
        """Hand out a socket (`tcp` or `udp`) of the nodes' network, bound if an address is given."""
        type_ = socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM
        with socket.socket(socket.AF_INET, type_) as made:
            if bind is not None:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                made.bind((bind[0], bind[1]))
                if kind == "tcp":
                    made.listen(128)
            socket.send_fds(self._descriptors, [b"s"], [made.fileno()])

    # -- processes

    def _fork(self, name: str, launch: Launch, group: Path | None, stdio: Sequence[int] = ()) -> _Run:
        if stdio:
            run = _Run(name, launch.fork(self._own, *stdio), launch, group)
        else:
            out, err = os.pipe(), os.pipe()
            run = _Run(name, launch.fork(self._own, None, out[1], err[1]), launch, group)
            os.close(out[1])
            os.close(err[1])
            run.streams = {out[0]: "stdout", err[0]: "stderr"}
        for fd in run.streams:
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ, self._reader(run, fd))
        # The exit may have come already, while the launch was being watched: it is reaped with the signal.
        self._runs[name] = self._by_pid[run.pid] = run
        return run

    def _reader(self, run: _Run, fd: int) -> Callable[[], None]:
        return lambda: self._read(run, fd)

    def _read(self, run: _Run, fd: int, turns: int = _TURN) -> None:
        """Take what a stream has to say; close it when it is over."""
        for _ in range(turns):
            if fd not in run.streams:
                return
            try:
                data = os.read(fd, _CHUNK)
            except BlockingIOError:
                return
            if not data:
                self._close(run, fd)
            elif run.log is not None:
                run.log.write(run.streams[fd], data, self._clock.time())
            else:
                run.output = (run.output + data)[:OUTPUT_LIMIT]

    def _close(self, run: _Run, fd: int) -> None:
        self._selector.unregister(fd)
        os.close(fd)
        stream = run.streams.pop(fd)
        if run.log is not None:
            run.log.end(stream, self._clock.time())
        if not run.streams and run.status is not None:
            self._report(run)

    def _reap(self, woken: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while woken.recv(_CHUNK):
                pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            run = self._by_pid.pop(pid, None)
            if run is not None:
                run.status = status
                self._drain(run)

    def _drain(self, run: _Run) -> None:
        """The process is gone: what it wrote is still to be read, what others go on writing is not."""
        if self._isolation.processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(run.pid, signal.SIGKILL)
        for fd in list(run.streams):
            self._read(run, fd, sys.maxsize)
            if fd in run.streams:
                self._close(run, fd)
        if not run.streams and run.name in self._runs:
            self._report(run)

    def _report(self, run: _Run) -> None:
        if self._runs.pop(run.name, None) is None:
            return
        assert run.status is not None
        code = os.waitstatus_to_exitcode(run.status)
        message: Message = {"exited": run.name, "code": code, "oom": False}
        if run.log is not None:
            run.log.close()
        else:
            message["output"] = run.output.decode(errors="replace")
        if run.group is not None:
            message["oom"] = code == -signal.SIGKILL and Limits.out_of_memory(run.group)
            Limits.remove(run.group)
        self._send(message)

    def _end_all(self) -> None:
        for run in self._runs.values():
            with contextlib.suppress(OSError):
                if self._isolation.processes:
                    os.killpg(run.pid, signal.SIGKILL)
                else:
                    os.kill(run.pid, signal.SIGKILL)
        if self._limits is not None:
            with contextlib.suppress(ChildProcessError):
                while self._by_pid:
                    pid, _ = os.waitpid(-1, 0)
                    self._by_pid.pop(pid, None)
            self._limits.close()


def _flags(isolation: Isolation) -> int:
    """The namespaces that containers have of their own."""
    flags = 0 if isolation.processes else linux.CLONE_NEWPID
    flags |= 0 if isolation.mounts else linux.CLONE_NEWNS | linux.CLONE_NEWUTS
    return flags | (0 if isolation.network else linux.CLONE_NEWNET)


def _open_limits() -> tuple[Limits | None, str]:
    try:
        own = own_group(Path("/proc/self/cgroup").read_text())
        return Limits.open(Path("/sys/fs/cgroup"), own), ""
    except (NoLimitsError, OSError) as error:
        return None, str(error)


def main(arguments: list[str]) -> int:
    """Serve on the two inherited sockets."""
    control, descriptors = (socket.socket(fileno=int(one)) for one in arguments)
    for one in (control, descriptors):
        os.set_inheritable(one.fileno(), False)
    linux.die_with_parent()
    if os.getppid() == 1:
        # The parent process ended before its end could be bound to this process's.
        return 1
    # Before entering a process namespace: there the groups of agents that are gone cannot be identified.
    limits, no_limits = _open_limits()
    isolation = isolate()
    # A change of user id has reset it.
    linux.die_with_parent()
    if not isolation.mounts:
        # What the machine mounts later is seen here too; what is mounted here is not seen elsewhere.
        linux.mount(None, "/", None, linux.MS_REC | linux.MS_SLAVE)
    if isolation.processes:
        linux.adopt_orphans()
        Agent(control, descriptors, isolation, limits, no_limits).run()
        return 0
    pid = os.fork()
    if pid:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        control.close()
        descriptors.close()
        return abs(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    linux.die_with_parent()
    if not isolation.mounts:
        with contextlib.suppress(OSError):
            linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    Agent(control, descriptors, isolation, limits, no_limits).run()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
