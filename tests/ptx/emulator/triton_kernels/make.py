"""Makes the PTX fixtures in fixtures/: `python make.py`, or `python make.py PART...` for names that contain a PART.

Needs triton, no GPU. Triton 3.9 makes most; those whose variant is "old" are made by Triton 3.4. Every fixture was
assembled by ptxas, which comes with Triton.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attentions
import elementwise
import matmuls
import rows
import triton
import triton.language as tl
from compile import Case, compiled

FOLDER = Path(__file__).parent / "fixtures"
# Kernels in which the emulator finds something lie apart.
FINDINGS = ("whole_matmul-fp16acc-tt.sm_90", "attention_backward.sm_90", "layer_norm_backward-old.sm_80")
AMPERE, HOPPER, BLACKWELL, RTX = 80, 90, 100, 120
DATACENTER = (AMPERE, HOPPER, BLACKWELL)
Cases = Iterator[Case]


def case(
    kernel: Any, types: str, constants: dict[str, Any], targets: int | tuple[int, ...] = AMPERE, variant: str = "",
    *, divisible: bool = True, **options: Any,
) -> Case:  # fmt: skip
    """A case; types as in "*fp32 *fp16 i32"."""
    targets = (targets,) if isinstance(targets, int) else targets
    return Case(kernel, types.split(), constants, options, targets, variant, divisible)


def elementwise_cases() -> Cases:
    e = elementwise
    for kind in ("fp32", "bf16"):
        yield case(e.fused, f"*{kind} *fp32 *{kind} i32 i32", {"BLOCK": 512}, AMPERE, kind)
    yield case(e.fused, "*fp16 *fp32 *fp16 i32 i32", {"BLOCK": 512}, (HOPPER, BLACKWELL), "fp16")
    yield case(e.fused, "*fp32 *fp32 *fp32 i32 i32", {"BLOCK": 512}, AMPERE, "odd", divisible=False)
    casts = "fp32-fp8e5 fp8e5-bf16 bf16-fp16 fp16-i8 i64-bf16 u8-fp16 fp64-fp16 fp32-i64 i8-fp64 i1-fp32 fp32-i1"
    for pair in casts.split():
        yield case(e.cast, f"*{pair.split('-')[0]} *{pair.split('-')[1]} i32", {"BLOCK": 256}, AMPERE, pair)
    for pair in ("fp32-fp8e4nv", "fp8e4nv-bf16", "bf16-fp8e5", "fp8e5-fp32"):
        yield case(e.cast, f"*{pair.split('-')[0]} *{pair.split('-')[1]} i32", {"BLOCK": 256}, HOPPER, pair)
    yield case(e.functions, "*fp32 *fp32 i32", {"BLOCK": 256}, (AMPERE, BLACKWELL))
    yield case(e.library, "*fp32 *fp32 i32", {"BLOCK": 256}, AMPERE)
    for kind in ("i8", "i16", "i32", "i64"):
        yield case(e.integers, f"*{kind} *{kind} *{kind} i32", {"BLOCK": 256}, AMPERE, kind)
    for kind in ("u32", "u64"):
        yield case(e.wide_product, f"*{kind} *{kind} *{kind} i32", {"BLOCK": 256}, AMPERE, kind)
    yield case(e.booleans, "*i1 *i1 *i1 i32", {"BLOCK": 256})
    for kind in ("fp32", "i8"):
        sizes = {"BR": 16, "BC": 64}
        yield case(e.strided, f"*{kind} *{kind} i32 i32 i32 i32", sizes, AMPERE, kind, divisible=kind == "i8")
    yield case(e.dropout, "*fp32 *fp32 i32 fp32 i32", {"BLOCK": 512}, (AMPERE, BLACKWELL))
    yield case(e.random_bits, "*i32 i32", {"BLOCK": 256})
    yield case(e.embedding, "*fp16 *i64 *fp16 i32", {"BLOCK": 128}, (AMPERE, HOPPER))
    for kind, targets in (("fp32", HOPPER), ("fp16", DATACENTER), ("bf16", (AMPERE, HOPPER)), ("i32", BLACKWELL)):
        sizes = {"BLOCK": 32, "W": 64}
        yield case(e.scatter_add, f"*{kind} *i32 *{kind} i32 i32", sizes, targets, kind)
    yield case(e.scatter_add, "*bf16 *i32 *bf16 i32 i32", {"BLOCK": 32, "W": 64}, AMPERE, "old")
    yield case(e.atomics, "*i32 *i32 *i32 *i32 *i32 *i32 i32", {"BLOCK": 128}, DATACENTER)
    yield case(e.packed_by_assembly, "*i8 *i8 *i8 i32", {"BLOCK": 1024})
    yield case(e.device_function, "*i32 *i32 i32", {})
    yield case(e.waiting_lanes, "*i32 *i32 i32", {"BLOCK": 128}, (AMPERE, HOPPER))
    yield case(e.asserted, "*i32 *i32 i32", {"BLOCK": 128}, AMPERE, debug=True)
    yield case(e.printed, "*i32 *i32", {"BLOCK": 128})
    for kind, warps in (("fp32", 4), ("i8", 2), ("fp16", 1)):
        yield case(e.swapped, f"*{kind} *{kind} *{kind}", {"BLOCK": 256}, AMPERE, kind, num_warps=warps)


def row_cases() -> Cases:
    r = rows
    for block, warps in ((64, 1), (4096, 8)):
        yield case(r.softmax, "*fp32 *fp32 i32", {"BLOCK": block}, DATACENTER, f"{block}", num_warps=warps)
    yield case(r.softmax, "*fp16 *bf16 i32", {"BLOCK": 512}, AMPERE, "fp16")
    yield case(r.softmax, "*fp32 *fp32 i32", {"BLOCK": 1024}, AMPERE, "old")
    yield case(r.wide_softmax, "*fp32 *fp32 i32", {"BLOCK": 256}, (AMPERE, HOPPER), num_stages=3)
    for kind, r_size, c_size, warps, target in (
        ("fp32", 16, 64, 4, AMPERE), ("i64", 8, 64, 8, AMPERE), ("fp16", 16, 16, 1, AMPERE),
        ("fp16", 32, 16, 4, HOPPER), ("i32", 64, 8, 2, BLACKWELL),
    ):  # fmt: skip
        types = f"*{kind} *{kind} *{kind} *i32 *{kind} i32 i32"
        sizes = {"R": r_size, "C": c_size}
        variant = f"{kind}x{warps}"
        yield case(r.tile_reductions, types, sizes, target, variant, divisible=False, num_warps=warps)
    yield case(r.variances, "*fp32 *fp32 *fp32 i32", {"BLOCK": 1024}, (AMPERE, HOPPER))
    types = "*fp32 *fp32 *fp32 *fp16 *fp32 *fp32 i32 fp32"
    yield case(r.layer_norm, types, {"BLOCK": 1024}, (AMPERE, BLACKWELL), divisible=False)
    types = "*fp32 *fp32 *fp32 *fp32 *fp32 *fp32 *fp32 *fp32 *i32 i32"
    yield case(r.layer_norm_backward, types, {"BLOCK": 512, "GROUPS": 2}, DATACENTER)
    yield case(r.layer_norm_backward, types, {"BLOCK": 512, "GROUPS": 2}, AMPERE, "old")
    yield case(r.rms_norm, "*bf16 *bf16 *bf16 i32 fp32", {"BLOCK": 256}, (AMPERE, HOPPER), num_warps=2)
    yield case(r.cross_entropy, "*fp32 *i64 *fp32 *fp32 i32", {"BLOCK": 1024}, (AMPERE, BLACKWELL))
    for kind, block, warps, targets in (
        ("fp32", 64, 4, AMPERE), ("fp16", 64, 8, (HOPPER, BLACKWELL)), ("i8", 64, 4, AMPERE),
        ("i64", 32, 1, AMPERE),
    ):  # fmt: skip
        yield case(r.transpose, f"*{kind} *{kind} i32 i32", {"BLOCK": block}, targets, kind, num_warps=warps)
    for kind, axis, reverse, r_size, c_size, warps in (
        ("i32", 1, False, 1, 512, 4), ("fp32", 0, False, 64, 16, 4), ("fp32", 1, True, 8, 64, 2),
        ("i64", 0, True, 128, 4, 8),
    ):  # fmt: skip
        sizes = {"R": r_size, "C": c_size, "AXIS": axis, "REVERSE": reverse}
        yield case(r.scan, f"*{kind} *{kind}", sizes, AMPERE, f"{kind}-{axis}", num_warps=warps)
    yield case(r.recurrence, "*fp32 *fp32 *fp32", {"BLOCK": 512}, (AMPERE, HOPPER))
    for kind, block, descending in (("i32", 256, False), ("fp32", 128, True), ("i8", 128, False)):
        sizes = {"BLOCK": block, "DESCENDING": descending}
        yield case(r.sort, f"*{kind} *{kind}", sizes, AMPERE, kind)
    yield case(r.sort, "*fp16 *fp16", {"BLOCK": 64, "DESCENDING": True}, HOPPER, "old")
    yield case(r.top, "*fp32 *fp32", {"BLOCK": 512, "K": 8})
    yield case(r.gather_rows, "*fp32 *i32 *fp32", {"R": 32, "C": 16, "AXIS": 0}, AMPERE, "0")
    yield case(r.gather_rows, "*fp16 *i32 *fp16", {"R": 8, "C": 64, "AXIS": 1}, HOPPER, "1")
    for block, bins, warps in ((512, 64, 4), (256, 8, 1)):
        sizes = {"BLOCK": block, "BINS": bins}
        yield case(r.histogram, "*i32 *i32 i32", sizes, (AMPERE, BLACKWELL), f"{bins}", num_warps=warps)
    yield case(r.bins, "*i32 *i32 i32", {"BLOCK": 256}, (AMPERE, HOPPER))
    yield case(r.lock, "*fp32 *fp32 *i32", {"BLOCK": 128}, DATACENTER)
    yield case(r.last_adds, "*fp32 *fp32 *fp32 *i32 i32", {"BLOCK": 256, "PARTS": 16}, DATACENTER)


def tile(bm: int, bn: int, bk: int, **more: Any) -> dict[str, Any]:
    return {"BM": bm, "BN": bn, "BK": bk, **more}


def matmul_cases() -> Cases:
    m = matmuls
    for bm, bn, bk, warps, stages, targets in (
        (64, 64, 32, 4, 3, DATACENTER), (128, 128, 32, 8, 4, HOPPER), (32, 64, 64, 2, 2, AMPERE),
        (16, 32, 16, 1, 1, AMPERE), (128, 64, 64, 4, 5, HOPPER), (16, 16, 64, 1, 3, AMPERE),
        (64, 128, 32, 4, 1, HOPPER), (256, 64, 32, 8, 3, BLACKWELL),
    ):  # fmt: skip
        variant = f"{bm}x{bn}x{bk}w{warps}s{stages}"
        options = {"num_warps": warps, "num_stages": stages}
        yield case(m.matmul, "*fp16 *fp16 *fp16 i32 i32 i32", tile(bm, bn, bk), targets, variant, **options)
    yield case(m.matmul, "*fp32 *fp32 *fp32 i32 i32 i32", tile(64, 64, 32), DATACENTER, "tf32")
    targets = (AMPERE, HOPPER)
    yield case(m.matmul, "*bf16 *bf16 *bf16 i32 i32 i32", tile(64, 64, 32), targets, "odd", divisible=False)
    yield case(m.matmul, "*fp16 *fp16 *fp16 i32 i32 i32", tile(64, 64, 32), DATACENTER, "old", num_stages=3)
    for ctas in (2, 4):
        options = {"num_ctas": ctas}
        targets = (HOPPER, BLACKWELL)
        yield case(m.matmul, "*fp16 *fp16 *fp16 i32 i32 i32", tile(128, 128, 32), targets, f"ctas{ctas}", **options)
    for name, types, kind, size, warps, by, targets in (
        ("i8", "*i8 *i8 *i32", tl.int32, (64, 64, 64), 4, "nt", DATACENTER),
        ("i8", "*i8 *i8 *i32", tl.int32, (32, 32, 32), 1, "nn", HOPPER),
        ("tf32", "*fp32 *fp32 *fp32", tl.float32, (64, 64, 32), 4, "tn", (AMPERE, HOPPER)),
        ("fp16acc", "*fp16 *fp16 *fp16", tl.float16, (64, 64, 64), 4, "tt", DATACENTER),
        ("fp16", "*fp16 *fp16 *fp32", tl.float32, (128, 64, 32), 8, "tn", DATACENTER),
        ("fp8e5", "*fp8e5 *fp8e5 *fp32", tl.float32, (64, 64, 64), 4, "nt", (HOPPER, BLACKWELL)),
        ("fp8e4", "*fp8e4nv *fp8e4nv *fp16", tl.float32, (64, 64, 64), 4, "nt", (HOPPER, BLACKWELL, RTX)),
        ("fp8e4", "*fp8e4nv *fp8e4nv *fp16", tl.float32, (64, 64, 32), 4, "nn", (HOPPER, BLACKWELL)),
    ):  # fmt: skip
        constants = tile(*size, ROWS=by, KIND=kind, PRECISION="tf32")
        yield case(m.whole_matmul, f"{types} i32 i32 i32", constants, targets, f"{name}-{by}", num_warps=warps)
    for precision, size, targets in (
        ("ieee", (32, 32, 16), AMPERE), ("tf32x3", (64, 64, 32), HOPPER), ("bf16x3", (64, 64, 32), BLACKWELL)
    ):  # fmt: skip
        constants = tile(*size, ROWS="nn", KIND=tl.float32, PRECISION=precision)
        yield case(m.whole_matmul, "*fp32 *fp32 *fp32 i32 i32 i32", constants, targets, precision, num_stages=2)
    constants = tile(32, 32, 16, ROWS="nn", KIND=tl.float64, PRECISION="ieee")
    yield case(m.whole_matmul, "*fp64 *fp64 *fp64 i32 i32 i32", constants, (AMPERE, HOPPER), "fp64", num_stages=2)
    for a, b, targets in (
        ("fp16", "i8", (HOPPER, BLACKWELL)),
        ("bf16", "i8", AMPERE),
        ("fp16", "fp8e5", (HOPPER, BLACKWELL)),
    ):
        yield case(m.mixed_matmul, f"*{a} *{b} *fp32 i32 i32", tile(64, 64, 64), targets, f"{a}-{b}")
    for kind, targets in (("fp32", DATACENTER), ("fp16", (AMPERE, HOPPER))):
        yield case(m.split_k, f"*fp16 *fp16 *{kind} i32 i32", tile(64, 64, 32, SPLIT=3), targets, kind)
    for flat in (False, True):
        types = "*fp16 *fp16 *fp16 i32 i32 i32 i32"
        yield case(m.persistent, types, tile(64, 64, 32, FLATTEN=flat), DATACENTER, "flat" if flat else "")
    yield case(m.stream_k, "*fp16 *fp16 *fp32 *fp32 *i32 i32 i32 i32", tile(64, 64, 32), DATACENTER)
    yield case(m.grouped, "*i64 *i64 *i64 *i32 i32", tile(64, 64, 32, CTAS=3), HOPPER)
    yield case(m.batched, "*fp16 *fp16 *fp32 i32 i32 i32", tile(16, 32, 32, BB=4))
    yield case(m.convolution, "*fp16 *fp16 *fp16 i32 i32", {"CI": 32, "CO": 64, "R": 3, "S": 3, "BM": 64}, DATACENTER)
    packed = {"e4m3": ("fp8e4nv", 1), "e5m2": ("fp8e5", 1), "e2m1": ("u8", 2)}
    for a, b, targets in (
        ("e4m3", "e4m3", (BLACKWELL, RTX)), ("e5m2", "e4m3", BLACKWELL), ("e2m1", "e2m1", (BLACKWELL, RTX)),
        ("e4m3", "e2m1", BLACKWELL),
    ):  # fmt: skip
        constants = tile(128, 64, 128, A=a, B=b, PA=packed[a][1], PB=packed[b][1])
        types = f"*{packed[a][0]} *u8 *{packed[b][0]} *u8 *fp32 i32 i32 i32"
        yield case(m.scaled_matmul, types, constants, targets, f"{a}-{b}", num_stages=2)


def descriptor_cases() -> Cases:
    m = matmuls
    types = "*fp16 *fp16 *fp16 i32 i32 i32 i32"
    both = (HOPPER, BLACKWELL)
    for bm, bn, bk, warps, stages, flat, special, targets in (
        (64, 64, 64, 4, 3, False, False, both), (128, 128, 64, 4, 3, False, False, HOPPER),
        (128, 64, 32, 8, 2, True, False, both), (128, 256, 64, 8, 3, False, False, HOPPER),
        (128, 128, 64, 4, 3, False, True, both), (128, 64, 64, 4, 2, True, True, BLACKWELL),
        (64, 64, 64, 4, 3, False, True, both), (128, 256, 64, 4, 3, False, True, BLACKWELL),
    ):  # fmt: skip
        constants = tile(bm, bn, bk, FLATTEN=flat, SPECIALIZE=special, PIECES=1)
        variant = f"{'special' if special else ''}{bm}x{bn}x{bk}w{warps}{'flat' if flat else ''}"
        options = {"num_warps": warps, "num_stages": stages}
        yield case(m.descriptor_matmul, types, constants, targets, variant, **options)
    plain = {"FLATTEN": False, "SPECIALIZE": False}
    kinds = types.replace("fp16", "bf16")
    yield case(m.descriptor_matmul, kinds, tile(64, 64, 64, PIECES=2, **plain), (*both, RTX), "pieces")
    kinds = types.replace("fp16", "fp8e5", 2)
    yield case(m.descriptor_matmul, kinds, tile(128, 128, 128, PIECES=1, **plain), both, "fp8e5")
    kinds = types.replace("fp16", "fp8e5", 2)
    constants = tile(128, 256, 128, FLATTEN=False, SPECIALIZE=True, PIECES=1)
    yield case(m.descriptor_matmul, kinds, constants, BLACKWELL, "fp8e5special128x256x128w4", num_stages=3)
    kinds = types.replace("fp16", "fp32")
    yield case(m.descriptor_matmul, kinds, tile(64, 64, 32, PIECES=1, **plain), both, "tf32")
    constants = tile(128, 128, 64, PIECES=1, **plain)
    yield case(m.descriptor_matmul, types, constants, both, "ctas2", num_ctas=2)
    yield case(m.descriptor_matmul, types, tile(64, 64, 64, PIECES=1, **plain), HOPPER, "old")
    descriptors = " ".join(["tensordesc<fp16[64,64]>"] * 3)
    yield case(m.host_descriptor_matmul, f"{descriptors} i32", tile(64, 64, 64), (*both, RTX))


def attention_cases() -> Cases:
    a = attentions
    for h, bm, bn, causal, warps, stages, targets in (
        (64, 64, 32, True, 4, 2, DATACENTER), (64, 64, 64, False, 4, 3, BLACKWELL),
        (32, 16, 16, True, 1, 2, AMPERE),
    ):  # fmt: skip
        sizes = {"H": h, "BM": bm, "BN": bn, "CAUSAL": causal}
        variant = f"{h}{'causal' if causal else ''}w{warps}"
        options = {"num_warps": warps, "num_stages": stages}
        yield case(a.attention, "*fp16 *fp16 *fp16 *fp16 *fp32 i32 fp32", sizes, targets, variant, **options)
    sizes = {"H": 64, "BM": 64, "BN": 64, "CAUSAL": True}
    yield case(a.attention, "*bf16 *bf16 *bf16 *bf16 *fp32 i32 fp32", sizes, HOPPER, "bf16")
    types = "*fp16 *fp16 *fp16 *fp16 *fp32 *fp32 *fp32 *fp32 *fp32 i32 fp32"
    yield case(a.attention_backward, types, {"H": 64, "BM": 32, "BN": 64}, DATACENTER, num_stages=2)
    sizes = {"H": 64, "BM": 128, "BN": 64, "SPECIALIZE": True}
    types = "*fp16 *fp16 *fp16 *fp16 i32 fp32"
    yield case(a.descriptor_attention, types, sizes, (HOPPER, BLACKWELL), "specialw4", num_warps=4)


def gluon_cases() -> Cases:
    # Triton 3.4 does not have all that these import.
    import gluon_blackwell
    import gluon_hopper

    h, b = gluon_hopper, gluon_blackwell
    yield case(h.tile_sum, "*fp32 *fp32 i32 i32", {"BM": 32, "BN": 32}, (HOPPER, BLACKWELL, RTX))
    sizes = tile(64, 64, 64, STAGES=3)
    yield case(h.roles, "*fp16 *fp16 *fp16 i32 i32 i32", sizes, HOPPER)
    sizes = tile(64, 128, 64, STAGES=2)
    yield case(h.multicast, "*fp16 *fp16 *fp16 i32 i32 i32", sizes, HOPPER, num_ctas=2)
    yield case(h.exchange, "*fp32 *fp32", {"N": 512}, (HOPPER, BLACKWELL), num_warps=2, num_ctas=2)
    yield case(h.ring_of_copies, "*fp16 *fp32 i32", {"BM": 32, "BK": 32, "STAGES": 3}, (HOPPER, BLACKWELL))
    layout = "NVMMASharedLayout(swizzle_byte_width={},element_bitwidth=16,rank=2)"
    image = f"tensordesc_im2col<fp16[64,32],input_rank=4,{layout.format(64)}>"
    types = f"{image} tensordesc<fp16[32,64],{layout.format(128)}> *fp32 i32 i32"
    yield case(h.tensor_map_convolution, types, {"BM": 64, "C": 32, "CO": 64, "R": 3, "S": 3}, HOPPER)
    for bm, bn, bk in ((128, 64, 64), (64, 128, 32)):
        sizes = tile(bm, bn, bk, STAGES=3)
        yield case(b.tensor_memory_roles, "*bf16 *bf16 *fp32 i32 i32 i32", sizes, BLACKWELL, f"{bm}")
    for m in (128, 64):
        yield case(b.left_in_tensor_memory, "*fp16 *fp16 *fp32", {"M": m, "N": 64, "K": 64}, BLACKWELL, f"{m}")
    for bm, bn, bk in ((256, 128, 64), (128, 64, 32)):
        types = "*fp16 *fp16 *fp32 i32 i32 i32"
        yield case(b.pair, types, tile(bm, bn, bk), BLACKWELL, f"{bm}", num_ctas=2)
    yield case(b.stolen_tiles, "*fp32 *fp32 i32", {"BLOCK": 256}, BLACKWELL)
    yield case(b.gathered, "*fp16 *i32 *fp16 i32 i32", {"R": 32, "C": 64}, BLACKWELL)
    yield case(b.block_scaled, "*fp8e4nv *fp8e4nv *u8 *u8 *fp32", {"M": 128, "N": 64, "K": 128}, BLACKWELL)
    yield case(b.copied_tile, "*fp32 *fp32", {"M": 128, "N": 32}, BLACKWELL)


def cases(old: bool) -> Cases:
    yield from elementwise_cases()
    yield from row_cases()
    yield from matmul_cases()
    yield from descriptor_cases()
    yield from attention_cases()
    if not old:
        yield from gluon_cases()


def main(parts: list[str]) -> None:
    old = triton.__version__ < "3.9"
    for item in cases(old):
        for target in item.targets:
            name = item.name(target)
            if ("old" in item.variant) == old and (not parts or any(part in name for part in parts)):
                folder = FOLDER.parent / "findings" if name in FINDINGS else FOLDER
                folder.mkdir(exist_ok=True)
                (folder / f"{name}.ptx").write_text(compiled(item, target))


if __name__ == "__main__":
    main(sys.argv[1:])
