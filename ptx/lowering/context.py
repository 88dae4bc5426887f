"""What lowering knows while it writes one kernel: the filled-in program, its arguments, and the values of indices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import sympy

from tinygpu.expressions import Expr, FloorDiv, Remainder, symbol
from tinygpu.program import nodes as n
from tinygpu.program.placement import Placement
from tinygpu.program.spread import Spread
from tinygpu.ptx.lowering.emitter import Emitter, Number, Reg
from tinygpu.ptx.lowering.registers import RegisterTile


class LoweringError(Exception):
    """A program that cannot be written as PTX, with the sentence that says why."""


@dataclass(slots=True)
class Facts:
    """What a kernel may rely on, and what it did rely on: divisibility of dims, leading dimensions and pointers."""

    values: dict[str, int]
    used: dict[tuple[str, int], None] = field(default_factory=dict)

    def divides(self, divisor: int, name: str) -> bool:
        """Whether the problem's `name` is a multiple of `divisor`; if so the kernel is specialised for it."""
        if divisor <= 1:
            return True
        if self.values[name] % divisor:
            return False
        self.used[(name, divisor)] = None
        return True


@dataclass(slots=True, eq=False)
class Context:
    """The state of lowering one program."""

    program: n.Program
    facts: Facts
    placement: Placement
    emit: Emitter = field(default_factory=Emitter)
    arguments: dict[str, Reg] = field(default_factory=dict)  # dims, NAME.ptr, NAME.ld and scalars
    indices: dict[str, Number] = field(default_factory=dict)  # tile numbers and loop counters
    index_limits: dict[str, int] = field(default_factory=dict)  # largest value of a loop counter, where known
    spans: dict[str, tuple[str, int]] = field(default_factory=dict)  # index -> (dim that it counts through, step)
    tiles: dict[str, RegisterTile] = field(default_factory=dict)
    slots: dict[str, Number] = field(default_factory=dict)  # pipeline -> slot in use (a number or a register)
    slot_offsets: dict[tuple[str, str], Number] = field(default_factory=dict)
    thread: Reg | None = None  # thread id within the role
    role: str = ""
    threads: int = 0  # threads of the role
    loops: int = 0  # run-time loops around the current place
    dirty: bool = False  # shared memory was used since the last barrier

    def number(self, e: Expr) -> Number:
        """The run-time value of an expression over dims, tensor facts and indices, in 32 bits."""
        return self._number(e.sympy)

    def _number(self, node: Any) -> Number:
        emit = self.emit
        if node.is_Integer:
            return int(node)
        if node.is_Symbol:
            if node.name in self.indices:
                return self.indices[node.name]
            if node.name in self.arguments:
                return self.arguments[node.name]
            raise LoweringError(f"{node.name} has no value here")
        if node.is_Add:
            total: Number = 0
            for arg in sorted(node.args, key=lambda a: a.is_Integer):
                total = emit.add(total, self._number(arg))
            return total
        if node.is_Mul:
            product: Number = 1
            for arg in node.args:
                product = emit.mul(product, self._number(arg))
            return product
        if isinstance(node, FloorDiv):
            return emit.div(self._number(node.args[0]), self._number(node.args[1]))
        if isinstance(node, Remainder):
            return emit.rem(self._number(node.args[0]), self._number(node.args[1]))
        if isinstance(node, sympy.Min):
            out = self._number(node.args[0])
            for arg in node.args[1:]:
                out = emit.minimum(out, self._number(arg))
            return out
        raise LoweringError(f"{node} cannot be computed in a kernel")

    def value(self, name: str) -> Number:
        """The run-time value of an index or a dim."""
        return self._number(symbol(name).sympy)

    def affine(self, e: Expr) -> tuple[int, tuple[tuple[str, int], ...]]:
        """An offset as (constant, ((index, coefficient), ...)); indices that are numbers by now are folded in."""
        constant, terms = 0, []
        for node, coefficient in e.sympy.as_coefficients_dict().items():
            if node == sympy.S.One:
                constant += int(coefficient)
                continue
            if not node.is_Symbol:
                raise LoweringError(f"the offset {e} is not a sum of multiples of indices")
            value = self.indices.get(node.name, None)
            if isinstance(value, int):
                constant += int(coefficient) * value
            else:
                terms.append((node.name, int(coefficient)))
        return constant, tuple(sorted(terms))

    def thread_digit_sum(self, spread: Spread, axis: int) -> Number:
        """The part of the coordinate along `axis` that the thread id decides."""
        if self.thread is None:
            raise LoweringError("no role is open")
        total: Number = 0
        below = 1
        for extent, a, stride in spread.threads:
            if a == axis:
                digit = self.emit.div(self.thread, below)
                if below * extent != self.threads:
                    digit = self.emit.rem(digit, extent)
                total = self.emit.add(total, self.emit.mul(digit, stride))
            below *= extent
        return total
