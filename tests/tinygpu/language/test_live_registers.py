"""Registers that live at once, against rounds that are written out: what is needed later, statement by statement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tinygpu.program.merges import reduce_of
from tinygpu.dtypes import dtype
from tinygpu.expressions import evaluate
from tinygpu.language import Dim, E, Input, Layout, Machine, Output, Param, Partition, Route, blocked
from tinygpu.language.live_registers import live_registers
from tinygpu.language.memories import GMEM, RMEM, SMEM, TMEM
from tinygpu.language.partition import expr
from tinygpu.language.roles import Token
from tinygpu.language.tile import Tile
from tinygpu.language.trace import trace
from tinygpu.program import nodes as n
from tinygpu.ptx import isa

ADD, FMA, LD, ST = isa.Add("f32"), isa.Fma("f32"), isa.LdGlobal(1), isa.StGlobal(1)
ROUTE = Route(LD, isa.StShared(1))


def of(values: int) -> Partition:
    return Partition((expr(32 * values),), Layout((32, values), (values * E(0), E(0))))


def tile(name: str, values: int, kind: str = "f32", memory: Any = RMEM) -> Tile:
    who = of(values)
    return Tile(name, memory, dtype(kind), who.shape, (expr(0),), partition=who if memory is RMEM else None)


def registers(t: Tile) -> int:
    return -(-int(t.partition.value_count) * t.dtype.bits // 32) if t.partition is not None else 0


ELSEWHERE = tile("x", 1, memory=GMEM)


@dataclass
class Event:
    """One statement that is carried out.

    makes  a tile, in registers of its own or in those of an operand that is not needed any more
    uses   tiles that it reads
    beside registers that it takes beside
    fresh  whether what is made may take the place of an operand
    """

    makes: Tile | None = None
    uses: list[Tile] = field(default_factory=list)
    beside: int = 0
    fresh: bool = False
    fixes_up: bool = False


def events(body: tuple[n.Statement, ...], beside: int = 0) -> Iterator[Event]:
    """In order, with two rounds of every loop; beside: registers that are taken all the while."""
    for s in body:
        match s:
            case n.Constant() | n.Load():
                yield Event(s.result, [], beside)
            case n.Apply():
                yield Event(s.result, [o for o in s.operands if isinstance(o, Tile)], beside, True)
            case n.Reduce():
                yield Event(s.results[0], [*s.sources], beside)
            case n.Store():
                yield Event(None, [s.value], beside)
            case n.Multiply():
                yield Event(None, [s.a, s.b, s.accumulator], beside)
            case n.Copy():
                taken = -(-int(s.partition.value_count) * s.source.dtype.bits // 32) if s.partition is not None else 0
                yield Event(None, [], beside + (taken if isinstance(s.instruction, Route) else 0))
            case n.FixUp():
                yield Event(s.result, [s.value], beside, fixes_up=True)
                yield from events(s.body, beside)
            case n.Loop():
                for _ in range(2):
                    yield from events(s.body, beside)
            case n.Pipelined():
                copies = tuple(c for c in s.produce if isinstance(c, n.Copy))
                taken = sum(e.beside for e in events(copies))
                for _ in range(2):
                    yield from events(tuple(f for f in s.produce if f not in copies), beside)
                    yield from events(s.consume, beside + taken)
            case n.Scope() | n.Produce() | n.Consume() | n.InRole():
                yield from events(s.body, beside)


def most(body: tuple[n.Statement, ...]) -> int:
    listed = list(events(body))
    sizes = {
        t.name: registers(t)
        for e in listed
        for t in (*e.uses, *([e.makes] if e.makes is not None else []))
        if t.memory is RMEM
    }
    after: set[str] = set()
    peak = 0
    for e in reversed(listed):
        uses = {t.name for t in e.uses if t.memory is RMEM}
        made = {e.makes.name} if e.makes is not None and e.makes.memory is RMEM else set()
        before = (after - made) | uses
        if e.fixes_up:
            held = (before - uses) | made | (uses & after)
            taken = sum(sizes[name] for name in held) + 4
        else:
            placed = e.fresh and e.makes is not None and not made <= before
            placed = placed and any(name not in after and sizes[name] == sizes[e.makes.name] for name in uses)
            taken = sum(sizes[name] for name in before | (set() if placed else made))
        peak = max(peak, taken + e.beside)
        after = before
    return peak


MAKING = ["load", "constant", "copy"]
USING = ["apply", "into", "reduce", "store", "multiply"]
AROUND = ["loop", "unrolled", "pipelined", "scope", "fix_up"]


@dataclass
class Bodies:
    """Draws bodies in which every value is used: at the end of its block at the latest."""

    draw: Any
    number: int = 0

    def new(self) -> Tile:
        self.number += 1
        kind = self.draw(st.sampled_from(["f32", "f32", "f16", "s8"]))
        return tile(f"v{self.number}", self.draw(st.integers(1, 5)), kind)

    def body(self, around: list[Tile], depth: int) -> tuple[n.Statement, ...]:
        out: list[n.Statement] = []
        mine: list[Tile] = []
        unused: list[Tile] = []
        for _ in range(self.draw(st.integers(1, 4))):
            seen = [*around, *mine]
            kinds = MAKING + (USING if seen else []) + (AROUND if depth < 2 else [])
            kind = self.draw(st.sampled_from(kinds))
            picked = [self.draw(st.sampled_from(seen)) for _ in range(2)] if seen else []
            if kind in ("load", "constant", "apply", "reduce"):
                made = self.new()
                out.append(self.making(kind, made, picked))
                mine.append(made)
                unused.append(made)
            elif kind == "copy":
                route = self.draw(st.booleans())
                out.append(self.copied(route))
            elif kind == "into":
                out.append(n.Apply("add", ADD, (*picked, 1.0), picked[0]))
            elif kind == "store":
                out.append(n.Store("st", ST, picked[0], ELSEWHERE))
            elif kind == "multiply":
                out.append(n.Multiply("mma", isa.MmaSync(), picked[0], self.draw(st.sampled_from(seen)), picked[1]))
            elif kind == "fix_up":
                if not mine:
                    continue
                made = self.new()
                value = mine.pop(self.draw(st.integers(0, len(mine) - 1)))
                inner = self.body([*around, *mine, made], depth + 1)
                out.append(n.FixUp("add", ADD, ST, LD, value, made, (*inner, n.Store("st", ST, made, ELSEWHERE))))
                unused = [u for u in unused if u is not value]
            else:
                inner = self.body(seen, depth + 1)
                if kind in ("loop", "unrolled"):
                    out.append(n.Loop("i", expr(2), kind == "unrolled", inner))
                elif kind == "pipelined":
                    self.number += 1
                    fill = tuple(self.copied(self.draw(st.booleans())) for _ in range(self.draw(st.integers(0, 2))))
                    if self.draw(st.booleans()):
                        fill += self.body(seen, 2)
                    out.append(n.Pipelined(f"ring{self.number}", "i", expr(2), fill, inner))
                else:
                    blocks = [n.Scope(("ring",), inner), n.Produce("ring", inner), n.Consume("ring", inner)]
                    out.append(self.draw(st.sampled_from(blocks)))
        return (*out, *(n.Store("st", ST, u, ELSEWHERE) for u in unused))

    def making(self, kind: str, made: Tile, picked: list[Tile]) -> n.Statement:
        match kind:
            case "load":
                return n.Load("ld", LD, ELSEWHERE, made)
            case "apply":
                return n.Apply("add", ADD, (*picked, 1.0), made)
            case "reduce":
                return reduce_of("add", ADD, isa.ShflBfly(), picked[0], made, 0)
        return n.Constant(made, 0.0)

    def copied(self, route: bool) -> n.Copy:
        source = tile("x", 1, self.draw(st.sampled_from(["f32", "f16"])), GMEM)
        who = of(self.draw(st.integers(1, 5)))
        return n.Copy("cp", ROUTE if route else isa.CpAsync(1), source, tile("b", 1, memory=SMEM), who, None)


@settings(max_examples=90)
@given(st.data())
def test_as_many_registers_live_as_are_needed_later(data: Any) -> None:
    body = Bodies(data.draw).body([], 0)
    assert int(live_registers(body)) == most(body)


def test_fragments_of_products_under_way_are_held_in_all_rounds_that_are_written_out() -> None:
    a, b, total, other = tile("a", 3), tile("b", 2), tile("c", 4), tile("t", 1, memory=SMEM)
    token = Token(1, "c", "wgmma group")
    for unrolled, under_way, rounds, expected in (
        (True, token, 4, 4 + 3 * 4),
        (False, token, 4, 7),
        (True, None, 4, 7),
    ):
        inner = (n.Load("ld", LD, ELSEWHERE, a), n.Multiply("mma", isa.MmaSync(), a, other, total, under_way))
        loop = n.Loop("i", expr(rounds), unrolled, inner)
        body = (n.Constant(total, 0.0), loop, n.Store("st", ST, total, ELSEWHERE))
        assert int(live_registers(body)) == expected
    two = (
        n.Multiply("mma", isa.MmaSync(), a, other, total, token),
        n.Multiply("mma", isa.MmaSync(), b, other, total, token),
    )
    inner = n.Loop("j", expr(2), True, (n.Load("ld", LD, ELSEWHERE, a), n.Load("ld", LD, ELSEWHERE, b), *two))
    body = (n.Constant(total, 0.0), inner, n.Store("st", ST, total, ELSEWHERE))
    assert int(live_registers(body)) == 4 + 2 * (3 + 2)
    in_tmem = tile("t", 9, memory=TMEM)
    assert int(live_registers((n.Constant(in_tmem, 0.0),))) == 0
    assert int(live_registers(())) == 0


class Carried(Machine):
    """y = sum of |-x| + |-x| over rows: one tile is carried, the others are made anew"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", n)

    vector = Param(1, 2, 4)
    ld, st, neg, abs_, add = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Neg("f32"), isa.Abs("f32"), isa.Add("f32")

    def program(self, p: Any) -> None:
        shape = (32 * self.vector,)
        who = blocked(shape, threads=32, vector=self.vector, across=32)
        with p.grid((self.n, shape[0])) as (j,), p.role("all", warps=1):
            total = p.full(who, "f32")
            with p.loop(self.m) as i:
                first = p.apply(self.abs_, p.apply(self.neg, p.load(self.ld, self.x.at(i).tile(j, shape=shape), who)))
                again = p.apply(self.abs_, p.apply(self.neg, p.load(self.ld, self.x.at(i).tile(j, shape=shape), who)))
                p.apply(self.add, total, p.apply(self.add, first, again), into=total)
            p.store(self.st, self.y.tile(j, shape=shape), total)

    @staticmethod
    def reference(x: Any) -> Any:
        return 2 * abs(x).sum(axis=0)


def test_a_round_of_a_loop_holds_what_it_needs_at_once() -> None:
    """The carried tile, the first sum of two, and the second in the making: three tiles, not seven."""
    program = trace(Carried, Carried.problem(m=4, n=100), ()).program
    assert [evaluate(live_registers(program.body), {"vector": v}) for v in (1, 2, 4)] == [3, 6, 12]
