"""Elements narrower than a byte in memory, beside an oracle that goes bit by bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.ptx.runtime.narrow import TOGETHER, packed, unpacked


@given(bits=st.sampled_from(sorted(TOGETHER)), codes=st.lists(st.integers(0, 255), max_size=40))
def test_elements_lie_one_behind_the_other_low_bits_first(bits: int, codes: list[int]) -> None:
    given_codes = np.array(codes, np.uint8)
    whole = sum((code & (1 << bits) - 1) << bits * place for place, code in enumerate(codes))
    size = -(-len(codes) * bits // 8)
    stored = packed(given_codes, bits)
    assert stored.tobytes() == whole.to_bytes(size, "little")
    assert unpacked(stored, bits)[: len(codes)].tolist() == [code & (1 << bits) - 1 for code in codes]


@pytest.mark.parametrize("bits", sorted(TOGETHER))
@pytest.mark.parametrize("size", range(7))
def test_bytes_hold_the_elements_that_are_whole_and_keep_their_number(bits: int, size: int) -> None:
    stored = np.arange(size, dtype=np.uint8) * 37
    codes = unpacked(stored, bits)
    assert codes.size == size * 8 // bits
    assert packed(codes, bits).size == size
