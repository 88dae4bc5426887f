"""Moves computed values behind the loops that do not need them, where that frees registers.

Arithmetic is written where its operands are first known (`tinygpu.ptx.lowering.emitter`): before a loop, for what
stands behind it too. The addresses of an epilogue would go through the whole loop in registers of their own, and
assemblers move nothing across a loop. So of all that is needed behind a loop the part that goes through it is chosen,
with the fewest registers (a smallest cut, `tinygpu.ptx.lowering.cut`); the rest is computed of it behind the loop.
What the loop uses goes through it anyway, and parameters cost nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from operator import xor

from tinygpu.ptx.lowering.cut import smallest_cut

_REGISTER = re.compile(r"%[rdphq]\d+")
_BRANCH = re.compile(r"\bbra(?:\.uni)? (\$\w+);")


@dataclass(frozen=True, slots=True)
class _Line:
    """A line, the registers in it, and the label that it is or branches to."""

    text: str
    registers: tuple[str, ...]
    label: str
    branch: str


@dataclass(slots=True)
class _Value:
    """A computed value: the line that computes it, of what, and the lines that use it."""

    line: int
    operands: tuple[str, ...]
    users: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Region:
    """Lines that are gone through again, or skipped: those behind `first`, up to `last`.

    again  whether they are gone through again
    loop   whether they are a loop behind which it is worth moving something
    """

    first: int
    last: int
    again: bool
    loop: bool

    def holds(self, line: int) -> bool:
        return self.first < line <= self.last


@dataclass(frozen=True, slots=True)
class _Text:
    """A kernel's lines, and what is found in them.

    within  of each line the regions that hold it, a bit for each
    """

    lines: list[_Line]
    regions: list[_Region]
    values: dict[str, _Value]
    within: list[int]

    @staticmethod
    def of(lines: list[_Line], pure: Collection[str], loops: str) -> _Text:
        regions = _regions(lines, loops)
        changes = [0] * (len(lines) + 1)
        for number, region in enumerate(regions):
            changes[region.first + 1] ^= 1 << number
            changes[region.last + 1] ^= 1 << number
        return _Text(lines, regions, _values(lines, pure), list(accumulate(changes, xor)))


def behind_loops(lines: list[str], pure: Collection[str], parameters: Collection[str], loops: str) -> list[str]:
    """The lines of a kernel, with some of the computed values further down.

    pure        registers of computed values, each written by one line, before whatever uses it
    parameters  registers that are set before the first line, and cost none in a loop
    loops       what labels of loops begin with that are worth moving something behind
    """
    text = _Text.of([_read(line) for line in lines], pure, loops)
    for label in [line.label for line in text.lines if line.label.startswith(loops)]:
        for outward in range(len(text.regions)):  # the loop, then branches around it, which may skip it
            at = next(i for i, line in enumerate(text.lines) if line.label == label)
            around = list(_outward(text.regions, at))
            if outward >= len(around):
                break
            found = _behind(text, around[outward], parameters)
            if found is not text.lines:
                text = _Text.of(found, pure, loops)
    return [line.text for line in text.lines]


def _read(line: str) -> _Line:
    branch = _BRANCH.search(line) if "bra" in line else None
    label = line.strip()[:-1] if line.startswith("$") else ""
    return _Line(line, tuple(_REGISTER.findall(line)), label, branch[1] if branch is not None else "")


def _outward(regions: list[_Region], label: int) -> Iterator[_Region]:
    """The loop with this label, and the branches around it that skip it, up to the next loop around."""
    inside = next((r for r in regions if r.loop and r.first == label), None)
    while inside is not None:
        yield inside
        at = inside.first
        inside = min((r for r in regions if r.holds(at)), key=lambda r: r.last - r.first, default=None)
        inside = None if inside is not None and inside.loop else inside


def _behind(text: _Text, over: _Region, parameters: Collection[str]) -> list[_Line]:
    """The lines, with what is moved behind one region."""
    lines, values, within = text.lines, text.values, text.within
    around = within[over.first]
    # those that are computed beside the region, and may be so behind it
    beside = {name: v for name, v in values.items() if v.line < over.first and within[v.line] == around}
    needed = {name for name, v in beside.items() if any(u > over.last for u in v.users)}
    if not any(min(beside[name].users) > over.last for name in needed):
        return lines
    computes = {v.line: name for name, v in beside.items()}
    stays: set[str] = set()  # what is computed before the region in any case
    goes_through: set[str] = set(parameters)
    for name, v in reversed(beside.items()):
        by = [u for u in v.users if u <= over.last]
        if any(computes.get(u) is None or computes[u] in stays for u in by):
            stays.add(name)
        if any(o not in values and o not in parameters for o in v.operands):
            stays.add(name)  # an operand may be written again
        if any(over.holds(u) for u in v.users):
            goes_through.add(name)
    again = around & sum(1 << number for number, region in enumerate(text.regions) if region.again)
    for name, v in values.items():  # what is computed outside of a loop that is around is needed in its next round
        if name not in beside and again & ~within[v.line]:
            goes_through.add(name)
    operands = {name: () if name in stays else v.operands for name, v in beside.items()}
    moved = smallest_cut(operands, needed, {n: 0 if n in goes_through else _size(n) for n in values}) - stays
    for name, v in reversed(beside.items()):  # what stays has its operands beside it
        if name not in moved:
            moved -= set(v.operands)
    if not moved:
        return lines
    taken = {beside[name].line for name in moved}
    out = [line for number, line in enumerate(lines[: over.last + 1]) if number not in taken]
    return [*out, *(lines[number] for number in sorted(taken)), *lines[over.last + 1 :]]


def _size(register: str) -> int:
    return 2 if register[1] == "d" else 1


def _values(lines: list[_Line], pure: Collection[str]) -> dict[str, _Value]:
    values: dict[str, _Value] = {}
    for number, line in enumerate(lines):
        used = line.registers
        if used and used[0] in pure and used[0] not in values:
            values[used[0]] = _Value(number, used[1:])
            used = used[1:]
        for register in dict.fromkeys(used):
            if register in values:
                values[register].users.append(number)
    return values


def _regions(lines: list[_Line], loops: str) -> list[_Region]:
    """Between each branch and its label, whichever comes first."""
    labels = {line.label: number for number, line in enumerate(lines) if line.label}
    found = []
    for number, line in enumerate(lines):
        if line.branch and (label := labels.get(line.branch)) is not None:
            again = label < number
            of = again and line.branch.startswith(loops)
            found.append(_Region(min(label, number), max(label, number), again, of))
    return found
