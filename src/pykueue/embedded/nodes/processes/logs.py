"""Logs of containers that run as processes: `kubectl logs`, read from the files their agent writes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from pykueue.api.objects import Object
from pykueue.api.resources import PODS
from pykueue.api.times import format_micro_time, parse_time
from pykueue.clock import Clock
from pykueue.embedded.nodes.processes.logfile import put_aside
from pykueue.kube.client import Client
from pykueue.kube.transport import Transport

#: Seconds between looks for more while a log is followed.
POLL = 0.1
#: Bytes handed on at once.
_CHUNK = 256 * 1024
#: Of a log that stands in for a termination message (a kubelet's figures).
LAST_WORDS_LINES = 80
LAST_WORDS_BYTES = 2048


def log_path(folder: Path, uid: str, container: str, run: int) -> Path:
    """Where the log of a container's run is kept."""
    return folder / uid / "logs" / container / f"{run}.log"


def last_words(path: Path) -> str:
    """The end of a log, for a container that left no message of its own."""
    lines: deque[bytes] = deque(maxlen=LAST_WORDS_LINES)
    for line in _stored(path):
        lines.append(_text(line))
    return b"".join(lines)[-LAST_WORDS_BYTES:].decode(errors="replace")


class ProcessLogs:
    """Gives the log of a container, as the API server asks for it (`LogSource`).

    `folder` holds a folder for each pod. Pods that have none there have not said anything.
    """

    def __init__(self, folder: Path, transport: Transport, clock: Clock) -> None:
        self._folder = folder
        self._client = Client(transport, clock=clock)
        self._clock = clock

    async def __call__(self, pod: Object, container: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Its lines, as far as the query asks for them."""
        run = run_asked_for(pod, container, previous=_true(query, "previous"))
        path = log_path(self._folder, pod["metadata"]["uid"], container, run)
        shape = _shape(timestamps=_true(query, "timestamps"))
        left = int(query["limitBytes"]) if query.get("limitBytes") else None
        since = self._since(query)
        reader = _Reader(path)
        try:
            lines: Iterable[bytes] = (line for line in reader.lines() if line[: len(since)] >= since)
            if query.get("tailLines"):
                lines = deque(lines, maxlen=max(0, int(query["tailLines"])))
            while True:
                for chunk in _chunks(shape(line) for line in lines):
                    data = chunk if left is None else chunk[:left]
                    yield data
                    if left is not None:
                        left -= len(data)
                        if left <= 0:
                            return
                if not _true(query, "follow"):
                    return
                over = await self._over(pod, container, run)
                lines = list(reader.lines())
                if not lines:
                    if over:
                        return
                    await self._clock.sleep(POLL)
        finally:
            reader.close()

    def _since(self, query: Mapping[str, str]) -> bytes:
        if query.get("sinceSeconds"):
            return format_micro_time(max(0.0, self._clock.time() - int(query["sinceSeconds"]))).encode()
        if query.get("sinceTime"):
            return format_micro_time(parse_time(query["sinceTime"])).encode()
        return b""

    async def _over(self, pod: Object, container: str, run: int) -> bool:
        """Whether that run writes no more, by what the API shows."""
        metadata = pod["metadata"]
        now = await self._client.find(PODS, metadata["name"], metadata["namespace"])
        if now is None or now["metadata"]["uid"] != metadata["uid"]:
            return True
        status = _status(now, container)
        return (status.get("restartCount") or 0) != run or not (status.get("state") or {}).get("running")


def run_asked_for(pod: Object, container: str, *, previous: bool) -> int:
    """The number of the run whose log is meant: the latest, or the one before it."""
    status = _status(pod, container)
    count = int(status.get("restartCount") or 0)
    waits = "waiting" in (status.get("state") or {})
    return count - 1 if previous and not waits else count


def _status(pod: Object, container: str) -> Object:
    status = pod.get("status") or {}
    for field in ("containerStatuses", "initContainerStatuses"):
        for one in status.get(field) or ():
            if one.get("name") == container:
                return dict(one)
    return {}


def _true(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("1", "true")


def _text(line: bytes) -> bytes:
    """What the container wrote: a part of a line has no end of its own."""
    _, _, tag, text = line.split(b" ", 3)
    return text if tag == b"F" else text[:-1]


def _shape(*, timestamps: bool) -> Callable[[bytes], bytes]:
    if not timestamps:
        return _text
    return lambda line: line.split(b" ", 1)[0] + b" " + _text(line)


def _chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= _CHUNK:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def _stored(path: Path) -> Iterator[bytes]:
    reader = _Reader(path)
    try:
        yield from reader.lines()
    finally:
        reader.close()


class _Reader:
    """Reads a log from its earliest part, and goes on where it stopped, also in the file that comes next."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _open(put_aside(path)) or _open(path)
        self._rest = b""

    def lines(self) -> Iterator[bytes]:
        """Whole lines that were not given before."""
        while True:
            if self._file is None:
                self._file = _open(self._path)
                if self._file is None:
                    return
            while data := self._file.read(_CHUNK):
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    yield line + b"\n"
            current = _open(self._path)
            if current is None:
                return
            if _same(current, self._file):
                current.close()
                return
            self._file.close()
            self._file = current

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _open(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _same(one: BinaryIO, other: BinaryIO) -> bool:
    first, second = os.fstat(one.fileno()), os.fstat(other.fileno())
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)
