"""The server's own certificate authority, its serving certificate, and client certificates.

Made when the server first listens and kept in the data directory, readable by the owner only. A serving
certificate is issued again at every start, so that it names the address in use; the authority stays.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from pykueue.kube import certificates

#: How long certificates are valid.
_VALIDITY = timedelta(days=3650)

_T = TypeVar("_T")


class KeyFileError(ValueError):
    """A key or certificate in the data directory cannot be used; the text names the file and a way out."""


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, all of it or nothing."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _read(path: Path, parse: Callable[[bytes], _T]) -> _T:
    try:
        return parse(path.read_bytes())
    except ValueError:
        raise KeyFileError(
            f"{path} is damaged or not written by this server; restore it, or remove the directory "
            f"{path.parent} to have new keys and a new kubeconfig made"
        ) from None


class Authority:
    """A certificate authority kept in a directory.

    KeyFileError when what is there cannot be used.
    """

    def __init__(self, directory: Path, now: datetime) -> None:
        self._directory = directory
        self._now = now
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.certificate_path = directory / "ca.crt"
        key_path = directory / "ca.key"
        if key_path.exists() and self.certificate_path.exists():
            key = _read(key_path, certificates.load_key)
            certificate = _read(self.certificate_path, x509.load_pem_x509_certificate)
            self._authority = certificates.Issued(certificate, key)
        else:
            subject = certificates.distinguished_name("pykueue embedded cluster")
            self._authority = certificates.new_authority(subject, now, _VALIDITY)
            write_private(key_path, self._authority.key_pem)
            write_private(self.certificate_path, self._authority.certificate_pem)
        self._latest = self._authority.certificate.not_valid_before_utc

    @property
    def certificate(self) -> bytes:
        """The authority's certificate, PEM."""
        return self._authority.certificate_pem

    @property
    def validity(self) -> tuple[datetime, datetime]:
        """From when to when the authority and all that it has issued since it was opened are valid."""
        return self._latest, self._authority.certificate.not_valid_after_utc

    def _issue(
        self, subject: x509.Name, usage: x509.ObjectIdentifier, names: Iterable[x509.GeneralName] = ()
    ) -> certificates.Issued:
        issued = certificates.issue(self._authority, subject, usage, self._now, _VALIDITY, names)
        self._latest = max(self._latest, issued.certificate.not_valid_before_utc)
        return issued

    def client(self, user: str, groups: Iterable[str]) -> tuple[bytes, bytes]:
        """A client certificate and its key, PEM: the user is the common name, groups are organisations."""
        subject = certificates.distinguished_name(user, groups)
        issued = self._issue(subject, ExtendedKeyUsageOID.CLIENT_AUTH)
        return issued.certificate_pem, issued.key_pem

    def server_context(
        self, hosts: Iterable[str], protocols: Iterable[str] = ("http/1.1",)
    ) -> ssl.SSLContext:
        """A TLS context for a server reachable under `hosts`; clients may show certificates of this CA.

        `protocols`: names for ALPN, the preferred first.
        """
        subject = certificates.distinguished_name("pykueue")
        names = certificates.alternative_names(hosts)
        issued = self._issue(subject, ExtendedKeyUsageOID.SERVER_AUTH, names)
        path = self._directory / "server.pem"
        write_private(path, issued.key_pem + issued.certificate_pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(path)
        context.load_verify_locations(cafile=str(self.certificate_path))
        context.verify_mode = ssl.CERT_OPTIONAL
        context.set_alpn_protocols(list(protocols))
        # A tenth of a handshake's CPU time, for nothing: neither client-go nor aiohttp resumes sessions.
        context.num_tickets = 0
        return context


def now_utc(seconds: float) -> datetime:
    """Seconds since 1970 as an aware datetime."""
    return datetime.fromtimestamp(seconds, UTC)
