"""Probes and hooks: asking a container's program something, and what it answered."""

from __future__ import annotations

import asyncio
import itertools
import signal
import ssl
from typing import Any, NamedTuple

from pykueue.api.objects import Object
from pykueue.embedded.nodes.processes.host import Host
from pykueue.embedded.nodes.processes.link import AgentError, AgentGoneError, Exit

_USER_AGENT = "kube-probe/1.32"
_counter = itertools.count(1)


class ProbeFailedError(Exception):
    """The program did not answer as it should; the text says how."""


class Target(NamedTuple):
    """The container that is asked."""

    container: Object
    run: str
    #: Where its pod is reached.
    address: str


async def ask(host: Host, target: Target, action: Object, seconds: float | None) -> None:
    """Carry out the action of a probe or a hook. Raises ProbeFailedError, AgentGoneError.

    It may take so many `seconds`; None for as long as it takes.
    """
    try:
        async with asyncio.timeout(seconds):
            if "exec" in action:
                await _execute(host, target, action["exec"].get("command") or [])
            elif "httpGet" in action:
                await _get(host, target, action["httpGet"])
            elif "tcpSocket" in action:
                handler = action["tcpSocket"]
                _, writer = await _connect(host, target, handler)
                writer.close()
            elif "sleep" in action:
                await host.clock.sleep(action["sleep"].get("seconds") or 0)
            else:
                kinds = ", ".join(sorted({"grpc"} & action.keys())) or "this kind of action"
                raise ProbeFailedError(f"{kinds} is not supported by nodes that run processes")
    except TimeoutError:
        raise ProbeFailedError(f"command or request timed out after {seconds:g}s") from None
    except (OSError, ssl.SSLError, asyncio.IncompleteReadError) as error:
        raise ProbeFailedError(str(error)) from None


async def _execute(host: Host, target: Target, command: list[str]) -> None:
    run = f"{target.run}/inside-{next(_counter)}"
    ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
    host.link.on_exit(run, lambda how: None if ended.done() else ended.set_result(how))
    try:
        await host.link.call("enter", run=run, inside=target.run, argv=command)
        how = await ended
    except AgentGoneError:
        raise
    except AgentError as error:
        host.link.forget(run)
        raise ProbeFailedError(str(error)) from None
    except asyncio.CancelledError:
        host.link.notify("signal", run=run, number=signal.SIGKILL)
        raise
    if how.code:
        raise ProbeFailedError(how.output.strip() or f"command exited with {how.exit_code}")


async def _connect(
    host: Host, target: Target, handler: Object, context: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = (handler.get("host") or target.address, _port(target.container, handler.get("port")))
    made = await host.link.socket("tcp")
    try:
        await asyncio.get_running_loop().sock_connect(made, address)
    except BaseException:
        made.close()
        raise
    name = (handler.get("host") or target.address) if context is not None else None
    return await asyncio.open_connection(sock=made, ssl=context, server_hostname=name)


async def _get(host: Host, target: Target, handler: Object) -> None:
    context = None
    if handler.get("scheme") == "HTTPS":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    reader, writer = await _connect(host, target, handler, context)
    try:
        port = _port(target.container, handler.get("port"))
        headers = {"Host": f"{handler.get('host') or target.address}:{port}", "User-Agent": _USER_AGENT}
        headers |= {one["name"]: one["value"] for one in handler.get("httpHeaders") or ()}
        headers |= {"Accept": "*/*", "Connection": "close"}
        path = handler.get("path") or "/"
        lines = [f"GET {path if path.startswith('/') else '/' + path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        await writer.drain()
        answer = await reader.readline()
    finally:
        writer.close()
    words = answer.split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise ProbeFailedError(f"not an answer in HTTP: {answer[:100]!r}")
    code = int(words[1])
    if not 200 <= code < 400:
        raise ProbeFailedError(f"HTTP probe failed with statuscode: {code}")


def _port(container: Object, handler: Any) -> int:
    """A port by number, or by its name in the container. Raises ProbeFailedError."""
    if isinstance(handler, int):
        return handler
    for one in container.get("ports") or ():
        if one.get("name") == handler:
            return int(one["containerPort"])
    if str(handler).isdigit():
        return int(handler)
    raise ProbeFailedError(f"couldn't find port {handler!r} in container {container.get('name')!r}")
