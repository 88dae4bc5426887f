"""Shared-memory matrix descriptors: 64-bit words that say where an operand of wgmma or tcgen05.mma lies, and how.

Sources: PTX ISA, "Matrix Descriptor Format" of wgmma (sm_90a) and "Shared memory descriptor" of tcgen05 (sm_100a).
Every offset in a descriptor is a multiple of 16 bytes below 2^18; that it cannot say anything else is why a misaligned
start address never shows: its low bits are lost when the descriptor is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tinygpu.ptx.emulator.units.swizzles import SWIZZLES, Swizzle

ATOM_BYTES = 16
Unit = Literal["wgmma", "tcgen05"]


NO_SWIZZLE, SWIZZLE_32B, SWIZZLE_64B, SWIZZLE_128B = (SWIZZLES[name] for name in ("none", "32B", "64B", "128B"))
SWIZZLE_128B_ATOM_32B = SWIZZLES["128B_ATOM_32B"]

# PTX ISA, "Matrix Descriptor Format": bits 62-63 for wgmma, 61-63 for tcgen05.
_WGMMA_SWIZZLES = (NO_SWIZZLE, SWIZZLE_128B, SWIZZLE_64B, SWIZZLE_32B)
_TCGEN05_SWIZZLES = {0: NO_SWIZZLE, 1: SWIZZLE_128B_ATOM_32B, 2: SWIZZLE_128B, 4: SWIZZLE_64B, 6: SWIZZLE_32B}
# Bits that must be zero.
_WGMMA_RESERVED = (3 << 14) | (3 << 30) | (7 << 46) | (0x3FF << 52)
_TCGEN05_RESERVED = (3 << 14) | (3 << 30) | (0xFF << 53)


@dataclass(frozen=True, slots=True)
class MatrixDescriptor:
    """A descriptor taken apart.

    unit                      whose format it has
    start_bytes               shared address of the first element
    leading_bytes             leading dimension byte offset (LBO); an address where leading_is_address
    stride_bytes              stride dimension byte offset (SBO)
    base_offset               line, 0 to 7, at which the swizzle pattern starts
    swizzle                   how its lines are permuted
    leading_is_address        bit 52 of tcgen05
    problems                  what makes the word itself illegal, in words
    constant_missing          tcgen05: bits 46-48, which must be 0b001, are zero. The hardware reads such a descriptor
                              like any other: Triton before 3.5 wrote no others
    """

    unit: Unit
    start_bytes: int
    leading_bytes: int
    stride_bytes: int
    base_offset: int
    swizzle: Swizzle
    leading_is_address: bool = False
    problems: tuple[str, ...] = ()
    constant_missing: bool = False


def decode_descriptor(word: int, unit: Unit) -> MatrixDescriptor:
    """The parts of a 64-bit descriptor, with everything that is wrong with the word on its own.

    >>> decode_descriptor(0x4000004000000440, "wgmma").swizzle.name
    '128B'
    """
    if not 0 <= word < 1 << 64:
        raise ValueError(f"a matrix descriptor has 64 bits, so it cannot be {word:#x}")
    problems: list[str] = []
    if unit == "wgmma":
        swizzle = _WGMMA_SWIZZLES[word >> 62]
        reserved = word & _WGMMA_RESERVED
        absolute = False
    else:
        code = word >> 61
        found = _TCGEN05_SWIZZLES.get(code)
        if found is None:
            problems.append(
                f"its swizzle code (bits 61-63) is {code}: it must be 0 (none), 1 (128B with 32-byte atoms), 2 (128B), "
                "4 (64B) or 6 (32B)"
            )
        swizzle = found or NO_SWIZZLE
        reserved = word & _TCGEN05_RESERVED
        absolute = bool(word >> 52 & 1)
        constant = word >> 46 & 7
        if constant > 1:
            problems.append(f"its bits 46-48 are {constant:#05b}: they must be 0b001")
    if reserved:
        bits = ", ".join(str(k) for k in range(64) if reserved >> k & 1)
        problems.append(f"its reserved bits {bits} are set: they must be zero")
    base_offset = word >> 49 & 7
    if base_offset and swizzle == NO_SWIZZLE:
        problems.append(f"its base offset (bits 49-51) is {base_offset} without a swizzle: it must be 0")
    elif base_offset > swizzle.line_mask and swizzle != NO_SWIZZLE:
        problems.append(
            f"its base offset (bits 49-51) is {base_offset}, but the {said(swizzle)} swizzle repeats every "
            f"{swizzle.line_mask + 1} lines: it must be below that"
        )
    return MatrixDescriptor(
        unit, (word & 0x3FFF) << 4, (word >> 16 & 0x3FFF) << 4, (word >> 32 & 0x3FFF) << 4, base_offset, swizzle,
        absolute, tuple(problems), unit == "tcgen05" and not word >> 46 & 7,
    )  # fmt: skip


def encode_descriptor(descriptor: MatrixDescriptor) -> int:
    """The word of a descriptor without problems. Raises ValueError for offsets that do not fit."""
    for name, value in (
        ("start address", descriptor.start_bytes), ("leading offset", descriptor.leading_bytes),
        ("stride offset", descriptor.stride_bytes),
    ):  # fmt: skip
        if value % ATOM_BYTES or not 0 <= value < 1 << 18:
            raise ValueError(f"the {name} of a descriptor is a multiple of 16 below 262144, not {value}")
    word = descriptor.start_bytes >> 4 | descriptor.leading_bytes >> 4 << 16 | descriptor.stride_bytes >> 4 << 32
    word |= descriptor.base_offset << 49
    if descriptor.unit == "wgmma":
        return word | _WGMMA_SWIZZLES.index(descriptor.swizzle) << 62
    code = next(code for code, swizzle in _TCGEN05_SWIZZLES.items() if swizzle == descriptor.swizzle)
    return word | 1 << 46 | int(descriptor.leading_is_address) << 52 | code << 61


def operand_problems(
    descriptor: MatrixDescriptor, operand: str, element_bits: int, mn_major: bool, extent: int, k: int
) -> tuple[str, ...]:
    """Why an operand cannot be read through this descriptor, in words; empty when it can.

    operand       "A" or "B"
    element_bits  storage of one element
    mn_major      whether M (or N) runs fastest in memory, instead of K
    extent        rows (M or N) that one instruction reads
    k             elements along K of one instruction, as stored

    What the word itself says wrong comes first.
    """
    problems = [f"the descriptor of {operand} is illegal: {p}" for p in descriptor.problems]
    swizzle = descriptor.swizzle
    dimension = "M" if operand == "A" else "N"
    if mn_major:
        problems += _mn_major_problems(descriptor, operand, dimension, element_bits)
        run_bytes = extent * element_bits // 8
        inner = min(run_bytes, swizzle.width_bytes)
    else:
        if swizzle == SWIZZLE_128B_ATOM_32B:
            problems.append(
                f"{operand} is K-major with the swizzle 128B with 32-byte atoms, which is for {dimension}-major tf32: "
                "use none, 32B, 64B or 128B"
            )
        inner = run_bytes = k * element_bits // 8
    if swizzle == NO_SWIZZLE:
        return tuple(problems)
    start = descriptor.start_bytes % swizzle.width_bytes
    if start + inner > swizzle.width_bytes:
        direction = dimension if mn_major else "K"
        problems.append(
            f"{operand} reads {run_bytes} bytes along {direction} from byte {start} of a row of the {said(swizzle)} "
            f"swizzle, which has {swizzle.width_bytes}: it would run into the next row"
        )
    return tuple(problems)


def _mn_major_problems(descriptor: MatrixDescriptor, operand: str, dimension: str, element_bits: int) -> list[str]:
    """Which types may be M- or N-major: 16-bit for wgmma; for tcgen05 also 8-bit, and tf32 with 32-byte atoms."""
    swizzle = descriptor.swizzle
    if descriptor.unit == "wgmma":
        legal = element_bits == 16
        allowed = "16-bit types"
    else:
        legal = element_bits in (8, 16, 32)
        allowed = "8-bit and 16-bit types, and tf32"
    if not legal:
        return [f"{operand} is {dimension}-major with {element_bits}-bit elements: only {allowed} can be"]
    if descriptor.unit == "tcgen05" and (element_bits == 32) != (swizzle == SWIZZLE_128B_ATOM_32B):
        right = "128B with 32-byte atoms" if element_bits == 32 else "none, 32B, 64B or 128B"
        return [
            f"{operand} is {dimension}-major with {element_bits}-bit elements and the swizzle {said(swizzle)}: "
            f"it must be {right}"
        ]
    return []


def said(swizzle: Swizzle) -> str:
    """What the manual calls a swizzle."""
    return "128B with 32-byte atoms" if swizzle == SWIZZLE_128B_ATOM_32B else swizzle.name
