"""Functions written in Python that CEL rules may call: how they are declared."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from cel_expr_python import cel

T = cel.Type
Implementation = Callable[..., Any]

_OVERLOADS: dict[str, list[Any]] = {}


def _declare(
    name: str, result: Any, parameters: list[Any], member: bool
) -> Callable[[Implementation], Implementation]:
    """Register one overload; the decorated function is called with plain Python values."""

    def register(function: Implementation) -> Implementation:
        overloads = _OVERLOADS.setdefault(name, [])
        identity = f"k8s_{re.sub('[^A-Za-z0-9]', '_', name)}_{len(overloads)}"
        overloads.append(cel.Overload(identity, result, parameters, member, function))
        return function

    return register


def function(name: str, result: Any, *parameters: Any) -> Callable[[Implementation], Implementation]:
    """Declare `name(parameters...)`. What it raises becomes an error of the rule."""
    return _declare(name, result, list(parameters), False)


def method(name: str, result: Any, *parameters: Any) -> Callable[[Implementation], Implementation]:
    """Declare a function called on its first parameter: `value.name(...)`."""
    return _declare(name, result, list(parameters), True)


def extension() -> Any:
    """All functions declared so far, as an extension of a CEL environment."""
    return cel.CelExtension(
        "kubernetes", [cel.FunctionDecl(name, overloads) for name, overloads in _OVERLOADS.items()]
    )
