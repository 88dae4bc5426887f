"""Machines with blocks nested at random, each with what it computes: sums of windows of x, some through rings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa

ROWS, COLUMNS = 8, 32
WHO = blocked((ROWS, COLUMNS), threads=32, across=32)


@dataclass(frozen=True, slots=True)
class Block:
    """kind: "add" a window of x; "loop" over k; "unroll"; "ring": add what its slots bring, and do what is inside.

    form  of a ring: how it is filled and drained
    """

    kind: str
    inside: tuple[Block, ...] = ()
    form: str = ""


def block(rng: np.random.Generator, depth: int, kind: str = "") -> Block:
    """A block at random, nested at most so deep."""
    kind = kind or str(rng.choice(["add", "loop", "unroll", "ring", "ring"] if depth else ["add"]))
    if kind == "add":
        return Block("add")
    inside = tuple(block(rng, depth - 1) for _ in range(rng.integers(1, 3))) if depth else ()
    form = str(rng.choice(["two loops", "one loop", "no loop", "filled inside"])) if kind == "ring" else ""
    if kind != "ring" and not inside:
        inside = (Block("add"),)
    return Block(kind, inside, form)


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
        else:
            for r in [column] if b.form == "no loop" else rounds:
                out = out + x[:, r : r + COLUMNS] + total(b.inside, x, r)
    return out


def machine(root: Block, between_roles: bool) -> type[Machine]:
    """A machine that carries out the block for every tile of rows; its rings within one role, or between two."""

    class Nested(Machine):
        """y = sums of windows of x"""

        m, k, w = Dim(), Dim(), Dim()
        x = Input("f32", m, k)
        y = Output("f32", m, w)
        stages = Param(1, 2, 3)
        tma, cp, ld, ld_x, st, add = (
            isa.TmaLoad(), isa.CpAsync(1), isa.LdShared(1), isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32")
        )  # fmt: skip

        def program(self, p: Any) -> None:
            rings: dict[int, Any] = {}
            with p.grid((self.m, ROWS), persistent=between_roles) as (i,), _rings(self, p, root, rings, between_roles):
                with p.role("all", warps=1):
                    total = p.full(WHO, "f32")
                    _consume(self, p, (root,), i, 0, rings, total, not between_roles)
                    p.store(self.st, self.y.tile(i, 0, shape=(ROWS, COLUMNS)), total)
                if rings and between_roles:
                    with p.role("producer", warps=1, first=1):
                        _produce(self, p, (root,), i, 0, rings)

        @staticmethod
        def reference(x: Any) -> Any:
            rest = -x.shape[1] % COLUMNS
            return total((root,), np.pad(x, ((0, 0), (0, rest))), 0)

    return Nested


def rings_of(b: Block) -> list[Block]:
    """The rings of a block, itself included."""
    return [b] * (b.kind == "ring") + [r for c in b.inside for r in rings_of(c)]


@contextmanager
def _rings(m: Any, p: Any, root: Block, rings: dict[int, Any], between_roles: bool) -> Iterator[None]:
    waiting = [r for r in rings_of(root) if id(r) not in rings]
    if not waiting:
        yield
        return
    swizzle = {"swizzle": 128} if between_roles else {}
    with p.pipeline(f"ring{len(rings)}", m.stages, x=p.smem("f32", (ROWS, COLUMNS), **swizzle)) as ring:
        rings[id(waiting[0])] = ring
        with _rings(m, p, root, rings, between_roles):
            yield


def _consume(
    m: Any, p: Any, blocks: tuple[Block, ...], i: Any, column: Any, rings: dict[int, Any], acc: Any, fills: bool
) -> None:
    def fill(ring: Any, r: Any) -> None:
        with ring.produce() as s:
            p.copy(m.cp, m.x.tile(i, r, shape=(ROWS, COLUMNS)), s.x, WHO)

    def drain(b: Block, r: Any) -> None:
        with rings[id(b)].consume() as s:
            p.apply(m.add, acc, p.load(m.ld, s.x, WHO), into=acc)
            _consume(m, p, b.inside, i, r, rings, acc, fills)

    for b in blocks:
        if b.kind == "add":
            p.apply(m.add, acc, p.load(m.ld_x, m.x.tile(i, column, shape=(ROWS, COLUMNS)), WHO), into=acc)
        elif b.kind == "loop":
            with p.loop(m.k, step=COLUMNS) as r:
                _consume(m, p, b.inside, i, r, rings, acc, fills)
        elif b.kind == "unroll":
            with p.unroll(2):
                _consume(m, p, b.inside, i, column, rings, acc, fills)
        elif b.form == "no loop":
            if fills:
                fill(rings[id(b)], column)
            drain(b, column)
        elif not fills:
            with p.loop(m.k, step=COLUMNS) as r:
                drain(b, r)
        elif b.form == "two loops":
            with p.loop(m.k, step=COLUMNS) as r:
                fill(rings[id(b)], r)
            with p.loop(m.k, step=COLUMNS) as r:
                drain(b, r)
        else:
            with p.loop(m.k, step=COLUMNS) as r:
                fill(rings[id(b)], r)
                if b.form == "filled inside":
                    p.apply(m.add, acc, acc_of_nothing(m, p, i, r), into=acc)
                drain(b, r)


def acc_of_nothing(m: Any, p: Any, i: Any, r: Any) -> Any:
    """A statement between a fill and its drain that adds nothing."""
    return p.full(WHO, "f32")


def _produce(m: Any, p: Any, blocks: tuple[Block, ...], i: Any, column: Any, rings: dict[int, Any]) -> None:
    def fill(b: Block, r: Any) -> None:
        with rings[id(b)].produce() as s:
            p.copy(m.tma, m.x.tile(i, r, shape=(ROWS, COLUMNS)), s.x)
        _produce(m, p, b.inside, i, r, rings)

    for b in blocks:
        if not rings_of(b):
            continue
        if b.kind == "loop" or (b.kind == "ring" and b.form != "no loop"):
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
