"""The smallest kernel around one wgmma.mma_async: shared memory from a global image, registers from arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from instruction_bench import module
from numpy.typing import NDArray

from tinygpu.ptx.emulator import emulate
from tinygpu.ptx.emulator.report import Report

# The dynamic shared memory of these kernels begins at a multiple of 1024 chosen by the kernel itself.
DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8,
}  # fmt: skip
SPANS = {"none": 16, "32B": 32, "64B": 64, "128B": 128}
CODES = {"none": 0, "128B": 1, "64B": 2, "32B": 3}


@dataclass(frozen=True)
class Placed:
    """An operand in an image of shared memory: its bytes, and the descriptor of its first instruction's part.

    The start address is relative to the image.
    """

    image: NDArray[np.uint8]
    descriptor: int


def raw_bytes(matrix: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(matrix).view(np.uint8).reshape(matrix.shape[0], -1)


def place(matrix: NDArray[Any], swizzle: str, mn_major: bool, at: int = 0) -> Placed:
    """Lay an operand out at offset `at`, byte by byte by the manual's canonical layouts.

    matrix  (mn, k) elements; `mn_major` says which dimension runs fastest in memory
    """
    element = matrix.dtype.itemsize
    rows = raw_bytes(matrix.T if mn_major else matrix)
    outer, width = rows.shape
    span = SPANS[swizzle]
    if swizzle == "none":
        # Core matrices of 8 rows x 16 bytes; groups of rows follow each other, then chunks along a row.
        group, chunk = 128, (outer + 7) // 8 * 128
        leading, stride = (group, chunk) if mn_major else (chunk, group)
    elif mn_major:
        # Blocks of `span` bytes along M or N, each with all steps of K.
        leading, stride = max(16, (outer + 7) // 8 * 8 * span), 8 * span
    else:
        leading, stride = 16, 8 * span
    size = at + (outer + 7) // 8 * 8 * max(span, (width + span - 1) // span * span)
    image = np.zeros((size + 1023) // 1024 * 1024, np.uint8)
    lines = {"none": 0, "32B": 1, "64B": 3, "128B": 7}[swizzle]
    for r in range(outer):
        for byte in range(width):
            if swizzle == "none":
                offset = r // 8 * group + byte // 16 * chunk + r % 8 * 16 + byte % 16
            elif mn_major:
                offset = byte // span * leading + r // 8 * stride + r % 8 * span + byte % span
            else:
                offset = r // 8 * stride + r % 8 * span + byte
            address = at + offset
            image[address ^ ((address >> 7 & lines) << 4)] = rows[r, byte]
    if element not in (1, 2, 4):
        raise ValueError("elements of 1, 2 or 4 bytes")
    word = at >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | CODES[swizzle] << 62
    return Placed(image, word)


def registers_of_d(d: NDArray[Any]) -> NDArray[Any]:
    """(128, n / 2): thread 32 w + 4 g + t holds rows 16 w + g and 8 further, columns 2 t and 2 t + 1 of every 8."""
    n = d.shape[1]
    out = np.zeros((128, n // 2), d.dtype)
    for thread in range(128):
        w, g, t = thread // 32, thread % 32 // 4, thread % 4
        for i in range(n // 2):
            out[thread, i] = d[16 * w + g + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * t + i % 2]
    return out


def registers_of_a(a: NDArray[Any]) -> NDArray[np.uint32]:
    """(128, 4) words of A (64 rows of 4 registers' worth of elements each)."""
    per = 4 // a.dtype.itemsize
    out = np.zeros((128, 4, per), a.dtype)
    for thread in range(128):
        w, g, t = thread // 32, thread % 32 // 4, thread % 4
        for j in range(4):
            for e in range(per):
                out[thread, j, e] = a[16 * w + g + 8 * (j % 2), t * per + e + 4 * per * (j // 2)]
    return out.reshape(128, -1).view(np.uint32)


PROLOGUE = """
.extern .shared .align 1024 .b8 smem[];
.reg .pred %p<8>; .reg .b32 %r<64>; .reg .b64 %rd<32>; .reg .b32 %a<8>; .reg .b32 %d<130>;
mov.u32 %r0, %tid.x; mov.u32 %r1, smem;
ld.param.u64 %rd0, [image]; ld.param.u32 %r2, [bytes];
shl.b32 %r3, %r0, 4;
COPY:
setp.ge.u32 %p0, %r3, %r2;
@%p0 bra COPIED;
cvt.u64.u32 %rd1, %r3; add.u64 %rd1, %rd0, %rd1;
ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd1];
add.u32 %r8, %r1, %r3;
st.shared.v4.u32 [%r8], {%r4, %r5, %r6, %r7};
mov.u32 %r9, %ntid.x; shl.b32 %r9, %r9, 4; add.u32 %r3, %r3, %r9;
bra COPY;
COPIED:
"""


def kernel(instruction: str, registers: int, *, before: str, after: str, loads_a: bool) -> str:
    """A kernel that fills shared memory, loads D (and A), runs `before`, the instruction, `after`, and stores D."""
    lines = [PROLOGUE, before.replace("FILLED", "fence.proxy.async; bar.sync 0;")]
    # Descriptors are relative to the image: add its address, in units of 16 bytes.
    lines.append("shr.u32 %r10, %r1, 4; cvt.u64.u32 %rd2, %r10;")
    lines.append("ld.param.u64 %rd3, [da]; add.u64 %rd3, %rd3, %rd2;")
    lines.append("ld.param.u64 %rd4, [db]; add.u64 %rd4, %rd4, %rd2;")
    lines.append("ld.param.u32 %r11, [scale]; setp.ne.u32 %p1, %r11, 0;")
    lines.append(f"ld.param.u64 %rd5, [d]; mul.wide.u32 %rd6, %r0, {4 * registers}; add.u64 %rd5, %rd5, %rd6;")
    lines += [f"ld.global.u32 %d{k}, [%rd5+{4 * k}];" for k in range(registers)]
    if loads_a:
        lines.append("ld.param.u64 %rd7, [a]; mul.wide.u32 %rd8, %r0, 16; add.u64 %rd7, %rd7, %rd8;")
        lines.append("ld.global.v4.u32 {%a0, %a1, %a2, %a3}, [%rd7];")
        lines.append("ld.param.u64 %rd9, [meta]; mul.wide.u32 %rd10, %r0, 4; add.u64 %rd9, %rd9, %rd10;")
        lines.append("ld.global.u32 %a4, [%rd9];")
    lines.append(instruction)
    lines.append(after)
    lines += [f"st.global.u32 [%rd5+{4 * k}], %d{k};" for k in range(registers)]
    lines.append("ret;")
    parameters = [
        ".param .u64 image", ".param .u32 bytes", ".param .u64 da", ".param .u64 db", ".param .u32 scale",
        ".param .u64 d", ".param .u64 a", ".param .u64 meta",
    ]  # fmt: skip
    return module("\n".join(lines), parameters)


FENCE = "wgmma.fence.sync.aligned;"
FINISH = "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"


def run_wgmma(
    name: str, n: int, d: NDArray[Any], b: Placed, a: Placed | NDArray[np.uint32], flags: Sequence[int] = (), *,
    scale: bool = True, sparse: tuple[NDArray[np.uint32], int] | None = None, before: str = "FILLED",
    fence: str = FENCE, after: str = FINISH, **options: Any,
) -> tuple[NDArray[Any], Report]:  # fmt: skip
    """Run one instruction; returns D's registers (128, ...) of the element type of `d`.

    d      (128, n / 2) accumulators, in thread order
    flags  the immediates behind scale-d
    """
    if isinstance(a, Placed):
        image = np.concatenate([b.image, a.image])
        da = a.descriptor + (b.image.size >> 4)
        held, left = np.zeros((128, 4), np.uint32), "%rd3"
    else:
        image, da, held, left = b.image, 0, a, "{%a0, %a1, %a2, %a3}"
    words = np.ascontiguousarray(d).view(np.uint32).reshape(128, -1).copy()
    count = words.shape[1]
    targets = ", ".join(f"%d{k}" for k in range(count))
    extra = "" if sparse is None else f"%a4, {sparse[1]}, "
    meta = np.zeros(128, np.uint32) if sparse is None else sparse[0]
    tail = "".join(f", {flag}" for flag in flags)
    instruction = f"{fence}\n{name} {{{targets}}}, {left}, %rd4, {extra}%p1{tail};"
    text = kernel(instruction, count, before=before, after=after, loads_a=True)
    report = emulate(
        text, grid=1, block=128, dynamic_smem=image.size,
        args=[
            image, np.uint32(image.size), np.uint64(da), np.uint64(b.descriptor), np.uint32(scale), words, held, meta
        ],
        **options,
    )  # fmt: skip
    return words.view(d.dtype).reshape(128, -1), report
