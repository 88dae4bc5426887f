"""Marks: which statement printed which line of a kernel, and where the indices of its loops were then.

A variant of the kernel has a comment behind every line; nothing else of it changes. It is made when a line has to be
located, and a kernel that ships has no marks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering.context import Context

_MARK = re.compile(r" //@(\d*)((?: [\w.]+=\w+)*)$")


@dataclass(frozen=True, slots=True, eq=False)
class Printed:
    """The statement that printed a line.

    indices  those of the grid and of the loops around, the outermost first: a number, or the register that holds it
    """

    statement: n.Statement
    indices: Mapping[str, int | str]


def mark(context: Context, numbers: Mapping[int, int]) -> str:
    """The comment behind what is printed now; registers without their %, so that nothing takes it for their use.

    numbers  of the statements, by identity
    """
    if context.under_way is None:
        return " //@"
    indices = "".join(f" {name}={str(at).lstrip('%')}" for name, at in context.indices.items())
    return f" //@{numbers[id(context.under_way)]}{indices}"


def printed(program: Program, marked: str, ptx: str) -> dict[int, Printed]:
    """Line of a kernel, from 1 -> what printed it; nothing where the marked text is not that of the kernel.

    marked  the kernel with marks
    ptx     the kernel
    """
    statements = list(walk(program.body))
    found: dict[int, Printed] = {}
    lines: list[str] = []
    waiting: list[int] = []  # lines of a text of several: the mark is behind the last of them
    for number, line in enumerate(marked.split("\n"), 1):
        match = _MARK.search(line)
        lines.append(line[: match.start()] if match else line)
        waiting.append(number)
        if match is None:
            continue
        if match[1]:
            pairs = (pair.split("=") for pair in match[2].split())
            indices = {name: int(at) if at.isdigit() else f"%{at}" for name, at in pairs}
            found |= dict.fromkeys(waiting, Printed(statements[int(match[1])], indices))
        waiting = []
    return found if "\n".join(lines) == ptx else {}


__all__ = ["Printed", "mark", "printed"]
