"""Uninitialised bits: a result's bit counts as known only if no filling of the unknown bits changes it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from instruction_bench import run_instruction
from numpy.typing import NDArray

from tinygpu.ptx.emulator import EmulationFault

U32 = np.uint32
Words = NDArray[np.uint32]

# Instructions on 32-bit %x, %y, %z whose rule says exactly which bits are unknown.
EXACT = [
    "xor.b32 %d, %x, %y;",
    "and.b32 %d, %x, %y;",
    "or.b32 %d, %x, %y;",
    "not.b32 %d, %x;",
    "lop3.b32 %d, %x, %y, %z, 0xf8;",
    "lop3.b32 %d, %x, %y, %z, 0xca;",
    "lop3.b32 %d, %x, %y, %z, 0x1b;",
    "prmt.b32 %d, %x, %y, 0x5140;",
    "prmt.b32 %d, %x, %y, 0xb372;",
    "shl.b32 %d, %x, 5;",
    "shr.s32 %d, %x, 9;",
    "shf.l.wrap.b32 %d, %x, %y, 11;",
    "shf.r.wrap.b32 %d, %x, %y, 3;",
    "bfe.u32 %d, %x, 6, 9;",
    "bfe.s32 %d, %x, 6, 9;",
    "cvt.u16.u32 %h, %x; cvt.u32.u16 %d, %h;",
    "cvt.u16.u32 %h, %x; cvt.s32.s16 %d, %h;",
    "cvt.u16.u32 %h, %x; cvt.s32.s8 %d, %h;",
    "cvt.s64.s32 %q, %x; shr.u64 %q, %q, 20; cvt.u32.u64 %d, %q;",
]
# Instructions whose rule may say more bits than need be, but never fewer.
SOUND = [
    "add.u32 %d, %x, %y;",
    "sub.s32 %d, %x, %y;",
    "neg.s32 %d, %x;",
    "mul.lo.u32 %d, %x, %y;",
    "mad.lo.u32 %d, %x, %y, %z;",
    "prmt.b32 %d, %x, %y, %z;",
    "add.f16x2 %d, %x, %y;",
    "fma.rn.f16x2 %d, %x, %y, %z;",
    "min.u16x2 %d, %x, %y;",
    "cvt.rn.f16x2.f32 %d, %x, %y;",
]
DECLARE = ".reg .b32 %x, %y, %z, %d, %never, %part; .reg .b16 %h; .reg .b64 %q;"


def results(text: str, values: Words) -> Words:
    """The instruction's results for known values (3, n)."""
    setup = "mov.b32 %x, %a0; mov.b32 %y, %a1; mov.b32 %z, %a2;"
    return run_instruction(f"{setup}{text} mov.b32 %d0, %d;", list(values), [U32], declare=DECLARE)[0]


def changing_bits(text: str, values: Words, unknown: Words) -> Words:
    """Bits of the result that some filling of the unknown bits changes: (n,)."""
    places = [[bit for bit in range(32) if int(mask) >> bit & 1] for mask in unknown[:, 0]]
    slots = [(k, bit) for k, bits in enumerate(places) for bit in bits]
    first = None
    changed = np.zeros(values.shape[1], U32)
    for fill in product((0, 1), repeat=len(slots)):
        filled = values & ~unknown
        for (k, bit), one in zip(slots, fill, strict=True):
            filled[k] |= U32(one << bit)
        found = results(text, filled)
        first = found if first is None else first
        changed |= found ^ first
    return changed


def run_masked(text: str, values: Words, unknown: Words, keep: Words) -> None:
    """Run with those bits uninitialised, and let only the bits in `keep` reach global memory."""
    setup = "".join(
        f"and.b32 %part, %never, %a{3 + k}; or.b32 %{name}, %part, %a{k};" for k, name in enumerate(("x", "y", "z"))
    )
    inputs = [*(values & ~unknown), *unknown, keep]
    run_instruction(f"{setup}{text} and.b32 %d0, %d, %a6;", inputs, [U32], declare=DECLARE)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("draws", [1, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("text", EXACT + SOUND)
def test_bits_that_a_filling_can_change_are_unknown_and_others_are_known(text: str, draws: int) -> None:
    rng = np.random.default_rng(len(text))
    n = 64
    for _ in range(draws):
        values = rng.integers(0, 2**32, (3, n), dtype=np.uint64).astype(U32)
        if "f16x2" in text:
            values &= U32(0x3BFF3BFF)  # finite halves
        elif "f32" in text:
            values &= U32(0x3FFFFFFF)
        masks = np.zeros(3, U32)
        sources = 3 if "%z" in text else 2 if "%y" in text else 1
        for _ in range(3):
            masks[rng.integers(0, sources)] |= U32(1 << int(rng.integers(0, 32)))
        if "f32" in text:
            masks = masks & U32(0x007FFFFF)
        unknown = np.broadcast_to(masks[:, None], (3, n)).copy()
        changed = changing_bits(text, values, unknown)
        for bit in range(32):
            lanes = np.where(changed >> U32(bit) & U32(1), U32(1 << bit), U32(0))
            if lanes.any():
                with pytest.raises(EmulationFault, match="never initialised"):
                    run_masked(text, values, unknown, lanes)
        if text in EXACT:
            run_masked(text, values, unknown, ~changed)


def test_halves_of_a_pair_do_not_spoil_each_other() -> None:
    rng = np.random.default_rng(3)
    values = rng.integers(0, 2**32, (3, 32), dtype=np.uint64).astype(U32) & U32(0x3BFF3BFF)
    unknown = np.zeros_like(values)
    unknown[0] = U32(0xFFFF0000)
    keep = np.full(32, 0xFFFF, U32)
    for text in ("add.f16x2 %d, %x, %y;", "fma.rn.bf16x2 %d, %y, %z, %x;", "set.gt.f16x2.f16x2 %d, %x, %y;"):
        run_masked(text, values, unknown, keep)
        with pytest.raises(EmulationFault, match="never initialised"):
            run_masked(text, values, unknown, ~keep)


def test_low_bits_of_a_sum_are_known_below_the_first_unknown_one() -> None:
    values = np.arange(96, dtype=U32).reshape(3, 32) * U32(2654435761)
    unknown = np.zeros_like(values)
    unknown[1] = U32(0x00000100)
    for text in ("add.u32 %d, %x, %y;", "mul.lo.u32 %d, %x, %y;", "mad.lo.s32 %d, %x, %y, %z;"):
        run_masked(text, values, unknown, np.full(32, 0xFF, U32))
