"""What the emulator reads out of tcgen05's operands, one reading at a time, and which foreign kernels judge it.

No Blackwell chip has judged this emulator, and lowering writes what the emulator reads: an error in the facts that both
share would prove itself. So a reading has *witnesses*: kernels that another compiler made of a source written for the
tests (nvcc with CUTLASS's headers: "CuTe ..."; Triton: "Triton ..."), which give a right result when it is read so, and
a wrong one, or a refusal, when the emulator reads it in another way. `tests/ptx/emulator/test_witnesses.py` alters each
reading and sees that. A reading without a witness is *unjudged*: the manual and this house agree, and nobody else was
asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.ptx.cards.specimen import markdown_table

UNJUDGED = "*unjudged*"


@dataclass(frozen=True, slots=True)
class Reading:
    """One thing that the emulator takes an operand, a place or an event to mean.

    key        "layout: D": the group, and the entry of the emulator's tables
    says       the reading, as a sentence without its full stop
    witnesses  kernels that would go wrong under another reading
    why        for a reading without witnesses: why nobody judges it
    """

    key: str
    says: str
    witnesses: tuple[str, ...] = ()
    why: str = ""

    def __post_init__(self) -> None:
        if bool(self.witnesses) == bool(self.why):
            raise ValueError(f"{self.key} has witnesses, or a reason why there are none; not both, and not neither")

    @property
    def group(self) -> str:
        return self.key.split(": ")[0]

    @property
    def name(self) -> str:
        return self.key.split(": ", 1)[1]


def _judged(key: str, says: str, *witnesses: str) -> Reading:
    return Reading(key, says, witnesses)


def _unjudged(key: str, says: str, why: str) -> Reading:
    return Reading(key, says, (), why)


_NOBODY = "none of the compilers writes it in these kernels"
_SPARSE = "sparse kinds have no kernel here"
_WS = "neither CUTLASS 4.2 nor Triton has .ws"
_STEP = "no right kernel shows it: what is waited for too early or never is nobody's right result"

_MATRIX = (
    _judged(
        "matrix descriptor: start_bytes",
        "bits 13:0 are the address of the first element, in units of 16 bytes",
        "CuTe rows_128_64", "CuTe columns_128_64",
    ),
    _judged(
        "matrix descriptor: leading_bytes",
        "bits 29:16 are the leading offset, in units of 16 bytes: along m or n between chunks as wide as the "
        "swizzle, where that is the contiguous side; without a swizzle along k, between cores",
        "CuTe columns_128_64", "CuTe rows_none_32", "CuTe columns_none_rows",
    ),
    _judged(
        "matrix descriptor: stride_bytes",
        "bits 45:32 are the stride offset, in units of 16 bytes: between groups of eight rows, or of k",
        "CuTe rows_128_64", "CuTe columns_128_64", "CuTe moved_256b",
    ),
    _judged(
        "matrix descriptor: constant_missing",
        "bits 48:46 are 0b001 in a right descriptor",
        "CuTe rows_128_64", "CuTe moved_128b",
    ),
    _unjudged(
        "matrix descriptor: base_offset",
        "bits 51:49 are the line at which the pattern of the swizzle begins",
        "all operands here begin where their pattern does: it is 0",
    ),
    _unjudged(
        "matrix descriptor: leading_is_address",
        "bit 52 makes the leading offset an address",
        "it is for K = 96 of sm_103a",
    ),
    _judged(
        "matrix descriptor: swizzle",
        "bits 63:61 name the swizzle: 0 none, 2 128B, 4 64B, 6 32B, and 1 128B with 32-byte atoms",
        "CuTe rows_128_64", "CuTe rows_32_none", "CuTe tf32_columns",
    ),
    _judged(
        "swizzle: acts on addresses",
        "a swizzle permutes the bits of shared addresses, not of offsets from the descriptor's start",
        "CuTe rows_128_64", "CuTe fp8_e4m3_e5m2",
    ),
    _judged(
        "swizzle: none, k-major",
        "cores of 8 rows x 16 bytes, the leading offset apart along k and the stride along the rows",
        "CuTe rows_none_32",
    ),
    _judged("swizzle: 32B, k-major", "rows of 32 bytes, eight to a stride", "CuTe rows_32_none"),
    _judged("swizzle: 64B, k-major", "rows of 64 bytes, eight to a stride", "CuTe rows_128_64"),
    _judged("swizzle: 128B, k-major", "rows of 128 bytes, eight to a stride", "CuTe fp8_e4m3_e5m2"),
    _judged(
        "swizzle: none, mn-major",
        "cores of 8 steps of k x 16 bytes, the leading offset apart along k and the stride along m or n",
        "CuTe columns_none_rows",
    ),
    _judged("swizzle: 32B, mn-major", "chunks of 32 bytes along m or n", "CuTe columns_32_none"),
    _judged("swizzle: 64B, mn-major", "chunks of 64 bytes along m or n", "CuTe columns_128_64"),
    _judged("swizzle: 128B, mn-major", "chunks of 128 bytes along m or n", "CuTe rows_columns_128"),
    _judged(
        "swizzle: 128B_ATOM_32B, mn-major",
        "chunks of 128 bytes, four steps of k to a stride: m- or n-major tf32",
        "CuTe tf32_columns",
    ),
)  # fmt: skip
_WORD = (
    _judged(
        "instruction descriptor: m",
        "bits 28:24 are M / 16 (of scaled kinds 28:27 M / 128)",
        "CuTe rows_128_64", "CuTe half_lanes_256b",
    ),
    _judged("instruction descriptor: n", "bits 22:17 are N / 8", "CuTe rows_128_64", "CuTe mxf8_wide"),
    _judged("instruction descriptor: a_type", "bits 9:7 are the type of A", "CuTe bytes_s8_u8", "CuTe mxf8"),
    _judged("instruction descriptor: b_type", "bits 12:10 are the type of B", "CuTe bytes_u8_s8_columns", "CuTe mxf8"),
    _judged(
        "instruction descriptor: d_type",
        "bits 5:4 are the type of D: 0 f16, 1 f32, 2 s32",
        "CuTe rows_128_64", "CuTe half_sums", "CuTe bytes_s8_u8",
    ),
    _judged("instruction descriptor: a_mn_major", "bit 15: A is m-major", "CuTe columns_none_rows", "CuTe mxf8_wide"),
    _judged("instruction descriptor: b_mn_major", "bit 16: B is n-major", "CuTe rows_columns_128"),
    _judged("instruction descriptor: negate_a", "bit 13: A is negated", "CuTe negated_a", "CuTe mxf8_negated"),
    _judged("instruction descriptor: negate_b", "bit 14: B is negated", "CuTe negated_b"),
    _judged(
        "instruction descriptor: saturate",
        "bit 3: sums of kind::i8 stop at the ends of s32; without it they wrap",
        "CuTe bytes_saturated", "CuTe bytes_wrapped",
    ),
    _judged(
        "instruction descriptor: scale_type",
        "bit 23: scale factors are ue8m0 (1) or ue4m3 (0)",
        "CuTe nvf4", "CuTe nvf4_powers",
    ),
    _judged(
        "instruction descriptor: sfa_id",
        "bits 30:29: the byte in the cell at which A's scale factors begin",
        "Triton block_scaled", "CuTe mxf4",
    ),
    _judged(
        "instruction descriptor: sfb_id",
        "bits 5:4 of scaled kinds: the byte in the cell at which B's scale factors begin",
        "Triton block_scaled", "CuTe mxf4",
    ),
    _unjudged("instruction descriptor: sparse", "bit 2: A is sparse", _SPARSE),
    _unjudged("instruction descriptor: sparsity_selector", "bits 1:0: which column of the metadata is used", _SPARSE),
    _unjudged("instruction descriptor: max_shift", "bits 31:30: the greatest shift of columns of .ws", _WS),
    _judged("depth: f16", "an instruction of kind::f16 takes 16 elements of k", "CuTe rows_128_64"),
    _judged("depth: tf32", "an instruction of kind::tf32 takes 8 elements of k", "CuTe tf32_rows"),
    _judged("depth: f8f6f4", "an instruction of kind::f8f6f4 takes 32 elements of k", "CuTe fp8_e4m3_e5m2"),
    _judged("depth: i8", "an instruction of kind::i8 takes 32 elements of k", "CuTe bytes_s8_u8"),
    _judged("depth: mxf8f6f4", "an instruction of kind::mxf8f6f4 takes 32 elements of k", "CuTe mxf8"),
    _judged("depth: mxf4", "an instruction of kind::mxf4 takes 64 elements of k", "CuTe mxf4"),
    _judged("depth: mxf4nvf4", "an instruction of kind::mxf4nvf4 takes 64 elements of k", "CuTe nvf4"),
    _judged("type: f16 f16", "code 0 of kind::f16 is f16", "CuTe rows_128_64"),
    _judged("type: f16 bf16", "code 1 of kind::f16 is bf16", "CuTe rows_32_none"),
    _judged("type: tf32 tf32", "code 2 of kind::tf32 is tf32", "CuTe tf32_rows"),
    _judged("type: f8f6f4 e4m3", "code 0 of kind::f8f6f4 is e4m3", "CuTe fp8_e4m3_e5m2"),
    _judged("type: f8f6f4 e5m2", "code 1 of kind::f8f6f4 is e5m2", "CuTe fp8_e5m2_e4m3_columns"),
    _unjudged("type: f8f6f4 e2m3", "code 3 of kind::f8f6f4 is e2m3", _NOBODY),
    _unjudged("type: f8f6f4 e3m2", "code 4 of kind::f8f6f4 is e3m2", _NOBODY),
    _unjudged("type: f8f6f4 e2m1", "code 5 of kind::f8f6f4 is e2m1", _NOBODY),
    _judged("type: i8 u8", "code 0 of kind::i8 is u8", "CuTe bytes_u8_s8_columns"),
    _judged("type: i8 s8", "code 1 of kind::i8 is s8", "CuTe bytes_s8_u8"),
    _judged("type: mxf8f6f4 e4m3", "code 0 of kind::mxf8f6f4 is e4m3", "CuTe mxf8", "Triton block_scaled"),
    _judged("type: mxf8f6f4 e5m2", "code 1 of kind::mxf8f6f4 is e5m2", "CuTe mxf8_wide"),
    _unjudged("type: mxf8f6f4 e2m3", "code 3 of kind::mxf8f6f4 is e2m3", _NOBODY),
    _unjudged("type: mxf8f6f4 e3m2", "code 4 of kind::mxf8f6f4 is e3m2", _NOBODY),
    _judged("type: mxf8f6f4 e2m1", "code 5 of kind::mxf8f6f4 is e2m1", "Triton scaled_matmul-e4m3-e2m1"),
    _judged("type: mxf4 e2m1", "code 1 of kind::mxf4 is e2m1", "CuTe mxf4"),
    _judged("type: mxf4nvf4 e2m1", "code 1 of kind::mxf4nvf4 is e2m1", "CuTe nvf4"),
    _judged("sums: f16 f16", "kind::f16 can add up in f16", "CuTe half_sums", "CuTe half_sums_added"),
    _judged("sums: f16 f32", "kind::f16 can add up in f32", "CuTe rows_128_64"),
    _judged("sums: tf32 f32", "kind::tf32 adds up in f32", "CuTe tf32_rows"),
    _unjudged("sums: f8f6f4 f16", "kind::f8f6f4 can add up in f16", _NOBODY),
    _judged("sums: f8f6f4 f32", "kind::f8f6f4 can add up in f32", "CuTe fp8_e4m3_e5m2"),
    _judged("sums: i8 s32", "kind::i8 adds up in s32", "CuTe bytes_s8_u8"),
    _judged("sums: mxf8f6f4 f32", "kind::mxf8f6f4 adds up in f32", "CuTe mxf8"),
    _judged("sums: mxf4 f32", "kind::mxf4 adds up in f32", "CuTe mxf4"),
    _judged("sums: mxf4nvf4 f32", "kind::mxf4nvf4 adds up in f32", "CuTe nvf4"),
)  # fmt: skip
_PLACES = (
    _judged("layout: A", "M = 256 of a pair: row r of a CTA in lane r, column c in column c", "Triton pair-256"),
    _judged(
        "layout: B",
        "M = 128 of a pair: row r in lane r, and in lane r + 64 for the second half of the columns",
        "Triton pair-128",
    ),
    _unjudged("layout: C", "M = 128 of a pair, sparse A: 16 rows to each 32 lanes", _SPARSE),
    _judged("layout: D", "M = 128: row r in lane r, column c in column c", "CuTe rows_128_64", "CuTe added"),
    _unjudged(
        "layout: E",
        "M = 64 of .ws: row r in lane r, and in lane r + 64 for the second half of the columns",
        _WS,
    ),
    _judged(
        "layout: F",
        "M = 64: row r in lane 32 (r / 16) + r % 16",
        "CuTe half_lanes_256b", "CuTe half_lanes_64b", "CuTe half_lanes_bytes",
    ),
    _unjudged("layout: G", "M = 32 of .ws: a quarter of the columns to each 32 lanes", _WS),
    _unjudged("layout: upper half", "layouts C and F may begin at lane 16", _NOBODY),
    _judged("layout: sums of f16", "an f16 sum lies in the low half of its cell", "CuTe half_sums"),
    _judged("operand in tensor memory: layout D", "row r of A in lane r", "CuTe held_f16"),
    _judged(
        "operand in tensor memory: layout F",
        "row r of A in lane 32 (r / 16) + r % 16, like its row of D",
        "CuTe held_f16_half_lanes",
    ),
    _judged(
        "operand in tensor memory: 16 bits",
        "two elements to a cell, the first along k in the low half",
        "CuTe held_f16",
    ),
    _judged(
        "operand in tensor memory: 8 bits",
        "four elements to a cell, the first along k in the low byte",
        "CuTe held_bytes", "CuTe held_fp8",
    ),
    _judged(
        "operand in tensor memory: 32 bits",
        "an element to a cell, along k from column to column",
        "CuTe held_tf32",
    ),
    _unjudged("operand in tensor memory: 4 and 6 bits", "an element to a byte, in its middle bits", _NOBODY),
    _unjudged(
        "operand in tensor memory: layouts A and B",
        "of a pair: like the rows of D, in B in both halves of the lanes",
        _NOBODY,
    ),
    _judged(
        "operand in shared memory: 4 bits of mxf8f6f4",
        "16 elements are 8 bytes, with 8 bytes of padding behind them",
        "Triton scaled_matmul-e4m3-e2m1",
    ),
    _judged(
        "operand in shared memory: 4 bits of mxf4 and mxf4nvf4",
        "two elements to a byte",
        "CuTe mxf4", "CuTe nvf4",
    ),
    _unjudged(
        "operand in shared memory: first of two",
        "of two elements in a byte the first lies in the low bits",
        "A and B are packed alike, so that the order cancels in every product",
    ),
    _unjudged(
        "operand in shared memory: 6 bits",
        "16 elements are 12 bytes, with 4 bytes of padding behind them",
        _NOBODY,
    ),
    _judged(
        "scales: of A",
        "those of row r lie in lane r % 32 and column r / 32, byte by byte along k",
        "CuTe mxf8", "CuTe nvf4",
    ),
    _judged(
        "scales: of B",
        "those of column c lie in lane c % 32 and column c / 32, byte by byte along k",
        "CuTe mxf8", "CuTe mxf8_wide", "CuTe nvf4",
    ),
    _unjudged(
        "scales: four copies",
        "each quarter of the lanes reads the copy in its own lanes",
        "right kernels make all copies alike",
    ),
    _unjudged(
        "scales: of a pair",
        "of M = 256 as of one CTA, with the scales of all columns in both; of M = 128 those of its half of the "
        "columns in each half of the lanes",
        _NOBODY,
    ),
    _judged(
        "scales: address",
        "bits 31:30 of their address may hold the number of the first byte",
        "CuTe mxf8", "CuTe mxf4",
    ),
    _judged("scales: mxf8f6f4", "one for each 32 elements of k, where nothing is said", "CuTe mxf8"),
    _unjudged("scales: mxf8f6f4 scale_vec::1X", "the same, spelled otherwise", _NOBODY),
    _judged("scales: mxf8f6f4 block32", "the same, spelled otherwise", "Triton block_scaled"),
    _unjudged("scales: mxf4", "one for each 32 elements of k, where nothing is said", _NOBODY),
    _unjudged("scales: mxf4 scale_vec::2X", "the same, spelled otherwise", _NOBODY),
    _judged("scales: mxf4 block32", "one for each 32 elements of k", "CuTe mxf4"),
    _unjudged("scales: mxf4nvf4 scale_vec::2X", "one for each 32 elements of k", _NOBODY),
    _unjudged("scales: mxf4nvf4 block32", "the same, spelled otherwise", _NOBODY),
    _unjudged("scales: mxf4nvf4 scale_vec::4X", "one for each 16 elements of k", _NOBODY),
    _judged("scales: mxf4nvf4 block16", "one for each 16 elements of k", "CuTe nvf4"),
    _judged("scales: ue8m0", "a byte e is 2 to the power e - 127", "CuTe mxf8", "CuTe nvf4_powers"),
    _judged("scales: ue4m3", "a byte is an e4m3 without a sign", "CuTe nvf4"),
    _judged(
        "address: lane and column",
        "bits 31:16 are the lane, bits 15:0 the column",
        "CuTe rows_128_64", "CuTe held_f16",
    ),
    _judged(
        "address: quarter of a warp",
        "warp w reaches lanes 32 (w % 4) to 32 (w % 4) + 31",
        "CuTe rows_128_64", "CuTe half_lanes_256b",
    ),
)  # fmt: skip
# tcgen05.ld or .st of a shape: the kernel of a product whose sums, or operand, go through it alone.
_REGISTERS = {
    ("ld", "32x32b"): "rows_128_64",
    ("ld", "16x64b"): "half_lanes_64b",
    ("ld", "16x128b"): "half_lanes_128b",
    ("ld", "16x256b"): "half_lanes_256b",
    ("ld", "16x32bx2"): "half_lanes_32b",
    ("ld", "32x32b, packed"): "half_sums",
    ("ld", "16x64b, packed"): "half_lanes_packed_64b",
    ("ld", "16x128b, packed"): "half_lanes_packed_128b",
    ("ld", "16x256b, packed"): "half_lanes_packed_256b",
    ("ld", "16x32bx2, packed"): "half_lanes_packed_32b",
    ("st", "32x32b"): "held_f16",
    ("st", "16x64b"): "half_lanes_128b",
    ("st", "16x128b"): "half_lanes_256b",
    ("st", "16x256b"): "half_lanes_64b",
    ("st", "16x32bx2"): "half_lanes_32b",
    ("st", "32x32b, packed"): "half_sums_added",
    ("st", "16x64b, packed"): "half_lanes_packed_128b",
    ("st", "16x128b, packed"): "half_lanes_packed_256b",
    ("st", "16x256b, packed"): "half_lanes_packed_64b",
    ("st", "16x32bx2, packed"): "half_lanes_packed_32b",
}
_ACCESS = tuple(
    _judged(f"{verb}: {shape}", "which cells its registers are: the layout of `docs/fragments.md`", f"CuTe {kernel}")
    for (verb, shape), kernel in _REGISTERS.items()
)
_MOVES = (
    _judged("ld: pack::16b", "the low half of a register is the first of two columns", "CuTe half_sums"),
    _judged(
        "st: unpack::16b",
        "the low half of a register goes to the first of two columns",
        "CuTe half_lanes_packed_64b", "CuTe half_lanes_packed_32b",
    ),
    _judged(
        "cp: 128x256b",
        "row i goes to lane i, its 32 bytes to 8 columns",
        "CuTe moved_256b", "CuTe moved_256b_plain", "Triton copied_tile",
    ),
    _judged(
        "cp: 128x128b",
        "row i goes to lane i, its 16 bytes to 4 columns",
        "CuTe moved_128b", "CuTe moved_128b_plain",
    ),
    _unjudged("cp: 4x256b", "row i goes to lane 32 i", _NOBODY),
    _unjudged("cp: 64x128b.warpx2::02_13", "row i goes to lanes i and i + 64", _NOBODY),
    _unjudged("cp: 64x128b.warpx2::01_23", "row i goes to lanes i % 32 + 64 (i / 32) and 32 further", _NOBODY),
    _judged("cp: 32x128b.warpx4", "row i goes to lanes i, i + 32, i + 64 and i + 96", "CuTe mxf8", "CuTe nvf4"),
    _unjudged("cp: b6x16_p32", "16 elements of 6 bits become 16 bytes", _NOBODY),
    _unjudged("cp: b4x16_p64", "16 elements of 4 bits become 16 bytes", _NOBODY),
    _unjudged("shift: down", "rows of 32 bytes move to the lane below", _NOBODY),
)  # fmt: skip
_OTHERS = (
    _judged(
        "operand: enable",
        "a true predicate adds to D, a false one overwrites it",
        "CuTe added", "CuTe rows_128_64",
    ),
    _judged(
        "operand: scale",
        "s divides what is in D by 2 to the power s before each instruction adds",
        "CuTe scaled_sums",
    ),
    _judged(
        "operand: mask",
        "of a mask of zeros every lane is written (which bit is which lane: nobody sets one)",
        "CuTe rows_128_64",
    ),
    _unjudged("operand: metadata", "where the indices of stored elements lie", _SPARSE),
    _unjudged("operand: zero_columns", "which columns of B count as zero", _WS),
    _unjudged("operand: ashift", "rows of A move down by one", _NOBODY),
    _unjudged("operand: collector", "what a buffer holds may be used again", _NOBODY),
    _judged(
        "pair: rows of A",
        "each CTA has its own half of the rows of A, at the same offset",
        "Triton pair-256", "Triton pair-128",
    ),
    _judged(
        "pair: columns of B",
        "the even CTA has the first half of the columns of B, the odd one the second",
        "Triton pair-256", "Triton pair-128",
    ),
    _judged(
        "order: mma then mma",
        "products of one thread into one accumulator are carried out in order",
        "CuTe rows_128_64",
    ),
    _judged("order: cp then mma", "a product reads what the same thread copied before", "CuTe mxf8"),
    _unjudged("order: cp.4x256b then mma", "the same of this shape", _NOBODY),
    _unjudged("order: shift then mma", "a product reads what the same thread shifted before", _NOBODY),
    _unjudged("order: shift then cp.4x256b", "a copy follows the shift of the same thread", _NOBODY),
    _unjudged("order: mma then shift", "a shift follows the product of the same thread", _NOBODY),
    _judged(
        "completion: commit after mma",
        "a commit arrives when the earlier products of its thread are complete",
        "CuTe rows_128_64", "Triton block_scaled",
    ),
    _judged(
        "completion: commit after cp",
        "a commit arrives when the earlier copies of its thread are complete",
        "CuTe moved_128b", "Triton copied_tile",
    ),
    _judged(
        "completion: commit multicast",
        "bit i of the mask: it arrives in the CTA of rank i, at the same offset",
        "Triton pair-256", "Triton pair-128",
    ),
    _judged(
        "completion: wait::ld",
        "it ends the reads of the earlier tcgen05.ld of the thread, so that columns may be freed",
        "CuTe rows_128_64",
    ),
    _judged(
        "completion: wait::st",
        "it ends the writes of the earlier tcgen05.st of the thread, so that a product may read them",
        "CuTe held_f16", "CuTe added",
    ),
    _unjudged("completion: without wait::ld", "cells may still be read, and registers are not filled", _STEP),
    _unjudged("completion: without wait::st", "cells may not be written yet", _STEP),
    _unjudged("completion: without a commit", "products may not be complete", _STEP),
    _unjudged("completion: fences", "tcgen05.fence stands before and behind what orders two threads", _STEP),
    _judged(
        "allocation: address",
        "tcgen05.alloc writes the address of the first column to shared memory",
        "CuTe rows_128_64",
    ),
    _judged("TMA: tile::gather4", "four coordinates are the rows, one the first column", "Triton gathered"),
    _judged("TMA: cta_group::2", "a load may signal the mbarrier of the other CTA of the pair", "Triton pair-256"),
    _judged(
        "launch control: ctaid",
        "an answer holds the first CTA of the cluster that was taken over",
        "Triton stolen_tiles",
    ),
)  # fmt: skip
READINGS: tuple[Reading, ...] = (*_MATRIX, *_WORD, *_PLACES, *_ACCESS, *_MOVES, *_OTHERS)
"""Every reading, in the order in which the page tells them."""

# Which groups of readings a card shows.
_OF_CARDS = {
    "tcgen05.mma": (
        "matrix descriptor", "swizzle", "instruction descriptor", "depth", "type", "sums", "layout",
        "operand in tensor memory", "operand in shared memory", "scales", "operand", "pair", "order",
    ),
    "tcgen05.mma.cells": ("matrix descriptor", "operand in tensor memory", "layout", "operand"),
    "tcgen05.mma.cells.pair": ("operand in tensor memory", "layout", "pair"),
    "tcgen05.cp.rows": ("cp", "order"),
    "tcgen05.cp.rows.pair": ("cp", "pair"),
    "tcgen05.shift": ("shift", "cp", "order"),
    "tcgen05.shift.pair": ("shift", "cp", "pair", "order"),
    "tcgen05.ld": ("ld", "address"),
    "tcgen05.st": ("st", "address"),
}  # fmt: skip


def of_card(name: str) -> tuple[Reading, ...]:
    """The readings that matter to an instruction; none for those outside tcgen05."""
    return tuple(r for r in READINGS if r.group in _OF_CARDS.get(name, ()))


def table(readings: tuple[Reading, ...]) -> str:
    """A table of readings: what is read, and who judges it."""
    rows = []
    for r in readings:
        witnesses = ", ".join(f"`{w}`" for w in r.witnesses)
        rows.append((r.key, r.says, witnesses or f"{UNJUDGED}: {r.why}"))
    return markdown_table(("reading", "what is read", "witnesses"), rows)


def counted() -> str:
    """How many readings are judged, as a sentence."""
    judged = sum(bool(r.witnesses) for r in READINGS)
    return f"Of {len(READINGS)} readings {judged} have a witness and {len(READINGS) - judged} are unjudged."
