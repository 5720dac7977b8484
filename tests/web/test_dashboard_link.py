"""`pykueue dashboard link`: to which addresses it sends the token of the kubeconfig."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from pykueue.cli.dashboard import dashboard


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """A kubeconfig with a bearer token."""
    path = tmp_path / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.mark.parametrize(
    "url",
    [
        "http://dashboard.invalid",
        "http://localhost.dashboard.invalid",
        "http://127.0.0.1.dashboard.invalid",
        "http://localhost@dashboard.invalid",
        "ftp://localhost",
    ],
)
def test_a_token_is_not_sent_unencrypted_to_another_machine(kubeconfig: Path, url: str) -> None:
    result = CliRunner().invoke(dashboard, ["link", "--url", url, "--kubeconfig", str(kubeconfig)])
    assert result.exit_code == 1
    assert "tokens are sent to https addresses and to this machine only" in result.output


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "https://127.0.0.1:1"]
)
def test_a_link_is_requested_of_this_machine_and_over_https(kubeconfig: Path, url: str) -> None:
    result = CliRunner().invoke(dashboard, ["link", "--url", url, "--kubeconfig", str(kubeconfig)])
    assert result.exit_code == 1
    assert "Cannot connect to host" in result.output


@pytest.mark.parametrize("url", ["http://[::1", "https://user@127.0.0.1:1"])
def test_an_invalid_address_is_an_error(kubeconfig: Path, url: str) -> None:
    result = CliRunner().invoke(dashboard, ["link", "--url", url, "--kubeconfig", str(kubeconfig)])
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
