"""Job kinds that users describe: JobKind objects, and the descriptions that they compile into."""

from __future__ import annotations

from .compile import CompiledKind, compile_kind
from .errors import ExpressionError, JobKindError
from .manifest import GROUP, JOB_KINDS, VERSION, JobKind
from .schema import schema_errors

__all__ = [
    "GROUP",
    "JOB_KINDS",
    "VERSION",
    "CompiledKind",
    "ExpressionError",
    "JobKind",
    "JobKindError",
    "compile_kind",
    "schema_errors",
]
