"""Random machines that scan along an axis: who holds what, what combines, what is carried from round to round."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent))
from drawn_reductions import Array, holders

from tinygpu.dtypes import dtype
from tinygpu.language import Combine, Dim, E, Input, Layout, Machine, Output, Param, Partition
from tinygpu.ptx import isa

WARPS = (1, 1, 2, 3, 4, 6, 8)
KINDS = ("f32", "s32", "u32", "f64", "f16")
COMBINES = ("add", "add", "max", "latest", "sum and largest")
STYLES = ("once", "in a loop", "in a loop", "persistent", "beside a role", "twice")
OVER_A_CLUSTER = ("over a cluster", "over a cluster, in a loop", "over a cluster, twice")
OVER_THE_GRID = ("over the grid", "over the grid, beside a role", "over the grid, twice")
# More tiles than a warp looks at at once, and elements along the axis at most.
MOST_TILES, MOST_ELEMENTS = 70, 1 << 12


@dataclass(frozen=True)
class Drawn:
    """A machine that was drawn."""

    machine: type[Machine]
    text: str
    axis: int
    tile: tuple[int, int]
    kind: str
    combine: str
    style: str
    exclusive: bool
    ctas: int

    def sizes(self, rng: np.random.Generator) -> tuple[int, int]:
        extent, other = self.tile[self.axis], self.tile[1 - self.axis]
        most = (3 if self.style.endswith("in a loop") else 1) * extent * self.ctas
        if self.style in OVER_THE_GRID:
            most = min(MOST_TILES * extent, max(MOST_ELEMENTS, 3 * extent))
        along = int(rng.integers(1, most + 1))
        across = int(rng.integers(1, 3 * other + 1))
        return (across, along) if self.axis == 1 else (along, across)

    def array(self, rng: np.random.Generator, m: int, n: int) -> Array:
        whole = self.kind == "u32" or self.combine == "sum and largest"
        low, high = (0, 2) if self.kind == "f16" else (0, 9) if whole else (-4, 9)
        found = rng.integers(low, high, (m, n))
        if self.combine == "latest" or self.kind == "f16":  # f16 counts to 2048
            found *= rng.random((m, n)) < 0.3
        return found.astype(dtype(self.kind).numpy)

    def wanted(self, x: Array) -> Array:
        x = np.moveaxis(x, self.axis, 0)
        first = np.zeros_like(x[:1])
        if self.combine == "max":
            first = first - 999 if self.kind != "u32" else first
            made = np.maximum.accumulate(np.concatenate([first, x]), axis=0)
        elif self.combine == "latest":
            made = np.concatenate([first, x])
            for place in range(1, len(made)):
                made[place] = np.where(made[place] != 0, made[place], made[place - 1])
        else:
            made = np.concatenate([first, x]).cumsum(axis=0, dtype=x.dtype)
            if self.combine == "sum and largest":
                made += np.maximum.accumulate(np.concatenate([first, x]), axis=0)
        made = made[:-1] if self.exclusive else made[1:]
        if self.style.endswith("twice"):
            made = made.cumsum(axis=0, dtype=x.dtype)
        return np.moveaxis(made, 0, self.axis)


def draw(seed: int, style: str = "") -> Drawn:
    """The machine of a seed."""
    rng = np.random.default_rng(seed)
    warps, axis = int(rng.choice(WARPS)), int(rng.integers(2))
    combine, kind, style = str(rng.choice(COMBINES)), str(rng.choice(KINDS)), style or str(rng.choice(STYLES))
    if combine in ("max", "sum and largest") and kind == "f16":
        kind = "f32"
    if style.endswith("twice"):
        combine, kind = "add", "s32"
    exclusive = bool(rng.random() < 0.4)
    who, text = holders(rng, warps, axis, True)
    if kind == "f64" and who.values.size > (8 if style in OVER_A_CLUSTER else 16):  # they would not fit into registers
        kind = "f32"
    if style in OVER_A_CLUSTER and combine == "sum and largest" and who.values.size > 32:  # nor these
        combine = "add"
    tile = (int(who.shape[0]), int(who.shape[1]))
    low = -999 if combine == "max" and kind != "u32" else 0
    over: dict[str, Any] = {"grid": 1} if style in OVER_THE_GRID else {}
    ctas = 1
    if style in OVER_A_CLUSTER:
        ctas, over = int(rng.choice((2, 3, 4, 8))), {"cluster": 1}

    class Scanning(Machine):
        """Prefixes of a matrix along one axis"""

        m, n = Dim(), Dim()
        x, y = Input(kind, m, n), Output(kind, m, n)
        if style.endswith("beside a role"):
            z, w = Input(kind, n), Output(kind, n)
        many = Param(warps)
        ld, st, add, exchange = isa.LdGlobal(1), isa.StGlobal(1), isa.Add(kind), isa.Exchange()
        if kind != "f16":
            larger = isa.Max(kind)
        differs, choose = isa.Compare(kind, "!="), isa.Select(kind)

        def latest(self, p: Any, left: Any, right: Any) -> Any:
            return (p.where(p.apply(self.differs, right[0], 0), right[0], left[0]),)

        def both(self, p: Any, left: Any, right: Any) -> Any:
            return p.apply(self.add, left[0], right[0]), p.apply(self.larger, left[1], right[1])

        def scanned(self, p: Any, x: Any, carry: Any) -> Any:
            given = {"axis": axis, "exclusive": exclusive, "by": self.exchange, **over}
            if combine == "latest":
                (found,) = p.scan(Combine(self.latest, (0,)), (x,), carry=carry, **given)
                return found
            if combine == "sum and largest":
                return p.apply(self.add, *p.scan(Combine(self.both, (0, 0)), (x, x), carry=carry, **given))
            if combine == "max":
                given |= {"carry": carry[0] if carry else None}
                if exclusive and not carry:
                    return p.scan(Combine(self.most, (low,)), (x,), **{**given, "carry": None})[0]
                return p.scan(self.larger, x, **given)
            return p.scan(self.add, x, carry=carry[0] if carry else None, **given)

        def most(self, p: Any, left: Any, right: Any) -> Any:
            return (p.apply(self.larger, left[0], right[0]),)

        def program(self, p: Any) -> None:
            kept, along = (self.n, self.m) if axis == 0 else (self.m, self.n)
            first = 1 if style.endswith("beside a role") else 0

            def window(of: Any, i: Any, j: Any) -> Any:
                return of.tile(*((j, i) if axis == 0 else (i, j)), shape=tile)

            axes = [(kept, tile[1 - axis]), (along if ctas == 1 else ctas * tile[axis], tile[axis])][: 1 + bool(over)]
            beside = {"cluster": (1, ctas)} if ctas > 1 else {}
            with p.grid(*axes, persistent=style == "persistent", **beside) as (i, *places):
                place = places[0] if over else 0
                if style.endswith("beside a role"):
                    with p.role("copies", warps=1):
                        lanes = Partition((32,), Layout.of([(32, E(0))], [(1, E(0))]))
                        with p.loop(self.n, step=32) as j:
                            z = p.load(self.ld, self.z.tile(j, shape=(32,)), lanes)
                            p.store(self.st, self.w.tile(j, shape=(32,)), z)
                with p.role("all", warps=self.many, first=first):
                    if style.endswith("in a loop"):
                        carry = tuple(p.full(who.reduced(axis), kind, low) for _ in range(1 + (combine[:3] == "sum")))
                        with p.loop(along, step=ctas * tile[axis]) as j:
                            x = p.load(self.ld, window(self.x, i, j + place), who)
                            p.store(self.st, window(self.y, i, j + place), self.scanned(p, x, carry))
                        return
                    x = p.load(self.ld, window(self.x, i, place), who)
                    made = self.scanned(p, x, None)
                    if style.endswith("twice"):
                        made = p.scan(self.add, made, axis=axis, by=self.exchange, **over)
                    p.store(self.st, window(self.y, i, place), made)

        @staticmethod
        def reference(x: Array, **others: Array) -> Any:
            raise NotImplementedError

    kindly = "exclusive " * exclusive
    said = f"seed {seed}: {kindly}{combine}.{kind} along {axis} of {tile}, {style}, {warps} warps, {ctas} CTAs: {text}"
    return Drawn(Scanning, said, axis, tile, kind, combine, style, exclusive, ctas)
