"""`pykueue manifests`: what is installed on a cluster, as YAML for kubectl."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import yaml

from pykueue.api.validation.syntax import subdomain
from pykueue.cli.options import checked, duration, satellite_options, size
from pykueue.manager.configuration import ConfigurationError
from pykueue.manager.configuration.loading import read_text
from pykueue.manager.install.objects import manifests as objects
from pykueue.manager.install.options import (
    MAX_REPLICAS,
    REPLICAS,
    FlightRecorder,
    OptionsError,
    default_image,
    options,
)
from pykueue.manager.satellites import POPULATOR, PRIORITY_BOOSTER, Satellite
from pykueue.satellites.configuration import ConfigurationError as SatelliteConfigurationError
from pykueue.satellites.configuration import booster_configuration, populator_configuration

try:
    from yaml import CSafeDumper as _Dumper
except ImportError:  # PyYAML was built without libyaml
    from yaml import SafeDumper as _Dumper  # type: ignore[assignment]


class _Manifests(_Dumper):
    """Texts of several lines are shown as they are, so that a configuration can be read and edited."""


def _text(dumper: Any, value: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Manifests.add_representer(str, _text)
# Objects share parts; each is written out in full.
_Manifests.ignore_aliases = lambda *_: True  # type: ignore[method-assign]


def written(documents: Iterable[Any]) -> str:
    """The documents as one YAML text."""
    return yaml.dump_all(
        documents, Dumper=_Manifests, sort_keys=False, allow_unicode=True, width=110, explicit_start=True
    )


@click.command()
@click.option(
    "--namespace", help="Namespace of the manager; default: that of the configuration, else kueue-system."
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Configuration file (config.kueue.x-k8s.io) to install; without it all job kinds are managed.",
)
@click.option(
    "--image", default=default_image(), show_default=True, help="Image built from the Containerfile."
)
@click.option(
    "--replicas",
    type=click.IntRange(1, MAX_REPLICAS),
    default=REPLICAS,
    show_default=True,
    help="Replicas of the manager: one leads, all answer webhook requests.",
)
@click.option(
    "--cert-manager", is_flag=True, help="Use certificates of cert-manager instead of the manager's own."
)
@click.option("--no-network-policy", is_flag=True, help="Omit the NetworkPolicy.")
@click.option("--service-monitor", is_flag=True, help="Add a ServiceMonitor for the Prometheus operator.")
@click.option("--alerts", is_flag=True, help="Add a PrometheusRule with alerts for the Prometheus operator.")
@click.option(
    "--dashboards", is_flag=True, help="Add dashboards for Grafana, in ConfigMaps that its sidecar finds."
)
@click.option("--dashboard", is_flag=True, help="Install the dashboard too; see pykueue dashboard.")
@click.option(
    "--dashboard-host",
    default="",
    metavar="HOST",
    help="With --dashboard: add a Service. Browsers reach it by this host; TLS must end in front of it.",
)
@click.option(
    "--dashboard-ingress", is_flag=True, help="With --dashboard-host: add an Ingress that ends TLS."
)
@click.option(
    "--pod-viewer",
    is_flag=True,
    help="Let users of queues read pods, their logs and events where they have the role.",
)
@click.option("--flight-recorder", is_flag=True, help="Record events and decisions, for pykueue replay.")
@click.option(
    "--flight-recorder-claim",
    default="",
    metavar="NAME",
    help="PersistentVolumeClaim for recordings; without it they are lost with the pod.",
)
@click.option(
    "--flight-recorder-size",
    callback=checked(size),
    default=FlightRecorder().size,
    show_default=True,
    help="Size of all recordings together, beyond which the oldest are removed.",
)
@click.option(
    "--flight-recorder-age",
    callback=checked(duration),
    default=FlightRecorder().age,
    show_default=True,
    help="Age beyond which recordings are removed.",
)
@click.option(
    "--forecasts", is_flag=True, help="Forecast when workloads start, in the visibility API and in dry runs."
)
@satellite_options("Install")
def manifests(
    namespace: str | None,
    config: Path | None,
    image: str,
    replicas: int,
    cert_manager: bool,
    no_network_policy: bool,
    service_monitor: bool,
    alerts: bool,
    dashboards: bool,
    dashboard: bool,
    dashboard_host: str,
    dashboard_ingress: bool,
    pod_viewer: bool,
    flight_recorder: bool,
    flight_recorder_claim: str,
    flight_recorder_size: str,
    flight_recorder_age: str,
    forecasts: bool,
    populator_config: Path | None,
    booster_config: Path | None,
) -> None:
    """Print what is installed on a cluster.

    `pykueue manifests | kubectl apply --server-side -f -` installs it.
    """
    try:
        chosen = options(
            config,
            namespace,
            image=image,
            replicas=replicas,
            cert_manager=cert_manager,
            network_policy=not no_network_policy,
            service_monitor=service_monitor,
            pod_viewer=pod_viewer,
        )
        satellites = _satellites(populator_config, booster_config)
        _check_dashboard(dashboard, dashboard_host, dashboard_ingress)
        chosen = replace(chosen, dashboard_host=dashboard_host, dashboard_ingress=dashboard_ingress)
        chosen = replace(chosen, alerts=alerts, dashboards=dashboards, dashboard=dashboard)
        recorder = FlightRecorder(flight_recorder_size, flight_recorder_age, flight_recorder_claim)
        chosen = replace(
            chosen,
            satellites=satellites,
            flight_recorder=recorder if flight_recorder or flight_recorder_claim else None,
            forecasts=forecasts,
        )
    except (ConfigurationError, OptionsError, OSError, SatelliteConfigurationError) as error:
        raise click.UsageError(str(error)) from None
    click.echo(written(objects(chosen)), nl=False)


def _check_dashboard(dashboard: bool, host: str, ingress: bool) -> None:
    """Raises OptionsError for options that need another one, and for a host that is no DNS name."""
    if host and not dashboard:
        raise OptionsError("--dashboard-host needs --dashboard")
    if ingress and not host:
        raise OptionsError("--dashboard-ingress needs --dashboard-host")
    problem = subdomain(host) if host else None
    if problem:
        raise OptionsError(f"--dashboard-host: {host!r} is not accepted: {problem}")


def _satellites(populator: Path | None, booster: Path | None) -> dict[Satellite, str]:
    """The satellites to install and their configuration. Raises ConfigurationError and OSError."""
    found = {}
    if populator is not None:
        populator_configuration(populator)
        found[POPULATOR] = read_text(populator)
    if booster is not None:
        booster_configuration(booster)
        found[PRIORITY_BOOSTER] = read_text(booster)
    return found
