"""Services as pods find them: the addresses behind names, and connections to cluster addresses.

A name server answers for the cluster's domain, as docs/reference/cluster-workloads.md 4.3 says which names
there
are. Connections to a Service's cluster address are accepted here and passed on to one of its pods, TCP only.
Endpoints are read from the API on each request; there is no state to keep up to date.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
import struct
from collections.abc import Iterator
from functools import partial
from typing import Any

from pykueue.api.objects import Object, is_deleting
from pykueue.api.pods import is_ready
from pykueue.embedded.nodes.processes.host import CLUSTER_DOMAIN, GATEWAY
from pykueue.embedded.nodes.processes.link import AgentError, Link
from pykueue.kube.informer import Informer

DNS_PORT = 53
#: Seconds for which an answer may be kept: pods come and go.
_TTL = 5
#: Addresses in one answer: as many as a packet of 512 bytes has room for.
_ANSWERS = 24
_TYPE_A, _TYPE_AAAA, _CLASS_IN = 1, 28, 1
_NO_ERROR, _FORMAT_ERROR, _NO_SUCH_NAME, _NOT_IMPLEMENTED = 0, 1, 3, 4
_TERMINAL = ("Succeeded", "Failed")
_CHUNK = 64 * 1024

log = logging.getLogger(__name__)


class Directory:
    """Which pods are behind which Service. Reads caches of Services and Pods."""

    def __init__(self, services: Informer, pods: Informer) -> None:
        self._services = services
        self._pods = pods
        pods.add_index("namespace", lambda pod: [pod["metadata"]["namespace"]])
        self._turns = itertools.count()

    def lookup(self, name: str) -> list[str] | None:
        """The IPv4 addresses of a full name, without the dot at its end; None if there is no such name."""
        labels = name.lower().split(".")
        domain = CLUSTER_DOMAIN.split(".")
        if labels[-len(domain) :] != domain:
            return None
        match labels[: -len(domain)]:
            case [service, namespace, "svc"]:
                return self._of_service(namespace, service)
            case [host, service, namespace, "svc"]:
                return self._of_host(namespace, service, host)
            case [address, _namespace, "pod"] if address.count("-") == 3:
                return [address.replace("-", ".")]
        return None

    def _of_service(self, namespace: str, name: str) -> list[str] | None:
        service: Object | None = self._services.get(namespace, name)
        if service is None:
            return None
        address = service["spec"].get("clusterIP") or ""
        if address and address != "None":
            return [address]
        found = [pod["status"]["podIP"] for pod in self.pods_of(service)]
        # Each answer begins with another one, so that the load is shared.
        turn = next(self._turns) % len(found) if found else 0
        return found[turn:] + found[:turn]

    def _of_host(self, namespace: str, name: str, host: str) -> list[str] | None:
        service: Object | None = self._services.get(namespace, name)
        if service is None:
            return None
        found = [
            pod["status"]["podIP"]
            for pod in self.pods_of(service)
            if pod["spec"].get("hostname") == host and pod["spec"].get("subdomain") == name
        ]
        return found or None

    def pods_of(self, service: Object) -> Iterator[Object]:
        """The pods a Service leads to now."""
        spec = service["spec"]
        selector = (spec.get("selector") or {}).items()
        if not selector:
            return
        early = bool(spec.get("publishNotReadyAddresses"))
        for pod in self._pods.by_index("namespace", service["metadata"]["namespace"]):
            status = pod.get("status") or {}
            if not status.get("podIP") or status.get("phase") in _TERMINAL:
                continue
            labels = (pod["metadata"].get("labels") or {}).items()
            if selector <= labels and (early or _serves(pod)):
                yield pod


def _serves(pod: Object) -> bool:
    if is_deleting(pod):
        return False
    return is_ready(pod)


class NameServer(asyncio.DatagramProtocol):
    """Answers questions for names of the cluster's domain; it knows no other."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._transport: asyncio.DatagramTransport | None = None

    async def start(self, link: Link) -> None:
        """Answer on the pods' gateway. Raises AgentError, OSError."""
        made = await link.socket("udp", (GATEWAY, DNS_PORT))
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: self, sock=made)

    def stop(self) -> None:
        """Stop answering and close the socket."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, address: tuple[str | Any, int]) -> None:
        answered = answer(data, self._directory)
        if answered and self._transport is not None:
            self._transport.sendto(answered, address)


def answer(query: bytes, directory: Directory) -> bytes:
    """The answer to a packet of RFC 1035; empty for what is none of the kind."""
    if len(query) < 12:
        return b""
    identity, flags, questions = struct.unpack_from(">HHH", query)
    if flags & 0x8000:
        return b""
    try:
        name, end = _name(query, 12)
        kind, class_ = struct.unpack_from(">HH", query, end)
    except (IndexError, struct.error, UnicodeDecodeError):
        return struct.pack(">HHHHHH", identity, 0x8180 | _FORMAT_ERROR, 0, 0, 0, 0)
    question = query[12 : end + 4]
    code, addresses = _NO_ERROR, []
    if flags & 0x7800 or questions != 1 or class_ != _CLASS_IN:
        code = _NOT_IMPLEMENTED
    else:
        found = directory.lookup(name)
        if found is None:
            code = _NO_SUCH_NAME
        elif kind == _TYPE_A:
            addresses = found[:_ANSWERS]
    header = struct.pack(">HHHHHH", identity, 0x8580 | code, 1, len(addresses), 0, 0)
    # The name is a pointer to the one in the question.
    records = [
        struct.pack(">HHHIH", 0xC00C, _TYPE_A, _CLASS_IN, _TTL, 4) + socket.inet_aton(one)
        for one in addresses
    ]
    return header + question + b"".join(records)


def _name(packet: bytes, at: int) -> tuple[str, int]:
    labels = []
    while length := packet[at]:
        if length > 63:
            raise IndexError("a name in a question is not compressed")
        labels.append(packet[at + 1 : at + 1 + length].decode("ascii"))
        at += 1 + length
    return ".".join(labels), at + 1


class Proxy:
    """Accepts connections to cluster addresses and passes them on."""

    def __init__(self, link: Link, directory: Directory, services: Informer) -> None:
        self._link = link
        self._directory = directory
        self._services = services
        self._servers: dict[tuple[str, int], asyncio.Server] = {}
        self._turns = itertools.count()
        self._passing: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    def look_again(self) -> None:
        """Services have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Listen where Services say, until cancelled."""
        try:
            while True:
                self._changed.clear()
                await self._listen()
                await self._changed.wait()
        finally:
            for server in self._servers.values():
                server.close()
            for task in self._passing:
                task.cancel()

    async def _listen(self) -> None:
        wanted = {}
        for service in self._services.list():
            spec = service["spec"]
            address = spec.get("clusterIP") or "None"
            if address == "None" or not spec.get("selector"):
                continue
            for port in spec.get("ports") or ():
                if (port.get("protocol") or "TCP") == "TCP":
                    wanted[address, port["port"]] = service["metadata"]
        for key in self._servers.keys() - wanted.keys():
            self._servers.pop(key).close()
        for key in wanted.keys() - self._servers.keys():
            namespace, name = wanted[key]["namespace"], wanted[key]["name"]
            try:
                made = await self._link.socket("tcp", key)
                accept = partial(self._accept, (namespace, name, key[1]))
                self._servers[key] = await asyncio.start_server(accept, sock=made)
            except (AgentError, OSError) as error:
                log.warning("service %s/%s is not reachable at %s:%d: %s", namespace, name, *key, error)

    async def _accept(
        self, where: tuple[str, str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        try:
            await self._pass_on(where, reader, writer)
        except (AgentError, OSError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._passing.discard(task)

    async def _pass_on(
        self, where: tuple[str, str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        namespace, name, port = where
        service: Object | None = self._services.get(namespace, name)
        targets = [] if service is None else list(_targets(service, port, self._directory))
        if not targets:
            raise ConnectionRefusedError
        target = targets[next(self._turns) % len(targets)]
        made = await self._link.socket("tcp")
        try:
            await asyncio.get_running_loop().sock_connect(made, target)
        except BaseException:
            made.close()
            raise
        inner_reader, inner_writer = await asyncio.open_connection(sock=made)
        try:
            await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
        finally:
            inner_writer.close()
            writer.close()


def _targets(service: Object, port: int, directory: Directory) -> Iterator[tuple[str, int]]:
    ports = {one["port"]: one.get("targetPort") for one in service["spec"].get("ports") or ()}
    target = ports.get(port) or port
    for pod in directory.pods_of(service):
        if isinstance(target, int):
            yield pod["status"]["podIP"], target
            continue
        for container in pod["spec"]["containers"]:
            for one in container.get("ports") or ():
                if one.get("name") == target:
                    yield pod["status"]["podIP"], one["containerPort"]


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        with contextlib.suppress(OSError):
            writer.write_eof()
