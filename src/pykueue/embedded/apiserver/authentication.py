"""Who asks: bearer tokens (static ones and ServiceAccounts') and client certificates.

Source: reference/kubernetes-api-machinery.md, section 17.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Any

import orjson

from pykueue.embedded.apiserver.call import User
from pykueue.embedded.apiserver.contract import Object
from pykueue.embedded.apiserver.core import Core
from pykueue.embedded.apiserver.metadata import new_uid, time_text
from pykueue.kube.errors import ApiError

AUTHENTICATED = "system:authenticated"
ISSUER = "https://kubernetes.default.svc"

#: Seconds a ServiceAccount token is valid, unless asked otherwise, and at least.
TOKEN_LIFE, SHORTEST_TOKEN_LIFE = 3600, 600


def unauthorized() -> ApiError:
    """401."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Authenticator:
    """Knows the static tokens, and signs and checks ServiceAccount tokens with the server's key."""

    def __init__(self, core: Core, key: bytes, tokens: dict[str, User] | None = None) -> None:
        self._core = core
        self._key = key
        # Kept by hash, so that looking one up does not tell how much of it was right.
        self._tokens = {
            hashlib.sha256(token.encode()).digest(): _authenticated(user)
            for token, user in (tokens or {}).items()
        }

    def by_token(self, token: str) -> User | None:
        """The user of a bearer token, or None."""
        user = self._tokens.get(hashlib.sha256(token.encode()).digest())
        return user if user is not None else self._service_account(token)

    @staticmethod
    def by_certificate(certificate: dict[str, Any]) -> User | None:
        """The user a verified client certificate names: CN is the user, O the groups."""
        name, groups = "", []
        for part in certificate.get("subject") or ():
            for key, value in part:
                if key == "commonName":
                    name = value
                elif key == "organizationName":
                    groups.append(value)
        return _authenticated(User(name, tuple(groups))) if name else None

    def issue(self, account: Object, request: Object) -> Object:
        """Answer a TokenRequest for a ServiceAccount."""
        spec = request.get("spec") or {}
        now = int(self._core.clock.time())
        life = max(int(spec.get("expirationSeconds") or TOKEN_LIFE), SHORTEST_TOKEN_LIFE)
        meta = account["metadata"]
        private: Object = {
            "namespace": meta["namespace"],
            "serviceaccount": {"name": meta["name"], "uid": meta["uid"]},
        }
        bound = spec.get("boundObjectRef")
        if bound:
            private[str(bound.get("kind", "")).lower()] = {
                key: bound[key] for key in ("name", "uid") if bound.get(key)
            }
        claims = {
            "aud": spec.get("audiences") or [ISSUER],
            "exp": now + life,
            "iat": now,
            "nbf": now,
            "iss": ISSUER,
            "jti": new_uid(self._core.rng),
            "kubernetes.io": private,
            "sub": f"system:serviceaccount:{meta['namespace']}:{meta['name']}",
        }
        head = _encode(orjson.dumps({"alg": "HS256", "typ": "JWT"}))
        body = f"{head}.{_encode(orjson.dumps(claims))}"
        token = f"{body}.{_encode(self._sign(body))}"
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": meta["name"],
                "namespace": meta["namespace"],
                "creationTimestamp": time_text(now),
            },
            "spec": {**spec, "audiences": claims["aud"], "expirationSeconds": life},
            "status": {"token": token, "expirationTimestamp": time_text(now + life)},
        }

    def _sign(self, text: str) -> bytes:
        return hmac.new(self._key, text.encode(), hashlib.sha256).digest()

    def _service_account(self, token: str) -> User | None:
        body, dot, signature = token.rpartition(".")
        if not dot or body.count(".") != 1:
            return None
        try:
            if not hmac.compare_digest(_decode(signature), self._sign(body)):
                return None
            claims = orjson.loads(_decode(body.partition(".")[2]))
        except (binascii.Error, ValueError):
            return None
        if claims["exp"] <= self._core.clock.time():
            return None
        private = claims["kubernetes.io"]
        namespace, account = private["namespace"], private["serviceaccount"]
        stored = self._core.find("", "serviceaccounts", namespace, account["name"])
        if stored is None or stored["metadata"]["uid"] != account["uid"]:
            return None
        pod = private.get("pod")
        if pod is not None:
            found = self._core.find("", "pods", namespace, pod.get("name", ""))
            if found is None or found["metadata"]["uid"] != pod.get("uid", found["metadata"]["uid"]):
                return None
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        return _authenticated(User(claims["sub"], groups, account["uid"]))


def _authenticated(user: User) -> User:
    if AUTHENTICATED in user.groups:
        return user
    return user._replace(groups=(*user.groups, AUTHENTICATED))
