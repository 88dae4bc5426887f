"""Matmul of factors with block scales: random candidates of every format over odd sizes and epilogues; its limits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tinygpu as tg
from tinygpu.cost.counting import count
from tinygpu.devices import device
from tinygpu.dtypes import dtype
from tinygpu.language import DeclarationError, Machine
from tinygpu.language.instruction import tiled
from tinygpu.machines.matmul_block_scaled import BlockScaled, MatmulMx, MatmulNvfp4
from tinygpu.ptx import isa
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

# Machine, types of a and b, elements in 16 bytes.
FORMATS: tuple[tuple[type[Machine], str, str, int], ...] = (
    (MatmulMx, "e4m3", "e4m3", 16), (MatmulMx, "e5m2", "e4m3", 16), (MatmulMx, "e2m1", "e2m1", 32),
    (MatmulNvfp4, "e2m1", "e2m1", 32), (MatmulMx, "e4m3", "e5m2", 16),
)  # fmt: skip
# One element, one more than a tile, primes, blocks that end within a block, a tile of a few rows, several stages.
SIZES = ((1, 1, 1), (33, 65, 129), (13, 97, 31), (97, 1, 64), (65, 130, 300), (128, 64, 512))
OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"with_bias": True, "activation": "silu"}, {"scaling": "number", "with_residual": True}, {"scaling": "columns"},
)  # fmt: skip


def posed(seed: int) -> tuple[type[Machine], Any]:
    machine, a, b, per = FORMATS[seed % len(FORMATS)]
    m, n, k = SIZES[seed % len(SIZES)]
    lds: dict[str, int] = {}
    k += k % 2 if a == "e2m1" else 0  # whole bytes
    if a == "e2m1" or seed % 4:
        lds = dict.fromkeys("ab", -(-k // per) * per)
    if seed % 3:  # rows of scales that cp.async brings four at a time
        blocks = -(-k // (16 if machine is MatmulNvfp4 else 32))
        lds |= dict.fromkeys(("scales_a", "scales_b"), -(-blocks // 4) * 4)
    dtypes = {"a": a, "b": b, "c": ("bf16", "f32", "f16")[seed // 2 % 3]}
    return machine, machine.problem(m=m, n=n, k=k, dtypes=dtypes, lds=lds, options=OPTIONS[seed // 5 % len(OPTIONS)])


@pytest.mark.parametrize("seed", range(120))
@pytest.mark.sampled(20)
@pytest.mark.end_to_end
def test_random_candidates_are_right(seed: int) -> None:
    machine, problem = posed(seed)
    space = build_space(machine, problem, device("rtx-5090" if seed % 2 else "rtx-pro-6000"))
    (point,) = space.space.sample(1, np.random.default_rng(seed))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("late",))
    assert found.passed, f"{problem} {point}\n{found}"


@pytest.mark.parametrize(("machine", "a", "b", "per"), FORMATS)
def test_every_format_assembles_for_rtx_cards_without_spills(machine: type[Machine], a: str, b: str, per: int) -> None:
    problem = machine.problem(m=1024, n=1024, k=1024, dtypes={"a": a, "b": b})
    space = build_space(machine, problem, device("rtx-5090"))
    few = space.space.restrict({"bm": 128, "bn": 128, "bk": 128, "warps_m": 2, "warps_n": 4})
    (point,) = few.sample(1, np.random.default_rng(0))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    assert kernel.architecture == "sm_120f"
    for architecture in ("sm_120a", "sm_121a"):
        assert not assemble(kernel.ptx, architecture).spills


def test_every_step_takes_the_scales_of_its_blocks() -> None:
    """Of a stage of 256 elements: bytes 0 to 3 of a register for mxfp8, twice; 0 and 2 for mxfp4; 0 for nvfp4."""
    for (machine, a, b, _), selected in zip(FORMATS[:4], ([0, 1, 2, 3] * 2,) * 2 + ([0, 2] * 2, [0] * 4), strict=True):
        problem = machine.problem(m=64, n=64, k=512, dtypes={"a": a, "b": b})
        space = build_space(machine, problem, device("rtx-5090"))
        wanted = {"bm": 32, "bn": 32, "bk": 256, "warps_m": 2, "warps_n": 4, "stages": 1}
        (point,) = space.space.restrict(wanted).sample(1, np.random.default_rng(0))
        ptx = build(space.program(point), problem, point, SolverCache()).kernel.ptx
        lines = [line for line in ptx.splitlines() if "block_scale" in line and line.lstrip().startswith("mma")]
        assert [int(line.split("{")[-1].split(",")[0]) for line in lines][: len(selected)] == selected


def test_the_reference_scales_blocks_of_which_the_last_is_short() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(-4, 5, (3, 40)).astype(float), rng.integers(-4, 5, (40, 5)).astype(float)
    codes = rng.integers(120, 134, (3, 2)).astype(np.uint8), rng.integers(120, 134, (2, 5)).astype(np.uint8)
    got = BlockScaled.reference(a, b, scales_a=codes[0], scales_b=codes[1])
    powers = [c.view(ml_dtypes.float8_e8m0fnu).astype(float) for c in codes]
    want = sum(
        np.outer(a[:, e] * powers[0][:, e // 32], b[e] * powers[1][e // 32]) for e in range(40)
    )  # fmt: skip
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["rtx-4090", "h100", "b200"])
def test_other_gpus_lack_the_instruction(name: str) -> None:
    said = str(tg.explain(tg.space(MatmulMx, m=256, n=256, k=256, device=name)))
    assert "mma.sync.block_scale exists on sm_120 or sm_121 only" in said


@pytest.mark.parametrize(("kind", "rate"), [("e4m3", 2048), ("e5m2", 2048), ("e2m1", 4096)])
def test_rates_of_scaled_products_are_those_of_the_device(kind: str, rate: int) -> None:
    """On an RTX 5090 scaled fp8 with sums in f32 is as fast as fp8 with sums in f16, and fp4 twice as fast."""
    problem = MatmulMx.problem(m=256, n=256, k=256, dtypes={"a": kind, "b": kind})
    space = build_space(MatmulMx, problem, device("rtx-5090"))
    (point,) = space.space.sample(1, np.random.default_rng(0))
    counted = count(space.program(point))
    assert device("rtx-5090").tensor_flops_per_clk_sm(counted.operand, counted.accumulator) == rate


def test_rows_of_factors_of_4_bits_are_whole_bytes() -> None:
    lds = {"a": 32, "b": 32}
    space = build_space(MatmulNvfp4, MatmulNvfp4.problem(m=64, n=64, k=31, lds=lds), device("rtx-5090")).space
    assert not space.size
    said = "\n".join(sentence for c in space.conflict() for sentence in c.sentences)
    assert "the rows of a, whose elements have 4 bits, are whole vectors; k mod va = 0 with k = 31" in said


def test_blocks_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^mma\.sync has blocks of 16 or 32 elements to a scale, not 64$"):
        isa.MmaScaled(64)


def missed(scales: Any, at: Any = None) -> str:
    """What is said of a product that is given other scales: `scales` makes them of the tracer, and who holds them."""
    with pytest.raises(DeclarationError) as refused:

        class Careless(MatmulNvfp4):
            """Takes the product with other scales, or without"""

            def multiply(self, p: Any) -> None:
                t = p.tiled(self.mma, "e2m1", "e2m1", (32, 32), (1, 1), depth=128)
                with p.grid((self.m, 32), (self.n, 32)) as (i, _), p.role("all", warps=1):
                    acc, a, b = p.full(t.c, "f32"), p.full(t.a, "e2m1"), p.full(t.b, "e2m1")
                    p.multiply(self.mma, acc, a, b, **scales(p, t), at=0 if at is None else at(i))

    return str(refused.value)


def right(p: Any, t: Any) -> dict[str, Any]:
    return {"scales": tuple(p.full(who, "e4m3") for who in t.scales)}


def test_other_scales_are_refused() -> None:
    begin = "Careless.program: mma (mma.sync.block_scale) "
    asked = "takes scales, one for 16 neighbours along k; give scales=(of a, of b)"
    assert missed(lambda p, t: {}) == begin + asked
    assert missed(lambda p, t: {"scales": 3}).startswith(
        "Careless.program: mma takes scales=(of a, of b), two tiles in registers, not 3"
    )
    codes = missed(lambda p, t: {"scales": tuple(p.full(who, "u8") for who in t.scales)})
    assert codes.startswith(begin + "takes scales of e4m3 in registers, and ")
    assert " has u8 in RMEM" in codes
    exchanged = missed(lambda p, t: {"scales": tuple(p.full(who.T, "e4m3") for who in reversed(t.scales))})
    assert "that are held otherwise; take .scales of p.tiled" in exchanged
    assert missed(right, lambda i: 32).startswith(
        begin + "takes scales from 32 on; that is a multiple of the extent along k, 64"
    )
    late = missed(right, lambda i: i * 64)
    assert "which registers hold them has to be known before the launch; tile0 is not: let p.unroll give it" in late


def test_an_instruction_without_scales_takes_none() -> None:
    with pytest.raises(ValueError, match=r"^mma\.sync takes no scales of blocks; leave depth= out$"):
        tiled(isa.MmaSync(), dtype("f16"), dtype("f16"), (32, 32), (1, 1), 128)
