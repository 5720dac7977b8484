"""Durations drawn at random."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from random import Random

from .types import Law

#: Draws a duration in seconds.
Draw = Callable[[], float]


def draw_of(law: Law, random: Random, recorded: float | None = None, declared: float | None = None) -> Draw:
    """What draws by a law; `recorded` and `declared` are a job's recorded run time and its declared limit.

    Raises ValueError where the law refers to one that the job does not have.
    """
    if law.fixed is not None:
        fixed = law.fixed
        return lambda: fixed
    if law.exponential is not None:
        return partial(_exponential, random, law.exponential.minimum, law.exponential.tail_mean)
    if law.log_normal is not None:
        return partial(random.lognormvariate, math.log(law.log_normal.median), law.log_normal.sigma)
    if law.uniform is not None:
        return partial(random.uniform, law.uniform.minimum, law.uniform.maximum)
    base, factor, name = (
        (recorded, law.recorded, "recorded run time")
        if law.recorded is not None
        else (declared, law.declared, "maximum execution time")
    )
    if base is None:
        raise ValueError(f"no run time: the job has no {name}")
    product = base * (factor or 0.0)
    return lambda: product


def _exponential(random: Random, minimum: float, tail_mean: float) -> float:
    return minimum + random.expovariate(1 / tail_mean)
