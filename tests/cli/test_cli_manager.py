"""`pykueue manager` in a separate process, against an API server in another."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_processes import PATIENCE, Kubectl, Up

pytestmark = pytest.mark.kubectl

CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {healthProbeBindAddress: "127.0.0.1:0"}
metrics: {bindAddress: "127.0.0.1:0"}
webhook: {host: 127.0.0.1, port: 0}
visibilityServer: {bindAddress: 127.0.0.1, bindPort: 0}
"""


class ManagerProcess:
    """One `pykueue manager`, its log read line by line."""

    def __init__(self, folder: Path, up: Up, *options: str, more: str = "") -> None:
        config = folder / "config.yaml"
        config.write_text(CONFIGURATION + more)
        command = [sys.executable, "-m", "pykueue.cli.main", "manager", "--kubeconfig", str(up.kubeconfig)]
        self.process = subprocess.Popen(
            [*command, "--config", str(config), *options], stderr=subprocess.PIPE, text=True
        )
        self.lines: list[dict[str, Any]] = []
        #: Lines that no call of `until` has returned: the parts of a manager start in no fixed order.
        self._unmatched: list[dict[str, Any]] = []

    def until(self, text: str) -> dict[str, Any]:
        """The first line whose message holds `text` and that was not returned before."""
        for line in itertools.chain(self._unmatched, self._read()):
            if text in line["msg"]:
                self._unmatched.remove(line)
                return line
        raise AssertionError(f"no line says {text!r}: {self.lines}")

    def _read(self) -> Iterator[dict[str, Any]]:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            self.lines.append(json.loads(text))
            self._unmatched.append(self.lines[-1])
            yield self.lines[-1]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.ended()

    def ended(self) -> int:
        """Wait for its end; the exit code."""
        for _ in self._read():  # not `communicate`, which does not get the part of a line that was read ahead
            pass
        assert self.process.stderr is not None
        self.process.stderr.close()
        return self.process.wait(timeout=PATIENCE)


@pytest.fixture
def managers(tmp_path: Path) -> Iterator[Callable[..., ManagerProcess]]:
    started: list[ManagerProcess] = []

    def start(up: Up, *options: str, more: str = "") -> ManagerProcess:
        folder = tmp_path / f"manager{len(started)}"
        folder.mkdir()
        started.append(ManagerProcess(folder, up, *options, more=more))
        return started[-1]

    yield start
    for found in started:
        if found.process.poll() is None:
            found.process.kill()
            found.process.communicate()


def test_replicas_serve_lead_hand_over_and_tell_no_secret(
    start_up: Callable[..., Up],
    kubectl_for: Callable[[Up], Kubectl],
    managers: Callable[..., ManagerProcess],
) -> None:
    up = start_up("--only", "apiserver,kube", "--in-memory")
    kubectl = kubectl_for(up)
    first = managers(up, "--zap-log-level", "debug")
    port = int(re.findall(r"health on (\d+)", first.until("health on ")["msg"])[0])
    first.until("leads by lease")
    second = managers(up, "--zap-log-level=2")
    second.until("health on ")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE) as answer:
        assert answer.read() == b"ok"
    assert first.stop() == 0
    second.until("leads by lease")
    second.process.send_signal(signal.SIGUSR2)
    second.until("leader; the cluster has been read: True")
    secret = json.loads(
        kubectl("get", "secret", "-n", "kueue-system", "kueue-webhook-server-cert", "-o", "json")
    )
    assert second.stop(signal.SIGINT) == 0

    user = yaml.safe_load(up.kubeconfig.read_text())["users"][0]["user"]
    secrets = [user["token"], *secret["data"].values()]
    keys = [base64.b64decode(secret["data"][key]).decode() for key in ("ca.key", "tls.key")]
    secrets += [line for key in keys for line in key.splitlines()[1:-1]]
    text = json.dumps(first.lines + second.lines)
    assert not [found for found in secrets if found in text]
    assert "PRIVATE KEY" not in text


def test_a_second_signal_ends_it_at_once(
    start_up: Callable[..., Up], managers: Callable[..., ManagerProcess]
) -> None:
    up = start_up("--only", "apiserver", "--in-memory")
    found = managers(up)
    found.until("leads by lease")
    found.process.send_signal(signal.SIGTERM)
    found.until("stopping")
    assert found.stop() == 1


def test_an_address_that_is_taken_ends_it_with_a_line_in_the_log(
    start_up: Callable[..., Up], managers: Callable[..., ManagerProcess]
) -> None:
    up = start_up("--only", "apiserver", "--in-memory")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = managers(up, more=f"pprofBindAddress: 127.0.0.1:{port}\n")
        assert "address already in use" in found.until("; ending")["msg"]
        assert found.ended() == 1


def test_a_manager_that_cannot_reach_its_cluster_says_so_and_goes_on_trying(
    tmp_path: Path, start_up: Callable[..., Up], managers: Callable[..., ManagerProcess]
) -> None:
    up = start_up("--only", "apiserver", "--in-memory")
    up.kill()
    found = managers(up)
    assert "certificates: " in found.until("checking again")["msg"]
    assert found.process.poll() is None
    assert found.stop() == 0


def test_errors_of_the_configuration_are_printed_one_per_line(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIGURATION + "nonsense: 1\nfeatureGates: {NoSuchGate: true}\n")
    command = [sys.executable, "-m", "pykueue.cli.main", "manager", "--config", str(config)]
    found = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE, env={**os.environ}
    )
    assert found.returncode == 1
    assert "nonsense: unknown field" in found.stderr
    assert "featureGates.NoSuchGate: unknown feature gate" in found.stderr
    assert "Traceback" not in found.stderr


def test_error_in_a_file_of_job_kinds_is_printed_in_one_line(tmp_path: Path) -> None:
    kinds = tmp_path / "kinds.yaml"
    kinds.write_text("foo: [")
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        f"integrations: {{frameworks: [batch/job], jobKindFiles: [{kinds}]}}\n"
    )
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [cluster],
                "contexts": [context],
                "users": [{"name": "u", "user": {}}],
                "current-context": "c",
            }
        )
    )
    options = ["--config", str(config), "--kubeconfig", str(kubeconfig)]
    found = subprocess.run(
        [sys.executable, "-m", "pykueue.cli.main", "manager", *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert found.returncode == 1
    assert f"Error: {kinds}: document 1: line 2" in found.stderr
    assert "Traceback" not in found.stderr
