"""CEL rules of custom kinds: where they run, on what, with which words they refuse, and which compile."""
# ruff: noqa: E501 (rules are one line each)

from __future__ import annotations

import copy
from typing import Any

import pytest

from pykueue.embedded.apiserver.crd.structural import CustomSchema, custom_schema
from pykueue.embedded.kinds.crdvalidation import check_custom_schema

STRING = {"type": "string"}
INTEGER = {"type": "integer"}


def kind(spec: dict[str, Any], **root: Any) -> CustomSchema:
    openapi = {
        "type": "object",
        "properties": {"spec": spec, "status": {"type": "object", "properties": {"n": INTEGER}}},
        **root,
    }
    assert check_custom_schema(openapi, "schema") == []
    return custom_schema("example.com", "v1", "Thing", True, openapi)


def thing(spec: Any, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec, **more}


def objects(*rules: Any, **properties: Any) -> dict[str, Any]:
    listed = [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]
    return {"type": "object", "properties": properties, "x-kubernetes-validations": listed}


def said(schema: CustomSchema, new: Any, old: Any = None) -> list[tuple[str, str]]:
    causes = schema.validate(thing(new), None if old is None else thing(old))
    return [(cause.field, cause.message) for cause in causes]


def test_a_rule_that_holds_and_one_that_does_not() -> None:
    schema = kind(objects("self.low <= self.high", low=INTEGER, high=INTEGER))
    assert said(schema, {"low": 1, "high": 2}) == []
    assert said(schema, {"low": 3, "high": 2}) == [
        ("spec", 'Invalid value: "object": failed rule: self.low <= self.high')
    ]


def test_words_places_and_reasons() -> None:
    schema = kind(
        objects(
            {"rule": "self.a != 1", "message": "a is one"},
            {
                "rule": "self.a != 2",
                "message": "plain",
                "messageExpression": "'a is ' + (self.a == 2 ? 'two' : '?')",
            },
            {"rule": "self.a != 3", "message": "plain", "messageExpression": "'broken' + self.b"},
            {
                "rule": "self.a != 4",
                "reason": "FieldValueForbidden",
                "fieldPath": ".a",
                "message": "not four",
            },
            {
                "rule": "self.a != 5",
                "reason": "FieldValueRequired",
                "fieldPath": ".b",
                "message": "with five",
            },
            {"rule": "self.a != 6", "reason": "FieldValueDuplicate"},
            a=INTEGER,
            b=INTEGER,
        )
    )
    assert said(schema, {"a": 1}) == [("spec", 'Invalid value: "object": a is one')]
    assert said(schema, {"a": 2}) == [("spec", 'Invalid value: "object": a is two')]
    assert said(schema, {"a": 3}) == [("spec", 'Invalid value: "object": plain')]
    assert said(schema, {"a": 4}) == [("spec.a", "Forbidden: not four")]
    assert said(schema, {"a": 5}) == [("spec.b", "Required value: with five")]
    assert said(schema, {"a": 6}) == [("spec", 'Duplicate value: "object"')]


def test_a_missing_field_is_an_error_not_a_pass() -> None:
    schema = kind(objects({"rule": "self.a > 0", "message": "positive"}, a=INTEGER))
    assert said(schema, {}) == [("spec", 'Invalid value: "object": no such key: a evaluating rule: positive')]
    overflow = kind(objects("self.a + 1 > 0", a=INTEGER))
    assert "overflow" in said(overflow, {"a": 2**63 - 1})[0][1]


def test_rules_at_every_level() -> None:
    part = objects({"rule": "self.n > 0", "message": "n"}, n=INTEGER)
    schema = kind(
        {
            "type": "object",
            "properties": {
                "list": {"type": "array", "items": part},
                "map": {"type": "object", "additionalProperties": part},
                "text": {
                    **STRING,
                    "x-kubernetes-validations": [{"rule": "self != 'bad'", "message": "text"}],
                },
                "deep": {"type": "object", "properties": {"list": {"type": "array", "items": part}}},
            },
        },
        **{"x-kubernetes-validations": [{"rule": "self.metadata.name != 'root'", "message": "root"}]},
    )
    good, bad = {"n": 1}, {"n": 0}
    assert said(schema, {"list": [good], "map": {"a": good}, "text": "x", "deep": {"list": [good]}}) == []
    assert said(schema, {"list": [good, bad], "map": {"a": bad}, "text": "bad", "deep": {"list": [bad]}}) == [
        ("spec.list[1]", 'Invalid value: "object": n'),
        ("spec.map.a", 'Invalid value: "object": n'),
        ("spec.text", 'Invalid value: "string": text'),
        ("spec.deep.list[0]", 'Invalid value: "object": n'),
    ]
    root = {**thing({}), "metadata": {"name": "root"}}
    assert [(cause.field, cause.message) for cause in schema.validate(root)] == [
        ("<nil>", 'Invalid value: "object": root')
    ]


def test_transition_rules_need_an_old_value() -> None:
    fixed = {**STRING, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "immutable"}]}
    schema = kind({"type": "object", "properties": {"name": fixed, "other": STRING}})
    refusal = [("spec.name", 'Invalid value: "string": immutable')]
    assert said(schema, {"name": "a"}) == []
    assert said(schema, {"name": "b"}, {"name": "a"}) == refusal
    assert said(schema, {"name": "b"}, {"other": "x"}) == []
    assert said(schema, {"other": "y"}, {"name": "a"}) == []


def test_old_elements_correspond_by_key_only() -> None:
    element = objects(
        {"rule": "self.size >= oldSelf.size", "message": "only grows"}, name=STRING, size=INTEGER
    )
    keyed = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {**element, "required": ["name"]},
    }
    by_name = {"type": "object", "additionalProperties": element}
    schema = kind(
        {
            "type": "object",
            "properties": {"keyed": keyed, "map": by_name},
        }
    )
    small, large, other = {"name": "a", "size": 1}, {"name": "a", "size": 2}, {"name": "b", "size": 0}
    assert said(schema, {"keyed": [other, large]}, {"keyed": [small]}) == []
    assert said(schema, {"keyed": [other, small]}, {"keyed": [large]}) == [
        ("spec.keyed[1]", 'Invalid value: "object": only grows')
    ]
    assert said(schema, {"map": {"k": small}}, {"map": {"k": large}}) == [
        ("spec.map.k", 'Invalid value: "object": only grows')
    ]


def test_optional_old_values() -> None:
    rule = {
        "rule": "!oldSelf.hasValue() || oldSelf.value() < self",
        "optionalOldSelf": True,
        "message": "grows",
    }
    schema = kind({"type": "object", "properties": {"n": {**INTEGER, "x-kubernetes-validations": [rule]}}})
    assert said(schema, {"n": 1}) == []
    assert said(schema, {"n": 2}, {"n": 1}) == []
    assert said(schema, {"n": 2}, {}) == []
    assert said(schema, {"n": 1}, {"n": 2}) == [("spec.n", 'Invalid value: "integer": grows')]


def test_what_did_not_change_is_not_refused() -> None:
    schema = kind(
        objects(
            {"rule": "self.a < 10", "message": "small"},
            {"rule": "self.list.all(x, x < 10)", "message": "all small"},
            a=INTEGER,
            b=INTEGER,
            list={"type": "array", "items": INTEGER},
        )
    )
    old = {"a": 99, "b": 1, "list": [99]}
    assert len(said(schema, old)) == 2
    assert said(schema, {**old, "b": 2}, copy.deepcopy(old)) == []
    assert said(schema, {**old, "list": [99, 1]}, copy.deepcopy(old)) == [
        ("spec", 'Invalid value: "object": all small')
    ]


def test_rules_are_skipped_when_the_schema_fails() -> None:
    schema = kind(objects("self.a < 10", a=INTEGER))
    assert said(schema, {"a": "x"})[-1] == (
        "<nil>",
        "Invalid value: null: some validation rules were not checked because the object was invalid; correct "
        "the existing errors to complete validation",
    )


def test_rules_are_asked_where_what_they_read_is_there() -> None:
    text = {**STRING, "minLength": 1, "maxLength": 3}
    schema = kind(objects({"rule": "self.a != ''", "message": "empty"}, a=text))
    assert said(schema, {"a": ""}) == [
        ("spec.a", 'Invalid value: "": spec.a in body should be at least 1 chars long'),
        ("spec", 'Invalid value: "object": empty'),
    ]
    assert [field for field, _ in said(schema, {"a": "long"})] == ["spec.a", "<nil>"]


def test_names_that_rules_must_spell_otherwise() -> None:
    schema = kind(
        objects(
            "self.__namespace__ == 'x' && self.a__dash__b > 0 && self.c__dot__d == 1 && self.__true__",
            **{"namespace": STRING, "a-b": INTEGER, "c.d": INTEGER, "true": {"type": "boolean"}},
        )
    )
    good = {"namespace": "x", "a-b": 1, "c.d": 1, "true": True}
    assert said(schema, good) == []
    assert len(said(schema, {**good, "a-b": 0})) == 1


def test_rules_below_names_that_cel_cannot_spell() -> None:
    child = {**INTEGER, "x-kubernetes-validations": [{"rule": "self > 0", "message": "positive"}]}
    schema = kind({"type": "object", "properties": {"a-b": child, "in": child}})
    assert said(schema, {"a-b": 1, "in": 1}) == []
    assert said(schema, {"a-b": 0, "in": 0}) == [
        ("spec.a-b", 'Invalid value: "integer": positive'),
        ("spec.in", 'Invalid value: "integer": positive'),
    ]


def test_comments_and_variables_of_rules_do_not_meet() -> None:
    schema = kind(
        objects(
            "self.a > 0 // the first",
            "self.list.all(self, self > 0)",
            "cel.bind(x, self.a, x < 10)",
            a=INTEGER,
            list={"type": "array", "items": INTEGER},
        )
    )
    assert said(schema, {"a": 1, "list": [1]}) == []
    assert len(said(schema, {"a": 0, "list": [0]})) == 2


@pytest.mark.parametrize(
    "rule",
    [
        "quantity(self.q) == quantity('1000m')",
        "quantity(self.q).isGreaterThan(quantity('999m')) && quantity(self.q).compareTo(quantity('1')) == 0",
        "quantity(self.q).add(quantity('1')).sub(1).isInteger() && quantity(self.q).asInteger() == 1",
        "quantity('1500m').asApproximateFloat() == 1.5 && quantity('-1').sign() == -1",
        "isQuantity(self.q) && !isQuantity('1x') && quantity(self.q).isLessThan(quantity('1Ei'))",
        "isURL('https://a/b') && !isURL('a b') && url(self.url).getHost() == 'h.example:80'",
        "url(self.url).getScheme() == 'https' && url(self.url).getPort() == '80'",
        "url(self.url).getHostname() == 'h.example' && url(self.url).getEscapedPath() == '/p%20q'",
        "url(self.url).getQuery()['x'] == ['1', '2'] && url('https://[::1]:80/').getHostname() == '::1'",
        "isIP('::1') && !isIP('::ffff:1.2.3.4') && ip('10.0.0.1').family() == 4 && ip('::1').isLoopback()",
        "ip('0.0.0.0').isUnspecified() && ip('169.254.0.1').isLinkLocalUnicast() && !ip('::1').isGlobalUnicast()",
        "ip('224.0.0.1').isLinkLocalMulticast() && ip('8.8.8.8').isGlobalUnicast() && ip.isCanonical('::1')",
        "isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0') && cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')",
        "cidr('10.0.0.0/8').containsIP('10.1.1.1') && cidr('10.0.0.0/8').containsIP(ip('10.1.1.1'))",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.0.0.0/8').containsCIDR(cidr('::/8'))",
        "cidr('10.0.0.0/8').prefixLength() == 8 && string(cidr('10.0.0.1/8').ip()) == '10.0.0.1'",
        "self.l.isSorted() && self.l.sum() == 6 && self.l.min() == 1 && self.l.max() == 3",
        "self.l.indexOf(2) == 1 && self.l.lastIndexOf(9) == -1 && self.t.lastIndexOf('a') == 2",
        "[1, 1, 2].distinct() == [1, 2] && [[1], [2]].flatten() == [1, 2] && [2, 1].sort() == [1, 2]",
        "self.l.slice(1, 3) == [2, 3] && lists.range(3) == [0, 1, 2]",
        "sets.contains([1, 2], [1]) && sets.intersects([1, 2], [2, 3]) && sets.equivalent([1, 1], [1.0])",
        "'abc123'.find('[0-9]+') == '123' && 'a1b22'.findAll('[0-9]+') == ['1', '22']",
        "'a1b22'.findAll('[0-9]+', 1) == ['1'] && 'x'.find('[0-9]') == ''",
        "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab'.findAll('^(a+)+$|b') == ['b']",
        "!format.dns1123Label().validate('ok').hasValue() && format.dns1123Label().validate('No').hasValue()",
        "format.named('uuid').hasValue() && !format.named('none').hasValue()",
        "format.named('labelValue').value().validate('a b').value().size() == 1",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && isSemver('1.0.0-rc.1+b') && !isSemver('1.0')",
        "semver('1.0.0-rc.2').compareTo(semver('1.0.0')) == -1 && semver('1.2.3').minor() == 2",
        "'a,b'.split(',') == ['a', 'b'] && self.t.join('-') == 'a-b-a' && 'Abc'.lowerAscii() == 'abc'",
        "'abc'.substring(1, 2) == 'b' && 'abc'.charAt(3) == '' && 'abc'.indexOf('c') == 2 && 'é'.size() == 1",
        "'%s has %d of %.1f'.format(['x', 3, 2.5]) == 'x has 3 of 2.5' && ' a '.trim() == 'a'",
        "'aXbX'.replace('X', '-') == 'a-b-' && 'aXbX'.replace('X', '-', 1) == 'a-bX' && 'a b c'.split(' ', 2) == ['a', 'b c']",
        "math.greatest(1, 2) == 2 && base64.encode(b'a') == 'YQ==' && self.?none.orValue(1) == 1",
        "self.at < timestamp('2027-01-01T00:00:00Z') && timestamp(self.at).getFullYear() == 2026",
        "duration('90m') > duration('1h') && self.l.exists_one(x, x == 2) && self.l.map(x, x * 2) == [2, 4, 6]",
        "self.f == 1.5 && self.l[0] < self.f && type(self.f) == double",
        "self.q.matches('^[0-9]+$') && self.q in ['1', '2'] && has(self.q)",
    ],
)  # fmt: skip
def test_functions(rule: str) -> None:
    schema = kind(
        objects(
            rule,
            q=STRING,
            url=STRING,
            l={"type": "array", "items": INTEGER, "maxItems": 9},
            at={**STRING, "format": "date-time"},
            f={"type": "number"},
            none=INTEGER,
            t={"type": "array", "items": {**STRING, "maxLength": 9}, "maxItems": 9},
        )
    )
    spec = {
        "q": "1",
        "url": "https://u@h.example:80/p%20q?x=1&x=2",
        "l": [1, 2, 3],
        "at": "2026-01-01T00:00:00Z",
        "f": 1.5,
        "t": ["a", "b", "a"],
    }
    assert said(schema, spec) == []


@pytest.mark.parametrize(
    "rule",
    [
        "quantity('many').isInteger()",
        "ip('1.2.3').family() == 4",
        "[].min() == 1",
        "'abc'.substring(4) == ''",
        "lists.range(1000000).size() == 1",
        "'a'.matches('(')",
        "1 / (1 - 1) == 1",
    ],
)
def test_error_of_a_cel_function_is_reported(rule: str) -> None:
    schema = kind(objects({"rule": f"self.q == '' || {rule}", "message": "m"}, q=STRING))
    ((field, message),) = said(schema, {"q": "x"})
    assert field == "spec"
    assert message.endswith(" evaluating rule: m")


@pytest.mark.parametrize(
    ("raw", "field", "words"),
    [
        ({"rule": "self.none > 0"}, "rule", "undefined field 'none'"),
        ({"rule": "self.list.all(x, x.none > 0)"}, "rule", "undefined field 'none'"),
        ({"rule": "self.a >"}, "rule", "compilation failed"),
        ({"rule": "other > 1"}, "rule", "undeclared reference"),
        ({"rule": "self.a + 1"}, "rule", "must evaluate to a bool"),
        ({"rule": "'text'"}, "rule", "must evaluate to a bool"),
        ({"rule": ""}, "rule", "Required value"),
        ({}, "rule", "Required value"),
        ({"rule": "true", "messageExpression": "1"}, "messageExpression", "must evaluate to a string"),
        ({"rule": "true", "message": "two\nlines"}, "message", "line breaks"),
        ({"rule": "true", "fieldPath": ".none"}, "fieldPath", "must be a valid path"),
        ({"rule": "true", "fieldPath": "[0]"}, "fieldPath", "path of fields"),
        (5, None, "must be an object"),
    ],
)
def test_rules_that_may_not_be_installed(raw: Any, field: str | None, words: str) -> None:
    items = {"type": "object", "properties": {"n": INTEGER}}
    spec = objects(raw, a=INTEGER, list={"type": "array", "items": items})
    causes = check_custom_schema({"type": "object", "properties": {"spec": spec}}, "s")
    (cause,) = causes
    where = "s.properties[spec].x-kubernetes-validations[0]"
    assert cause.field == (where if field is None else f"{where}.{field}")
    assert words in cause.message


def refused(spec: dict[str, Any]) -> list[tuple[str, str]]:
    openapi = {"type": "object", "properties": {"spec": spec}}
    return [(one.field, one.message) for one in check_custom_schema(openapi, "schema")]


NUMBERS = {"type": "array", "items": INTEGER}
CONDITIONS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["type", "status", "reason", "message", "lastTransitionTime"],
        "properties": {
            **dict.fromkeys(("type", "status", "reason", "message"), STRING),
            "lastTransitionTime": {"type": "string", "format": "date-time"},
        },
    },
}
HOLDS = "self.exists(c, c.type == 'QuotaReserved' && c.status == 'True')"
TEXTS = {"type": "array", "items": {"type": "object", "properties": {"v": STRING}}}
PAIRS = "self.all(x, self.all(y, x >= y))"


@pytest.mark.parametrize(
    ("spec", "factor"),
    [
        ({**NUMBERS, "x-kubernetes-validations": [{"rule": PAIRS}]}, "more than 100x"),
        ({**NUMBERS, "maxItems": 2000, "x-kubernetes-validations": [{"rule": PAIRS}]}, "2.4x"),
        ({**NUMBERS, "maxItems": 1000, "x-kubernetes-validations": [{"rule": PAIRS}]}, ""),
        ({**NUMBERS, "x-kubernetes-validations": [{"rule": "self.all(x, x > 0)"}]}, ""),
        (objects("self.a.contains(self.b)", a=STRING, b=STRING), "more than 100x"),
        (objects("self.a.contains(self.b)", a={**STRING, "maxLength": 63}, b=STRING), ""),
        (objects("self.a.contains('x')", a=STRING), ""),
        (
            {**NUMBERS, "x-kubernetes-validations": [{"rule": "self.map(x, x * 2).filter(x, x > 1) != []"}]},
            "4.6x",
        ),
        # What is required bounds how many elements a request can hold: conditions may be unlimited.
        ({**CONDITIONS, "x-kubernetes-validations": [{"rule": " && ".join([HOLDS] * 20)}]}, ""),
        (objects("self.list.all(x, x.v.startsWith('a'))", list=TEXTS), ""),
        (objects("self.list.all(x, x.v.contains('a'))", list=TEXTS), "more than 100x"),
        (
            objects(
                "self.map.all(k, k in oldSelf.map)", map={"type": "object", "additionalProperties": STRING}
            ),
            "",
        ),
    ],
)
def test_rules_that_could_take_too_long_are_refused(spec: dict[str, Any], factor: str) -> None:
    said = refused(spec)
    if not factor:
        assert said == []
    else:
        assert (
            f"estimated rule cost exceeds budget by factor of {factor} (try simplifying the rule"
            in said[0][1]
        )
        assert said[0][0].endswith("x-kubernetes-validations[0].rule")


ALIKE = {
    "type": "array",
    "items": {"type": "object", "properties": {"n": INTEGER, "s": {**STRING, "maxLength": 9}}},
}


@pytest.mark.parametrize(
    ("turn", "factor"),
    [
        # Once for each pair of elements: the cost of a turn is separate from that of the loop and the two reads.
        ("has(x.n)", "1.6x"),
        ("has(x.n) == has(y.n)", "2.4x"),
        ("x.n == y.n", "2.8x"),
        ("x.n > y.n", "3.2x"),
        ("x == y", "2.0x"),
        ("x.s == y.s", "4.4x"),
        ("x.n in [1, 2, 3]", "7.2x"),
        ("quantity(x.s) == quantity('2')", "4.4x"),
    ],
)
def test_a_turn_of_a_loop_costs_what_it_reads(turn: str, factor: str) -> None:
    rule = {"rule": f"self.all(x, self.all(y, {turn}))"}
    said = refused({**ALIKE, "maxItems": 2000, "x-kubernetes-validations": [rule]})
    assert [message.partition("factor of ")[2].partition(" ")[0] for _, message in said[:1]] == [factor]


@pytest.mark.parametrize(
    ("rule", "expensive"),
    [
        # What is made without a known size has no end; what is read from it is looked up below `self`.
        ("'a' + string(self.n) != ''", True),
        ("string(self.n) == 'a'", False),
        ("self.?list.orValue([]).all(x, x.n > 1)", True),
        ("self.?n.orValue(1) == 1", False),
        ("self.list.filter(x, x.n == 1).all(x, x.s == x.s)", True),
        ("['a', 'b'].join('-') == 'a-b'", True),
        ("self.map.all(k, k.matches('^[a-z]+$'))", False),
        ("self.map.all(k, self.map[k].matches('^[a-z]+$'))", True),
    ],
)
def test_sizes_are_those_of_places(rule: str, expensive: bool) -> None:
    texts = {"type": "object", "additionalProperties": STRING}
    assert bool(refused(objects(rule, n=INTEGER, list=ALIKE, map=texts))) is expensive


def test_texts_that_grow_by_themselves_are_refused() -> None:
    rule = "size(x23) > 0"
    for step in range(23, 0, -1):
        rule = f"cel.bind(x{step}, x{step - 1} + x{step - 1}, {rule})"
    assert "more than 100x" in refused(objects(f"cel.bind(x0, self.a, {rule})", a=STRING))[0][1]


def test_the_rules_of_a_schema_share_a_budget() -> None:
    expensive = {**NUMBERS, "maxItems": 1500, "x-kubernetes-validations": [{"rule": PAIRS}, {"rule": PAIRS}]}
    said = refused({"type": "object", "properties": {f"p{n}": expensive for n in range(6)}})
    assert said[-1][0] == "schema"
    assert "estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of" in said[-1][1]


def test_lists_without_keys_have_no_old_values() -> None:
    element = objects("self.a == oldSelf.a", a=INTEGER)
    assert refused({"type": "array", "items": element}) == [
        (
            "schema.properties[spec].items.x-kubernetes-validations[0].rule",
            'Invalid value: "self.a == oldSelf.a": oldSelf cannot be used on the uncorrelatable portion of the '
            "schema within schema.properties[spec]",
        )
    ]
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]}
    assert refused({"type": "array", "items": {**element, "required": ["a"]}, **keyed}) == []


def test_a_rule_that_goes_on_for_too_long_is_cut_off() -> None:
    schema = kind(
        {**NUMBERS, "maxItems": 1000, "x-kubernetes-validations": [{"rule": PAIRS, "message": "no"}]}
    )
    assert said(schema, [1] * 90) == []
    assert said(schema, [1] * 900) == [
        (
            "spec",
            'Invalid value: "array": operation cancelled: actual cost limit exceeded evaluating rule: no',
        )
    ]
