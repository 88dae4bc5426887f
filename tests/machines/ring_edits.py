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
USE = re.compile(r"ldmatrix|ld\.shared|wgmma\.mma_async|mbarrier\.arrive\.expect_tx|cp\.async\.bulk\.tensor")
DONE = re.compile(r"ldmatrix|ld\.shared|wgmma\.wait_group")
FENCE = re.compile(r"fence\.|wgmma\.fence|bar\.(warp\.)?sync")
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


def handover_edits(ptx: str) -> Iterator[tuple[str, Edit]]:
    """(kind, edit) of what is there, but not as it should be: counts, phases, bytes, places, and the order of lines."""
    lines = ptx.split("\n")
    flipped = {m[1] for line in lines if (m := FLIP.search(line))}
    for number, line in enumerate(lines):
        statement = line.strip()
        if (start := re.fullmatch(r"mov\.u32 (%r\d+), ([01]);", statement)) and start[1] in flipped:
            yield "phase", _edited(lines, number, number + 1, [f"mov.u32 {start[1]}, {1 - int(start[2])};"])
        elif count := re.search(r"mbarrier\.init.*, (\d+);", statement):
            for other in (int(count[1]) - 1, int(count[1]) + 1):
                if other:
                    new = line.replace(f", {count[1]};", f", {other};")
                    yield "count", _edited(lines, number, number + 1, [new])
        elif WAIT.search(statement):
            yield "neighbour", _edited(lines, number, number + 1, [re.sub(r"\[(%r\d+)\]", r"[\1+8]", line, count=1)])
            yield from _moved("late wait", lines, number - 1, number + 2, _next(lines, number + 2, USE))
        elif "mbarrier.arrive" in statement:
            yield "neighbour", _edited(lines, number, number + 1, [re.sub(r"\[(%r\d+)\]", r"[\1+8]", line, count=1)])
            if statement.startswith("@"):
                yield "lanes", _edited(lines, number, number + 1, [statement.split(" ", 1)[1]])
            if size := re.search(r"expect_tx.*, (\d+);", statement):
                for other in (int(size[1]) - 16, int(size[1]) + 16, 2 * int(size[1])):
                    yield "bytes", _edited(lines, number, number + 1, [line.replace(f", {size[1]};", f", {other};")])
            else:
                done = _last(lines, number, DONE)
                if done is not None:
                    yield from _moved("early release", lines, done, done + 1, number)
        elif wait := re.search(r"wait_group(?:\.read|\.sync\.aligned)? (\d+);", statement):
            later = line.replace(f" {wait[1]};", f" {int(wait[1]) + 1};")
            yield "late landing", _edited(lines, number, number + 1, [later])
        elif statement.startswith("mapa"):
            own = re.sub(r"mapa\S* (\S+), (\S+), \S+;", r"mov.u32 \1, \2;", line)
            yield "hop", _edited(lines, number, number + 1, [own])
        elif statement.startswith("barrier.cluster.arrive"):
            yield "fence", _edited(lines, number, number + 2, [])
        elif FENCE.match(statement):
            yield "fence", _edited(lines, number, number + 1, [])


def _next(lines: list[str], number: int, wanted: re.Pattern[str]) -> int | None:
    """The next line that matches, in the same straight piece of code."""
    for at in range(number, len(lines)):
        if wanted.search(lines[at]):
            return at
        if " bra " in lines[at] or lines[at].startswith("$"):
            return None
    return None


def _last(lines: list[str], number: int, wanted: re.Pattern[str]) -> int | None:
    """The last line before that matches, in the same straight piece of code."""
    for at in range(number - 1, -1, -1):
        if wanted.search(lines[at]):
            return at
        if " bra " in lines[at] or lines[at].startswith("$"):
            return None
    return None


def _moved(kind: str, lines: list[str], first: int, end: int, behind: int | None) -> Iterator[tuple[str, Edit]]:
    """Lines that come too late: behind another one."""
    if behind is not None:
        piece = lines[first:end]
        text = "\n".join([*lines[:first], *lines[end : behind + 1], *piece, *lines[behind + 1 :]])
        yield kind, Edit(" ".join(line.strip() for line in piece), f"behind {lines[behind].strip()}", text)
