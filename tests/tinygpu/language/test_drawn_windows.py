"""Windows at random: of one to five axes, with steps, begun before and beyond the tensor, strided, merged, split.

Every machine that is drawn brings windows of x to y, by threads or through shared memory: y has the shape of x, its
axes in another order, and the element j along an axis is that of x at (first element of j's tile) * times + start +
(place of j in its tile) * step; outside of x it is 0. Kernels are emulated, and programs run as they are written.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.language import Dim, Input, Machine, Output, Param, Route, blocked
from tinygpu.ptx import isa


@dataclass(frozen=True, slots=True)
class Along:
    """One axis: elements of a tile, how its windows lie over x, and its size."""

    extent: int
    times: int
    start: int
    step: int
    every: int  # so many tiles that follow one another have the same window
    size: int

    def places(self) -> np.ndarray[Any, Any]:
        """Where in x each element of y comes from."""
        j = np.arange(self.size)
        tile = j // self.extent
        return tile // self.every * self.extent * self.times + self.start + j % self.extent * self.step


@dataclass(frozen=True, slots=True)
class Drawn:
    """A machine and a problem: which way values take, which axes of the tile are merged, and the order of y's axes."""

    axes: tuple[Along, ...]
    way: str
    merged: tuple[int, ...]
    splits: bool
    held: str  # of merged axes: whether x is merged, or what threads hold, or both windows
    order: tuple[int, ...]
    strides: tuple[int, ...]


def draw(rng: np.random.Generator) -> Drawn:
    rank = int(rng.integers(1, 6))
    extents = [int(e) for e in rng.choice([1, 1, 2, 3, 4], rank)]
    extents[-1] = int(rng.choice([8, 32]))
    if rank > 1:
        extents[-2] = int(rng.choice([4, 8]))
    axes = []
    for extent in extents:
        size = int(rng.choice([1, 3, 5, extent, extent + 1, 3 * extent + 1, 5 * extent, 4 * extent]))
        start = int(rng.choice([0, 0, -1, -3, 2, size + 1]))
        times, step, every = (int(rng.choice(c)) for c in ([1, 1, 2], [1, 1, 2, 3], [1, 1, 2]))
        axes.append(Along(extent, times, start, step, every, size))
    first = int(rng.integers(rank))
    merged = tuple(range(first, int(rng.integers(first, rank)) + 1))
    way = str(rng.choice(["threads", "threads", "cp.async", "route", "tma"]))
    way = "threads" if rank == 1 and way == "tma" else way
    if way == "tma":  # boxes of whole atoms; the axis on which elements follow one another stays alone
        axes = [replace(a, step=1) for a in axes]
        axes[-2] = replace(axes[-2], extent=8)
        merged = tuple(a for a in merged if a < rank - 1)
    # y is stored as it was loaded where axes are merged; else its axes are those of x in another order
    order = tuple(range(rank)) if len(merged) > 1 or way != "threads" else tuple(map(int, rng.permutation(rank)))
    whole = 4 if way == "tma" else 1  # 16 bytes
    strides, step = [1] * rank, axes[-1].size + int(rng.integers(0, 4))
    for axis in rng.permutation(rank - 1):
        strides[axis] = -(-step // whole) * whole
        step = strides[axis] * axes[axis].size + int(rng.integers(0, 3))
    splits = bool(rng.integers(2)) and len(merged) < 2 and way != "tma" and order == tuple(range(rank))
    held = str(rng.choice(["windows", "x", "y"])) if way == "threads" else "windows"
    return Drawn(tuple(axes), way, merged if len(merged) > 1 else (), splits, held, order, tuple(strides))


def machine_of(drawn: Drawn) -> type[Machine]:
    rank = len(drawn.axes)
    dims = {f"n{axis}": Dim() for axis in range(rank)}
    listed = list(dims.values())
    vector = Param(1, 2, 4)
    names: dict[str, Any] = {
        **dims,
        "__doc__": "y is windows of x",
        "x": Input("f32", *listed),
        "y": Output("f32", *(listed[a] for a in drawn.order)),
        "vector": vector,
        "ld": isa.LdGlobal(vector),
        "st": isa.StGlobal(1),
        "get": isa.LdShared(1),
        "copy": {"cp.async": isa.CpAsync(vector), "tma": isa.TmaLoad()}.get(
            drawn.way, Route(isa.LdGlobal(vector), isa.StShared(1))
        ),
    }

    def program(self: Any, p: Any) -> None:
        shape = tuple(a.extent for a in drawn.axes)
        grid = p.grid(*((getattr(self, name), e) for name, e in zip(dims, shape, strict=True)))
        with grid as at:
            begins = [
                i // (a.extent * a.every) * (a.extent * a.times) + a.start if a.every > 1 else i * a.times + a.start
                for i, a in zip(at, drawn.axes, strict=True)
            ]
            x = self.x.tile(*begins, shape=shape, step=tuple(a.step for a in drawn.axes))
            y = self.y.tile(*(at[a] for a in drawn.order), shape=tuple(shape[a] for a in drawn.order))
            if drawn.splits and shape[-1] == 32:
                x, y = x.split(-1, (4, 8)), y.split(-1, (4, 8))
            if drawn.merged:
                x = x if drawn.held == "y" else x.merge(*drawn.merged)
                y = y if drawn.held == "x" else y.merge(*drawn.merged)
            who = blocked(x.shape, threads=32, vector=self.vector)
            if drawn.way == "threads":
                with p.role("all", warps=1):
                    value = p.load(self.ld, x, who)
                    if drawn.merged and drawn.held == "x":
                        value = value.split(drawn.merged[0], tuple(shape[a] for a in drawn.merged))
                    if drawn.merged and drawn.held == "y":
                        value = value.merge(*drawn.merged)
                    p.store(self.st, y, value.permute(*drawn.order) if drawn.order != tuple(range(rank)) else value)
                return
            by_box = drawn.way == "tma"
            with p.pipeline("ring", 1, stage=p.smem("f32", x.shape, swizzle=32 if by_box else None)) as ring:
                with p.role("load" if by_box else "all", warps=1), ring.produce() as slot:
                    p.copy(self.copy, x, slot.stage, None if by_box else who)
                with p.role("all", warps=1, first=int(by_box)), ring.consume() as slot:
                    p.store(self.st, y, p.load(self.get, slot.stage, who))

    def reference(x: Any) -> Any:
        out, inside = x, np.ones(x.shape, dtype=bool)
        for axis, a in enumerate(drawn.axes):
            at = a.places()
            out = np.take(out, np.clip(at, 0, a.size - 1), axis=axis)
            along = [1] * len(drawn.axes)
            along[axis] = a.size
            inside &= ((at >= 0) & (at < a.size)).reshape(along)
        return np.where(inside, out, 0).transpose(drawn.order)

    def declare(namespace: dict[str, Any]) -> None:
        for name, value in {**names, "program": program, "reference": staticmethod(reference)}.items():
            namespace[name] = value

    made = types.new_class("Windows", (Machine,), {}, declare)
    assert issubclass(made, Machine)
    return made


def mistake(seed: int) -> str:
    """What is wrong with a drawn machine; "" where nothing is, "none" where it has no candidate."""
    rng = np.random.default_rng(seed)
    drawn = draw(rng)
    machine = machine_of(drawn)
    sizes = {f"n{axis}": a.size for axis, a in enumerate(drawn.axes)}
    device = "h100" if drawn.way == "tma" else "a100"
    space = tg.space(machine, sizes, device=device, strides={"x": dict(enumerate(drawn.strides))})
    if not space.size:
        return "none"
    points = space.space.sample(int(space.size), rng)
    point = points[int(rng.integers(len(points)))]
    made = tg.emit(space, point)
    x = rng.integers(1, 1000, [a.size for a in drawn.axes]).astype(np.float32)
    right = machine.reference(x)
    for what, found in (("emulated", tg.emulate(made, x)), ("as it is written", tg.run(made, x))):
        if not np.array_equal(found, right):
            return f"seed {seed}, {drawn}, {point}: {what} it is wrong in {int((found != right).sum())} elements"
    return ""


# One of each way, with and without merged axes, of windows and of what threads hold.
EVERY_KIND = (1, 5, 6, 9, 11, 12, 16, 17, 40, 92)


def judged(seeds: Sequence[int]) -> None:
    found = [mistake(seed) for seed in seeds]
    wrong = [f for f in found if f not in ("", "none")]
    assert not wrong, wrong[0]
    assert found.count("") >= len(found) // 2  # and not for want of candidates


@pytest.mark.end_to_end
def test_drawn_windows_are_what_numpy_says() -> None:
    kinds = {(d.way, d.held, bool(d.merged)) for d in (draw(np.random.default_rng(seed)) for seed in EVERY_KIND)}
    assert len(kinds) == len(EVERY_KIND)
    judged(EVERY_KIND)


@pytest.mark.slow
def test_many_drawn_windows_are_what_numpy_says() -> None:
    judged(range(400))
