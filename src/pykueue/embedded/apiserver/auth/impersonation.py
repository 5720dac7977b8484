"""Acting as another user: what the Impersonate-* headers ask for, and whether the user may.

Constrained impersonation is not offered, only the verb `impersonate`.
Source: k8s.io/apiserver/pkg/endpoints/filters/impersonation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pykueue.embedded.apiserver.registry.call import User
from pykueue.embedded.objects.errors import bad_request
from pykueue.embedded.objects.metadata import name_fault

from .authentication import AUTHENTICATED
from .rbac import Authorizer
from .rules import Access

ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
_UNAUTHENTICATED = ANONYMOUS.groups[0]
_ACCOUNT = "system:serviceaccount:"
_GROUP = "authentication.k8s.io"


class Wanted(NamedTuple):
    """The user that a request is to be carried out as."""

    name: str
    groups: Sequence[str]
    uid: str
    extra: Mapping[str, list[str]]


def impersonated(authorizer: Authorizer, user: User, wanted: Wanted) -> User:
    """The user to go on as; the user itself when no other is wanted.

    400 when groups, a uid or extra fields are wanted without a user, 403 when the user may not.
    """
    if not wanted.name:
        if wanted.groups or wanted.uid or wanted.extra:
            raise bad_request("impersonation of groups, a uid or extra fields needs a user: Impersonate-User")
        return user
    account = _account(wanted.name)
    for access in _needed(wanted, account):
        authorizer.require(user, access)
    groups = list(wanted.groups)
    if account is not None and not groups:
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{account[0]}"]
    if wanted.name == ANONYMOUS.name:
        added = _UNAUTHENTICATED
    else:
        added = "" if _UNAUTHENTICATED in groups else AUTHENTICATED
    if added and added not in groups:
        groups.append(added)
    return User(wanted.name, tuple(groups), wanted.uid, wanted.extra)


def _account(name: str) -> tuple[str, str] | None:
    """Namespace and name of the ServiceAccount that a user name is of, if it is one's."""
    namespace, colon, account = name.removeprefix(_ACCOUNT).partition(":")
    if not name.startswith(_ACCOUNT) or not colon:
        return None
    return (
        None if name_fault(namespace, "label") or name_fault(account, "subdomain") else (namespace, account)
    )


def _needed(wanted: Wanted, account: tuple[str, str] | None) -> Iterator[Access]:
    if account is not None:
        yield Access("impersonate", "", "serviceaccounts", "", *account)
    else:
        yield Access("impersonate", "", "users", name=wanted.name)
    for group in wanted.groups:
        yield Access("impersonate", "", "groups", name=group)
    for key, values in wanted.extra.items():
        for value in values:
            yield Access("impersonate", _GROUP, "userextras", key, name=value)
    if wanted.uid:
        yield Access("impersonate", _GROUP, "uids", name=wanted.uid)
