"""Who makes a request: bearer tokens (static ones and ServiceAccounts') and client certificates.

Source: docs/reference/kubernetes-api-machinery.md, section 17; k8s.io/kubernetes/pkg/serviceaccount.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.registry.call import User
from pykueue.embedded.apiserver.registry.core import Core
from pykueue.embedded.objects.errors import (
    bad_request,
    conflict,
    invalid,
    invalid_object,
    not_found,
)
from pykueue.embedded.objects.metadata import new_uid, time_text
from pykueue.embedded.store.records import Record
from pykueue.embedded.store.table import Table
from pykueue.kube.errors import ApiError

AUTHENTICATED = "system:authenticated"
ISSUER = "https://kubernetes.default.svc"
#: Audiences of the server itself: a token for others does not authenticate requests.
AUDIENCES = (ISSUER,)

#: Seconds a ServiceAccount token is valid unless requested otherwise, and what may be requested.
TOKEN_LIFE, SHORTEST_TOKEN_LIFE, LONGEST_TOKEN_LIFE = 3600, 600, 1 << 32
#: Seconds by which the clock may have been set back since a token was issued, and by which the deletion time
#: of what it is bound to may have passed.
_LEEWAY = 60
#: Kinds a token may be bound to, and where their objects are.
_BOUND = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
#: The shortest key that signs tokens, bytes: as long as what it signs with (RFC 7518, section 3.2).
SHORTEST_KEY = 32
#: The shortest static token, characters.
SHORTEST_TOKEN = 16
#: Tokens whose signature is remembered as right.
_REMEMBERED = 1024


class Identity(NamedTuple):
    """Whose a token is, and for which of the requested audiences it is."""

    user: User
    audiences: list[str]


@dataclass(slots=True)
class Credential:
    """A token that this server signed: its claims, its user, and the objects that must exist."""

    claims: Object
    user: User
    #: Plural, namespace, and the name and uid.
    needed: list[tuple[str, str, Object]]
    #: The times, in seconds, between which it is valid.
    begin: float
    end: float
    #: The records of those objects when they were last found to be there and not deleted, with their tables.
    found: list[tuple[Table, Record]] = field(default_factory=list)


def unauthorized() -> ApiError:
    """401."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class Authenticator:
    """Knows the static tokens, and signs and checks ServiceAccount tokens with the server's key.

    ValueError for an empty token, and for a key of less than `SHORTEST_KEY` bytes.
    """

    def __init__(self, core: Core, key: bytes, tokens: dict[str, User] | None = None) -> None:
        if len(key) < SHORTEST_KEY:
            raise ValueError(f"the signing key has {len(key)} bytes; at least {SHORTEST_KEY} are needed")
        if tokens and not all(tokens):
            raise ValueError("a token is empty")
        self._core = core
        self._key = key
        # By hash, so that the time of a look-up does not depend on how much of a token is right.
        self._tokens = {_hash(token): _authenticated(user) for token, user in (tokens or {}).items()}
        #: Tokens that this server signed, by hash; whether they are valid now is asked for each request.
        self._by_hash: dict[bytes, Credential] = {}

    def by_token(self, token: str) -> User | None:
        """The user of a bearer token for this server, or None."""
        identity = self.identify(token, AUDIENCES)
        return identity.user if identity is not None else None

    def credential(self, token: str) -> User | Credential | None:
        """What to ask for the user of each further request with a token that was found valid by `by_token`.

        A static token is its user as long as the server runs; one that this server signed is asked
        `user_of` each time.
        """
        hashed = _hash(token)
        return self._tokens.get(hashed) or self._by_hash.get(hashed)

    def user_of(self, credential: Credential) -> User | None:
        """The user of a token for this server, or None when it is not valid any more."""
        return credential.user if self._is_valid(credential) else None

    def identify(self, token: str, audiences: Sequence[str]) -> Identity | None:
        """Whose token it is; None when it is not valid for any of the audiences."""
        if not token:
            return None
        hashed = _hash(token)
        own: tuple[str, ...] = AUDIENCES
        user = self._tokens.get(hashed)
        if user is None:
            signed = self._remembered(token, hashed)
            if signed is None or not self._is_valid(signed):
                return None
            user, own = signed.user, tuple(signed.claims["aud"])
        common = [one for one in audiences if one in own]
        return Identity(user, common) if user is not None and common else None

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

    # -- issuing

    def issue(self, account: Object, request: Object) -> Object:
        """Answer a TokenRequest, types checked, for a ServiceAccount.

        422 when the requested life is out of range, 404 or 409 when the object to bind the token to is not
        there, 400 when a token cannot be bound to it.
        """
        spec, meta = request.get("spec") or {}, account["metadata"]
        _check_request(request, meta)
        now = int(self._core.clock.time())
        life = spec.get("expirationSeconds", TOKEN_LIFE)
        private: Object = {
            "namespace": meta["namespace"],
            "serviceaccount": {"name": meta["name"], "uid": meta["uid"]},
        }
        if spec.get("boundObjectRef"):
            private.update(self._bound(spec["boundObjectRef"], meta))
        claims = {
            "aud": spec.get("audiences") or list(AUDIENCES),
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

    def _bound(self, reference: Object, account: Object) -> Object:
        """The claims of the object that a token is bound to, and of the node of a pod."""
        kind, name = reference.get("kind") or "", reference.get("name") or ""
        plural = _BOUND.get(kind)
        if plural is None or reference.get("apiVersion") not in (None, "", "v1"):
            shown = f"{reference.get('apiVersion') or 'v1'}, Kind={kind}"
            raise bad_request(
                f"cannot bind token to object of type {shown}; accepted: Pod, Secret, Node of v1"
            )
        found = self._core.find_settled("", plural, "" if kind == "Node" else account["namespace"], name)
        if found is None:
            raise not_found("", plural, name)
        spec, uid = found.get("spec") or {}, found["metadata"]["uid"]
        if kind == "Pod" and (spec.get("serviceAccountName") or "default") != account["name"]:
            raise bad_request(
                f'cannot bind token for serviceaccount "{account["name"]}" to pod running with different '
                "serviceaccount name."
            )
        if reference.get("uid") not in (None, "", uid):
            raise conflict(
                "",
                plural,
                name,
                f"the UID in the bound object reference ({reference['uid']}) does not match the UID in "
                "record. The object might have been deleted and then recreated",
            )
        claims: Object = {kind.lower(): {"name": name, "uid": uid}}
        if kind == "Pod" and spec.get("nodeName"):
            node = self._core.find_settled("", "nodes", "", spec["nodeName"])
            known = {"uid": node["metadata"]["uid"]} if node is not None else {}
            claims["node"] = {"name": spec["nodeName"], **known}
        return claims

    def _sign(self, text: str) -> bytes:
        return hmac.new(self._key, text.encode(), hashlib.sha256).digest()

    # -- checking

    def _remembered(self, token: str, hashed: bytes) -> Credential | None:
        """A token that this server signed, whether or not it is valid now."""
        found = self._by_hash.get(hashed)
        if found is None:
            claims = self._signed_claims(token)
            if claims is None:
                return None
            if len(self._by_hash) >= _REMEMBERED:
                self._by_hash.clear()
            found = self._by_hash[hashed] = _signed(claims)
        return found

    def _is_valid(self, signed: Credential) -> bool:
        """Whether the account and what the token is bound to are still there, and its time has not ended."""
        if not signed.begin <= self._core.clock.time() < signed.end:
            return False
        # Records never change: where the same one is in its table, what was found of it holds.
        known = signed.found
        if known and all(table.get_settled(record.key) is record for table, record in known):
            return True
        found = []
        for plural, namespace, reference in signed.needed:
            endpoint = self._core.registry.storage("", plural)
            record = endpoint.table.get_settled((namespace, reference["name"])) if endpoint else None
            if endpoint is None or record is None or not self._is_present(record.object, reference):
                signed.found = []
                return False
            found.append((endpoint.table, record))
        lasting = all(record.object["metadata"].get("deletionTimestamp") is None for _, record in found)
        signed.found = found if lasting else []
        return True

    def _signed_claims(self, token: str) -> Object | None:
        """The claims of a token that this server signed, with all that a valid one has."""
        body, _, signature = token.rpartition(".")
        head, dot, payload = body.partition(".")
        if not dot:
            return None
        try:
            if not hmac.compare_digest(_decode(signature), self._sign(body)):
                return None
            algorithm, claims = orjson.loads(_decode(head))["alg"], orjson.loads(_decode(payload))
            for time in ("nbf", "iat", "exp"):
                if not 0 <= claims[time] < math.inf:
                    return None
            signed = algorithm == "HS256" and claims["iss"] == ISSUER
            return claims if signed and isinstance(claims["aud"], list) else None
        except (binascii.Error, ValueError, KeyError, TypeError):
            return None

    def _is_present(self, found: Object, reference: Object) -> bool:
        if found["metadata"]["uid"] != reference.get("uid"):
            return False
        deleted = found["metadata"].get("deletionTimestamp")
        return deleted is None or deleted >= time_text(int(self._core.clock.time()) - _LEEWAY)


def _signed(claims: Object) -> Credential:
    private = claims["kubernetes.io"]
    namespace, account = private["namespace"], private["serviceaccount"]
    bound = [kind for kind in _BOUND if kind.lower() in private]
    if "pod" in private and "node" in private:
        bound.remove("Node")  # only for information: the token ends with the pod
    needed = [("serviceaccounts", namespace, account)]
    needed += [(_BOUND[kind], "" if kind == "Node" else namespace, private[kind.lower()]) for kind in bound]
    extra = {"authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"]}
    for kind in ("pod", "node"):
        for part in ("name", "uid"):
            if part in private.get(kind, {}):
                extra[f"authentication.kubernetes.io/{kind}-{part}"] = [private[kind][part]]
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    user = _authenticated(User(claims["sub"], groups, account["uid"], extra))
    return Credential(claims, user, needed, max(claims["nbf"], claims["iat"]) - _LEEWAY, claims["exp"])


def _check_request(request: Object, account: Object) -> None:
    """400 and 422 for what a TokenRequest may not ask of the account with this metadata."""
    given, causes = request.get("metadata") or {}, []
    for part in ("name", "namespace"):
        if given.get(part) not in (None, "", account[part]):
            detail = f"must match the service account {part} if specified"
            causes.append(invalid(f"metadata.{part}", given[part], detail))
    life = (request.get("spec") or {}).get("expirationSeconds", TOKEN_LIFE)
    if life < SHORTEST_TOKEN_LIFE:
        detail = "may not specify a duration less than 10 minutes"
        causes.append(invalid("spec.expirationSeconds", life, detail))
    if life > LONGEST_TOKEN_LIFE:
        detail = "may not specify a duration larger than 2^32 seconds"
        causes.append(invalid("spec.expirationSeconds", life, detail))
    if causes:
        raise invalid_object("authentication.k8s.io", "TokenRequest", account["name"], causes)
    if given.get("uid") not in (None, "", account["uid"]):
        raise conflict(
            "authentication.k8s.io",
            "tokenrequests",
            account["name"],
            f"the UID in the token request ({given['uid']}) does not match the UID of the service account "
            f"({account['uid']})",
        )


def _authenticated(user: User) -> User:
    if AUTHENTICATED in user.groups:
        return user
    return user._replace(groups=(*user.groups, AUTHENTICATED))
