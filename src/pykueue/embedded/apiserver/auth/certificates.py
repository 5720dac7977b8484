"""The server's own certificate authority, its serving certificate, and client certificates.

Made when the server first listens and kept in the data directory, readable by the owner only. A serving
certificate is issued again at every start, so that it names the address in use; the authority stays.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: How long certificates are valid.
_VALIDITY = timedelta(days=3650)
#: Certificates are valid from a while ago, for clients whose clocks are behind.
BACKDATING = timedelta(hours=1)

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


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _read(path: Path, parse: Callable[[bytes], _T]) -> _T:
    try:
        return parse(path.read_bytes())
    except ValueError:
        raise KeyFileError(
            f"{path} is damaged or not written by this server; restore it, or remove the directory "
            f"{path.parent} to have new keys and a new kubeconfig made"
        ) from None


def _read_key(data: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(data, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an elliptic-curve key")
    return key


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
            self._key = _read(key_path, _read_key)
            self._certificate = _read(self.certificate_path, x509.load_pem_x509_certificate)
            self._latest = self._certificate.not_valid_before_utc
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pykueue embedded cluster")])
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        self._certificate = (
            self._builder(name, name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self._latest = self._certificate.not_valid_before_utc
        write_private(key_path, _pem_key(self._key))
        write_private(self.certificate_path, _pem(self._certificate))

    @property
    def certificate(self) -> bytes:
        """The authority's certificate, PEM."""
        return _pem(self._certificate)

    @property
    def validity(self) -> tuple[datetime, datetime]:
        """From when to when the authority and all that it has issued since it was opened are valid."""
        return self._latest, self._certificate.not_valid_after_utc

    def _builder(
        self, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - BACKDATING)
            .not_valid_after(self._now + _VALIDITY)
        )

    def _issue(
        self, subject: x509.Name, usage: x509.ObjectIdentifier, names: Iterable[x509.GeneralName]
    ) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._builder(subject, self._certificate.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        self._latest = max(self._latest, self._now - BACKDATING)
        alternative = list(names)
        if alternative:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternative), critical=False)
        return _pem(builder.sign(self._key, hashes.SHA256())), _pem_key(key)

    def client(self, user: str, groups: Iterable[str]) -> tuple[bytes, bytes]:
        """A client certificate and its key, PEM: the user is the common name, groups are organisations."""
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        return self._issue(x509.Name(attributes), ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def server_context(self, hosts: Iterable[str]) -> ssl.SSLContext:
        """A TLS context for a server reachable under `hosts`; clients may show certificates of this CA."""
        names: list[x509.GeneralName] = []
        for host in dict.fromkeys(hosts):
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pykueue")])
        certificate, key = self._issue(subject, ExtendedKeyUsageOID.SERVER_AUTH, names)
        path = self._directory / "server.pem"
        write_private(path, key + certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(path)
        context.load_verify_locations(cafile=str(self.certificate_path))
        context.verify_mode = ssl.CERT_OPTIONAL
        context.set_alpn_protocols(["http/1.1"])
        return context


def now_utc(seconds: float) -> datetime:
    """Seconds since 1970 as an aware datetime."""
    return datetime.fromtimestamp(seconds, UTC)
