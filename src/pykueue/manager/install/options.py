"""What an installer may choose, and the configuration that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from pykueue.api.yaml import load_documents
from pykueue.manager.configuration import Configuration, parse
from pykueue.manager.configuration.loading import CURRENT
from pykueue.manager.install_names import InstallNames
from pykueue.manager.manager import QUEUED

#: The image that the Containerfile builds, as a tag without a registry.
IMAGE = f"pykueue:{version('pykueue')}"

#: Two, so that queues go on while one is replaced; only one decides at a time.
REPLICAS = 2


class OptionsError(ValueError):
    """Two choices contradict each other; the message names both."""


@dataclass(frozen=True)
class Options:
    """Everything the objects depend on."""

    configuration: Configuration
    #: The configuration file as it stands in the ConfigMap.
    configuration_text: str
    image: str = IMAGE
    replicas: int = REPLICAS
    #: Certificates come from cert-manager instead of the manager itself.
    cert_manager: bool = False
    network_policy: bool = True
    #: A ServiceMonitor for the Prometheus operator.
    service_monitor: bool = False

    @property
    def names(self) -> InstallNames:
        return InstallNames.of(self.configuration)


def options(
    config: Path | None = None,
    namespace: str | None = None,
    *,
    image: str = IMAGE,
    replicas: int = REPLICAS,
    cert_manager: bool = False,
    network_policy: bool = True,
    service_monitor: bool = False,
) -> Options:
    """The choices, checked. The file is kept as it is where nothing in it has to change.

    Raises OptionsError, ConfigurationError and OSError.
    """
    source = "the shipped configuration" if config is None else str(config)
    text = shipped_configuration() if config is None else config.read_text(encoding="utf-8")
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
    return Options(configuration, text, image, replicas, cert_manager, network_policy, service_monitor)


def shipped_configuration() -> str:
    """The configuration of an installation that names none: every job kind there is is queued."""
    document = {
        "apiVersion": CURRENT,
        "kind": "Configuration",
        "integrations": {"frameworks": list(QUEUED)},
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
