"""pykueue on the control plane: the manifests applied, and managers that run with the rights given there."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import yaml
from realcluster_plane import Plane, Process, free_port, own_address, until

NAMESPACE = "kueue-system"
ACCOUNT = "kueue-controller-manager"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
#: Purpose of a port -> the Service behind which it is.
SERVICES = {
    "webhooks": "kueue-webhook-service",
    "metrics": "kueue-controller-manager-metrics-service",
    "visibility": "kueue-visibility-server",
}


class Replica:
    """One manager process, started as its Deployment would start it."""

    def __init__(self, plane: Plane, number: int, configuration: dict[str, Any], kubeconfig: str) -> None:
        self.number = number
        folder = plane.folder / f"manager-{number}"
        folder.mkdir()
        self.ports = {purpose: free_port() for purpose in (*SERVICES, "health")}
        file = folder / "config.yaml"
        file.write_text(yaml.safe_dump(self._on_this_host(configuration)))
        arguments = ["manager", "--kubeconfig", kubeconfig, "--config", str(file), "--zap-encoder=console"]
        self.process = Process([sys.executable, "-m", "pykueue.cli.main", *arguments], folder / "log")
        self.process.start()

    def _on_this_host(self, configuration: dict[str, Any]) -> dict[str, Any]:
        """The same with other ports: replicas share this host's address."""
        return {
            **configuration,
            "webhook": {**configuration.get("webhook", {}), "port": self.ports["webhooks"]},
            "metrics": {**configuration.get("metrics", {}), "bindAddress": f":{self.ports['metrics']}"},
            "health": {"healthProbeBindAddress": f":{self.ports['health']}"},
            "visibilityServer": {"bindPort": self.ports["visibility"]},
        }

    def probe(self, endpoint: str) -> bool:
        """As the kubelet probes."""
        import urllib.request

        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.ports['health']}/{endpoint}", timeout=2
            ) as a:
                return bool(a.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False


class Installation:
    """The installed manifests and the replicas that run."""

    def __init__(self, plane: Plane, manifests: str) -> None:
        self.plane = plane
        self.manifests = [obj for obj in yaml.safe_load_all(manifests) if obj]
        self.replicas: list[Replica] = []
        self.output = plane.kubectl("apply", "--server-side", "-f", "-", stdin=manifests)
        gather_roles(plane)
        self._started = 0

    def objects(self, kind: str) -> list[dict[str, Any]]:
        return [obj for obj in self.manifests if obj["kind"] == kind]

    def configuration(self) -> dict[str, Any]:
        """What the ConfigMap holds."""
        (found,) = self.objects("ConfigMap")
        (text,) = found["data"].values()
        configuration: dict[str, Any] = yaml.safe_load(text)
        return configuration

    def token(self) -> str:
        """A token of the manager's ServiceAccount, as the kubelet would ask for."""
        return self.plane.kubectl("create", "token", ACCOUNT, "-n", NAMESPACE).strip()

    def start_replica(self, **changes: Any) -> Replica:
        """A manager with the account's rights, ready to serve and behind the Services."""
        self._started += 1
        kubeconfig = self.plane.kubeconfig(f"manager-{self._started}", token=self.token())
        configuration = {**self.configuration(), **changes}
        replica = Replica(self.plane, self._started, configuration, str(kubeconfig))
        self.replicas.append(replica)

        def ready() -> bool:
            replica.process.check()
            return replica.probe("readyz")

        until(ready, "manager ready")
        self.route()
        until(self.is_trusted, "the manager's certificate authority where the API server looks for it")
        return replica

    def keep(self) -> None:
        """Start replicas that gave up, as a kubelet would, and wait until all are ready."""

        def ready() -> bool:
            for replica in self.replicas:
                if replica.process.has_ended:
                    replica.process.start()
            return all(replica.probe("readyz") for replica in self.replicas)

        until(ready, "managers ready")
        self.route()

    def is_trusted(self) -> bool:
        """Whether the CA is in every object from which the API server takes it."""
        configurations = [
            entry
            for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
            for configuration in self.plane.kubectl.list(kind)
            for entry in configuration["webhooks"]
        ]
        configurations += [
            crd["spec"]["conversion"]["webhook"]
            for crd in self.plane.kubectl.list("crds")
            if crd["spec"]["conversion"]["strategy"] == "Webhook"
        ]
        return all(one["clientConfig"].get("caBundle") for one in configurations)

    def kill(self, replica: Replica) -> None:
        """End it as a failing machine would; the Services lead elsewhere."""
        replica.process.kill()
        self.replicas.remove(replica)
        self.route()

    def end(self, replica: Replica) -> None:
        """End it as a kubelet would: SIGTERM, while it is removed from the Services."""
        replica.process.tell_to_end()
        self.replicas.remove(replica)
        self.route()
        assert replica.process.wait() == 0

    def route(self) -> None:
        """Endpoints of the Services: the replicas that are ready, as the endpoints controllers would write.

        Newer API servers read slices: of one replica each here, for each has ports of its own.
        """
        ready = {replica.number: replica for replica in self.replicas if replica.probe("readyz")}
        objects: list[dict[str, Any]] = []
        for purpose, service in SERVICES.items():
            port_name = next(
                obj["spec"]["ports"][0]["name"]
                for obj in self.objects("Service")
                if obj["metadata"]["name"] == service
            )

            def ports(replica: Replica, purpose: str = purpose, name: str = port_name) -> list[Any]:
                return [{"name": name, "port": replica.ports[purpose], "protocol": "TCP"}]

            subsets = [{"addresses": [{"ip": own_address()}], "ports": ports(one)} for one in ready.values()]
            metadata = {"name": service, "namespace": NAMESPACE}
            objects.append(
                {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets}
            )
            for number in range(1, self._started + 1):
                replica = ready.get(number)
                slice_ = {
                    "apiVersion": "discovery.k8s.io/v1",
                    "kind": "EndpointSlice",
                    "metadata": {
                        "name": f"{service}-{number}",
                        "namespace": NAMESPACE,
                        "labels": {"kubernetes.io/service-name": service},
                    },
                    "addressType": "IPv4",
                    "endpoints": [] if replica is None else [{"addresses": [own_address()]}],
                    "ports": [] if replica is None else ports(replica),
                }
                objects.append(slice_)
        self.plane.kubectl.apply(*objects)

    def stop(self) -> None:
        for replica in self.replicas:
            replica.process.stop()
        self.replicas.clear()


def gather_roles(plane: Plane) -> None:
    """Fill the aggregated ClusterRoles, as the controller of that name does on a cluster."""
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    roles = plane.call("GET", path)["items"]
    for _ in range(4):  # a role that was filled may be part of another, as view is of edit, and that of admin
        for role in roles:
            selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
            if selectors:
                role["rules"] = [
                    rule
                    for other in roles
                    if any(_selects(selector, other) for selector in selectors)
                    for rule in other.get("rules") or ()
                ]
    for role in roles:
        if role.get("aggregationRule"):
            plane.call("PUT", f"{path}/{role['metadata']['name']}", role)


def _selects(selector: dict[str, Any], role: dict[str, Any]) -> bool:
    return bool(selector["matchLabels"].items() <= (role["metadata"].get("labels") or {}).items())


def rendered(*options: str) -> str:
    """What `pykueue manifests` prints."""
    command = [sys.executable, "-m", "pykueue.cli.main", "manifests", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
