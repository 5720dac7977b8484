"""Tokens of an OpenID Connect provider, as kubectl's auth-provider `oidc` gets them.

Source: docs/reference/kubernetes-api-machinery.md, section 21 (kubectl); OpenID Connect Core 1.0, section 12
(refresh tokens), OpenID Connect Discovery 1.0, section 4.
"""

from __future__ import annotations

import base64
import binascii
import ssl as tls
from collections.abc import Mapping
from typing import Any, Final

import orjson

from pykueue.clock import Clock
from pykueue.kube.kubeconfig import ConfigError

#: An ID token is renewed this long before it expires, in seconds.
EXPIRY_MARGIN: Final = 60.0
#: Seconds for one request to the provider.
TIMEOUT: Final = 30.0


class OpenId:
    """The ID token of the configuration, refreshed when it expires.

    Refreshed tokens are kept in memory; the kubeconfig is not changed. `config` has kubectl's fields:
    client-id, client-secret, idp-issuer-url, id-token, refresh-token, idp-certificate-authority(-data).
    """

    def __init__(self, config: Mapping[str, Any], clock: Clock) -> None:
        self._config = dict(config)
        self._clock = clock

    async def token(self) -> tuple[str, float | None]:
        """A valid ID token and its expiry in seconds since 1970, if it has one. Raises ConfigError."""
        token = self._config.get("id-token")
        expires = _expiry(str(token)) if token else None
        if not token or (expires is not None and self._clock.time() >= expires - EXPIRY_MARGIN):
            await self._refresh()
            token = self._config["id-token"]
            expires = _expiry(str(token))
        return str(token), expires

    async def _refresh(self) -> None:
        import aiohttp  # tokens of this kind are rare

        config = self._config
        for field in ("refresh-token", "client-id", "idp-issuer-url"):
            if not config.get(field):
                raise ConfigError(
                    f"oidc: the id-token is missing or expired, and {field} to renew it is missing"
                )
        issuer = str(config["idp-issuer-url"]).rstrip("/")
        pair = f"{config['client-id']}:{config.get('client-secret') or ''}".encode()
        headers = {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        try:
            async with aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=_trust(config)),
                timeout=aiohttp.ClientTimeout(total=TIMEOUT),
                raise_for_status=True,
                trust_env=True,
            ) as session:
                async with session.get(f"{issuer}/.well-known/openid-configuration") as response:
                    endpoint = (await response.json())["token_endpoint"]
                form = {"grant_type": "refresh_token", "refresh_token": str(config["refresh-token"])}
                async with session.post(endpoint, data=form, headers=headers) as response:
                    answer = await response.json()
            config["id-token"] = answer["id_token"]
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"oidc: {issuer} issued no new token: {error or type(error).__name__}"
            ) from error
        config["refresh-token"] = answer.get("refresh_token") or config["refresh-token"]


def _trust(config: Mapping[str, Any]) -> tls.SSLContext:
    data = config.get("idp-certificate-authority-data")
    if data:
        return tls.create_default_context(cadata=base64.b64decode(str(data)).decode())
    return tls.create_default_context(cafile=config.get("idp-certificate-authority") or None)


def _expiry(token: str) -> float | None:
    """The claim `exp` of a JWT, not verified: the server does that. Raises ConfigError."""
    parts = token.split(".")
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expires = claims.get("exp")
    except (IndexError, binascii.Error, ValueError, AttributeError) as error:
        raise ConfigError("oidc: the id-token is not a JWT") from error
    return float(expires) if isinstance(expires, int | float) else None
