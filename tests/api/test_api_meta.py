"""Metadata: times, label selectors, conditions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykueue.api import DecodeError, decode_as
from pykueue.api.meta import (
    Condition,
    LabelSelector,
    ObjectMeta,
    Selector,
    SelectorError,
    condition_is,
    find_condition,
    format_micro_time,
    format_time,
    parse_time,
    remove_condition,
    set_condition,
)

_NOON = "2026-01-31T12:00:00Z"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01t00:00:01z", 1),
        ("1970-01-01T00:00:00.25Z", 0.25),
        ("2026-01-31T09:30:00.123456789Z", 1769851800.123456),
        ("0001-01-01T00:00:00Z", -62135596800),
        ("9999-12-31T23:59:59Z", 253402300799),
    ],
)
def test_times_are_read(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "now", "2026-01-31", "20260131T093000Z", "2026-01-31 09:30:00Z", "2026-01-31T09:30:00",
     "2026-02-30T00:00:00Z", "2026-01-31T25:00:00Z", "2026-01-31T09:30Z", "10000-01-01T00:00:00Z"],
)  # fmt: skip
def test_what_is_not_a_time_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an RFC 3339 time such as 2026-01-31T09:30:00Z"):
        parse_time(text)


@given(st.integers(-62135596800, 253402300799))
def test_whole_seconds_survive(seconds: int) -> None:
    assert parse_time(format_time(seconds)) == seconds
    assert parse_time(format_micro_time(seconds)) == seconds
    assert format_time(seconds + 0.75) == format_time(seconds)


def test_micro_times_have_six_digits() -> None:
    assert format_micro_time(0.5) == "1970-01-01T00:00:00.500000Z"
    assert format_time(-1) == "1969-12-31T23:59:59Z"
    assert format_time(-62135596800) == "0001-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("", {}, True),
        ("a", {"a": ""}, True),
        ("a", {}, False),
        ("!a", {}, True),
        ("!a", {"a": "x"}, False),
        ("a=b", {"a": "b"}, True),
        ("a == b", {"a": "b"}, True),
        ("a=b", {"a": "c"}, False),
        ("a=", {"a": ""}, True),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a in (b, c)", {"a": "c"}, True),
        ("a in (b,c)", {}, False),
        ("a notin (b,c)", {}, True),
        ("a notin (b,c)", {"a": "b"}, False),
        ("a in ()", {"a": ""}, True),
        ("n>3", {"n": "4"}, True),
        ("n>3", {"n": "3"}, False),
        ("n<5", {"n": "-2"}, True),
        ("n<5", {"n": "1_0"}, False),
        ("n>3", {"n": "x"}, False),
        ("n>3", {}, False),
        ("a=b,!c,example.com/d in (e)", {"a": "b", "example.com/d": "e"}, True),
        ("a=b,!c", {"a": "b", "c": ""}, False),
        ("in=x", {"in": "x"}, True),
    ],
)
def test_selectors_from_text(text: str, labels: dict[str, str], matches: bool) -> None:
    selector = Selector.parse(text)
    assert selector.matches(labels) is matches
    assert Selector.parse(str(selector)) == selector


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("=b", "'=' is not a label key"),
        ("a=b,", "a label key is missing"),
        ("a in b", "found 'b' where '(' is needed"),
        ("a in (b", "found '' where ',' is needed"),
        ("a b", "found 'b' where one of =, ==, !=, <, >, in, notin, ',' may stand"),
        ("a=b c", "found 'c' where ',' is needed"),
        ("a=-b", "'-b' is not a label value"),
        ("a>b", "'b' is not an integer of 64 bits, which > compares with"),
        (
            "a>99999999999999999999",
            "'99999999999999999999' is not an integer of 64 bits, which > compares with",
        ),
        ("a<-1", "'-1' is not a label value"),
        ("-a", "'-a' is not a label key"),
        ("!", "a label key is missing"),
    ],
)
def test_selector_errors_say_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(SelectorError) as caught:
        Selector.parse(text)
    assert str(caught.value) == f"unable to parse requirement: {why} in {text!r}"


@given(st.text(alphabet="ab=!,() in<>-1/.", max_size=14))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        selector = Selector.parse(text)
    except SelectorError:
        return
    assert Selector.parse(str(selector)) == selector


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        ({}, {}, True),
        ({"matchLabels": {"a": "b"}}, {"a": "b", "c": "d"}, True),
        ({"matchLabels": {"a": "b"}}, {}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]}, {"a": "c"}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"a": ""}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": ""}, False),
        (
            {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]},
            {"a": "b"},
            False,
        ),
    ],
)
def test_selector_objects(selector: object, labels: dict[str, str], matches: bool) -> None:
    assert decode_as(LabelSelector, selector).matches(labels) is matches


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (
            {"key": "a", "operator": "Is"},
            "'Is' is not an operator of label selectors: In, NotIn, Exists, DoesNotExist are",
        ),
        ({"key": "a", "operator": "In"}, "In on label 'a' needs values"),
        ({"key": "a", "operator": "Exists", "values": ["b"]}, "Exists on label 'a' takes no values"),
    ],
)
def test_selector_objects_that_mean_nothing(expression: object, why: str) -> None:
    selector = decode_as(LabelSelector, {"matchExpressions": [expression]})
    with pytest.raises(SelectorError) as caught:
        selector.selector()
    assert str(caught.value) == why


def test_conditions_are_found() -> None:
    conditions = decode_as(
        list[Condition], [{"type": "Ready", "status": "False", "reason": "No", "message": ""}]
    )
    found = find_condition(conditions, "Ready")
    assert found is not None
    assert found.reason == "No"
    assert find_condition(conditions, "Other") is None
    assert condition_is(conditions, "Ready", "False")
    assert not condition_is(conditions, "Ready")
    assert not condition_is(conditions, "Other", "False")


def test_setting_a_condition_keeps_its_place_and_moves_its_time_only_with_its_status() -> None:
    first = set_condition([], "A", "False", "Why", "text", now=parse_time(_NOON))
    assert first == [
        {"type": "A", "status": "False", "reason": "Why", "message": "text", "lastTransitionTime": _NOON}
    ]
    second = set_condition([*first, {"type": "B", "status": "True"}], "A", "False", "New", "other", now=0)
    assert [condition["type"] for condition in second] == ["A", "B"]
    assert second[0] == {**first[0], "reason": "New", "message": "other"}
    third = set_condition(second, "A", "True", "New", "other", now=0, observed_generation=3)
    assert third[0]["lastTransitionTime"] == "1970-01-01T00:00:00Z"
    assert third[0]["observedGeneration"] == 3
    assert first[0]["status"] == second[0]["status"] == "False", "the list given is left alone"
    assert [condition["type"] for condition in remove_condition(third, "A")] == ["B"]


def test_metadata() -> None:
    meta = decode_as(
        ObjectMeta,
        {
            "name": "n",
            "namespace": "ns",
            "creationTimestamp": _NOON,
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1"},
                {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "2", "controller": True},
            ],
        },
    )
    assert meta.key == "ns/n"
    assert meta.created == parse_time(_NOON)
    owner = meta.controller()
    assert owner is not None
    assert owner.name == "j"
    assert ObjectMeta(name="n").key == "n"
    assert ObjectMeta(name="n").created == 0
    assert ObjectMeta(name="n").controller() is None
    with pytest.raises(DecodeError):
        decode_as(ObjectMeta, {"labels": {"a": 1}})
