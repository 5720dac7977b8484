# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""Names, amounts and quotas shared by the kinds of the group. Source: docs/reference/kueue-api.md 1.1 and
1.3."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pykueue.api.core import Taint, Toleration
from pykueue.api.meta import Condition
from pykueue.api.model import DEFAULTED, REQUIRED, Cel, Model, Rule, atomic, checked, map_by
from pykueue.api.quantity import Quantity

GROUP: Final = "kueue.x-k8s.io"
V1BETA1: Final = "kueue.x-k8s.io/v1beta1"
V1BETA2: Final = "kueue.x-k8s.io/v1beta2"

SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
LABEL_KEY: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)

#: Names of ClusterQueues, Cohorts, LocalQueues, ResourceFlavors and Topologies.
ObjectName = Annotated[str, Rule(maxLength=253, pattern=SUBDOMAIN)]
PodSetName = Annotated[str, Rule(maxLength=63, pattern=LABEL)]
AdmissionCheckName = Annotated[str, Rule(minLength=1, maxLength=316)]
ResourceName = Annotated[str, Rule(minLength=1, maxLength=317)]

#: A node label that stands for a topology level in a pod set's request.
LevelKey = Annotated[str, Rule(minLength=1, maxLength=63)]

#: None admits normally; Hold admits nothing new; HoldAndDrain also evicts what is admitted.
StopPolicy = Literal["None", "Hold", "HoldAndDrain"]

Conditions = Annotated[list[Condition], map_by("type", maxItems=16)]

#: Amounts by resource name.
Amounts = dict[str, Quantity]

_EFFECTS = "['NoSchedule', 'PreferNoSchedule', 'NoExecute']"

Tolerations = Annotated[
    list[Toleration],
    atomic(maxItems=8),
    Cel(
        "self.all(x, !has(x.key) ? (has(x.operator) && x.operator == 'Exists') : true)",
        "operator must be Exists when key is empty, which means all values and all keys",
    ),
    Cel(
        "self.all(x, has(x.tolerationSeconds) ? (has(x.effect) && x.effect == 'NoExecute') : true)",
        "effect must be NoExecute when tolerationSeconds is set",
    ),
    Cel(
        "self.all(x, !has(x.operator) || x.operator in ['', 'Equal', 'Exists'])",
        "supported operators: Equal, Exists",
    ),
    Cel(
        "self.all(x, has(x.operator) && x.operator == 'Exists' ? (!has(x.value) || x.value == '') : true)",
        "value must be empty when operator is Exists",
    ),
    Cel(
        f"self.all(x, !has(x.effect) || x.effect == '' || x.effect in {_EFFECTS})",
        "supported effects: NoSchedule, PreferNoSchedule, NoExecute",
    ),
]

Taints = Annotated[
    list[Taint],
    atomic(maxItems=8),
    Cel(
        f"self.all(x, x.effect in {_EFFECTS})",
        "supported effects: NoSchedule, PreferNoSchedule, NoExecute",
    ),
]


class FairSharing(Model):
    """How large a share of the capacity in reach this participant is due."""

    weight: Annotated[Quantity, DEFAULTED] = Quantity.of(1)
    """Shares are divided by the weight and compared; 0 makes the share infinite as soon as something is
    borrowed."""


class FairSharingStatus(Model):
    """The participant's present share."""

    weighted_share: Annotated[int, Rule(format="int64")]
    """Largest ratio of borrowed to lendable amounts over all resources, in thousandths, divided by the
    weight and rounded up; 9223372036854775807 stands for infinite."""


class ResourceQuota(Model):
    """Quota of one resource in one flavor."""

    name: ResourceName
    """Name of the resource."""
    nominal_quota: Quantity
    """What may be used without borrowing; it may be lent to others while unused. Not negative."""
    borrowing_limit: Quantity | None = None
    """How much more than nominalQuota may be used when the cohort has it to spare; unset means no limit.
    Must be unset where there is no cohort to borrow from."""
    lending_limit: Quantity | None = None
    """How much of the unused nominalQuota the cohort may use; unset means all of it.
    Must be unset where there is no cohort to lend to."""


class FlavorQuotas(Model):
    """Quotas of one flavor."""

    name: ObjectName
    """Name of the ResourceFlavor. Nothing is admitted before it exists."""
    resources: Annotated[list[ResourceQuota], map_by("name", minItems=1, maxItems=64), REQUIRED] = []
    """One quota per covered resource, in the order of coveredResources."""


@checked(
    Cel(
        "self.flavors.all(x, size(x.resources) == size(self.coveredResources))",
        "flavors must have the same number of resources as the coveredResources",
    )
)
class ResourceGroup(Model):
    """Resources that a pod set gets from one and the same flavor."""

    covered_resources: Annotated[list[ResourceName], atomic(minItems=1, maxItems=64), REQUIRED] = []
    """The resources of this group; no resource is in two groups."""
    flavors: Annotated[list[FlavorQuotas], map_by("name", minItems=1, maxItems=64), REQUIRED] = []
    """The flavors to try, most preferred first; no flavor is in two groups."""
