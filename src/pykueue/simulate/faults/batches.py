"""Many runs, one after the other, in processes that end before collecting their garbage is worth it."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from .run import Report

#: Runs of one process. What a run leaves is full of circles; the end of the process frees it at once.
TOGETHER = 8


def reports(play: Callable[[int], Report], seeds: Sequence[int]) -> Iterator[Report]:
    """The report of each seed, in their order. `play` is a function that can be pickled."""
    if not seeds:
        return
    yield play(seeds[0])
    gc.freeze()  # modules and what the first run compiled stay, and later processes begin with them
    forks = multiprocessing.get_context("fork")
    for start in range(1, len(seeds), TOGETHER):
        with ProcessPoolExecutor(1, forks, initializer=gc.disable) as pool:
            futures = [pool.submit(play, seed) for seed in seeds[start : start + TOGETHER]]
            try:
                for future in futures:
                    yield future.result()
            finally:
                for future in futures:
                    future.cancel()
