"""The Helm chart: it follows the manifests, and Helm makes of it what `pykueue manifests` prints."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from pykueue.cli.main import main
from pykueue.manager.configuration import parse
from pykueue.manager.install.chart import files

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


@pytest.fixture(scope="module")
def helm() -> str:
    program = shutil.which("helm")
    if program is None:
        pytest.skip("helm is not installed")
    return program


def by_name(text: str) -> dict[tuple[str, str], Object]:
    found = {}
    for obj in yaml.load_all(text, Loader=yaml.CSafeLoader):
        if obj and obj["kind"] != "Namespace":
            found[obj["kind"], obj["metadata"]["name"]] = _comparable(obj)
    return found


def _comparable(obj: Object) -> Object:
    """The object without what may be spelt differently: the text of the configuration, the order of names."""
    if obj["kind"] == "ConfigMap":
        obj["data"] = {CONFIG_KEY: repr(parse(obj["data"][CONFIG_KEY]))}
    if obj["kind"] == "Deployment":
        template = obj["spec"]["template"]
        del template["metadata"]["annotations"]["pykueue.io/configuration"]
        template["spec"]["containers"][0].pop("imagePullPolicy", None)
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
        (["--config=FILE"], ["config=FILE"]),
    ],
    ids=["as shipped", "other options", "service monitor", "pod viewer", "own configuration"],
)
def test_helm_template_equals_pykueue_manifests(
    helm: str, options: list[str], values: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIGURATION)
    options = [option.replace("FILE", str(file)) for option in options]
    sets = [
        argument
        for value in values
        for argument in ("--set-file" if "FILE" in value else "--set", value.replace("FILE", str(file)))
    ]
    printed = CliRunner().invoke(main, ["manifests", "--namespace=12345", *options])
    assert printed.exit_code == 0, printed.output
    command = [helm, "template", "release", str(CHART), "--kube-version=1.32.0", "--namespace=12345", *sets]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert by_name(rendered) == by_name(printed.output)


def test_helm_lint_passes(helm: str) -> None:
    subprocess.run([helm, "lint", "--strict", str(CHART)], check=True, capture_output=True)


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
