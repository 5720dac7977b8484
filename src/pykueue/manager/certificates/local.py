"""A certificate for a manager that is asked on its own machine only, and its authority: made once, not kept.

The library that makes them takes 9 MB of memory, and is needed for a moment. Where it is not loaded already,
a separate process makes them: `python -m pykueue.manager.certificates.local`.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from typing import NamedTuple

import orjson

#: Seconds that the process may take.
PATIENCE = 30.0


class LocalCertificate(NamedTuple):
    """PEM texts."""

    authority: bytes
    certificate: bytes
    key: bytes


def made(now: datetime) -> LocalCertificate:
    """A certificate for this machine, all new."""
    from . import authority

    material = authority.made(["localhost"], now)
    return LocalCertificate(material.bundle, material.certificate_pem, material.key_pem)


async def made_apart(now: datetime) -> LocalCertificate:
    """The same. Raises ConnectionError where the process does not answer."""
    if "cryptography" in sys.modules:
        return made(now)
    command = (sys.executable, "-m", "pykueue.manager.certificates.local", now.isoformat())
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE):
            answer, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        raise
    if process.returncode:
        raise ConnectionError(f"the process that makes certificates ended with {process.returncode}")
    return LocalCertificate(*(part.encode() for part in orjson.loads(answer)))


def main() -> None:
    parts = made(datetime.fromisoformat(sys.argv[1]).astimezone(UTC))
    sys.stdout.buffer.write(orjson.dumps([part.decode() for part in parts]))


if __name__ == "__main__":
    main()
