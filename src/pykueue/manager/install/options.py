"""What an installer may choose, and the configuration that follows from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pykueue.api.validation.syntax import dns_label
from pykueue.api.yaml import load_documents
from pykueue.jobs.kinds import BUILT_IN
from pykueue.manager.configuration import Configuration, parse
from pykueue.manager.configuration.loading import CURRENT, read_text
from pykueue.manager.install_names import InstallNames
from pykueue.manager.satellites import Satellite

#: Two, so that queues go on while one is replaced; only one decides at a time.
REPLICAS = 2

#: Where the manager's container has its scratch volume, and a claim for recordings.
SCRATCH_PATH = "/tmp"
CLAIM_PATH = "/var/lib/pykueue"

#: The most replicas a Deployment can have.
MAX_REPLICAS = 2**31 - 1

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:]+\])"
#: An image reference, by the grammar of the OCI distribution project (`reference/reference.go`).
_IMAGE = re.compile(
    rf"(?:{_HOST}(?::[0-9]+)?/)?(?P<path>{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?",
    re.ASCII,
)
_MAX_IMAGE_PATH = 255


def default_image() -> str:
    """The image that the Containerfile builds, as a tag without a registry."""
    from importlib.metadata import version  # takes a megabyte; managers need none of it

    return f"pykueue:{version('pykueue')}"


class OptionsError(ValueError):
    """An option is not accepted, or contradicts another one; the message names them."""


@dataclass(frozen=True)
class FlightRecorder:
    """Where the manager records, and how much it keeps; texts as in its options."""

    size: str = "1Gi"
    age: str = "7d"
    claim: str = ""
    """A PersistentVolumeClaim of its namespace; without one recordings are lost with the pod."""

    @property
    def directory(self) -> str:
        """In the container."""
        return f"{CLAIM_PATH}/flight" if self.claim else f"{SCRATCH_PATH}/flight"


@dataclass(frozen=True)
class Options:
    """Everything the objects depend on."""

    configuration: Configuration
    #: The configuration file as it stands in the ConfigMap.
    configuration_text: str
    image: str = field(default_factory=default_image)
    replicas: int = REPLICAS
    #: Certificates come from cert-manager instead of the manager itself.
    cert_manager: bool = False
    network_policy: bool = True
    #: A ServiceMonitor for the Prometheus operator.
    service_monitor: bool = False
    #: A PrometheusRule with alerts, and ConfigMaps with dashboards for Grafana.
    alerts: bool = False
    dashboards: bool = False
    #: Those who use queues may read pods, their logs and events where they have the role.
    pod_viewer: bool = False
    #: The dashboard is installed beside the manager.
    dashboard: bool = False
    #: The manager records; None: it does not.
    flight_recorder: FlightRecorder | None = None
    #: The manager forecasts when pending workloads start.
    forecasts: bool = False
    #: Host by which browsers reach it, through a Service and what ends TLS before it; empty: loopback only.
    dashboard_host: str = ""
    #: An Ingress for that host.
    dashboard_ingress: bool = False
    #: Installed beside the manager, and their configuration files.
    satellites: Mapping[Satellite, str] = field(default_factory=dict)

    @property
    def names(self) -> InstallNames:
        """The names of the installed objects."""
        return InstallNames.of(self.configuration)


def options(
    config: Path | None = None,
    namespace: str | None = None,
    *,
    image: str | None = None,
    replicas: int = REPLICAS,
    cert_manager: bool = False,
    network_policy: bool = True,
    service_monitor: bool = False,
    pod_viewer: bool = False,
) -> Options:
    """The choices, checked. The file is kept as it is where nothing in it has to change.

    Raises OptionsError, ConfigurationError and OSError.
    """
    example = default_image()
    image = example if image is None else image
    problem = dns_label(namespace) if namespace is not None else None
    if problem:
        raise OptionsError(f"--namespace: {namespace!r} is not accepted: {problem}")
    image_path = _IMAGE.fullmatch(image)
    if image_path is None or len(image_path["path"]) > _MAX_IMAGE_PATH:
        raise OptionsError(
            f"--image: {image!r} is not accepted: must be an image reference, for example {example} or "
            f"registry.example.com/team/{example}"
        )
    if not 1 <= replicas <= MAX_REPLICAS:
        raise OptionsError(f"--replicas: {replicas} is not accepted: must be between 1 and {MAX_REPLICAS}")
    source = "the shipped configuration" if config is None else str(config)
    text = shipped_configuration() if config is None else read_text(config)
    configuration = parse(text, source)
    changes: dict[str, Any] = {}
    if namespace is not None and namespace != configuration.namespace:
        if config is not None and "namespace" in _document(text):
            raise OptionsError(
                f"--namespace {namespace} and namespace: {configuration.namespace} in {config}: use one"
            )
        changes["namespace"] = namespace
    if cert_manager and configuration.internal_cert_management.enable:
        if "enable" in (_document(text).get("internalCertManagement") or {}):
            raise OptionsError(f"--cert-manager and internalCertManagement.enable: true in {config}: use one")
        changes["internalCertManagement"] = {"enable": False}
    if changes:
        text = _changed(text, changes)
        configuration = parse(text, source)
    return Options(
        configuration,
        text,
        image,
        replicas,
        cert_manager,
        network_policy,
        service_monitor,
        pod_viewer=pod_viewer,
    )


def shipped_configuration() -> str:
    """The configuration of an installation that names none: every job kind there is is queued."""
    document = {
        "apiVersion": CURRENT,
        "kind": "Configuration",
        "integrations": {"frameworks": list(BUILT_IN.frameworks)},
    }
    return yaml.safe_dump(document, sort_keys=False)


def _document(text: str) -> dict[str, Any]:
    (document,) = load_documents(text)
    return document


def _changed(text: str, changes: Mapping[str, Any]) -> str:
    document = _document(text)
    for key, value in changes.items():
        if isinstance(value, Mapping):
            value = {**(document.get(key) or {}), **value}
        document[key] = value
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
