"""Fills a candidate's numbers into a program: the arrow from Candidate to Program.

Parameters become numbers; dims, tensor facts and loop indices stay symbols, because they are known at launch only. All
expressions of a program that need nothing but parameters are compiled once per structure into one function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from tinygpu.expressions import Expr, compile_scalars, symbol
from tinygpu.program.program import Program
from tinygpu.program.tree import expressions, replace_expressions


@dataclass(frozen=True, slots=True, eq=False)
class Filler:
    """A program prepared for many candidates: its expressions in order, and which of them are plain numbers."""

    program: Program
    names: frozenset[str]
    closed: tuple[Expr, ...]
    compute: Callable[[Mapping[str, Any]], tuple[Any, ...]]

    def fill(self, values: Mapping[str, int]) -> Program:
        """The program with every parameter replaced by its value."""
        missing = sorted(self.names - set(values))
        if missing:
            raise ValueError(f"{self.program.machine} needs a value for {', '.join(missing)}")
        computed = map(sympy.Integer, self.compute(values))
        numbers = {e.sympy: Expr(v) for e, v in zip(self.closed, computed, strict=True)}
        table = {symbol(k).sympy: sympy.Integer(values[k]) for k in self.names}

        def number(e: Expr) -> Expr:
            known = numbers.get(e.sympy)
            if known is not None:
                return known
            return Expr(e.sympy.xreplace(table)) if e.symbols & self.names else e

        filled: Program = replace_expressions(self.program, number)
        return filled


def filler(program: Program, names: frozenset[str]) -> Filler:
    """Prepares `program` whose parameters are `names`."""
    used: set[str] = set()
    closed: dict[Any, Expr] = {}
    for e in expressions(program):
        used |= e.symbols & names
        if e.symbols and e.symbols <= names:
            closed[e.sympy] = e
    listed = tuple(closed.values())
    return Filler(program, frozenset(used), listed, compile_scalars(*listed))
