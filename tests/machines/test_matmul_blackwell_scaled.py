"""mxfp8, mxfp4, nvfp4 in tensor memory: random candidates over odd sizes, types, options; proofs; wrong kernels."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from proving import right_and_proved
from text_edits import TextEdit, exchanged, without

import tinygpu as tg
from tinygpu.cost.counting import count
from tinygpu.cost.main_loops import taking_sums
from tinygpu.devices import device
from tinygpu.language import TMEM, DeclarationError, Dim, Input, Machine, Output, blocked
from tinygpu.machines.matmul_blackwell_scaled import MatmulBlackwellMx, MatmulBlackwellNvfp4
from tinygpu.ptx import isa
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.lower import lowered
from tinygpu.ptx.lowering.sync import RoleBody
from tinygpu.ptx.protocol.certificate import Proofs, certify
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.buffers import solve_buffers
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

# One more than a tile, primes, less than a block, blocks of which the last is short, several tiles along each axis.
SIZES = ((1, 1, 1), (129, 129, 33), (127, 257, 300), (257, 13, 128), (31, 128, 129), (128, 255, 640))
# (machine, types of a and b)
KINDS: tuple[tuple[type[Machine], dict[str, str]], ...] = (
    (MatmulBlackwellMx, {"a": "e4m3", "b": "e4m3"}), (MatmulBlackwellMx, {"a": "e2m1"}), (MatmulBlackwellNvfp4, {}),
    (MatmulBlackwellMx, {"a": "e5m2", "b": "e4m3"}), (MatmulBlackwellMx, {"a": "e4m3", "b": "e5m2"}),
    (MatmulBlackwellMx, {"a": "e5m2", "b": "e5m2"}), (MatmulBlackwellMx, {"a": "e4m3", "b": "e2m1"}),
    (MatmulBlackwellMx, {"a": "e2m1", "b": "e3m2"}), (MatmulBlackwellMx, {"a": "e2m3", "b": "e5m2"}),
)  # fmt: skip
RESULTS = ("f32", "bf16", "f16")
OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"with_bias": True, "activation": "relu"}, {"scaling": "columns", "with_residual": True},
)  # fmt: skip
SMALL = {
    "ctas": "one", "cluster_m": 1, "cluster_n": 1, "bn": 128, "bk": 256, "stages": 2, "scaled": 1, "tiles": 2,
    "raster": 1, "piece": 16, "swizzle": 128, "vc": 8, "store": "direct", "split_k": 1, "stream_k": 0,
}  # fmt: skip
PAIRS = SMALL | {"ctas": "pairs", "cluster_m": 2}
# Beside one CTA: a pair, pairs side by side, and CTAs that fill each other's slots.
CLUSTERS: dict[str, dict[str, Any]] = {
    "one": {}, "pairs": PAIRS, "two pairs": PAIRS | {"cluster_n": 2}, "shared": {"cluster_m": 2, "cluster_n": 2},
}  # fmt: skip


def padded(n: int) -> int:
    """To 16 bytes, of 4 bits as of 8."""
    return -(-n // 32) * 32


@pytest.mark.parametrize("seed", range(108))
@pytest.mark.sampled(72)
def test_random_candidates_are_right(seed: int) -> None:
    machine, kinds = KINDS[seed // len(SIZES) % len(KINDS)]
    m, n, k = SIZES[seed % len(SIZES)]
    if kinds.get("a", "e2m1") == "e2m1":
        k += k % 2  # two share a byte
    if not {*kinds.values()} <= {"e4m3", "e5m2", *(("e2m1",) if "b" not in kinds else ())}:
        k = 128 * -(-k // 100)  # rows of whole boxes of what is padded
    lds, options = {"a": padded(k), "b": padded(k)}, OPTIONS[seed % 3]
    dtypes = kinds | {"c": RESULTS[seed // 2 % 3]}
    problem = machine.problem(m=m, n=n, k=k, dtypes=dtypes, lds=lds, options=options)
    space = build_space(machine, problem, device("b200"))
    (point,) = space.sample(1, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("late",))
    assert found.passed, f"{problem} {point}\n{found}"


def test_rows_of_4_bits_are_whole_bytes() -> None:
    said = str(tg.explain(tg.space(MatmulBlackwellNvfp4, m=128, n=128, k=129, lds={"a": 160, "b": 160}, device="b200")))
    assert "rows of a are whole bytes, of 2 elements each: k is even" in " ".join(said.split())


def of(machine: type[Machine], point: dict[str, Any], n: int = 136, **dtypes: str) -> tuple[Any, Kernel]:
    problem = machine.problem(m=130, n=n, k=544, dtypes=dtypes)
    space = build_space(machine, problem, device("b200"))
    (found,) = space.space.restrict(point).sample(1, np.random.default_rng(0))
    return problem, build(space.program(found), problem, found, SolverCache()).kernel


@cache
def small() -> tuple[Any, Kernel]:
    return of(MatmulBlackwellMx, SMALL)


@pytest.mark.parametrize("columns", [64, 192])
@pytest.mark.parametrize("machine", [MatmulBlackwellMx, MatmulBlackwellNvfp4])
@pytest.mark.end_to_end
def test_tiles_may_begin_within_a_chunk_of_scales(machine: type[Machine], columns: int) -> None:
    """Of every second tile the scales of b begin two columns of cells further, in the chunk of the tile before."""
    problem, kernel = of(machine, SMALL | {"bn": columns, "tiles": 1}, columns + 8)
    assert verify(kernel, machine, problem, orders=("late",)).passed
    text, count = re.subn(r"(and\.b32 (%r\d+), %r\d+), 127;(?=\n\s*shr\.u32 %r\d+, \2, 5;)", r"\1, 0;", kernel.ptx)
    assert count == 1
    assert not verify(replace(kernel, ptx=text), machine, problem, orders=("late",)).passed


def test_tiles_reach_into_as_many_chunks_as_their_places_say() -> None:
    mma = isa.Tcgen05MmaScaled(64)
    for columns in range(32, 257, 32):
        begins = {columns * tile % 128 for tile in range(8)}
        assert int(mma.chunks(columns)) == max(-(-(first + columns) // 128) for first in begins)


SHARED: tuple[dict[str, Any], ...] = (
    {"ctas": "one", "split_k": 2, "store": "staged"}, {"ctas": "pairs", "stream_k": 1, "store": "direct"},
    {"ctas": "pairs", "split_k": 3, "store": "staged"}, {"ctas": "one", "stream_k": 1, "store": "staged"},
)  # fmt: skip


@pytest.mark.parametrize("shared", SHARED, ids=str)
@pytest.mark.parametrize("machine", [MatmulBlackwellMx, MatmulBlackwellNvfp4])
@pytest.mark.end_to_end
def test_tiles_that_ctas_share_are_right_and_their_rings_proved(machine: type[Machine], shared: dict[str, Any]) -> None:
    """Four rounds, of which CTAs have some each, of several tiles."""
    problem = machine.problem(m=130, n=200, k=800)
    space = build_space(machine, problem, device("b200"))
    few = {"bn": 64, "bk": 256, "tiles": 1, "stages": 2, "cluster_n": 1, "cluster_m": 2, "scaled": 1}
    (point,) = space.space.restrict(few | shared).sample(1, np.random.default_rng(0))
    assert len(right_and_proved(space, point).workspaces) == 2


PACKED = {
    "mxfp4": (MatmulBlackwellMx, {"a": "e2m1"}, "mxf4.block_scale.block32", 0x08A00480),
    "nvfp4": (MatmulBlackwellNvfp4, {}, "mxf4nvf4.block_scale.block16", 0x08200480),
}


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", PACKED)
def test_factors_of_4_bits_stay_packed_and_their_kernels_assemble(name: str) -> None:
    machine, dtypes, spelled, word = PACKED[name]
    problem, kernel = of(machine, SMALL | {"swizzle": 128}, **dtypes)
    assert verify(kernel, machine, problem).passed
    assert f"kind::{spelled} " in kernel.ptx
    assert f"{word:#010x}" in kernel.ptx  # 128 x 128 of e2m1
    assert {spec.box[0] for spec in kernel.maps if spec.tensor in "ab"} == {256}
    assert re.search(r"expect_tx.*, 34816;" if name == "mxfp4" else r"expect_tx.*, 36864;", kernel.ptx)
    for portable in ("sm_100", "sm_103"):
        assembly = assemble(kernel.ptx, kernel.assembled_for(portable))
        assert (assembly.spill_store_bytes, assembly.stack_bytes) == (0, 0)


# (which, what is looked for everywhere, what is put there)
WRONG_PACKED: dict[str, tuple[str, str, str]] = {
    "mxfp4: scales that are ue4m3": ("mxfp4", "0x08a00480", "0x08200480"),
    "nvfp4: scales that are ue8m0": ("nvfp4", "0x08200480", "0x08a00480"),
    "mxfp4: the third of four scales of a first": ("mxfp4", "0x08a00480", "0x48a00480"),
    "mxfp4: the third of four scales of b first": ("mxfp4", "0x08a00480", "0x08a004a0"),
    "mxfp4: another box of a": ("mxfp4", r"(tensor\.2d.*\{)%r\d+, ", r"\g<1>0, "),
    "nvfp4: scales of 32": ("nvfp4", "mxf4nvf4.block_scale.block16", "mxf4nvf4.block_scale.block32"),
}


@pytest.mark.parametrize("name", WRONG_PACKED)
@pytest.mark.sampled(4)
def test_wrong_kernels_of_4_bits_are_refused(name: str) -> None:
    kind, old, new = WRONG_PACKED[name]
    machine, dtypes, _, _ = PACKED[kind]
    problem, kernel = of(machine, SMALL, **dtypes)
    wrong = replace(kernel, ptx=re.sub(old, new, kernel.ptx))
    assert wrong.ptx != kernel.ptx
    assert not verify(wrong, machine, problem, orders=("late",)).passed


@pytest.mark.parametrize(("scaled", "cluster"), [(1, "one"), (2, "one"), (2, "pairs"), (1, "two pairs"), (2, "shared")])
def test_every_ring_is_proved_for_all_rounds(scaled: int, cluster: str) -> None:
    problem = MatmulBlackwellMx.problem(m=130, n=136, k=528)
    space = build_space(MatmulBlackwellMx, problem, device("b200"))
    chosen = SMALL | CLUSTERS[cluster] | {"scaled": scaled}
    (point,) = space.space.restrict(chosen).sample(1, np.random.default_rng(0))
    program = space.program(point)
    swizzles = solve_buffers(program, SolverCache()).swizzles
    found = certify(lowered(program, problem, point, swizzles).protocol, Proofs())
    assert found.proved, str(found)


@pytest.mark.end_to_end
def test_its_kernel_is_right_in_every_order_and_assembles_without_spills() -> None:
    problem, kernel = small()
    assert verify(kernel, MatmulBlackwellMx, problem).passed
    assert kernel.architecture == "sm_100f"
    for portable in ("sm_100", "sm_103"):
        assembly = assemble(kernel.ptx, kernel.assembled_for(portable))
        assert (assembly.spill_store_bytes, assembly.stack_bytes) == (0, 0)


WORD = 0x08A00000  # 128 x 128 of e4m3 with ue8m0
WRONG: dict[str, TextEdit] = {
    "the second of four scales of a first": exchanged(f"{WORD:#010x}", f"{WORD | 1 << 29:#010x}"),
    "the second of four scales of b first": exchanged(f"{WORD:#010x}", f"{WORD | 1 << 4:#010x}"),
    "scales that are ue4m3": exchanged(f"{WORD:#010x}", f"{WORD & ~(1 << 23):#010x}"),
    "a chunk is not copied": without(r"tcgen05\.cp\.", 3),
    "a chunk is copied twice as far apart": exchanged(r"(mov\.b32 %r\d+), 16392;", r"\1, 16400;"),
    # Number 4 is implied: scales are there where the stage is full, for which the role that copies them has waited.
    "scales are multiplied by before they are there": without("try_wait", 5),
    "scales are copied before their bytes have come": without("try_wait", 1),
    "scales are overwritten while they are read": without("try_wait", 2),
    "a stage is filled while its scales are copied": without("try_wait", 0),
    "nobody is told that scales are there": without("tcgen05.commit", 1),
    "nobody is told that a stage's scales were copied": without("tcgen05.commit", 0),
    "columns of scales are too few": exchanged(r"(tcgen05\.alloc.*), 512;", r"\1, 256;"),
}


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_refused(name: str) -> None:
    problem, kernel = small()
    wrong = replace(kernel, ptx=WRONG[name](kernel.ptx))
    assert not verify(wrong, MatmulBlackwellMx, problem, orders=("late",)).passed


# Of pairs, (what is looked for everywhere, what is put there).
WRONG_PAIRS: dict[str, tuple[str, str]] = {
    "scales are copied in the first CTA alone": (r"tcgen05\.cp\.cta_group::2", "tcgen05.cp.cta_group::1"),
    "bytes of one CTA are expected": (r"expect_tx(.*), (\d+);", r"expect_tx\1, 51200;"),
    "the second CTA expects bytes as well": (r"and\.pred (%p\d+), (%p\d+), %p\d+;", r"and.pred \1, \2, \2;"),
    "commits tell the first CTA only": (r"shl\.b16 (%h\d+), %h\d+, 1;", r"mov.u16 \1, 0;"),
    "the second CTA multiplies as well": (r"(role (?:scaler|multiplier)(?:.*\n){3}).*bra \$end\d+;\n", r"\1"),
    "scales of other rows come": (r"(tensor\.4d.*\{0), 0, ", r"\1, 1, "),
}


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", WRONG_PAIRS)
def test_wrong_kernels_of_pairs_are_refused(name: str) -> None:
    problem, kernel = of(MatmulBlackwellMx, PAIRS)
    assert verify(kernel, MatmulBlackwellMx, problem, orders=("late",)).passed
    old, new = WRONG_PAIRS[name]
    wrong = replace(kernel, ptx=re.sub(old, new, kernel.ptx))
    assert wrong.ptx != kernel.ptx
    assert not verify(wrong, MatmulBlackwellMx, problem, orders=("late",)).passed


@pytest.mark.parametrize("role", ["scaler", "multiplier"])
def test_scales_of_a_pair_that_both_ctas_copy_or_take_are_not_proved(role: str) -> None:
    problem = MatmulBlackwellMx.problem(m=130, n=136, k=528)
    space = build_space(MatmulBlackwellMx, problem, device("b200"))
    (point,) = space.space.restrict(PAIRS).sample(1, np.random.default_rng(0))
    program = space.program(point)
    protocol = lowered(program, problem, point, solve_buffers(program, SolverCache()).swizzles).protocol
    assert certify(protocol).proved
    wrong = tuple(replace(s, pair=1) if isinstance(s, RoleBody) and s.role == role else s for s in protocol.body)
    assert not certify(replace(protocol, body=wrong)).proved


@pytest.mark.end_to_end
@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("name", PACKED)
def test_clusters_of_4_bits_are_right_in_every_order(name: str, cluster: str) -> None:
    machine, dtypes, _, _ = PACKED[name]
    problem, kernel = of(machine, SMALL | CLUSTERS[cluster], **dtypes)
    found = verify(kernel, machine, problem)
    assert found.passed, str(found)


def test_copies_and_products_are_all_of_pairs() -> None:
    with pytest.raises(DeclarationError) as found:

        class Mixed(MatmulBlackwellNvfp4):
            """Products of pairs, with scales that are copied in one CTA"""

            cp_pair = isa.Tcgen05Cp()

    assert str(found.value).split("\n")[0] == (
        "Mixed.program: cp_pair copies in one CTA and others in pairs; tcgen05 instructions of a kernel are all of one "
        "CTA, or all of two"
    )


def test_every_scale_counts() -> None:
    """The reference unpacks chunks: row r of chunk (d, l) has its four blocks at bytes 4 (r // 32) of line r % 32."""
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (130, 200)).astype(float)
    codes = rng.integers(120, 130, (2, 2, 32, 16)).astype(np.uint8)
    got = MatmulBlackwellMx.unpacked(a, codes)
    for row, column in ((0, 0), (31, 33), (32, 64), (127, 127), (128, 0), (129, 199)):
        line = codes[row // 128, column // 128, row % 32]
        code = line[4 * (row % 128 // 32) + column % 128 // 32]
        assert got[row, column] == a[row, column] * 2.0 ** (int(code) - 127)


@pytest.mark.parametrize(("machine", "kind"), [(MatmulBlackwellMx, "e4m3"), (MatmulBlackwellNvfp4, "e2m1")])
def test_sums_are_taken_by_the_epilogue_and_their_rate_is_that_of_the_type(machine: type[Machine], kind: str) -> None:
    problem = machine.problem(m=256, n=256, k=256)
    space = build_space(machine, problem, device("b200"))
    (point,) = space.space.sample(1, np.random.default_rng(0))
    program = space.program(point)
    assert taking_sums(program) == ("epilogue",)
    counted = count(program)
    assert (counted.operand, counted.accumulator, counted.path) == (kind, "f32", "tcgen05")


@pytest.mark.parametrize("name", ["h100", "rtx-5090"])
def test_other_gpus_lack_the_instruction(name: str) -> None:
    said = str(tg.explain(tg.space(MatmulBlackwellMx, m=256, n=256, k=256, device=name)))
    assert "tcgen05.cp exists on sm_100 or sm_103 only" in said or "tcgen05.mma.block_scale exists on" in said


def test_blocks_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^tcgen05\.mma has blocks of 16 or 32 elements to a scale, not 64$"):
        isa.Tcgen05MmaScaled(block=64)


def refused(stage: Any, cells: Any, scales: str = "both") -> str:
    """What is said of a machine whose stage of scales, or columns of them, are others."""
    with pytest.raises(DeclarationError) as found:  # noqa: PT012 - traced when its space is asked for

        class Careless(Machine):
            """c = a @ b with scales that do not fit"""

            m, n, k = Dim(), Dim(), Dim()
            rows, wide = Dim(follows=lambda m: 32), Dim(follows=lambda m: 16)
            a, b, c = Input("e4m3", m, k), Input("e4m3", k, n, majors=("col",)), Output("f32", m, n)
            s = Input("u8", m, k, rows, wide)
            tma, cp, mma = isa.TmaLoad(), isa.Tcgen05Cp(), isa.Tcgen05MmaScaled(128)
            ld, st = isa.Tcgen05Ld(), isa.StGlobal(1)

            def program(self, p: Any) -> None:
                factor = {"swizzle": 128}
                with (
                    p.grid((self.m, 128), (self.n, 128), persistent=True) as (i, j),
                    p.pipeline(
                        "ring", 2, a=p.smem("e4m3", (128, 128), **factor),
                        b=p.smem("e4m3", (128, 128), contiguous=0, **factor), s=stage(p),
                    ) as ring,
                    p.pipeline("cells", 1, s=cells(p)) as cell,
                    p.pipeline("sums", 1, c=p.buffer(TMEM, "f32", (128, 128))) as sums,
                ):  # fmt: skip
                    with p.role("producer", warps=1), p.loop(self.k, step=128) as kk, ring.produce() as s:
                        p.copy(self.tma, self.a.tile(i, kk, shape=(128, 128)), s.a)
                        p.copy(self.tma, self.b.tile(kk, j, shape=(128, 128)), s.b)
                        shape = s.s.shape if len(s.s.shape) == 4 else (1, 1, 32, 16)
                        p.copy(self.tma, self.s.tile(i, kk, 0, 0, shape=shape), s.s)
                    scaler = p.role("scaler", warps=1, first=1)
                    with scaler, p.loop(self.k, step=128), ring.consume() as s, cell.produce() as t:
                        p.copy(self.cp, s.s, t.s)
                    with p.role("multiplier", warps=1, first=2), sums.produce() as t:
                        p.clear(t.c)
                        rounds, steps = p.loop(self.k, step=128), p.unroll(128, step=32)
                        with rounds, ring.consume() as s, cell.consume() as by, steps as kt:
                            windows = (by.s.window((0, 4), (32, 12)),) * 2
                            given = {"both": (by.s, by.s), "none": None, "windows": windows, "factors": (s.s, s.s)}
                            fa, fb = s.a.window((0, kt), (128, 32)), s.b.window((kt, 0), (32, 128))
                            p.multiply(self.mma, t.c, fa, fb, scales=given[scales], at=kt)
                    with p.role("epilogue", warps=4, first=4), sums.consume() as t:
                        values = p.load(self.ld, t.c, blocked((128, 128), threads=128, vector=1, across=1))
                        p.store(self.st, self.c.tile(i, j, shape=(128, 128)), values)

            @staticmethod
            def reference(a: Any, b: Any, s: Any) -> Any:
                return a @ b

        Careless.space(m=128, n=128, k=128, device="b200")

    return str(found.value)


def chunk(p: Any) -> Any:
    return p.smem("u8", (1, 1, 32, 16), swizzle=16)


def columns(p: Any) -> Any:
    return p.buffer(TMEM, "u8", (32, 16))


def test_what_is_no_chunk_of_scales_is_refused() -> None:
    assert (
        "cp: tcgen05.cp moves chunks of 32 rows of 16 bytes: give ring.s the extents (along, down, 32, 16) and "
        "swizzle=16"
    ) in refused(lambda p: p.smem("u8", (1, 1, 64, 16), swizzle=16), columns)
    assert "mma (tcgen05.mma.block_scale) takes scales of u8 in TMEM, and ring.s has u8 in SMEM" in refused(
        chunk, columns, "factors"
    )
    assert (
        "mma (tcgen05.mma.block_scale) takes scales, one for 32 neighbours along k; give scales=(of a, of b)"
        in refused(chunk, columns, "none")
    )
    assert (
        "mma (tcgen05.mma.block_scale) takes the scales of a tile, not of a window of cells.s; leave it whole"
        in refused(chunk, columns, "windows")
    )
