"""`python -m bench.writes`: CPU time of the manager's transport for each status patch, over TLS.

A thread of this process answers each request with the same object; the client's thread is measured, 16 writes
at a time. Prints the median over parts of 160 writes, and the least.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import statistics
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
from cryptography.x509.oid import ExtendedKeyUsageOID

from pykueue.cli.process import run_event_loop
from pykueue.kube.certificates import alternative_names, distinguished_name, issue, new_authority
from pykueue.kube.http import HttpTransport
from pykueue.kube.transport import MERGE_PATCH, Request

AT_ONCE, PART = 16, 10
_STATUS = {"conditions": [{"type": "QuotaReserved", "status": "True", "message": "m" * 60}] * 3}
_ANSWER = orjson.dumps(
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "workload", "namespace": "default", "resourceVersion": "1"},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]},
        "status": _STATUS,
    }
)


class _Answers(asyncio.Protocol):
    """Answers whatever is asked."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if end and len(body) >= int(length):
            self._received = b""
            answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            self._transport.write(answer % len(_ANSWER) + _ANSWER)  # type: ignore[attr-defined]


def _contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS of the server, and of a client that trusts it."""
    now, day = datetime.now(UTC), timedelta(days=1)
    authority = new_authority(distinguished_name("bench"), now, day)
    usage, names = ExtendedKeyUsageOID.SERVER_AUTH, alternative_names(["127.0.0.1"])
    issued = issue(authority, distinguished_name("server"), usage, now, day, names)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "server.pem")
        path.write_bytes(issued.key_pem + issued.certificate_pem)
        server.load_cert_chain(path)
    return server, ssl.create_default_context(cadata=authority.certificate_pem.decode())


def _serve(tls: ssl.SSLContext, port: asyncio.Future[int], loop: asyncio.AbstractEventLoop) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Answers, "127.0.0.1", 0, ssl=tls)
        loop.call_soon_threadsafe(port.set_result, server.sockets[0].getsockname()[1])
        await server.serve_forever()

    run_event_loop(serve())


async def measure(parts: int) -> list[float]:
    """Microseconds of CPU for a write, one figure for each part; the first part warms up."""
    server, client = _contexts()
    loop = asyncio.get_running_loop()
    port: asyncio.Future[int] = loop.create_future()
    threading.Thread(target=_serve, args=(server, port, loop), daemon=True).start()
    transport = HttpTransport(f"https://127.0.0.1:{await port}", ssl=client, token="t" * 300)

    async def write() -> None:
        for number in range(PART):
            path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads/workload-{number}/status"
            await transport.call(Request("PATCH", path, body={"status": _STATUS}, content_type=MERGE_PATCH))

    figures = []
    for _ in range(parts + 1):
        began = time.thread_time()
        await asyncio.gather(*(write() for _ in range(AT_ONCE)))
        figures.append((time.thread_time() - began) / (AT_ONCE * PART) * 1e6)
    await transport.close()
    return figures[1:]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.writes", description=__doc__)
    parser.add_argument("--parts", type=int, default=20, help="parts of 160 writes")
    figures = run_event_loop(measure(parser.parse_args().parts))
    print(f"{statistics.median(figures):.0f} us of CPU for each write; least {min(figures):.0f} us")


if __name__ == "__main__":
    main()
