"""ValidatingAdmissionPolicies and their bindings."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from pykueue.api.objects import Object
from pykueue.api.validation.syntax import qualified_name, subdomain
from pykueue.embedded.kinds.base import AGE_COLUMN, NAME_COLUMN, STATUS, Column, Kind
from pykueue.embedded.kinds.printing import age_cell
from pykueue.embedded.objects.errors import (
    Cause,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)

GROUP: Final = "admissionregistration.k8s.io"
_ACTIONS: Final = ("Audit", "Deny", "Warn")
_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_OPERATIONS: Final = ("*", "CREATE", "UPDATE", "DELETE", "CONNECT")
#: Characters of a message; longer results of `messageExpression` are not used.
MAX_MESSAGE: Final = 5 * 1024
_MAX_CONDITIONS: Final = 64
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _with_match_defaults(match: Object) -> Object:
    filled = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, **match}
    for key in ("resourceRules", "excludeResourceRules"):
        if filled.get(key):
            filled[key] = [{"scope": "*", **rule} for rule in filled[key]]
    return filled


class ValidatingAdmissionPolicy(Kind):
    """admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy."""

    group = GROUP
    kind = "ValidatingAdmissionPolicy"
    plural = "validatingadmissionpolicies"
    namespaced = False
    categories = ("api-extensions",)
    subresources = (STATUS,)
    columns = (NAME_COLUMN, Column("Validations", "integer"), Column("ParamKind"), AGE_COLUMN)

    def default(self, obj: Object) -> Object:
        spec = obj.get("spec") or {}
        filled = {"failurePolicy": "Fail", **spec}
        if isinstance(spec.get("matchConstraints"), dict):
            filled["matchConstraints"] = _with_match_defaults(spec["matchConstraints"])
        return obj if filled == spec else {**obj, "spec": filled}

    def compile_ahead(self, obj: Object) -> Iterator[object]:
        # CEL is an extra, which a server has and a check of manifests may not have.
        from pykueue.embedded.cel.admission_policies import compile_ahead

        yield from compile_ahead(obj.get("spec") or {})

    def validate(self, obj: Object) -> list[Cause]:
        return list(_policy(obj.get("spec") or {}))

    def cells(self, obj: Object, now: float) -> list[Any]:
        spec = obj.get("spec") or {}
        kind = spec.get("paramKind")
        shown = f"{kind['apiVersion']}/{kind['kind']}" if kind else "<unset>"
        return [obj["metadata"]["name"], len(spec.get("validations") or ()), shown, age_cell(obj, now)]


class ValidatingAdmissionPolicyBinding(Kind):
    """admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding."""

    group = GROUP
    kind = "ValidatingAdmissionPolicyBinding"
    plural = "validatingadmissionpolicybindings"
    namespaced = False
    categories = ("api-extensions",)
    columns = (NAME_COLUMN, Column("PolicyName"), Column("ParamRef"), AGE_COLUMN)

    def default(self, obj: Object) -> Object:
        spec = obj.get("spec") or {}
        match = spec.get("matchResources")
        if not isinstance(match, dict):
            return obj
        filled = _with_match_defaults(match)
        return obj if filled == match else {**obj, "spec": {**spec, "matchResources": filled}}

    def validate(self, obj: Object) -> list[Cause]:
        return list(_binding(obj.get("spec") or {}))

    def cells(self, obj: Object, now: float) -> list[Any]:
        spec = obj.get("spec") or {}
        ref = spec.get("paramRef") or {}
        name = "/".join(part for part in (ref.get("namespace"), ref.get("name")) if part)
        return [obj["metadata"]["name"], spec.get("policyName", ""), name or "<unset>", age_cell(obj, now)]


def _policy(spec: Object) -> Iterator[Cause]:
    from pykueue.embedded.cel.admission_policies import (
        bool_program,
        condition_program,
        text_program,
        value_program,
    )

    if spec.get("failurePolicy") not in ("Fail", "Ignore"):
        yield not_supported("spec.failurePolicy", spec.get("failurePolicy"), ("Fail", "Ignore"))
    kind = spec.get("paramKind")
    if kind is not None:
        for key in ("apiVersion", "kind"):
            if not kind.get(key):
                yield required(f"spec.paramKind.{key}")
    match = spec.get("matchConstraints")
    if match is None:
        yield required("spec.matchConstraints")
    else:
        if not match.get("resourceRules"):
            yield required("spec.matchConstraints.resourceRules")
        yield from _match("spec.matchConstraints", match)
    validations, annotations = spec.get("validations") or [], spec.get("auditAnnotations") or []
    if not validations and not annotations:
        for key in ("validations", "auditAnnotations"):
            yield required(f"spec.{key}", "validations or auditAnnotations must contain at least one item")
    conditions = spec.get("matchConditions") or []
    if len(conditions) > _MAX_CONDITIONS:
        yield too_many("spec.matchConditions", len(conditions), _MAX_CONDITIONS)
    names: list[str] = []
    for number, condition in enumerate(conditions[:_MAX_CONDITIONS]):
        path = f"spec.matchConditions[{number}]"
        yield from _named(f"{path}.name", condition.get("name"), names, qualified_name)
        yield from _expression(f"{path}.expression", condition.get("expression"), condition_program)
    defined: list[str] = []
    for number, variable in enumerate(spec.get("variables") or ()):
        path = f"spec.variables[{number}]"
        yield from _expression(f"{path}.expression", variable.get("expression"), value_program, defined)
        yield from _named(f"{path}.name", variable.get("name"), defined, _identifier)
    for number, validation in enumerate(validations):
        path = f"spec.validations[{number}]"
        yield from _expression(f"{path}.expression", validation.get("expression"), bool_program, defined)
        if validation.get("messageExpression"):
            text = validation["messageExpression"]
            yield from _expression(f"{path}.messageExpression", text, text_program, defined)
        message = validation.get("message")
        if message is not None and ("\n" in message.strip() or not message.strip()):
            yield invalid(f"{path}.message", message, "must be one line that is not blank")
        elif message and len(message) > MAX_MESSAGE:
            yield too_long(f"{path}.message", MAX_MESSAGE)
        reason = validation.get("reason")
        if reason is not None and reason not in _REASONS:
            yield not_supported(f"{path}.reason", reason, _REASONS)
    names = []
    for number, each in enumerate(annotations):
        path = f"spec.auditAnnotations[{number}]"
        yield from _named(f"{path}.key", each.get("key"), names, qualified_name)
        text = each.get("valueExpression")
        yield from _expression(f"{path}.valueExpression", text, value_program, defined)


def _binding(spec: Object) -> Iterator[Cause]:
    name = spec.get("policyName") or ""
    if not name:
        yield required("spec.policyName")
    elif fault := subdomain(name):
        yield invalid("spec.policyName", name, fault)
    actions = spec.get("validationActions") or []
    if not actions:
        yield required("spec.validationActions")
    for number, action in enumerate(actions):
        if action not in _ACTIONS:
            yield not_supported(f"spec.validationActions[{number}]", action, _ACTIONS)
        if action in actions[:number]:
            yield duplicate(f"spec.validationActions[{number}]", action)
    if "Deny" in actions and "Warn" in actions:
        yield invalid("spec.validationActions", actions, "must not contain both Deny and Warn")
    ref = spec.get("paramRef")
    if ref is not None:
        if not ref.get("name") and ref.get("selector") is None:
            yield required("spec.paramRef", "one of name or selector must be specified")
        elif ref.get("name") and ref.get("selector") is not None:
            yield invalid("spec.paramRef.name", ref["name"], "name and selector are mutually exclusive")
        if ref.get("parameterNotFoundAction") not in ("Allow", "Deny"):
            yield required("spec.paramRef.parameterNotFoundAction", "must be Allow or Deny")
    if spec.get("matchResources") is not None:
        yield from _match("spec.matchResources", spec["matchResources"])


def _match(path: str, match: Object) -> Iterator[Cause]:
    if match.get("matchPolicy") not in ("Equivalent", "Exact"):
        yield not_supported(f"{path}.matchPolicy", match.get("matchPolicy"), ("Equivalent", "Exact"))
    for key in ("resourceRules", "excludeResourceRules"):
        for number, rule in enumerate(match.get(key) or ()):
            for field in ("operations", "apiGroups", "apiVersions", "resources"):
                if not rule.get(field):
                    yield required(f"{path}.{key}[{number}].{field}")
            for index, operation in enumerate(rule.get("operations") or ()):
                if operation not in _OPERATIONS:
                    yield not_supported(f"{path}.{key}[{number}].operations[{index}]", operation, _OPERATIONS)


def _identifier(name: str) -> str | None:
    return None if _IDENTIFIER.fullmatch(name) else "must be a CEL identifier"


def _named(
    path: str, name: str | None, known: list[str], check: Callable[[str], str | None]
) -> Iterator[Cause]:
    if not name:
        yield required(path)
        return
    if fault := check(name):
        yield invalid(path, name, fault)
    if name in known:
        yield duplicate(path, name)
    known.append(name)


def _expression(
    path: str, text: str | None, compile: Callable[[str], Any], defined: Collection[str] = ()
) -> Iterator[Cause]:
    """What is wrong with an expression that may read the variables `defined`."""
    from pykueue.api.cel.program import RuleError
    from pykueue.embedded.cel.admission_policies import undefined

    if not (text or "").strip():
        yield required(path)
        return
    try:
        name = undefined(compile(text or ""), defined)
    except RuleError as error:
        yield invalid(path, text, str(error))
        return
    if name:
        yield invalid(path, text, f"compilation failed: undefined field '{name}'")
