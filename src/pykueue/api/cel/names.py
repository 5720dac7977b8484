"""Names of properties as CEL rules spell them. Source: docs/reference/kubernetes-api-machinery.md, section
15."""

from __future__ import annotations

from typing import Final

#: What CEL keeps for itself.
KEYWORDS: Final = frozenset(
    {"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"}
    | {"import", "let", "loop", "package", "namespace", "return", "var", "void", "while"}
)
#: How property names that CEL cannot spell are written in rules.
_ESCAPES: Final = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))


def escape(name: str) -> str:
    """A property name as rules spell it: keywords and special characters have words of their own."""
    if name in KEYWORDS:
        return f"__{name}__"
    for special, word in _ESCAPES:
        name = name.replace(special, word)
    return name
