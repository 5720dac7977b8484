"""`pykueue up --clusters FILE`: a manager cluster and its workers, each one a `pykueue up` process."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import click
import yaml

from pykueue.cli.clusters_file import MANAGER, ClustersFile, ClusterSpec
from pykueue.cli.process import until_stopped
from pykueue.clock import Clock
from pykueue.embedded.apiserver.auth.certificates import write_private
from pykueue.embedded.store.sqlite import lock
from pykueue.jobs.kinds import BUILT_IN
from pykueue.kube.client import Client
from pykueue.kube.config import load as connect
from pykueue.kube.discovery import Discovery
from pykueue.kube.errors import ApiError
from pykueue.manager.configuration import load as load_configuration
from pykueue.manager.multikueue.access import Endpoint, WorkerAccess, configure_check, worker_rules
from pykueue.simulate.submit import read

#: Name of the AdmissionCheck and of the MultiKueueConfig with all workers.
CHECK = "workers"
FIELD_MANAGER = "pykueue-up"
#: Seconds that a cluster gets to stop before its process is killed.
GRACE = 20.0
#: The last lines of a cluster's log in the message that it could not be started.
SHOWN_LINES = 5


class ClusterProcess:
    """One cluster of the file, run in a separate process with its own data directory."""

    def __init__(self, spec: ClusterSpec, folder: Path, port: int, options: Sequence[str]) -> None:
        self.name = spec.name
        self.spec = spec
        self.folder = folder / spec.name
        self._port = port
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self._output: asyncio.Task[None] | None = None
        self.exit_code: int | None = None

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def command(self) -> list[str]:
        """The arguments of the program that runs the cluster, also by itself."""
        found = ["up", "--data-dir", str(self.folder), "--port", str(self._port), *self._options]
        if self.spec.nodes() is not None:
            found += ["--nodes", str(self.folder / "nodes.yaml")]
        if self.spec.config is not None:
            found += ["--config", self.spec.config]
        return found

    async def start(self) -> None:
        """Start it and wait until it serves. Raises ClickException."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        nodes = self.spec.nodes()
        if nodes is not None:
            write_private(self.folder / "nodes.yaml", nodes.encode())
        with _private(self.folder / "log") as log:
            # Its input ends with this process, however that ends, and then it stops too.
            process = self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "pykueue.cli.main", *self.command, "--until-end-of-input"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert process.stdout is not None
        async for line in process.stdout:
            if b"KUBECONFIG=" in line:
                break
        else:
            self.exit_code = await process.wait()
            last = "\n".join((self.folder / "log").read_text().splitlines()[-SHOWN_LINES:])
            raise click.ClickException(f"cluster {self.name} exited with code {self.exit_code}:\n{last}")
        # A worker that is started again by itself must be where the manager looks for it.
        self._port = urlsplit(self.endpoint().server).port or self._port
        (self.folder / "pid").write_text(f"{process.pid}\n")
        self._output = asyncio.ensure_future(_drain(process.stdout))

    async def ended(self) -> None:
        """Wait until the process ends."""
        assert self._process is not None
        self.exit_code = await self._process.wait()
        (self.folder / "pid").unlink(missing_ok=True)

    async def stop(self) -> None:
        """End the process, as Ctrl-C would, and kill it where that takes too long."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        try:
            await asyncio.wait_for(process.wait(), GRACE)
        except TimeoutError:
            process.kill()
        await self.ended()
        if self._output is not None:
            await self._output

    def endpoint(self) -> Endpoint:
        """Where its API server is."""
        cluster = self.entries()["clusters"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        return Endpoint(cluster["server"], authority)

    def entries(self) -> dict[str, Any]:
        """Cluster and user of its kubeconfig."""
        document = yaml.safe_load(self.kubeconfig.read_text())
        return {"clusters": document["clusters"][0]["cluster"], "users": document["users"][0]["user"]}


def _private(path: Path) -> BinaryIO:
    """A new file that only its owner can read."""
    return open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600))


async def _drain(output: asyncio.StreamReader) -> None:
    while await output.read(65_536):
        pass


async def run_clusters(folder: Path, port: int, file: ClustersFile, options: Sequence[str]) -> None:
    """Start the clusters, connect them, print how to reach them, and run until a signal.

    The manager listens on `port` and the workers on the following ones; 0: on any free ports. `options` are
    given to each `pykueue up`. Raises ClickException where a cluster cannot be started or the manager ends.
    """
    processes = [
        ClusterProcess(spec, folder, port and port + number, options)
        for number, spec in enumerate(file.clusters)
    ]
    with lock(folder / "clusters"):
        async with until_stopped(_supervise(folder, file, processes)) as wait:
            await wait(None)


async def _supervise(folder: Path, file: ClustersFile, processes: Sequence[ClusterProcess]) -> None:
    clock = Clock()
    try:
        await asyncio.gather(*(one.start() for one in processes))
        async with contextlib.AsyncExitStack() as stack:
            settings = load_configuration(file.manager.config)
            rules = worker_rules(BUILT_IN, settings)
            clients = {one.name: await stack.enter_async_context(_client(one, clock)) for one in processes}
            workers = {
                one.name: WorkerAccess(
                    one.name,
                    one.endpoint(),
                    clients[one.name],
                    clients[MANAGER],
                    rules,
                )
                for one in processes[1:]
            }
            renewals = {}
            for name, access in workers.items():
                await access.grant()
                renewals[name] = await access.renew(file.lifetime)
                await access.register()
            await configure_check(clients[MANAGER], CHECK, workers)
            for one in reversed(processes):
                await _apply(one.spec, clients[one.name])
            write_private(folder / "kubeconfig", _merged(processes).encode())
            _report(folder, processes)
            await _follow(processes, workers, renewals, file.lifetime, clock)
    finally:
        await asyncio.gather(*(one.stop() for one in processes))


async def _follow(
    processes: Sequence[ClusterProcess],
    workers: dict[str, WorkerAccess],
    renewals: dict[str, float],
    lifetime: int,
    clock: Clock,
) -> None:
    """Renew tokens, and report workers that end, until the manager ends."""
    tasks = [
        asyncio.ensure_future(access.keep_renewed(clock, renewals[name], lifetime))
        for name, access in workers.items()
    ]
    tasks += [asyncio.ensure_future(_report_end(one)) for one in processes[1:]]
    try:
        await processes[0].ended()
        raise click.ClickException(f"cluster {MANAGER} exited with code {processes[0].exit_code}")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _report_end(process: ClusterProcess) -> None:
    await process.ended()
    again = shlex.join(["pykueue", *process.command])
    click.echo(f"Worker {process.name} exited with code {process.exit_code}. To start it again:\n  {again}")


@contextlib.asynccontextmanager
async def _client(process: ClusterProcess, clock: Clock) -> AsyncIterator[Client]:
    transport = await connect(process.kubeconfig, clock=clock)
    try:
        yield Client(transport, clock=clock)
    finally:
        await transport.close()


async def _apply(spec: ClusterSpec, client: Client) -> None:
    """Apply the manifests of a cluster. Raises ClickException."""
    discovery = Discovery(client.transport)
    for name in spec.manifests:
        for obj in read(Path(name)):
            shown = f"{obj['kind']} {obj['metadata']['name']}"
            try:
                resource = await discovery.find(obj["apiVersion"], obj["kind"])
                if resource.namespaced:
                    obj["metadata"].setdefault("namespace", "default")
                await client.apply(resource, obj, field_manager=FIELD_MANAGER, force=True)
            except ApiError as error:
                raise click.ClickException(f"{name}: {shown} in cluster {spec.name}: {error}") from None


def _merged(processes: Sequence[ClusterProcess]) -> str:
    """A kubeconfig with a context for each cluster, that of the manager being current."""
    entries = {one.name: one.entries() for one in processes}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": found["clusters"]} for name, found in entries.items()],
        "users": [{"name": name, "user": found["users"]} for name, found in entries.items()],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in entries],
        "current-context": MANAGER,
    }
    return yaml.safe_dump(document, sort_keys=False)


def _report(folder: Path, processes: Sequence[ClusterProcess]) -> None:
    for one in processes:
        click.echo(
            f"Cluster {one.name} is up at {one.endpoint().server}; its state and log are in {one.folder}."
        )
    click.echo("kubectl --context NAME reaches each of them. Ctrl-C stops all.")
    click.echo(f"  export KUBECONFIG={shlex.quote(str(folder / 'kubeconfig'))}")
