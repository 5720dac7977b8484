"""Starting one process: into which namespaces, with which mounts, as which command."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import signal
import socket
import termios
from typing import Any, NamedTuple, NoReturn

from pykueue.embedded.nodes.processes import linux

#: Where containers leave their last words unless they say otherwise.
TERMINATION_LOG = "/dev/termination-log"
#: Steps of a launch, as errors name them.
PREPARE, EXECUTE = "prepare", "execute"


class LaunchError(Exception):
    """The process could not be started: `stage` is PREPARE or EXECUTE, the text says why."""

    def __init__(self, stage: str, text: str) -> None:
        super().__init__(text)
        self.stage = stage


class Launch(NamedTuple):
    """What to start and where."""

    #: The uid of the pod whose network it gets; empty for the nodes' network.
    pod: str
    argv: list[str]
    environment: dict[str, str]
    #: The working directory.
    folder: str
    hostname: str | None
    #: source, target and readOnly of each mount, parents before children
    mounts: list[dict[str, Any]]
    #: An empty folder for mount points that the machine's file system lacks.
    stage: str
    #: A descriptor of the pod's network namespace.
    network: int | None
    group: str | None
    new_processes: bool
    new_mounts: bool
    #: How many files it may have open.
    files: int
    #: The process whose namespaces are entered.
    inside: int = 0
    #: Which of its namespaces.
    entered: int = 0
    #: Whether its input and output are a terminal, which is to be its own.
    terminal: bool = False

    def fork(self, own: int, given: int | None, out: int, err: int) -> int:
        """Start it; its process id. `own` is the pidfd of this process. LaunchError, OSError.

        It reads from `given`, or nothing, and writes to `out` and `err`.
        """
        reading, writing = os.pipe()
        target = os.pidfd_open(self.inside) if self.inside else None
        try:
            if self.new_processes:
                linux.unshare(linux.CLONE_NEWPID)
            elif target is not None and self.entered & linux.CLONE_NEWPID:
                linux.setns(target, linux.CLONE_NEWPID)
            try:
                pid = os.fork()
                if pid == 0:
                    self._child(target, writing, (given, out, err))
            finally:
                if self.new_processes or self.entered & linux.CLONE_NEWPID:
                    linux.setns(own, linux.CLONE_NEWPID)
        finally:
            os.close(writing)
            if target is not None:
                os.close(target)
        with os.fdopen(reading, "rb") as pipe:
            # Closed by a successful exec: nothing to read.
            text = pipe.read()
        if text:
            os.waitpid(pid, 0)
            raise LaunchError(*json.loads(text))
        return pid

    def _child(self, target: int | None, writing: int, stdio: tuple[int | None, int, int]) -> NoReturn:
        stage = PREPARE
        try:
            self._settle(target, stdio)
            stage = EXECUTE
            os.execvpe(self.argv[0], self.argv, self.environment)
        except FileNotFoundError as error:
            what = f"{error.strerror}: {error.filename or self.argv[0]}" if stage == PREPARE else ""
            where = "" if "/" in self.argv[0] else " in $PATH"
            text = what or f'exec: "{self.argv[0]}": executable file not found{where}'
            os.write(writing, json.dumps([stage, text]).encode())
        except OSError as error:
            what = f'exec: "{self.argv[0]}": ' if stage == EXECUTE else ""
            os.write(writing, json.dumps([stage, f"{what}{error.strerror or error}"]).encode())
        except BaseException as error:
            os.write(writing, json.dumps([stage, repr(error)]).encode())
        finally:
            os._exit(127)

    def _settle(self, target: int | None, stdio: tuple[int | None, int, int]) -> None:
        """Become what the process is to be, short of its program."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGCHLD, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        linux.die_with_parent()
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (self.files, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        )
        os.setsid()
        for fd, source in enumerate(stdio):
            os.dup2(os.open(os.devnull, os.O_RDONLY) if source is None else source, fd)
        if self.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if self.group is not None:
            with open(f"{self.group}/cgroup.procs", "w") as file:
                file.write("0")
        if target is not None and self.entered & ~linux.CLONE_NEWPID:
            linux.setns(target, self.entered & ~linux.CLONE_NEWPID)
        if self.network is not None:
            linux.setns(self.network, linux.CLONE_NEWNET)
        if self.new_mounts:
            linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWUTS)
            if self.hostname:
                socket.sethostname(self.hostname)
            self._mount()
        os.chdir(self.folder)
        os.umask(0o022)

    def _mount(self) -> None:
        linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
        for one in self.mounts:
            linux.make_place(one["target"], self.stage, directory=os.path.isdir(one["source"]))
        linux.make_place(self.folder, self.stage, directory=True)
        # A mount may hide the sources of those after it: descriptors are found by what they are.
        sources = [(os.open(one["source"], os.O_PATH), one) for one in self.mounts]
        for fd, one in sources:
            linux.bind(f"/proc/self/fd/{fd}", one["target"], read_only=one["readOnly"])
        if self.new_processes:
            # Where the machine hides parts of /proc a new one is refused; the old one must do then.
            with contextlib.suppress(OSError):
                linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
