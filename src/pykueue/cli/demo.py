"""`pykueue demo`: two jobs that block each other, and the same two jobs queued so that they do not.

It runs the real thing: `pykueue up` in a separate process, and this process as its client over HTTPS.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.panel import Panel

from pykueue.cli.demo_view import following, pod_table, state_of
from pykueue.cli.process import run_event_loop
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.config import load
from pykueue.kube.discovery import Discovery
from pykueue.simulate.history import History
from pykueue.simulate.submit import Submitter, read

#: Where the manifests are in a checkout of the project.
EXAMPLES = Path(__file__).parents[3] / "examples" / "all-or-nothing"

JOBS = ["quick-job", "job1", "job2"]
#: When each job is created, in seconds. The two big ones one right after the other, as `kubectl create` of
#: both files does it: with a head start of 0.2 s most of job1's pods may be made before half of job2's.
CREATED_AT = {"quick-job": 0.0, "job1": 0.2, "job2": 0.2}
#: Pods of job1 and of job2; all of a job's pods must run at once for the job to complete.
WORKERS = 20
#: Nothing has moved for this long, in seconds: nothing will.
STILL = 4.0
#: Attempts at the first act: by chance the jobs may not block each other.
TRIES = 3
#: Characters in a line of the picture.
PICTURE_WIDTH = 150
#: Neither act should come near this, in seconds.
PATIENCE = 120.0


class DemoError(click.ClickException):
    """The demo did not show what it should; the message says what was seen instead."""


@dataclass
class Cluster:
    """A running embedded cluster, seen through its API."""

    client: Client
    clock: Clock
    submitter: Submitter
    history: History


@contextlib.asynccontextmanager
async def running_cluster(folder: Path, *options: str) -> AsyncIterator[Cluster]:
    """`pykueue up` on `folder` in its own process, until the body ends; its state stays in the folder."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pykueue.cli.main", "up", "--data-dir", str(folder), "--port", "0",
        "--no-dashboard", *options,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async for output in process.stdout:
            if b"KUBECONFIG=" in output:
                break
        else:
            raise DemoError(f"`pykueue up` ended with exit code {await process.wait()} before it was ready")
        clock = Clock()
        transport = await load(folder / "kubeconfig")
        try:
            client = Client(transport, clock=clock)
            history = History(client, clock)
            follower = asyncio.create_task(history.run())
            try:
                yield Cluster(client, clock, Submitter(client, Discovery(transport), clock), history)
            finally:
                follower.cancel()
                await asyncio.gather(follower, return_exceptions=True)
        finally:
            await transport.close()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.communicate()


async def submit_jobs(cluster: Cluster, examples: Path) -> None:
    """Create the three jobs, each at its time."""
    await cluster.submitter.create_at(
        (at, read(examples / f"{name}.yaml")) for name, at in CREATED_AT.items()
    )


async def first_act(console: Console, cluster: Cluster, examples: Path) -> None:
    """Default configuration: both jobs get quota, both start, neither can finish."""
    await cluster.submitter.create(read(examples / "queues.yaml"))
    for _ in range(TRIES):
        blocked = await run_against_each_other(console, cluster, examples)
        for name in JOBS:
            await cluster.submitter.delete(read(examples / f"{name}.yaml"))
        await cluster.history.until_gone()
        if blocked:
            return
        console.print("\nThis time one job got all its nodes before the other, by chance. Trying again.\n")
    raise DemoError(f"in {TRIES} attempts the two jobs never blocked each other")


async def run_against_each_other(console: Console, cluster: Cluster, examples: Path) -> bool:
    """Create the jobs and watch until nothing moves; whether they have blocked each other."""
    history = cluster.history
    async with following(console, cluster.clock, history, JOBS):
        await submit_jobs(cluster, examples)
        await history.until_finished("quick-job")
        await history.until_still(STILL)
    running = {job: [state_of(pod) for pod in history.pods_of(job)].count("ready") for job in JOBS[1:]}
    if any(history.jobs[job].finished for job in JOBS[1:]) or WORKERS in running.values():
        return False
    console.print(pod_table(history, JOBS[1:]))
    console.print(
        f"\n[bold red]Nothing has moved for {STILL:.0f} s, and nothing will.[/] job1 has {running['job1']} "
        f"of its {WORKERS} workers running, job2 has {running['job2']}. Each holds memory the other one "
        "needs, and no worker can do anything before all 20 of its job run.\n"
    )
    return True


async def second_act(console: Console, cluster: Cluster, examples: Path) -> None:
    """waitForPodsReady: the second job starts when every pod of the first one is ready."""
    history = cluster.history
    async with following(console, cluster.clock, history, JOBS):
        await submit_jobs(cluster, examples)
        await history.until_finished(*JOBS)
    ended = {job: history.jobs[job].finished for job in JOBS}
    if set(ended.values()) != {"Complete"}:
        raise DemoError(f"every job should be Complete; instead: {ended}")
    ready, started = history.all_ready("job1", WORKERS), history.first_pod("job2")
    if ready is None or started is None or started < ready:
        raise DemoError(
            f"job2's first pod appeared at revision {started}, before all of job1's were ready ({ready})"
        )
    console.print(
        f"\n[bold green]All jobs are complete.[/] Checked in the recorded history: all {WORKERS} pods of "
        f"job1 were ready at revision {ready}; the first pod of job2 was created at revision {started}.\n"
    )


async def play(console: Console, folder: Path, examples: Path) -> None:
    """Both acts, one after the other, on the same data folder."""
    # The cluster is a separate process, which would outlive this one if SIGTERM ended it at once.
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    nodes = ("--nodes", str(examples / "nodes.yaml"))
    console.print(
        Panel(
            "One node with 8429 MiB. A queue that promises twice as much. One quick job of 50 pods, and "
            "two jobs of 20 workers that must all run at the same time: 26 workers fit, so one job, not two.",
            title="pykueue: all or nothing",
        )
    )
    console.print("[bold]First act: default configuration.[/] Both jobs have quota, so both start.\n")
    async with running_cluster(folder, *nodes) as cluster, asyncio.timeout(PATIENCE):
        await first_act(console, cluster, examples)
    console.print(
        "[bold]Second act: waitForPodsReady.[/] The same jobs on the same cluster, one at a time.\n"
    )
    config = ("--config", str(examples / "wait-for-pods-ready.yaml"))
    async with running_cluster(folder, *nodes, *config) as cluster, asyncio.timeout(PATIENCE):
        await second_act(console, cluster, examples)


def _found(context: click.Context, parameter: click.Parameter, examples: Path) -> Path:
    if not examples.is_dir():
        where = "examples/all-or-nothing of the project's source code"
        raise click.BadParameter(f"{examples}: not a directory; the demo needs {where}", context, parameter)
    return examples


@click.command()
@click.option(
    "--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Directory for the cluster's state."
)
@click.option(
    "--examples",
    type=click.Path(file_okay=False, path_type=Path),
    default=EXAMPLES,
    callback=_found,
    help="Directory of the demo's manifests; default: the one in the checkout.",
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Save the output as a picture (SVG).",
)
def demo(data_dir: Path | None, examples: Path, picture: Path | None) -> None:
    """Show how queueing whole jobs prevents a deadlock, on a separate cluster.

    Exits 0 when both acts showed what they should.
    """
    console = Console(highlight=False)
    if picture is not None:
        console = Console(highlight=False, record=True, width=PICTURE_WIDTH, force_terminal=False)
    with contextlib.ExitStack() as stack:
        folder = data_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pykueue-demo-")))
        try:
            run_event_loop(play(console, folder, examples))
        except TimeoutError:
            raise DemoError(f"an act took longer than {PATIENCE:.0f} s") from None
        except asyncio.CancelledError:
            raise click.Abort from None
    relative = examples.relative_to(Path.cwd()) if examples.is_relative_to(Path.cwd()) else examples
    shown, program = (shlex.quote(str(path)) for path in (relative, Path(sys.argv[0])))
    console.print(
        "Try it yourself:\n\n"
        f"  {program} up --data-dir /tmp/pykueue --nodes {shown}/nodes.yaml\n\n"
        "and in another terminal:\n\n"
        "  export KUBECONFIG=/tmp/pykueue/kubeconfig\n"
        f"  cd {shown}\n"
        "  kubectl create -f queues.yaml -f quick-job.yaml -f job1.yaml -f job2.yaml\n"
        "  kubectl get pods,workloads,clusterqueues\n"
        "  kubectl describe workload\n",
        soft_wrap=True,
    )
    if picture is not None:
        picture.write_text(console.export_svg(title="make demo"))
