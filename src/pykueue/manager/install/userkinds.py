"""The rights that the manager needs for a kind that a JobKind describes: printed, never taken."""

from __future__ import annotations

from pykueue.api.jobkinds import JobKind
from pykueue.api.objects import Object
from pykueue.manager.components.jobs import kind_rights
from pykueue.manager.install_names import InstallNames

from .roles import RBAC_GROUP


def rights(kind: JobKind, names: InstallNames) -> list[Object]:
    """A cluster role with what the manager does with objects of the kind, and its binding."""
    resource = kind.resource
    name = f"{names.base}-job-kind-{resource.plural}.{resource.group}"
    return [
        {
            "apiVersion": f"{RBAC_GROUP}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [rule.object() for rule in kind_rights(kind)],
        },
        {
            "apiVersion": f"{RBAC_GROUP}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": name},
            "subjects": [
                {"kind": "ServiceAccount", "name": names.service_account, "namespace": names.namespace}
            ],
        },
    ]
