"""`pykueue up`: the embedded cluster, whole or in parts, until SIGINT or SIGTERM."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from platformdirs import user_state_path

from pykueue.api.resources import CLUSTER_ROLES
from pykueue.api.yaml import YamlError
from pykueue.cli.dashboard import PORT as DASHBOARD_PORT
from pykueue.cli.dashboard import print_link
from pykueue.cli.process import (
    collect_less_often,
    held_back,
    leave_out_of_collections,
    log_to_stderr,
    run_event_loop,
    stop_at_end_of_input,
    until_stopped,
)
from pykueue.cli.up_dashboard import serving as serving_dashboard
from pykueue.clock import Clock
from pykueue.cluster import FEATURE_GATES, FRAMEWORKS, JOB_KINDS, PARTS, Cluster
from pykueue.embedded.apiserver.auth.certificates import KeyFileError
from pykueue.embedded.apiserver.http.listening import Address
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.controllers.manager import CLUSTER_PACE, Pace
from pykueue.embedded.nodes.pool import NodePool, PoolError, load_pools
from pykueue.embedded.nodes.scaling import DEFAULT_POOLS, declare_default
from pykueue.embedded.store.memory import MemoryStore, StoreError
from pykueue.embedded.store.sqlite import SqliteStore, lock
from pykueue.kube.client import Client
from pykueue.kube.config import ConfigError
from pykueue.kube.config import load as connect
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Transport
from pykueue.manager.configuration import Configuration, ConfigurationError
from pykueue.manager.configuration import load as load_configuration

if TYPE_CHECKING:
    from pykueue.manager.manager import Manager

#: File in the data directory: how good past forecasts were.
SCORES = "forecasts.json"

#: Where the cluster's state is kept without --data-dir: `~/.local/state/pykueue` on Linux, or below
#: $XDG_STATE_HOME.
DEFAULT_FOLDER = user_state_path("pykueue", appauthor=False)
#: The former default: data that is there is used from there.
OLD_DEFAULT_FOLDER = Path(click.get_app_dir("pykueue"))
#: The default as help texts and the reference page have it, the same for every user.
_SHOWN_DEFAULT = str(DEFAULT_FOLDER).replace(str(Path.home()), "~", 1)
#: The store's file in the data directory.
STATE = "state.db"
#: Its directory of pods that run as processes.
PODS = "pods"
_DEFAULT_NODES = (
    "Added {count} simulated nodes of {cpu} CPUs and {memory} memory, as --nodes names no file; "
    "docs/use/nodes.md says how to declare others."
).format(count=DEFAULT_POOLS[0].count, **DEFAULT_POOLS[0].allocatable)
_RUNS_PROCESSES = (
    "Containers on nodes of the runtime `process` are programs of this machine, run as you: "
    "images are not used, and there is no sandbox."
)


def data_folder(chosen: Path | None) -> Path:
    """The data directory, absolute: the chosen one, else the default one, or the former default with data."""
    if chosen is not None:
        return chosen.absolute()
    if (OLD_DEFAULT_FOLDER / STATE).exists() and not (DEFAULT_FOLDER / STATE).exists():
        click.echo(
            f"Using the data in {OLD_DEFAULT_FOLDER}, the former default data directory; the default is now "
            f"{DEFAULT_FOLDER}. To change over, stop pykueue and move the directory.",
            err=True,
        )
        return OLD_DEFAULT_FOLDER.absolute()
    return DEFAULT_FOLDER.absolute()


def parse_parts(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[str, ...]:
    """The parts named in `--only`, all of them without it."""
    if value is None:
        return PARTS
    parts = tuple(part.strip() for part in value.split(",") if part.strip())
    unknown = [part for part in parts if part not in PARTS]
    if unknown or not parts:
        raise click.BadParameter(f"{value!r}: accepted values: {', '.join(PARTS)}, separated by commas")
    return parts


def parse_gates(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[str, ...]:
    """The feature gates that `--feature-gates` opens: `Name=true`, separated by commas."""
    found = []
    for part in filter(None, (value or "").split(",")):
        name, _, said = (one.strip() for one in part.partition("="))
        if name not in FEATURE_GATES or said not in ("true", "false"):
            known = ", ".join(f"{gate}=true" for gate in FEATURE_GATES)
            raise click.BadParameter(f"{part!r}: accepted values: {known}, or =false instead of =true")
        if said == "true":
            found.append(name)
    return tuple(found)


def parse_job_kinds(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    """The kinds named in `--job-kinds`, in any spelling of case; `all` or `none` of them."""
    names = [part.strip().lower() for part in value.split(",") if part.strip()]
    if names in (["all"], ["none"]):
        return JOB_KINDS if names == ["all"] else ()
    known = {kind.lower(): kind for kind in JOB_KINDS}
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        accepted = f"all, none, or some of {', '.join(JOB_KINDS)}, separated by commas"
        raise click.BadParameter(f"{value!r}: accepted values: {accepted}")
    return tuple(known[name] for name in names)


def pace_of(qps: float) -> Pace | None:
    """The Job controller's pace at that many requests per second; as on a cluster but for that number."""
    if not qps:
        return None
    return CLUSTER_PACE._replace(qps=qps, burst=max(1, round(qps * CLUSTER_PACE.burst / CLUSTER_PACE.qps)))


@contextlib.asynccontextmanager
async def reach(parts: tuple[str, ...], kubeconfig: Path) -> AsyncIterator[Transport | None]:
    """The API server of another process, where this one runs none."""
    if "apiserver" in parts:
        yield None
        return
    transport = await connect(kubeconfig)
    try:
        yield transport
    finally:
        await transport.close()


async def grant_roles(client: Client, configuration: Configuration) -> None:
    """The roles for those who administer and use queues, as an installation on a cluster brings them."""
    from pykueue.manager.install.options import Options
    from pykueue.manager.install.roles import roles_for_people

    for role in roles_for_people(Options(configuration, configuration_text="")):
        await client.apply(CLUSTER_ROLES, role, field_manager="pykueue", force=True)


async def answer_questions(
    server: Server, manager: Manager, folder: Path
) -> Callable[[], Coroutine[Any, Any, None]]:
    """Serve the visibility API with forecasts, whose scores the directory keeps; returns what ends it."""
    # Imported here: a server without the manager does not need them, and would start later.
    from pykueue.simulate.live.advice import StartAdvice
    from pykueue.simulate.live.forecasts import Forecasts
    from pykueue.simulate.live.kept import FileStore
    from pykueue.web.visibility.embedded import serve

    forecasts = Forecasts(manager, store=FileStore(folder / SCORES))
    manager.advice = StartAdvice(manager, forecasts)
    await serve(server, manager, forecasts)
    return forecasts.stop


def record(manager: Manager, folder: Path) -> None:
    """Keep a log of the engine's events and decisions. Raises ClickException, and OSError."""
    from pykueue.manager import recorder
    from pykueue.manager.recorder.files import RecordingError, prepare_directory

    try:
        prepare_directory(folder)
    except RecordingError as error:
        raise click.ClickException(str(error)) from None
    manager.add(recorder.component(folder, recorder.Limits()))


@contextlib.contextmanager
def memory_store(folder: Path) -> Iterator[MemoryStore]:
    """A store in memory; the directory, which gets the kubeconfig, is locked against other processes."""
    with lock(folder / STATE):
        yield MemoryStore()


async def listen(server: Server, port: int, folder: Path) -> Address:
    """Serve on loopback; KeyFileError, OSError, and ClickException when the port cannot be bound."""
    try:
        return await server.serve("127.0.0.1", port, folder)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES) or error.filename is not None:
            raise
        raise click.ClickException(
            f"--port {port}: {os.strerror(error.errno).lower()}; choose another, or 0 for any that is free"
        ) from None


class Contents(NamedTuple):
    """What the cluster consists of."""

    parts: tuple[str, ...]
    configuration: Configuration
    #: Declared node pools; None: those declared before.
    pools: list[NodePool] | None
    pace: Pace | None
    gates: tuple[str, ...]
    job_kinds: tuple[str, ...]
    autoscaler: bool
    #: Port of the dashboard; 0 for any free one, None for no dashboard.
    dashboard_port: int | None
    #: Where the manager records; None: nowhere.
    flight: Path | None = None


async def run(folder: Path, store: MemoryStore, port: int, contents: Contents) -> None:
    """Start the parts, print how to reach them, and run until a signal."""
    kubeconfig = folder / "kubeconfig"
    parts, configuration, pools = contents.parts, contents.configuration, contents.pools
    async with reach(parts, kubeconfig) as remote, contextlib.AsyncExitStack() as stack:
        # A disk that is full ends the start, and the error says so.
        release = stack.enter_context(held_back(SqliteStore.__module__))
        cluster = Cluster(
            clock=Clock(),
            rng=random.Random(),
            configuration=configuration,
            pools=pools,
            store=store,
            parts=parts,
            transport_for=None if remote is None else lambda _user: remote,
            pods_folder=folder / PODS,
            pace=contents.pace,
            feature_gates=contents.gates,
            job_kinds=contents.job_kinds,
            autoscaler=contents.autoscaler,
        )
        stack.push_async_callback(cluster.stop)
        if contents.flight is not None and cluster.manager is not None:
            record(cluster.manager, contents.flight)
        await cluster.start()
        nodes = cluster.transport("system:nodes")
        added = pools is None and "kube" in parts and await declare_default(nodes, Clock())
        if cluster.server is not None and cluster.manager is not None:
            stack.push_async_callback(await answer_questions(cluster.server, cluster.manager, folder))
            await grant_roles(Client(cluster.transport("system:apiserver")), configuration)
        async with until_stopped(cluster.run()) as wait:
            await wait(cluster.synced())
            leave_out_of_collections()
            if added:
                click.echo(_DEFAULT_NODES)
            if any(pool.runtime == "process" for pool in pools or ()) and "kube" in parts:
                click.echo(_RUNS_PROCESSES)
            if cluster.server is not None:
                address = await listen(cluster.server, port, folder)
                state = folder if isinstance(store, SqliteStore) else "memory only"
                click.echo(f"pykueue is up at {address.url}; its state is in {state}. Ctrl-C stops it.")
                url, link = await stack.enter_async_context(
                    serving_dashboard(cluster.server, configuration, contents.dashboard_port, address.token)
                )
                if url:
                    print_link(link, url)
                click.echo(f"  export KUBECONFIG={shlex.quote(str(kubeconfig))}")
            else:
                click.echo(
                    f"pykueue is up ({', '.join(parts)}) with KUBECONFIG={shlex.quote(str(kubeconfig))}"
                )
            release()
            await wait(None)


def _up_clusters(folder: Path, port: int, path: Path, options: list[str]) -> None:
    """Run the clusters of a file, each with these options of `pykueue up`."""
    # Imported here: one cluster alone does not need them, and would start later.
    from pykueue.cli.clusters import run_clusters
    from pykueue.cli.clusters_file import ClustersError, load_clusters

    try:
        file = load_clusters(path)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        run_event_loop(run_clusters(folder, port, file, options))
    except (ClustersError, PoolError, StoreError, YamlError, ConfigError, OSError) as error:
        raise click.ClickException(str(error)) from None


def _options_of_each(given: dict[str, Any]) -> list[str]:
    """Of the parameters of `up`, those that hold for every cluster of a file. Raises UsageError."""
    for option, present in (
        ("--nodes", given["nodes"]),
        ("--config", given["config"]),
        ("--only", given["parts"] != PARTS),
        ("--flight-recorder", given["flight"]),
    ):
        if present:
            raise click.UsageError(f"{option} cannot be used with --clusters")
    flags = {
        "--in-memory": "in_memory",
        "--accept-data-loss": "accept_loss",
        "--verbose": "verbose",
        "--no-dashboard": "no_dashboard",
        "--no-autoscaler": "no_autoscaler",
    }
    options = [flag for flag, name in flags.items() if given[name]]
    if given["qps"] != CLUSTER_PACE.qps:
        options += ["--kube-api-qps", str(given["qps"])]
    if given["gates"]:
        options += ["--feature-gates", ",".join(f"{gate}=true" for gate in given["gates"])]
    if given["job_kinds"] != JOB_KINDS:
        options += ["--job-kinds", ",".join(given["job_kinds"]) or "none"]
    return options


@click.command()
@click.option(
    "--data-dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"Directory of the cluster's state and kubeconfig.  [default: {_SHOWN_DEFAULT}]",
)
@click.option(
    "--accept-data-loss",
    "accept_loss",
    is_flag=True,
    help="Start even if acknowledged writes are missing from the data directory.",
)
@click.option(
    "--in-memory", is_flag=True, help="Keep objects in memory only; they are lost when the process ends."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=6443,
    show_default=True,
    help="Port of the API server; 0: any free port.",
)
@click.option(
    "--nodes",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of node pools; see docs/use/nodes.md. Without it a new cluster gets three simulated nodes.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Configuration file of the manager (config.kueue.x-k8s.io).",
)
@click.option(
    "--clusters",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of a manager cluster and its workers, each in a separate process; see "
    "docs/use/multikueue.md. The workers listen on the ports after --port.",
)
@click.option(
    "--only",
    "parts",
    metavar="PARTS",
    callback=parse_parts,
    help=f"Run only these parts; some of {','.join(PARTS)}.",
)
@click.option(
    "--kube-api-qps",
    "qps",
    type=click.FloatRange(min=0.0),
    default=CLUSTER_PACE.qps,
    show_default=True,
    help="Rate limit of the Job controller, in requests per second for all Jobs; 0: none.",
)
@click.option(
    "--feature-gates",
    "gates",
    metavar="GATES",
    callback=parse_gates,
    help=f"Alpha features of Kubernetes to serve: {', '.join(f'{gate}=true' for gate in FEATURE_GATES)}.",
)
@click.option(
    "--job-kinds",
    "job_kinds",
    metavar="KINDS",
    default="all",
    show_default=True,
    callback=parse_job_kinds,
    help="Job kinds of other projects to serve without their operators: all, none, or names separated by "
    "commas, such as PyTorchJob,RayCluster.",
)
@click.option(
    "--no-autoscaler",
    is_flag=True,
    help="Leave pods that find no node, and ProvisioningRequests, to another autoscaler.",
)
@click.option(
    "--dashboard-port",
    type=click.IntRange(0, 65535),
    default=DASHBOARD_PORT,
    show_default=True,
    help="Port of the dashboard; 0: any free port. Where the default port is in use, any free port is used.",
)
@click.option("--no-dashboard", is_flag=True, help="Do not serve the dashboard.")
@click.option(
    "--flight-recorder",
    "flight",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Record events and decisions in files of this directory (mode 0700), for pykueue replay.",
)
@click.option("--until-end-of-input", "of_parent", is_flag=True, hidden=True)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Log decisions (admitted, preempted, evicted, pending and why), not only warnings.",
)
def up(
    folder: Path | None,
    accept_loss: bool,
    in_memory: bool,
    port: int,
    nodes: Path | None,
    config: Path | None,
    clusters: Path | None,
    parts: tuple[str, ...],
    qps: float,
    gates: tuple[str, ...],
    job_kinds: tuple[str, ...],
    no_autoscaler: bool,
    dashboard_port: int,
    no_dashboard: bool,
    flight: Path | None,
    of_parent: bool,
    verbose: bool,
) -> None:
    """Run the embedded cluster, whole or in parts."""
    log_to_stderr(verbose)
    if of_parent:
        stop_at_end_of_input()
    folder = data_folder(folder)
    if clusters is not None:
        parameters = click.get_current_context().params
        _up_clusters(folder, port, clusters, _options_of_each(parameters))
        return
    try:
        configuration = load_configuration(config, frameworks=FRAMEWORKS)
        pools = load_pools(nodes) if nodes is not None else None
        if sys.platform != "linux" and any(pool.runtime == "process" for pool in pools or ()):
            raise click.ClickException(f"{nodes}: nodes of the runtime `process` need Linux")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (
            memory_store(folder)
            if in_memory
            else contextlib.nullcontext(SqliteStore(folder / STATE, accept_loss=accept_loss)) as store
        ):
            collect_less_often()
            contents = Contents(
                parts,
                configuration,
                pools,
                pace_of(qps),
                gates,
                job_kinds,
                not no_autoscaler,
                None if no_dashboard else dashboard_port,
                flight,
            )
            run_event_loop(run(folder, store, port, contents))
    except (
        ConfigurationError,
        ConfigError,
        KeyFileError,
        PoolError,
        StoreError,
        YamlError,
        OSError,
    ) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise click.ClickException(f"{folder} cannot be written: {os.strerror(error.errno)}") from None
        raise click.ClickException(str(error)) from None
    except ApiError as error:
        if not isinstance(error.__cause__, StoreError):
            raise
        raise click.ClickException(f"{folder / STATE}: {error.__cause__}") from None
