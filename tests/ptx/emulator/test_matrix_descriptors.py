"""Matrix descriptors: the fields of known words, round trips, and a full sentence for every illegal word or operand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.ptx.emulator.units.matrix_descriptors import (
    NO_SWIZZLE,
    SWIZZLE_32B,
    SWIZZLE_64B,
    SWIZZLE_128B,
    SWIZZLE_128B_ATOM_32B,
    MatrixDescriptor,
    Unit,
    decode_descriptor,
    encode_descriptor,
    operand_problems,
)

WGMMA_SWIZZLES = (NO_SWIZZLE, SWIZZLE_32B, SWIZZLE_64B, SWIZZLE_128B)
TCGEN05_SWIZZLES = (*WGMMA_SWIZZLES, SWIZZLE_128B_ATOM_32B)


@pytest.mark.parametrize(
    ("word", "unit", "want"),
    [
        # Upper words of dense K-major tiles on sm_90a.
        (0x40000040_00000440, "wgmma", (0x4400, 0, 1024, SWIZZLE_128B)),
        (0x80000020_00010000, "wgmma", (0, 16, 512, SWIZZLE_64B)),
        (0xC0000010_00000001, "wgmma", (16, 0, 256, SWIZZLE_32B)),
        (0x00000008_00800010, "wgmma", (256, 2048, 128, NO_SWIZZLE)),
        # Constants of the Blackwell fact sheet.
        (0x4000404000000000, "tcgen05", (0, 0, 1024, SWIZZLE_128B)),
        (0x8000402000000000, "tcgen05", (0, 0, 512, SWIZZLE_64B)),
        (0xC000401000000000, "tcgen05", (0, 0, 256, SWIZZLE_32B)),
        (0x0000400800800000, "tcgen05", (0, 2048, 128, NO_SWIZZLE)),
        (0x4000404002000000, "tcgen05", (0, 8192, 1024, SWIZZLE_128B)),
    ],
)
def test_known_words_have_the_fields_of_the_manual(word: int, unit: Unit, want: tuple[object, ...]) -> None:
    got = decode_descriptor(word, unit)
    assert (got.start_bytes, got.leading_bytes, got.stride_bytes, got.swizzle) == want
    assert got.problems == ()
    assert encode_descriptor(got) == word


offsets = st.integers(0, (1 << 14) - 1).map(lambda x: x * 16)


@given(data=st.data(), unit=st.sampled_from(["wgmma", "tcgen05"]), start=offsets, leading=offsets, stride=offsets)
def test_encoding_and_decoding_are_inverse(
    data: st.DataObject, unit: Unit, start: int, leading: int, stride: int
) -> None:
    swizzle = data.draw(st.sampled_from(WGMMA_SWIZZLES if unit == "wgmma" else TCGEN05_SWIZZLES))
    base = data.draw(st.integers(0, swizzle.line_mask))
    absolute = unit == "tcgen05" and data.draw(st.booleans())
    descriptor = MatrixDescriptor(unit, start, leading, stride, base, swizzle, absolute)
    assert decode_descriptor(encode_descriptor(descriptor), unit) == descriptor


@given(word=st.integers(0, 2**64 - 1), unit=st.sampled_from(["wgmma", "tcgen05"]))
def test_a_word_without_problems_is_made_of_its_fields_alone(word: int, unit: Unit) -> None:
    got = decode_descriptor(word, unit)
    if not got.problems:
        assert encode_descriptor(got) == word | got.constant_missing << 46
    else:
        legal = MatrixDescriptor(
            unit, got.start_bytes, got.leading_bytes, got.stride_bytes, got.base_offset & got.swizzle.line_mask,
            got.swizzle, got.leading_is_address,
        )  # fmt: skip
        assert encode_descriptor(legal) != word


@pytest.mark.parametrize(
    ("word", "unit", "problems"),
    [
        (
            1 << 14 | 1 << 31 | 1 << 46 | 1 << 60, "wgmma",
            ["its reserved bits 14, 31, 46, 60 are set: they must be zero"],
        ),
        (1 << 49, "wgmma", ["its base offset (bits 49-51) is 1 without a swizzle: it must be 0"]),
        (
            4 << 49 | 2 << 62, "wgmma",
            ["its base offset (bits 49-51) is 4, but the 64B swizzle repeats every 4 lines: it must be below that"],
        ),
        (2 << 46, "tcgen05", ["its bits 46-48 are 0b010: they must be 0b001"]),
        (
            1 << 46 | 3 << 61, "tcgen05",
            [
                "its swizzle code (bits 61-63) is 3: it must be 0 (none), 1 (128B with 32-byte atoms), 2 (128B), "
                "4 (64B) or 6 (32B)"
            ],
        ),
        (1 << 46 | 1 << 53, "tcgen05", ["its reserved bits 53 are set: they must be zero"]),
    ],
)  # fmt: skip
def test_an_illegal_word_says_what_is_wrong(word: int, unit: Unit, problems: list[str]) -> None:
    assert list(decode_descriptor(word, unit).problems) == problems


def test_words_and_offsets_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^a matrix descriptor has 64 bits, so it cannot be 0x10000000000000000$"):
        decode_descriptor(1 << 64, "wgmma")
    with pytest.raises(
        ValueError, match=r"^the start address of a descriptor is a multiple of 16 below 262144, not 8$"
    ):
        encode_descriptor(MatrixDescriptor("wgmma", 8, 0, 0, 0, NO_SWIZZLE))
    with pytest.raises(
        ValueError, match=r"^the stride offset of a descriptor is a multiple of 16 below 262144, not 262144$"
    ):
        encode_descriptor(MatrixDescriptor("wgmma", 0, 0, 1 << 18, 0, NO_SWIZZLE))


def at(start: int, swizzle: object, unit: Unit = "wgmma") -> MatrixDescriptor:
    if not isinstance(swizzle, type(NO_SWIZZLE)):
        raise TypeError("a swizzle")
    return MatrixDescriptor(unit, start, 16, 1024, 0, swizzle)


@pytest.mark.parametrize(
    ("descriptor", "operand", "bits", "mn_major", "extent", "k", "problems"),
    [
        (at(0, SWIZZLE_128B), "A", 16, False, 64, 16, []),
        (at(96, SWIZZLE_128B), "A", 16, False, 64, 16, []),
        (at(0, SWIZZLE_128B), "B", 16, True, 256, 16, []),
        (at(0, NO_SWIZZLE), "B", 16, True, 8, 16, []),
        (at(0, SWIZZLE_128B_ATOM_32B, "tcgen05"), "B", 32, True, 64, 8, []),
        (at(0, SWIZZLE_64B, "tcgen05"), "A", 8, True, 128, 32, []),
        (
            at(112, SWIZZLE_128B), "A", 16, False, 64, 16,
            [
                "A reads 32 bytes along K from byte 112 of a row of the 128B swizzle, which has 128: it would run into "
                "the next row"
            ],
        ),
        (
            at(16, SWIZZLE_32B), "B", 16, True, 64, 16,
            [
                "B reads 128 bytes along N from byte 16 of a row of the 32B swizzle, which has 32: it would run into "
                "the next row"
            ],
        ),
        (
            at(0, SWIZZLE_128B), "B", 8, True, 64, 32,
            ["B is N-major with 8-bit elements: only 16-bit types can be"],
        ),
        (
            at(0, SWIZZLE_128B, "tcgen05"), "A", 4, True, 64, 64,
            ["A is M-major with 4-bit elements: only 8-bit and 16-bit types, and tf32 can be"],
        ),
        (
            at(0, SWIZZLE_128B, "tcgen05"), "A", 32, True, 64, 8,
            [
                "A is M-major with 32-bit elements and the swizzle 128B: it must be 128B with 32-byte atoms"
            ],
        ),
        (
            at(0, SWIZZLE_128B_ATOM_32B, "tcgen05"), "B", 16, False, 64, 16,
            [
                "B is K-major with the swizzle 128B with 32-byte atoms, which is for N-major tf32: use none, 32B, 64B "
                "or 128B"
            ],
        ),
        (
            MatrixDescriptor("wgmma", 0, 0, 0, 0, NO_SWIZZLE, problems=("it is torn",)), "A", 16, False, 64, 16,
            ["the descriptor of A is illegal: it is torn"],
        ),
    ],
)  # fmt: skip
def test_an_operand_that_cannot_be_read_says_why(
    descriptor: MatrixDescriptor, operand: str, bits: int, mn_major: bool, extent: int, k: int, problems: list[str]
) -> None:
    assert list(operand_problems(descriptor, operand, bits, mn_major, extent, k)) == problems


def test_a_descriptor_without_its_constant_bits_says_so() -> None:
    assert decode_descriptor(0, "tcgen05").constant_missing
    assert not decode_descriptor(0, "tcgen05").problems
    assert not decode_descriptor(1 << 46, "tcgen05").constant_missing
    assert not decode_descriptor(0, "wgmma").constant_missing
