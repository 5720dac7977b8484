"""Feature gates of MultiKueue, on and off."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from manager_stack import job
from multikueue_world import Clusters, cluster, dispatched, kubeconfig

from pykueue.api.resources import MULTIKUEUE_CLUSTERS, MULTIKUEUE_CONFIGS

DISPATCHER = """
multiKueue:
  dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental
  incrementalDispatcherConfig: {stepSize: 1}
"""


@pytest.mark.parametrize(
    ("gate", "first"),
    [
        ("MultiKueueIncrementalDispatcherConfig: true", ["w2"]),
        ("MultiKueueIncrementalDispatcherConfig: false", ["w2", "w1"]),
        ("MultiKueueIncrementalDispatcherRespectConfigOrder: false", ["w1"]),
    ],
)
def test_incremental_dispatcher_follows_its_configuration(gate: str, first: list[str]) -> None:
    async def test(c: Clusters) -> None:
        await c.manager.patch(MULTIKUEUE_CONFIGS, "config", {"spec": {"clusters": ["w2", "w1"]}})
        await c.make_busy("w1", "w2")
        await c.manager.apply(job("a"))
        await c.wait()
        assert (await c.status())["nominatedClusterNames"] == first

    dispatched(test, "w1", "w2", configuration=f"{DISPATCHER}featureGates: {{{gate}}}\n")


@pytest.mark.parametrize("validates", [True, False], ids=["on", "off"])
def test_kubeconfig_file_may_be_anywhere_without_validation(validates: bool, tmp_path: Path) -> None:
    path = tmp_path / "w2"
    path.write_text(yaml.safe_dump(kubeconfig("w2")))

    async def test(c: Clusters) -> None:
        await c.add_worker("w2")
        await c.manager.client.create(MULTIKUEUE_CLUSTERS, cluster("w2", str(path), "Path"))
        await c.wait(20)
        expected = ("False", "BadKubeConfig") if validates else ("True", "Active")
        assert (await c.active("w2"))[:2] == expected

    gate = f"MultiKueueKubeConfigPathValidation: {str(validates).lower()}"
    dispatched(test, "w1", configuration=f"featureGates: {{{gate}}}\n")
