"""All runs of a scenario: every variant with every seed, in separate processes."""

from __future__ import annotations

import gc
import multiprocessing
import signal
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

from pykueue.simulate.journal import DecisionLog
from pykueue.simulate.measures import Outcome
from pykueue.simulate.prepare import Prepared, plan
from pykueue.simulate.scenario.types import Variant
from pykueue.simulate.simulation import Simulation

#: Collections of young objects are put off: what lives is a large heap of objects without circles.
GC_THRESHOLD = (50_000, 20, 50)

#: A run: the number of its variant, and the seed.
Run = tuple[int, int]


def all_runs(prepared: Prepared) -> list[Run]:
    """In the order of the scenario: variants, and the seeds of each."""
    return [(number, seed) for number in range(len(prepared.variants)) for seed in prepared.scenario.seeds]


def log_name(variant: Variant, seed: int) -> str:
    """The file of a run's decision log."""
    return f"decisions-{variant.name}-{seed}.jsonl.gz"


def run(
    prepared: Prepared,
    variant: Variant,
    seed: int,
    folder: Path | None = None,
) -> Outcome:
    """One run in this process; its decision log is kept in `folder` if one is given."""
    gc.set_threshold(*GC_THRESHOLD)
    journal = DecisionLog(None if folder is None else folder / log_name(variant, seed))
    simulation = Simulation(plan(prepared, variant, seed), journal, variant.name, seed)
    began, began_cpu = time.perf_counter(), time.process_time()
    outcome = simulation.run()
    outcome.wall, outcome.cpu = time.perf_counter() - began, time.process_time() - began_cpu
    return outcome


def _run(prepared: Prepared, number: int, seed: int, folder: Path | None) -> Outcome:
    return run(prepared, prepared.variants[number], seed, folder)


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Processes that are started meanwhile leave SIGINT, which a terminal sends to all, to this one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_all(
    prepared: Prepared, runs: list[Run], processes: int, folder: Path | None = None
) -> Iterator[Outcome]:
    """The outcome of each run as it ends; what is not begun when the caller stops is not run."""
    if processes == 1 or len(runs) <= 1:
        for number, seed in runs:
            yield _run(prepared, number, seed, folder)
        return
    context = multiprocessing.get_context("forkserver")
    pool = ProcessPoolExecutor(min(processes, len(runs)), mp_context=context)
    try:
        with _sigint_blocked():
            waiting: set[Future[Outcome]] = {
                pool.submit(_run, prepared, number, seed, folder) for number, seed in runs
            }
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for each in done:
                yield each.result()
    except KeyboardInterrupt:
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
