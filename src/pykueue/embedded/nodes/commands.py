"""Container commands a simulated node understands without annotations: how long they run and how they end.

`sleep N`, `exit N`, `true`, `false`, `echo …` and their like, alone or joined in a shell script by `;`, `&&`,
`||` and line ends. Anything else is a program the node knows nothing about.
"""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from pykueue.api.objects import Object

FOREVER = float("inf")


class Outcome(NamedTuple):
    """What running a command comes to."""

    #: FOREVER when it does not end by itself.
    seconds: float
    exit_code: int


_SHELLS = ("sh", "bash", "ash", "dash", "zsh")
_INSTANT = ("echo", "printf", "true", ":", "date", "hostname", "pwd", "set", "export", "whoami")
_OPERATORS = (";", "&&", "||", "\n")
_UNIT = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SLEEP = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([smhd]?)")
_ENDLESS = re.compile(r"while\s+(true|:|\[ 1 \]|\(\( 1 \)\))\s*;")


def understand(container: Object) -> Outcome | None:
    """What the container's command comes to; None when that is unknown."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not container.get("command"):
        words = _with_entrypoint(container.get("image") or "", words)
    if not words:
        return None
    program = words[0].rpartition("/")[2]
    if program in _SHELLS:
        return _shell(words[1:])
    return _simple([program, *words[1:]])


def _with_entrypoint(image: str, args: list[str]) -> list[str]:
    """The command line of a few images made for examples, whose programs do nothing but wait."""
    name = image.rpartition("/")[2].partition("@")[0].partition(":")[0]
    if name == "pause":
        return ["sleep", "infinity"]
    if name == "sleep":
        return ["sleep", *args]
    if name == "agnhost" and args:
        return {"pause": ["sleep", "infinity"], "entrypoint-tester": ["true"]}.get(args[0], args)
    return args


def _simple(words: list[str]) -> Outcome | None:
    program, *args = words
    if program == "exec" and args:
        return _simple(args)
    if program in _INSTANT:
        return Outcome(0.0, 0)
    if program == "false":
        return Outcome(0.0, 1)
    if program == "exit":
        if not args:
            return Outcome(0.0, 0)
        return Outcome(0.0, int(args[0]) & 255) if re.fullmatch(r"[0-9]{1,9}", args[0]) else None
    if program == "sleep" and args:
        return _sleep(args)
    if program == "tail" and args in (["-f", "/dev/null"], ["-F", "/dev/null"]):
        return Outcome(FOREVER, 0)
    return None


def _sleep(args: list[str]) -> Outcome | None:
    total = 0.0
    for one in args:
        if one in ("infinity", "inf"):
            total = FOREVER
            continue
        match = _SLEEP.fullmatch(one)
        if match is None:
            return None
        total += float(match[1]) * _UNIT[match[2]]
    return Outcome(total, 0)


def _shell(args: list[str]) -> Outcome | None:
    """`-c SCRIPT`, with other short options before or among it."""
    for position, one in enumerate(args):
        if not one.startswith("-"):
            return None
        if one.endswith("c") and not one.startswith("--"):
            return _script(args[position + 1]) if position + 1 < len(args) else None
    return None


def _script(text: str) -> Outcome | None:
    if _ENDLESS.match(text.strip()):
        return Outcome(FOREVER, 0)
    commands = _split(text)
    if commands is None:
        return None
    seconds, exit_code = 0.0, 0
    for operator, words in commands:
        if (operator == "&&" and exit_code) or (operator == "||" and not exit_code):
            continue
        outcome = _simple(words)
        if outcome is None:
            return None
        seconds += outcome.seconds
        exit_code = outcome.exit_code
        if words[0] in ("exit", "exec") or seconds == FOREVER:
            break
    return Outcome(seconds, exit_code)


def _split(text: str) -> list[tuple[str, list[str]]] | None:
    """The simple commands of a script, each with the operator before it; None for other grammar."""
    lexer = shlex.shlex(text.replace("\n", " ; "), posix=True, punctuation_chars=True)
    lexer.commenters = ""
    try:
        tokens = list(lexer)
    except ValueError:
        return None
    commands: list[tuple[str, list[str]]] = []
    operator, words = ";", list[str]()
    for token in [*tokens, ";"]:
        if token in _OPERATORS:
            if words:
                commands.append((operator, words))
            operator, words = token, []
        elif set(token) <= set("();<>|&"):
            return None
        else:
            words.append(token)
    return commands
