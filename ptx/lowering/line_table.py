"""The line table of a kernel: which statement of its program printed which line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

from tinygpu.language.problem import Problem
from tinygpu.program.placement import Swizzles
from tinygpu.program.program import Program
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import Built
from tinygpu.ptx.lowering.lower import marked
from tinygpu.ptx.lowering.marks import Printed, printed


@dataclass(frozen=True, eq=False)
class LineTable:
    """The lines of one kernel; it is lowered once more, with marks, when a line is first asked for."""

    program: Program
    swizzles: Swizzles
    kernel: Kernel
    problem: Problem

    @classmethod
    def of(cls, built: Built, problem: Problem) -> Self:
        """Of a candidate's kernel; `problem` is the one that it was built for."""
        return cls(built.program, built.layouts.swizzles, built.kernel, problem)

    @cached_property
    def lines(self) -> dict[int, Printed]:
        """Line, from 1 -> what printed it."""
        text = marked(self.program, self.problem, dict(self.kernel.point), self.swizzles)
        return printed(self.program, text, self.kernel.ptx)

    def place(self, line: int | None) -> str:
        """`saxpy.py:24`, of the statement that printed a line; "" for no line, and for one of no statement."""
        found = self.lines.get(line) if line is not None else None
        return found.statement.place if found is not None else ""


__all__ = ["LineTable"]
