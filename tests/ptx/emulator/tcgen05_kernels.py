"""Hand-written PTX for sm_100a around tcgen05: one frame that fills shared memory, and reads tensor memory back.

Operands are laid out in shared memory by the formulas of the manual, element by element.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.assembling.assembler import AssemblerUnavailable, assemble

Bytes = NDArray[np.uint8]
SPAN = {"none": 16, "32B": 32, "64B": 64, "128B": 128, "128B_32B": 128}
CODE = {"none": 0, "128B_32B": 1, "128B": 2, "64B": 4, "32B": 6}
THREADS = 128


def swizzled(address: int, mode: str) -> int:
    """Where a byte of an unswizzled shared address lies."""
    mask = {"none": 0, "32B": 0x10, "64B": 0x30, "128B": 0x70}
    if mode == "128B_32B":
        return address ^ (address >> 2 & 0x60)
    return address ^ (address >> 3 & mask[mode])


@dataclass(frozen=True)
class Tile:
    """An operand in shared memory, at a multiple of 1024 bytes.

    elements  (rows, k) bit patterns
    bits      width of a stored element: 4, 8, 16 or 32
    """

    elements: NDArray[np.int64]
    bits: int
    swizzle: str = "none"
    mn_major: bool = False

    @property
    def strides(self) -> tuple[int, int]:
        """(leading, stride) byte offsets: rows (or steps of K) lie in groups without gaps, groups one after another."""
        rows, k = self.elements.shape
        if not self.mn_major:
            if self.swizzle == "none":
                return 128 * -(-rows // 8), 128
            return 0, 8 * SPAN[self.swizzle]
        chunks = -(-rows * self.bits // 8 // 16)
        if self.swizzle == "none":
            return 128 * chunks, 128
        steps = 4 if self.swizzle == "128B_32B" else 8
        group = steps * SPAN[self.swizzle]
        return -(-k // steps) * group, group

    def offset(self, row: int, step: int) -> int:
        """Byte offset of an element before swizzling (of its pair for 4-bit elements)."""
        leading, stride = self.strides
        if not self.mn_major:
            byte = step * self.bits // 8
            if self.swizzle == "none":
                return row // 8 * stride + byte // 16 * leading + row % 8 * 16 + byte % 16
            return row // 8 * stride + row % 8 * SPAN[self.swizzle] + byte
        byte = row * self.bits // 8
        if self.swizzle == "none":
            return byte // 16 * stride + step // 8 * leading + step % 8 * 16 + byte % 16
        span, steps = SPAN[self.swizzle], 4 if self.swizzle == "128B_32B" else 8
        return byte // span * leading + step // steps * stride + step % steps * span + byte % span

    def image(self) -> Bytes:
        """The bytes from the start of the tile on, a multiple of 1024 of them."""
        rows, k = self.elements.shape
        last = max(swizzled(self.offset(r, s), self.swizzle) for r in range(rows) for s in range(k))
        size = last + max(1, self.bits // 8)
        data = np.zeros(-(-size // 1024) * 1024, np.uint8)
        for row in range(rows):
            for step in range(k):
                at = swizzled(self.offset(row, step), self.swizzle)
                value = int(self.elements[row, step])
                if self.bits == 4:
                    data[at] |= value << 4 * (step % 2)
                else:
                    data[at : at + self.bits // 8] = list(value.to_bytes(self.bits // 8, "little"))
        return data

    @property
    def descriptor(self) -> int:
        """The matrix descriptor without its start address."""
        leading, stride = self.strides
        return (leading >> 4) << 16 | (stride >> 4) << 32 | 1 << 46 | CODE[self.swizzle] << 61


def padded_row(codes: NDArray[np.int64], bits: int) -> NDArray[np.int64]:
    """4- or 6-bit codes of one row as bytes, sixteen of them in the first bytes of every 16."""
    result: list[int] = []
    for start in range(0, len(codes), 16):
        number = sum(int(c) << bits * i for i, c in enumerate(codes[start : start + 16]))
        result += number.to_bytes(16, "little")
    return np.array(result, np.int64)


HEAD = """.version {version}
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 source, .param .u64 result){directives}
{{
.reg .b32 %r<512>; .reg .b64 %rd<32>; .reg .pred %p<8>; .reg .b16 %h<4>; .reg .f32 %f<8>;
.shared .align 1024 .b8 tile[{shared}];
.shared .align 8 .b64 bar;
.shared .align 8 .b64 bar2;
.shared .align 4 .b32 slot;
ld.param.u64 %rd1, [source];
ld.param.u64 %rd2, [result];
mov.u32 %r1, %tid.x;
shr.u32 %r2, %r1, 5;
setp.eq.u32 %p1, %r1, 0;
setp.eq.u32 %p2, %r2, 0;
mov.u32 %r3, tile;
mov.u32 %r4, bar;
mov.u32 %r5, slot;
"""
# Each thread copies 4-byte words; then the asynchronous proxy may see them.
FILL = """mov.u32 %r10, %r1;
FILL:
mul.wide.u32 %rd10, %r10, 4;
add.u64 %rd11, %rd1, %rd10;
ld.global.u32 %r11, [%rd11];
shl.b32 %r12, %r10, 2;
add.u32 %r13, %r3, %r12;
st.shared.u32 [%r13], %r11;
add.u32 %r10, %r10, {threads};
setp.lt.u32 %p3, %r10, {words};
@%p3 bra FILL;
fence.proxy.async.shared::cta;
"""
INIT = """@%p1 mbarrier.init.shared::cta.b64 [bar], 1;
"""
ALLOC = """@!%p2 bra ALLOCATED;
tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [slot], {columns};
ALLOCATED:
tcgen05.fence::before_thread_sync;
bar.sync 0;
tcgen05.fence::after_thread_sync;
ld.shared.u32 %r6, [slot];
"""
COMMIT = """tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r4];
"""
WAIT = """WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p4, [bar], 0;
@!%p4 bra WAIT;
tcgen05.fence::after_thread_sync;
"""
FREE = """tcgen05.fence::before_thread_sync;
bar.sync 0;
tcgen05.fence::after_thread_sync;
@!%p2 bra FREED;
tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %r6, {columns};
FREED:
ret;
}}
"""


def registers(first: int, count: int) -> str:
    """{%r20, %r21, ...}"""
    return "{" + ", ".join(f"%r{first + n}" for n in range(count)) + "}"


def descriptor(register: int, constant: int, offset: int) -> str:
    """%rd<register> = a matrix descriptor of what lies `offset` bytes into the tile."""
    return (
        f"add.u32 %r14, %r3, {offset};\nshr.u32 %r14, %r14, 4;\ncvt.u64.u32 %rd{register}, %r14;\n"
        f"or.b64 %rd{register}, %rd{register}, {constant:#x};\n"
    )


def read_back(columns: int, first: int = 0, halves: bool = False) -> str:
    """Every lane stores its columns of tensor memory: result[lane, column]; `halves`: the lower 16 bits of cells."""
    text = (
        "shl.b32 %r15, %r2, 21;\nadd.u32 %r15, %r15, %r6;\n"
        f"mul.wide.u32 %rd12, %r1, {4 * columns};\nadd.u64 %rd13, %rd2, %rd12;\n"
    )
    done = 0
    while done < columns:
        width = next(w for w in (32, 16, 8, 4, 2, 1) if w <= columns - done)
        text += f"tcgen05.ld.sync.aligned.32x32b.x{width}.b32 {registers(20, width)}, [%r15+{first + done}];\n"
        text += "tcgen05.wait::ld.sync.aligned;\n"
        for n in range(width):
            text += f"and.b32 %r{20 + n}, %r{20 + n}, 0xFFFF;\n" if halves else ""
            text += f"st.global.u32 [%rd13+{4 * (done + n)}], %r{20 + n};\n"
        done += width
    return text


def kernel(
    body: str, shared: int, columns: int = 128, words: int | None = None, group: int = 1, version: str = "8.6",
    directives: str = "", head: str = "",
) -> str:  # fmt: skip
    """A kernel of 128 threads: shared memory filled from `source`, `columns` of tensor memory at %r6, then `body`.

    words  how many words of shared memory are filled; all of them by default
    """
    words = shared // 4 if words is None else words
    return (
        HEAD.format(shared=shared, version=version, directives=directives)
        + head
        + INIT
        + (FILL.format(words=words, threads=THREADS) if words else "")
        + ALLOC.format(columns=columns, group=group)
        + body
        + FREE.format(columns=columns, group=group)
    )


def check_spelling(text: str) -> None:
    """The assembler takes the kernel for sm_100a (where there is an assembler)."""
    try:
        assemble(text, "sm_100a")
    except AssemblerUnavailable:
        return


@dataclass
class Image:
    """Bytes of shared memory, put together from tiles that start at multiples of 1024."""

    data: Bytes = field(default_factory=lambda: np.zeros(0, np.uint8))

    def add(self, data: Bytes) -> int:
        """Append bytes; returns their offset."""
        offset = self.data.size
        padded = np.zeros(-(-data.size // 1024) * 1024, np.uint8)
        padded[: data.size] = data
        self.data = np.concatenate([self.data, padded])
        return offset


def store_lanes(column: int, offset: int, words: int) -> str:
    """Every lane of tensor memory gets `words` words from the tile at `offset`, lane after lane; visible to all."""
    text = (
        "shl.b32 %r15, %r2, 21;\nadd.u32 %r15, %r15, %r6;\n"
        f"mad.lo.u32 %r16, %r1, {4 * words}, %r3;\nadd.u32 %r16, %r16, {offset};\n"
    )
    for n in range(words):
        text += f"ld.shared.u32 %r{20 + n}, [%r16+{4 * n}];\n"
    text += f"tcgen05.st.sync.aligned.32x32b.x{words}.b32 [%r15+{column}], {registers(20, words)};\n"
    return text + SETTLE


def clear(columns: int, word: int = 0) -> str:
    """Every cell of the first columns gets this word; visible to all."""
    text = f"shl.b32 %r15, %r2, 21;\nadd.u32 %r15, %r15, %r6;\nmov.u32 %r20, {word:#x};\n"
    first = 0
    while first < columns:
        width = next(w for w in (32, 16, 8, 4, 2, 1) if w <= columns - first)
        same = "{" + ", ".join(["%r20"] * width) + "}"
        text += f"tcgen05.st.sync.aligned.32x32b.x{width}.b32 [%r15+{first}], {same};\n"
        first += width
    return text + SETTLE


SETTLE = """tcgen05.wait::st.sync.aligned;
tcgen05.fence::before_thread_sync;
bar.sync 0;
tcgen05.fence::after_thread_sync;
"""


def one_thread(text: str) -> str:
    """Thread 0 alone does this and then commits; all threads wait for that."""
    return "@!%p1 bra ISSUED;\n" + text + COMMIT + "ISSUED:\n" + WAIT


def enable(register: int, value: bool) -> str:
    """%p<register> = value."""
    return f"mov.u32 %r17, {int(value)};\nsetp.ne.u32 %p{register}, %r17, 0;\n"


# ---- numbers ------------------------------------------------------------------------------------------------------

FORMATS: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2, "e2m3": ml_dtypes.float6_e2m3fn, "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m1": ml_dtypes.float4_e2m1fn, "u8": np.uint8, "s8": np.int8,
}  # fmt: skip
CODES = {
    "f16": {"f16": 0, "bf16": 1}, "tf32": {"tf32": 2}, "i8": {"u8": 0, "s8": 1},
    "f8f6f4": {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5},
    "mxf8f6f4": {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}, "mxf4": {"e2m1": 1}, "mxf4nvf4": {"e2m1": 1},
}  # fmt: skip
K = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
NARROW = {"e2m3": 6, "e3m2": 6, "e2m1": 4}


def codes_of(values: NDArray[Any], element: str) -> NDArray[np.int64]:
    """Bit patterns of small numbers."""
    stored = values.astype(FORMATS[element])
    width = stored.dtype.itemsize
    return np.asarray(stored.view(f"u{width}").astype(np.int64))


def in_shared(values: NDArray[Any], kind: str, element: str, swizzle: str, mn_major: bool) -> Tile:
    """A tile of numbers as this kind wants it in shared memory."""
    codes = codes_of(values, element)
    if kind.startswith("mxf4"):
        return Tile(codes, 4, swizzle, mn_major)
    if element in NARROW:
        return Tile(np.stack([padded_row(row, NARROW[element]) for row in codes]), 8, swizzle, mn_major)
    return Tile(codes, {"f16": 16, "bf16": 16, "tf32": 32}.get(element, 8), swizzle, mn_major)


def lane_words(values: NDArray[Any], kind: str, element: str) -> NDArray[np.uint32]:
    """Rows of A as they lie in a lane of tensor memory: (rows, 8) words."""
    codes = codes_of(values, element)
    if kind.startswith("mxf4"):
        raw = (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)
    elif element in NARROW:
        raw = (codes << (2 if NARROW[element] == 4 else 1)).astype(np.uint8)
    else:
        raw = codes.astype({"f16": "u2", "bf16": "u2", "tf32": "u4"}.get(element, "u1")).view(np.uint8)
    return np.ascontiguousarray(raw).view(np.uint32)


# ---- pairs of CTAs ------------------------------------------------------------------------------------------------

MEET = """barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
"""
PAIR_ALLOC = """@!%p2 bra ALLOCATED;
tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [slot], {columns};
ALLOCATED:
tcgen05.fence::before_thread_sync;
bar.sync 0;
tcgen05.fence::after_thread_sync;
ld.shared.u32 %r6, [slot];
"""
# The even CTA issues; the mbarriers of both hear of it.
PAIR_COMMIT = """mov.u16 %h1, 3;
tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r4], %h1;
"""
PAIR_FREE = """tcgen05.fence::before_thread_sync;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
tcgen05.fence::after_thread_sync;
@!%p2 bra FREED;
tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r6, {columns};
FREED:
ret;
}}
"""


def pair_kernel(body: str, shared: int, result: int, columns: int, version: str = "8.6") -> str:
    """The same for a pair of CTAs; each fills its shared memory with its own part of `source`, of `shared` bytes.

    result  bytes of its part of `result`
    """
    own = (
        "mov.u32 %r7, %cluster_ctarank;\nsetp.eq.u32 %p6, %r7, 0;\n"
        f"mul.wide.u32 %rd14, %r7, {shared};\nadd.u64 %rd1, %rd1, %rd14;\n"
        f"mul.wide.u32 %rd14, %r7, {result};\nadd.u64 %rd2, %rd2, %rd14;\n"
    )
    directives = "\n.explicitcluster\n.reqnctapercluster 2, 1, 1"
    return (
        HEAD.format(shared=shared, version=version, directives=directives)
        + own
        + INIT
        + "@%p1 fence.mbarrier_init.release.cluster;\n"
        + FILL.format(words=shared // 4, threads=THREADS)
        + MEET
        + PAIR_ALLOC.format(columns=columns)
        + body
        + PAIR_FREE.format(columns=columns)
    )


def even_thread(text: str) -> str:
    """Thread 0 of the even CTA alone does this and then commits; all threads of both CTAs wait for that."""
    return "and.pred %p7, %p1, %p6;\n@!%p7 bra ISSUED;\n" + text + PAIR_COMMIT + "ISSUED:\n" + WAIT
