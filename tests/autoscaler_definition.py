"""The CustomResourceDefinition of ProvisioningRequests that tests install.

`PYKUEUE_PROVISIONING_CRD` names the file of the cluster autoscaler's own one; without it, it is the one that
the embedded cluster serves.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from pykueue.embedded.autoscaler.definition import definition

FILE = os.environ.get("PYKUEUE_PROVISIONING_CRD", "")


def autoscaler_definition() -> dict[str, Any]:
    if not FILE:
        return definition()
    found: dict[str, Any] = yaml.safe_load(Path(FILE).read_text())
    return found
