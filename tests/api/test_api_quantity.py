"""Quantities: every form, canonical text, exact arithmetic, rounding. docs/reference/kueue-semantics.md
2.1."""

from __future__ import annotations

import pickle
import re
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pykueue.api.quantity import MAX_INT64, MIN_INT64, PATTERN, ZERO, Quantity, QuantityError, parse

_SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", 1)},
}

_numbers = st.from_regex(r"[+-]?([0-9]{1,25}(\.[0-9]{0,15})?|\.[0-9]{1,15})", fullmatch=True)
_suffixes = st.sampled_from(list(_SUFFIXES)) | st.integers(-12, 24).map(lambda power: f"e{power}")
_texts = st.tuples(_numbers, _suffixes).map("".join)
_quantities = st.builds(
    Quantity,
    st.integers(-(10**30), 10**30) | st.integers(-5000, 5000).map(lambda value: value * 10**9),
    st.sampled_from(["DecimalSI", "BinarySI", "DecimalExponent"]),
)


@pytest.mark.parametrize(
    ("text", "canonical", "value", "milli"),
    [
        ("0", "0", 0, 0),
        ("-0", "0", 0, 0),
        ("0Ki", "0", 0, 0),
        ("1", "1", 1, 1000),
        ("+5", "5", 5, 5000),
        ("007", "7", 7, 7000),
        (".5", "500m", 1, 500),
        ("5.", "5", 5, 5000),
        ("0.1", "100m", 1, 100),
        ("1000m", "1", 1, 1000),
        ("1500m", "1500m", 2, 1500),
        ("1.5m", "1500u", 1, 2),
        ("1n", "1n", 1, 1),
        ("0.1n", "1n", 1, 1),
        ("1.0000000001", "1000000001n", 2, 1001),
        ("1000", "1k", 1000, 10**6),
        ("1024", "1024", 1024, 1024000),
        ("1500k", "1500k", 1500000, 1500000000),
        ("1000000", "1M", 10**6, 10**9),
        ("1Ki", "1Ki", 1024, 1024000),
        ("1025Ki", "1025Ki", 1049600, 1049600000),
        ("1048576Ki", "1Gi", 2**30, 2**30 * 1000),
        ("1.5Gi", "1536Mi", 1536 * 2**20, 1536 * 2**20 * 1000),
        ("0.5Ki", "512", 512, 512000),
        ("1023.5Ki", "1048064", 1048064, 1048064000),
        ("0.3Ki", "307200m", 308, 307200),
        ("1e3", "1e3", 1000, 10**6),
        ("1E3", "1e3", 1000, 10**6),
        ("1E+3", "1e3", 1000, 10**6),
        ("12e-3", "12e-3", 1, 12),
        ("1e1", "10", 10, 10000),
        ("1E", "1E", 10**18, MAX_INT64),
        ("-1.5", "-1500m", -2, -1500),
        ("-1Ki", "-1Ki", -1024, -1024000),
        ("9223372036854775807", "9223372036854775807", MAX_INT64, MAX_INT64),
        ("9223372036854775808", "9223372036854775807", MAX_INT64, MAX_INT64),
        ("-9223372036854775808", "-9223372036854775807", -MAX_INT64, MIN_INT64),
        ("100E", "9223372036854775807", MAX_INT64, MAX_INT64),
        ("8Ei", "9223372036854775807", MAX_INT64, MAX_INT64),
        ("1e999999999", "9223372036854775807e0", MAX_INT64, MAX_INT64),
        ("1e-999999999", "1e-9", 1, 1),
        (5, "5", 5, 5000),
        (-5, "-5", -5, -5000),
        (0.5, "500m", 1, 500),
        (1e16, "10e15", 10**16, MAX_INT64),
    ],
)
def test_forms(text: str | int | float, canonical: str, value: int, milli: int) -> None:
    quantity = parse(text)
    assert str(quantity) == canonical.removesuffix("e0")
    assert (quantity.value(), quantity.milli()) == (value, milli)
    assert parse(str(quantity)) == quantity


@pytest.mark.parametrize(
    "value",
    ["", " ", "1 ", " 1", "a", "1a", "1kk", "1Kii", "1ki", "1K", "1e", "1e1.5", "1.2.3", "Ki", "-", "+", ".",
     "--1", "1_0", "0x10", "１", "1\n", "1,5", "inf", "nan", "NaN", "1" * 257, True, None, [], float("nan"),
     float("inf")],
)  # fmt: skip
def test_anything_else_is_an_error_that_names_the_value(value: object) -> None:
    with pytest.raises(QuantityError) as caught:
        parse(value)  # type: ignore[arg-type]
    shown = repr(value) if len(repr(value)) <= 80 else repr(value)[:77] + "..."
    accepted = (
        "a number is accepted, with a suffix n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent"
    )
    assert str(caught.value).replace("nan", "nan").startswith((shown, "'nan'", "'inf'"))
    assert accepted in str(caught.value)


@given(_texts)
@example("0.0000000001Ei")
@example("-0.0000000001Ki")
def test_a_text_says_its_exact_amount(text: str) -> None:
    match = re.fullmatch(r"([+-]?)([0-9.]+)(.*)", text)
    assert match is not None
    sign, number, suffix = match.groups()
    unit = Fraction(10) ** int(suffix[1:]) if suffix[:1] == "e" else _SUFFIXES[suffix]
    exact = Fraction(number if number[-1] != "." else number[:-1]) * unit * 10**9
    nanos = min(-(-exact.numerator // exact.denominator), MAX_INT64 * 10**9)
    assert parse(text).nanos == (-nanos if sign == "-" else nanos)


@given(_texts)
def test_what_is_accepted_is_what_schemas_accept(text: str) -> None:
    assert re.search(PATTERN, text)


@given(st.text(alphabet="0123456789.+-eEKMGinumk ", max_size=12))
def test_no_text_is_accepted_that_schemas_refuse(text: str) -> None:
    try:
        quantity = parse(text)
    except QuantityError:
        return
    assert re.search(PATTERN, text)
    assert parse(str(quantity)) == quantity


@given(_quantities)
def test_the_canonical_text_is_exact_short_and_stable(quantity: Quantity) -> None:
    text = str(quantity)
    assert re.search(PATTERN, text)
    assert "." not in text
    if abs(quantity.nanos) <= MAX_INT64 * 10**9:
        again = parse(text)
        assert again == quantity
        # 5000 without a binary suffix reads as a decimal amount, which is written 5k.
        assert str(again) == text or quantity.format == "BinarySI"


@given(_quantities, _quantities, st.integers(-(10**6), 10**6))
def test_arithmetic_is_exact(a: Quantity, b: Quantity, factor: int) -> None:
    assert (a + b).nanos == a.nanos + b.nanos
    assert (a - b).nanos == a.nanos - b.nanos
    assert (a * factor).nanos == (factor * a).nanos == a.nanos * factor
    assert (-a).nanos == -a.nanos
    assert (a < b, a <= b, a > b, a >= b, a == b) == (
        a.nanos < b.nanos, a.nanos <= b.nanos, a.nanos > b.nanos, a.nanos >= b.nanos, a.nanos == b.nanos
    )  # fmt: skip


@given(_quantities)
def test_whole_and_milli_amounts_round_away_from_zero_and_saturate(quantity: Quantity) -> None:
    for rounded, unit in ((quantity.value(), 10**9), (quantity.milli(), 10**6)):
        if MIN_INT64 < rounded < MAX_INT64:
            assert abs(rounded) * unit >= abs(quantity.nanos) > (abs(rounded) - 1) * unit
        assert MIN_INT64 <= rounded <= MAX_INT64


def test_equal_amounts_are_equal_and_hash_alike_whatever_the_suffix() -> None:
    assert parse("1") == parse("1000m") == parse("1e0") == Quantity.of(1) == Quantity.of_milli(1000)
    assert len({parse("1Ki"), parse("1024"), parse("1.024k")}) == 1
    assert parse("1") != 1


def test_sums_keep_the_suffix_of_the_first_amount() -> None:
    assert str(parse("1Gi") + parse("1M")) == "1074741824"
    assert str(parse("1Gi") + parse("1024M")) == "2048576Ki"
    assert str(parse("1Gi") - parse("512Mi")) == "512Mi"
    assert str(ZERO + parse("2Ki")) == "2Ki"
    assert str(parse("8E") + parse("8E")) == "16E"
    assert str(parse("8E") * 1000) == "8e21"


def test_a_quantity_is_a_value() -> None:
    quantity = parse("5Gi")
    with pytest.raises(AttributeError, match="immutable"):
        quantity.nanos = 0
    assert pickle.loads(pickle.dumps(quantity)) == quantity
    assert repr(quantity) == "Quantity('5Gi')"
    assert parse(quantity) is quantity
    assert quantity
    assert not ZERO
    assert ZERO.is_zero()
    assert float(parse("1500m")) == 1.5
    with pytest.raises(TypeError):
        quantity + 1  # type: ignore[operator]
    with pytest.raises(TypeError):
        _ = quantity < 1  # type: ignore[operator]
    with pytest.raises(TypeError):
        quantity * 1.5  # type: ignore[operator]
