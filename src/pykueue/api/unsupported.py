"""What this version accepts without carrying it out: one list for decisions, start-up warnings and documents.

A Workload that requests one of these features is not admitted as if it had not; its condition QuotaReserved
names the feature. A configuration that sets one is warned about when the manager starts.
"""

from __future__ import annotations

from dataclasses import dataclass


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


@dataclass(frozen=True)
class Feature:
    """A feature of Kueue that is not built yet."""

    name: str
    #: Feature gates that do nothing without it.
    gates: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """That it is not supported, to follow the field that requests it."""
        return f"{self.name} is not supported by this version of pykueue"


TOPOLOGY = Feature(
    "parts of topology-aware scheduling",
    gates=_names("""
        TASCacheNodeMatchResults TASCacheTopologyTree TASCachingRemainingResources
    """),
)
OTHER = Feature(
    "some behaviour around the edges",
    gates=_names("""
        RemoveFinalizersWithStrictPatch VectorizedResourceRequests SkipAncestorCheckForDeletedWorkloads
        WorkloadRequestUseMergePatch
    """),
)

#: In the order in which documents list them.
FEATURES = (TOPOLOGY, OTHER)
#: Gates whose behaviour this version does not have.
GATES = frozenset(gate for feature in FEATURES for gate in feature.gates)
