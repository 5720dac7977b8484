"""Real operators as processes beside `pykueue up`, with the rights and webhooks that their manifests give."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_processes import Kubectl, Up
from realcluster_plane import INTERVAL, Process, free_port, until

Object = dict[str, Any]

#: Names the folder of the operators (docs/develop/testing.md).
VARIABLE = "PYKUEUE_OPERATORS"
#: Where most operators expect the certificate of their webhooks; the path is fixed in their code.
CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
#: Kinds of the operators' manifests that are not applied: the test runs the program itself.
_LEFT_OUT = ("Deployment", "PodDisruptionBudget", "PodMonitor", "ServiceMonitor")
#: The parser in C, for definitions of some megabytes.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Ports:
    """Ports of 127.0.0.1 for one operator."""

    health: int = field(default_factory=free_port)
    webhooks: int = field(default_factory=free_port)


def _nothing() -> contextlib.AbstractContextManager[Mapping[str, str]]:
    return contextlib.nullcontext({})


@dataclass(frozen=True)
class Operator:
    """How an operator is started."""

    #: Its folder in the folder of operators.
    name: str
    #: Those that `pykueue up` must not serve itself.
    job_kinds: tuple[str, ...]
    #: Namespace and name of its ServiceAccount.
    account: tuple[str, str]
    arguments: Callable[[Ports], list[str]] = lambda _ports: []
    #: Its configuration file, passed as `--config`.
    configuration: Callable[[Ports], Object] | None = None
    #: A ConfigMap of the account's namespace, a key in it, and the settings there.
    settings: Callable[[Ports], tuple[str, str, Object]] | None = None
    #: The Service of its webhooks and the Secret with their certificate, in the account's namespace; the
    #: port of its webhooks where the program fixes one.
    webhook_service: str = ""
    webhook_port: int = 0
    certificate_secret: str = ""
    #: Path of a request that succeeds when it is ready, and its port where the program fixes one.
    health: str = "/readyz"
    health_port: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Name of a further ServiceAccount, and arguments, of the process that serves its webhooks.
    webhook_process: tuple[str, Callable[[Ports], list[str]]] | None = None
    #: A context in which the operator runs, with further environment variables.
    surroundings: Callable[[], contextlib.AbstractContextManager[Mapping[str, str]]] = _nothing
    #: Names of objects of its manifests that are not applied.
    left_out: tuple[str, ...] = ()


def folder_of(operator: Operator) -> Path:
    """The folder of an operator; skips the test where there is none."""
    name = os.environ.get(VARIABLE, "")
    if not name:
        pytest.skip(f"{VARIABLE} is not set: it names a folder with operators (docs/develop/testing.md)")
    folder = Path(name) / operator.name
    for file in ("operator", "manifests.yaml"):
        if not (folder / file).exists():
            pytest.skip(f"{VARIABLE}={name}: {operator.name}/{file} does not exist")
    return folder


class RunningOperator:
    """An operator installed in a cluster, and its process."""

    def __init__(self, operator: Operator, up: Up, kubectl: Kubectl, folder: Path) -> None:
        self._operator, self._up, self._kubectl, self._folder = operator, up, kubectl, folder
        self._ports = Ports()
        self._surroundings = contextlib.ExitStack()
        environment = self._surroundings.enter_context(operator.surroundings())
        self._environment = {**os.environ, **operator.environment, **environment, "HOME": str(folder)}
        self._stopping = threading.Event()
        self._mounting = threading.Thread(target=self._mount)
        source = folder_of(operator)
        self._install(source)
        name = operator.account[1]
        arguments = [*operator.arguments(self._ports), *self._configured()]
        self.process = self._process(source, name, operator.name, arguments)
        self._webhooks: Process | None = None
        if operator.webhook_process is not None:
            name, more = operator.webhook_process
            self._webhooks = self._process(source, name, f"{operator.name}-webhooks", more(self._ports))

    def _process(self, source: Path, account: str, title: str, arguments: list[str]) -> Process:
        environment = {**self._environment, "KUBECONFIG": str(self._kubeconfig(account))}
        return Process([str(source / "operator"), *arguments], self._folder / f"{title}.log", environment)

    def start(self) -> None:
        """Return once it is ready."""
        if self._operator.certificate_secret:
            shutil.rmtree(CERTIFICATES, ignore_errors=True)
            CERTIFICATES.mkdir(parents=True)
            self._mounting.start()
        self.process.start()
        if self._webhooks is not None:
            self._webhooks.start()
        until(self._is_ready, f"{self._operator.name} ready", 120)

    def stop(self) -> None:
        self._stopping.set()
        if self._mounting.ident is not None:
            self._mounting.join()
        self.process.kill()
        if self._webhooks is not None:
            self._webhooks.kill()
        self._surroundings.close()

    def _install(self, source: Path) -> None:
        """Apply its manifests, and Endpoints for its webhooks."""
        manifests = [
            one
            for file in sorted(source.glob("*.yaml"))
            for one in yaml.load_all(file.read_text(), _Loader)
            if one and one["kind"] not in _LEFT_OUT and one["metadata"]["name"] not in self._operator.left_out
        ]
        # A namespace or definition first: what is in it, or of it, is refused before.
        manifests.sort(key=lambda one: one["kind"] not in ("Namespace", "CustomResourceDefinition"))
        namespace = self._operator.account[0]
        if self._operator.settings is not None:
            name, key, settings = self._operator.settings(self._ports)
            manifests = [
                one for one in manifests if (one["kind"], one["metadata"]["name"]) != ("ConfigMap", name)
            ]
            metadata = {"name": name, "namespace": namespace}
            data = {key: yaml.safe_dump(settings)}
            manifests.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        for one in manifests:
            for webhook in one.get("webhooks", ()):
                # Each test uses a separate namespace, which the selectors may not match.
                webhook.pop("namespaceSelector", None)
        if self._operator.webhook_service:
            manifests.append(
                {
                    "apiVersion": "v1",
                    "kind": "Endpoints",
                    "metadata": {"name": self._operator.webhook_service, "namespace": namespace},
                    "subsets": [
                        {
                            "addresses": [{"ip": "127.0.0.1"}],
                            "ports": [
                                {
                                    "port": self._operator.webhook_port or self._ports.webhooks,
                                    "name": self._port_name(manifests),
                                }
                            ],
                        }
                    ],
                }
            )
        self._kubectl(
            "apply",
            "--server-side",
            "-f",
            "-",
            stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}),
        )

    def _port_name(self, manifests: list[Object]) -> str:
        """The name of the Service's port that webhooks are reached at."""
        (service,) = (
            one
            for one in manifests
            if one["kind"] == "Service" and one["metadata"]["name"] == self._operator.webhook_service
        )
        port = next(one for one in service["spec"]["ports"] if one["port"] == 443)
        return str(port.get("name", ""))

    def _configured(self) -> list[str]:
        if self._operator.configuration is None:
            return []
        file = self._folder / f"{self._operator.name}.yaml"
        file.write_text(yaml.safe_dump(self._operator.configuration(self._ports)))
        return [f"--config={file}"]

    def _kubeconfig(self, name: str) -> Path:
        """A kubeconfig of a ServiceAccount: what it may do is what the manifests allow."""
        namespace = self._operator.account[0]
        token = self._kubectl("create", "token", name, "-n", namespace, "--duration=8h").strip()
        document = yaml.safe_load(self._up.kubeconfig.read_text())
        (user,) = document["users"]
        user["user"] = {"token": token}
        file = self._folder / f"{name}.kubeconfig"
        file.write_text(yaml.safe_dump(document))
        return file

    def _mount(self) -> None:
        """Write the Secret's content where the operator expects it, as a kubelet does."""
        namespace, name = self._operator.account[0], self._operator.certificate_secret
        while not self._stopping.wait(INTERVAL):
            code, out, _ = self._kubectl.run("get", "secret", name, "-n", namespace, "-o", "json")
            data = json.loads(out).get("data") if code == 0 else None
            if data:
                for key, value in data.items():
                    (CERTIFICATES / key).write_bytes(base64.b64decode(value))
                return

    def _is_ready(self) -> bool:
        self.process.check()
        if self._webhooks is not None:
            self._webhooks.check()
        port = self._operator.health_port or self._ports.health
        webhooks = self._operator.webhook_port or self._ports.webhooks
        try:
            url = f"http://127.0.0.1:{port}{self._operator.health}"
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status != 200:
                    return False
            if self._operator.webhook_service:
                # Some report ready before their webhooks accept connections.
                socket.create_connection(("127.0.0.1", webhooks), timeout=2).close()
            return True
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False


@contextlib.contextmanager
def certificates_locked() -> Iterator[None]:
    """One operator at a time has its certificate at the fixed path, also among several test processes."""
    CERTIFICATES.parent.mkdir(parents=True, exist_ok=True)
    with (CERTIFICATES.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
