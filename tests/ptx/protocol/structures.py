"""Protocols of kernels: of all structures of the machines that ship with pipelines, and of small machines."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import cluster_rings
import numpy as np
import rare_machines
import ring_machines

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.machines.attention_hopper import AttentionHopper
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_basic_blackwell import MatmulBasicBlackwell
from tinygpu.machines.matmul_basic_hopper import MatmulBasicHopper
from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.machines.matmul_blackwell_consumer import MatmulBlackwellConsumer
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.machines.matmul_simt import MatmulSimt
from tinygpu.machines.matmul_skinny import MatmulSkinny
from tinygpu.machines.matmul_skinny_blackwell import MatmulSkinnyBlackwell
from tinygpu.ptx import isa
from tinygpu.ptx.lowering import sync
from tinygpu.ptx.lowering.lower import lowered
from tinygpu.ptx.protocol.certificate import Proofs
from tinygpu.solver.buffers import solve_buffers
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

SHAPE = (8, 32)
# Each proof once, whatever tests ask for it.
PROOFS = Proofs()


@cache
def readers(count: int) -> type[Machine]:
    """A ring, each slot of which so many roles of one warp or two consume."""

    class Readers(Machine):
        """y0, y1, y2 = x"""

        m, n = Dim(), Dim()
        x = Input("f32", m, n)
        y0, y1, y2 = Output("f32", m, n), Output("f32", m, n), Output("f32", m, n)
        stages = Param(1, 2, 3, 4)
        tma, ld, st = isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1)

        def program(self, p: Any) -> None:
            with (
                p.grid((self.m, 8), persistent=True) as (i,),
                p.pipeline("ring", self.stages, x=p.smem("f32", SHAPE, swizzle=128)) as ring,
            ):
                with p.role("producer", warps=1), p.loop(self.n, step=32) as j, ring.produce() as s:
                    p.copy(self.tma, self.x.tile(i, j, shape=SHAPE), s.x)
                for number, target in enumerate((self.y0, self.y1, self.y2)):
                    place = number % count
                    warps, first = 1 + place % 2, 1 + 2 * place
                    who = blocked(SHAPE, threads=32 * warps, across=32, name=f"w{place}")
                    if number >= count:
                        continue
                    with (
                        p.role(f"reader{place}", warps=warps, first=first),
                        p.loop(self.n, step=32) as j,
                        ring.consume() as s,
                    ):
                        x = p.load(self.ld, s.x, who)
                        for output in (target, *([self.y1, self.y2][count - 1 :] if not number else [])):
                            p.store(self.st, output.tile(i, j, shape=SHAPE), x)

        @staticmethod
        def reference(x: Any) -> Any:
            return {"y0": x, "y1": x, "y2": x}

    return Readers


class CopiedInBulk(Machine):
    """y = x: TMA brings each tile and takes it away again, by roles of one warp and of four"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)
    stages, warps, across = Param(1, 2, 3), Param(1, 4), Param(1, 2)
    tma, put = isa.TmaLoad(), isa.TmaStore()

    def program(self, p: Any) -> None:
        with (
            p.grid((self.m, 8), (self.n, 32), persistent=True, cluster=(self.across, 1)) as (i, j),
            p.pipeline("ring", self.stages, x=p.smem("f32", SHAPE, swizzle=128)) as ring,
        ):
            with p.role("producer", warps=1), ring.produce() as s:
                p.copy(self.tma, self.x.tile(i, j, shape=SHAPE), s.x)
            with p.role("writer", warps=self.warps, first=1), ring.consume() as s:
                p.copy(self.put, s.x, self.y.tile(i, j, shape=SHAPE))

    @staticmethod
    def reference(x: Any) -> Any:
        return x


class RingInRing(Machine):
    """y = x: a slot of one ring is held while three of another are used"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)
    stages = Param(1, 2)
    tma, ld, st = isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        who = blocked(SHAPE, threads=32, across=32)
        with (
            p.grid((self.m, 8), (self.n, 128), persistent=True) as (i, j),
            p.pipeline("outer", self.stages, x=p.smem("f32", SHAPE, swizzle=128)) as outer,
            p.pipeline("inner", self.stages, x=p.smem("f32", SHAPE, swizzle=128)) as inner,
        ):
            with p.role("producer", warps=1, first=1):
                with outer.produce() as s:
                    p.copy(self.tma, self.x.tile(i, j, shape=SHAPE), s.x)
                with p.loop(3) as k, inner.produce() as s:
                    p.copy(self.tma, self.x.tile(i, j + 32 + k * 32, shape=SHAPE), s.x)
            with p.role("reader", warps=1), outer.consume() as s:
                with p.loop(3) as k, inner.consume() as t:
                    p.store(self.st, self.y.tile(i, j + 32 + k * 32, shape=SHAPE), p.load(self.ld, t.x, who))
                p.store(self.st, self.y.tile(i, j, shape=SHAPE), p.load(self.ld, s.x, who))

    @staticmethod
    def reference(x: Any) -> Any:
        return x


@cache
def two_rings(produced: str, consumed: str) -> type[Machine]:
    """Two rings between two roles, who come to their slots in these orders: "aabb" is twice to a, then twice to b."""

    class TwoRings(Machine):
        """y = x, as far as it goes"""

        m, n = Dim(), Dim()
        x = Input("f32", m, n)
        y = Output("f32", m, n)
        stages = Param(1, 2, 3)
        tma, ld, st = isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1)

        def program(self, p: Any) -> None:
            who = blocked(SHAPE, threads=32, across=32)
            with (
                p.grid((self.m, 8), (self.n, 32 * len(produced)), persistent=True) as (i, j),
                p.pipeline("a", self.stages, x=p.smem("f32", SHAPE, swizzle=128)) as a,
                p.pipeline("b", self.stages, x=p.smem("f32", SHAPE, swizzle=128)) as b,
            ):
                rings = {"a": a, "b": b}
                with p.role("producer", warps=1, first=1):
                    for number, name in enumerate(produced):
                        with rings[name].produce() as s:
                            p.copy(self.tma, self.x.tile(i, j + 32 * number, shape=SHAPE), s.x)
                with p.role("reader", warps=1):
                    for number, name in enumerate(consumed):
                        with rings[name].consume() as s:
                            at = self.y.tile(i, j + 32 * number, shape=SHAPE)
                            p.store(self.st, at, p.load(self.ld, s.x, who))

        @staticmethod
        def reference(x: Any) -> Any:
            return x

    return TwoRings


@cache
def _protocol(
    machine: type[Machine], sizes: tuple[int, ...], of: tuple[tuple[str, Any], ...], on: str = ""
) -> sync.Protocol:
    problem = machine.problem(**dict(zip(machine.dim_names(), sizes, strict=True)))
    on = on or ("b200" if machine in (MatmulBasicBlackwell, MatmulBlackwell) else "h100")
    on = "rtx5090" if machine is MatmulBlackwellConsumer else on
    space = build_space(machine, problem, device(on))
    point: dict[str, Any] = dict(of)
    if set(point) != set(space.space.names):  # else also what no constraint admits: it is lowered as well
        (point,) = space.space.restrict(point).sample(1, np.random.default_rng(0))
    program = space.program(point)
    return lowered(program, problem, point, solve_buffers(program, SolverCache()).swizzles).protocol


def protocol(machine: type[Machine], sizes: tuple[int, ...], of: Mapping[str, Any], on: str = "") -> sync.Protocol:
    return _protocol(machine, sizes, tuple(sorted(of.items())), on)


HOPPER: dict[str, Any] = {
    "schedule": "single", "store": "direct", "bm": 64, "bn": 16, "bk": 32, "cluster_m": 1, "cluster_n": 1, "raster": 1,
    "split_k": 1, "stream_k": 0, "swizzle": 32, "swizzle_c": 32, "piece": 16, "outs": 1, "vr": 1, "stages": 2,
}  # fmt: skip
SKINNY: dict[str, Any] = {"bm": 8, "bn": 64, "bk": 64, "split_k": 1, "swizzle": 64, "stages": 2}
ATTENTION: dict[str, Any] = {
    "groups": 2, "weights_in": "registers", "bn": 64, "stages": 2, "columns": 64, "swizzle": 128,
}  # fmt: skip
STORED = ATTENTION | {"weights_in": "shared memory"}
SMALL = (300, 72, 320)
AMPERE: dict[str, Any] = {
    "copy_a": "cp.async", "copy_b": "cp.async", "fragment_a": "ldmatrix", "fragment_b": "ldmatrix", "store": "direct",
    "bm": 32, "bn": 32, "bk": 32, "warps_m": 2, "warps_n": 1, "raster": 1, "stages": 3, "prefetch": 0,
}  # fmt: skip
THROUGH_REGISTERS: dict[str, Any] = {"copy_a": "ld.global+st.shared", "copy_b": "ld.global+st.shared", "stages": 3}
BLACKWELL: dict[str, Any] = {
    "bn": 64, "bk": 32, "stages": 3, "tiles": 2, "cluster_m": 1, "cluster_n": 1, "raster": 1, "piece": 32, "outs": 2,
    "swizzle": 64, "swizzle_c": 64, "vc": 8, "store": "staged",
}  # fmt: skip

CONSUMER: dict[str, Any] = {
    "fragment_a": "ldmatrix", "fragment_b": "ldmatrix", "schedule": "cooperative", "store": "direct", "bm": 32,
    "bn": 32, "bk": 32, "warps_m": 2, "warps_n": 1, "raster": 1, "split_k": 1, "stream_k": 0, "swizzle": 64, "vr": 2,
    "swizzle_c": 32, "stages": 3,
}  # fmt: skip

# Every structure of the machines that ship, with clusters along each axis and every way of sharing tiles.
SHIPPED: dict[str, tuple[type[Machine], tuple[int, ...], dict[str, Any]]] = {
    "basic hopper": (
        MatmulBasicHopper, SMALL, {"bm": 64, "bn": 32, "bk": 32, "raster": 1, "swizzle": 32, "vc": 1, "stages": 3},
    ),
    "basic blackwell": (
        MatmulBasicBlackwell, SMALL,
        {"bn": 32, "bk": 32, "stages": 3, "tiles": 2, "raster": 1, "swizzle": 32, "piece": 16, "vc": 8},
    ),
    # those in clusters have too many states to tell what breaks; that they are proved, random candidates show
    "blackwell, staged": (MatmulBlackwell, SMALL, BLACKWELL),
    "skinny blackwell, split-K": (
        MatmulSkinnyBlackwell, (13, 304, 320),
        {"bm": 16, "bk": 32, "stages": 3, "tiles": 1, "split_k": 3, "swizzle": 32},
    ),
    "consumer": (MatmulBlackwellConsumer, SMALL, CONSUMER),
    "consumer, staged": (MatmulBlackwellConsumer, SMALL, CONSUMER | {"store": "staged"}),
    "consumer, pingpong": (
        MatmulBlackwellConsumer, SMALL, CONSUMER | {"schedule": "pingpong", "store": "stmatrix", "stages": 2},
    ),
    "consumer, split-K": (MatmulBlackwellConsumer, SMALL, CONSUMER | {"split_k": 3}),
    "consumer, stream-K": (MatmulBlackwellConsumer, SMALL, CONSUMER | {"stream_k": 1}),
    "hopper": (MatmulHopper, SMALL, HOPPER),
    "hopper, deep": (MatmulHopper, SMALL, HOPPER | {"stages": 7}),
    "hopper, stmatrix": (MatmulHopper, SMALL, HOPPER | {"store": "stmatrix"}),
    "hopper, staged": (MatmulHopper, SMALL, HOPPER | {"store": "staged", "cluster_n": 2, "outs": 2}),
    "hopper, split-K": (MatmulHopper, SMALL, HOPPER | {"split_k": 3, "cluster_m": 2}),
    "hopper, stream-K": (MatmulHopper, SMALL, HOPPER | {"stream_k": 1, "cluster_m": 2}),
    "hopper, cooperative": (
        MatmulHopper, SMALL, HOPPER | {"schedule": "cooperative", "bm": 128, "cluster_m": 2, "cluster_n": 2},
    ),
    "hopper, pingpong": (MatmulHopper, SMALL, HOPPER | {"schedule": "pingpong", "store": "staged", "stages": 3}),
    "hopper, pingpong in clusters": (MatmulHopper, SMALL, HOPPER | {"schedule": "pingpong", "cluster_m": 2}),
    "hopper, pingpong, split-K": (MatmulHopper, SMALL, HOPPER | {"schedule": "pingpong", "split_k": 2}),
    "hopper, pingpong, stream-K": (MatmulHopper, SMALL, HOPPER | {"schedule": "pingpong", "stream_k": 1}),
    **{
        f"ampere, {stages} stage{'s' if stages > 1 else ''}": (MatmulAmpere, (70, 90, 136), AMPERE | {"stages": stages})
        for stages in range(1, 7)
    },
    "ampere, staged": (MatmulAmpere, (70, 90, 136), AMPERE | {"store": "staged"}),
    "ampere, through registers": (MatmulAmpere, (70, 91, 137), THROUGH_REGISTERS | {"prefetch": 0}),
    "ampere, loads ahead": (MatmulAmpere, (70, 90, 136), AMPERE | {"prefetch": 1}),
    "ampere, loads ahead, staged": (MatmulAmpere, (70, 90, 136), AMPERE | {"prefetch": 1, "store": "staged"}),
    "ampere, through registers, loads ahead": (MatmulAmpere, (70, 91, 137), THROUGH_REGISTERS | {"prefetch": 1}),
    "simt": (MatmulSimt, (70, 90, 136), {"copy_a": "cp.async", "stages": 3}),
    "skinny": (MatmulSkinny, (8, 200, 528), SKINNY | {"product": "mma.sync", "warps": 1}),
    "skinny, several warps": (MatmulSkinny, (8, 200, 528), SKINNY | {"product": "mma.sync", "warps": 4}),
    "skinny, wgmma": (MatmulSkinny, (8, 200, 1000), SKINNY | {"product": "wgmma", "warps": 4}),
    "skinny, split-K": (MatmulSkinny, (8, 200, 1000), SKINNY | {"product": "wgmma", "warps": 4, "split_k": 3}),
    "attention": (AttentionHopper, (1, 1, 1, 130, 150, 64), ATTENTION | {"overlapped": 0}),
    "attention, overlapped": (AttentionHopper, (1, 1, 1, 130, 150, 64), ATTENTION | {"overlapped": 1}),
    "attention, in turns": (
        AttentionHopper, (1, 1, 1, 130, 150, 64), ATTENTION | {"overlapped": 1, "groups": "2 in turns"},
    ),
    "attention, weights stored": (AttentionHopper, (1, 1, 1, 130, 150, 64), STORED | {"overlapped": 0}),
    "attention, weights stored in turns": (
        AttentionHopper, (1, 1, 1, 130, 150, 64), STORED | {"overlapped": 1, "groups": "2 in turns", "bn": 176},
    ),
}  # fmt: skip

CLUSTERED = {"cluster_m": 2, "cluster_n": 2}
SMALL_ONES: dict[str, tuple[type[Machine], tuple[int, ...], dict[str, Any]]] = {
    **{f"{count} readers": (readers(count), (40, 200), {"stages": 2}) for count in (1, 2, 3)},
    "copied in bulk": (CopiedInBulk, (40, 200), {"stages": 2, "warps": 4, "across": 2}),
    "products": (cluster_rings.Product, (128, 128, 320), {"product": "mma.sync", "stages": 2, **CLUSTERED}),
    "fold": (cluster_rings.ProductAndFold, (128, 128, 320), {"stages": 2, **CLUSTERED}),
    "sums in turn": (ring_machines.SumsInTurn, (44, 136, 32), {"stages": 2, "rounds": 0, "parts": 1}),
    "sums in turn, stream-K": (ring_machines.SumsInTurn, (44, 136, 32), {"stages": 2, "rounds": 1, "parts": 1}),
    "read twice": (ring_machines.ReadTwice, (72, 40, 72), {"stages": 2, "along_m": 1, "along_n": 2}),
    "ring in a ring": (RingInRing, (40, 256), {"stages": 2}),
    "two rings": (ring_machines.TwoRings, (12, 72), {"stages": 3, "again": 2}),
    "parts of slots": (ring_machines.PartOfSlot, (12, 120, 32), {"stages": 3}),
    **{
        f"slots in turn, {rounds}, {way}": (
            ring_machines.SlotsInTurn, (44, 136), {"stages": 2, "pieces": pieces, "rounds": rounds, "way": way}
        )
        for rounds, way, pieces in (
            ("unrolled", "bulk", 2), ("unrolled", "threads", 3), ("loop", "bulk", 3), ("branch", "threads", 2),
            ("branch", "bulk", 2), ("loop", "threads", 2),
        )
    },
    "filled meanwhile": (ring_machines.FilledMeanwhile, (12, 72), {"stages": 1, "warps": 2}),
    "slots again": (ring_machines.SlotsAgain, (12, 72), {}),
    "one slot": (rare_machines.OneSlot, tuple(rare_machines.MACHINES[rare_machines.OneSlot].values()), {}),
}
STRUCTURES = SHIPPED | SMALL_ONES


def structure(name: str, **of: Any) -> sync.Protocol:
    """The protocol of a structure by name; some of its point otherwise."""
    machine, sizes, point = STRUCTURES[name]
    return protocol(machine, sizes, point | of)
