"""Values that fit a published schema, and values that almost do: what careless and hostile clients send."""
# ruff: noqa: E501 (tables of values)

from __future__ import annotations

import copy
import random
from typing import Any

Object = dict[str, Any]
Schema = dict[str, Any]

_DEPTH = 9

#: Texts that fields of some meaning have, by a part of the field's name in lower case.
_WORDS: dict[str, list[str]] = {
    "schedule": ["*/5 * * * *", "@daily", "0 0 31 2 *", "1-59/61 * * * *", "* * * * * *"],
    "timezone": ["Etc/UTC", "Europe/Berlin", "../../etc/passwd", "Local", "TZ=UTC"],
    "expression": ["true", "has(object.spec)", "object.metadata.name.matches('(a+)+$')", "1 / 0 == 1"],
    "rule": ["self == self", "self.all(x, x.all(y, y == y))", "self.matches('(a|a)*b')", "size(self) < 3", "("],
    "pattern": ["^a+$", "(a+)+$", "(?=a)", "(", "[", "a{1,1000000}", "(a{1000}){1000}", "\\p{L}", "(.*)*\\1"],
    "jsonpath": [".spec.size", ".spec[*]", ".a[?(@.b==1)]", "{.a}", "." * 500, ".a['b'].c", "$..x"],
    "cpu": ["1", "100m", "1e3", "0.1"],
    "memory": ["1Gi", "128Mi", "1e9", "1"],
    "operator": ["In", "NotIn", "Exists", "DoesNotExist", "Equal", "Gt", "Lt"],
    "topologykey": ["kubernetes.io/hostname", "zone"],
    "restartpolicy": ["Never", "OnFailure", "Always"],
    "protocol": ["TCP", "UDP"],
    "effect": ["NoSchedule", "NoExecute"],
    "time": ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456Z", "0000-00-00T00:00:00Z", "9999-12-31T23:59:60Z"],
    "duration": ["1h", "5m0s", "1ns", "-1h", "9" * 30 + "h", "1h" * 1000],
    "quota": ["1", "10", "1Ki", "-1", "1e30"],
    "image": ["busybox", "a/b:c", "a@sha256:" + "0" * 64],
    "path": ["/", "/a", "../..", "a" * 5000],
    "port": ["http", "80", "0", "70000"],
    "maxunavailable": ["1", "50%", "101%", "-5%", "9" * 400 + "%"],
    "apiversion": ["v1", "batch/v1", "kueue.x-k8s.io/v1beta2", "a/b/c", ""],
    "kind": ["Pod", "Job", "Workload", "User", "Group", "ServiceAccount", "ClusterRole", "Role", "x"],
    "apigroup": ["", "batch", "rbac.authorization.k8s.io", "*"],
    "resource": ["pods", "jobs", "*", "pods/status", "cpu", "memory"],
    "verb": ["get", "list", "*", "create", "escalate", "bind", "impersonate"],
    "namespace": ["default", "team", "limited", "nowhere"],
    "queue": ["lq", "cq", "a"],
    "flavor": ["default-flavor", "a"],
    "status": ["True", "False", "Unknown"],
    "reason": ["Because", "a b", "", "Pending"],
    "type": ["Ready", "Admitted", "QuotaReserved", "Complete", "Opaque", "RollingUpdate", "Container", "Utilization"],
    "policy": ["None", "Never", "Any", "LowerPriority", "Hold", "HoldAndDrain", "Retain"],
}  # fmt: skip
_NAMES = ["a", "b", "main", "n1", "n2", "n3", "default", "lq", "cq"]

#: Pieces that long texts are made of; each has a grammar somewhere that might count or nest it.
_PIECES = [
    "a", "1", "9", ":1", ",", "(", "[", "{", ")(", "a,", "a=b,", "!", " ", "\n", "\\", "\"", "é", "\U0001f600",
    "*/1,", "x.", "['a']", "a||", "(a+)+", ".*", "1h", "-", "/", "~1", "$(A)", "%", "0.", "&a ", "<<: ", "\u202e",
]  # fmt: skip

_NUMBERS = [
    0, -1, 1, 2**31 - 1, 2**31, -(2**31) - 1, 2**53, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 1.5, -0.0, 1e308, 1e-300,
    5e-324,
]  # fmt: skip
_STRANGE: list[Any] = [
    None, True, False, "", " ", "x", "A_b!", "é\u0000", "\ud800", "9" * 300, [], [None], [[]], {}, {"": ""},
    {"a": {"b": []}}, ["x", 1], [{}], "1Gi", "-1", "0", "1e999999999", "9" * 5000, "2026-01-01T00:00:00Z", "null",
    *_NUMBERS,
]  # fmt: skip


class Values:
    """Generates values of schemas. `schemas` are the published components by name."""

    def __init__(self, rng: random.Random, schemas: dict[str, Schema]) -> None:
        self._rng = rng
        self._schemas = schemas

    def resolve(self, schema: Schema) -> Schema:
        """The schema itself, wherever a reference leads."""
        while True:
            if "$ref" in schema:
                schema = self._schemas[schema["$ref"].rpartition("/")[2]]
            elif schema.get("allOf") and "$ref" in schema["allOf"][0]:
                schema = schema["allOf"][0]
            else:
                return schema

    def valid(self, schema: Schema, name: str = "", depth: int = 0, density: float = 0.2) -> Any:
        """A value that mostly fits the schema. Optional fields are there with the probability `density`."""
        rng, schema = self._rng, self.resolve(schema)
        if schema.get("enum"):
            return rng.choice(schema["enum"])
        kind = schema.get("type")
        if "properties" in schema:
            if depth > _DEPTH:
                return {}
            needed = set(schema.get("required") or ())
            return {
                key: self.valid(child, key, depth + 1, density)
                for key, child in schema["properties"].items()
                if key not in ("managedFields", "apiVersion", "kind", "deletionTimestamp")
                and (key in needed or rng.random() < (0.9 if depth == 0 else density))
            }
        if kind == "object":
            child = schema.get("additionalProperties")
            if not isinstance(child, dict) or depth > _DEPTH:
                return {}
            keys = [rng.choice(["cpu", "memory", *_NAMES]) for _ in range(rng.randint(0, 2))]
            return {key: self.valid(child, key, depth + 1, density) for key in keys}
        if kind == "array":
            if depth > _DEPTH:
                return []
            least = schema.get("minItems", 0)
            return [
                self.valid(schema["items"], name, depth + 1, density)
                for _ in range(rng.randint(max(least, 0), max(least, 2)))
            ]
        if kind in ("integer", "number"):
            least = schema.get("minimum", 0)
            return rng.choice([least, least + 1, least + 7])
        if kind == "boolean":
            return rng.random() < 0.5
        if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
            return rng.choice([1, *self._words(name)])
        if kind == "string":
            return rng.choice(self._words(name))
        return rng.choice([1, "1", {"a": 1}])

    def _words(self, name: str) -> list[str]:
        lower = name.lower()
        for part, words in _WORDS.items():
            if part in lower:
                return words
        return _NAMES

    # -- what comes close

    def strange(self) -> Any:
        """A small value that no schema expects."""
        return copy.deepcopy(self._rng.choice(_STRANGE))

    def long_text(self, size: int) -> str:
        """A text of about this many characters of one kind."""
        rng = self._rng
        piece = rng.choice(_PIECES)
        end = rng.choice(["", "", "!", "b", ")", "\u0000"])
        return rng.choice(["", "a", "^", "-"]) + piece * max(1, size // len(piece)) + end

    def deep(self, depth: int) -> Any:
        """Containers in containers."""
        value: Any = self.strange()
        as_list = self._rng.random() < 0.5
        for _ in range(depth):
            value = [value] if as_list else {"a": value}
        return value

    def many_keys(self, count: int, value: Any) -> Object:
        """An object of very many keys."""
        shape = self._rng.choice(["k{}", "example.com/k{}", "é{}", "K.{}", "{}", "requests.k{}"])
        return {shape.format(number): value for number in range(count)}

    def mutate(self, obj: Object, schema: Schema, size: int) -> Object:
        """The object with one thing wrong or extreme in one place; up to about `size` bytes larger."""
        value, key, child, name = self._place(obj, schema)
        there = value[key] if isinstance(value, list) else value.get(key)
        value[key] = self._other(there, child, name, size)
        return obj

    def _place(self, obj: Object, schema: Schema) -> tuple[Any, Any, Schema, str]:
        """Some place in an object, absent fields included: the container, its key, the schema there, a name."""
        rng = self._rng
        value: Any = obj
        schema, name = self.resolve(schema), ""
        while True:
            key: Any
            if isinstance(value, dict):
                properties = schema.get("properties") or {}
                other = schema.get("additionalProperties")
                keys = [key for key in value if name or key not in ("apiVersion", "kind")]
                if not keys or rng.random() < 0.3:
                    keys = [*properties, "other"]
                name = key = rng.choice(keys)
                schema = self.resolve(properties.get(key, other if isinstance(other, dict) else {}))
                there = value.get(key)
            else:
                key = rng.randrange(len(value))
                schema = self.resolve(schema.get("items") or {})
                there = value[key]
            if not there or not isinstance(there, dict | list) or rng.random() < 0.2:
                return value, key, schema, name
            value = there

    def _other(self, value: Any, schema: Schema, name: str, size: int) -> Any:
        rng = self._rng
        match rng.randrange(12):
            case 0 | 1:
                return self.strange()
            case 2:
                return self.long_text(rng.randint(1, size))
            case 3:
                return self.deep(rng.choice([5, 50, 230, 250, 500]))
            case 4:
                return self.many_keys(rng.randint(1, max(1, size // 20)), rng.choice(["", 1, None, {}, "v"]))
            case 5 | 6:
                filled = self.valid(schema, name, 2, 0.6)
                if isinstance(filled, list):
                    one = filled[0] if filled else self.valid(schema.get("items", {}), name, 3, 0.3)
                    return self._many(one, size)
                return filled
            case 7:
                if isinstance(value, list) and value:
                    return self._many(value[0], size)
                return [value] * rng.choice([1, 2, 100])
            case 8:
                return rng.choice(_NUMBERS)
            case 9:
                return rng.choice(self._words(name))
            case 10:
                words = self._words(name)
                return rng.choice(words) * rng.randint(2, max(3, size // 10))
            case _:
                return self.valid(schema, name, 1, 0.9)

    def _many(self, one: Any, size: int) -> list[Any]:
        """The item many times, all under one name or each under another."""
        rng = self._rng
        count = rng.randint(2, max(3, size // max(2, len(str(one)))))
        if isinstance(one, dict) and rng.random() < 0.7:
            key = next((key for key in ("name", "key", "type", "mountPath") if key in one), "name")
            return [{**one, key: f"n{number}"} for number in range(count)]
        if isinstance(one, str) and rng.random() < 0.7:
            return [f"{one}{number}" for number in range(count)]
        return [one] * count
