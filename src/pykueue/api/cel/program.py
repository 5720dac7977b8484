"""Compiled CEL expressions, which neither see nor convert more of an object than they read.

Source: docs/reference/kubernetes-api-machinery.md, sections 15 and 22.4.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from typing import Any, Final
from weakref import WeakValueDictionary

import orjson
from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math, ext_optional

from pykueue.api.json_bytes import exact
from pykueue.api.json_equality import same

from . import strings as strings  # registers the functions of lists and strings
from .cost import Shape, estimate
from .functions import extension
from .keys import Key, key_function
from .library import rewrite
from .node import ABSENT, Node
from .reads import Reads, project, reads_of

_VARIABLES: Final = ("self", "oldSelf", "_old")
#: How the library says what went wrong, and how a cluster does.
_WORDS: Final = (
    (re.compile(r'^Key not found in map : "?(.*?)"?$'), r"no such key: \1"),
    (
        re.compile(r"^String to (Duration|Timestamp) conversion failed$"),
        r"type conversion error from 'string' to 'google.protobuf.\1'",
    ),
)

#: Values a program remembers the result for, and bytes one of them may have.
_MOST_REMEMBERED, _MOST_REMEMBERED_BYTES = 1024, 2048
#: Values a program remembers to be true for, by digests of so many bytes: rules compare the names of queues,
#: and there are thousands of queues with Workloads in a few states each.
_MOST_HELD, _DIGEST = 8_192, 16
#: The format in which equal keys are always the same bytes.
_PLAIN: Final = 2


@cache
def _environment(variables: tuple[str, ...]) -> Any:
    return cel.NewEnv(
        variables=dict.fromkeys(variables, cel.Type.DYN),
        extensions=[
            extension(),
            ext_bindings.ExtBindings(),
            ext_encoders.ExtEncoders(),
            ext_math.ExtMath(),
            ext_optional.ExtOptional(),
        ],
    )


#: Characters that an expression may have: compiling takes some microseconds for each.
MAX_EXPRESSION = 10_000


class RuleError(ValueError):
    """A rule that cannot be compiled; the text says why."""


class Program:
    """One compiled expression over `self` and, in transition rules, `oldSelf`; or over other variables."""

    __slots__ = ("__weakref__", "_answers", "_compiled", "_held", "_key", "_reads", "optional_old")

    def __init__(
        self, text: str, optional_old: bool = False, variables: tuple[str, ...] = _VARIABLES
    ) -> None:
        self.optional_old = optional_old
        #: What it was true for lately, by digests of keys.
        self._held: set[bytes] = set()
        #: Makes the key; generated when first needed.
        self._key: Key | None = None
        #: Whether it was true for what lately, as JSON.
        self._answers: dict[bytes, bool] = {}
        if len(text) > MAX_EXPRESSION:
            raise RuleError(f"must not be longer than {MAX_EXPRESSION} characters")
        rewritten = rewrite(text)
        if optional_old:
            old = "size(_old) == 0 ? optional.none() : optional.of(_old[0])"
            rewritten = f"cel.bind(oldSelf, {old}, {rewritten})"
        try:
            self._compiled = _environment(variables).compile(rewritten)
            self._reads = reads_of(self._compiled.serialize(), variables)
        except (RuntimeError, TypeError, RecursionError) as error:
            raise RuleError(f"compilation failed: {str(error).removeprefix('INVALID_ARGUMENT: ')}") from None

    @property
    def transition(self) -> bool:
        """Whether it compares with the old value."""
        return "oldSelf" in self._reads or self.optional_old

    def cost(self, root: Node, shapes: Mapping[str, Shape]) -> float:
        """The most it costs once, over variables of these shapes. `root` is where `self` is."""
        return estimate(self._compiled.serialize(), root, shapes)

    def returns(self, kind: Any) -> bool:
        """Whether the result may be of a CEL type."""
        found = self._compiled.return_type()
        return bool(found in (kind, cel.Type.DYN))

    @property
    def result_type(self) -> str:
        """The name of the CEL type of the result, such as `int`; `dyn` for any."""
        return str(self._compiled.return_type()).lower()

    def reads(self, variable: str) -> Reads | None:
        """What it reads of a variable; None when it does not name it."""
        return self._reads.get(variable)

    def reads_only(self, variable: str, *fields: str) -> bool:
        """Whether all it reads is one field, by its path from a variable."""
        reads = self._reads.get(variable)
        if reads is None or len(self._reads) > 1:
            return False
        for name in fields:
            if reads.whole or reads.size or reads.element is not None or list(reads.fields) != [name]:
                return False
            reads = reads.fields[name]
        return True

    def changes_nothing(self, new: Any, old: Any) -> bool:
        """Whether everything it reads is the same in both."""
        for name in ("self", "oldSelf"):
            reads = self._reads.get(name)
            if reads is not None and not same(project(new, reads), project(old, reads)):
                return False
        return True

    def run(self, value: Any, old: Any) -> tuple[Any, str]:
        """The result, or None and what went wrong. `old` is ABSENT when there is none."""
        data = {}
        if "self" in self._reads:
            data["self"] = project(value, self._reads["self"])
        if self.optional_old:
            data["_old"] = [] if old is ABSENT else [old]
        elif "oldSelf" in self._reads:
            data["oldSelf"] = project(old, self._reads["oldSelf"])
        return self._evaluate(data)

    def run_over(self, values: Mapping[str, Any]) -> tuple[Any, str]:
        """The result over values of its variables, or None and what went wrong."""
        return self._evaluate({name: project(values[name], reads) for name, reads in self._reads.items()})

    def answer_over(self, values: Mapping[str, Any]) -> tuple[Any, str]:
        """`run_over` for a test over data alone: whether it holds is remembered by what it reads of that."""
        projected = {name: project(values[name], reads) for name, reads in self._reads.items()}
        key = orjson.dumps(projected)
        known = self._answers.get(key)
        if known is not None:
            return known, ""
        result, fault = self._evaluate(projected)
        if (result is True or result is False) and len(key) <= _MOST_REMEMBERED_BYTES:
            if len(self._answers) >= _MOST_REMEMBERED:
                self._answers.clear()
            self._answers[exact(key)] = result
        return result, fault

    def _evaluate(self, data: Mapping[str, Any]) -> tuple[Any, str]:
        try:
            result = self._compiled.eval(data=data)
        except RuntimeError as error:  # it went through more than the library allows one evaluation
            return None, _fault(error)
        found = result.value()
        # Errors are values too: texts of the type ERROR.
        if found is True or found is False:
            return found, ""
        if result.type() == cel.Type.ERROR:
            return None, _as_told(str(found).partition(": ")[2] or str(found))
        return found, ""

    def holds(self, data: Mapping[str, Any]) -> bool:
        """Whether it is true of values of its variables, and nothing went wrong.

        The result depends on nothing but what is read, and many objects are alike in that: it is remembered.
        """
        if self._key is None:
            self._key = key_function(self._reads)
        held = self._held
        digest = blake2b(marshal.dumps(self._key(data), _PLAIN), digest_size=_DIGEST).digest()
        if digest in held:
            return True
        projected = {name: project(data[name], reads) for name, reads in self._reads.items()}
        try:
            if self._compiled.eval(data=projected).value() is not True:
                return False
        except RuntimeError:
            return False
        if len(held) >= _MOST_HELD:
            held.clear()
        held.add(digest)
        return True


#: Programs in use, and why expressions do not compile, by expression, `optional_old` and variables.
_known: Final[WeakValueDictionary[tuple[str, bool, tuple[str, ...]], Program | RuleError]] = (
    WeakValueDictionary()
)


def compiled(
    text: str, optional_old: bool = False, variables: tuple[str, ...] = _VARIABLES
) -> Program | RuleError:
    """The program of an expression, or why it does not compile: compiled once while either is in use."""
    key = (text, optional_old, variables)
    found = _known.get(key)
    if found is None:
        try:
            found = Program(text, optional_old, variables)
        except RuleError as error:
            found = error.with_traceback(None)
        _known[key] = found
    return found


def program_of(text: str, optional_old: bool = False, variables: tuple[str, ...] = _VARIABLES) -> Program:
    """The program of an expression, shared with all that use it. RuleError when it does not compile."""
    found = compiled(text, optional_old, variables)
    if isinstance(found, RuleError):
        raise RuleError(str(found))
    return found


def _as_told(text: str) -> str:
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text


def _fault(error: RuntimeError) -> str:
    text = str(error).removeprefix("INTERNAL: ").removesuffix(" [INTERNAL]")
    if text == "Iteration budget exceeded":
        return "operation cancelled: actual cost limit exceeded"
    return text
