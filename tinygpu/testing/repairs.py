"""Which one statement of a wrong program, written otherwise, would make it right: what the mistake may be.

A statement is changed in one of the ways in which statements are mistaken: operands in another order, another
operation of the same shape, another fill, another window, other rounds. The changed program is lowered and compared
with the reference like the machine's own. That a change helps proves nothing; it says where to look first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tinygpu.expressions import Expr, expr, symbol
from tinygpu.language.instruction import Elementwise
from tinygpu.language.memories import GMEM
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import transform, walk
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.testing.case import Case
from tinygpu.testing.workbench import Allowance, Workbench

# Operations that take each other's place, and values from which sums, products and maxima begin.
OPERATIONS = ("Add", "Sub", "Mul", "Max", "Min", "Div")
NEUTRAL = (0.0, 1.0, float("-inf"), float("inf"))


@dataclass(frozen=True, slots=True, eq=False)
class Repair:
    """One statement written otherwise.

    old   the statement of the program
    new   what takes its place
    says  the change, in words
    """

    old: n.Statement
    new: n.Statement
    says: str


def repairs(program: Program) -> Iterator[Repair]:
    """Every change of one statement that is worth a try: first those of values and order, then windows."""
    listed = list(walk(program.body))
    for s in listed:
        match s:
            case n.Constant():
                yield from (Repair(s, replace(s, value=v), f"value={v}") for v in NEUTRAL if not _is(s.value, v))
            case n.Load():
                yield from (Repair(s, replace(s, fill=v), f"fill={v}") for v in NEUTRAL if not _is(s.fill, v))
            case n.Apply():
                yield from _operands(s, program)
            case n.Combining() if s.merge.plain is not None:
                (step,) = s.merge.steps
                for other in _siblings(s.merge.plain):
                    merge = replace(s.merge, steps=(replace(step, instruction=other),))
                    yield Repair(s, replace(s, merge=merge), f"{other} in place of {s.merge.plain}")
            case n.Repeated():
                yield from _rounds(s)
    for s in listed:
        match s:
            case n.Apply():
                yield from _operations(s)
            case n.Load():
                yield from _windows(s, "source", program)
            case n.Store():
                yield from _windows(s, "target", program)
            case n.Copy():
                yield from _windows(s, "source", program)
                yield from _windows(s, "target", program)


def helpful(case: Case, larger: Case, bench: Workbench, allowance: Allowance) -> tuple[str, ...]:
    """Sentences about the statements that one change makes right, as far as the allowance goes.

    larger  another case that is not right: on a small one a change may help by luck
    """
    program = case.space(bench).program(case.point or {})
    other = larger.space(bench).program(larger.point or {})
    others = list(repairs(other))
    out: dict[str, str] = {}
    for place, repair in enumerate(repairs(program)):
        if allowance.spent:
            break
        text = statement_text(repair.old)
        if text in out or not _right(program, repair, case, bench, seed=0):
            continue
        same = others[place] if place < len(others) and others[place].says == repair.says else None
        if same is None or _right(other, same, larger, bench, seed=1):
            out[text] = f"it would be right with {repair.says} in the statement: {text}"
    return tuple(out.values())


def _right(program: Program, repair: Repair, case: Case, bench: Workbench, seed: int) -> bool:
    """Whether the changed program agrees with the reference."""
    changed = replace(program, body=transform(program.body, lambda s: repair.new if s is repair.old else s))
    try:
        kernel = build(changed, case.problem, case.point or {}, bench.solver).kernel
        return verify(kernel, case.machine, case.problem, orders=("late",), random_inputs=seed > 0, seed=seed).passed
    except Exception:  # a program that nobody wrote may fail in any way
        return False


def statement_text(s: n.Statement) -> str:
    """A statement as `tinygpu show` prints it, in short."""
    match s:
        case n.Apply():
            return f"{s.result} = {s.name} ({s.instruction}) {', '.join(_operand_text(o) for o in s.operands)}"
        case n.Load():
            return f"{s.result} = {s.name} ({s.instruction}) {s.source}"
        case n.Store():
            return f"{s.target} = {s.name} ({s.instruction}) {s.value}"
        case n.Copy():
            return f"{s.target} = {s.name} ({s.instruction}) {s.source}"
        case n.Constant():
            return f"{s.result} = full {_operand_text(s.value)}"
        case n.Combining():
            of = f" ({s.merge.plain})" if s.merge.plain is not None else ""
            made, taken = (", ".join(map(str, tiles)) for tiles in (s.results, s.sources))
            return f"{made} = {s.name}{of} along axis {s.axis} of {taken}"
        case n.Repeated():
            return f"loop {s.index} of {s.trips} rounds"
    return s.headline(frozenset())


def _operand_text(o: Any) -> str:
    return o.name if isinstance(o, n.ScalarArgument) else str(o)


def _is(value: object, number: float) -> bool:
    """Whether a constant is a number; one that dims, indices or a Scalar say is none."""
    return isinstance(value, (int, float)) and value == number


def _operands(s: n.Apply, program: Program) -> Iterator[Repair]:
    """Operands in another order, and another operand in the place of one."""
    for order in itertools.permutations(range(len(s.operands))):
        if list(order) != sorted(order) and len({id(s.operands[i]) for i in order}) > 1:
            moved = tuple(s.operands[i] for i in order)
            yield Repair(s, replace(s, operands=moved), f"operands in the order {', '.join(map(_operand_text, moved))}")
    dims = dict.fromkeys(name for t in program.tensors for name in t.dims)
    for place, o in enumerate(s.operands):
        if isinstance(o, Expr) and not o.is_number:
            for name in dims:
                if not symbol(name).same(o):
                    yield Repair(s, _operand(s, place, symbol(name)), f"{name} in place of {o}")


def _operand(s: n.Apply, place: int, new: Any) -> n.Apply:
    return replace(s, operands=(*s.operands[:place], new, *s.operands[place + 1 :]))


def _siblings(instruction: Elementwise) -> list[Elementwise]:
    """Other operations on the same types."""
    takes, gives = instruction.elements()
    out: list[Elementwise] = []
    for name in OPERATIONS:
        made = getattr(isa, name)
        if len(takes) == 2 and set(takes) == {gives} and gives in made.spelling and type(instruction) is not made:
            out.append(made(gives))
    return out


def _operations(s: n.Apply) -> Iterator[Repair]:
    for other in _siblings(s.instruction):
        yield Repair(s, replace(s, instruction=other), f"{other} in place of {s.instruction}")


def _windows(s: Any, side: str, program: Program) -> Iterator[Repair]:
    """Another place of the window: no shift, axes exchanged, or the index of a loop or the grid where it has none."""
    whole: Tile = getattr(s, side)
    tile = whole.finest

    def moved(offset: tuple[Expr, ...], says: str) -> Repair:
        other = replace(tile, offset=offset)
        return Repair(s, replace(s, **{side: other if whole is tile else replace(whole, apart=other)}), says)

    for axis, o in enumerate(tile.offset):
        constant, _ = o.sympy.expand().as_coeff_Add()
        if constant != 0 and constant.is_Integer:
            yield moved(_at(tile.offset, axis, o - int(constant)), f"{o - int(constant)} in place of {o}")
    if tile.memory is GMEM and len(tile.offset) == 2 and not tile.offset[0].same(tile.offset[1]):
        yield moved(tile.offset[::-1], "its offsets exchanged")
    counted = _counters(program, s)
    for axis, o in enumerate(tile.offset):
        for index, step in counted:
            other = symbol(index) * step
            if not other.same(o):
                yield moved(_at(tile.offset, axis, other), f"{other} in place of {o}")


def _at(offset: tuple[Expr, ...], axis: int, new: Expr) -> tuple[Expr, ...]:
    return (*offset[:axis], new, *offset[axis + 1 :])


def _counters(program: Program, s: n.Statement) -> list[tuple[str, Expr]]:
    """(index, elements per round) of the grid's axes and of the loops around a statement, as offsets name them."""
    found: dict[tuple[str, int], None] = {}
    around = {a.index for a in program.grid.axes} | {
        loop.index
        for loop in walk(program.body)
        if isinstance(loop, n.Repeated) and any(i is s for i in walk((loop,)))
    }
    for other in walk(program.body):
        for tile in (*other.reads, *other.writes):
            for o in tile.finest.offset:
                for node, coefficient in o.sympy.expand().as_coefficients_dict().items():
                    if node.is_Symbol and node.name in around and coefficient.is_Integer and coefficient > 0:
                        found[node.name, int(coefficient)] = None
    for a in program.grid.axes:
        found.setdefault((a.index, int(a.extent)))
    return [(name, expr(step)) for name, step in found]


def _rounds(s: n.Repeated) -> Iterator[Repair]:
    """More rounds: those beyond a tensor touch nothing."""
    if not s.trips.is_number:
        for other, says in ((s.trips + 1, "one round more"), (s.trips * 2 + 1, "twice as many rounds")):
            yield Repair(s, s.with_trips(other), says)
