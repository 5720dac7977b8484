"""Which type stands for which kind, and `decode`."""

from __future__ import annotations

from typing import Any, Final

from pykueue.api import batch, core, kueue
from pykueue.api.backfill_policies import BACKFILL_POLICIES, BackfillPolicy
from pykueue.api.budgets import BUDGET_LEDGERS, BUDGETS, Budget, BudgetLedger
from pykueue.api.conversion import convert
from pykueue.api.decoding import DecodeError, decode_as, describe
from pykueue.api.devices import types as devices
from pykueue.api.model import Model
from pykueue.api.preemption_policies import PREEMPTION_POLICIES, PreemptionPolicy
from pykueue.api.reservations import RESERVATIONS, Reservation

#: Types by apiVersion and kind, for reading. v1beta1 of our group is converted first.
KINDS: Final[dict[tuple[str, str], type[Model]]] = {
    **{
        ("v1", type.__name__): type
        for type in (
            core.ConfigMap,
            core.Event,
            core.LimitRange,
            core.Namespace,
            core.Node,
            core.Pod,
            core.ResourceQuota,
            core.Secret,
            core.Service,
        )
    },
    ("batch/v1", "Job"): batch.Job,
    **{
        (devices.VERSION, type.__name__): type
        for type in (
            devices.DeviceClass,
            devices.ResourceClaim,
            devices.ResourceClaimTemplate,
            devices.ResourceSlice,
        )
    },
    ("node.k8s.io/v1", "RuntimeClass"): core.RuntimeClass,
    ("scheduling.k8s.io/v1", "PriorityClass"): core.PriorityClass,
    **{
        (kueue.V1BETA2, type.__name__): type
        for type in (
            kueue.AdmissionCheck,
            kueue.ClusterQueue,
            kueue.Cohort,
            kueue.LocalQueue,
            kueue.MultiKueueCluster,
            kueue.MultiKueueConfig,
            kueue.ProvisioningRequestConfig,
            kueue.ResourceFlavor,
            kueue.Topology,
            kueue.Workload,
            kueue.WorkloadPriorityClass,
        )
    },
    (RESERVATIONS.api_version, RESERVATIONS.kind): Reservation,
    (BACKFILL_POLICIES.api_version, BACKFILL_POLICIES.kind): BackfillPolicy,
    (PREEMPTION_POLICIES.api_version, PREEMPTION_POLICIES.kind): PreemptionPolicy,
    (BUDGETS.api_version, BUDGETS.kind): Budget,
    (BUDGET_LEDGERS.api_version, BUDGET_LEDGERS.kind): BudgetLedger,
}
_BY_TYPE: Final = {type: key for key, type in KINDS.items()}


def decode(manifest: dict[str, Any]) -> Model:
    """The typed object of a manifest that says its apiVersion and kind.

    Raises DecodeError for a kind without a type or a manifest of the wrong shape, ConversionError for a
    v1beta1 object that v1beta2 cannot say. Where other kinds are to be expected, look into KINDS first.
    """
    version, kind = manifest.get("apiVersion"), manifest.get("kind")
    if version == kueue.V1BETA1:
        manifest = convert(manifest, kueue.V1BETA2)
        version = kueue.V1BETA2
    type = KINDS.get((version, kind)) if isinstance(version, str) and isinstance(kind, str) else None
    if type is None:
        raise DecodeError(describe(manifest), f"no type for apiVersion {version!r}, kind {kind!r}")
    return decode_as(type, manifest)


def kind_of(value: Model | type[Model]) -> str:
    """The kind a typed object (or its type) stands for."""
    return _BY_TYPE[value if isinstance(value, type) else type(value)][1]
