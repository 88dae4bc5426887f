"""A whole matmul on tensor memory, written by hand: by one CTA, by a pair, and with block scales.

c[384, 128] = a[384, 256] b[128, 256]^T by one CTA, tile after tile of 128 rows: a ring of three stages, two slots of
sums, a warp that loads, one that multiplies, four that read sums. What a pair or block scales change is a list of edits
of that text, so that docs/blackwell.md shows them as a difference.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tinygpu.ptx.cards.specimen import Field, FieldMap, Specimen

_STAGES = 98304
# What several roles say: %p is whether there is another round, or another tile.
_NEXT_ROUND = """add.u32 %stage, %stage, 1;
setp.eq.u32 %p, %stage, 3;
@%p mov.u32 %stage, 0;
@%p xor.b32 %phase, %phase, 1;
add.u32 %round, %round, 1;
setp.lt.u32 %p, %round, 4;"""
_NEXT_SLOT = """xor.b32 %slot, %slot, 1;
setp.eq.u32 %p, %slot, 0;
@%p xor.b32 %turn, %turn, 1;"""
_NEXT_TILE = """add.u32 %tile, %tile, 1;
setp.lt.u32 %p, %tile, 3;"""
_ROLES = """
.reg .b32 %w, %lane, %bars, %columns, %stage, %phase, %slot, %turn, %round, %tile;
.reg .b32 %full, %empty, %sums, %to, %k, %rows, %cells, %column, %low, %high;
.reg .b64 %row, %a_at, %b_at;
.reg .pred %p, %done, %add;
.reg .b32 %v<16>;
// warp 0 loads, warp 1 multiplies, warp 2 has the columns, warps 4 to 7 read sums
shr.u32 %w, %t, 5;
and.b32 %lane, %t, 31;
// shared memory: three stages of 32768 bytes, 128 rows of a and behind them 128 of b; then, from %bars on,
// +0 full and +24 empty of each stage, +48 full and +64 empty of each slot of sums, +80 the address of the columns
add.u32 %bars, %s, 98304;
setp.ne.u32 %p, %t, 0;
@%p bra $made;
mbarrier.init.shared.b64 [%bars+0], 1;
mbarrier.init.shared.b64 [%bars+8], 1;
mbarrier.init.shared.b64 [%bars+16], 1;
mbarrier.init.shared.b64 [%bars+24], 1;
mbarrier.init.shared.b64 [%bars+32], 1;
mbarrier.init.shared.b64 [%bars+40], 1;
mbarrier.init.shared.b64 [%bars+48], 1;
mbarrier.init.shared.b64 [%bars+56], 1;
mbarrier.init.shared.b64 [%bars+64], 4;
mbarrier.init.shared.b64 [%bars+72], 4;
fence.mbarrier_init.release.cluster;
$made:
bar.warp.sync -1;
setp.ne.u32 %p, %w, 2;
@%p bra $allocated;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%bars+80], 256;
tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
$allocated:
tcgen05.fence::before_thread_sync;
bar.sync 0;
tcgen05.fence::after_thread_sync;
ld.shared.u32 %columns, [%bars+80];
mov.u32 %tile, 0;
mov.u32 %stage, 0;
mov.u32 %slot, 0;
setp.ge.u32 %p, %w, 4;
@%p bra $epilogue;
setp.ge.u32 %p, %w, 2;
@%p bra $end;
setp.ne.u32 %p, %lane, 0;
@%p bra $end;
setp.eq.u32 %p, %w, 1;
@%p bra $multiplier;
// ---- producer: one thread of warp 0; a fresh mbarrier lets a wait for parity 1 pass
mov.u32 %phase, 1;
$load_tile:
shl.b32 %rows, %tile, 7;
mov.u32 %round, 0;
$load_round:
shl.b32 %full, %stage, 3;
add.u32 %full, %full, %bars;
$stage_empty:
mbarrier.try_wait.parity.shared::cta.b64 %done, [%full+24], %phase;
@!%done bra $stage_empty;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], 32768;
mad.lo.u32 %to, %stage, 32768, %s;
shl.b32 %k, %round, 6;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%to], [%a_map, {%k, %rows}], [%full];
add.u32 %to, %to, 16384;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%to], [%b_map, {%k, 0}], [%full];
NEXT_ROUND
@%p bra $load_round;
NEXT_TILE
@%p bra $load_tile;
bra $end;
// ---- multiplier: one thread of warp 1
$multiplier:
mov.u32 %phase, 0;
mov.u32 %turn, 1;
mov.b32 %high, 0x40004040;
$sum_tile:
shl.b32 %sums, %slot, 3;
add.u32 %sums, %sums, %bars;
$sums_empty:
mbarrier.try_wait.parity.shared::cta.b64 %done, [%sums+64], %turn;
@!%done bra $sums_empty;
tcgen05.fence::after_thread_sync;
mad.lo.u32 %cells, %slot, 128, %columns;
setp.ne.u32 %add, %s, %s;
mov.u32 %round, 0;
$sum_round:
shl.b32 %full, %stage, 3;
add.u32 %full, %full, %bars;
$stage_full:
mbarrier.try_wait.parity.shared::cta.b64 %done, [%full], %phase;
@!%done bra $stage_full;
tcgen05.fence::after_thread_sync;
mad.lo.u32 %low, %stage, 32768, %s;
shr.u32 %low, %low, 4;
or.b32 %low, %low, 0x10000;
mov.b64 %a_at, {%low, %high};
add.u64 %b_at, %a_at, 1024;
// 64 of k are four instructions, each 32 bytes of every row further
tcgen05.mma.cta_group::1.kind::f16 [%cells], %a_at, %b_at, 0x08200010, %add;
setp.eq.u32 %add, %s, %s;
add.u64 %a_at, %a_at, 2;
add.u64 %b_at, %b_at, 2;
tcgen05.mma.cta_group::1.kind::f16 [%cells], %a_at, %b_at, 0x08200010, %add;
add.u64 %a_at, %a_at, 2;
add.u64 %b_at, %b_at, 2;
tcgen05.mma.cta_group::1.kind::f16 [%cells], %a_at, %b_at, 0x08200010, %add;
add.u64 %a_at, %a_at, 2;
add.u64 %b_at, %b_at, 2;
tcgen05.mma.cta_group::1.kind::f16 [%cells], %a_at, %b_at, 0x08200010, %add;
add.u32 %empty, %full, 24;
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%empty];
NEXT_ROUND
@%p bra $sum_round;
add.u32 %sums, %sums, 48;
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%sums];
NEXT_SLOT
NEXT_TILE
@%p bra $sum_tile;
bra $end;
// ---- epilogue: warp w reads lanes 32 (w % 4) to 32 (w % 4) + 31, a row of sums to each thread
$epilogue:
mov.u32 %turn, 0;
$read_tile:
shl.b32 %sums, %slot, 3;
add.u32 %sums, %sums, %bars;
$sums_full:
mbarrier.try_wait.parity.shared::cta.b64 %done, [%sums+48], %turn;
@!%done bra $sums_full;
tcgen05.fence::after_thread_sync;
mad.lo.u32 %rows, %tile, 128, %t;
sub.u32 %rows, %rows, 128;
ld.param.u64 %row, [out];
cvta.to.global.u64 %row, %row;
mad.wide.u32 %row, %rows, 512, %row;
and.b32 %cells, %w, 3;
shl.b32 %cells, %cells, 21;
add.u32 %cells, %cells, %columns;
mad.lo.u32 %cells, %slot, 128, %cells;
mov.u32 %column, 0;
$read_columns:
tcgen05.ld.sync.aligned.32x32b.x16.b32 SIXTEEN, [%cells];
tcgen05.wait::ld.sync.aligned;
st.global.v4.b32 [%row], {%v0, %v1, %v2, %v3};
st.global.v4.b32 [%row+16], {%v4, %v5, %v6, %v7};
st.global.v4.b32 [%row+32], {%v8, %v9, %v10, %v11};
st.global.v4.b32 [%row+48], {%v12, %v13, %v14, %v15};
add.u64 %row, %row, 64;
add.u32 %cells, %cells, 16;
add.u32 %column, %column, 16;
setp.lt.u32 %p, %column, 128;
@%p bra $read_columns;
tcgen05.fence::before_thread_sync;
bar.warp.sync -1;
setp.eq.u32 %p, %lane, 0;
@%p mbarrier.arrive.shared::cta.b64 _, [%sums+64];
NEXT_SLOT
NEXT_TILE
@%p bra $read_tile;
// ---- all are done: the warp that allocated frees
$end:
bar.warp.sync -1;
tcgen05.fence::before_thread_sync;
bar.sync 0;
tcgen05.fence::after_thread_sync;
setp.ne.u32 %p, %w, 2;
@%p bra $freed;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %columns, 256;
$freed:
"""
_SAID_ONCE = (
    ("SIXTEEN", f"{{{', '.join(f'%v{i}' for i in range(16))}}}"),
    ("NEXT_ROUND", _NEXT_ROUND), ("NEXT_SLOT", _NEXT_SLOT), ("NEXT_TILE", _NEXT_TILE),
)  # fmt: skip


def edited(text: str, *edits: tuple[str, str]) -> str:
    """The text with every occurrence of what each edit names replaced. Raises ValueError where there is none."""
    for old, new in edits:
        if old not in text:
            raise ValueError(f"the kernel does not say {old!r}, which an edit replaces")
        text = text.replace(old, new)
    return text


_BODY = edited(_ROLES, *_SAID_ONCE)


def _product(a: Any, b: Any) -> Any:
    """Rows of a by rows of b, both along k = 256, as each thread's 192 elements of the result."""
    return (a.reshape(-1, 256).astype(np.float32) @ b.reshape(128, 256).astype(np.float32).T).reshape(-1, 192)


MATMUL = Specimen(
    "c[384, 128] = a[384, 256] b[128, 256]^T",
    _BODY,
    (Field("a", "f16", 384), Field("b", "f16", 128), Field("out", "f32", 192, "out")),
    _product,
    target=100, isa=(8, 6), threads=256, smem_bytes=_STAGES + 128, smem_align=1024, specific=True,
    maps=(FieldMap("a", (256, 384), (64, 128), 128), FieldMap("b", (256, 128), (64, 128), 128)),
)  # fmt: skip

# ---- two CTAs -------------------------------------------------------------------------------------------------------

_COMMIT = "tcgen05.commit.cta_group::{}.mbarrier::arrive::one.shared::cluster{}.b64 [{}]{};"
_LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
_BOTH = ".multicast::cluster"
_TO_BOTH = tuple(
    (_COMMIT.format(1, "", to, ""), _COMMIT.format(2, _BOTH, to, ", %both")) for to in ("%empty", "%sums")
)
_PAIR_EDITS = (
    (".reg .pred %p", ".reg .b32 %rank, %lead, %half;\n.reg .b16 %both;\n.reg .pred %p"),
    (
        "// warp 0 loads",
        "// two CTAs: that of rank 0 multiplies for both\nmov.u32 %rank, %cluster_ctarank;\nshl.b32 %half, %rank, 6;\n"
        "// warp 0 loads",
    ),
    ("128 rows of a and behind them 128 of b", "128 rows of a and behind them 64 of b, the CTA's halves"),
    ("three stages of 32768 bytes", "three stages of 24576 bytes"),
    ("98304", "73728"), ("%stage, 32768, %s", "%stage, 24576, %s"),
    # Eight warps read each slot of sums, four of each CTA.
    ("[%bars+64], 4;", "[%bars+64], 8;"), ("[%bars+72], 4;", "[%bars+72], 8;"),
    *_TO_BOTH, ("cta_group::1", "cta_group::2"),
    ("bar.sync 0;", "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;"),
    # The even CTA hears of the bytes of both.
    ("shl.b32 %rows, %tile, 7;", "mad.lo.u32 %rows, %tile, 2, %rank;\nshl.b32 %rows, %rows, 7;"),
    (
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], 32768;",
        "setp.eq.u32 %p, %rank, 0;\n"
        "@%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], 49152;\n"
        "mapa.shared::cluster.u32 %lead, %full, 0;",
    ),
    (
        f"{_LOAD} [%to], [%a_map, {{%k, %rows}}], [%full];",
        f"{_LOAD}.cta_group::2 [%to], [%a_map, {{%k, %rows}}], [%lead];",
    ),
    (
        f"{_LOAD} [%to], [%b_map, {{%k, 0}}], [%full];",
        f"{_LOAD}.cta_group::2 [%to], [%b_map, {{%k, %half}}], [%lead];",
    ),
    ("$multiplier:", "$multiplier:\nsetp.ne.u32 %p, %rank, 0;\n@%p bra $end;\nmov.u16 %both, 3;"),
    ("0x08200010", "0x10200010"),
    ("mad.lo.u32 %rows, %tile, 128, %t;", "mad.lo.u32 %rows, %tile, 2, %rank;\nmad.lo.u32 %rows, %rows, 128, %t;"),
    (
        "@%p mbarrier.arrive.shared::cta.b64 _, [%sums+64];",
        "mapa.shared::cluster.u32 %lead, %sums, 0;\n"
        "@%p mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%lead+64];",
    ),
    # Who waits for threads of the other CTA acquires what they did.
    (
        "mbarrier.try_wait.parity.shared::cta.b64 %done, [%sums+64], %turn;",
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %done, [%sums+64], %turn;",
    ),
)  # fmt: skip
PAIR = replace(
    MATMUL,
    title="c[768, 128] = a[768, 256] b[128, 256]^T",
    body=edited(_BODY, *_PAIR_EDITS),
    fields=(Field("a", "f16", 384), Field("b", "f16", 64), Field("out", "f32", 192, "out")),
    smem_bytes=73728 + 128, ctas=2,
    maps=(FieldMap("a", (256, 768), (64, 128), 128), FieldMap("b", (256, 128), (64, 64), 128)),
)  # fmt: skip

# ---- block scales ---------------------------------------------------------------------------------------------------

_PRODUCT = "tcgen05.mma.cta_group::1.kind::{} [%cells], %a_at, %b_at, {}, %add;"
_PLAIN = _PRODUCT.format("f16", "0x08200010")
_STEP = "\nadd.u64 %a_at, %a_at, 2;\nadd.u64 %b_at, %b_at, 2;\n"
_FIRST = f"{_PLAIN}\nsetp.eq.u32 %add, %s, %s;"


def _scaled(number: int) -> str:
    """The product with scale `number` of each cell."""
    word = f"{0x08A00000 | number << 29 | number << 4:#010x}, [%a_scales], [%b_scales]"
    return _PRODUCT.format("mxf8f6f4.block_scale.block32", word)


_SCALED_EDITS = (
    (".reg .pred %p", ".reg .b32 %a_scales, %b_scales, %plain;\n.reg .b64 %scales_at;\n.reg .pred %p"),
    ("98304", "101376"), ("mov.b32 %high, 0x40004040;", "mov.b32 %high, 0x40004040;\nmov.b32 %plain, 0x00004008;"),
    (
        "128 rows of a and behind them 128 of b;",
        "128 rows of a and behind them 128 of b;\n// three times 1024 bytes, 512 of scales of a and 512 of b;",
    ),
    # Two slots of 128 columns of sums, and for each stage 4 columns of scales of a and 4 of b.
    ("[%bars+80], 256;", "[%bars+80], 512;"), ("b32 %columns, 256;", "b32 %columns, 512;"),
    ("[%full], 32768;", "[%full], 33792;"),
    ("shl.b32 %k, %round, 6;", "shl.b32 %k, %round, 7;"),
    (
        "[%b_map, {%k, 0}], [%full];",
        "[%b_map, {%k, 0}], [%full];\n"
        "mad.lo.u32 %to, %stage, 1024, %s;\n"
        "add.u32 %to, %to, 98304;\n"
        "shl.b32 %k, %round, 1;\n"
        f"{_LOAD} [%to+512], [%sb_map, {{0, %k}}], [%full];\n"
        "mad.lo.u32 %k, %tile, 4, %k;\n"
        f"{_LOAD} [%to], [%sa_map, {{0, %k}}], [%full];",
    ),
    ("%round, 4;", "%round, 2;"),
    (
        "// 64 of k are four instructions",
        "// 128 x 4 scales of a and of b go to four columns each\n"
        "shl.b32 %a_scales, %stage, 3;\n"
        "add.u32 %a_scales, %a_scales, %columns;\n"
        "add.u32 %a_scales, %a_scales, 256;\n"
        "add.u32 %b_scales, %a_scales, 4;\n"
        "mad.lo.u32 %low, %stage, 1024, %s;\n"
        "add.u32 %low, %low, 98304;\n"
        "shr.u32 %low, %low, 4;\n"
        "mov.b64 %scales_at, {%low, %plain};\n"
        "tcgen05.cp.cta_group::1.32x128b.warpx4 [%a_scales], %scales_at;\n"
        "add.u64 %scales_at, %scales_at, 32;\n"
        "tcgen05.cp.cta_group::1.32x128b.warpx4 [%b_scales], %scales_at;\n"
        "// 128 of k are four instructions",
    ),
    (_FIRST + _STEP + _PLAIN + _STEP + _PLAIN + _STEP + _PLAIN,
     _FIRST.replace(_PLAIN, _scaled(0)) + "".join(_STEP + _scaled(number) for number in (1, 2, 3))),
)  # fmt: skip


def _scaled_product(a: Any, b: Any, sa: Any, sb: Any) -> Any:
    """As above, each 32 of k times two to the power of its scales less 127."""

    def wide(rows: Any, scales: Any) -> Any:
        # scales: [tile, round, row % 32, row // 32, scale]
        by_row = scales.reshape(-1, 2, 32, 4, 4).transpose(0, 3, 2, 1, 4).reshape(-1, 8)
        return rows.reshape(-1, 256).astype(np.float32) * np.exp2(by_row.astype(np.float32) - 127).repeat(32, axis=1)

    return (wide(a, sa) @ wide(b, sb).T).reshape(-1, 192)


SCALED = replace(
    MATMUL,
    title="c[384, 128] = (a sa)[384, 256] (b sb)[128, 256]^T",
    body=edited(_BODY, *_SCALED_EDITS),
    fields=(
        Field("a", "e4m3", 384), Field("b", "e4m3", 128), Field("sa", "u8", 12, span=(124, 130)),
        Field("sb", "u8", 4, span=(124, 130)), Field("out", "f32", 192, "out"),
    ),
    meaning=_scaled_product, isa=(8, 8), smem_bytes=101376 + 128,
    maps=(
        FieldMap("a", (256, 384), (128, 128), 128), FieldMap("b", (256, 128), (128, 128), 128),
        FieldMap("sa", (256, 12), (256, 2)), FieldMap("sb", (256, 4), (256, 2)),
    ),
)  # fmt: skip
