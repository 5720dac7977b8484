"""All stand-in operators."""

from __future__ import annotations

from collections.abc import Iterable

from pykueue.api.resources import CONFIG_MAPS, DEPLOYMENTS, JOB_SETS, JOBS, SECRETS, SERVICES, STATEFUL_SETS
from pykueue.embedded.operators.appwrapper import AppWrapperOperator
from pykueue.embedded.operators.leaderworkerset import LeaderWorkerOperator
from pykueue.embedded.operators.mpi import MpiOperator
from pykueue.embedded.operators.raycluster import RayClusterOperator
from pykueue.embedded.operators.rayjob import RayJobOperator
from pykueue.embedded.operators.rayservice import RayServiceOperator
from pykueue.embedded.operators.reconciliation import Operator
from pykueue.embedded.operators.spark import SparkOperator
from pykueue.embedded.operators.training import TRAINING
from pykueue.embedded.operators.trainjob import TrainOperator

_OPERATORS: tuple[Operator, ...] = (
    *TRAINING,
    MpiOperator(),
    TrainOperator(),
    RayClusterOperator(),
    RayJobOperator(),
    RayServiceOperator(),
    LeaderWorkerOperator(),
    SparkOperator(),
)
#: Kinds of the cluster itself that an AppWrapper can have as components.
_COMPONENTS = (DEPLOYMENTS, STATEFUL_SETS, JOBS, JOB_SETS, SERVICES, CONFIG_MAPS, SECRETS)
OPERATORS = (
    *_OPERATORS,
    AppWrapperOperator((*_COMPONENTS, *(one.kind.resource for one in _OPERATORS))),
)
#: Names of the kinds, such as PyTorchJob, that `pykueue up --job-kinds` accepts.
KINDS = tuple(one.kind.resource.kind for one in OPERATORS)


def named(kinds: Iterable[str]) -> tuple[Operator, ...]:
    """The operators of these kinds, and of the kinds that their jobs are made of."""
    wanted = set(kinds)
    if wanted & {"RayJob", "RayService"}:
        wanted.add("RayCluster")
    return tuple(one for one in OPERATORS if one.kind.resource.kind in wanted)
