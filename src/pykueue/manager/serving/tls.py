"""TLS of the manager's servers: what the configuration allows, with the certificate of the day.

A new certificate is taken by connections that begin after it came; those that are open go on with the one
they began with.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from pykueue.kube.certificate_file import certificate_file
from pykueue.manager.configuration import TLS_CIPHERS, TLS_CURVES, Tls


class ServingTls:
    """The context to serve with. It can be used once `ready` is set, by any number of servers."""

    def __init__(self, options: Tls | None, asks_clients: bool = False) -> None:
        self._options = options or Tls()
        self._asks_clients = asks_clients
        self._clients = ""
        self._pair: tuple[bytes, bytes] | None = None
        self._followers: list[ServingTls] = []
        self.ready = asyncio.Event()
        self.context = self._new()
        # A context whose certificate is replaced keeps the old one beside the new when their keys are of
        # different types: so every certificate has a context of its own.
        self._current = self.context
        self.context.sni_callback = self._choose

    def use(self, certificate: bytes, key: bytes) -> None:
        """Serve with this certificate from now on, PEM. Raises ssl.SSLError where the two do not fit."""
        before, self._pair = self._pair, (certificate, key)
        try:
            self._renew()
        except ssl.SSLError:
            self._pair = before
            raise
        self.ready.set()
        for follower in self._followers:
            follower.use(certificate, key)

    def asking_clients(self) -> ServingTls:
        """Another one, always with the same certificate, that asks clients to show theirs.

        They may stay without; one that is shown must be signed by an authority of `trust_clients`.
        """
        follower = ServingTls(self._options, asks_clients=True)
        self._followers.append(follower)
        if self._pair is not None:
            follower.use(*self._pair)
        return follower

    def trust_clients(self, authorities: str) -> None:
        """Trust client certificates signed by these from now on, PEM. Raises ssl.SSLError."""
        before, self._clients = self._clients, authorities
        try:
            self._renew()
        except ssl.SSLError:
            self._clients = before
            raise

    def _renew(self) -> None:
        if self._pair is None:
            return
        certificate, key = self._pair
        fresh = self._new()
        with certificate_file(certificate + b"\n" + key) as path:
            fresh.load_cert_chain(path)
        self._current = fresh

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str, _own: ssl.SSLContext) -> None:
        connection.context = self._current

    def _new(self) -> ssl.SSLContext:
        options = self._options
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        strict = options.min_version == "VersionTLS13"
        context.minimum_version = ssl.TLSVersion.TLSv1_3 if strict else ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # Suites of TLS 1.3 cannot be chosen; naming them has no effect.
        ciphers = [name for suite in options.cipher_suites if (name := TLS_CIPHERS[suite])]
        if ciphers:
            context.set_ciphers(":".join(ciphers))
        _prefer(context, options.curve_preferences)
        if self._asks_clients:
            context.verify_mode = ssl.CERT_OPTIONAL
        if self._clients:
            context.load_verify_locations(cadata=self._clients)
        return context


def _prefer(context: ssl.SSLContext, curves: tuple[int, ...]) -> None:
    """Use the most preferred curve that the library has; it takes no more than one."""
    for curve in curves:
        with suppress(ValueError):
            context.set_ecdh_curve(TLS_CURVES[curve])
            return
    if curves:
        raise ValueError(f"tls.curvePreferences: {ssl.OPENSSL_VERSION} has none of {list(curves)}")
