"""Fragments that a warp loads just before the products that take them.

The loads of what one product takes from shared memory are put off until it takes them: of its two operands one is
held, and of the other one as much as one instruction loads. Lowering writes them so; the registers of a thread are
counted so, with one more load, which assemblers put ahead.
"""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.language.instruction import MatrixLoad
from tinygpu.language.memories import RMEM
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.statement import Statement
from tinygpu.program.tree import walk


def loads_fragments(s: Statement) -> bool:
    """Whether a statement is a load that is put off."""
    return isinstance(s, n.Load) and isinstance(s.instruction, MatrixLoad)


def goes_on(s: Statement) -> bool:
    """Whether loads before a statement may be put off beyond it: other such loads, and products of registers."""
    of_registers = isinstance(s, n.Multiply) and all(t.memory is RMEM for t in (s.a, s.b, s.accumulator))
    return of_registers or loads_fragments(s)


def fed(body: tuple[Statement, ...]) -> Iterator[tuple[Tile, ...]]:
    """The operands of each product, one or two, whose loads are put off until it takes them, in the order of the loads.

    They are loaded in the same block, with nothing else between, and nobody else reads them.
    """
    readers: dict[str, int] = {}
    for s in walk(body):
        for t in s.reads:
            readers[t.name] = readers.get(t.name, 0) + 1
    yield from _fed(body, readers)


def _fed(body: tuple[Statement, ...], readers: dict[str, int]) -> Iterator[tuple[Tile, ...]]:
    put_off: dict[str, Tile] = {}
    for s in body:
        if not goes_on(s):
            put_off.clear()
        if loads_fragments(s):
            put_off |= {t.name: t for t in s.writes}
        elif isinstance(s, n.Multiply):
            taken = {t.name for t in (s.a, s.b) if t.part is None and readers[t.name] == 1}
            if found := tuple(t for name, t in put_off.items() if name in taken):
                yield found
        for inner in s.children:
            yield from _fed(inner.statements, readers)
