"""The rights of the dashboard: to read, and nothing else.

It has no right to write, to impersonate, or to ask about the rights of others: what a user may see is asked
for with the token of that user.
"""

from __future__ import annotations

from pykueue.api.objects import Object
from pykueue.api.resources import KUEUE_GROUP
from pykueue.manager.rights import READ, Rule

#: Name of its ServiceAccount, and of its ClusterRole with `-role`, after the base of an installation.
ACCOUNT = "dashboard"
#: The user as whom the dashboard of the embedded cluster reads.
EMBEDDED_USER = "system:pykueue-dashboard"

#: Kinds that decisions depend on, and those that pages show beside them.
RULES = (
    Rule("", ("events", "limitranges", "namespaces", "nodes", "pods"), READ),
    Rule("node.k8s.io", ("runtimeclasses",), READ),
    Rule(
        KUEUE_GROUP,
        (
            "admissionchecks",
            "clusterqueues",
            "cohorts",
            "localqueues",
            "resourceflavors",
            "topologies",
            "workloadpriorityclasses",
            "workloads",
        ),
        READ,
    ),
)


def embedded_role() -> tuple[Object, Object]:
    """The ClusterRole and the ClusterRoleBinding of the embedded cluster."""
    name = "pykueue-dashboard"
    group = "rbac.authorization.k8s.io"
    role = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [rule.object() for rule in RULES],
    }
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": EMBEDDED_USER}],
    }
    return role, binding
