"""All stand-in operators."""

from __future__ import annotations

from collections.abc import Iterable

from pykueue.embedded.operators.mpi import MpiOperator
from pykueue.embedded.operators.raycluster import RayClusterOperator
from pykueue.embedded.operators.rayjob import RayJobOperator
from pykueue.embedded.operators.rayservice import RayServiceOperator
from pykueue.embedded.operators.reconciliation import Operator
from pykueue.embedded.operators.training import TRAINING

OPERATORS: tuple[Operator, ...] = (
    *TRAINING,
    MpiOperator(),
    RayClusterOperator(),
    RayJobOperator(),
    RayServiceOperator(),
)


#: Names of the kinds, such as PyTorchJob, that `pykueue up --job-kinds` accepts.
KINDS = tuple(one.kind.resource.kind for one in OPERATORS)


def named(kinds: Iterable[str]) -> tuple[Operator, ...]:
    """The operators of these kinds, and of the kinds that their jobs are made of."""
    wanted = set(kinds)
    if wanted & {"RayJob", "RayService"}:
        wanted.add("RayCluster")
    return tuple(one for one in OPERATORS if one.kind.resource.kind in wanted)
