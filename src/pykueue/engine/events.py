"""Input of the engine: an object appeared or changed, or was deleted.

The order of events is the order of time as the engine knows it. Applying an event twice changes nothing.
"""

from __future__ import annotations

from msgspec import Struct

from pykueue.api.model import Model


class Upsert(Struct, frozen=True, gc=False):
    """An object exists and looks like this.

    `obj` is a typed object of `pykueue.api`, never changed afterwards: ResourceFlavor, ClusterQueue,
    Cohort, LocalQueue, Workload, AdmissionCheck, Topology, PreemptionPolicy, BackfillPolicy, Reservation,
    Budget, BudgetLedger, Namespace, LimitRange, RuntimeClass, DeviceClass, ResourceClaimTemplate,
    ResourceSlice, Node or Pod. Other kinds are ignored.
    """

    obj: Model


class Removed(Struct, frozen=True, gc=False):
    """The object is gone. `namespace` is empty for cluster-scoped kinds."""

    kind: str
    namespace: str
    name: str


Event = Upsert | Removed
