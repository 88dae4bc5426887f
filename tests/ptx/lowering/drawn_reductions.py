"""Random machines that combine along an axis: who holds what, how many warps, what combines, how it is exchanged.

Digits of the thread id are drawn and dealt to the axis along which is reduced, to the other one and to copies, so that
lanes, warps and both meet, in any order; warps are any number. Values of a thread are strewn over both axes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.dtypes import dtype
from tinygpu.expressions import expr
from tinygpu.language import Combine, Dim, E, ExchangePlan, Input, Layout, Machine, Output, Param, Partition
from tinygpu.ptx import isa

Array = NDArray[Any]
# What combines, of which types, with what nothing changes, and in NumPy.
COMBINES: dict[str, tuple[Callable[[str], Any], tuple[str, ...], Callable[[str], float], Any]] = {
    "add": (isa.Add, ("f32", "s32", "u32", "f64", "f16"), lambda kind: 0, np.add),
    "max": (isa.Max, ("f32", "s32", "u32", "f64"), lambda kind: 0 if kind == "u32" else -999, np.maximum),
    "min": (isa.Min, ("f32", "s32", "u32"), lambda kind: 999, np.minimum),
    "xor": (isa.Xor, ("u32", "s32"), lambda kind: 0, np.bitwise_xor),
    "and": (isa.And, ("u32",), lambda kind: 2**32 - 1, np.bitwise_and),
}
# The place of the largest, the first of equals: a Combine of a value and its place.
PLACES = "place of the largest"
WARPS = (1, 1, 2, 3, 4, 5, 6, 8, 12)
STYLES = (
    "once", "in a loop", "behind a loop", "in a row", "beside a role", "through a ring", "persistent", "of a cluster",
)  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """A machine that was drawn.

    axis   along which it reduces
    tile   extents
    kind   of the elements
    """

    machine: type[Machine]
    text: str
    axis: int
    tile: tuple[int, int]
    kind: str
    combine: str
    style: str
    warps: int
    ctas: int

    def sizes(self, rng: np.random.Generator) -> tuple[int, int]:
        """m and n: tiles that reach beyond the matrix, and several of them where a loop goes along the axis."""
        extent, other = self.tile[self.axis], self.tile[1 - self.axis]
        along = extent
        if self.style in ("in a loop", "behind a loop"):
            along = int(rng.integers(1, 3 * extent + 1))
        elif self.style == "through a ring":
            along = extent * int(rng.integers(1, 5))
        elif self.style == "of a cluster":
            along = int(rng.integers(1, self.ctas * extent + 1))
        elif self.style != "in a row":
            along = int(rng.integers(1, extent + 1))
        across = int(rng.integers(1, 3 * other + 1))
        return (across, along) if self.axis == 1 else (along, across)

    def arrays(self, rng: np.random.Generator, m: int, n: int) -> list[Array]:
        low, high = (-1, 2) if self.kind == "f16" else (0 if self.kind == "u32" else -4, 9)  # f16 counts to 2048
        shapes = [(m, n), (m, n)] if self.style == "beside a role" else [(m, n)]
        return [rng.integers(low, high, shape).astype(dtype(self.kind).numpy) for shape in shapes]

    def wanted(self, arrays: list[Array]) -> list[Array]:
        if self.combine == PLACES:
            return [arrays[0].argmax(axis=self.axis).astype(np.int32), *arrays[1:]]
        combine = COMBINES[self.combine][3]
        found = combine.reduce(arrays[0], axis=self.axis, dtype=arrays[0].dtype)
        if self.style == "in a row":
            shifted = arrays[0] - np.expand_dims(found, self.axis)
            found = np.maximum.reduce(shifted, axis=self.axis)
        return [found.astype(arrays[0].dtype), *arrays[1:]]


def factors(rng: np.random.Generator, number: int) -> list[int]:
    """A number as a product of primes, some of them multiplied again."""
    out: list[int] = []
    for prime in (2, 3, 5):
        while number % prime == 0:
            number //= prime
            if out and out[-1] % prime == 0 and rng.random() < 0.6:
                out[-1] *= prime
            else:
                out.append(prime)
    return out


def holders(rng: np.random.Generator, warps: int, axis: int, copies: bool) -> tuple[Partition, str]:
    """Who holds what of a tile whose digits are drawn."""
    factors_of_lanes = factors(rng, 32)
    digits = [*factors_of_lanes, *rng.permutation(factors(rng, warps)).tolist()]
    if warps > 1 and rng.random() < 0.4:  # a digit of lanes and of warps
        place = len(factors_of_lanes)
        digits[place - 1 : place + 1] = [digits[place - 1] * digits[place]]
    owners = [int(rng.choice([axis, axis, axis, 1 - axis, *[2] * copies])) for _ in digits]
    values = [(int(rng.choice([1, 2, 3, 4])), side) for side in rng.permutation([axis, 1 - axis, axis]).tolist()]
    extents, pending = [1, 1], [("t", i, size, side) for i, (size, side) in enumerate(zip(digits, owners, strict=True))]
    pending += [("v", i, size, side) for i, (size, side) in enumerate(values)]
    threads: list[Any] = [(size, 0) for size in digits]
    held: list[Any] = [(size, 0) for size, _ in values]
    for which, place, size, side in [pending[int(i)] for i in rng.permutation(len(pending))]:
        if side == 2:
            continue
        step = extents[side] * E(side)
        extents[side] *= size
        (threads if which == "t" else held)[place] = (size, step)
    layout = Layout.of(threads, [one for one in held if one[1] != 0])
    return Partition((extents[0], extents[1]), layout, (), expr(32 * warps)), str(layout)


def plan(rng: np.random.Generator, lanes: int, combine: str, kind: str) -> ExchangePlan:
    """One of the ways that are legal."""
    names = ["shuffles", "pairs"]
    if lanes == 32 and kind in ("s32", "u32") and combine != PLACES:
        names += ["redux"] * 2
    found = isa.Exchange().option(str(rng.choice(names)))
    assert isinstance(found, ExchangePlan)
    return found


def draw(seed: int, style: str = "") -> Drawn:
    """The machine of a seed; `style` instead of the one that is drawn."""
    rng = np.random.default_rng(seed)
    warps, axis = int(rng.choice(WARPS)), int(rng.integers(2))
    combine = str(rng.choice([*COMBINES, "add", PLACES, PLACES]))
    make, kinds, identity, _ = COMBINES["max" if combine == PLACES else combine]
    kinds = ("f32", "s32") if combine == PLACES else kinds
    kind, style = str(rng.choice(kinds)), style or str(rng.choice(STYLES))
    if combine == PLACES and style not in ("persistent", "beside a role"):
        style = "once"
    ctas = int(rng.integers(2, 5)) if style == "of a cluster" else 1
    again = bool(rng.integers(2))  # of a cluster: all CTAs have the sum, and meet a second time
    loops = style in ("in a row", "in a loop", "behind a loop", "of a cluster")
    if loops and (combine not in ("add", "max") or kind in ("u32", "f16")):
        combine, kind = "add", "f32" if kind not in ("f32", "s32", "f64") else kind
        make, kinds, identity, _ = COMBINES[combine]
    if style == "through a ring" and dtype(kind).bits < 32:
        style = "once"
    who, text = holders(rng, warps, axis, style != "through a ring")
    lanes = 1
    below = 1
    for size, step in who.threads.steps:
        if below < 32 and getattr(step, "terms", ()) and step.terms[0][0] == axis:  # type: ignore[union-attr]
            lanes *= int(size)
        below *= int(size)
    exchange = plan(rng, lanes, combine, kind)
    fill = identity(kind)
    tile = (int(who.shape[0]), int(who.shape[1]))

    class Reduction(Machine):
        """Reductions of a matrix along one axis"""

        m, n = Dim(), Dim()
        x = Input(kind, m, n)
        y = Output("s32" if combine == PLACES else kind, n if axis == 0 else m)
        if style == "beside a role":
            z, w = Input(kind, m, n), Output(kind, m, n)
        many = Param(warps)
        ld, st, one, larger, sub = isa.LdGlobal(1), isa.StGlobal(1), make(kind), isa.Max("f32"), isa.Sub("f32")
        if style in ("in a row", "of a cluster"):
            larger, sub = isa.Max(kind), isa.Sub(kind)
        bring, get = isa.CpAsync(1), isa.LdShared(1)
        more, same = isa.Compare("f32", ">"), isa.Compare("f32", "==")
        if combine == PLACES:
            more, same = isa.Compare(kind, ">"), isa.Compare(kind, "==")
        lower, place = isa.Min("s32"), isa.Select("s32")

        def first_of_largest(self, p: Any, left: Any, right: Any) -> Any:
            (x, i), (y, j) = left, right
            equal = p.where(p.apply(self.same, x, y), p.apply(self.lower, i, j), j)
            return p.apply(self.one, x, y), p.where(p.apply(self.more, x, y), i, equal)

        def program(self, p: Any) -> None:
            kept, along = (self.n, self.m) if axis == 0 else (self.m, self.n)
            first = 2 if style == "beside a role" else 0

            def window(i: Any, j: Any) -> Any:
                return self.x.tile(*((j, i) if axis == 0 else (i, j)), shape=tile)

            def reduced(value: Any) -> Any:
                if combine == PLACES:
                    both = value, p.index(who, axis)
                    return p.reduce(Combine(self.first_of_largest), both, axis=axis, by=exchange)[1]
                return p.reduce(self.one, value, axis=axis, by=exchange)

            def stored(i: Any, value: Any) -> None:
                at = self.y.row(i, tile[1]) if axis == 0 else self.y.column(i, tile[0])
                p.store(self.st, at, value)

            persistent = style == "persistent"
            if style == "of a cluster":
                of = (kept, tile[1 - axis]), (along, tile[axis])
                with p.grid(*of, cluster=(1, ctas), persistent=again) as (i, j), p.role("all", warps=self.many):
                    x = p.load(self.ld, window(i, j), who, fill=fill)
                    total = p.reduce(self.one, x, axis=axis, by=exchange, cluster=1)
                    if again:  # what the CTAs have together is in all of them
                        total = p.reduce(self.larger, total, axis=axis, by=exchange, cluster=1)
                    with p.when(p.rank(1) == 0):
                        stored(i, total)
                return
            with p.grid((kept, tile[1 - axis]), persistent=persistent) as (i,):
                if style == "through a ring":
                    with p.pipeline("ring", 2, t=p.smem(kind, tile)) as ring, p.role("all", warps=self.many):
                        total = p.full(who.reduced(axis), kind, fill)
                        with p.loop(along, step=tile[axis]) as j:
                            with ring.produce() as s:
                                p.copy(self.bring, window(i, j), s.t, who)
                            with ring.consume() as s:
                                part = reduced(p.load(self.get, s.t, who))
                                p.apply(self.one, total, part, into=total)
                        stored(i, total)
                    return
                if style == "beside a role":
                    with p.role("copies", warps=2):
                        self._copies(p, i)
                with p.role("all", warps=self.many, first=first):
                    if style == "in a loop":
                        total = p.full(who.reduced(axis), kind, fill)
                        with p.loop(along, step=tile[axis]) as j:
                            part = reduced(p.load(self.ld, window(i, j), who, fill=fill))
                            p.apply(self.one, total, part, into=total)
                        stored(i, total)
                    elif style == "behind a loop":
                        whole = p.full(who, kind, fill)
                        with p.loop(along, step=tile[axis]) as j:
                            p.apply(self.one, whole, p.load(self.ld, window(i, j), who, fill=fill), into=whole)
                        stored(i, reduced(whole))
                    elif style == "in a row":
                        x = p.load(self.ld, window(i, 0), who, fill=fill)
                        moved = p.apply(self.sub, x, reduced(x))
                        stored(i, p.reduce(self.larger, moved, axis=axis, by=exchange))
                    else:
                        stored(i, reduced(p.load(self.ld, window(i, 0), who, fill=fill)))

        def _copies(self, p: Any, i: Any) -> None:
            """What another role does meanwhile."""
            shape = (1, 64) if axis == 1 else (64, 1)
            lanes_of = Partition(shape, Layout.of([(64, E(1 if axis == 1 else 0))], [(1, E(0))]), (), expr(64))
            extent, along = tile[1 - axis], self.n if axis == 1 else self.m
            with p.loop(along, step=64) as j:
                for row in range(extent):
                    at = (i + row, j) if axis == 1 else (j, i + row)
                    p.store(
                        self.st,
                        self.w.tile(*at, shape=shape),
                        p.load(self.ld, self.z.tile(*at, shape=shape), lanes_of),
                    )

        @staticmethod
        def reference(x: Array, **others: Array) -> Any:
            raise NotImplementedError

    many = f"{ctas} CTAs, {warps} warps"
    said = f"seed {seed}: {combine}.{kind} along {axis} of {tile}, {style}, {many}, by {exchange}: {text}"
    return Drawn(Reduction, said, axis, tile, kind, combine, style, warps, ctas)
