"""Random machines that move rows which values name: types, ranks, orders, ways through memory, sums into rows."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from tinygpu.language import Dim, InOut, Input, Machine, Output, Problem, Route, blocked, integers
from tinygpu.ptx import isa
from tinygpu.ptx.isa.atomics import OPERATIONS

KINDS = ("f32", "f16", "s8", "f64", "s32", "bf16")


def gathered(table: Any, ids: Any, fill: Any) -> Any:
    """table[ids] along the axis before the last, or along the only one; `fill` where there is no such row."""
    axis = max(table.ndim - 2, 0)
    there = (ids >= 0) & (ids < table.shape[axis])
    found = np.take(table, np.where(there, ids, 0), axis=axis)
    shape = (*[1] * axis, *ids.shape, *[1] * (table.ndim - axis - 1))
    return np.where(there.reshape(shape), found, fill)


def gathering(rng: np.random.Generator) -> tuple[type[Machine], Problem, str]:
    """y = table[ids], of a tensor with one, two or three dims, loaded, copied or brought through registers."""
    kind, rank = str(rng.choice(KINDS)), int(rng.integers(1, 4))
    rows, columns = int(rng.choice([1, 2, 4, 8])), int(rng.choice([32, 64]))
    way = str(rng.choice(["load", "route", "cp.async"])) if rank > 1 else "load"
    col = rank == 2 and way == "load" and rng.random() < 0.3
    bits = {"f16": 16, "bf16": 16, "s8": 8, "f64": 64}.get(kind, 32)
    vector = int(rng.choice([1, 2, 2 if bits == 64 else 4])) if rank > 1 and not col else 1
    brought = {8: 16, 16: 8, 32: 4, 64: 2}[bits] if way == "cp.async" else vector
    rows = max(rows, 32 * max(vector, brought) // columns)  # for every thread a vector
    fill = 0 if way != "load" else int(rng.integers(-2, 3))
    ids_kind, shape = str(rng.choice(["s32", "u32"])), (rows, columns)
    low = 0 if ids_kind == "u32" else -2

    def program(self: Any, p: Any) -> None:
        who = blocked(shape, threads=32, vector=vector)
        mover = blocked(shape, threads=32, vector=brought)
        axes = ([(self.b, 1)] if rank == 3 else []) + [(self.m, rows), (self.n, columns)]
        with p.grid(*axes) as at, p.role("all", warps=1):
            *batch, i, j = at
            table, y = (t.at(*batch) if batch else t for t in (self.table, self.y))
            if rank == 1:
                ids = p.load(self.single, self.ids.tile(i, j, shape=shape), who)
                made = p.load(self.ld, table.rows(ids).tile(0, 0, shape=shape), who, fill=fill)
                p.store(self.st, y.tile(i, j, shape=shape), made)
                return
            holder = mover if way == "cp.async" else who
            ids = p.load(self.single, self.ids.column(i, rows), holder.along(0))
            window = table.rows(ids).tile(0, j, shape=shape)
            if way == "load":
                made = p.load(self.ld, window, who, fill=fill)
            else:
                with p.pipeline("ring", 1, t=p.smem(kind, shape)) as ring:
                    with ring.produce() as slot:
                        p.copy(self.way, window, slot.t, holder)
                    with ring.consume() as slot:
                        made = p.load(self.get, slot.t, who)
            p.store(self.st, y.tile(i, j, shape=shape), made)

    def reference(ids: Any, table: Any) -> Any:
        return gathered(table, ids, fill)

    def body(ns: dict[str, Any]) -> None:
        if rank == 3:
            ns["b"] = b = Dim()
        ns["m"], ns["n"], ns["v"] = m, n, v = Dim(), Dim(), Dim()
        own = ((b,) if rank == 3 else ()) + ((v,) if rank == 1 else (v, n))
        ns["ids"] = Input(ids_kind, *((m, n) if rank == 1 else (m,)), values=integers(low, v + 2))
        ns["table"] = Input(kind, *own, majors=("col",) if col else ("row",))
        ns["y"] = Output(kind, *([b] if rank == 3 else []), m, n)
        ns["ld"], ns["st"], ns["single"] = isa.LdGlobalReadOnly(vector), isa.StGlobal(vector), isa.LdGlobal(1)
        ns["get"], ns["put"] = isa.LdShared(vector), isa.StShared(vector)
        ns["way"] = isa.CpAsync(brought) if way == "cp.async" else Route(isa.LdGlobal(vector), isa.StShared(vector))
        ns["program"], ns["reference"] = program, staticmethod(reference)

    machine = types.new_class("Gathering", (Machine,), {}, body)
    sizes = [1, 2, 3, 7, rows, rows + 1, columns, columns + 1]
    dims = {name: int(rng.choice(sizes)) for name in machine.dim_names()}
    wide = max(vector, brought)
    dims["n"] = -(-dims["n"] // wide) * wide
    said = f"{kind} table of {rank} dims{' column-major' * col} by {way}, vectors of {vector}, {dims}"
    return machine, machine.problem(**dims), said


def combining(rng: np.random.Generator) -> tuple[type[Machine], Problem, str]:
    """y[ids[i]] is combined with x[i]; or, without an operation, rows go where they stand from behind."""
    op = str(rng.choice([*OPERATIONS, "add", "add", "", ""]))
    kind = str(rng.choice(OPERATIONS[op][0])) if op else str(rng.choice(KINDS))
    rows, columns = int(rng.choice([1, 2, 4, 8])), int(rng.choice([32, 64]))
    pairs = 2 if kind == "f16" and op and rng.random() < 0.5 else 1
    vector = pairs if op else int(rng.choice([1, 2]))
    rows = max(rows, 32 * vector // columns)
    shape = (rows, columns)

    def program(self: Any, p: Any) -> None:
        who = blocked(shape, threads=32, vector=vector)
        with p.grid((self.m, rows), (self.n, columns)) as (i, j), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            if op:
                named = p.load(self.single, self.ids.column(i, rows), who.along(0), fill=-1)
            else:
                named = (p.index(who.along(0), 0) + i) * -1 + (self.m - 1)
            p.store(self.red if op else self.st, self.y.rows(named).tile(0, j, shape=shape), x)

    def reference(ids: Any, x: Any, y: Any = None) -> Any:
        if not op:
            return x[::-1]
        y = y.copy()
        OPERATIONS[op][1].at(y, ids, x)
        return y

    def body(ns: dict[str, Any]) -> None:
        ns["m"], ns["n"], ns["v"] = m, n, v = Dim(), Dim(), Dim()
        ns["ids"], ns["x"] = Input("s32", m, values=integers(0, v)), Input(kind, m, n)
        ns["y"] = InOut(kind, v, n) if op else Output(kind, m, n)
        ns["ld"], ns["single"] = isa.LdGlobal(vector), isa.LdGlobal(1)
        ns["red" if op else "st"] = isa.RedGlobal(op, vector) if op else isa.StGlobal(vector)
        ns["plus"], ns["times"] = isa.Add("s32"), isa.Mul("s32")
        ns["program"], ns["reference"] = program, staticmethod(reference)
        if not op:
            ns["uses_tensor"] = classmethod(lambda cls, name, options: name != "ids")
            ns["reference"] = staticmethod(lambda x, ids=None: x[::-1])

    machine = types.new_class("Combining", (Machine,), {}, body)
    sizes = [1, 2, 3, 7, rows + 1, columns, columns + 1]
    dims = {name: int(rng.choice(sizes)) for name in machine.dim_names()}
    dims["n"] = -(-dims["n"] // vector) * vector
    return machine, machine.problem(**dims), f"{op or 'reversed'} of {kind}, vectors of {vector}, {dims}"


def drawn_rows(seed: int) -> tuple[type[Machine], Problem, str]:
    """A machine, a problem, and both in words."""
    rng = np.random.default_rng(seed)
    return (gathering, combining)[seed % 2](rng)
