"""Random small machines of index arithmetic: positions, masks, rows by ids, rounds that data decide, branches, sums.

A draw is a tree of values. Each of its nodes says what it is as a tile, in the words of a program, and what it is as an
array of the whole problem, in NumPy; the machine's reference is the second.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tinygpu.language import Dim, InOut, Input, Machine, Output, blocked, integers
from tinygpu.ptx import isa

COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip
JOINED: dict[str, Callable[[Any, Any], Any]] = {"&": lambda a, b: a & b, "|": lambda a, b: a | b}

Here: TypeAlias = Any  # what a tile is made of: the machine, p, where the tile begins, who holds it
Arrays: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Node:
    """A value of the problem.

    tile   as the program makes it, of a tile
    array  as NumPy makes it, of all rows and columns: (m, n), (m, 1) or (1, n)
    said   in words
    """

    tile: Callable[[Here], Any]
    array: Callable[[Arrays], Any]
    said: str


@dataclass(frozen=True)
class Where:
    """A tile while it is traced."""

    machine: Any
    p: Any
    i: Any
    j: Any
    who: Any


def rows_of(rng: np.random.Generator, depth: int) -> Node:
    """Whole numbers, one for each row."""
    match int(rng.integers(6 if depth else 3)):
        case 0:
            return Node(lambda h: h.p.index(h.who.along(0), 0) + h.i, lambda a: np.arange(a["m"])[:, None], "row")
        case 1 | 2:
            return Node(
                lambda h: h.p.load(h.machine.single, h.machine.ids.column(h.i, h.who.shape[0]), h.who.along(0)),
                lambda a: a["ids"][:, None],
                "id",
            )
        case 3:
            one, times, more = rows_of(rng, depth - 1), int(rng.integers(1, 4)), int(rng.integers(-5, 6))
            said = f"({one.said}*{times}+{more})"
            return Node(lambda h: one.tile(h) * times + more, lambda a: one.array(a) * times + more, said)
        case 4:
            one, other = rows_of(rng, depth - 1), rows_of(rng, depth - 1)
            said = f"({one.said}+{other.said})"
            return Node(lambda h: one.tile(h) + other.tile(h), lambda a: one.array(a) + other.array(a), said)
        case _:
            mask, one, number = compared(rng, rows_of, depth - 1), rows_of(rng, depth - 1), int(rng.integers(-3, 9))
            return Node(
                lambda h: h.p.where(mask.tile(h), one.tile(h), number),
                lambda a: np.where(mask.array(a), one.array(a), number),
                f"({one.said} if {mask.said} else {number})",
            )


def columns_of(rng: np.random.Generator, depth: int) -> Node:
    """Whole numbers, one for each column."""
    index = Node(lambda h: h.p.index(h.who.along(1), 1) + h.j, lambda a: np.arange(a["n"])[None, :], "column")
    if not depth or rng.random() < 0.5:
        return index
    more = int(rng.integers(-9, 9))
    said = f"(column+n-{more})"
    return Node(lambda h: index.tile(h) + (h.machine.n - more), lambda a: index.array(a) + a["n"] - more, said)


def everywhere(rng: np.random.Generator, depth: int) -> Node:
    """Whole numbers, one for each element."""
    axis = int(rng.integers(2))
    return Node(
        lambda h: h.p.index(h.who, axis) + (h.j if axis else h.i),
        lambda a: np.indices((a["m"], a["n"]))[axis],
        f"index{axis}",
    )


def compared(rng: np.random.Generator, of: Callable[..., Node], depth: int) -> Node:
    """Whether numbers of one kind lie on one side of others, or of a dim."""
    sign, one = str(rng.choice(list(COMPARED))), of(rng, max(depth, 0))
    if rng.random() < 0.4:
        dim = str(rng.choice(["m", "n", "v"]))
        less = int(rng.integers(0, 4))
        return Node(
            lambda h: COMPARED[sign](one.tile(h), getattr(h.machine, dim) - less),
            lambda a: COMPARED[sign](one.array(a), a[dim] - less),
            f"{one.said} {sign} {dim}-{less}",
        )
    other = of(rng, max(depth, 0))
    return Node(
        lambda h: COMPARED[sign](one.tile(h), other.tile(h)), lambda a: COMPARED[sign](one.array(a), other.array(a)),
        f"{one.said} {sign} {other.said}",
    )  # fmt: skip


def mask_of(rng: np.random.Generator, depth: int) -> Node:
    """Predicates: of rows, of columns, of both."""
    match int(rng.integers(6 if depth else 4)):
        case 0:
            return compared(rng, rows_of, depth)
        case 1:
            return compared(rng, columns_of, depth)
        case 2:
            return compared(rng, everywhere, depth)
        case 3:
            row, column, sign = rows_of(rng, depth), columns_of(rng, depth), str(rng.choice(list(COMPARED)))
            return Node(
                lambda h: COMPARED[sign](row.tile(h), column.tile(h)),
                lambda a: COMPARED[sign](row.array(a), column.array(a)),
                f"{row.said} {sign} {column.said}",
            )
        case 4:
            one = mask_of(rng, depth - 1)
            return Node(lambda h: ~one.tile(h), lambda a: ~one.array(a), f"not ({one.said})")
        case _:
            one, other, sign = mask_of(rng, depth - 1), mask_of(rng, depth - 1), str(rng.choice(list(JOINED)))
            return Node(
                lambda h: JOINED[sign](one.tile(h), other.tile(h)),
                lambda a: JOINED[sign](one.array(a), other.array(a)),
                f"({one.said}) {sign} ({other.said})",
            )


def value_of(rng: np.random.Generator, depth: int) -> Node:
    """Numbers, one for each element."""
    match int(rng.integers(5 if depth else 2)):
        case 0:
            return Node(
                lambda h: h.p.load(h.machine.ld, h.machine.x.tile(h.i, h.j, shape=h.who.shape), h.who),
                lambda a: a["x"],
                "x",
            )
        case 1 | 2:
            rows, fill = rows_of(rng, depth), float(rng.integers(-2, 3))
            return Node(
                lambda h: h.p.load(
                    h.machine.ld, h.machine.table.rows(rows.tile(h)).tile(0, h.j, shape=h.who.shape), h.who, fill=fill
                ),
                lambda a: gathered(a["table"], rows.array(a)[:, 0], fill),
                f"table[{rows.said}]",
            )
        case 3:
            one, other = value_of(rng, depth - 1), value_of(rng, depth - 1)
            said = f"{one.said} + {other.said}"
            return Node(lambda h: one.tile(h) + other.tile(h), lambda a: one.array(a) + other.array(a), said)
        case _:
            mask, one, number = mask_of(rng, depth - 1), value_of(rng, depth - 1), float(rng.integers(-3, 4))
            return Node(
                lambda h: h.p.where(mask.tile(h), one.tile(h), number),
                lambda a: np.where(mask.array(a), one.array(a), number),
                f"({one.said} where {mask.said} else {number:g})",
            )


def gathered(table: Any, rows: Any, fill: float) -> Any:
    there = (rows >= 0) & (rows < len(table))
    return np.where(there[:, None], table[np.where(there, rows, 0)], fill)


def added(rng: np.random.Generator, rows: int) -> Node:
    """What is added to a value: in rounds that data decide, in a branch, or both; single rows have their own ends."""
    branch = int(rng.integers(4))
    step, sign = int(rng.integers(1, 4)), str(rng.choice(list(COMPARED)))
    segment, all_rounds, one = rng.random() < 0.7, rng.random() < 0.5, value_of(rng, 1)
    by_row = rows == 1

    def tile(h: Here) -> Any:
        p, m = h.p, h.machine
        total = p.full(h.who, "f32")
        if branch in (0, 1) and by_row:
            begin, end = m.begin[h.i], m.end[h.i]
            extent = m.v if all_rounds else p.until(end - begin if segment else end)
            with p.loop(extent, step=step) as r, p.unroll(step) as k:
                window = m.table.segment(begin, end) if segment else m.table.segment(0, end)
                total += p.load(m.ld, window.tile(r + k, h.j, shape=h.who.shape), h.who)
        elif branch == 0:
            with p.loop(h.i + step) as r:  # rounds that hang on the tile
                total += p.load(m.ld, m.table.tile(r, h.j, shape=(1, h.who.shape[1])), h.who.along(1))
        if branch in (1, 2):
            limit = m.begin[h.i] if by_row else h.j
            with p.when(COMPARED[sign](h.i * 2 + step, limit)):
                total += one.tile(h)
        if branch == 3:
            with p.when((h.i + step < m.n) | (h.j > m.m - h.i * 3 - step)):
                total += one.tile(h)
        return total

    def array(a: Arrays) -> Any:
        total = np.zeros((a["m"], a["n"]))
        tile_row, tile_column = np.arange(a["m"]) // rows * rows, np.arange(a["n"]) // a["columns"] * a["columns"]
        i, j = tile_row[:, None], tile_column[None, :]
        if branch in (0, 1) and by_row:
            for row, (begin, end) in enumerate(zip(a["begin"], a["end"], strict=True)):
                total[row] += a["table"][begin if segment else 0 : max(begin if segment else 0, end)].sum(axis=0)
        elif branch == 0:
            upto = np.cumsum(np.concatenate([np.zeros((1, a["n"])), a["table"]]), axis=0)
            total += upto[np.minimum(tile_row + step, len(a["table"]))]
        if branch in (1, 2):
            limit = a["begin"][:, None] if by_row else j
            total = np.where(COMPARED[sign](i * 2 + step, limit), total + one.array(a), total)
        if branch == 3:
            total = np.where((i + step < a["n"]) | (j > a["m"] - i * 3 - step), total + one.array(a), total)
        return total

    return Node(tile, array, f"[{branch}, step {step}, {sign}, segment {segment}: {one.said}]")


def drawn(seed: int) -> tuple[type[Machine], dict[str, int]]:
    """A machine and the sizes of a problem."""
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.choice([1, 1, 2, 4, 8])), int(rng.choice([32, 64]))
    warps, vector = int(rng.choice([1, 2])), int(rng.choice([1, 2]))
    wide = columns // vector
    across = min(wide, 32 * warps) if rows > 1 else None
    if rows * wide < 32 * warps:
        warps, vector, rows = 1, 1, max(rows, 1)
        across = None
    value, more, scattered = value_of(rng, 2), added(rng, rows), rows_of(rng, 1)
    scatters, masked = rng.random() < 0.6, mask_of(rng, 1)
    shape = (rows, columns)

    def program(self: Any, p: Any) -> None:
        who = blocked(shape, threads=32 * warps, vector=vector, across=across)
        with p.grid((self.m, rows), (self.n, columns)) as (i, j), p.role("all", warps=warps):
            here = Where(self, p, i, j, who)
            made = value.tile(here) + more.tile(here)
            p.store(self.st, self.y.tile(i, j, shape=shape), made)
            if scatters:
                inside = p.index(who.along(0), 0) + i < self.m
                named = p.where(inside, scattered.tile(here), -1)
                kept = p.where(masked.tile(here), made, 0.0)
                p.store(self.red, self.sums.rows(named).tile(0, j, shape=shape), kept)

    def reference(ids: Any, begin: Any, end: Any, x: Any, table: Any, sums: Any) -> Any:
        sizes = {"m": x.shape[0], "n": x.shape[1], "v": len(table), "columns": columns}
        a = {"ids": ids, "begin": begin, "end": end, "x": x, "table": table, **sizes}
        made = np.broadcast_to(value.array(a), x.shape) + more.array(a)
        if scatters:
            named = np.broadcast_to(scattered.array(a), (a["m"], 1))[:, 0]
            there = (named >= 0) & (named < a["v"])
            sums = sums.copy()
            np.add.at(sums, named[there], np.where(masked.array(a), made, 0.0)[there])
        return {"y": made, "sums": sums}

    def body(ns: dict[str, Any]) -> None:
        m, n, v = Dim(), Dim(), Dim()
        ns |= {"__doc__": f"y = {value.said} + {more.said}; sums[{scattered.said}] += that where {masked.said}"}
        ns["m"], ns["n"], ns["v"] = m, n, v
        ns["ids"] = Input("s32", m, values=integers(-2, v + 2))
        ns["begin"], ns["end"] = (Input("s32", m, values=integers(0, v + 1)) for _ in range(2))
        ns["x"], ns["table"] = Input("f32", m, n), Input("f32", v, n)
        ns["y"], ns["sums"] = Output("f32", m, n), InOut("f32", v, n)
        ns["ld"], ns["single"], ns["st"] = isa.LdGlobal(vector), isa.LdGlobal(1), isa.StGlobal(vector)
        ns["red"], ns["both"], ns["either"] = isa.RedGlobal("add"), isa.And("pred"), isa.Or("pred")
        ns["opposite"] = isa.Not("pred")
        ns["plus"], ns["times"], ns["added"] = isa.Add("s32"), isa.Mul("s32"), isa.Add("f32")
        for number, sign in enumerate(COMPARED):
            ns[f"compared{number}"] = isa.Compare("s32", sign)
        ns["choose"], ns["choose_whole"] = isa.Select("f32"), isa.Select("s32")
        ns["program"], ns["reference"] = program, staticmethod(reference)
        if not scatters:
            ns["uses_tensor"] = classmethod(lambda cls, name, options: name != "sums")
            ns["reference"] = staticmethod(lambda sums=None, **given: reference(**given, sums=sums)["y"])

    machine = types.new_class("Drawn", (Machine,), {}, body)
    sizes = [1, 2, 3, 5, 7, 13, rows, rows + 1, 2 * rows + 1, columns, columns + 1]
    dims = {name: int(rng.choice(sizes)) for name in ("m", "n", "v")}
    return machine, dims | {"n": -(-dims["n"] // vector) * vector}
