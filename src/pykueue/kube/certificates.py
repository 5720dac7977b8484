"""X.509 certificates with elliptic-curve keys: authorities, and what they sign.

Keys are on the curve P-256 and unencrypted PKCS #8 in PEM; signatures use SHA-256.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

#: Certificates are valid from a while ago, for clients whose clocks are behind.
BACKDATING = timedelta(hours=1)


def pem(certificate: x509.Certificate) -> bytes:
    """The certificate in PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The private key in PEM, PKCS #8, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def load_key(data: bytes) -> ec.EllipticCurvePrivateKey:
    """The private key in a PEM file.

    Raises:
        ValueError: it is malformed, encrypted, or a key of another algorithm.
    """
    try:
        key = serialization.load_pem_private_key(data, None)
    except TypeError as error:  # encrypted, and there is no password
        raise ValueError(str(error)) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an elliptic-curve key")
    return key


def distinguished_name(common_name: str, organizations: Iterable[str] = ()) -> x509.Name:
    """A subject: organizations in their order, then the common name."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def alternative_names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    """Subject alternative names for host names and IP addresses, each once."""
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


@dataclass(frozen=True)
class Issued:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """The certificate in PEM."""
        return pem(self.certificate)

    @property
    def key_pem(self) -> bytes:
        """The key in PEM."""
        return key_pem(self.key)


def new_authority(
    subject: x509.Name, now: datetime, validity: timedelta, path_length: int | None = None
) -> Issued:
    """A self-signed certificate authority, valid from `BACKDATING` before `now` until `validity` after it.

    `path_length`: how many authorities may stand between it and a certificate; None for any number.
    """
    key = ec.generate_private_key(ec.SECP256R1())
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
    certificate = (
        _builder(subject, subject, key, now, validity)
        .add_extension(x509.BasicConstraints(ca=True, path_length=path_length), critical=True)
        .add_extension(usage, critical=True)
        # Authorities may have the same name: this tells a client which of them signed.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Issued(certificate, key)


def issue(
    authority: Issued,
    subject: x509.Name,
    usage: x509.ObjectIdentifier,
    now: datetime,
    validity: timedelta,
    names: Iterable[x509.GeneralName] = (),
) -> Issued:
    """A certificate signed by `authority`, with a new key.

    `usage`: the extended key usage, server or client authentication. `names`: subject alternative names.
    Valid from `BACKDATING` before `now` until `validity` after it, whatever the authority's own validity.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(subject, authority.certificate.subject, key, now, validity)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False
        )
    )
    alternatives = list(names)
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return Issued(builder.sign(authority.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    validity: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATING)
        .not_valid_after(now + validity)
    )
