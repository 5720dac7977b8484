"""The users of requests that an API server forwards: identities in headers, and when they are trusted.

Requests of the aggregation layer carry the user in headers. They count only on connections that show a
certificate of the authority, and with one of the names, that the ConfigMap below gives.
Source: docs/reference/kubernetes-api-machinery.md, section 18, and the Kubernetes documentation of
aggregation.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson

from pykueue.api.resources import CONFIG_MAPS
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.manager.serving.messages import Request
from pykueue.manager.serving.tls import ServingTls

log = logging.getLogger(__name__)

#: The ConfigMap that describes how to identify the API server of a cluster.
NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"
#: Seconds between two looks for a new authority, and after one that failed.
PERIOD, RETRY = 60.0, 5.0

_AUTHENTICATED, _UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"


@dataclass(frozen=True)
class Trust:
    """Which connections may name users, and in which headers, in lower case."""

    authority: str = ""
    #: Common names of certificates; any of the authority's if empty.
    names: frozenset[str] = frozenset()
    users: tuple[str, ...] = ("x-remote-user",)
    groups: tuple[str, ...] = ("x-remote-group",)
    uids: tuple[str, ...] = ("x-remote-uid",)
    extras: tuple[str, ...] = ("x-remote-extra-",)

    @classmethod
    def of(cls, data: Mapping[str, str]) -> Trust:
        """As the ConfigMap's data says. Raises ValueError for what it cannot mean."""

        def listed(key: str, default: tuple[str, ...]) -> tuple[str, ...]:
            found = orjson.loads(data.get(key) or "[]")
            if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
                raise ValueError(f"{key} is not a list of texts")
            return tuple(one.lower() for one in found) or default

        names = orjson.loads(data.get("requestheader-allowed-names") or "[]")
        return cls(
            data.get("requestheader-client-ca-file", ""),
            frozenset(names),
            listed("requestheader-username-headers", cls.users),
            listed("requestheader-group-headers", cls.groups),
            listed("requestheader-uid-headers", cls.uids),
            listed("requestheader-extra-headers-prefix", cls.extras),
        )


class FrontProxy:
    """Follows what the cluster says of its API server's certificate, and reads identities by it.

    `tls` is the server's TLS context, which gets the authorities of client certificates.
    """

    def __init__(self, client: Client, clock: Clock, tls: ServingTls) -> None:
        self._client = client
        self._clock = clock
        self._tls = tls
        self._trust = Trust()

    async def refresh(self) -> bool:
        """Take what the cluster says now; whether it could be read."""
        try:
            found = await self._client.get(CONFIG_MAPS, NAME, NAMESPACE)
            trust = Trust.of(found.get("data") or {})
            if trust.authority != self._trust.authority:
                self._tls.trust_clients(trust.authority)
            self._trust = trust
        except (ApiError, ConnectionError, TimeoutError, ValueError, ssl.SSLError) as error:
            log.warning(
                "cannot read the requestheader client CA from ConfigMap %s/%s: %s",
                NAMESPACE,
                NAME,
                error,
            )
            return False
        return True

    async def run(self) -> None:
        """Take what is new, until cancelled."""
        while True:
            read = await self.refresh()
            await self._clock.sleep(PERIOD if read else RETRY)

    def user_of(self, request: Request) -> dict[str, Any] | None:
        """The user that the API server names, as in a TokenReview; None for an untrusted connection."""
        trust = self._trust
        certificate = request.certificate
        if not certificate or not trust.authority:
            return None
        subject = [
            value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"
        ]
        if trust.names and not trust.names.intersection(subject):
            return None
        headers = request.headers
        name = next(filter(None, map(headers.get, trust.users)), "")
        if not name:
            return None
        extra: dict[str, list[str]] = {}
        for header, value in headers.items():
            for prefix in trust.extras:
                if header.startswith(prefix):
                    extra.setdefault(unquote(header[len(prefix) :]), []).append(value)
        groups = [value for one in trust.groups for value in headers.all(one)]
        if _AUTHENTICATED not in groups and _UNAUTHENTICATED not in groups:
            # Requests that the aggregation layer makes itself name no groups: every user has these rights.
            groups.append(_AUTHENTICATED)
        return {
            "username": name,
            "uid": next(filter(None, map(headers.get, trust.uids)), ""),
            "groups": groups,
            "extra": extra,
        }
