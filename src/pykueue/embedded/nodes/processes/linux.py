"""The system calls of Linux that Python 3.11 does not offer: namespaces, mounts, dying with one's parent.

All of them raise OSError.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import tempfile
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x1, 0x2, 0x4, 0x8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE = 0x20, 0x1000, 0x4000, 0x40000, 0x80000
_MNT_DETACH = 0x2
#: Flags of a mount that a user namespace may not take away when it mounts again.
_LOCKED = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _text(value: str | None) -> bytes | None:
    return None if value is None else os.fsencode(value)


def unshare(flags: int) -> None:
    """Leave the caller's namespaces of these kinds for new ones."""
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int, flags: int) -> None:
    """Enter the namespace of a file descriptor, or those of a process by its pidfd."""
    _check(_libc.setns(fd, flags), "setns")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2)."""
    result = _libc.mount(_text(source), _text(target), _text(kind), ctypes.c_ulong(flags), _text(data))
    _check(result, f"mount on {target}")


def unmount(target: str) -> None:
    """Detach a mount, now or as soon as it is not busy any more."""
    _check(_libc.umount2(_text(target), _MNT_DETACH), f"unmount of {target}")


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    """Make what is at `source` be at `target` too."""
    mount(source, target, None, MS_BIND | MS_REC)
    if read_only:
        kept = os.statvfs(target).f_flag & _LOCKED
        mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def die_with_parent() -> None:
    """Be killed as soon as the thread that made this process ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def adopt_orphans() -> None:
    """Become the parent of whatever descendants lose theirs."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def become_root() -> None:
    """Enter a user namespace in which the caller is root and no other user is mapped."""
    user, group = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def why_not_root() -> str:
    """Why `become_root` would fail, if it would. It is tried by another process: it fails for good."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become_root()
            # Some systems allow a user namespace, but no privileges in it.
            unshare(CLONE_NEWNS)
            mount(None, "/", None, MS_REC | MS_SLAVE)
        except OSError as error:
            reason = (
                "none are left (user.max_user_namespaces)" if error.errno == errno.ENOSPC else error.strerror
            )
            os.write(writing, f"user namespaces: {reason or error}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        why = pipe.read().decode()
    os.waitpid(pid, 0)
    return why


def make_place(target: str, stage: str, *, directory: bool) -> None:
    """See to it that something can be mounted at `target`, without a change to the machine's files.

    Where nothing is there, the nearest folder above is replaced, for this mount namespace only, by one in
    memory that shows the same entries and has room for more. `stage` is a folder to build it in.
    """
    if os.path.isdir(target) if directory else os.path.lexists(target):
        return
    above = os.path.dirname(target)
    while not os.path.isdir(above):
        above = os.path.dirname(above)
    _shadow(above, tempfile.mkdtemp(dir=stage))
    if directory:
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))


def _shadow(folder: str, stage: str) -> None:
    """Replace a folder by one in memory with the same entries."""
    mount("tmpfs", stage, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    with os.scandir(folder) as entries:
        for entry in entries:
            copy = os.path.join(stage, entry.name)
            # What cannot be shown is left out: a container that needs it will say so.
            with contextlib.suppress(OSError):
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), copy)
                    continue
                if entry.is_dir():
                    os.mkdir(copy)
                else:
                    os.close(os.open(copy, os.O_CREAT | os.O_WRONLY, 0o644))
                mount(entry.path, copy, None, MS_BIND | MS_REC)
    if folder == "/":
        _enter_root(stage)
    else:
        mount(stage, folder, None, MS_BIND | MS_REC)


def _enter_root(folder: str) -> None:
    os.chdir(folder)
    number = _SYS_PIVOT_ROOT.get(os.uname().machine)
    # The root of an initial file system cannot be exchanged; there changing one's root is the next best.
    if number is not None and _libc.syscall(number, b".", b".") == 0:
        unmount(".")
    else:
        os.chroot(".")
    os.chdir("/")
