"""`python -m bench.writes`: CPU time of the manager's transport for each status patch, over TLS.

A thread of this process answers each request with the same object; the client's thread is measured, with
HTTP/1.1 and with HTTP/2 in turn. Prints the medians over parts of 160 writes, and the least.
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
from typing import Any

import ngh2
import orjson
from cryptography.x509.oid import ExtendedKeyUsageOID

from pykueue.cli.process import run_event_loop
from pykueue.kube.certificates import alternative_names, distinguished_name, issue, new_authority
from pykueue.kube.http import HttpTransport
from pykueue.kube.transport import MERGE_PATCH, Request

#: Writes of a part.
PART = 160
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


class _Http2Answers(asyncio.Protocol):
    """Answers whatever is asked, with HTTP/2."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._engine = ngh2.Connection(ngh2.Role.SERVER, ngh2.Configuration())
        self._engine.initiate_connection()
        self._transport.write(self._engine.data_to_send())

    def data_received(self, data: bytes) -> None:
        self._engine.receive_data(data)
        for event in self._engine.events():
            if isinstance(event, ngh2.DataReceived) and event.end_stream:
                head = [(b":status", b"200"), (b"content-type", b"application/json")]
                self._engine.send_response(event.stream_id, head)
                self._engine.send_data(event.stream_id, _ANSWER, end_stream=True)
        if answers := self._engine.data_to_send():
            self._transport.write(answers)


class _Negotiated(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        agreed = transport.get_extra_info("ssl_object").selected_alpn_protocol()
        protocol = _Http2Answers() if agreed == "h2" else _Answers()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


def _contexts() -> tuple[ssl.SSLContext, str]:
    """TLS of the server, and the authority that clients trust."""
    now, day = datetime.now(UTC), timedelta(days=1)
    authority = new_authority(distinguished_name("bench"), now, day)
    usage, names = ExtendedKeyUsageOID.SERVER_AUTH, alternative_names(["127.0.0.1"])
    issued = issue(authority, distinguished_name("server"), usage, now, day, names)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "server.pem")
        path.write_bytes(issued.key_pem + issued.certificate_pem)
        server.load_cert_chain(path)
    server.set_alpn_protocols(["h2", "http/1.1"])
    return server, authority.certificate_pem.decode()


def _serve(tls: ssl.SSLContext, port: asyncio.Future[int], loop: asyncio.AbstractEventLoop) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Negotiated, "127.0.0.1", 0, ssl=tls)
        loop.call_soon_threadsafe(port.set_result, server.sockets[0].getsockname()[1])
        await server.serve_forever()

    run_event_loop(serve())


async def measure(parts: int, at_once: int) -> dict[str, list[float]]:
    """Microseconds of CPU for a write by protocol, one figure for each part; the first part warms up."""
    server, authority = _contexts()
    loop = asyncio.get_running_loop()
    port: asyncio.Future[int] = loop.create_future()
    threading.Thread(target=_serve, args=(server, port, loop), daemon=True).start()
    address = f"https://127.0.0.1:{await port}"
    transports = {
        name: HttpTransport(
            address, ssl=ssl.create_default_context(cadata=authority), token="t" * 300, http2=name == "HTTP/2"
        )
        for name in ("HTTP/1.1", "HTTP/2")
    }

    async def write(transport: HttpTransport) -> None:
        for number in range(PART // at_once):
            path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads/workload-{number}/status"
            await transport.call(Request("PATCH", path, body={"status": _STATUS}, content_type=MERGE_PATCH))

    figures: dict[str, list[float]] = {name: [] for name in transports}
    for _ in range(parts + 1):
        for name, transport in transports.items():
            began = time.thread_time()
            await asyncio.gather(*(write(transport) for _ in range(at_once)))
            figures[name].append((time.thread_time() - began) / (PART // at_once * at_once) * 1e6)
    for transport in transports.values():
        await transport.close()
    return {name: each[1:] for name, each in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.writes", description=__doc__)
    parser.add_argument("--parts", type=int, default=20, help="parts of 160 writes")
    parser.add_argument("--at-once", type=int, default=16, help="writes under way at the same time")
    options = parser.parse_args()
    for name, figures in run_event_loop(measure(options.parts, options.at_once)).items():
        least, median = min(figures), statistics.median(figures)
        print(f"{name}: {median:.0f} us of CPU for each write; least {least:.0f} us")


if __name__ == "__main__":
    main()
