"""Certificates that the replicas make themselves, agree on through one Secret, and tell the API server of.

Every replica does the same: read the Secret, renew what is due, serve with what it holds, and write its
authority where the clients of the manager read which one to trust. Writes carry the version they were
decided on, so of two replicas that want to renew at once one does and the other takes over what it finds. The
Secret is read by name and nothing is listed or watched: that needs the fewest permissions. Source:
docs/reference/kueue-api.md 10.2.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pykueue.api.crds import kueue_crds
from pykueue.api.objects import Object
from pykueue.api.resources import (
    API_SERVICES,
    CRDS,
    MUTATING_WEBHOOKS,
    SECRETS,
    VALIDATING_WEBHOOKS,
    Resource,
)
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.manager.install_names import InstallNames

from . import authority
from .authority import Material
from .lifetimes import Use

#: Seconds between two checks of the Secret and of the objects that must contain its CA.
PERIOD = 60.0
#: Seconds until the first further look after one that did not find or reach everything; doubles up to PERIOD.
RETRY = 2.0
#: Attempts to write after conflicts, before the next periodic check takes over.
ATTEMPTS = 5

log = logging.getLogger(__name__)


class ManagedCertificates:
    """Keeps a Secret, and the objects that name the authority to trust, up to date."""

    def __init__(self, client: Client, clock: Clock, names: InstallNames, use: Use) -> None:
        self._client = client
        self._clock = clock
        self._names = names
        self._use = use
        #: What is served with; outlives the Secret, should it be deleted.
        self._material: Material | None = None
        #: The authorities last written to the objects of the clients that must trust them.
        self._announced = b""
        self._absent: set[str] = set()

    async def run(self) -> None:
        """Look after them until cancelled."""
        wait = RETRY
        while True:
            complete = False
            try:
                await self._agree()
                complete = await self._announce()
            except (ApiError, ConnectionError, TimeoutError) as error:
                log.warning("certificates: %s; checking again in %g s", error, wait)
            await self._clock.sleep(PERIOD if complete else wait)
            wait = RETRY if complete else min(PERIOD, wait * 2)

    # The Secret

    async def _agree(self) -> None:
        """Serve with what the Secret holds, once what is due has been renewed."""
        for _ in range(ATTEMPTS):
            stored = await self._stored()
            found = None if stored is None else _read(stored)
            if found is None and stored is not None and stored.get("data"):
                log.warning("Secret %s is invalid and is regenerated", self._where)
            now = self._clock.now()
            wanted = found or self._material or authority.made(self._names.dns_names, now)
            announced = bool(self._announced) and self._announced == wanted.bundle
            wanted = authority.renewed(wanted, self._names.dns_names, now, announced)
            if wanted is found or await self._write(stored, wanted):
                self._take(wanted)
                return
        raise ConnectionError(f"secret {self._where} is changed by another client again and again")

    @property
    def _where(self) -> str:
        return f"{self._names.namespace}/{self._names.webhook_secret}"

    async def _stored(self) -> Object | None:
        return await self._client.find(SECRETS, self._names.webhook_secret, self._names.namespace)

    async def _write(self, stored: Object | None, material: Material) -> bool:
        """Put it into the Secret; False where another client wrote meanwhile."""
        data = {key: base64.b64encode(value).decode() for key, value in material.data().items()}
        try:
            if stored is None:
                metadata = {"name": self._names.webhook_secret, "namespace": self._names.namespace}
                secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
                await self._client.create(SECRETS, secret)
            else:
                merged = {**(stored.get("data") or {}), **data}
                await self._client.update(SECRETS, {**stored, "data": merged})
        except ApiError as error:
            if error.conflict or error.already_exists or (stored is not None and error.not_found):
                return False
            raise
        log.info(
            "secret %s: written; authorities %d, certificate until %s",
            self._where,
            len(material.authorities),
            material.certificate.not_valid_after_utc,
        )
        return True

    def _take(self, material: Material) -> None:
        if self._material is None or self._material.certificate != material.certificate:
            self._use(material.certificate_pem, material.key_pem)
        self._material = material

    # Clients that must trust it

    async def _announce(self) -> bool:
        """Tell everybody of the authorities; whether all were there."""
        assert self._material is not None
        bundle = self._material.bundle
        encoded = base64.b64encode(bundle).decode()
        absent: set[str] = set()
        for resource, name, change in self._targets(encoded):
            try:
                await self._client.modify(resource, name, None, change)
            except ApiError as error:
                if not error.not_found:
                    raise
                absent.add(f"{resource.kind} {name}")
        if absent != self._absent:
            self._absent = absent
            log.info(
                "certificates: %s",
                f"not found: {', '.join(sorted(absent))}" if absent else "published everywhere",
            )
        self._announced = bundle
        return not absent

    def _targets(self, bundle: str) -> Iterator[tuple[Resource, str, Callable[[Object], Object | None]]]:
        def webhooks(stored: Object) -> Object | None:
            entries = [self._trusting(entry, bundle) for entry in stored.get("webhooks") or ()]
            return _unless_same(stored, {**stored, "webhooks": entries})

        def conversion(stored: Object) -> Object | None:
            spec = stored["spec"]
            webhook = (spec.get("conversion") or {}).get("webhook")
            if webhook is None:
                return None
            changed = {**spec["conversion"], "webhook": self._trusting(webhook, bundle)}
            return _unless_same(stored, {**stored, "spec": {**spec, "conversion": changed}})

        def aggregation(stored: Object) -> Object | None:
            spec = stored["spec"]
            if not self._is_ours(spec.get("service")):
                return None
            trusting = {k: v for k, v in spec.items() if k != "insecureSkipTLSVerify"}
            return _unless_same(stored, {**stored, "spec": {**trusting, "caBundle": bundle}})

        yield MUTATING_WEBHOOKS, self._names.mutating_configuration, webhooks
        yield VALIDATING_WEBHOOKS, self._names.validating_configuration, webhooks
        # Not only those that need it: Kueue's chart has all kinds converted, and taking over leaves that so.
        for crd in kueue_crds():
            yield CRDS, crd["metadata"]["name"], conversion
        for name in self._names.api_services:
            yield API_SERVICES, name, aggregation

    def _is_ours(self, service: Mapping[str, Any] | None) -> bool:
        """Whether a reference leads to a Service that this certificate answers for."""
        if service is None or service.get("namespace") != self._names.namespace:
            return False
        return service.get("name") in self._names.services

    def _trusting(self, entry: Object, bundle: str) -> Object:
        """An entry with a clientConfig, trusting the authorities where it leads to us."""
        config = entry.get("clientConfig") or {}
        if not self._is_ours(config.get("service")):
            return entry
        return {**entry, "clientConfig": {**config, "caBundle": bundle}}


def _unless_same(stored: Object, wanted: Object) -> Object | None:
    return None if wanted == stored else wanted


def _read(secret: Mapping[str, Any]) -> Material | None:
    try:
        data = {
            key: base64.b64decode(value, validate=True) for key, value in (secret.get("data") or {}).items()
        }
    except (binascii.Error, TypeError, ValueError):
        return None
    return authority.read(data)
