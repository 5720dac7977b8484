"""Protobuf request bodies: what kubectl sent, fields built by hand, and damage."""
# ruff: noqa: E501 (captured bodies are one line each)

from __future__ import annotations

import base64
import http.server
import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykueue.embedded.objects.protobuf import MAGIC, decode

JOB = "azhzAAoPCghiYXRjaC92MRIDSm9iEoIBChEKAWoSABoAIgAqADIAOABCABJjMmEKEAoAEgAaACIAKgAyADgAQgASTRIqCgFqEgdidXN5Ym94GgRlY2hvGgJoaSoAQgBqAHIAgAEAiAEAkAEAogEAGgVOZXZlcjIAQgBKAFIAWABgAGgAggEAigEAmgEAwgEAGgggACgAMAA6ABoAIgA="
SECRET = "azhzAAoMCgJ2MRIGU2VjcmV0EiMKEQoBcxIAGgAiACoAMgA4AEIAEgYKAWsSAXYaBk9wYXF1ZRoAIgA="
BUDGET = "azhzAAogCglwb2xpY3kvdjESE1BvZERpc3J1cHRpb25CdWRnZXQSOAoRCgFwEgAaACIAKgAyADgAQgASFwoJCAEQABoDNTAlEgoKCAoDYXBwEgFhGgoIABgAIAAoADAAGgAiAA=="
REVIEW = "azhzAAoyChdhdXRob3JpemF0aW9uLms4cy5pby92MRIXU2VsZlN1YmplY3RBY2Nlc3NSZXZpZXcSPAoQCgASABoAIgAqADIAOABCABIeChwKB2RlZmF1bHQSA2dldBoAIgAqBHBvZHMyADoAGggIABIAGgAgABoAIgA="


def field(number: int, value: int | bytes | str) -> bytes:
    """One field on the wire: a varint, or bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (2**64 - 1))
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def envelope(api_version: str, kind: str, message: bytes) -> bytes:
    return MAGIC + field(1, field(1, api_version) + field(2, kind)) + field(2, message)


def test_a_job_as_kubectl_sends_it() -> None:
    assert decode(base64.b64decode(JOB)) == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {
            "template": {
                "spec": {
                    "containers": [{"name": "j", "image": "busybox", "command": ["echo", "hi"]}],
                    "restartPolicy": "Never",
                }
            }
        },
    }


def test_bytes_are_base64() -> None:
    assert decode(base64.b64decode(SECRET))["data"] == {"k": "dg=="}


def test_int_or_string() -> None:
    assert decode(base64.b64decode(BUDGET))["spec"] == {
        "minAvailable": "50%",
        "selector": {"matchLabels": {"app": "a"}},
    }


def test_groups_with_a_domain() -> None:
    review = decode(base64.b64decode(REVIEW))
    assert review["spec"] == {
        "resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}
    }


def test_times_and_pointers() -> None:
    spec = (
        field(1, "holder")
        + field(2, 15)
        + field(3, field(1, 1767225600) + field(2, 123456000))
        + field(4, field(1, 1767225601))
        + field(5, 0)
    )
    meta = field(1, "l") + field(8, field(1, 1767225600) + field(2, 999)) + field(9, b"")
    lease = decode(envelope("coordination.k8s.io/v1", "Lease", field(1, meta) + field(2, spec)))
    assert lease["metadata"] == {
        "name": "l",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": None,
    }
    assert lease["spec"] == {
        "holderIdentity": "holder",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.123456Z",
        "renewTime": "2026-01-01T00:00:01.000000Z",
        "leaseTransitions": 0,
    }


def test_negative_numbers_and_quantities() -> None:
    priority = decode(envelope("scheduling.k8s.io/v1", "PriorityClass", field(2, -5)))
    assert priority["value"] == -5
    quota = field(2, field(1, field(1, "cpu") + field(2, field(1, "500m"))) + field(1, field(1, "pods")))
    assert decode(envelope("v1", "ResourceQuota", quota))["spec"] == {"hard": {"cpu": "500m", "pods": "0"}}


def test_inlined_messages() -> None:
    volume = field(1, "v") + field(2, field(2, b""))
    pod = decode(envelope("v1", "Pod", field(2, field(1, volume))))
    assert pod["spec"] == {"volumes": [{"name": "v", "emptyDir": {}}]}


def test_options_in_the_group_of_their_resource() -> None:
    options = decode(envelope("batch/v1", "DeleteOptions", field(4, "Background") + field(1, 0)))
    assert options == {
        "apiVersion": "batch/v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "gracePeriodSeconds": 0,
    }


def test_embedded_json() -> None:
    revision = field(2, field(1, b'{"spec":{"x":[1]}}')) + field(3, 7)
    assert decode(envelope("apps/v1", "ControllerRevision", revision)) == {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "data": {"spec": {"x": [1]}},
        "revision": 7,
    }


def test_json_in_an_envelope() -> None:
    body = envelope("v1", "ConfigMap", b'{"data":{"a":"b"}}') + field(4, "application/json")
    assert decode(body) == {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}


def test_unknown_fields_are_passed_over() -> None:
    message = field(99, "x") + field(98, 1) + varint(97 << 3 | 5) + b"abcd" + varint(96 << 3 | 1) + b"x" * 8
    assert decode(envelope("v1", "Pod", message)) == {"apiVersion": "v1", "kind": "Pod"}


def nested_envelopes(levels: int) -> bytes:
    body = b""
    for _ in range(levels):
        body = envelope("apps/v1", "ControllerRevision", field(2, field(1, body)) if body else b"")
    return body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        MAGIC,
        MAGIC + b"\xff",
        MAGIC + b"\xff" * 20,
        MAGIC + field(1, 1),
        envelope("v1", "Nothing", b""),
        envelope("example.com/v1", "Pod", b""),
        envelope("v1", "Pod", b"\x0a\x7f"),
        envelope("v1", "Pod", b"\x0b"),
        envelope("v1", "Pod", field(1, 1)),
        envelope("v1", "Pod", field(1, field(1, b"\xff\xfe"))),
        envelope("v1", "Pod", field(1, field(7, "x"))),
        envelope("v1", "Pod", field(1, field(8, field(1, 2**62)))),
        envelope("apps/v1", "ControllerRevision", field(2, field(1, b"{"))),
        envelope("v1", "ConfigMap", b"[]") + field(4, "application/json"),
        envelope("v1", "ConfigMap", b"") + field(3, "gzip"),
        nested_envelopes(500),
    ],
)
def test_damaged_protobuf_is_rejected(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (every message is another)
        decode(body)


@given(
    st.sampled_from([JOB, SECRET, BUDGET, REVIEW]),
    st.lists(st.tuples(st.integers(4, 60), st.binary(max_size=3)), max_size=4),
)
def test_any_damage_gives_an_object_or_a_value_error(text: str, cuts: list[tuple[int, bytes]]) -> None:
    body = base64.b64decode(text)
    for at, inserted in cuts:
        body = body[:at] + inserted + body[at + 1 :]
    try:
        obj: Any = decode(body)
    except ValueError:
        obj = {}
    assert isinstance(obj, dict)


# The same objects as kubectl prints them


class _Recorder(http.server.BaseHTTPRequestHandler):
    bodies: list[bytes]

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""

    def _answer(self, code: int, obj: dict[str, Any]) -> None:
        content = json.dumps(obj).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        self._answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.bodies.append(body)
        self._answer(201, decode(body) if body.startswith(MAGIC) else json.loads(body))


def without_empty(value: Any) -> Any:
    """Without nulls and the structs that Go writes even when nothing is in them."""
    if isinstance(value, dict):
        kept = {key: without_empty(inner) for key, inner in value.items()}
        return {key: inner for key, inner in kept.items() if inner is not None and inner != {}}
    return [without_empty(one) for one in value] if isinstance(value, list) else value


@pytest.mark.kubectl
@pytest.mark.parametrize(
    "command",
    [
        "create namespace demo",
        "create configmap c --from-literal=a=é --from-literal=empty=",
        "create secret generic s --from-literal=k=v --type=Opaque",
        "create quota q --hard=cpu=1,memory=1G --scopes=BestEffort",
        "create job j --image=busybox -- echo hi",
        "create deployment d --image=nginx --port=80 --replicas=2",
        "create clusterrolebinding crb --clusterrole=view --user=a --serviceaccount=n:sa",
        "create priorityclass pc --value=-7 --description=x",
        "create pdb p --selector=app=a --max-unavailable=0",
        "create service clusterip svc --tcp=80:http",
        "create cronjob cj --image=b --schedule=@hourly",
        "create ingress i --rule=h/p=svc:80",
        "create serviceaccount sa",
    ],
)
def test_kubectl_sends_what_it_prints(command: str, tmp_path: Path) -> None:
    kubectl = os.environ.get("KUBECTL", "kubectl")
    handler = type("Handler", (_Recorder,), {"bodies": []})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            head, _, tail = command.partition(" -- ")
            rest = ["--", *tail.split()] if tail else []
            start = [kubectl, f"--server=http://127.0.0.1:{server.server_port}", *head.split()]
            home = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
            subprocess.run([*start, *rest], env=home, check=True, capture_output=True)
            printed = subprocess.run(
                [*start, "--dry-run=client", "-o", "json", *rest], env=home, check=True, capture_output=True
            ).stdout
        finally:
            server.shutdown()
            thread.join()
    (body,) = handler.bodies  # type: ignore[attr-defined]
    assert body.startswith(MAGIC), "this kubectl sends JSON: 1.32 or newer is needed"
    assert without_empty(decode(body)) == without_empty(json.loads(printed))
