"""The Helm chart: it follows the manifests, and Helm makes of it what `pykueue manifests` prints."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_processes import helm_program
from click.testing import CliRunner

from pykueue.cli.main import main
from pykueue.manager.configuration import parse
from pykueue.manager.install.chart import files
from pykueue.satellites.configuration import booster_configuration, populator_configuration

CHART = Path(__file__).parents[2] / "charts" / "pykueue"
CONFIG_KEY = "controller_manager_config.yaml"

Object = dict[str, Any]

CONFIGURATION = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
webhook: {port: 10250}
metrics: {bindAddress: "127.0.0.1:9999"}
visibilityServer: {bindPort: 7777}
health: {healthProbeBindAddress: ":7778", livenessEndpointName: live}
leaderElection: {resourceName: abc, resourceNamespace: leases}
integrations: {frameworks: [pod, batch/job]}
featureGates: {VisibilityOnDemand: false}
"""

FILES = {
    "FILE": CONFIGURATION,
    "POPULATOR": "localQueueNameMode: AsClusterQueue\n",
    "BOOSTER": "timeSharing: {interval: 30m}\nmaxWorkloadPriority: 1000\n",
}


def test_the_chart_is_what_the_manifests_say() -> None:
    """When this fails: python -m pykueue.manager.install --write."""
    written = {str(path.relative_to(CHART)): path.read_text() for path in CHART.rglob("*") if path.is_file()}
    assert written.keys() == files().keys()
    assert [path for path, text in files().items() if written[path] != text] == []


@pytest.mark.parametrize("path", [path for path in files() if path.startswith("templates/")])
def test_template_blocks_are_closed(path: str) -> None:
    depth = 0
    for word in re.findall(r"\{\{-? *(if|with|range|define|end)\b", files()[path]):
        depth += -1 if word == "end" else 1
        assert depth >= 0
    assert depth == 0


def test_the_values_are_yaml_and_the_configuration_in_them_is_accepted() -> None:
    values = yaml.safe_load(files()["values.yaml"])
    assert parse(values["config"]).integrations.frameworks


@pytest.mark.parametrize("name", ["populator", "priorityBooster"])
def test_configuration_of_a_satellite_in_the_values_is_accepted(name: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_load(files()["values.yaml"])[name]["config"])
    if name == "populator":
        assert populator_configuration(file).local_queue_name == "default"
    else:
        assert booster_configuration(file).interval == 1800


def test_services_and_disruption_budget_of_the_manager_select_no_satellite(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("{}")
    command = ["manifests", f"--populator={file}", f"--priority-booster={file}"]
    objects = list(by_name(CliRunner().invoke(main, command).output).values())
    pods = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
        for one in objects
        if one["kind"] == "Deployment"
    }
    assert pods.keys() == {"kueue-controller-manager", "kueue-populator", "kueue-priority-booster"}
    selectors = [one["spec"]["selector"] for one in objects if one["kind"] == "Service"]
    selectors += [
        one["spec"]["podSelector"]["matchLabels"] for one in objects if one["kind"] == "NetworkPolicy"
    ]
    assert len(selectors) == 4
    for selector in selectors:
        assert [name for name, labels in pods.items() if selector.items() <= labels.items()] == [
            "kueue-controller-manager"
        ]


def test_wrong_configuration_of_a_satellite_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("localQueueNames: x\n")
    done = CliRunner().invoke(main, ["manifests", f"--populator={file}"])
    assert done.exit_code == 2
    assert "unknown field localQueueNames; accepted: localQueueName," in done.output


@pytest.fixture(scope="module")
def helm() -> str:
    return helm_program()


def by_name(text: str) -> dict[tuple[str, str], Object]:
    found = {}
    for obj in yaml.load_all(text, Loader=yaml.CSafeLoader):
        if obj and obj["kind"] != "Namespace":
            found[obj["kind"], obj["metadata"]["name"]] = _comparable(obj)
    return found


def _comparable(obj: Object) -> Object:
    """The object without what may be spelt differently: configurations, the order of names and of rules."""
    if obj["kind"] == "ConfigMap":
        obj["data"] = {
            key: repr(parse(text)) if key == CONFIG_KEY else yaml.safe_load(text)
            for key, text in obj["data"].items()
        }
    if obj["kind"] == "Deployment":
        template = obj["spec"]["template"]
        template["metadata"].get("annotations", {}).pop("pykueue.io/configuration", None)
        template["spec"]["containers"][0].pop("imagePullPolicy", None)
    if obj["kind"] == "ClusterRole":
        obj.get("rules", []).sort(key=repr)
    for webhook in obj.get("webhooks", ()):
        for expression in webhook.get("namespaceSelector", {}).get("matchExpressions", ()):
            expression["values"].sort()
    return dict(obj)


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ([], []),
        (
            ["--cert-manager", "--replicas=1", "--no-network-policy", "--image=example.org/pykueue:7"],
            [
                "certManager.enabled=true",
                "replicas=1",
                "networkPolicy.enabled=false",
                "image.repository=example.org/pykueue",
                "image.tag=7",
            ],
        ),
        (["--service-monitor"], ["metrics.serviceMonitor.enabled=true"]),
        (["--pod-viewer"], ["podViewer.enabled=true"]),
        (["--dashboard"], ["dashboard.enabled=true"]),
        (["--flight-recorder", "--forecasts"], ["flightRecorder.enabled=true", "forecasts.enabled=true"]),
        (
            ["--flight-recorder-claim=12", "--flight-recorder-size=2Gi", "--flight-recorder-age=36h"],
            [
                "flightRecorder.enabled=true",
                "flightRecorder.existingClaim=12",
                "flightRecorder.size=2Gi",
                "flightRecorder.age=36h",
            ],
        ),
        (
            ["--dashboard", "--dashboard-host=queues.example.org"],
            ["dashboard.enabled=true", "dashboard.host=queues.example.org"],
        ),
        (
            ["--dashboard", "--dashboard-host=queues.example.org", "--dashboard-ingress"],
            [
                "dashboard.enabled=true",
                "dashboard.host=queues.example.org",
                "dashboard.ingress.enabled=true",
            ],
        ),
        (
            ["--alerts", "--dashboards"],
            ["metrics.prometheusRule.enabled=true", "metrics.grafanaDashboards.enabled=true"],
        ),
        (["--config=FILE"], ["config=FILE"]),
        (
            ["--populator=POPULATOR", "--priority-booster=BOOSTER"],
            [
                "populator.enabled=true",
                "populator.config=POPULATOR",
                "priorityBooster.enabled=true",
                "priorityBooster.config=BOOSTER",
            ],
        ),
    ],
    ids=[
        "as shipped",
        "other options",
        "service monitor",
        "pod viewer",
        "dashboard",
        "flight recorder and forecasts",
        "flight recorder with a claim",
        "dashboard with a Service",
        "dashboard with an Ingress",
        "alerts and dashboards",
        "own configuration",
        "satellites",
    ],
)
def test_helm_template_equals_pykueue_manifests(
    helm: str, options: list[str], values: list[str], tmp_path: Path
) -> None:
    sets = []
    for value in values:
        _, _, content = value.partition("=")
        sets += ["--set-file" if content in FILES else "--set", value]
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
        options = [option.replace(f"={name}", f"={tmp_path / name}") for option in options]
        sets = [argument.replace(f"={name}", f"={tmp_path / name}") for argument in sets]
    printed = CliRunner().invoke(main, ["manifests", "--namespace=12345", *options])
    assert printed.exit_code == 0, printed.output
    command = [helm, "template", "release", str(CHART), "--kube-version=1.32.0", "--namespace=12345", *sets]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert by_name(rendered) == by_name(printed.output)


def test_helm_lint_passes(helm: str) -> None:
    subprocess.run([helm, "lint", "--strict", str(CHART)], check=True, capture_output=True)


def test_class_annotations_and_certificate_of_the_ingress_are_chosen(helm: str) -> None:
    command = [
        helm,
        "template",
        "release",
        str(CHART),
        "--kube-version=1.32.0",
        "--set=dashboard.enabled=true",
    ]
    chosen = {
        "host": "queues.example.org",
        "ingress.enabled": "true",
        "ingress.className": "nginx",
        "ingress.tlsSecretName": "wildcard",
        "ingress.annotations.owner": "batch",
    }
    command += [f"--set=dashboard.{key}={value}" for key, value in chosen.items()]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    ingress = by_name(rendered)["Ingress", "kueue-dashboard"]
    assert ingress["metadata"]["annotations"] == {"owner": "batch"}
    assert ingress["spec"]["ingressClassName"] == "nginx"
    assert ingress["spec"]["tls"] == [{"hosts": ["queues.example.org"], "secretName": "wildcard"}]


def test_a_configuration_for_another_namespace_is_refused(helm: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIGURATION + "namespace: elsewhere\n")
    command = [
        helm,
        "template",
        "release",
        str(CHART),
        "--kube-version=1.32.0",
        "--set-file",
        f"config={file}",
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert "namespace: elsewhere" in done.stderr
