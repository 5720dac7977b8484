"""Webhooks with a certificate in the name of the authority that issued it, as the Spark operator has them."""

from __future__ import annotations

import base64
import datetime
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clients_harness import config_map
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request
from pykueue.testing import RunningServer, running_server

NAME = "hook.default.svc"
FROM, UNTIL = (datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (2020, 2120))
SUBJECT = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        response = {"uid": review["request"]["uid"], "allowed": False, "status": {"message": "seen"}}
        body = json.dumps(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        )
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class Authority:
    """An authority, and certificates that it issues in its own name."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = _builder(self._key).add_extension(constraints, critical=True)
        self.certificate = builder.add_extension(identifier, critical=False).sign(self._key, hashes.SHA256())

    @property
    def bundle(self) -> str:
        return base64.b64encode(_pem(self.certificate)).decode()

    def issue(self, folder: Path, name: str = NAME) -> ssl.SSLContext:
        """What serves with a certificate of this authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = _builder(key).add_extension(names, critical=False)
        certificate = builder.add_extension(identifier, critical=False).sign(self._key, hashes.SHA256())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file = folder / "server.pem"
        file.write_bytes(private + _pem(certificate))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(file)
        return context


def _builder(key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(SUBJECT)
        .issuer_name(SUBJECT)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(FROM)
        .not_valid_after(UNTIL)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running_server() as server:
        yield server


def answer(server: RunningServer, context: ssl.SSLContext, bundle: str) -> str:
    """Why a ConfigMap is rejected when the webhook serves with the context."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        web.daemon_threads = True
        web.socket = context.wrap_socket(web.socket, server_side=True)
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        try:
            _register(server, web.server_address[1], bundle)
            with pytest.raises(ApiError) as refused:
                _post(server, "/api/v1/namespaces/default/configmaps", config_map("c"))
        finally:
            web.shutdown()
            thread.join()
    return str(refused.value)


def _register(server: RunningServer, port: int, bundle: str) -> None:
    meta = {"name": "hook", "namespace": "default"}
    subset = {"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": port}]}
    endpoints = {"apiVersion": "v1", "kind": "Endpoints", "metadata": meta, "subsets": [subset]}
    _post(server, "/api/v1/namespaces/default/endpoints", endpoints)
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    webhook = {
        "name": "hook.example.com",
        "clientConfig": {"service": {**meta, "path": "/"}, "caBundle": bundle},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hook"},
        "webhooks": [webhook],
    }
    _post(server, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", body)


def _post(server: RunningServer, path: str, body: Any) -> None:
    assert server.cluster.server is not None
    server.run(server.cluster.server.transport().call(Request("POST", path, {}, body)))


def test_webhook_with_a_certificate_in_the_name_of_its_authority_is_called(
    server: RunningServer, tmp_path: Path
) -> None:
    authority = Authority()
    assert "denied the request: seen" in answer(server, authority.issue(tmp_path), authority.bundle)


def test_certificate_of_another_authority_of_the_same_name_is_rejected(
    server: RunningServer, tmp_path: Path
) -> None:
    assert "tls: " in answer(server, Authority().issue(tmp_path), Authority().bundle)


def test_certificate_for_another_host_is_rejected(server: RunningServer, tmp_path: Path) -> None:
    authority = Authority()
    assert "tls: " in answer(server, authority.issue(tmp_path, "other.default.svc"), authority.bundle)
