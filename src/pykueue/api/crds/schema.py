"""Structural OpenAPI v3 schemas from the types of the API. For generating CRDs, never at run time."""

from __future__ import annotations

import ast
import inspect
import sys
import types
import typing
from functools import cache
from typing import Any, Literal

import msgspec

from pykueue.api.crds.podtemplate import published_schema
from pykueue.api.decoding import encode
from pykueue.api.meta import ObjectMeta
from pykueue.api.model import DEFAULTED, REQUIRED, Cel, Model, Published, Rule, type_rules
from pykueue.api.quantity import PATTERN, Quantity

Schema = dict[str, Any]

QUANTITY: Schema = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": PATTERN,
    "x-kubernetes-int-or-string": True,
}


def object_schema(type: type[Model]) -> Schema:
    """The schema of a kind: its type, with apiVersion, kind and metadata as every object has them."""
    schema = _model(type)
    schema["properties"] = {
        "apiVersion": {"description": "Version of the schema this object is written in.", "type": "string"},
        "kind": {"description": "The kind of this object.", "type": "string"},
        **schema["properties"],
    }
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


def _schema(annotation: Any) -> Schema:
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        inner, *marks = typing.get_args(annotation)
        published = next((mark.name for mark in marks if isinstance(mark, Published)), None)
        schema = _schema(inner) if published is None else published_schema(published)
        for mark in marks:
            if isinstance(mark, Rule):
                schema.update(mark.keywords)
            elif isinstance(mark, Cel):
                schema.setdefault("x-kubernetes-validations", []).append(_validation(mark))
        return schema
    if origin in (typing.Union, types.UnionType):
        (inner,) = (option for option in typing.get_args(annotation) if option is not types.NoneType)
        return _schema(inner)
    if origin is Literal:
        return {"type": "string", "enum": list(typing.get_args(annotation))}
    if origin is list:
        return {"type": "array", "items": _schema(typing.get_args(annotation)[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(typing.get_args(annotation)[1])}
    if annotation is Quantity:
        return dict(QUANTITY)
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return {"type": "object"} if annotation is ObjectMeta else _model(annotation)
    scalars: dict[Any, Schema] = {
        str: {"type": "string"},
        bool: {"type": "boolean"},
        int: {"type": "integer", "format": "int32"},
    }
    return dict(scalars[annotation])


def _model(model: type[Model]) -> Schema:
    hints = typing.get_type_hints(model, include_extras=True)
    descriptions = _descriptions(model)
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for field in msgspec.structs.fields(model):
        annotation = hints[field.name]
        schema = _schema(annotation)
        marks = _marks(annotation)
        if field.name in descriptions:
            schema["description"] = descriptions[field.name]
        if DEFAULTED in marks:
            schema["default"] = _default(field)
        if field.name != "metadata" and (field.required or REQUIRED in marks):
            required.append(field.encode_name)
        properties[field.encode_name] = schema
    result: Schema = {"description": _flat(model.__doc__), "type": "object", "properties": properties}
    if required:
        result["required"] = required
    rules = type_rules(model)
    if rules:
        result["x-kubernetes-validations"] = [_validation(rule) for rule in rules]
    return result


def _marks(annotation: Any) -> list[Any]:
    return list(typing.get_args(annotation)[1:]) if typing.get_origin(annotation) is typing.Annotated else []


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if isinstance(field.default, Quantity):
        return field.default.value()
    return encode(field.default)


def _validation(rule: Cel) -> Schema:
    result = {"rule": rule.rule, "message": rule.message}
    if rule.reason:
        result["reason"] = rule.reason
    return result


@cache
def _descriptions(model: type[Model]) -> dict[str, str]:
    """The texts below the fields of a type, by field name."""
    tree = ast.parse(inspect.getsource(sys.modules[model.__module__]))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == model.__name__:
            return {
                field.target.id: _flat(text.value.value)
                for field, text in zip(node.body, node.body[1:], strict=False)
                if isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            }
    raise LookupError(f"{model.__name__} is not at the top level of {model.__module__}")


def _flat(text: str | None) -> str:
    return " ".join((text or "").split())
