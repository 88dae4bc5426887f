"""Random edits of PTX text, of the kinds in which a lowering goes wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

REGISTER = re.compile(r"%([a-z]+)\d+\b")
NUMBER = re.compile(r"(?<![\w%$.])\d+(?![\w.])")
GUARD = re.compile(r"@!?%p\d+ ")


@dataclass(frozen=True, slots=True)
class Edit:
    """One edited kernel: the statement before and after ("" where it was dropped)."""

    before: str
    after: str
    text: str

    def __str__(self) -> str:
        return f"{self.before}  ->  {self.after or 'dropped'}"


Editor: TypeAlias = Callable[[str, np.random.Generator], "Edit | None"]


def drop(mark: str) -> Editor:
    """Drops one of the statements that contain `mark`."""

    def edit(ptx: str, rng: np.random.Generator) -> Edit | None:
        return _replace(ptx, rng, lambda line: mark in line, lambda line: "")

    return edit


def swap_register(ptx: str, rng: np.random.Generator) -> Edit | None:
    """Names another register of the same kind."""
    known = sorted({m[0] for line in _statements(ptx) for m in REGISTER.finditer(ptx.split("\n")[line])})

    def swapped(line: str) -> str:
        found = list(REGISTER.finditer(line))
        one = found[int(rng.integers(len(found)))]
        others = [r for r in known if r != one[0] and REGISTER.fullmatch(r)[1] == one[1]]  # type: ignore[index]
        return line[: one.start()] + str(rng.choice(others)) + line[one.end() :] if others else line

    return _replace(ptx, rng, lambda line: REGISTER.search(line) is not None, swapped)


def off_by_one(ptx: str, rng: np.random.Generator) -> Edit | None:
    """Adds or takes away one from an immediate or an offset (not from the bits of a constant that `mov` loads)."""

    def moved(line: str) -> str:
        found = list(NUMBER.finditer(line))
        one = found[int(rng.integers(len(found)))]
        value = int(one[0])
        new = value + 1 if value == 0 or rng.integers(2) else value - 1
        return f"{line[: one.start()]}{new}{line[one.end() :]}"

    def fits(line: str) -> bool:
        return NUMBER.search(line) is not None and "bar.sync" not in line and "mov.b" not in line

    return _replace(ptx, rng, fits, moved)


def drop_predicate(ptx: str, rng: np.random.Generator) -> Edit | None:
    """Makes a guarded statement unconditional."""
    return _replace(ptx, rng, lambda line: GUARD.search(line) is not None, lambda line: GUARD.sub("", line, count=1))


EDITORS: Mapping[str, Editor] = {
    "barrier": drop("bar.sync"),
    "wait": drop("cp.async.wait"),
    "register": swap_register,
    "number": off_by_one,
    "predicate": drop_predicate,
}


def _statements(ptx: str) -> list[int]:
    """Numbers of the lines that hold a statement of the kernel's body."""
    lines = ptx.split("\n")
    start = lines.index("{")
    return [
        number
        for number, line in enumerate(lines)
        if number > start and line.strip().endswith(";") and not line.strip().startswith((".", "//"))
    ]


def _replace(
    ptx: str, rng: np.random.Generator, fits: Callable[[str], bool], change: Callable[[str], str]
) -> Edit | None:
    lines = ptx.split("\n")
    places = [n for n in _statements(ptx) if fits(lines[n])]
    if not places:
        return None
    place = int(rng.choice(places))
    new = change(lines[place])
    if new == lines[place]:
        return None
    edited = [*lines[:place], *([new] if new else []), *lines[place + 1 :]]
    return Edit(lines[place].strip(), new.strip(), "\n".join(edited))
