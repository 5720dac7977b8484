"""What may have been meant by a name that is not known."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`; did you mean A or B?` of the known names that are most like it; empty where none is.

    Case does not count. `cutoff` is the least similarity, from 0 to 1.
    """
    from difflib import get_close_matches  # of use for errors only

    folded = {each.casefold(): each for each in known}
    close = get_close_matches(name.casefold(), folded, n=2, cutoff=cutoff)
    return f"; did you mean {' or '.join(folded[found] for found in close)}?" if close else ""
