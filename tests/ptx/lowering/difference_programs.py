"""Random small machines whose branches, rounds, windows and operands hang on differences of dims, indices and data.

A draw is an expression with the signs of all of its parts left open, as `min(n, s - t + row)` or `(row - first) // 3`.
It is computed once from the symbols of a program and once from NumPy's numbers, by the same lines.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tinygpu.language import Dim, Input, Machine, Output, blocked, integers, maximum, minimum
from tinygpu.ptx import isa

# An expression of what has a name: m, n, s, t, i, j, a, b. `low` and `high` are the minimum and maximum of two.
Said: TypeAlias = Callable[[dict[str, Any]], Any]
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
}  # fmt: skip
NAMES = ("n", "s", "t", "i", "j", "a", "b")


def difference(rng: np.random.Generator, depth: int) -> Said:
    """A whole number that may be negative."""
    one, other = (str(name) for name in rng.choice(NAMES, 2, replace=False))
    more, times = int(rng.integers(-5, 6)), int(rng.integers(1, 4))
    if not depth:
        return lambda e: e[one] * times - e[other] + more
    inner, beside = difference(rng, depth - 1), difference(rng, depth - 1)
    divisor = int(rng.choice([2, 3, 4, 7]))
    match int(rng.integers(6)):
        case 0:
            return lambda e: e["low"](e[one], inner(e))
        case 1:
            return lambda e: e["high"](inner(e), beside(e)) - times
        case 2:
            return lambda e: e["low"](inner(e), beside(e)) + e[one]
        case 3:
            return lambda e: inner(e) // divisor + more
        case 4:
            return lambda e: inner(e) % divisor - times
        case _:
            return lambda e: e[one] + inner(e) // e[other if other in ("n", "s", "t") else "t"]


def place(rng: np.random.Generator) -> Said:
    """Where a window begins: a sum of indices, dims, data and a quotient or remainder of a difference."""
    plain, inner, divisor = difference(rng, 0), difference(rng, 0), int(rng.choice([2, 3, 4, 7]))
    match int(rng.integers(4)):
        case 0:
            return plain
        case 1:
            return lambda e: e["i"] + inner(e) // divisor
        case 2:
            return lambda e: e["a"] - inner(e) // divisor
        case _:
            return lambda e: plain(e) + inner(e) % divisor


def drawn(seed: int) -> tuple[type[Machine], dict[str, int]]:
    """A machine and the sizes of a problem."""
    rng = np.random.default_rng(seed)
    rows, columns, step = int(rng.choice([1, 2, 4])), 32, int(rng.integers(1, 4))
    # only single rows have numbers of their own
    left, right, upto, number, end = (difference(rng, 2) for _ in range(5))
    at, sign = place(rng), str(rng.choice(list(COMPARED)))
    opposite, segment = rng.random() < 0.3, rng.random() < 0.5

    def program(self: Any, p: Any) -> None:
        shape = (rows, columns)
        who = blocked(shape, threads=32, across=32)
        with p.grid((self.m, rows), (self.n, columns)) as (i, j), p.role("all", warps=1):
            row = i // rows
            e = {"n": self.n, "s": self.s, "t": self.t, "i": i, "j": j, "a": self.first[row], "b": self.last[row]}
            e |= {"low": minimum, "high": maximum}
            total = p.full(who, "f32")
            condition = COMPARED[sign](left(e), right(e))
            with p.when(~condition if opposite else condition):
                total += p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            extent = upto(e)
            with p.loop(p.until(extent), step=step) as r:
                total += p.load(self.ld, self.table.tile(r, j, shape=(1, columns)), who.along(1))
            window = self.table.segment(0, end(e)) if segment else self.table
            total += p.load(self.ld, window.tile(at(e), j, shape=(1, columns)), who.along(1))
            total += p.apply(self.cvt, p.full(who.along(1), "s32", 0) + number(e))
            p.store(self.st, self.y.tile(i, j, shape=shape), total)

    def reference(first: Any, last: Any, x: Any, table: Any, s: int, t: int) -> Any:
        (m, n), v = x.shape, len(table)
        y = np.zeros((m, n))
        known = {"n": n, "s": s, "t": t, "low": min, "high": max}
        for i in range(0, m, rows):
            for j in range(0, n, columns):
                e = known | {"i": i, "j": j, "a": int(first[i // rows]), "b": int(last[i // rows])}
                here = np.s_[i : i + rows, j : j + columns]
                if bool(COMPARED[sign](left(e), right(e))) != opposite:
                    y[here] += x[here]
                y[here] += table[: max(upto(e), 0) : step, j : j + columns].sum(axis=0)
                line = at(e)
                if 0 <= line < (min(v, end(e)) if segment else v):
                    y[here] += table[line, j : j + columns]
                y[here] += number(e)
        return y

    def body(ns: dict[str, Any]) -> None:
        m, n, s, t, v, g = Dim(), Dim(), Dim(), Dim(), Dim(), Dim()
        ns["m"], ns["n"], ns["s"], ns["t"], ns["v"], ns["g"] = m, n, s, t, v, g
        ns["__doc__"] = "sums that differences decide"
        ns["first"], ns["last"] = (Input("s32", g, values=integers(0, s + t)) for _ in range(2))
        ns["x"], ns["table"], ns["y"] = Input("f32", m, n), Input("f32", v, n), Output("f32", m, n)
        ns["ld"], ns["single"], ns["st"] = isa.LdGlobal(1), isa.LdGlobal(1), isa.StGlobal(1)
        ns["plus"], ns["added"], ns["cvt"] = isa.Add("s32"), isa.Add("f32"), isa.Cvt("s32", "f32")
        ns["program"], ns["reference"] = program, staticmethod(reference)

    machine = types.new_class("Differences", (Machine,), {}, body)
    dims = {name: int(rng.choice([1, 2, 3, 5, 7, 13, 33])) for name in ("m", "n", "s", "t", "v")}
    return machine, dims | {"g": -(-dims["m"] // rows)}
