"""Kueue's own manager as a process, installed on any API server that a kubeconfig reaches.

`PYKUEUE_KUEUE` names a directory with its binary (`manager`) and its installation (`install.yaml`, the output
of `kubectl kustomize config/default`). By hand, until SIGINT:

    cd tests/besidekueue
    PYTHONPATH=..:../realcluster python besidekueue_manager.py --kubeconfig F [--config F] [--folder DIR]
"""

from __future__ import annotations

import argparse
import base64
import os
import signal
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from realcluster_plane import PATIENCE, Kubectl, Process, free_port, own_address, until

VARIABLE = "PYKUEUE_KUEUE"
NAMESPACE = "kueue-system"
#: Purpose of a port -> the Service behind which it is.
SERVICES = {"webhooks": "kueue-webhook-service"}
#: Jobs only: other frameworks need the definitions of their kinds.
CONFIGURATION = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "clientConnection": {"qps": 300, "burst": 500},
    "integrations": {"frameworks": ["batch/job"]},
}


def folder() -> Path:
    """The directory of the binary and the manifests; skips the test where there is none."""
    name = os.environ.get(VARIABLE, "")
    if not name:
        pytest.skip(f"{VARIABLE} is not set: it names a directory with Kueue's manager and install.yaml")
    found = Path(name)
    for file in ("manager", "install.yaml"):
        if not (found / file).exists():
            pytest.fail(f"{VARIABLE}={name}: there is no {file} in it")
    return found


class KueueManager:
    """Kueue's manager with its CRDs, webhooks and configuration; it acts as the administrator."""

    def __init__(
        self, kueue: Path, kubeconfig: Path, scratch: Path, configuration: dict[str, Any] | None = None
    ) -> None:
        self.kubectl = Kubectl(kubeconfig, scratch)
        self.configuration = {**CONFIGURATION, **(configuration or {})}
        self._ports = {purpose: free_port() for purpose in (*SERVICES, "health")}
        self._certificates = scratch / "certificates"
        self._certificates.mkdir(exist_ok=True)
        self._install(kueue)
        file = scratch / "kueue.yaml"
        file.write_text(yaml.safe_dump(self._on_this_host()))
        self.process = Process(
            [str(kueue / "manager"), f"--config={file}", "--zap-log-level=2"],
            scratch / "kueue.log",
            {**os.environ, "KUBECONFIG": str(kubeconfig)},
        )

    def _on_this_host(self) -> dict[str, Any]:
        """The configuration with free ports and a directory for certificates."""
        return {
            **self.configuration,
            "namespace": NAMESPACE,
            "leaderElection": {"leaderElect": False},
            "webhook": {"port": self._ports["webhooks"], "certDir": str(self._certificates)},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f":{self._ports['health']}"},
            # It needs the environment of a pod.
            "featureGates": {**self.configuration.get("featureGates", {}), "VisibilityOnDemand": False},
        }

    def _install(self, kueue: Path) -> None:
        """Apply the installation, without the Deployment; Services lead to this host."""
        with (kueue / "install.yaml").open() as file:
            manifests = [obj for obj in yaml.load_all(file, yaml.CSafeLoader) if obj]
        for obj in manifests:
            if obj["kind"] == "Service":
                obj["spec"].pop("selector", None)
            if obj["kind"] == "ConfigMap":
                obj["data"] = dict.fromkeys(obj["data"], yaml.safe_dump(self.configuration))
        names = ("CustomResourceDefinition", "Namespace")
        self._apply([obj for obj in manifests if obj["kind"] in names])
        hooks = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        without = (*names, *hooks, "APIService", "Deployment")
        self._apply([obj for obj in manifests if obj["kind"] not in without])
        self._apply([*self._routes(), *(obj for obj in manifests if obj["kind"] in hooks)])

    def _apply(self, objects: list[dict[str, Any]]) -> None:
        text = yaml.dump_all(objects, Dumper=yaml.CSafeDumper)
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def _routes(self) -> list[dict[str, Any]]:
        """Endpoints of the Services: this process."""
        found: list[dict[str, Any]] = []
        for purpose, service in SERVICES.items():
            port = {"port": self._ports[purpose], "protocol": "TCP"}
            metadata = {"name": service, "namespace": NAMESPACE}
            subsets = [{"addresses": [{"ip": own_address()}], "ports": [port]}]
            found.append({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets})
            found.append(
                {
                    "apiVersion": "discovery.k8s.io/v1",
                    "kind": "EndpointSlice",
                    "metadata": {**metadata, "labels": {"kubernetes.io/service-name": service}},
                    "addressType": "IPv4",
                    "endpoints": [{"addresses": [own_address()]}],
                    "ports": [{"name": "", **port}],
                }
            )
        return found

    def start(self) -> None:
        """Start it, and wait until it admits: webhooks included."""
        self.process.start()
        until(self._mount, "Kueue's certificate", 3 * PATIENCE)

        def ready() -> bool:
            self.process.check()
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{self._ports['health']}/readyz", timeout=2
                ) as answer:
                    return bool(answer.status == 200)
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                return False

        until(ready, "Kueue's manager ready", 3 * PATIENCE)
        flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor"}
        probe = yaml.safe_dump({**flavor, "metadata": {"name": "probe"}, "spec": {}})
        until(
            lambda: self.kubectl.run("apply", "--dry-run=server", "-f", "-", stdin=probe).returncode == 0,
            "Kueue's webhooks reachable",
        )

    def _mount(self) -> bool:
        """Write the certificate that it keeps in a Secret where a kubelet would mount it."""
        self.process.check()
        secret = self.kubectl.get("secret", "kueue-webhook-server-cert", NAMESPACE)
        data = (secret or {}).get("data") or {}
        if "tls.crt" not in data:
            return False
        for name, value in data.items():
            (self._certificates / name).write_bytes(base64.b64decode(value))
        return True

    def stop(self) -> None:
        self.process.kill()


def main() -> None:
    """Run it until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    scratch = given.folder or Path(tempfile.mkdtemp())
    scratch.mkdir(parents=True, exist_ok=True)
    configuration = yaml.safe_load(given.config.read_text()) if given.config else None
    manager = KueueManager(Path(os.environ[VARIABLE]), given.kubeconfig.absolute(), scratch, configuration)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        manager.start()
        print(
            f"Kueue's manager is ready: process {manager.process.pid}, log {manager.process.log}", flush=True
        )
        while not manager.process.has_ended:
            time.sleep(1)
    except KeyboardInterrupt:
        pass
    finally:
        manager.stop()


if __name__ == "__main__":
    main()
