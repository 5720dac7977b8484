"""All objects of an installation, in the order in which they are applied."""

from __future__ import annotations

from pykueue.api.objects import Object

from .admission import definitions, webhook_configurations
from .base import labelled
from .certmanager import certificates, injected
from .dashboard import dashboard
from .monitoring import monitoring
from .network import api_services, network_policy, service_monitor, services
from .options import Options
from .process import configured, running
from .roles import manager_roles, roles_for_people
from .satellites import satellites


def manifests(options: Options) -> list[Object]:
    """Namespace first, then what others name. Admission comes last: it refuses until the manager answers."""
    namespace = labelled(
        options,
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": options.names.namespace,
                "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
            },
        },
    )
    objects = [
        namespace,
        *definitions(options),
        *configured(options),
        *manager_roles(options),
        *roles_for_people(options),
        *certificates(options),
        *services(options),
        *running(options),
        *satellites(options),
        *dashboard(options),
        *network_policy(options),
        *service_monitor(options),
        *monitoring(options),
        *webhook_configurations(options),
        *api_services(options),
    ]
    return [injected(options, obj) for obj in objects]
