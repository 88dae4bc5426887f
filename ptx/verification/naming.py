"""Names in a sentence: the first few of them, and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence

NAMED = 3


def some_of(names: Sequence[str]) -> str:
    """The names with commas.

    >>> some_of(["a", "b"]), some_of(["a", "b", "c", "d", "e"])
    ('a, b', 'a, b, c and 2 more')
    """
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"
