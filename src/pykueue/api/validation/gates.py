"""Feature gates that change what is valid, with their defaults. Source: docs/reference/kueue-api.md 4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

DEFAULTS: Final[Mapping[str, bool]] = {
    "AdmissionGatedBy": True,
    "ConcurrentAdmission": False,
    "ElasticJobsViaWorkloadSlices": True,
    "PartialAdmission": True,
    "PriorityBoost": False,
    "RejectUpdatesToCQWithInvalidOnFlavors": False,
    "TASValidateWorkloadSliceSize": True,
    "TopologyAwareScheduling": True,
    "WorkloadValidateResourcesAreNonNegative": True,
    "WorkloadValidationForPodSetMetadata": True,
}

#: Gates by name; one that is not there is at its default.
Gates = Mapping[str, bool]


def on(gates: Gates, name: str) -> bool:
    """Whether the gate is on."""
    return gates.get(name, DEFAULTS[name])
