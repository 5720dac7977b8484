"""Why a JobKind cannot be used."""

from __future__ import annotations

from collections.abc import Iterable

from pykueue.api.validation.fields import FieldError


class JobKindError(ValueError):
    """A JobKind cannot be used; `errors` name every field that is wrong."""

    def __init__(self, errors: Iterable[FieldError]) -> None:
        self.errors = list(errors)
        super().__init__("; ".join(map(str, self.errors)))


class ExpressionError(ValueError):
    """An expression that does not compile, or has no result for a job; the text says why."""
