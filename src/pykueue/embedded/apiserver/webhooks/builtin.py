"""The admission every server does by itself, before and after the webhooks.

Before them, in this order: LimitRange defaults, RuntimeClass, Priority, ServiceAccount. After them the bounds
of LimitRanges, and ResourceQuota last. Source: docs/reference/cluster-workloads.md, 4.8.
"""

from __future__ import annotations

from pykueue.api.objects import Object, is_deleting
from pykueue.embedded.admission.limit_range import check_claim, check_limits, default_limits
from pykueue.embedded.admission.priority import check_only_default, resolve_priority
from pykueue.embedded.admission.quota import charge
from pykueue.embedded.admission.runtime_class import apply_runtime_class
from pykueue.embedded.admission.service_account import (
    DEFAULT,
    ROOT_CA,
    TOKEN_VOLUME,
    mount_token,
    use_service_account,
)
from pykueue.embedded.apiserver.registry.core import Core
from pykueue.embedded.apiserver.registry.endpoints import Endpoint
from pykueue.embedded.objects import metadata
from pykueue.embedded.store.records import Record
from pykueue.embedded.store.table import Table

_POD_STEPS = (default_limits, apply_runtime_class, resolve_priority, use_service_account)


class BuiltinAdmission:
    """Asked by writes; also gives every namespace its default account and the authority's certificate."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._quotas: Table = core.store.table("/resourcequotas")
        #: The certificate of the authority the server is reached by, as PEM; empty while it does not listen.
        self._authority = ""
        core.on_stored("/namespaces", self._namespace_stored)
        core.on_stored("/serviceaccounts", self._account_stored)
        core.on_stored("/configmaps", self._certificate_stored)
        core.on_lost(self.complete)

    def admit(self, endpoint: Endpoint, obj: Object) -> Object:
        """The object as it goes to the webhooks. Raises ApiError (403)."""
        if endpoint.group == "" and endpoint.plural == "pods":
            for step in _POD_STEPS:
                obj = step(obj, self._core)
            if self._authority:  # without it no tokens are signed or accepted
                obj = mount_token(obj, self._core, metadata.generated_name(TOKEN_VOLUME, self._core.rng))
        return obj

    def check(self, endpoint: Endpoint, obj: Object, operation: str) -> None:
        """Refuse what breaks a rule in its final form. Raises ApiError (403)."""
        if endpoint.plural == "priorityclasses" and endpoint.group == "scheduling.k8s.io":
            check_only_default(obj, self._core)
        if endpoint.group or operation != "CREATE":
            return
        match endpoint.plural:
            case "pods":
                check_limits(obj, self._core)
            case "persistentvolumeclaims":
                check_claim(obj, self._core)

    def charge(self, endpoint: Endpoint, obj: Object, dry_run: bool) -> None:
        """Count the object in the quotas of its namespace. ApiError (403) when it exceeds a hard limit.

        The caller stores the object in the same step.
        """
        if not self._quotas.count or not endpoint.namespaced:
            return
        for quota, changed in charge(endpoint.group, endpoint.plural, obj, self._core):
            if dry_run:
                continue
            key = (quota["metadata"]["namespace"], quota["metadata"]["name"])
            changed["metadata"] = dict(changed["metadata"])
            self._core.store.put(self._quotas, key, changed)

    def _namespace_stored(self, new: Record | None, old: Record | None) -> None:
        if new is not None and old is None:
            self._give_account(new.key[1])
            self._give_certificate(new.key[1])

    def _account_stored(self, new: Record | None, old: Record | None) -> None:
        if new is None and old is not None and old.key[1] == DEFAULT:
            namespace = self._core.find("", "namespaces", "", old.key[0])
            if namespace is not None and not is_deleting(namespace):
                self._give_account(old.key[0])

    def _give_account(self, namespace: str) -> None:
        storage = self._core.registry.storage("", "serviceaccounts")
        if storage is not None and storage.table.get((namespace, DEFAULT)) is None:
            self._put(storage, namespace, DEFAULT, {})

    def _certificate_stored(self, new: Record | None, old: Record | None) -> None:
        key = new.key if new is not None else old.key if old is not None else ("", "")
        if key[1] == ROOT_CA and self._authority:
            namespace = self._core.find("", "namespaces", "", key[0])
            if namespace is not None and not is_deleting(namespace):
                self._give_certificate(key[0])

    def _give_certificate(self, namespace: str) -> None:
        """Put the ConfigMap with the authority's certificate right, if it is not."""
        storage = self._core.registry.storage("", "configmaps")
        if storage is None or not self._authority:
            return
        data = {"ca.crt": self._authority}
        current = storage.table.get((namespace, ROOT_CA))
        if current is None or current.object.get("data") != data:
            self._put(storage, namespace, ROOT_CA, {"data": data}, current)

    def _put(
        self, storage: Endpoint, namespace: str, name: str, content: Object, current: Record | None = None
    ) -> None:
        core = self._core
        if current is not None:
            obj = {**current.object, **content, "metadata": dict(current.object["metadata"])}
        else:
            meta = {
                "name": name,
                "namespace": namespace,
                "uid": metadata.new_uid(core.rng),
                "creationTimestamp": core.now_text(),
            }
            obj = {"apiVersion": "v1", "kind": storage.kind.kind, "metadata": meta, **content}
        core.store.put(storage.table, (namespace, name), obj)

    def publish_authority(self, certificate: str) -> None:
        """Have a certificate (PEM) in every namespace, and mount tokens into pods from now on."""
        self._authority = certificate
        self.complete()

    def complete(self) -> None:
        """Give namespaces what they lack: accounts and certificates whose write was lost or never made."""
        for namespace in list(self._core.all("", "namespaces")):
            if not is_deleting(namespace):
                self._give_account(namespace["metadata"]["name"])
                self._give_certificate(namespace["metadata"]["name"])
