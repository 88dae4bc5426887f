"""Products of pairs of CTAs: random candidates, their rings, kernels that are wrong, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from test_matmul_blackwell import posed

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.language import TMEM, DeclarationError, Dim, Machine, blocked
from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.machines.operands import factors, product
from tinygpu.ptx import isa
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering import sync
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.lower import lowered
from tinygpu.ptx.lowering.sync import Protocol
from tinygpu.ptx.protocol.certificate import certify
from tinygpu.ptx.protocol.execution import Instance
from tinygpu.ptx.protocol.exploration import explore
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.buffers import solve_buffers
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.spaces.part import SpaceError

SMALL = {
    "bm": 128, "ctas": "pairs", "store": "direct", "bn": 64, "bk": 32, "stages": 2, "tiles": 2, "cluster_m": 2,
    "cluster_n": 2, "raster": 1, "swizzle": 64, "piece": 16,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(96))
@pytest.mark.sampled(12)
@pytest.mark.end_to_end
def test_random_candidates_are_right_and_their_rings_proved(seed: int) -> None:
    problem = posed(seed)
    space = build_space(MatmulBlackwell, problem, device("b200"))
    (point,) = space.space.restrict({"ctas": "pairs"}).sample(1, np.random.default_rng(seed))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, MatmulBlackwell, problem, orders=("late",))
    assert found.passed, f"{problem} {point}\n{found}"
    assert certify(_protocol(space, problem, point)).proved


@pytest.mark.parametrize("seed", range(48))
@pytest.mark.sampled(6)
@pytest.mark.end_to_end
def test_pairs_that_share_columns_are_right_and_their_rings_proved(seed: int) -> None:
    """In clusters of two or four pairs along m, the last of them beyond the last row."""
    problem = posed(seed)
    space = build_space(MatmulBlackwell, problem, device("b200"))
    part = space.space.restrict({"ctas": "pairs", "cluster_m": (4, 8)[seed % 2]})
    (point,) = part.sample(1, np.random.default_rng(seed))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, MatmulBlackwell, problem, orders=("late",))
    assert found.passed, f"{problem} {point}\n{found}"
    assert certify(_protocol(space, problem, point)).proved


def _protocol(space: Any, problem: Any, point: Any) -> Protocol:
    program = space.program(point)
    return lowered(program, problem, point, solve_buffers(program, SolverCache()).swizzles).protocol


@cache
def small() -> tuple[Any, Kernel, Protocol]:
    """Six tiles for one cluster of four CTAs, with more rounds than stages, and rows and columns beyond the last."""
    problem = MatmulBlackwell.problem(m=300, n=200, k=168)
    space = build_space(MatmulBlackwell, problem, device("b200"))
    (point,) = space.space.restrict(SMALL).sample(1, np.random.default_rng(0))
    return problem, build(space.program(point), problem, point, SolverCache()).kernel, _protocol(space, problem, point)


@pytest.mark.end_to_end
def test_its_kernel_is_right_in_every_order_and_assembles_without_spills() -> None:
    problem, kernel, _ = small()
    assert verify(kernel, MatmulBlackwell, problem).passed
    assembly = assemble(kernel.ptx, kernel.assembled_for("sm_100"))
    assert (assembly.spill_store_bytes, assembly.stack_bytes) == (0, 0)


@cache
def several() -> tuple[Any, Kernel, Protocol]:
    """Two clusters of two pairs along m and two along n: 200 columns, of which the last tiles have few."""
    problem = MatmulBlackwell.problem(m=600, n=200, k=168)
    space = build_space(MatmulBlackwell, problem, device("b200"))
    (point,) = space.space.restrict(SMALL | {"cluster_m": 4}).sample(1, np.random.default_rng(0))
    return problem, build(space.program(point), problem, point, SolverCache()).kernel, _protocol(space, problem, point)


@pytest.mark.end_to_end
def test_pairs_read_shared_columns_once() -> None:
    """All bytes that TMA brings come to one CTA more: of a along n, of b along m; of one pair along m those of a do."""
    brought = []
    for problem, kernel, _ in (several(), small()):
        found = verify(kernel, MatmulBlackwell, problem)
        assert found.passed
        brought.append((found.counters.bulk_load_bytes, found.counters.multicast_bytes))
    assert brought[0][0] == brought[0][1] > 0
    assert brought[1][0] > brought[1][1] > 0


def edited(kernel: Kernel, old: str, new: str, times: int = 0) -> Kernel:
    text, count = re.subn(old, new, kernel.ptx, count=times)
    assert count, old
    return replace(kernel, ptx=text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # bytes of one CTA are expected, where those of both come
        (r"expect_tx\.shared::cta\.b64 _, \[(%r\d+)\], \d+;", r"expect_tx.shared::cta.b64 _, [\1], 6144;"),
        # who expects for both is the second CTA as well
        (r"@%p\d+ (mbarrier\.arrive\.expect_tx)", r"\1"),
        # a commit tells the first CTA only
        (r"shl\.b16 (%h\d+), %h\d+, 1;", r"mov.u16 \1, 0;"),
        # sums are given back to the own CTA
        (r"and\.b32 (%r\d+), (%r\d+), -2;", r"mov.b32 \1, \2;"),
        # the second CTA multiplies as well
        (r"(role multiplier.*\n.*\n.*\n).*bra \$end\d+;\n", r"\1"),
    ],
)
def test_wrong_kernels_of_pairs_are_refused(old: str, new: str) -> None:
    problem, kernel, _ = small()
    assert not verify(edited(kernel, old, new), MatmulBlackwell, problem, orders=("late",)).passed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # halves come to the first pair alone
        (r"shl\.b32 (%r\d+), 5, (%r\d+);", r"shl.b32 \1, 1, \2;"),
        # halves come to both CTAs of each pair
        (r"shl\.b32 (%r\d+), 5, (%r\d+);", r"shl.b32 \1, 15, \2;"),
        # whose slots are free is heard from the own row of pairs only: a slot is filled while another pair reads it
        (r"(mbarrier\.init\.shared\.b64 \[%r\d+\]), 3;", r"\1, 2;"),
    ],
)
def test_wrong_kernels_of_several_pairs_are_refused(old: str, new: str) -> None:
    problem, kernel, _ = several()
    assert not verify(edited(kernel, old, new), MatmulBlackwell, problem, orders=("late",)).passed


def without_pairs(step: Any, kind: type) -> Any:
    """The same protocol in which one kind of step is of single CTAs."""
    if isinstance(step, kind) and hasattr(step, "pair"):
        step = replace(step, pair=1)
    if hasattr(step, "body"):
        step = replace(step, body=tuple(without_pairs(inner, kind) for inner in step.body))
    return step


@pytest.mark.parametrize("kind", [sync.Expect, sync.Bring, sync.Arrive, sync.CommitAt, sync.RoleBody])
@pytest.mark.end_to_end
def test_what_forgets_the_other_cta_is_not_proved(kind: type) -> None:
    _, _, protocol = small()
    assert certify(protocol).proved
    wrong = replace(protocol, body=tuple(without_pairs(step, kind) for step in protocol.body))
    assert not certify(wrong).proved


@pytest.mark.end_to_end
def test_bytes_and_arrivals_are_counted_for_both() -> None:
    _, _, protocol = small()
    for change in (
        lambda s: replace(s, arrivals=s.arrivals // 2) if isinstance(s, sync.Init) and s.arrivals > 4 else s,
        lambda s: replace(s, arrivals=s.arrivals + 1) if isinstance(s, sync.Init) and s.barrier.side == "full" else s,
    ):
        wrong = replace(protocol, body=tuple(map(change, protocol.body)))
        assert wrong != protocol
        assert not certify(wrong).proved


def changed(step: Any, kind: type, **to: Any) -> Any:
    """The same protocol in which steps of a kind that go to several CTAs are otherwise."""
    if isinstance(step, kind) and getattr(step, "ctas", 1) > 1:
        step = replace(step, **to)
    if hasattr(step, "body"):
        step = replace(step, body=tuple(changed(inner, kind, **to) for inner in step.body))
    return step


@pytest.mark.parametrize(
    ("kind", "to"),
    [
        (sync.CommitAt, {"ctas": 2, "axes": (0,)}), (sync.CommitAt, {"ctas": 2, "axes": (1,)}),
        (sync.CommitAt, {"ctas": 1, "axes": ()}), (sync.CommitAt, {"ctas": 5}), (sync.Bring, {"ctas": 4}),
        (sync.Bring, {"axis": 0}), (sync.Bring, {"ctas": 1, "axis": None}),
    ],
)  # fmt: skip
@pytest.mark.end_to_end
def test_what_pairs_share_is_proved_as_it_is_and_no_otherwise(kind: type, to: dict[str, Any]) -> None:
    """Slots go back to the pairs that fill them: the own one, one along n, and one along m."""
    _, _, protocol = several()
    assert certify(protocol).proved
    assert explore(protocol, Instance((3,)), 2_000).violation is None
    wrong = replace(protocol, body=tuple(changed(step, kind, **to) for step in protocol.body))
    assert wrong != protocol
    assert not certify(wrong).proved


def test_clusters_without_a_neighbour_are_refused() -> None:
    problem = MatmulBlackwell.problem(m=300, n=200, k=168)
    space = build_space(MatmulBlackwell, problem, device("b200"))
    with pytest.raises(SpaceError):
        space.space.restrict({"ctas": "pairs", "cluster_m": 1}).sample(1, np.random.default_rng(0))
    said = str(tg.explain(tg.space(MatmulBlackwell, problem, device="b200"), **SMALL | {"cluster_m": 1, "vc": 1}))
    assert (
        "tcgen05.mma.pair multiplies in 2 CTAs together, neighbours along the last axis of the grid: its cluster has a "
        "multiple of them there"
    ) in " ".join(said.split())


def declared(multicast: int | None, mixed: bool, read: bool) -> type[Machine]:
    """Products of pairs, with something that does not go with them."""

    class Pairs(Machine):
        """c = a @ b by pairs of CTAs"""

        m, n, k = Dim(), Dim(), Dim()
        a, b = factors(m, n, k, "f16")
        c = product(a, m, n)
        tma, mma, one, ld = isa.TmaLoad(), isa.Tcgen05MmaPair(64), isa.Tcgen05Mma(64), isa.Tcgen05Ld()
        st, put, conversions = isa.StGlobal(1), isa.TmaStore(), isa.arithmetic("f32")
        compute = "f32"

        def program(self, p: Any) -> None:
            stage = {"swizzle": 64}
            rows = blocked((128, 64), threads=128, vector=1, across=1, name="c")
            with (
                p.grid((self.n, 64), (self.m, 128), cluster=(1, 2), persistent=True) as (j, i),
                p.pipeline("ring", 2, a=p.smem("f16", (128, 32), **stage), b=p.smem("f16", (32, 32), **stage)) as ring,
                p.pipeline("sums", 1, c=p.buffer(TMEM, "f32", (128, 64))) as sums,
            ):
                with p.role("producer", warps=1), p.loop(self.k, step=32) as kk, ring.produce() as s:
                    p.copy(self.tma, self.a.tile(i, kk, shape=(128, 32)), s.a)
                    place = j + p.rank(1) * 32 if multicast is None else j
                    p.copy(self.tma, self.b.tile(kk, place, shape=(32, 32)), s.b, multicast=multicast)
                with p.role("multiplier", warps=1, first=1), sums.produce() as t:
                    p.clear(t.c)
                    with p.loop(self.k, step=32), ring.consume() as s, p.unroll(32, step=16) as kt:
                        left, right = s.a.window((0, kt), (128, 16)), s.b.window((kt, 0), (16, 32))
                        p.multiply(self.mma, t.c, left, right)
                        if mixed:
                            p.multiply(self.one, t.c.window((0, 0), (128, 32)), left, right)
                if read:
                    with p.role("reader", warps=1, first=2), p.loop(self.k, step=32) as kk, ring.consume() as s:
                        p.copy(self.put, s.a, self.c.tile(i, kk, shape=(128, 32)))
                with p.role("epilogue", warps=4, first=4), sums.consume() as t:
                    p.store(self.st, self.c.tile(i, j, shape=(128, 64)), p.load(self.ld, t.c, rows))

        @staticmethod
        def reference(a: Any, b: Any) -> Any:
            return a @ b

    return Pairs


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            (1, False, False),
            "Pairs.program: tma brings ring.b to all CTAs along axis 1, which multiply in pairs: each of a pair "
            "needs its own part; say every=2, or leave out multicast there",
        ),
        (
            (None, True, False),
            "Pairs.program: one multiplies in one CTA and others in pairs; tcgen05 instructions of a kernel are all of "
            "one CTA, or all of two",
        ),
        (
            (None, False, True),
            "Pairs.program: role reader consumes 'ring', whose slots a pair of CTAs multiplies; which is full is known "
            "in the first of them only: give it a pipeline of its own",
        ),
    ],
)
def test_what_does_not_go_with_pairs_is_refused_where_it_is_declared(
    arguments: tuple[int | None, bool, bool], sentence: str
) -> None:
    declared(None, False, False)
    with pytest.raises(DeclarationError) as refused:
        declared(*arguments)
    assert str(refused.value).splitlines()[0] == sentence
