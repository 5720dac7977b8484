"""The programs that an installation puts on the PATH."""

from __future__ import annotations

import tomllib

from cli_processes import ROOT


def test_installation_adds_pykueue_and_no_kubectl_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    # kubectl runs any `kubectl-kueue` on the PATH as its plugin: Kueue's own must not be shadowed.
    assert list(project["scripts"]) == ["pykueue"]
