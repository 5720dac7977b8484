"""Commands in containers: `kubectl exec`, over a WebSocket with channels.

Source: docs/reference/kubernetes-api-machinery.md, section 14. The first byte of each message is its channel.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from itertools import groupby

import orjson

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.handlers.exec import Session, Wanted
from pykueue.embedded.objects.errors import bad_request, to_status
from pykueue.kube.errors import ApiError

from .websocket import WebSocket

#: Best first. Only the fifth version lets a client end a channel.
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STATUS = 3
_INPUT, _RESIZE, _CLOSE = b"\0", b"\4", b"\xff"


def wanted(pod: Object, query: Sequence[tuple[str, str]]) -> Wanted:
    """The command, container and streams that a request specifies. 400 without a container or command."""
    name = pod["metadata"]["name"]
    parameters = dict(query)
    command = [value for key, value in query if key == "command"]
    containers = [one["name"] for one in (pod.get("spec") or {}).get("containers") or ()]
    inits = [one["name"] for one in (pod.get("spec") or {}).get("initContainers") or ()]
    container = parameters.get("container") or (containers[0] if len(containers) == 1 else "")
    if not container:
        raise bad_request(
            f"a container name must be specified for pod {name}, choose one of: [{' '.join(containers)}]"
        )
    if container not in (*containers, *inits):
        raise bad_request(f"container {container} is not valid for pod {name}")
    if not command:
        raise bad_request("you must specify at least 1 command for the container")
    true = ("1", "true")
    return Wanted(container, command, parameters.get("stdin") in true, parameters.get("tty") in true)


async def converse(socket: WebSocket, asked: Wanted, starting: Awaitable[Session]) -> None:
    """Forward input and output until the command has ended, then send its exit status."""
    try:
        session = await starting
    except ApiError as error:
        await socket.send(bytes([_STATUS]) + orjson.dumps(to_status(error)))
        socket.close()
        return
    listening = asyncio.create_task(_listen(socket, session))
    try:
        async with contextlib.aclosing(session.output()) as output:
            async for channel, data in output:
                await socket.send(bytes([channel]) + data)
        code = await session.exit_code()
        await socket.send(bytes([_STATUS]) + orjson.dumps(_outcome(code, asked)))
        socket.close()
    finally:
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening
        session.kill()


async def _listen(socket: WebSocket, session: Session) -> None:
    while messages := await socket.receive():
        # What belongs together is done at once, however many messages it was sent in.
        for channel, run in groupby(messages, key=_channel):
            if channel == _INPUT:
                if data := b"".join(message[1:] for message in run):
                    await session.write(data)
            elif channel == _RESIZE:
                sizes = (_size(message[1:]) for message in reversed(list(run)))
                if size := next(filter(None, sizes), None):
                    session.resize(*size)
            elif channel == _CLOSE and any(message[1:] == _INPUT for message in run):
                session.end_input()
    # The client has gone.
    session.kill()


def _channel(message: bytes) -> bytes:
    return message[:1]


def _size(data: bytes) -> tuple[int, int] | None:
    """The width and height of a terminal; None when it is not a size."""
    try:
        size = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(size, dict) or not all(type(size.get(one)) is int for one in ("Width", "Height")):
        return None
    return size["Width"], size["Height"]


def _outcome(code: int, asked: Wanted) -> Object:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: {code} ({' '.join(asked.command)})",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
