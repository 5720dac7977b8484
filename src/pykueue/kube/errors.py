"""The one error a Kubernetes API answers with, a Status object, and one of connections."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """A request was refused. `reason` and `code` are what programs test; the message is for people.

    Source: the Status object of the API (docs/reference/kubernetes-api-machinery.md, section 19).
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}
        #: Seconds the server asks to wait before trying again (429 and 5xx).
        self.retry_after = retry_after

    @classmethod
    def from_status(cls, status: dict[str, Any], code: int, retry_after: float | None = None) -> ApiError:
        """From the Status body of an answer; `code` is the HTTP code, used where the body has none."""
        return cls(
            int(status.get("code") or code),
            str(status.get("reason") or ""),
            str(status.get("message") or f"the server answered {code}"),
            status.get("details"),
            retry_after,
        )

    @property
    def not_found(self) -> bool:
        """Whether the answer was 404: the object or the resource does not exist."""
        return self.code == 404

    @property
    def conflict(self) -> bool:
        """A stale resourceVersion or failed precondition (not AlreadyExists, which is 409 too)."""
        return self.code == 409 and self.reason == "Conflict"

    @property
    def already_exists(self) -> bool:
        """Whether a create failed because an object of that name exists."""
        return self.reason == "AlreadyExists"

    @property
    def namespace_terminating(self) -> bool:
        """Whether a create failed because the namespace is being deleted."""
        return any(
            cause.get("reason") == "NamespaceTerminating" for cause in self.details.get("causes") or ()
        )

    @property
    def expired(self) -> bool:
        """The resourceVersion asked for is older than the server remembers: list again."""
        return self.code == 410


def first_error(group: BaseException) -> BaseException:
    """The error that ended a group of tasks; what others raised on being cancelled does not matter."""
    error = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class NotCarriedOutError(ConnectionError):
    """The server says that it has not looked at the request: it may be sent again."""
