"""Every edit of a kernel's PTX that breaks a ring: a wait, an arrival, a phase or a slot is not what it was."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ptx_edits import Edit

WAIT = re.compile(r"mbarrier\.(try|test)_wait")
ARRIVAL = re.compile(r"mbarrier\.arrive|cp\.async\.(bulk\.)?commit_group|wgmma\.commit_group")
LANDING = re.compile(r"cp\.async\.(bulk\.)?wait_(group|all)|wgmma\.wait_group")
FLIP = re.compile(r"xor\.b32 (%r\d+), \1, (1|%r\d+);")
WRAP = re.compile(r"setp\.eq\.u32 (%p\d+), (%r\d+), (\d+);")
ENDS = re.compile(r"(div|rem)\.u32 %r\d+, %r\d+, (\d+);")


def ring_edits(ptx: str) -> Iterator[tuple[str, Edit]]:
    """(kind, edit) of every wait, retry, arrival, landing, flip, wrap and skip in the kernel's text."""
    lines = ptx.split("\n")
    flipped = {m[1] for line in lines if (m := FLIP.search(line))}
    for number, line in enumerate(lines):
        statement = line.strip()
        if WAIT.search(statement):
            yield "wait", _edited(lines, number, number + 2, [])
            yield "retry", _edited(lines, number + 1, number + 2, [])
        elif ARRIVAL.search(statement):
            yield "arrival", _edited(lines, number, number + 1, [])
        elif LANDING.search(statement):
            yield "landing", _edited(lines, number, number + 1, [])
        elif FLIP.search(statement):
            yield "flip", _edited(lines, number, number + 1, [])
        elif (wrap := WRAP.search(statement)) and number + 1 < len(lines):
            slot = wrap[2]
            if lines[number + 1].strip() == f"selp.b32 {slot}, 0, {slot}, {wrap[1]};":
                yield from _wrapped(lines, number, int(wrap[3]))
        elif (ends := ENDS.search(statement)) and _skips(lines, number, flipped):
            for other in (int(ends[2]) - 1, int(ends[2]) + 1):
                if other:
                    yield "skip", _edited(lines, number, number + 1, [line.replace(f", {ends[2]};", f", {other};")])


def _wrapped(lines: list[str], number: int, stages: int) -> Iterator[tuple[str, Edit]]:
    """The slots end one sooner or later, never, or stand still."""
    for other in (stages - 1, stages + 1):
        if other:
            yield "wrap", _edited(lines, number, number + 1, [lines[number].replace(f", {stages};", f", {other};")])
    yield "wrap", _edited(lines, number + 1, number + 2, [])
    yield "wrap", _edited(lines, number - 1, number, [])


def _skips(lines: list[str], number: int, flipped: set[str]) -> bool:
    """Whether a division passes over slots: a phase is flipped by what comes of it, some lines below."""
    return any((m := FLIP.search(line)) and m[1] in flipped and m[2] != "1" for line in lines[number : number + 5])


def _edited(lines: list[str], first: int, end: int, new: list[str]) -> Edit:
    text = "\n".join([*lines[:first], *new, *lines[end:]])
    return Edit(" ".join(line.strip() for line in lines[first:end]), " ".join(n.strip() for n in new), text)
