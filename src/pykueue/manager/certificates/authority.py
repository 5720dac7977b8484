"""An authority and the serving certificate it signed, and what of them is renewed when.

A renewed authority is announced before it signs anything: for `OVERLAP` clients are given both it and
the one before as trusted, so that the serving certificate is one they trust before and after the change. Then
it signs a new serving certificate, and an overlap later the old authority is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from pykueue.kube import certificates
from pykueue.kube.certificates import BACKDATING, Issued
from pykueue.manager.install_names import CA_CERTIFICATE, CA_KEY, CERTIFICATE, KEY

from .lifetimes import (
    AUTHORITY_NAME,
    AUTHORITY_RENEWAL,
    AUTHORITY_VALIDITY,
    SERVING_RENEWAL,
    SERVING_VALIDITY,
)

#: How long clients trust a new authority before it signs, and an old one after it has signed last.
OVERLAP = timedelta(hours=1)

_ORGANISATION = "kueue"


@dataclass(frozen=True)
class Material:
    """What the Secret holds."""

    #: Authorities that clients trust, the newest first.
    authorities: tuple[x509.Certificate, ...]
    #: The newest authority's key.
    authority_key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def bundle(self) -> bytes:
        """All trusted authorities, PEM."""
        return b"".join(certificates.pem(authority) for authority in self.authorities)

    @property
    def certificate_pem(self) -> bytes:
        """The serving certificate, PEM."""
        return certificates.pem(self.certificate)

    @property
    def key_pem(self) -> bytes:
        """The serving certificate's key, PEM."""
        return certificates.key_pem(self.key)

    def data(self) -> dict[str, bytes]:
        """The Secret's values by key."""
        return {
            CA_CERTIFICATE: self.bundle,
            CA_KEY: certificates.key_pem(self.authority_key),
            CERTIFICATE: self.certificate_pem,
            KEY: self.key_pem,
        }


def read(data: Mapping[str, bytes]) -> Material | None:
    """The material in a Secret; None where it is not there or does not fit together."""
    try:
        # The keys first: those that Kueue left there are of another kind, and its certificates malformed.
        authority_key, key = certificates.load_key(data[CA_KEY]), certificates.load_key(data[KEY])
        authorities = tuple(x509.load_pem_x509_certificates(data[CA_CERTIFICATE]))
        certificate = x509.load_pem_x509_certificate(data[CERTIFICATE])
    except (KeyError, ValueError):
        return None
    fits = authorities[0].public_key() == authority_key.public_key()
    if not fits or certificate.public_key() != key.public_key():
        return None
    return Material(authorities, authority_key, certificate, key)


def made(names: Sequence[str], now: datetime) -> Material:
    """An authority and a serving certificate for host names, all new."""
    authority = _authority(now)
    serving = _serving(authority, names, now)
    return Material((authority.certificate,), authority.key, serving.certificate, serving.key)


def renewed(material: Material, names: Sequence[str], now: datetime, announced: bool) -> Material:
    """The material with what is due renewed; the same object where nothing is.

    `announced`: clients have been told of every authority in it. Until they have, a new one does not sign,
    unless there is no usable certificate to go on with.
    """
    signer = _signer(material)
    named = _names(material.certificate) == set(names)
    usable = signer is not None and named and _ends(material.certificate) > now
    newest = material.authorities[0]
    if _ends(newest) <= now:
        return made(names, now)
    if _ends(newest) - AUTHORITY_RENEWAL <= now:
        successor = _authority(now)
        newest, announced = successor.certificate, False
        material = replace(material, authorities=(newest, *material.authorities), authority_key=successor.key)
    due = signer is not newest or _ends(material.certificate) - SERVING_RENEWAL <= now
    known = signer is newest or (announced and _age(newest, now) >= OVERLAP)
    if not usable or (due and known):
        serving = _serving(Issued(newest, material.authority_key), names, now)
        material = replace(material, certificate=serving.certificate, key=serving.key)
        signer = newest
    kept = tuple(
        authority
        for authority in material.authorities
        if authority is newest
        or authority is signer
        or (_ends(authority) > now and _age(material.certificate, now) < OVERLAP)
    )
    return material if kept == material.authorities else replace(material, authorities=kept)


def _signer(material: Material) -> x509.Certificate | None:
    """Which of the trusted authorities signed the serving certificate."""
    for authority in material.authorities:
        try:
            material.certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return authority
    return None


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return set(found.get_values_for_type(x509.DNSName))


def _ends(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_after_utc


def _age(certificate: x509.Certificate, now: datetime) -> timedelta:
    return now - (certificate.not_valid_before_utc + BACKDATING)


def _authority(now: datetime) -> Issued:
    return certificates.new_authority(_name(AUTHORITY_NAME), now, AUTHORITY_VALIDITY, path_length=0)


def _serving(authority: Issued, hosts: Sequence[str], now: datetime) -> Issued:
    return certificates.issue(
        authority,
        _name(hosts[0][:64]),
        ExtendedKeyUsageOID.SERVER_AUTH,
        now,
        SERVING_VALIDITY,
        certificates.alternative_names(hosts),
    )


def _name(common_name: str) -> x509.Name:
    return certificates.distinguished_name(common_name, [_ORGANISATION])
