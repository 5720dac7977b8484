"""The CustomResourceDefinitions of the group: generated from the types, kept as package data.

`python -m pykueue.api.crds --write` generates them, `--check` fails if they are out of date.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

from pykueue import package_data
from pykueue.api.kueue.common import GROUP

#: The package's data file.
DATA: Final = "crds.json"

#: Kinds whose two versions differ in more than bounds; their objects need conversion, not relabelling.
CONVERTED: Final = frozenset({"ClusterQueue", "Cohort", "LocalQueue", "MultiKueueCluster", "Workload"})


@cache
def crds() -> list[dict[str, Any]]:
    """All definitions, ordered by name, without a conversion webhook. Shared: do not change them."""
    return msgspec.json.decode(package_data.read(__package__, DATA), type=list[dict[str, Any]])


def kueue_crds() -> list[dict[str, Any]]:
    """The definitions of Kueue's kinds, which another installation may have had converted by a webhook."""
    return [crd for crd in crds() if crd["spec"]["group"] == GROUP]


def crds_with_webhook(client_config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The definitions for a real cluster, where `client_config` says how the server reaches the converter."""
    webhook = {"clientConfig": dict(client_config), "conversionReviewVersions": ["v1"]}
    conversion = {"strategy": "Webhook", "webhook": webhook}
    return [
        {**crd, "spec": {**crd["spec"], "conversion": conversion}}
        if crd["spec"]["names"]["kind"] in CONVERTED
        else crd
        for crd in crds()
    ]
