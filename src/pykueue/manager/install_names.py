"""What an installation on a cluster is called: the one place that manifests and the running manager share.

The objects carry the reference's names (docs/reference/kueue-api.md 10.1), so that what was written for its
installation finds ours. All of them follow from the configuration: the base is what the webhook Service is
called without its ending.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykueue.manager.configuration import Configuration

#: Endings of names; what comes before is the base, `kueue` unless configured otherwise.
_WEBHOOK_SERVICE = "-webhook-service"

#: Port on which Services answer the API server, and the port of the metrics Service.
SERVICE_PORT = 443
METRICS_SERVICE_PORT = 8443

#: Path of the webhook server that converts objects between versions (ConversionReview v1).
CONVERT_PATH = "/convert"
#: Path of the metrics server, which is also the non-resource URL that a reader must be allowed to get.
METRICS_PATH = "/metrics"

#: Keys of the certificate Secret. The mounted directory holds files of these names.
CA_CERTIFICATE, CA_KEY = "ca.crt", "ca.key"
CERTIFICATE, KEY = "tls.crt", "tls.key"

#: Key of the configuration in its ConfigMap, where it is mounted, and the argument that names it.
CONFIG_KEY = "controller_manager_config.yaml"
CONFIG_PATH = f"/{CONFIG_KEY}"

#: Groups and versions of the visibility API, each an APIService `<version>.<group>`.
VISIBILITY_GROUP = "visibility.kueue.x-k8s.io"
VISIBILITY_VERSIONS = ("v1beta1", "v1beta2")
#: Where the leading manager serves the state of its engine. Kueue has no such resource.
ENGINE_STATE_PATH = f"/apis/{VISIBILITY_GROUP}/v1beta2/enginestates/engine"

#: The ConfigMap in which replicas keep how good past forecasts were.
SCORES_CONFIG_MAP = "pykueue-forecast-scores"

#: Names of the container's ports.
WEBHOOK_PORT_NAME, METRICS_PORT_NAME, VISIBILITY_PORT_NAME = "webhook-server", "metrics", "visibility"
HEALTH_PORT_NAME = "health"


def pending_path(namespace: str, name: str) -> str:
    """Where a pending Workload is served with its start. Kueue has no such resource."""
    return f"/apis/{VISIBILITY_GROUP}/v1beta2/namespaces/{namespace}/pendingworkloads/{name}"


def story_path(namespace: str, name: str) -> str:
    """Where `pykueue story` reads the history of a Workload. Kueue has no such resource."""
    return f"/apis/{VISIBILITY_GROUP}/v1beta2/namespaces/{namespace}/workloads/{name}/story"


def why_path(namespace: str, name: str) -> str:
    """Where the answer to why a Workload is pending is served. Kueue has no such resource."""
    return f"/apis/{VISIBILITY_GROUP}/v1beta2/namespaces/{namespace}/workloads/{name}/why"


@dataclass(frozen=True)
class InstallNames:
    """Names of the installed objects. Ports of the process itself are the configuration's."""

    namespace: str
    base: str
    webhook_service: str
    #: The Secret that holds authority and serving certificate, shared by all replicas.
    webhook_secret: str

    @classmethod
    def of(cls, configuration: Configuration) -> InstallNames:
        """The names that follow from a configuration."""
        management = configuration.internal_cert_management
        service = management.webhook_service_name
        return cls(
            configuration.namespace,
            service.removesuffix(_WEBHOOK_SERVICE),
            service,
            management.webhook_secret_name,
        )

    @property
    def deployment(self) -> str:
        """The manager's Deployment."""
        return f"{self.base}-controller-manager"

    @property
    def service_account(self) -> str:
        """The manager's ServiceAccount."""
        return f"{self.base}-controller-manager"

    @property
    def config_map(self) -> str:
        """The ConfigMap with the configuration file."""
        return f"{self.base}-manager-config"

    @property
    def metrics_service(self) -> str:
        """The Service of the metrics endpoint."""
        return f"{self.base}-controller-manager-metrics-service"

    @property
    def visibility_service(self) -> str:
        """The Service of the visibility API."""
        return f"{self.base}-visibility-server"

    @property
    def mutating_configuration(self) -> str:
        """The MutatingWebhookConfiguration."""
        return f"{self.base}-mutating-webhook-configuration"

    @property
    def validating_configuration(self) -> str:
        """The ValidatingWebhookConfiguration."""
        return f"{self.base}-validating-webhook-configuration"

    @property
    def api_services(self) -> tuple[str, ...]:
        """The APIServices of the visibility API, whose caBundle the manager keeps."""
        return tuple(f"{version}.{VISIBILITY_GROUP}" for version in VISIBILITY_VERSIONS)

    @property
    def services(self) -> tuple[str, ...]:
        """The Services that one serving certificate answers for."""
        return (self.webhook_service, self.visibility_service, self.metrics_service)

    @property
    def dns_names(self) -> tuple[str, ...]:
        """The host names in the serving certificate, that which the API server asks for first."""
        first = f"{self.webhook_service}.{self.namespace}.svc"
        names = [
            f"{service}.{self.namespace}{suffix}" for service in self.services for suffix in (".svc", "")
        ]
        return tuple(dict.fromkeys([first, *names]))
