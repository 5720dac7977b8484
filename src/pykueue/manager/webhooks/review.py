"""AdmissionReview v1 in, AdmissionReview v1 out, around pure rules."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from pykueue.api.kueue import names
from pykueue.api.objects import Object, is_deleting
from pykueue.api.resources import Resource
from pykueue.api.validation import FieldError

Review = Callable[[Object], Awaitable[Object]]


#: What the author of an object should know that would be accepted, where it is not to be stored (dry run).
Advice = Callable[[Object], Awaitable[Sequence[str]]]


_KEYS = {
    "labels": (names.QUEUE_LABEL,),
    "annotations": (names.QUEUE_LABEL, names.POD_SUSPENDING_PARENT_ANNOTATION),
}
#: CEL: whether an object names a queue, now or before, or belongs to one that does.
NAMES_QUEUE = " || ".join(
    f"({obj} != null && has({obj}.metadata.{field}) && '{key}' in {obj}.metadata.{field})"
    for obj in ("object", "oldObject")
    for field, keys in _KEYS.items()
    for key in keys
)

#: Where defaults are filled in only once.
CREATE = ("CREATE",)


class Rules(Protocol):
    """What is filled in and refused for one kind."""

    resource: Resource
    #: The operations, such as CREATE, at which anything is filled in.
    defaults: tuple[str, ...]
    #: Subresources that are checked as well as the object itself.
    subresources: tuple[str, ...]
    #: Label selector of the objects that are checked; None: all.
    checked: Mapping[str, Any] | None
    #: Jobs of system namespaces are left alone.
    namespaced_selector: bool
    #: Whether all the objects it concerns name a queue, save those that take one by default.
    by_queue: bool

    def default(self, obj: Object) -> Object:
        """The object with what is missing filled in."""
        ...

    def validate(self, obj: Object, old: Object | None) -> Iterable[FieldError]:
        """Why the object is refused; `old` is None on creation."""
        ...

    def warnings(self, obj: Object, old: Object | None) -> Iterable[str]:
        """What its author should know although it is accepted; `old` is None on creation."""
        ...


@dataclass(frozen=True)
class Registration:
    """One webhook: the same fields as an entry of a webhook configuration, and the function that answers."""

    name: str
    mutating: bool
    rules: list[dict[str, Any]]
    review: Review
    namespace_selector: Mapping[str, Any] | None
    object_selector: Mapping[str, Any] | None
    #: Path under which it is served over HTTPS.
    path: str
    #: CEL over the request: what may not pass while the webhook cannot be asked; None: nothing may.
    required: str | None = None


def registrations(
    rules: Rules, namespaces: Mapping[str, Any], advice: Advice | None = None
) -> Iterable[Registration]:
    """The webhooks of a rule set: a mutating one where something is filled in, and a validating one."""
    resource = rules.resource
    kind = resource.kind.lower()
    selector = namespaces if rules.namespaced_selector else None
    where = f"{resource.group.replace('.', '-')}-{resource.version}-{kind}"
    if rules.defaults:
        yield Registration(
            f"m{kind}.kb.io",
            True,
            [_rule(resource, list(rules.defaults), ())],
            _defaulting(rules),
            selector,
            None,
            f"/mutate-{where}",
            NAMES_QUEUE if rules.by_queue else None,
        )
    yield Registration(
        f"v{kind}.kb.io",
        False,
        [_rule(resource, ["CREATE", "UPDATE"], rules.subresources)],
        _validating(rules, advice),
        selector,
        rules.checked,
        f"/validate-{where}",
        NAMES_QUEUE if rules.by_queue else None,
    )


def _rule(resource: Resource, operations: list[str], subresources: Iterable[str]) -> dict[str, Any]:
    return {
        "operations": operations,
        "apiGroups": [resource.group],
        "apiVersions": [resource.version],
        "resources": [resource.plural, *(f"{resource.plural}/{name}" for name in subresources)],
        "scope": "*",
    }


def _defaulting(rules: Rules) -> Review:
    async def review(body: Object) -> Object:
        request = body["request"]
        obj = request["object"]
        changed = rules.default(obj)
        response: Object = {"uid": request["uid"], "allowed": True}
        if changed != obj:
            patch = [{"op": "replace", "path": f"/{key}", "value": value} for key, value in changed.items()]
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(orjson.dumps(patch)).decode()
        return _answer(body, response)

    return review


def _validating(rules: Rules, advice: Advice | None) -> Review:
    async def review(body: Object) -> Object:
        request = body["request"]
        obj, old = request["object"], request.get("oldObject")
        errors = [] if is_deleting(obj) else list(rules.validate(obj, old))
        response: Object = {"uid": request["uid"], "allowed": not errors}
        warnings = list(rules.warnings(obj, old))
        if advice is not None and not errors and old is None and request.get("dryRun") is True:
            warnings += await advice(obj)
        if warnings:
            response["warnings"] = warnings
        if errors:
            response["status"] = _refusal(rules.resource, obj, errors)
        return _answer(body, response)

    return review


def _refusal(resource: Resource, obj: Object, errors: list[FieldError]) -> Object:
    name = obj["metadata"].get("name") or obj["metadata"].get("generateName") or ""
    texts = [str(error) for error in errors]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    # Kueue's webhooks answer so, and its clients tell by it a webhook's refusal from the schema's (422).
    return {
        "status": "Failure",
        "code": 403,
        "reason": "Forbidden",
        "message": f'{resource.kind}.{resource.group} "{name}" is invalid: {joined}',
        "details": {
            "name": name,
            "group": resource.group,
            "kind": resource.kind,
            "causes": [error.cause() for error in errors],
        },
    }


def _answer(body: Object, response: Object) -> Object:
    version, kind = body.get("apiVersion", "admission.k8s.io/v1"), "AdmissionReview"
    return {"apiVersion": version, "kind": kind, "response": response}
