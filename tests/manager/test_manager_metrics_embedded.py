"""The manager's metrics where the manager runs in one process with the API server."""

from __future__ import annotations

import random
import re
from importlib.metadata import version

import pykueue
from pykueue.clock import Clock, run_virtual
from pykueue.cluster import Cluster


async def _metrics(clock: Clock, *parts: str) -> str:
    cluster = Cluster(clock=clock, rng=random.Random(1), parts=parts)
    await cluster.start()
    try:
        assert cluster.server is not None
        return cluster.server.pipeline.metrics_text().decode()
    finally:
        await cluster.stop()


def test_api_server_shows_the_series_of_the_manager_beside_its_own_once() -> None:
    text = run_virtual(lambda clock: _metrics(clock, "apiserver", "manager"))
    families = re.findall(r"^# TYPE (\S+)", text, re.M)
    assert len(families) == len(set(families))
    assert {"kueue_build_info", "apiserver_storage_objects", "process_cpu_seconds_total"} <= set(families)


def test_api_server_without_a_manager_shows_no_series_of_one() -> None:
    assert "kueue_" not in run_virtual(lambda clock: _metrics(clock, "apiserver"))


def test_build_info_names_the_version_of_the_package() -> None:
    text = run_virtual(lambda clock: _metrics(clock, "apiserver", "manager"))
    assert pykueue.__version__ == version("pykueue")
    assert 'kueue_build_info{build_date="",compiler=' in text
    assert f'git_version="v{version("pykueue")}"' in text
