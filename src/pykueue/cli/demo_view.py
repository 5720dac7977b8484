"""What the demo shows: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pykueue.api import conditions
from pykueue.clock import Clock
from pykueue.simulate.history import History, PodRecord

#: Interval at which the live table is redrawn, in seconds.
REFRESH = 0.25

#: Pod state -> its mark in the table, its style, its word. The order is the order of the marks.
STATES = {
    "done": ("■", "green", "completed"),
    "ready": ("■", "bright_blue", "running"),
    "starting": ("▪", "yellow", "starting"),
    "pending": ("·", "bright_black", "pending"),
    "failed": ("x", "red", "failed"),
}


def state_of(pod: PodRecord) -> str:
    """Which of STATES the pod is in."""
    if pod.phase == "Succeeded":
        return "done"
    if pod.phase == "Failed":
        return "failed"
    if pod.is_ready:
        return "ready"
    return "starting" if pod.object.get("spec", {}).get("nodeName") else "pending"


def counts(history: History, job: str) -> dict[str, int]:
    """How many pods of the job are in each state, states without pods left out."""
    states = [state_of(pod) for pod in history.pods_of(job)]
    return {state: states.count(state) for state in STATES if state in states}


def job_state(history: History, job: str) -> str:
    """One word on the job, as `kubectl get jobs` has it, and while it is suspended why its Workload waits."""
    record = history.jobs.get(job)
    if record is None:
        return "-"
    if record.finished:
        return record.finished
    return "Suspended" if record.suspended else "Running"


def waiting_reason(history: History, job: str) -> str:
    """Why the job's Workload has no quota, in the manager's words; empty when it has, or nothing is known."""
    for workload in history.workloads.values():
        owners = workload["metadata"].get("ownerReferences") or ()
        if any(owner["name"] == job for owner in owners) and conditions.is_false(
            workload, conditions.QUOTA_RESERVED
        ):
            return conditions.reason(workload, conditions.QUOTA_RESERVED)
    return ""


def words(history: History, job: str) -> str:
    """The job's pods in words: `15 running, 5 pending`."""
    return ", ".join(f"{n} {STATES[state][2]}" for state, n in counts(history, job).items()) or "no pods"


def board(history: History, jobs: list[str], elapsed: float) -> RenderableType:
    """The live table: one row a job, one mark a pod."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("JOB", "STATUS", "PODS"):
        table.add_column(title, no_wrap=True)
    for job in jobs:
        marks = Text()
        for state, n in counts(history, job).items():
            mark, style, _ = STATES[state]
            marks.append(mark * n, style=style)
        state = job_state(history, job)
        style = {"Complete": "green", "Suspended": "yellow", "Failed": "red"}.get(state, "bright_blue")
        why = waiting_reason(history, job) if state == "Suspended" else ""
        note = f"no pods: {why}" if why and not marks else words(history, job)
        table.add_row(job, Text(state, style=style), marks + Text(f"  {note}", style="bright_black"))
    return Group(table, Text(f"{elapsed:5.1f} s", style="bright_black"))


def line(history: History, jobs: list[str]) -> str:
    """The same in one plain line."""
    parts = []
    for job in jobs:
        state = job_state(history, job)
        why = waiting_reason(history, job) if state == "Suspended" else ""
        parts.append(f"{job}: {state}" + (f" ({why})" if why else "") + f", {words(history, job)}")
    return " | ".join(parts)


def pod_table(history: History, jobs: list[str]) -> Table:
    """The pods of the jobs side by side, each as a row of `kubectl get pods`."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = [history.pods_of(job) for job in jobs]
    for _ in jobs:
        table.add_column("NAME", no_wrap=True)
        table.add_column("READY", no_wrap=True)
        table.add_column("STATUS", no_wrap=True)
    for row in range(max(map(len, columns), default=0)):
        cells: list[str | Text] = []
        for pods in columns:
            if row < len(pods):
                state = state_of(pods[row])
                ready = "1/1" if state == "ready" else "0/1"
                cells += [pods[row].name, ready, Text(STATES[state][2].capitalize(), style=STATES[state][1])]
            else:
                cells += ["", "", ""]
        table.add_row(*cells)
    return table


@asynccontextmanager
async def following(console: Console, clock: Clock, history: History, jobs: list[str]) -> AsyncIterator[None]:
    """Show the jobs while the body runs: live on a terminal, a line for each change elsewhere."""
    start = clock.time()
    if console.is_terminal:
        with Live(board(history, jobs, 0.0), console=console, auto_refresh=False) as live:

            async def draw() -> None:
                while True:
                    live.update(board(history, jobs, clock.time() - start), refresh=True)
                    await clock.sleep(REFRESH)

            task = asyncio.create_task(draw())
            try:
                yield
            finally:
                task.cancel()
                live.update(board(history, jobs, clock.time() - start), refresh=True)
    else:

        async def say() -> None:
            said = ""
            while True:
                now = line(history, jobs)
                if now != said:
                    console.print(f"{clock.time() - start:5.1f} s  {now}", soft_wrap=True)
                    said = now
                await clock.sleep(1.0)

        task = asyncio.create_task(say())
        try:
            yield
        finally:
            task.cancel()
            console.print(f"{clock.time() - start:5.1f} s  {line(history, jobs)}", soft_wrap=True)
