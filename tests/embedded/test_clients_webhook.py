"""A webhook as an operator runs it: a program of its own behind HTTPS, named by a stored configuration."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clients_harness import config_map

from pykueue.clock import VIRTUAL_EPOCH
from pykueue.embedded.apiserver.auth.certificates import Authority
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request
from pykueue.testing import RunningServer, running_server

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


class Handler(http.server.BaseHTTPRequestHandler):
    """Adds a label and answers at length."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        patch = [{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]
        response = {
            "uid": review["request"]["uid"],
            "allowed": "forbidden" not in review["request"]["object"].get("data", {}),
            "patchType": "JSONPatch",
            "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
            "auditAnnotations": {"padding": "x" * 1_000_000},
        }
        answer = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing to say."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    authority = Authority(tmp_path / "pki", VIRTUAL_EPOCH)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web, running_server() as server:
        context = authority.server_context(["127.0.0.1"])
        web.socket = context.wrap_socket(web.socket, server_side=True)
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        client = {
            "url": f"https://127.0.0.1:{web.server_address[1]}/mutate",
            "caBundle": base64.b64encode(authority.certificate).decode(),
        }
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
        webhook = {
            "name": "label.example.com",
            "clientConfig": client,
            "rules": [{**rule, "operations": ["CREATE"]}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "matchConditions": [
                {"name": "labelled", "expression": "!('bare' in object.data)"},
                {"name": "for-people", "expression": "request.userInfo.username != 'robot'"},
            ],
        }
        call(
            server,
            CONFIGURATIONS,
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": "label"},
                "webhooks": [webhook],
            },
        )
        yield server
        web.shutdown()
        thread.join()


def call(server: RunningServer, path: str, body: Any) -> Any:
    assert server.cluster.server is not None
    return server.run(server.cluster.server.transport().call(Request("POST", path, {}, body)))


def test_a_long_answer_is_read_to_its_end(server: RunningServer) -> None:
    assert call(server, CONFIG_MAPS, config_map("c"))["metadata"]["labels"] == {"seen": "yes"}
    with pytest.raises(ApiError, match="denied the request"):
        call(server, CONFIG_MAPS, config_map("d", forbidden="x"))


def test_a_webhook_is_asked_only_when_its_conditions_hold(server: RunningServer) -> None:
    assert "labels" not in call(server, CONFIG_MAPS, config_map("bare", bare="x"))["metadata"]
    with pytest.raises(ApiError, match=r"label.example.com.*match conditions.*labelled"):
        call(server, CONFIG_MAPS, {**config_map("dataless"), "data": None})


def test_conditions_that_cannot_be_evaluated_are_refused(server: RunningServer) -> None:
    webhook = {
        "name": "wrong.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "matchConditions": [{"name": "wrong", "expression": "objekt.spec"}],
    }
    body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    with pytest.raises(ApiError, match=r"webhooks\[0\].matchConditions\[0\].expression") as refused:
        call(server, CONFIGURATIONS, {**body, "metadata": {"name": "wrong"}, "webhooks": [webhook]})
    assert refused.value.code == 422
