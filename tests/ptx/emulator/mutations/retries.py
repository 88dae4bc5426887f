"""Loops that try again until something has happened: what is tried, and which branches go back to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mutations.statements import Statement

_WEAK = re.compile(r"(ld|mov|setp|set|selp|cvt|cvta|and|or|xor|not|add|sub|sh[lr]|bra|nanosleep|elect|fence|membar)\b")
_STRONG = {"volatile", "relaxed", "acquire"}


def _tries(s: Statement) -> bool:
    """Whether what this statement finds depends on when it is carried out."""
    if s.has("mbarrier") and {"try_wait", "test_wait"} & set(s.parts):
        return True
    return s.parts[0] == "atom" or (s.parts[0] == "ld" and bool(_STRONG & set(s.parts)))


def attempt(text: str, body: Sequence[Statement], line: int) -> Statement:
    """What the branch back on a line tries again."""
    return [s for s in body if _tries(s) and text.count("\n", 0, s.start) + 1 <= line][-1]


def retries(text: str, body: Sequence[Statement]) -> Iterator[tuple[Statement, ...]]:
    """Per attempt, all branches back to it of loops that do nothing but try.

    Without them the first attempt would have to succeed. Where a library tries in a hurry first and then at leisure,
    two branches go back to one attempt: without either alone, it is still tried again.
    """
    back: dict[int, list[Statement]] = {}
    for at, branch in enumerate(body):
        if branch.parts[0] != "bra":
            continue
        label = re.compile(rf"(?<![\w$%]){re.escape(branch.operands[0])}\s*:(?!:)")
        target = max((m.start() for m in label.finditer(text, body[0].start - 200, branch.start)), default=None)
        if target is None:
            continue
        loop = [s for s in body[:at] if s.start > target]
        tried = [s for s in loop if _tries(s)]
        if tried and all(_tries(s) or _WEAK.match(s.name) for s in loop):
            back.setdefault(tried[0].start, []).append(branch)
    yield from (tuple(branches) for branches in back.values())
