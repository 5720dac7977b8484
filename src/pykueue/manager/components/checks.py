"""The controllers of admission checks as components."""

from __future__ import annotations

from pykueue.api.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    POD_TEMPLATES,
    PROVISIONING_REQUEST_CONFIGS,
    PROVISIONING_REQUESTS,
    RESOURCE_FLAVORS,
    WORKLOADS,
)
from pykueue.manager.checks import ProvisioningController
from pykueue.manager.rights import allow

from .component import RECORD_EVENTS, WRITE_WORKLOAD_STATUS, Component, Context


def provisioning(workers: int) -> Component:
    return Component(
        "provisioning",
        "Creates the ProvisioningRequests of Workloads, and writes the state of their checks.",
        _build,
        watches=(
            ADMISSION_CHECKS,
            CLUSTER_QUEUES,
            PROVISIONING_REQUEST_CONFIGS,
            PROVISIONING_REQUESTS,
            POD_TEMPLATES,
            RESOURCE_FLAVORS,
            WORKLOADS,
        ),
        writes=(
            allow(PROVISIONING_REQUESTS, "create", "delete"),
            # Their owner changes, which the admission plug-in OwnerReferencesPermissionEnforcement
            # allows to those who may delete them.
            allow(POD_TEMPLATES, "create", "patch", "delete"),
            # Both have an owner whose deletion waits for them.
            allow(WORKLOADS, "update", subresource="finalizers"),
            allow(PROVISIONING_REQUESTS, "update", subresource="finalizers"),
            allow(ADMISSION_CHECKS, "patch", subresource="status"),
            WRITE_WORKLOAD_STATUS,
            RECORD_EVENTS,
        ),
        workers=workers,
    )


def _build(context: Context) -> ProvisioningController:
    return ProvisioningController(
        context.cluster,
        context.recorder("kueue-provisioning-request-controller"),
        context.clock,
        context.random(),
        context.workers,
    )
