"""`python -m bench.apiserver.requests`: CPU time of single requests inside the API server.

The bytes of requests are fed to connections whose transport drops the answers: store in memory, no TLS, no
sockets, garbage collection off. Times are of the thread's CPU, so other processes matter little. With
`--beside` another clone that has this benchmark takes the same requests in turn, in a separate process, and
the ratios of the pairs are printed; with `--compiled` the modules that can be compiled take turns with those
of Python. With `--manager` the requests are those of the manager's own account on a server with its webhooks,
which spare it by its name; alone it takes turns with an administrator's requests.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
import uvloop
from bench.apiserver.load import WORKLOADS, request, status_apply, status_patch, workload
from bench.end_to_end.account import NAME, NAMESPACE, objects_of_manager, token_request

from pykueue.api.crds import crds
from pykueue.api.objects import Object
from pykueue.api.resources import MUTATING_WEBHOOKS, SERVICE_ACCOUNTS, VALIDATING_WEBHOOKS, Resource
from pykueue.embedded.apiserver.auth.authentication import Authenticator
from pykueue.embedded.apiserver.http.front import HttpFront
from pykueue.embedded.apiserver.http.listening import ADMIN
from pykueue.embedded.apiserver.server import Server
from pykueue.manager.configuration import Configuration
from pykueue.manager.install.admission import webhook_configurations
from pykueue.manager.install.options import Options

PODS: Final = "/api/v1/namespaces/default/pods"
CONNECTIONS: Final = 32
OBJECTS: Final = 500
LISTED: Final = 10_000
#: What is sent, and how many of them make one measurement.
OPERATIONS: Final = {"create": 200, "pod": 200, "patch": 200, "apply": 200, "get": 200, "list": 2}


class _Target(NamedTuple):
    host: str
    token: str


_TARGET: Final = _Target("127.0.0.1", "x" * 32)


def _pod(name: str) -> bytes:
    resources = {"requests": {"cpu": "500m", "memory": "2Gi"}}
    container = {"name": "main", "image": "busybox", "resources": resources}
    return orjson.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
    )


def _message(target: _Target, operation: str, number: int) -> bytes:
    """The bytes of a request; the number makes it differ from all others."""
    name = f"s-{number % OBJECTS}"
    at = f"{WORKLOADS}/{name}"
    match operation:
        case "create":
            return request(target, "POST", WORKLOADS, workload(f"c-{number}"))
        case "pod":
            return request(target, "POST", PODS, _pod(f"c-{number}"))
        case "patch":
            return request(
                target, "PATCH", f"{at}/status", status_patch(number), "application/merge-patch+json"
            )
        case "apply":
            path = f"{at}/status?fieldManager=kueue-admission&force=true"
            return request(target, "PATCH", path, status_apply(name, number), "application/apply-patch+yaml")
        case "get":
            return request(target, "GET", at)
        case _:
            return request(target, "GET", f"{WORKLOADS}?limit={LISTED}")


def _webhooks() -> Iterator[tuple[Resource, Object]]:
    """The manager's registrations. Nothing answers: they do not ask about its own requests."""
    resources = {one.kind: one for one in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)}
    for obj in webhook_configurations(Options(Configuration(), configuration_text="")):
        yield resources[obj["kind"]], obj


class _Dropped(asyncio.Transport):
    """A transport that drops what is written, and calls `answered` for each answer."""

    def __init__(self, answered: Callable[[bytes], None]) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self._answered = answered

    def write(self, data: Any) -> None:
        if bytes(data[:5]) == b"HTTP/":
            self._answered(bytes(data[:600]))

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def is_closing(self) -> bool:
        return False


class Bench:
    """A server with objects, and what it takes to answer one operation."""

    def __init__(self, operation: str, manager: bool) -> None:
        self._operation = operation
        self._manager = manager
        self._target = _TARGET
        self._number = 0
        self._missing = 0
        self._done: asyncio.Future[None] | None = None
        self._connections: list[Any] = []

    async def start(self) -> None:
        server = Server(rng=random.Random(1))
        await server.start()
        await server.install_crds(crds())
        authenticator = Authenticator(server.core, bytes(32), {_TARGET.token: ADMIN})
        front = HttpFront(server.pipeline, authenticator)
        for _ in range(CONNECTIONS):
            connection = front.connect()
            connection.connection_made(_Dropped(self._answered))
            self._connections.append(connection)
        if self._manager:
            for resource, obj in (*objects_of_manager(), *_webhooks()):
                path = resource.path(obj["metadata"].get("namespace", ""))
                await self._send([request(_TARGET, "POST", path, orjson.dumps(obj))])
            account = server.core.find_settled("", SERVICE_ACCOUNTS.plural, NAMESPACE, NAME)
            assert account is not None
            token = authenticator.issue(account, token_request())["status"]["token"]
            self._target = _Target(_TARGET.host, token)
        count = LISTED if self._operation == "list" else OBJECTS
        await self._send([request(self._target, "POST", WORKLOADS, workload(f"s-{n}")) for n in range(count)])
        await self.seconds(OPERATIONS[self._operation])
        gc.collect()
        gc.freeze()
        gc.disable()

    def _answered(self, answer: bytes) -> None:
        self._missing -= 1
        assert self._done is not None
        if answer[9:10] != b"2" and not self._done.done():
            self._done.set_exception(RuntimeError(answer.decode()))
        if not self._missing and not self._done.done():
            self._done.set_result(None)

    async def _send(self, messages: list[bytes]) -> None:
        for start in range(0, len(messages), CONNECTIONS):
            part = messages[start : start + CONNECTIONS]
            self._missing, self._done = len(part), asyncio.get_running_loop().create_future()
            for connection, message in zip(self._connections, part, strict=False):
                connection.data_received(message)
            await self._done

    async def seconds(self, count: int) -> float:
        """CPU seconds of that many requests."""
        messages = [_message(self._target, self._operation, self._number + n) for n in range(count)]
        self._number += count
        start = time.thread_time()
        await self._send(messages)
        return time.thread_time() - start


async def serve(operation: str, manager: bool) -> None:
    """One measurement, in µs per request, for each line of the standard input."""
    bench = Bench(operation, manager)
    await bench.start()
    count = OPERATIONS[operation]
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(await bench.seconds(count) / count * 1e6, flush=True)


class Side(NamedTuple):
    """What is measured."""

    clone: Path
    #: Where its package is.
    source: Path
    manager: bool


class Served:
    """A process that measures in a clone."""

    def __init__(self, side: Side, operation: str) -> None:
        clone, source, manager = side
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": f"{source}:{clone}"}
        self._process = subprocess.Popen(
            [
                sys.executable,
                *("-m", "bench.apiserver.requests", "--serve", operation),
                *(["--manager"] if manager else []),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=clone,
            env=environment,
        )
        if self._answer() != "ready":
            raise RuntimeError(f"{clone}: the benchmark did not start")

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def measure(self) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._answer())

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


def compare(operation: str, sides: list[Side], repeats: int) -> str:
    """Minima and medians in µs per request; of two sides, ratios too."""
    served = [Served(side, operation) for side in sides]
    try:
        times: list[list[float]] = [[] for _ in sides]
        for turn in range(repeats):
            order = list(enumerate(served))
            for index, each in reversed(order) if turn % 2 else order:
                times[index].append(each.measure())
    finally:
        for each in served:
            each.stop()
    cells = [f"{operation:8}", *(f"{min(found):9.1f}{statistics.median(found):9.1f}" for found in times)]
    if len(times) > 1:
        ratios = sorted(mine / other for mine, other in zip(*times, strict=True))
        quarter = len(ratios) // 4
        cells.append(f"{min(times[0]) / min(times[1]):9.3f}{statistics.median(ratios):9.3f}")
        cells.append(f"  {ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f}")
    return "".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.apiserver.requests", description=__doc__)
    parser.add_argument("operations", nargs="*", choices=[*OPERATIONS, []])
    parser.add_argument("--beside", type=Path, help="another clone of the repository")
    parser.add_argument(
        "--compiled",
        type=Path,
        metavar="LIB",
        help="the compiled package beside Python: build/compiled/lib",
    )
    parser.add_argument("--manager", action="store_true", help="as the manager, with its webhooks registered")
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve(options.operations[0], options.manager))
        return
    here = Path(__file__).parents[2]
    plain = Side(here, here / "src", options.manager)
    sides = [plain]
    if options.compiled:
        sides = [plain._replace(source=options.compiled.absolute()), plain]
    elif options.beside:
        clone = options.beside.absolute()
        sides.append(Side(clone, clone / "src", options.manager))
    elif options.manager:
        sides.append(plain._replace(manager=False))
    titles = "µs          min   median"
    if len(sides) > 1:
        titles += "     other's        ratio: min   median  quartiles"
    print(titles)
    for operation in options.operations or OPERATIONS:
        print(compare(operation, sides, options.repeats), flush=True)


if __name__ == "__main__":
    main()
