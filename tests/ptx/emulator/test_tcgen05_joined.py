"""Slabs of a block-scaled tcgen05.mma that are multiplied as one: the same cells as slab by slab, whatever is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.ptx.emulator.instructions.tcgen05_multiply import Call, carry_out
from tinygpu.ptx.emulator.state.tensor_memory import CtaTensorMemory
from tinygpu.ptx.emulator.units.tcgen05_descriptors import InstructionDescriptor, MmaForm
from tinygpu.ptx.emulator.units.tensor_memory_maps import layout_id, rows_per_cta

SFA, SFB = 300, 320
KINDS = {("mxf8f6f4", ""): (1, 32), ("mxf4", "block32"): (2, 64), ("mxf4nvf4", "scale_vec::4X"): (4, 64)}


@dataclass(frozen=True)
class Part:
    """An operand that was read: its numbers, and which rows are not initialised."""

    numbers: Any
    bad: Any

    def read(self) -> tuple[Any, Any]:
        return self.numbers, self.bad


def memory(rng: np.random.Generator, same: bool, unknown: bool) -> CtaTensorMemory:
    """Accumulators, and scale factors near 1: the copies of the four quarters the same, or one that differs."""
    found = CtaTensorMemory()
    found.cells[:, :256] = rng.integers(-9, 10, (128, 256)).astype(np.float32).view(np.uint32)
    found.undefined[:, :400] = 0
    scales = rng.integers(125, 130, (32, 100, 4)).astype(np.uint8)
    found.cells[:, 300:400] = np.tile(scales.view(np.uint32)[..., 0], (4, 1))
    if unknown:
        found.undefined[:, 300:400] = np.tile(rng.choice(np.array([0, 0xFF00], np.uint32), (32, 100)), (4, 1))
    if not same:
        quarter, row, column = rng.integers(4), rng.integers(32), SFB + rng.integers(2)
        plane = found.undefined if unknown and rng.integers(2) else found.cells
        plane[32 * quarter + row, column] ^= np.uint32(0x03030303)
    return found


@settings(max_examples=120)
@given(
    st.sampled_from(sorted(KINDS)), st.sampled_from([(128, 1), (256, 2), (128, 2)]), st.sampled_from([32, 64, 256]),
    st.booleans(), st.booleans(), st.booleans(), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_slabs_with_the_same_scales_are_multiplied_as_one(
    kind: tuple[str, str], shape: tuple[int, int], n: int, same: bool, unknown: bool, enable: bool, seed: int
) -> None:
    rng, (m, group), (count, k) = np.random.default_rng(seed), shape, KINDS[kind]
    form, layout = MmaForm(kind[0], group, block=kind[1]), layout_id(m, group, False, False)
    first = int(rng.integers(4 // count)) * count if count < 4 else 0
    what = InstructionDescriptor(
        kind[0], m, n, k, "e2m1", "e2m1", "f32", scale_type="ue8m0", sfa_id=first, sfb_id=first
    )
    told: list[str] = []
    call = Call(form, what, layout, 0, 0, None, SFA, SFB, 0, enable, 0, (0,) * group, None, told.append)
    rows = rows_per_cta(layout)
    a = [Part(rng.integers(-3, 4, (rows, k)) * 1.0, rng.integers(20, size=rows) == 0) for _ in range(group)]
    b = [Part(rng.integers(-3, 4, (n // group, k)) * 1.0, np.zeros(n // group, np.bool_)) for _ in range(group)]
    together, apart = ([memory(np.random.default_rng(seed + q), same, unknown) for q in range(group)] for _ in "12")
    carry_out(call, together, a, b)  # type: ignore[arg-type]
    told_together = set(told)
    told.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Call, "steps", lambda call, memory: call.slabs)
        carry_out(call, apart, a, b)  # type: ignore[arg-type]
    assert set(told) == told_together
    for one, other in zip(together, apart, strict=True):
        assert np.array_equal(one.cells, other.cells)
        assert np.array_equal(one.undefined, other.undefined)
        assert (len(call.steps(one)) < len(call.slabs)) or not same
