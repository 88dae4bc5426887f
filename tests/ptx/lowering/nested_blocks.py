"""Machines with blocks nested at random, each with what it computes: sums of windows of x, some through rings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tinygpu.language import Dim, Input, Machine, Output, Param, Route, blocked
from tinygpu.ptx import isa

ROWS, COLUMNS = 8, 32
WHO = blocked((ROWS, COLUMNS), threads=32, across=32)
HALF = blocked((ROWS // 2, COLUMNS), threads=32, across=32)
BROUGHT = ("whole", "whole", "written out", "looped", "routed", "stored", "chained")
Ids = frozenset[int]  # of rings between roles


@dataclass(frozen=True, slots=True)
class Block:
    """kind: "add" a window of x; "loop" over k; "unroll"; "ring": add what its slots bring, and do what is inside.

    "side": a loop over k that produces and consumes all rings inside, and adds before, between or behind.

    form     of a ring, or of several side by side: how they are produced and consumed
    brought  how a slot is filled: by one copy, by copies of halves in a loop that is written out or in one at run
             time, through registers, by a load and a store, or from a slot of a ring inside
    here     a ring is declared where it is used, not around all roles
    own      a ring is produced by the warps that consume it, whatever other rings are
    deeper   a ring has one slot more than others
    adds     what a loop does beside its rings: before, between and behind them
    """

    kind: str
    inside: tuple[Block, ...] = ()
    form: str = ""
    brought: str = "whole"
    here: bool = False
    own: bool = True
    deeper: bool = False
    adds: tuple[bool, bool, bool] = (False, False, False)


def block(rng: np.random.Generator, depth: int, kind: str = "") -> Block:
    """A block at random, nested at most so deep."""
    kind = kind or str(rng.choice(["add", "loop", "unroll", "ring", "ring"] if depth else ["add"]))
    if kind == "side":
        rings = tuple(replace(block(rng, depth - 1, "ring"), deeper=bool(rng.integers(4) == 0)) for _ in range(2))
        adds = tuple(bool(b) for b in rng.integers(2, size=3))
        form = str(rng.choice(["two loops", "three loops", "one loop", "in turn"]))
        return Block("side", tuple(replace(r, here=False) for r in rings), form, adds=(adds[0], adds[1], adds[2]))
    if kind == "add":
        return Block("add")
    inside = tuple(block(rng, depth - 1) for _ in range(rng.integers(1, 3))) if depth else ()
    form = str(rng.choice(["two loops", "one loop", "no loop", "filled inside"])) if kind == "ring" else ""
    if kind != "ring":
        return Block(kind, inside or (Block("add"),), form)
    return Block(kind, inside, form, str(rng.choice(BROUGHT)), bool(rng.integers(2)), bool(rng.integers(3) == 0))


def total(blocks: tuple[Block, ...], x: Any, column: int) -> Any:
    """What the blocks add, where the innermost loop is at a column of x."""
    rounds = range(0, x.shape[1], COLUMNS)
    out: Any = 0
    for b in blocks:
        if b.kind == "add":
            out = out + x[:, column : column + COLUMNS]
        elif b.kind == "loop":
            out = out + sum(total(b.inside, x, r) for r in rounds)
        elif b.kind == "unroll":
            out = out + 2 * total(b.inside, x, column)
        elif b.kind == "side":
            for r in rounds:
                for ring in b.inside:
                    out = out + x[:, r : r + COLUMNS] + total(ring.inside, x, r)
                out = out + sum(b.adds) * x[:, r : r + COLUMNS]
        else:
            for r in [column] if b.form == "no loop" else rounds:
                out = out + x[:, r : r + COLUMNS] + total(b.inside, x, r)
    return out


def machine(root: Block, between_roles: bool, consumers: int = 1, persistent: bool = False) -> type[Machine]:
    """A machine that carries out the block for every tile of rows, in one role or in two that do the same.

    Its rings are within the role, or, but for those of its own, between a producer and the others.
    """
    shared = [r for r in rings_of(root) if between_roles and not r.own]

    class Nested(Machine):
        """y = sums of windows of x"""

        m, k, w = Dim(), Dim(), Dim()
        x = Input("f32", m, k)
        y, z = Output("f32", m, w), Output("f32", m, w)
        stages = Param(1, 2, 3)
        tma, cp, ld, ld_x, st, add = (
            isa.TmaLoad(), isa.CpAsync(1), isa.LdShared(1), isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32")
        )  # fmt: skip
        put, route = isa.StShared(1), Route(isa.LdGlobal(1), isa.StShared(1))

        def program(self, p: Any) -> None:
            with (
                p.grid((self.m, ROWS), persistent=persistent or bool(shared)) as (i,),
                _rings(self, p, shared, {}, {"swizzle": 128}) as rings,
            ):
                for number in range(consumers):
                    own = [r for r in rings_of(root) if id(r) not in rings and not r.here]
                    with _rings(self, p, own, rings, {}) as all_rings, p.role(f"all{number}", warps=1, first=number):
                        total = p.full(WHO, "f32")
                        _consume(self, p, (root,), i, 0, all_rings, total, frozenset(rings))
                        for to in (self.y, self.z)[number : number + 3 - consumers]:
                            p.store(self.st, to.tile(i, 0, shape=(ROWS, COLUMNS)), total)
                if shared:
                    with p.role("producer", warps=1, first=consumers):
                        _produce(self, p, (root,), i, 0, rings)

        @staticmethod
        def reference(x: Any) -> Any:
            rest = -x.shape[1] % COLUMNS
            out = total((root,), np.pad(x, ((0, 0), (0, rest))), 0)
            return {"y": out, "z": out}

    return Nested


def rings_of(b: Block) -> list[Block]:
    """The rings of a block, itself included."""
    return [b] * (b.kind == "ring") + [r for c in b.inside for r in rings_of(c)]


@contextmanager
def _rings(
    m: Any, p: Any, waiting: list[Block], rings: dict[int, Any], swizzle: dict[str, Any]
) -> Iterator[dict[int, Any]]:
    """The rings that there are, and new ones for blocks that wait for theirs."""
    if not waiting:
        yield rings
        return
    buffer = p.smem("f32", (ROWS, COLUMNS), **swizzle)
    with (
        p.pipeline(f"ring{len(p.pipelines)}", m.stages + int(waiting[0].deeper), x=buffer) as ring,
        _rings(m, p, waiting[1:], {**rings, id(waiting[0]): ring}, swizzle) as found,
    ):
        yield found


def _consume(
    m: Any, p: Any, blocks: tuple[Block, ...], i: Any, column: Any, rings: dict[int, Any], acc: Any, shared: Ids
) -> None:
    for b in blocks:
        if b.kind == "add":
            p.apply(m.add, acc, p.load(m.ld_x, m.x.tile(i, column, shape=(ROWS, COLUMNS)), WHO), into=acc)
        elif b.kind == "loop":
            with p.loop(m.k, step=COLUMNS) as r:
                _consume(m, p, b.inside, i, r, rings, acc, shared)
        elif b.kind == "unroll":
            with p.unroll(2):
                _consume(m, p, b.inside, i, column, rings, acc, shared)
        elif b.kind == "side":
            _side(m, p, b, i, rings, acc, shared)
        elif id(b) in rings:
            _ring(m, p, b, i, column, rings, acc, shared)
        else:
            with p.pipeline(f"here{len(p.pipelines)}", m.stages, x=p.smem("f32", (ROWS, COLUMNS))) as ring:
                _ring(m, p, b, i, column, {**rings, id(b): ring}, acc, shared)


def _ring(m: Any, p: Any, b: Block, i: Any, column: Any, rings: dict[int, Any], acc: Any, shared: Ids) -> None:
    ring, fills = rings[id(b)], id(b) not in shared

    def fill(r: Any) -> None:
        with ring.produce() as s:
            _fill(m, p, b, i, r, s)

    def drain(r: Any) -> None:
        with ring.consume() as s:
            p.apply(m.add, acc, p.load(m.ld, s.x, WHO), into=acc)
            _consume(m, p, b.inside, i, r, rings, acc, shared)

    if b.form == "no loop":
        if fills:
            fill(column)
        drain(column)
    elif not fills:
        with p.loop(m.k, step=COLUMNS) as r:
            drain(r)
    elif b.form == "two loops":
        with p.loop(m.k, step=COLUMNS) as r:
            fill(r)
        with p.loop(m.k, step=COLUMNS) as r:
            drain(r)
    else:
        with p.loop(m.k, step=COLUMNS) as r:
            fill(r)
            if b.form == "filled inside":
                p.apply(m.add, acc, acc_of_nothing(m, p, i, r), into=acc)
            drain(r)


def _side(m: Any, p: Any, b: Block, i: Any, rings: dict[int, Any], acc: Any, shared: Ids) -> None:
    """Rings side by side in the rounds of a loop, each filled there or in a loop before it."""
    own = [ring for ring in b.inside if id(ring) not in shared]

    def fill(ring: Block, r: Any) -> None:
        with rings[id(ring)].produce() as s:
            _fill(m, p, ring, i, r, s)

    def drain(ring: Block, r: Any) -> None:
        with rings[id(ring)].consume() as s:
            p.apply(m.add, acc, p.load(m.ld, s.x, WHO), into=acc)
            _consume(m, p, ring.inside, i, r, rings, acc, shared)

    def add(place: int, r: Any) -> None:
        if b.adds[place]:
            p.apply(m.add, acc, p.load(m.ld_x, m.x.tile(i, r, shape=(ROWS, COLUMNS)), WHO), into=acc)

    for together in {"two loops": [own], "three loops": [[ring] for ring in own]}.get(b.form, []):
        if together:
            with p.loop(m.k, step=COLUMNS) as r:
                for ring in together:
                    fill(ring, r)
    with p.loop(m.k, step=COLUMNS) as r:
        add(0, r)
        if b.form == "one loop":
            for ring in own:
                fill(ring, r)
        add(1, r)
        for ring in b.inside:
            if b.form == "in turn" and ring in own:
                fill(ring, r)
            drain(ring, r)
        add(2, r)


def _fill(m: Any, p: Any, b: Block, i: Any, r: Any, s: Any) -> None:
    """Brings a window of x into a slot."""
    half = ROWS // 2
    if b.brought in ("written out", "looped"):
        with p.unroll(ROWS, step=half) if b.brought == "written out" else p.loop(ROWS, step=half) as h:
            p.copy(m.cp, m.x.tile(i + h, r, shape=(half, COLUMNS)), s.x.window((h, 0), (half, COLUMNS)), HALF)
        return
    whole = m.x.tile(i, r, shape=(ROWS, COLUMNS))
    if b.brought == "stored":
        p.store(m.put, s.x, p.load(m.ld_x, whole, WHO))
    elif b.brought == "chained":
        with p.pipeline(f"first{len(p.pipelines)}", 1, x=p.smem("f32", (ROWS, COLUMNS))) as first:
            with first.produce() as f:
                p.copy(m.cp, whole, f.x, WHO)
            with first.consume() as f:
                p.store(m.put, s.x, p.load(m.ld, f.x, WHO))
    else:
        p.copy(m.route if b.brought == "routed" else m.cp, whole, s.x, WHO)


def acc_of_nothing(m: Any, p: Any, i: Any, r: Any) -> Any:
    """A statement between a fill and its drain that adds nothing."""
    return p.full(WHO, "f32")


def _produce(m: Any, p: Any, blocks: tuple[Block, ...], i: Any, column: Any, rings: dict[int, Any]) -> None:
    def fill(b: Block, r: Any) -> None:
        if id(b) in rings:
            with rings[id(b)].produce() as s:
                p.copy(m.tma, m.x.tile(i, r, shape=(ROWS, COLUMNS)), s.x)
        _produce(m, p, b.inside, i, r, rings)

    for b in blocks:
        if not any(id(r) in rings for r in rings_of(b)):
            continue
        if b.kind == "side":
            with p.loop(m.k, step=COLUMNS) as r:
                for ring in b.inside:
                    fill(ring, r)
        elif b.kind == "loop" or (b.kind == "ring" and b.form != "no loop"):
            with p.loop(m.k, step=COLUMNS) as r:
                if b.kind == "ring":
                    fill(b, r)
                else:
                    _produce(m, p, b.inside, i, r, rings)
        elif b.kind == "unroll":
            with p.unroll(2):
                _produce(m, p, b.inside, i, column, rings)
        else:
            fill(b, column)
