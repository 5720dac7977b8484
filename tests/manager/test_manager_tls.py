"""The current certificate: used by the next connection of every server; and client certificates."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from pykueue.embedded.apiserver.auth.certificates import Authority
from pykueue.manager.certificates import authority
from pykueue.manager.serving import ServingTls

HOST = "kueue-webhook-service.kueue-system.svc"


def made() -> authority.Material:
    return authority.made([HOST], datetime.now(UTC))


Loop = Callable[..., None]


@pytest.fixture(params=[asyncio.run, uvloop.run])
def loop(request: pytest.FixtureRequest) -> Loop:
    """What runs an event loop: Python's own, or the one that the manager's process uses."""
    found: Loop = request.param
    return found


def serving(tls: ServingTls, loop: Loop, test: Callable[[int], Awaitable[None]]) -> None:
    """Runs the test beside a server that answers with the identity it sees for the client."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        subject = (writer.get_extra_info("peercert") or {}).get("subject") or ()
        names = [value for part in subject for key, value in part if key == "commonName"]
        writer.write((names[0] if names else "anonymous").encode() + b"\n")
        await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls.context)
        async with server:
            await test(server.sockets[0].getsockname()[1])

    loop(main())


async def ask(port: int, trusted: bytes, shown: Path | None = None) -> tuple[str, int]:
    """What the server says, and the serial number of the certificate it serves with."""
    context = ssl.create_default_context(cadata=trusted.decode())
    if shown is not None:
        context.load_cert_chain(shown)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=HOST)
    line = await reader.readline()
    found: Any = writer.get_extra_info("peercert")
    writer.close()
    return line.decode().strip(), int(found["serialNumber"], 16)


def test_a_new_certificate_is_taken_by_the_next_connection(loop: Loop) -> None:
    tls = ServingTls(None)
    first, second = made(), made()
    assert not tls.ready.is_set()
    tls.use(first.certificate_pem, first.key_pem)
    assert tls.ready.is_set()

    async def test(port: int) -> None:
        assert (await ask(port, first.bundle))[1] == first.certificate.serial_number
        tls.use(second.certificate_pem, second.key_pem)
        assert (await ask(port, second.bundle))[1] == second.certificate.serial_number
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask(port, first.bundle)
        with pytest.raises(ssl.SSLError):
            tls.use(second.certificate_pem, first.key_pem)
        assert (await ask(port, second.bundle))[1] == second.certificate.serial_number

    serving(tls, loop, test)


def test_a_certificate_with_a_key_of_another_type_replaces_the_old_one(loop: Loop) -> None:
    tls = ServingTls(None)
    first = made()
    tls.use(first.certificate_pem, first.key_pem)
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    now = datetime.now(UTC)
    other = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(4711)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = other.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )

    async def test(port: int) -> None:
        tls.use(pem, private)
        assert (await ask(port, pem))[1] == 4711

    serving(tls, loop, test)


def test_clients_may_show_certificates_of_the_authorities_that_are_trusted_today(
    tmp_path: Path, loop: Loop
) -> None:
    now = datetime.now(UTC)
    trusted, stranger = Authority(tmp_path / "a", now), Authority(tmp_path / "b", now)
    shown, strange = tmp_path / "shown.pem", tmp_path / "strange.pem"
    for path, signer in ((shown, trusted), (strange, stranger)):
        path.write_bytes(b"".join(signer.client("front-proxy", ())))
    plain = ServingTls(None)
    tls = plain.asking_clients()
    material = made()
    plain.use(material.certificate_pem, material.key_pem)
    assert tls.ready.is_set()
    tls.trust_clients(trusted.certificate.decode())

    async def answer(port: int, certificate: Path) -> str:
        """What the server says; nothing where it breaks off, which a client may learn late."""
        try:
            return (await ask(port, material.bundle, certificate))[0]
        except (ssl.SSLError, ConnectionError):
            return ""

    async def test(port: int) -> None:
        assert (await ask(port, material.bundle))[0] == "anonymous"
        assert await answer(port, shown) == "front-proxy"
        assert await answer(port, strange) == ""
        tls.trust_clients(stranger.certificate.decode())
        assert await answer(port, strange) == "front-proxy"
        assert await answer(port, shown) == ""

    serving(tls, loop, test)
