"""One run: a manager, a load, and what the processes used."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import yaml
from bench import usage
from bench.end_to_end.account import of_manager

ROOT = Path(__file__).parents[2]
#: No limit on the client, no leader to elect, nothing served but webhooks.
CONFIGURATION = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection:
  leaderElect: false
health:
  healthProbeBindAddress: "0"
metrics:
  bindAddress: "0"
webhook:
  port: {port}
internalCertManagement:
  enable: false
featureGates:
  VisibilityOnDemand: false
"""


#: Starts a manager with the account of a kubeconfig, and files in a folder; the number of its process.
Manager = Callable[[Path, Path], AbstractContextManager[int]]
#: Plays a part of a shape with the account of a kubeconfig, with files in a folder; what it saw.
Load = Callable[[Path, Path, str, float], dict[str, Any]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
    return port


@contextlib.contextmanager
def own_manager(
    kubeconfig: Path, folder: Path, profile: Path | None = None, recording: Path | None = None
) -> Iterator[int]:
    """pykueue's manager; with `profile` under cProfile, which writes that file.

    `recording` is the directory of its flight recorder.
    """
    configuration = folder / "manager.yaml"
    configuration.write_text(CONFIGURATION.format(port=free_port()))
    watched = ["-m", "cProfile", "-o", str(profile)] if profile is not None else []
    command = [sys.executable, *watched, "-m", "pykueue.cli.main", "manager"]
    command += ["--kubeconfig", str(kubeconfig), "--config", str(configuration)]
    command += ["--flight-recorder", str(recording)] if recording is not None else []
    process = subprocess.Popen(command)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def kueue_manager(kubeconfig: Path, folder: Path, qps: float) -> Iterator[int]:
    """Kueue's own manager, from the directory that PYKUEUE_KUEUE names (docs/develop/testing.md).

    `qps` is its client's limit of requests per second.
    """
    configuration = folder / "kueue-configuration.yaml"
    configuration.write_text(yaml.safe_dump({"clientConnection": {"qps": qps, "burst": int(qps * 5 / 3)}}))
    program = ROOT / "tests" / "besidekueue" / "besidekueue_manager.py"
    command = [sys.executable, str(program), "--kubeconfig", str(kubeconfig)]
    command += ["--config", str(configuration), "--folder", str(folder)]
    paths = [ROOT / "tests", ROOT / "tests" / "realcluster"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        ready = re.search(r"process (\d+)", process.stdout.readline())
        if ready is None:
            raise RuntimeError(f"Kueue's manager did not start; its log is in {folder}")
        yield int(ready[1])
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def minimal_kueue_manager(kubeconfig: Path, folder: Path) -> Iterator[int]:
    """Kueue as its performance tests run it: the program of its `test/performance/scheduler/minimalkueue`.

    It has its scheduler and core controllers only, no webhooks, and a limit of 50 requests a second for each
    kind of object. The program is in the directory that PYKUEUE_KUEUE names.
    """
    kueue = Path(os.environ["PYKUEUE_KUEUE"])
    with (kueue / "install.yaml").open() as file:
        manifests = yaml.load_all(file, yaml.CSafeLoader)
        definitions = [obj for obj in manifests if obj and obj["kind"] == "CustomResourceDefinition"]
    for each in definitions:
        each["spec"].pop("conversion", None)  # no webhook answers
    subprocess.run(
        [
            "kubectl",
            "--kubeconfig",
            str(kubeconfig),
            "apply",
            "--server-side",
            "--force-conflicts",
            "-f",
            "-",
        ],
        input=yaml.dump_all(definitions, Dumper=yaml.CSafeDumper),
        stdout=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    with (folder / "minimalkueue.log").open("wb") as log:
        command = [str(kueue / "minimalkueue"), "--kubeconfig", str(kubeconfig)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield process.pid
        finally:
            process.terminate()
            process.wait()


def own_load(
    kubeconfig: Path,
    _folder: Path,
    shape: str,
    scale: float,
    releases: bool = False,
    qps: float | None = None,
    slower: int = 1,
) -> dict[str, Any]:
    """The load of this benchmark, in a separate process; `releases`, `qps` and `slower` as there."""
    command = [sys.executable, "-m", "bench.end_to_end.load", str(kubeconfig), shape, "--scale", str(scale)]
    command += ["--slower", str(slower)]
    command += ["--releases"] if releases else []
    command += ["--qps", str(qps)] if qps is not None else []
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(run.stdout)
    return figures


def play(
    kubeconfig: Path, servers: list[int], manager: Manager, shape: str, scale: float, load: Load = own_load
) -> dict[str, Any]:
    """One run of a shape; the figures of all processes."""
    with tempfile.TemporaryDirectory(prefix="pykueue-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        # The load does what the manager's own job controllers do, and has their account.
        account = of_manager(kubeconfig, folder)
        pid = stack.enter_context(manager(account, folder))
        before = sum(map(usage.cpu, servers))
        figures = load(account, folder, shape, scale)
        figures["manager_cpu"] = usage.cpu(pid)
        figures["manager_peak"] = usage.peak(pid) / 1e6
        figures["server_cpu"] = sum(map(usage.cpu, servers)) - before
        figures["server_peak"] = sum(map(usage.peak, servers)) / 1e6
    return figures
