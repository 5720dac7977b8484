"""Report words that are not the field's own: identifiers by package, and phrases anywhere in the text.

Usage: python tools/vocabulary.py [FILE_OR_DIR ...]; without arguments the whole repository is read. Prints
one finding a line as `path:line: found; use ...` and exits with 1 if there are any. The lists are in
vocabulary.yaml beside this file.
"""

from __future__ import annotations

import io
import keyword
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
TEXTS = (
    "src",
    "tests",
    "bench",
    "docs",
    "charts",
    "examples",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
)
SUFFIXES = {".py", ".md", ".yaml", ".html", ".js"}
#: Recorded scenarios and pages that quote other projects.
EXCLUDED = ("docs/reference", "tests/conformance/data", "tests/hostile/corpus")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@dataclass(frozen=True)
class Vocabulary:
    """The lists: package to (words, exact names), and phrases; each with its replacement."""

    identifiers: dict[str, tuple[dict[str, str], dict[str, str]]]
    phrases: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Vocabulary:
        data = yaml.safe_load(path.read_text())
        rows = {
            row["package"]: (row.get("words") or {}, row.get("exact") or {}) for row in data["identifiers"]
        }
        return cls(rows, {phrase.lower(): use for phrase, use in data["phrases"].items()})


def files(arguments: list[str]) -> Iterator[Path]:
    """The texts to read, in order."""
    for start in [Path(each).resolve() for each in arguments] or [ROOT / name for name in TEXTS]:
        found = sorted(start.rglob("*")) if start.is_dir() else [start] if start.is_file() else []
        for path in found:
            relative = path.relative_to(ROOT).as_posix()
            if path.suffix in SUFFIXES and not relative.startswith(EXCLUDED):
                yield path


def package_of(path: Path) -> str | None:
    """The package of src/pykueue that a module belongs to."""
    parts = path.relative_to(ROOT).parts
    return parts[2] if path.suffix == ".py" and parts[:2] == ("src", "pykueue") and len(parts) > 3 else None


def in_identifiers(path: Path, text: str, words: dict[str, str], exact: dict[str, str]) -> Iterator[str]:
    """Findings in the names of a module, its own name included; one a name and file, at its first line."""
    seen = {path.stem: 1}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            seen.setdefault(token.string, token.start[0])
    for name, line in seen.items():
        use = exact.get(name.lstrip("_"))
        if use is None:
            use = next((words[p.lower()] for p in _PARTS.findall(name) if p.lower() in words), None)
        if use is not None:
            yield f"{path.relative_to(ROOT)}:{line}: identifier {name!r}; use {use}"


def in_prose(path: Path, text: str, phrases: dict[str, str], pattern: re.Pattern[str]) -> Iterator[str]:
    """Findings in a text, line by line; the words of a test's name count as text."""
    for number, line in enumerate(text.splitlines(), 1):
        prose = line.replace("_", " ") if line.lstrip().startswith(("def test_", "async def test_")) else line
        for match in pattern.finditer(prose):
            phrase = match.group(0).lower()
            yield f"{path.relative_to(ROOT)}:{number}: {phrase!r}; use {phrases[phrase]}"


def main(arguments: list[str]) -> int:
    """Print the findings; 1 if there are any."""
    vocabulary = Vocabulary.read(Path(__file__).with_name("vocabulary.yaml"))
    longest_first = sorted(vocabulary.phrases, key=len, reverse=True)
    pattern = re.compile(r"\b(?:" + "|".join(map(re.escape, longest_first)) + r")\b", re.IGNORECASE)
    findings: list[str] = []
    for path in files(arguments):
        text = path.read_text()
        row = vocabulary.identifiers.get(package_of(path) or "")
        if row is not None:
            findings += in_identifiers(path, text, *row)
        findings += in_prose(path, text, vocabulary.phrases, pattern)
    for finding in findings:
        print(finding)
    if findings:
        print(f"{len(findings)} findings; the words are listed in tools/vocabulary.yaml", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
