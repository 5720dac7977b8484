"""The account that a manager uses on a worker cluster, and its kubeconfig in a Secret of the manager.

The account has the rights that dispatching needs and no others; its token expires and is renewed. Source:
docs/reference/admission-checks.md 14.3.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import yaml

from pykueue.api.kueue import names
from pykueue.api.objects import Object
from pykueue.api.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    CLUSTER_ROLES,
    CRDS,
    KUEUE_GROUP,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    NAMESPACES,
    SECRETS,
    SERVICE_ACCOUNTS,
    WORKLOADS,
    Resource,
)
from pykueue.clock import Clock
from pykueue.jobs.kinds import JobKinds
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request
from pykueue.manager.configuration import Configuration
from pykueue.manager.rights import READ, Rule, allow, merged

from .remote import dispatched_kinds

#: Name of the ServiceAccount on workers, and of its role and binding.
ACCOUNT = "pykueue-multikueue"
FIELD_MANAGER = "pykueue-multikueue"
#: Namespace of the account on workers, and of the Secrets: that of the manager.
NAMESPACE = "kueue-system"
#: Seconds that a token is valid, unless the worker's API server decides otherwise.
TOKEN_LIFETIME = 86_400
#: The part of its lifetime after which a token is renewed.
RENEWED_AFTER = 0.8
#: Seconds before another attempt to renew a token.
RETRY = 60.0

_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False)

log = logging.getLogger(__name__)


def worker_rules(kinds: JobKinds, configuration: Configuration) -> list[Rule]:
    """The rights of a manager with this configuration on a worker, for the dispatched ones of these kinds."""
    automates_quota = configuration.gates["MultiKueueManagerQuotaAutomation"]
    queues = (LOCAL_QUEUES, CLUSTER_QUEUES) if automates_quota else ()
    jobs = [kind.resource for kind in dispatched_kinds(kinds, configuration)]
    verbs = (*READ, "create", "patch", "delete")
    return merged(
        [
            allow(WORKLOADS, *verbs),
            allow(WORKLOADS, "patch", subresource="status"),
            allow(CRDS, *READ),
            *(allow(job, *verbs) for job in jobs),
            *(allow(queue, *READ) for queue in queues),
        ]
    )


@dataclass(frozen=True)
class Endpoint:
    """Where a worker's API server is, and its authorities as PEM."""

    server: str
    authority: str


class WorkerAccess:
    """Lets a manager cluster use one worker cluster. Every method can be repeated."""

    def __init__(
        self, name: str, endpoint: Endpoint, worker: Client, manager: Client, rules: Sequence[Rule]
    ) -> None:
        self.name = name
        self._endpoint = endpoint
        self._worker = worker
        self._manager = manager
        self._rules = rules

    async def grant(self) -> None:
        """Create the account, its role and the binding on the worker."""
        role = {"apiGroup": CLUSTER_ROLES.group, "kind": CLUSTER_ROLES.kind, "name": ACCOUNT}
        subject = {"kind": SERVICE_ACCOUNTS.kind, "name": ACCOUNT, "namespace": NAMESPACE}
        for resource, fields in (
            (NAMESPACES, {}),
            (SERVICE_ACCOUNTS, {}),
            (CLUSTER_ROLES, {"rules": [rule.object() for rule in self._rules]}),
            (_BINDINGS, {"roleRef": role, "subjects": [subject]}),
        ):
            name = NAMESPACE if resource is NAMESPACES else ACCOUNT
            await _apply(self._worker, resource, name, fields, NAMESPACE)

    async def renew(self, lifetime: int = TOKEN_LIFETIME) -> float:
        """Write a kubeconfig with a new token into the Secret; the seconds until it has to be renewed."""
        path = f"{SERVICE_ACCOUNTS.path(NAMESPACE, ACCOUNT)}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        request = {**body, "spec": {"expirationSeconds": lifetime}}
        answer = await self._worker.call(Request("POST", path, {}, request))
        content = yaml.safe_dump(self._kubeconfig(answer["status"]["token"]), sort_keys=False)
        data = {"kubeconfig": base64.b64encode(content.encode()).decode()}
        await _apply(self._manager, NAMESPACES, NAMESPACE, {}, "")
        await _apply(self._manager, SECRETS, self.secret, {"data": data}, NAMESPACE)
        return float(answer["spec"]["expirationSeconds"]) * RENEWED_AFTER

    async def register(self) -> None:
        """Create the MultiKueueCluster on the manager."""
        source = {"kubeConfig": {"location": self.secret, "locationType": "Secret"}}
        await _apply(self._manager, MULTIKUEUE_CLUSTERS, self.name, {"spec": {"clusterSource": source}}, "")

    async def keep_renewed(self, clock: Clock, first: float, lifetime: int = TOKEN_LIFETIME) -> None:
        """Renew the token, the first time in `first` seconds, until cancelled."""
        delay = first
        while True:
            await clock.sleep(delay)
            try:
                delay = await self.renew(lifetime)
            except (ApiError, ConnectionError, TimeoutError) as error:
                log.warning("the token for the worker %s cannot be renewed: %s", self.name, error)
                delay = RETRY

    @property
    def secret(self) -> str:
        """Name of the Secret with the kubeconfig."""
        return f"{self.name}-kubeconfig"

    def _kubeconfig(self, token: str) -> Object:
        authority = base64.b64encode(self._endpoint.authority.encode()).decode()
        cluster = {"server": self._endpoint.server, "certificate-authority-data": authority}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.name, "cluster": cluster}],
            "users": [{"name": ACCOUNT, "user": {"token": token}}],
            "contexts": [{"name": self.name, "context": {"cluster": self.name, "user": ACCOUNT}}],
            "current-context": self.name,
        }


async def configure_check(manager: Client, name: str, workers: Iterable[str]) -> None:
    """Create a MultiKueueConfig of these workers and an AdmissionCheck for it, both of this name."""
    await _apply(manager, MULTIKUEUE_CONFIGS, name, {"spec": {"clusters": list(workers)}}, "")
    parameters = {"apiGroup": KUEUE_GROUP, "kind": MULTIKUEUE_CONFIGS.kind, "name": name}
    spec = {"controllerName": names.MULTIKUEUE_CONTROLLER, "parameters": parameters}
    await _apply(manager, ADMISSION_CHECKS, name, {"spec": spec}, "")


async def _apply(client: Client, resource: Resource, name: str, fields: Object, namespace: str) -> None:
    metadata = {"name": name, **({"namespace": namespace} if resource.namespaced else {})}
    obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}
    await client.apply(resource, obj, field_manager=FIELD_MANAGER, force=True)
