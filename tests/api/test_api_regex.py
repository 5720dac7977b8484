"""Regular expressions of users: Go's syntax, matches as Go finds them, bounded work."""

from __future__ import annotations

import pytest

from pykueue.api.regex import MAX_SEARCHED, Regex, RegexError


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("a*", "baac", ["", "aa", ""]),
        ("[0-9]+", "a1b22", ["1", "22"]),
        ("(a)(b)?", "aba", ["ab", "a"]),
        ("(?i)É", "éÉ", ["é", "É"]),
        ("x", "", []),
        ("x", "\ud800x", []),
    ],
)
def test_matches_are_found_as_go_finds_them(pattern: str, text: str, found: list[str]) -> None:
    assert Regex(pattern).find_all(text) == found
    assert Regex(pattern).find_all(text, 1) == found[:1]
    assert Regex(pattern).matches(text) is bool(found)


@pytest.mark.parametrize("pattern", ["(", "a**", "(?=x)", "(a)\\1", "\ud800", "((a{100}){100}){100}"])
def test_patterns_beyond_the_syntax_or_too_large_are_refused(pattern: str) -> None:
    with pytest.raises(RegexError, match=r".+"):
        Regex(pattern)


def test_nested_repetitions_take_linear_time() -> None:
    assert not Regex("(.+)+Q").matches("a" * 1_000_000)


def test_many_matches_that_each_look_at_the_rest_are_refused() -> None:
    length = int((2 * MAX_SEARCHED) ** 0.5) + 10
    with pytest.raises(RegexError, match="too many matches"):
        Regex("a.*b|a").find_all("a" * length)
