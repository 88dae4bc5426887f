"""What a role does in steps, each of which begins when all of the one before is done: reductions make them.

A maximum is known when all that it is of has come, and what is made of it for every element comes behind: comparisons
of some scores and the exponentials of the same scores never overlap, however many lanes there are. Within a step the
assembler interleaves elements, and its busiest unit counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tinygpu.cost.operations import Operations, Tally
from tinygpu.expressions import Expr, expr
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.program import BRANCH_PARTS, Program


@dataclass(slots=True)
class Steps:
    """The steps of one stretch of a role.

    count  how many there are
    after  value -> the step in which it is there
    """

    count: int = 1
    after: dict[str, int] = field(default_factory=dict)

    def step(self, s: n.Statement) -> int:
        """That of a statement; its results are there in the same one, those of a reduction in the next.

        A step begins where a result is spread over a tile again: what is done with the few values alone takes no time
        to speak of.
        """
        number = max((self.after.get(tile.name, 0) for tile in s.reads), default=0)
        for tile in s.writes:
            self.after[tile.name] = max(self.after.get(tile.name, 0), number + isinstance(s, n.Reduce))
        if not isinstance(s, n.Reduce) and any(_spread(a, b) for a in s.reads for b in s.writes):
            self.count = max(self.count, number + 1)
        return min(number, self.count - 1)


def _spread(a: Tile, b: Tile) -> bool:
    """Whether one value of the first tile becomes several of the second."""
    pairs = zip(a.shape, b.shape, strict=False)
    return len(a.shape) == len(b.shape) and any(x.same(1) and not y.same(1) for x, y in pairs)


def row_of(loop: n.Repeated, operations: Operations) -> tuple[Tally, ...]:
    """What a role does in a round of a loop, step by step; where it waits, another one begins."""
    row = _Row(operations)
    row.write(loop.body if isinstance(loop, n.Loop) else (), expr(1))
    return tuple(row.done + row.open)


@dataclass(slots=True)
class _Row:
    """done  steps before the last wait; open  those since then"""

    operations: Operations
    steps: Steps = field(default_factory=Steps)
    done: list[Tally] = field(default_factory=list)
    open: list[Tally] = field(default_factory=list)

    @property
    def program(self) -> Program:
        return self.operations.program

    def write(self, body: Sequence[n.Statement], times: Expr) -> None:
        for s in body:
            taken = self.program.taken_of(s)
            if not taken.same(BRANCH_PARTS):
                inside = _Row(self.operations, self.steps)
                for part in s.children:
                    inside.write(part.statements, times)
                for number, tally in enumerate((*inside.done, *inside.open)):
                    self._at(number).take(tally, taken)
                continue
            if s.instructions or not s.children:
                self.operations.add(s, self._at(self.steps.step(s)), times, True)
            rounds = self.program.rounds_of(s) if isinstance(s, n.Repeated) else expr(1)
            for part in s.children:
                if part.consumes or part.produces:
                    self._wait()
                    self._at(0).wait("barriers", 2 * times)  # for the slot, and for who has it next
                self.write(part.statements, times * rounds)
                if part.consumes or part.produces:
                    self._wait()

    def _at(self, number: int) -> Tally:
        while len(self.open) <= number:
            self.open.append(Tally())
        return self.open[number]

    def _wait(self) -> None:
        self.done += self.open
        self.open, self.steps = [], Steps()


__all__ = ["Steps", "row_of"]
