"""The load: keep-alive connections that send prepared requests and look only at status and length."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson
from bench.apiserver.server import ServerProcess

WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"


class Target(Protocol):
    """What requests are addressed to."""

    @property
    def host(self) -> str: ...
    @property
    def token(self) -> str: ...


def request(server: Target, method: str, path: str, body: bytes = b"", media: str = "") -> bytes:
    """The bytes of one request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: {server.host}\r\nAuthorization: Bearer {server.token}\r\n"
    if body:
        head += f"Content-Type: {media or 'application/json'}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def workload(name: str) -> bytes:
    """A Workload of one pod set, about a kilobyte once stored."""
    container = {
        "name": "main",
        "image": "registry.example.com/team/trainer:2024-06",
        "resources": {"requests": {"cpu": "500m", "memory": "2Gi"}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return orjson.dumps(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": name, "labels": {"kueue.x-k8s.io/job-uid": name}},
            "spec": {
                "queueName": "user-queue",
                "priority": 0,
                "podSets": [{"name": "main", "count": 3, "template": template}],
            },
        }
    )


def status_patch(number: int) -> bytes:
    """What admitting a workload writes."""
    return orjson.dumps({"status": _admitted(number)})


def status_apply(name: str, number: int) -> bytes:
    """The same for server-side apply, as Kueue's manager does it."""
    kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}
    return orjson.dumps({**kind, "metadata": {"name": name}, "status": _admitted(number)})


def _admitted(number: int) -> dict[str, Any]:
    now = "2026-01-01T00:00:00Z"
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": kind,
            "message": f"change {number}",
            "lastTransitionTime": now,
        }
        for kind in ("QuotaReserved", "Admitted")
    ]
    flavors = [{"name": "main", "count": 3, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1500m"}}]
    admission = {"clusterQueue": "cluster-queue", "podSetAssignments": flavors}
    return {"admission": admission, "conditions": conditions}


@dataclass
class Run:
    """What one load showed."""

    requests: int = 0
    refused: int = 0
    seconds: float = 0.0
    #: The server's CPU seconds.
    cpu: float = 0.0
    latencies: list[float] = field(default_factory=list)

    def report(self) -> dict[str, float]:
        ordered = sorted(self.latencies)
        return {
            "requests": self.requests,
            "refused": self.refused,
            "per_second": round(self.requests / self.seconds, 1),
            "per_cpu_second": round(self.requests / self.cpu, 1) if self.cpu else 0.0,
            "server_cpu_us": round(self.cpu / self.requests * 1e6, 1),
            "p50_ms": round(ordered[len(ordered) // 2] * 1e3, 3),
            "p99_ms": round(ordered[len(ordered) * 99 // 100] * 1e3, 3),
        }


class Connection(asyncio.Protocol):
    """Sends one request after the other; the next when the last is answered."""

    def __init__(self, requests: Iterator[bytes], run: Run, done: asyncio.Future[None]) -> None:
        self._requests, self._run, self._done = requests, run, done
        self._buffer = bytearray()
        self._missing = -1
        self._sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.WriteTransport = transport  # type: ignore[assignment]
        self._next()

    def _next(self) -> None:
        data = next(self._requests, None)
        if data is None:
            self._transport.close()
            if not self._done.done():
                self._done.set_result(None)
            return
        self._sent = time.perf_counter()
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        if self._missing < 0:
            self._buffer += data
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._buffer[:end]).lower()
            start = head.index(b"content-length:") + 15
            length = int(head[start:].split(b"\r\n", 1)[0])
            if head[9:10] != b"2":
                self._run.refused += 1
            self._missing = length - (len(self._buffer) - end - 4)
            self._buffer.clear()
        else:
            self._missing -= len(data)
        if self._missing == 0:
            self._missing = -1
            self._run.requests += 1
            self._run.latencies.append(time.perf_counter() - self._sent)
            self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(error or ConnectionError("the server closed the connection"))


async def drive(server: ServerProcess, requests: Iterator[bytes], connections: int) -> Run:
    """Send all requests over some connections, each as fast as it is answered."""
    loop = asyncio.get_running_loop()
    run = Run()
    ends = [loop.create_future() for _ in range(connections)]
    before, start = server.cpu(), time.perf_counter()
    for end in ends:
        await loop.create_connection(
            lambda end=end: Connection(requests, run, end),  # type: ignore[misc]
            server.host,
            server.port,
            ssl=server.context,
        )
    await asyncio.gather(*ends)
    run.seconds, run.cpu = time.perf_counter() - start, server.cpu() - before
    return run
