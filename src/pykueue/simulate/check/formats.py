"""Findings as text, JSON, SARIF 2.1.0, JUnit XML and Markdown.

SARIF is what code scanning of forges reads, JUnit what their test reports read, Markdown what a comment on a
change is written in.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from html import escape
from types import MappingProxyType
from typing import Any, Final
from xml.etree import ElementTree

import pykueue

from .findings import RULES, Finding, Severity

#: Severity -> level of SARIF.
_LEVELS: Final = {Severity.NOTE: "note", Severity.WARNING: "warning", Severity.ERROR: "error"}
#: Characters that Markdown gives a meaning.
_MARKUP: Final = "\\`*_{}[]|#!"


def as_text(findings: Sequence[Finding]) -> str:
    """For a terminal."""
    lines = []
    for one in findings:
        place = f"{one.place}: " if one.place.file else ""
        lines.append(f"{place}{one.severity.title}: {one.object}: {one.message} [{one.rule}]")
        width = len(str(len(one.events)))
        lines += [f"    {number:>{width}}. {event}" for number, event in enumerate(one.events, 1)]
        if one.advice:
            lines.append(f"    Remedy: {one.advice}")
    lines.append(counted(findings))
    return "\n".join(lines)


def counted(findings: Sequence[Finding]) -> str:
    """How many findings of each severity: `1 error, 2 warnings`."""
    counts = Counter(one.severity for one in findings)
    parts = [
        f"{counts[severity]} {severity.title}{'' if counts[severity] == 1 else 's'}"
        for severity in sorted(counts, reverse=True)
    ]
    return ", ".join(parts) or "No findings"


def as_json(findings: Sequence[Finding]) -> str:
    """A list of objects."""
    return json.dumps({"findings": [_document(one) for one in findings]}, indent=2)


def _document(one: Finding) -> dict[str, Any]:
    return {
        "rule": one.rule,
        "severity": one.severity.title,
        "object": one.object,
        "message": one.message,
        "file": one.place.file,
        "line": one.place.line,
        "events": list(one.events),
        "remedy": one.advice,
    }


def as_sarif(findings: Sequence[Finding]) -> str:
    """A log with one run; counterexamples are code flows."""
    rules = list(RULES)
    driver = {
        "name": "pykueue check",
        "version": pykueue.__version__,
        "rules": [
            {
                "id": name,
                "shortDescription": {"text": rule.summary},
                "help": {"text": rule.remedy},
                "defaultConfiguration": {"level": _LEVELS[rule.severity]},
            }
            for name, rule in RULES.items()
        ],
    }
    results = [_result(one, rules.index(one.rule)) for one in findings]
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=2)


def _result(one: Finding, index: int) -> dict[str, Any]:
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": one.object}]}
    if one.place.file:
        physical: dict[str, Any] = {"artifactLocation": {"uri": one.place.file}}
        if one.place.line:
            physical["region"] = {"startLine": one.place.line}
        location["physicalLocation"] = physical
    result: dict[str, Any] = {
        "ruleId": one.rule,
        "ruleIndex": index,
        "level": _LEVELS[one.severity],
        "message": {"text": f"{one.object}: {one.message}. {one.advice}".rstrip()},
        "locations": [location],
    }
    if one.events:
        steps = [{"location": {**location, "message": {"text": event}}} for event in one.events]
        result["codeFlows"] = [{"threadFlows": [{"locations": steps}]}]
    return result


def as_junit(findings: Sequence[Finding]) -> str:
    """A test suite with a case for each rule; findings of the severities warning and error fail it."""
    suites = ElementTree.Element("testsuites", name="pykueue check")
    failing = {one.rule for one in findings if one.severity > Severity.NOTE}
    suite = ElementTree.SubElement(
        suites,
        "testsuite",
        name="pykueue check",
        tests=str(len(RULES)),
        failures=str(len(failing)),
        errors="0",
    )
    for name, rule in RULES.items():
        case = ElementTree.SubElement(suite, "testcase", classname="pykueue.check", name=name)
        found = [one for one in findings if one.rule == name]
        notes = [one for one in found if one.severity == Severity.NOTE]
        failures = [one for one in found if one.severity > Severity.NOTE]
        if failures:
            failure = ElementTree.SubElement(case, "failure", message=rule.summary, type=name)
            failure.text = _printable(as_text(failures))
        if notes:
            ElementTree.SubElement(case, "system-out").text = _printable(as_text(notes))
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True)


def _printable(text: str) -> str:
    """Without the control characters that XML does not allow."""
    return "".join(character for character in text if character >= " " or character in "\t\n")


def as_markdown(findings: Sequence[Finding]) -> str:
    """For a comment on a change: a table, and each counterexample folded."""
    lines = ["### pykueue check", "", counted(findings)]
    if findings:
        lines += ["", "| severity | object | finding | place |", "|---|---|---|---|"]
    for one in findings:
        cells = (one.severity.title, one.object, f"{one.message} ({one.rule})", str(one.place))
        lines.append("| " + " | ".join(map(_escaped, cells)) + " |")
    for one in findings:
        if one.events:
            summary = f"{one.rule}: counterexample for {_escaped(one.object)}"
            lines += ["", f"<details><summary>{summary}</summary>", ""]
            lines += [f"{number}. {_escaped(event)}" for number, event in enumerate(one.events, 1)]
            lines += ["", _escaped(one.advice), "", "</details>"]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """As text in Markdown."""
    plain = " ".join(text.split())
    return escape("".join(f"\\{each}" if each in _MARKUP else each for each in plain), quote=False)


#: Name of an output format -> what prints it.
FORMATS: Final[Mapping[str, Callable[[Sequence[Finding]], str]]] = MappingProxyType(
    {"text": as_text, "json": as_json, "sarif": as_sarif, "junit": as_junit, "markdown": as_markdown}
)
