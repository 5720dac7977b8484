"""Real clients against a running server: kubectl as a subprocess, with its own home and discovery cache."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import select
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from pykueue.kube.transport import Request
from pykueue.testing import RunningServer

#: Seconds after which a step that hangs fails its test; nothing is asserted about how long a step takes.
PATIENCE = 60

Object = dict[str, Any]


def kubectl_program() -> Path | None:
    """The kubectl on PATH, or the one that KUBECTL names."""
    found = shutil.which(os.environ.get("KUBECTL", "kubectl"))
    return Path(found) if found is not None else None


def other_kubectls() -> list[Path]:
    """Binaries of other versions, kept as `kubectl.1.NN` beside the real file of the one on PATH."""
    program = kubectl_program()
    if program is None:
        return []
    versions = program.resolve().parent.glob("kubectl.1.*")
    return sorted(
        (one for one in versions if re.fullmatch(r"kubectl\.1\.\d+", one.name)), key=lambda p: p.name
    )


class Kubectl:
    """Runs one kubectl against one server."""

    def __init__(self, server: RunningServer, home: Path, program: Path | None = None) -> None:
        chosen = program or kubectl_program()
        if chosen is None:
            pytest.skip("kubectl is not installed: put it on PATH or name it in KUBECTL")
        self._program = str(chosen)
        self.home = home
        self.server = server
        self.namespace = "default"
        self._environment = {
            **server.environment,
            "HOME": str(home),
            "KUBECACHEDIR": str(home / "cache"),
        }

    def in_new_namespace(self) -> Kubectl:
        """Make a namespace and let all commands that do not name one act in it."""
        made = self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-"}})
        self.namespace = made["metadata"]["name"]
        return self

    def put(self, obj: Object) -> Any:
        """Create an object without kubectl."""
        assert self.server.cluster.server is not None
        transport = self.server.cluster.server.transport()
        group, _, version = obj["apiVersion"].rpartition("/")
        endpoint = self.server.cluster.server.core.registry.by_kind(group, version, obj["kind"])
        assert endpoint is not None, obj["kind"]
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        space = f"/namespaces/{self.namespace}" if endpoint.kind.namespaced else ""
        path = f"{root}{space}/{endpoint.plural}"
        return self.server.run(transport.call(Request("POST", path, {}, obj)))

    def popen(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start it; the caller ends it."""
        return subprocess.Popen(
            [self._program, "--namespace", self.namespace, *arguments],
            env={**self._environment, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, stdin: str | Object = "", **environment: str) -> tuple[int, str, str]:
        """Exit code, output, error output."""
        text = stdin if isinstance(stdin, str) else orjson.dumps(stdin).decode()
        with self.popen(*arguments, **environment) as process:
            try:
                out, err = process.communicate(text, timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            return process.returncode, out, err

    def __call__(self, *arguments: str, stdin: str | Object = "", **environment: str) -> str:
        """The output of a command that must succeed."""
        code, out, err = self.run(*arguments, stdin=stdin, **environment)
        assert code == 0, f"kubectl {' '.join(arguments)} exited {code}:\n{out}{err}"
        return out

    def refused(self, *arguments: str, stdin: str | Object = "") -> str:
        """The error output of a command that must fail."""
        code, out, err = self.run(*arguments, stdin=stdin)
        assert code != 0, f"kubectl {' '.join(arguments)} should fail, but printed:\n{out}"
        return err

    def object(self, *arguments: str) -> Any:
        """What a command prints with `-o json`, decoded."""
        return orjson.loads(self(*arguments, "-o", "json"))

    def rows(self, *arguments: str, stdin: str | Object = "") -> list[list[str]]:
        """The cells of a printed table, header first."""
        return [re.split(r"\s{2,}", line.strip()) for line in self(*arguments, stdin=stdin).splitlines()]

    @contextlib.contextmanager
    def following(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on until the block is left."""
        with self.popen(*arguments) as process:
            try:
                yield process
            finally:
                process.kill()
                process.communicate()


class RawClient:
    """Raw HTTP over TLS: says anything, and checks that what comes back is an answer."""

    def __init__(self, server: RunningServer) -> None:
        host, _, port = server.url.removeprefix("https://").rpartition(":")
        self.address = (host, int(port))
        self.token = server.token
        self.context = ssl.create_default_context(cafile=str(server.ca_file))

    def connect(self) -> ssl.SSLSocket:
        raw = socket.create_connection(self.address, timeout=PATIENCE)
        return self.context.wrap_socket(raw, server_hostname=self.address[0])

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPSConnection(*self.address, context=self.context, timeout=PATIENCE)
        try:
            given = {key.replace("_", "-"): value for key, value in headers.items()}
            connection.request(method, path, body, {"Authorization": f"Bearer {self.token}", **given})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def refused(self, method: str, path: str, body: bytes | None = None, **headers: str) -> dict[str, Any]:
        """The Status of a request that must fail, and fail politely."""
        code, answer = self.ask(method, path, body, **headers)
        status: dict[str, Any] = json.loads(answer)
        assert (status["kind"], status["status"]) == ("Status", "Failure"), status
        assert code == status["code"]
        assert code < 500, status
        assert "Traceback" not in status["message"]
        return status

    def alive(self) -> bool:
        return self.ask("GET", "/readyz") == (200, b"ok")


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line a command prints."""
    assert process.stdout is not None
    return process.stdout.readline()


def readable(process: subprocess.Popen[str]) -> bool:
    """Whether a command has printed something that was not read yet."""
    return bool(select.select([process.stdout], [], [], 0)[0])


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> Object:
    metadata: Object = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def pod(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "busybox:1"}], **spec},
    }


def deployment(name: str, replicas: int = 1) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "busybox:1"}]},
            },
        },
    }


#: An unknown kind with status, scale, columns, defaults, a rule and selectable fields.
WIDGETS: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "description": "Widget is a thing to be counted.",
                        "type": "object",
                        "properties": {
                            "spec": {
                                "description": "What is wanted.",
                                "type": "object",
                                "properties": {
                                    "size": {
                                        "description": "Size in metres.",
                                        "type": "integer",
                                        "minimum": 1,
                                        "default": 3,
                                    },
                                    "color": {"type": "string", "enum": ["red", "blue"]},
                                    "replicas": {"type": "integer"},
                                    "parts": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["name"],
                                        "items": {
                                            "type": "object",
                                            "required": ["name"],
                                            "properties": {
                                                "name": {"type": "string"},
                                                "weight": {"type": "integer"},
                                            },
                                        },
                                    },
                                },
                                "x-kubernetes-validations": [
                                    {
                                        "rule": "!has(self.replicas) || self.replicas <= 10",
                                        "message": "no more than ten",
                                    }
                                ],
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "replicas": {"type": "integer"},
                                    "phase": {"type": "string"},
                                    "conditions": {
                                        "type": "array",
                                        "items": {
                                            "type": "object",
                                            "properties": {
                                                "type": {"type": "string"},
                                                "status": {"type": "string"},
                                            },
                                        },
                                    },
                                },
                            },
                        },
                    }
                },
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                    },
                },
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "selectableFields": [{"jsonPath": ".spec.color"}],
            }
        ],
    },
}


def widget(name: str, **spec: Any) -> Object:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}
