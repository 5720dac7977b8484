"""The programs that an installation puts on the PATH."""

from __future__ import annotations

import tomllib

from cli_processes import ROOT


def test_installation_adds_pykueue_and_the_kubectl_plugin_with_its_completion() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    # kubectl runs any `kubectl-kueue` on the PATH as its plugin, and `kubectl_complete-kueue` to complete its
    # arguments. tests/cli/test_cli_plugin_beside_kueue.py compares all commands with those of Kueue's plugin.
    assert list(project["scripts"]) == ["pykueue", "kubectl-kueue", "kubectl_complete-kueue"]
