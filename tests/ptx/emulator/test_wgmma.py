"""wgmma.mma_async: every N, type, major and swizzle against NumPy; the three orders; several warpgroups at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from instruction_bench import module
from numpy.typing import NDArray
from wgmma_bench import DTYPES, SPANS, place, registers_of_a, registers_of_d, run_wgmma

from tinygpu.ptx.emulator import PtxSyntaxError, UnsupportedInstruction, emulate

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}
ACCUMULATORS: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "s32": np.int32}


def draw(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Values whose products and sums are exact in every accumulator."""
    if kind in ("s8", "u8"):
        return rng.integers(-128 if kind == "s8" else 0, 128 if kind == "s8" else 256, shape).astype(DTYPES[kind])
    return (rng.integers(-4, 5, shape)).astype(DTYPES[kind])


def name_of(n: int, d_type: str, a: str, b: str, sparse: bool = False) -> str:
    k = 256 // BITS[a] * (1 + sparse)
    return f"wgmma.mma_async{'.sp' if sparse else ''}.sync.aligned.m64n{n}k{k}.{d_type}.{a}.{b}"


def flags_of(kind: str, a_mn: bool | None, b_mn: bool, signs: tuple[int, int] = (1, 1)) -> tuple[int, ...]:
    """The immediates behind scale-d; a_mn None: A in registers."""
    if kind in ("s8", "u8"):
        return ()
    majors = () if BITS[kind] != 16 else (int(b_mn),) if a_mn is None else (int(a_mn), int(b_mn))
    return (*signs, *majors)


def exact(a: NDArray[Any], b: NDArray[Any], d: NDArray[Any], scale: bool = True, sign: int = 1) -> NDArray[Any]:
    product = sign * (a.astype(np.float64) @ b.astype(np.float64).T)
    total: NDArray[Any] = (product + d.astype(np.float64) * scale).astype(d.dtype)
    return total


@pytest.mark.sampled(6)
@pytest.mark.parametrize("n", range(8, 257, 8))
def test_every_n_multiplies(n: int) -> None:
    rng = np.random.default_rng(n)
    a, b = draw(rng, "f16", (64, 16)), draw(rng, "f16", (n, 16))
    d = rng.integers(-9, 10, (64, n)).astype(np.float32)
    got, report = run_wgmma(
        name_of(n, "f32", "f16", "f16"), n, registers_of_d(d), place(b, "128B", False), place(a, "128B", False),
        flags_of("f16", False, False),
    )  # fmt: skip
    np.testing.assert_array_equal(got, registers_of_d(exact(a, b, d)))
    assert report.faults == ()
    assert report.counters.wgmma == {f"m64n{n}k16.f32.f16.f16": 1}
    assert report.counters.wgmma_operations == 2 * 64 * n * 16


TYPES = [
    ("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "bf16", "bf16"), ("f32", "tf32", "tf32"),
    ("f32", "e4m3", "e4m3"), ("f32", "e4m3", "e5m2"), ("f16", "e5m2", "e4m3"), ("s32", "s8", "s8"), ("s32", "u8", "s8"),
    ("s32", "u8", "u8"),
]  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("d_type", "a_type", "b_type"), TYPES)
@pytest.mark.parametrize("swizzle", SPANS)
@pytest.mark.parametrize("in_registers", [False, True])
def test_every_type_and_swizzle_multiplies(
    d_type: str, a_type: str, b_type: str, swizzle: str, in_registers: bool
) -> None:
    rng = np.random.default_rng(3)
    n, k = 48, 256 // BITS[a_type]
    a, b = draw(rng, a_type, (64, k)), draw(rng, b_type, (n, k))
    d = rng.integers(-9, 10, (64, n)).astype(ACCUMULATORS[d_type])
    left = registers_of_a(a) if in_registers else place(a, swizzle, False)
    got, report = run_wgmma(
        name_of(n, d_type, a_type, b_type), n, registers_of_d(d), place(b, swizzle, False), left,
        flags_of(a_type, None if in_registers else False, False),
    )  # fmt: skip
    np.testing.assert_array_equal(got, registers_of_d(exact(a, b, d)))
    assert report.faults == ()
    assert report.advisories == ()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("swizzle", SPANS)
@pytest.mark.parametrize(("a_mn", "b_mn"), [(True, False), (False, True), (True, True), (None, True)])
def test_m_and_n_major_operands_multiply(kind: str, swizzle: str, a_mn: bool | None, b_mn: bool) -> None:
    """Extents that fill several blocks of the swizzle, or less than one."""
    rng = np.random.default_rng(4)
    for n in (8, 24, 136):
        a, b = draw(rng, kind, (64, 16)), draw(rng, kind, (n, 16))
        d = rng.integers(-9, 10, (64, n)).astype(np.float32)
        left = registers_of_a(a) if a_mn is None else place(a, swizzle, a_mn)
        got, report = run_wgmma(
            name_of(n, "f32", kind, kind), n, registers_of_d(d), place(b, swizzle, b_mn), left,
            flags_of(kind, a_mn, b_mn),
        )  # fmt: skip
        np.testing.assert_array_equal(got, registers_of_d(exact(a, b, d)))
        assert report.faults == ()


@pytest.mark.parametrize(("swizzle", "step"), [(s, k) for s in ("32B", "64B", "128B") for k in range(SPANS[s] // 32)])
def test_stepping_along_k_within_a_swizzled_row(swizzle: str, step: int) -> None:
    """The start address moves by 32 bytes; the pattern stays that of the addresses."""
    span = SPANS[swizzle]
    rng = np.random.default_rng(5)
    a, b = draw(rng, "f16", (64, span // 2)), draw(rng, "f16", (32, span // 2))
    d = np.zeros((64, 32), np.float32)
    left, right = place(a, swizzle, False), place(b, swizzle, False)
    left = type(left)(left.image, left.descriptor + 2 * step)
    right = type(right)(right.image, right.descriptor + 2 * step)
    got, _ = run_wgmma(name_of(32, "f32", "f16", "f16"), 32, registers_of_d(d), right, left, (1, 1, 0, 0))
    part = slice(16 * step, 16 * step + 16)
    np.testing.assert_array_equal(got, registers_of_d(exact(a[:, part], b[:, part], d)))


@pytest.mark.parametrize("swizzle", ["32B", "64B", "128B"])
def test_a_base_offset_moves_the_pattern(swizzle: str) -> None:
    """A tile that starts 128 bytes into the pattern's period, laid out as if the pattern started there."""
    rng = np.random.default_rng(6)
    a, b = draw(rng, "f16", (64, 16)), draw(rng, "f16", (16, 16))
    d = np.zeros((64, 16), np.float32)
    right = place(b, swizzle, False)
    shifted = np.zeros(right.image.size + 1024, np.uint8)
    shifted[128 : 128 + right.image.size] = right.image
    moved = type(right)(shifted, right.descriptor + (128 >> 4) | 1 << 49)
    got, _ = run_wgmma(
        name_of(16, "f32", "f16", "f16"), 16, registers_of_d(d), moved, registers_of_a(a), (1, 1, 0)
    )  # fmt: skip
    np.testing.assert_array_equal(got, registers_of_d(exact(a, b, d)))


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("signs", [(1, 1), (-1, 1), (1, -1), (-1, -1)])
def test_scale_d_and_negation(scale: bool, signs: tuple[int, int]) -> None:
    rng = np.random.default_rng(7)
    a, b = draw(rng, "bf16", (64, 16)), draw(rng, "bf16", (40, 16))
    d = rng.integers(-9, 10, (64, 40)).astype(np.float32)
    got, _ = run_wgmma(
        name_of(40, "f32", "bf16", "bf16"), 40, registers_of_d(d), place(b, "64B", False), place(a, "128B", False),
        flags_of("bf16", False, False, signs), scale=scale,
    )  # fmt: skip
    np.testing.assert_array_equal(got, registers_of_d(exact(a, b, d, scale, signs[0] * signs[1])))


def test_tf32_operands_are_truncated_and_f32_sums_keep_what_they_need() -> None:
    a = np.full((64, 8), 1 + 2.0**-11, np.float32)
    b = np.full((8, 8), 1.0, np.float32)
    b[:, 0] = 2.0**-20
    d = np.zeros((64, 8), np.float32)
    got, _ = run_wgmma(
        name_of(8, "f32", "tf32", "tf32"), 8, registers_of_d(d), place(b, "32B", False), place(a, "32B", False), (1, 1)
    )
    assert set(got.reshape(-1).tolist()) == {7 + 2.0**-20}


@pytest.mark.parametrize(("suffix", "want"), [("", 2**31 - 1 + 32 - 2**32), (".satfinite", 2**31 - 1)])
def test_integers_wrap_unless_satfinite(suffix: str, want: int) -> None:
    one = np.ones((64, 32), np.int8)
    d = np.full((64, 8), 2**31 - 1, np.int32)
    got, _ = run_wgmma(
        name_of(8, "s32", "s8", "s8") + suffix, 8, registers_of_d(d), place(one[:8], "32B", False),
        place(one, "128B", False),
    )  # fmt: skip
    assert set(got.reshape(-1).tolist()) == {want}


@pytest.mark.parametrize("in_registers", [False, True])
def test_single_bits_are_anded_and_counted(in_registers: bool) -> None:
    rng = np.random.default_rng(8)
    a, b = rng.integers(0, 2, (64, 256)), rng.integers(0, 2, (24, 256))
    d = rng.integers(-9, 10, (64, 24)).astype(np.int32)
    bytes_a, bytes_b = (np.packbits(x.astype(np.uint8), axis=1, bitorder="little") for x in (a, b))
    left = registers_of_a(bytes_a.view(np.uint32)) if in_registers else place(bytes_a, "32B", False)
    name = "wgmma.mma_async.sync.aligned.m64n24k256.s32.b1.b1.and.popc"
    got, _ = run_wgmma(name, 24, registers_of_d(d), place(bytes_b, "none", False), left)
    np.testing.assert_array_equal(got, registers_of_d(exact(a, b, d)))


# ---- sparse A -----------------------------------------------------------------------------------------------------


SPARSE = [("f16", 0), ("f16", 1), ("tf32", 0), ("tf32", 1), ("e4m3", 0), ("s8", 0)]


@pytest.mark.parametrize(("kind", "selector"), SPARSE)
@pytest.mark.parametrize("in_registers", [False, True])
def test_sparse_a_is_expanded_by_each_warps_metadata(kind: str, selector: int, in_registers: bool) -> None:
    """Figures "metadata layout" of mma.sp, for the 16 rows of each warp."""
    rng = np.random.default_rng(9)
    n, bits = 32, BITS[kind]
    k = 512 // bits
    a, b = draw(rng, kind, (64, k // 2)), draw(rng, kind, (n, k))
    whole = np.zeros((64, k), a.dtype)
    words = rng.integers(0, 2**32, 128).astype(np.int64)
    chunk = 2 if bits == 32 else 4
    legal = [0b0100, 0b1110] if bits == 32 else [0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110]
    for row in range(64):
        for c in range(k // chunk):
            value = int(rng.choice(legal))
            inner = row % 16
            if bits >= 16:
                lane, shift = c // 4 + 2 * selector, 4 * (c % 4) + 16 * (inner // 8)
            else:
                lane, shift = 2 * (c // 8) + inner // 8, 4 * (c % 8)
            thread = 32 * (row // 16) + 4 * (inner % 8) + lane
            words[thread] = words[thread] & ~(15 << shift) | value << shift
            if bits == 32:
                whole[row, 2 * c + (value == 0b1110)] = a[row, c]
            else:
                whole[row, 4 * c + (value & 3)], whole[row, 4 * c + (value >> 2)] = a[row, 2 * c], a[row, 2 * c + 1]
    d_type = "s32" if kind == "s8" else "f32"
    d = rng.integers(-9, 10, (64, n)).astype(ACCUMULATORS[d_type])
    left = registers_of_a(a) if in_registers else place(a, "64B", False)
    got, report = run_wgmma(
        name_of(n, d_type, kind, kind, True), n, registers_of_d(d), place(b, "128B", False), left,
        flags_of(kind, None if in_registers else False, False), sparse=(words.astype(np.uint32), selector),
    )  # fmt: skip
    np.testing.assert_array_equal(got, registers_of_d(exact(whole, b, d)))
    assert report.faults == ()


# ---- orders, groups and several warpgroups ------------------------------------------------------------------------

LOOP = """
.extern .shared .align 1024 .b8 smem[];
.reg .pred %p<8>; .reg .b32 %r<64>; .reg .b64 %rd<32>; .reg .f32 %d<16>;
mov.u32 %r0, %tid.x; mov.u32 %r1, smem; mov.u32 %r20, %ctaid.x;
ld.param.u64 %rd0, [image]; mul.wide.u32 %rd10, %r20, 32768; add.u64 %rd0, %rd0, %rd10;
shl.b32 %r3, %r0, 4;
COPY:
cvt.u64.u32 %rd1, %r3; add.u64 %rd1, %rd0, %rd1;
ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd1];
add.u32 %r8, %r1, %r3; st.shared.v4.u32 [%r8], {%r4, %r5, %r6, %r7};
mov.u32 %r9, %ntid.x; shl.b32 %r9, %r9, 4; add.u32 %r3, %r3, %r9;
setp.lt.u32 %p0, %r3, 32768;
@%p0 bra COPY;
fence.proxy.async.shared::cta; bar.sync 0;
shr.u32 %r10, %r0, 7;
shl.b32 %r11, %r10, 13; add.u32 %r11, %r11, %r1; shr.u32 %r11, %r11, 4; cvt.u64.u32 %rd2, %r11;
add.u32 %r12, %r1, 16384; shr.u32 %r12, %r12, 4; cvt.u64.u32 %rd3, %r12;
or.b64 %rd2, %rd2, 0x4000004000010000; or.b64 %rd3, %rd3, 0x4000004000010000;
mov.u32 %r13, 0;
setp.ne.u32 %p1, %r13, 0;
wgmma.fence.sync.aligned;
STEP:
wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16
    {%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7, %d8, %d9, %d10, %d11, %d12, %d13, %d14, %d15}, %rd2, %rd3, %p1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned WAIT;
add.u64 %rd2, %rd2, 2; add.u64 %rd3, %rd3, 2;
add.u32 %r13, %r13, 1;
setp.ne.u32 %p1, %r13, 0;
setp.lt.u32 %p2, %r13, 4;
@%p2 bra STEP;
wgmma.wait_group.sync.aligned 0;
ld.param.u64 %rd5, [out]; mov.u32 %r14, %ntid.x; mad.lo.u32 %r15, %r20, %r14, %r0;
mul.wide.u32 %rd6, %r15, 64; add.u64 %rd5, %rd5, %rd6;
st.global.v4.f32 [%rd5], {%d0, %d1, %d2, %d3}; st.global.v4.f32 [%rd5+16], {%d4, %d5, %d6, %d7};
st.global.v4.f32 [%rd5+32], {%d8, %d9, %d10, %d11}; st.global.v4.f32 [%rd5+48], {%d12, %d13, %d14, %d15};
ret;
"""


@pytest.mark.parametrize("order", ["late", "early", "random"])
@pytest.mark.parametrize("wait", [0, 1])
def test_two_warpgroups_of_three_ctas_step_along_k(order: Any, wait: int) -> None:
    """A 128 x 64 tile (two warpgroups) times 64 x 32, four steps of K, one or two groups in flight."""
    rng = np.random.default_rng(10)
    a, b = draw(rng, "f16", (3, 128, 64)), draw(rng, "f16", (3, 32, 64))
    image = np.zeros((3, 32768), np.uint8)
    for cta in range(3):
        left, right = place(a[cta], "128B", False).image, place(b[cta], "128B", False).image
        image[cta, : left.size] = left
        image[cta, 16384 : 16384 + right.size] = right
    out = np.zeros((3, 256, 16), np.float32)
    text = module(LOOP.replace("WAIT", str(wait)), [".param .u64 image", ".param .u64 out"])
    report = emulate(text, grid=3, block=256, dynamic_smem=32768, args=[image, out], order=order, seed=4)
    for cta in range(3):
        want = a[cta].astype(np.float64) @ b[cta].astype(np.float64).T
        for group in range(2):
            half = want[64 * group : 64 * group + 64].astype(np.float32)
            np.testing.assert_array_equal(out[cta, 128 * group : 128 * group + 128], registers_of_d(half))
    assert report.faults == ()
    assert report.counters.wgmma == {"m64n32k16.f32.f16.f16": 24}


@pytest.mark.parametrize("order", ["late", "early", "random"])
def test_ctas_that_step_a_different_number_of_times_go_their_own_ways(order: Any) -> None:
    """CTA c takes c % 4 + 1 steps: the warps that go on are no regular set, and D changes in the block of its wait."""
    rng = np.random.default_rng(12)
    ctas = 7
    a, b = draw(rng, "f16", (ctas, 128, 64)), draw(rng, "f16", (ctas, 32, 64))
    image = np.zeros((ctas, 32768), np.uint8)
    for cta in range(ctas):
        left, right = place(a[cta], "128B", False).image, place(b[cta], "128B", False).image
        image[cta, : left.size] = left
        image[cta, 16384 : 16384 + right.size] = right
    out = np.zeros((ctas, 256, 16), np.float32)
    text = LOOP.replace("WAIT", "0").replace("setp.lt.u32 %p2, %r13, 4;", "setp.lt.u32 %p2, %r13, %r21;")
    text = text.replace("mov.u32 %r13, 0;", "mov.u32 %r13, 0; and.b32 %r21, %r20, 3; add.u32 %r21, %r21, 1;")
    # What follows the wait in its own block sees the new values: they are doubled there and halved again.
    after = "wgmma.wait_group.sync.aligned 0;\nmul.f32 %d0, %d0, 0f40000000; mul.f32 %d0, %d0, 0f3F000000;"
    text = text.replace("wgmma.wait_group.sync.aligned 0;", f"{after}\nwgmma.fence.sync.aligned;", 1)
    kernel = module(text, [".param .u64 image", ".param .u64 out"])
    report = emulate(kernel, grid=ctas, block=256, dynamic_smem=32768, args=[image, out], order=order, seed=5)
    for cta in range(ctas):
        depth = 16 * (cta % 4 + 1)
        want = a[cta, :, :depth].astype(np.float64) @ b[cta, :, :depth].astype(np.float64).T
        for group in range(2):
            half = want[64 * group : 64 * group + 64].astype(np.float32)
            np.testing.assert_array_equal(out[cta, 128 * group : 128 * group + 128], registers_of_d(half))
    assert report.faults == ()


def test_d_holds_its_old_value_until_the_wait_when_products_are_late() -> None:
    """The values of the two orders differ where a wait is missing; with faults collected both run on."""
    rng = np.random.default_rng(11)
    a, b = draw(rng, "f16", (64, 16)), draw(rng, "f16", (8, 16))
    d = rng.integers(-9, 10, (64, 8)).astype(np.float32)
    operands = (registers_of_d(d), place(b, "none", False), place(a, "none", False), (1, 1, 0, 0))
    name = name_of(8, "f32", "f16", "f16")
    commit = "wgmma.commit_group.sync.aligned;"
    late, report = run_wgmma(name, 8, *operands, after=commit, check="collect", order="late")
    np.testing.assert_array_equal(late, registers_of_d(d))
    assert {fault.kind for fault in report.faults} == {"asynchronous registers"}
    early, _ = run_wgmma(name, 8, *operands, after=commit, check="collect", order="early")
    np.testing.assert_array_equal(early, registers_of_d(exact(a, b, d)))


# ---- what does not exist ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16", ": m64n12k16 of .f16 and .f16"),
        ("wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8", ": m64n40k32 of .s8 and .s8"),
        ("wgmma.mma_async.sync.aligned.m64n8k32.f32.f16.f16", ": m64n8k32 of .f16 and .f16"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.bf16", ": .f16 with .bf16"),
        ("wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.xor.popc",
         ": single bits need .and.popc, and only they do"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.satfinite.f32.f16.f16", ": .satfinite is for .s8 and .u8"),
    ],
)  # fmt: skip
def test_forms_that_do_not_exist_are_refused(name: str, reason: str) -> None:
    with pytest.raises(UnsupportedInstruction) as caught:
        run_wgmma(name, 8, np.zeros((128, 4), np.float32), place(np.zeros((8, 16), np.float16), "none", False),
                  np.zeros((128, 4), np.uint32), (1, 1, 0))  # fmt: skip
    assert str(caught.value) == f"PTX line {caught.value.line}: the emulator has no semantics for `{name}`{reason}"


@pytest.mark.parametrize(
    ("name", "flags", "sentence"),
    [
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16", (1, 1, 0),
            "`wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16`: .bf16 accumulates in .f32",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", (0, 1, 0),
            "`wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16`: imm-scale-a must be 1 or -1, not 0",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", (1, 1, 2),
            "`wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16`: imm-trans-b must be 0 or 1, not 2",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", (1, 1),
            "`wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16` takes 7 operands, not 6",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16", (1, 1, 0),
            "D of this wgmma takes 8 registers, not 4",
        ),
    ],
)  # fmt: skip
def test_wrong_operands_say_what_is_wrong(name: str, flags: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        run_wgmma(name, 8, np.zeros((128, 4), np.float32), place(np.zeros((8, 16), np.float16), "none", False),
                  np.zeros((128, 4), np.uint32), flags)  # fmt: skip
    assert caught.value.sentence == sentence


