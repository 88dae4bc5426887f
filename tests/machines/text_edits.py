"""Edits of a kernel's text that break it: a line left out, something else in its place."""

from __future__ import annotations

import re
from collections.abc import Callable

TextEdit = Callable[[str], str]


def without(pattern: str, which: int = 0) -> TextEdit:
    """The text without one line; of a wait, without going back to it as well."""

    def edit(ptx: str) -> str:
        lines = ptx.splitlines()
        found = [i for i, line in enumerate(lines) if re.search(pattern, line)]
        assert len(found) > which, pattern
        at = found[which]
        lines[at : at + 1 + ("try_wait" in lines[at])] = [""]
        return "\n".join(lines)

    return edit


def exchanged(old: str, new: str) -> TextEdit:
    """The text with the first of what a pattern finds as the other says."""

    def edit(ptx: str) -> str:
        text, times = re.subn(old, new, ptx, count=1)
        assert times, old
        return text

    return edit
