"""`-o`: the forms in which kubectl prints objects.

Source: https://kubernetes.io/docs/reference/kubectl/#output-options.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykueue.api.objects import Object

from .errors import PluginError
from .jsonpath import JsonPath, relaxed, text_of
from .tables import table

#: Writes one object, or one list of objects.
Printer = Callable[[Object], str]

#: Forms that take a template, `FORM=TEMPLATE`, and the longer names of two of them.
_TEMPLATES = (
    "custom-columns",
    "custom-columns-file",
    "go-template",
    "go-template-file",
    "jsonpath",
    "jsonpath-as-json",
    "jsonpath-file",
    "template",
    "templatefile",
)
FORMS = ("json", "kyaml", "name", "yaml", *_TEMPLATES)


@dataclass(frozen=True)
class Output:
    """The flags `-o`, `--template`, `--allow-missing-template-keys` and `--show-managed-fields`."""

    form: str = ""
    template: str = ""
    allow_missing: bool = True
    managed_fields: bool = False

    @property
    def given(self) -> bool:
        """Whether objects are printed in a form of `-o` instead of a table or a message."""
        return bool(self.form or self.template)


def printer(output: Output, operation: str = "") -> Printer:
    """What prints an object; without a form it prints `TYPE/NAME OPERATION`. Raises PluginError."""
    form, separator, template = output.form.partition("=")
    form = form or ("go-template" if output.template else "")
    if form == "":
        return lambda obj: named(obj, operation)
    if form not in FORMS:
        allowed = ",".join(sorted(FORMS))
        raise PluginError(
            "unable to match a printer suitable for the output format "
            f'"{output.form}", allowed formats are: {allowed}'
        )
    if form in _TEMPLATES:
        return _templated(form, template if separator else output.template, output)
    if form == "name":
        return lambda obj: "".join(named(each) for each in _items(obj))
    if form == "json":
        return lambda obj: (
            json.dumps(_shown(obj, output), indent=4, ensure_ascii=False, sort_keys=True) + "\n"
        )
    if form == "kyaml":
        # Imported here: few commands print it.
        from .kyaml import document

        return lambda obj: document(_shown(obj, output))
    return lambda obj: _yaml(_shown(obj, output))


def named(obj: Mapping[str, Any], operation: str = "") -> str:
    """`TYPE.GROUP/NAME OPERATION`, the line kubectl prints for a change."""
    group, _, _ = str(obj["apiVersion"]).rpartition("/")
    kind = str(obj["kind"]).lower()
    name = obj["metadata"]["name"]
    return f"{kind}.{group}/{name}{operation}\n" if group else f"{kind}/{name}{operation}\n"


def _templated(form: str, template: str, output: Output) -> Printer:
    if not template:
        raise PluginError(f"template format specified but no template given: -o {form}=TEMPLATE")
    if form.endswith("file"):
        template = _read(form, template)
    if form.startswith("custom-columns"):
        return _columns(template, from_file=form.endswith("file"))
    if form.startswith("jsonpath"):
        path = JsonPath(template, allow_missing=output.allow_missing)
        as_json = form == "jsonpath-as-json"
        return lambda obj: path.render(_shown(obj, output), as_json=as_json)
    # Imported here: few commands print with it.
    from .gotemplate import GoTemplate

    parsed = GoTemplate(template, allow_missing=output.allow_missing)
    return lambda obj: parsed.render(_shown(obj, output))


def _read(form: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise PluginError(f"-o {form}: {path} cannot be read: {reason}") from None


def _columns(spec: str, *, from_file: bool) -> Printer:
    """`HEADER:PATH,...`, or a file with a line of headers and a line of paths."""
    if from_file:
        lines = [line.split() for line in spec.splitlines() if line.strip()]
        if len(lines) != 2 or len(lines[0]) != len(lines[1]):
            raise PluginError("custom-columns-file must have a line of headers and a line with as many paths")
        pairs = list(zip(*lines, strict=True))
    else:
        pairs = []
        for part in spec.split(","):
            header, colon, path = part.partition(":")
            if not colon or not path:
                raise PluginError(
                    f"unexpected custom-columns spec: {part}, expected <header>:<json-path-expr>"
                )
            pairs.append((header, path))
    headers = [header for header, _ in pairs]
    paths = [JsonPath(relaxed(path)) for _, path in pairs]

    def row(obj: Object) -> Sequence[str]:
        return [",".join(text_of(value) for value in path.values(obj)) or "<none>" for path in paths]

    return lambda obj: table(headers, [row(each) for each in _items(obj)])


def _items(obj: Object) -> Sequence[Object]:
    """The objects of a list; an object alone."""
    if str(obj.get("kind", "")).endswith("List") and isinstance(obj.get("items"), list):
        items: list[Object] = obj["items"]
        return items
    return [obj]


def _shown(obj: Object, output: Output) -> Object:
    """The object as printed: without managedFields unless they are wanted."""
    if output.managed_fields:
        return obj
    if "items" in obj:
        return {**obj, "items": [_shown(each, output) for each in obj["items"]]}
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key != "managedFields"}
    return {**obj, "metadata": metadata}


def _yaml(obj: Object) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Objects share parts; each is written out in full."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    return str(yaml.dump(obj, Dumper=Dumper, allow_unicode=True, width=10**6, default_flow_style=False))
