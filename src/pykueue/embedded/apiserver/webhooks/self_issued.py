"""Server certificates with the name of the authority that issued them.

OpenSSL takes a certificate whose subject is its issuer for a self-signed one and rejects it, although its
signature is that of the authority. Go, in which the clients of real clusters are written, accepts it, and
some operators issue their webhooks' certificates in this way: the Spark operator is one.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import ipaddress
import ssl
from typing import Final

import aiohttp
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID

#: OpenSSL's X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT.
_SELF_SIGNED_LEAF: Final = 18


def is_suspected(error: aiohttp.ClientConnectorCertificateError) -> bool:
    """Whether OpenSSL rejected the server's certificate as a self-signed one."""
    return getattr(error.certificate_error, "verify_code", None) == _SELF_SIGNED_LEAF


async def pinned(host: str, port: int, name: str, bundle: bytes) -> aiohttp.Fingerprint | None:
    """The fingerprint of the certificate that the server shows, if an authority of the bundle issued it.

    `name` is the host name or IP address the certificate must be valid for, `bundle` certificates in PEM.
    None if the certificate is not to be trusted. Raises OSError or ValueError.
    """
    shown = await _shown(host, port, name)
    certificate = x509.load_der_x509_certificate(shown)
    authorities = x509.load_pem_x509_certificates(bundle)
    if not _is_server(certificate, name) or not any(_issued(certificate, one) for one in authorities):
        return None
    return aiohttp.Fingerprint(hashlib.sha256(shown).digest())


async def _shown(host: str, port: int, name: str) -> bytes:
    """The certificate that the server shows, in DER; nothing about it is checked."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    try:
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.transport.abort()
    return bytes(found)


def _issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether an authority that is valid now has signed the certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
        constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    return constraints.ca and _is_current(authority)


def _is_server(certificate: x509.Certificate, name: str) -> bool:
    """Whether it is valid now, for servers, and for this host name or IP address."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        usages = None
    if usages is not None and ExtendedKeyUsageOID.SERVER_AUTH not in usages:
        return False
    return _is_current(certificate) and _names(names, name)


def _names(names: x509.SubjectAlternativeName, name: str) -> bool:
    try:
        return ipaddress.ip_address(name) in names.get_values_for_type(x509.IPAddress)
    except ValueError:
        return name.lower() in (one.lower() for one in names.get_values_for_type(x509.DNSName))


def _is_current(certificate: x509.Certificate) -> bool:
    now = datetime.datetime.now(datetime.UTC)
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc
