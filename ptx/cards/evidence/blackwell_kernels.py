"""The smallest kernels around instructions of tcgen05 and TMA that no machine issues yet, with their illegal twins."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.ptx.cards.evidence.tcgen05_kernels import AFTER, ALLOCATE, BEFORE, COMMIT, FREE, Frame, waited
from tinygpu.ptx.cards.specimen import WRONG_VALUES, Field, FieldMap, Specimen, Twin
from tinygpu.ptx.emulator.units.tensor_memory_maps import COPY_SHAPES
from tinygpu.ptx.runtime.narrow import unpacked

_COMMIT = COMMIT.format("%r12")
_WORDS = (Field("x", "f32", 4), Field("out", "f32", 4, "out"))
_SAME_ROWS = "st.global.v4.b32 [%out], {%r0, %r1, %r2, %r3};"
# Rows of 16 bytes without a swizzle: eight rows, 128 bytes, to a stride.
_PLAIN_ROWS = 0x00004008
_GATHERED = (3, 1, 2, 0)


def _same(x: Any) -> Any:
    return x


def _specimen(title: str, lines: list[str], **more: Any) -> Specimen:
    body = "\n".join(line for line in lines if line)
    facts: dict[str, Any] = {"target": 100, "isa": (8, 6), "threads": 128, "smem_align": 1024, "specific": True}
    return Specimen(title, body, more.pop("fields", _WORDS), more.pop("meaning", _same), **facts | more)


def held(
    title: str, columns: int = 32, allocate: str = ALLOCATE, free: str = FREE, wait: str = "wait::st", again: str = ""
) -> Specimen:
    """Four words of each thread go to tensor memory and come back.

    wait   behind the store, "" for none
    again  stands behind the first allocation
    """
    frame = Frame(0, columns, 8, allocate + again, free)
    held = "{%r0, %r1, %r2, %r3}"
    return _specimen(
        title,
        [
            *frame.begin(),
            f"ld.global.v4.b32 {held}, [%x];",
            f"tcgen05.st.sync.aligned.32x32b.x4.b32 [%r9], {held};",
            f"tcgen05.{wait}.sync.aligned;" if wait else "",
            f"tcgen05.ld.sync.aligned.32x32b.x4.b32 {held}, [%r9];",
            "tcgen05.wait::ld.sync.aligned;",
            _SAME_ROWS,
            *frame.end(),
        ],
        smem_bytes=16,
    )


def copied(title: str, stride: int = _PLAIN_ROWS, commit: str = _COMMIT, proxy: bool = True) -> Specimen:
    """Each thread lays 16 bytes into shared memory, one copies all rows to tensor memory, and each reads its lane."""
    frame = Frame(2048, 32, 8)
    held = "{%r0, %r1, %r2, %r3}"
    return _specimen(
        title,
        [
            "shl.b32 %r11, %t, 4;",
            "add.u32 %r11, %r11, %s;",
            f"ld.global.v4.b32 {held}, [%x];",
            f"st.shared.v4.b32 [%r11], {held};",
            "fence.proxy.async.shared::cta;" if proxy else "",
            *frame.begin(),
            "@%p1 bra $issued;",
            "shr.u32 %r11, %s, 4;",
            f"mov.b32 %r12, {stride:#010x};",
            "mov.b64 %d0, {%r11, %r12};",
            "tcgen05.cp.cta_group::1.128x128b [%r8], %d0;",
            f"add.u32 %r12, %s, {frame.at};",
            commit,
            "$issued:",
            *(waited(frame.at) if commit else ("bar.sync 0;",)),
            AFTER,
            f"tcgen05.ld.sync.aligned.32x32b.x4.b32 {held}, [%r9];",
            "tcgen05.wait::ld.sync.aligned;",
            _SAME_ROWS,
            *frame.end(),
        ],
        smem_bytes=frame.at + 16,
    )


def spread(shape: str, form: str = "", spelled: str = "") -> Specimen:
    """Rows of a shape are copied over zeros: threads lay them into shared memory, and each reads its lane.

    form     decompression: sixteen elements of 4 or 6 bits at the start of each 16 bytes become bytes
    spelled  what stands in the text for shape and form, where it is something else
    """
    of, frame = COPY_SHAPES[shape], Frame(4096, 32, 8)
    pieces, chunks = of.rows * of.row_bytes // 2048 or 1, of.row_bytes // 16
    held, more = "{%r0, %r1, %r2, %r3}", "{%r4, %r5, %r6, %r7}"
    lines = ["shl.b32 %r11, %t, 4;", "add.u32 %r11, %r11, %s;"]
    for piece in range(pieces):
        lines += [f"ld.global.v4.b32 {held}, [%x+{16 * piece}];", f"st.shared.v4.b32 [%r11+{2048 * piece}], {held};"]
    lines += ["fence.proxy.async.shared::cta;", *frame.begin()]
    lines += [f"mov.b32 %r{i}, 0;" for i in range(8)]
    eight = f"{held[:-1]}, {more[1:]}"
    lines += [f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%r9], {eight};", "tcgen05.wait::st.sync.aligned;"]
    lines += [BEFORE, "bar.sync 0;", AFTER, "@%p1 bra $issued;", "shr.u32 %r11, %s, 4;"]
    # The chunks of a row lie apart by all rows; eight rows of a chunk are 128 bytes.
    lines += [f"or.b32 %r11, %r11, {of.rows << 16:#x};", f"mov.b32 %r12, {_PLAIN_ROWS:#010x};"]
    lines += ["mov.b64 %d0, {%r11, %r12};", f"tcgen05.cp.cta_group::1.{spelled or shape + form} [%r8], %d0;"]
    lines += [f"add.u32 %r12, %s, {frame.at};", _COMMIT, "$issued:", *waited(frame.at), AFTER]
    lines += [f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {eight}, [%r9];", "tcgen05.wait::ld.sync.aligned;"]
    lines += [f"st.global.v4.b32 [%out], {held};", f"st.global.v4.b32 [%out+16], {more};", *frame.end()]

    def meaning(x: Any) -> Any:
        laid = x.reshape(128, pieces, 16).transpose(1, 0, 2).reshape(-1, 16)
        rows = np.stack([laid[of.rows * chunk : of.rows * (chunk + 1)] for chunk in range(chunks)], axis=1)
        if form:
            bits = 6 if "b6" in form else 4
            codes = [unpacked(line[: 2 * bits], bits) << (8 - bits) // 2 for line in rows.reshape(-1, 16)]
            rows = np.stack(codes).reshape(rows.shape)
        out = np.zeros((128, 32), np.uint8)
        for lanes in of.lanes:
            out[list(lanes), : of.row_bytes] = rows.reshape(of.rows, -1)
        return out

    fields = (Field("x", "u8", 16 * pieces), Field("out", "u8", 32, "out"))
    return _specimen(f"tcgen05.cp: {shape}{form}", lines, smem_bytes=frame.at + 16, fields=fields, meaning=meaning)


def shifted(title: str, lane: int = 0) -> Specimen:
    """Eight columns of the lanes of the first warp move down by one lane, of which each thread reads the first four."""
    frame = Frame(0, 32, 8)
    held = "{%r0, %r1, %r2, %r3}"

    def meaning(x: Any) -> Any:
        out = x.copy()
        out[:31] = x[1:32]
        return out

    return _specimen(
        title,
        [
            *frame.begin(),
            f"ld.global.v4.b32 {held}, [%x];",
            f"tcgen05.st.sync.aligned.32x32b.x4.b32 [%r9], {held};",
            "add.u32 %r11, %r9, 4;",
            f"tcgen05.st.sync.aligned.32x32b.x4.b32 [%r11], {held};",
            "tcgen05.wait::st.sync.aligned;",
            BEFORE,
            "bar.sync 0;",
            AFTER,
            "@%p1 bra $issued;",
            f"add.u32 %r11, %r8, {lane << 16};",
            "tcgen05.shift.cta_group::1.down [%r11];",
            f"add.u32 %r12, %s, {frame.at};",
            _COMMIT,
            "$issued:",
            *waited(frame.at),
            AFTER,
            f"tcgen05.ld.sync.aligned.32x32b.x4.b32 {held}, [%r9];",
            "tcgen05.wait::ld.sync.aligned;",
            _SAME_ROWS,
            *frame.end(),
        ],
        smem_bytes=16,
        meaning=meaning,
    )


def gathered(title: str, count: int = 128) -> Specimen:
    """Four rows of a matrix, named one by one, come into shared memory by one copy; every warp reads all of them."""

    def meaning(x: Any) -> Any:
        rows = x[list(_GATHERED)].reshape(32, 2)
        return np.tile(rows, (4, 1))

    return _specimen(
        title,
        [
            "setp.ne.u32 %p1, %t, 0;",
            "@%p1 bra $issued;",
            "mbarrier.init.shared.b64 [%s+128], 1;",
            "fence.proxy.async.shared::cta;",
            f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s+128], {count};",
            *(f"mov.b32 %r{i}, {row};" for i, row in enumerate(_GATHERED)),
            "add.u32 %r5, %s, 128;",
            "cp.async.bulk.tensor.2d.tile::gather4.shared::cta.global.mbarrier::complete_tx::bytes "
            "[%s], [%x_map, {0, %r0, %r1, %r2, %r3}], [%r5];",
            "$issued:",
            "bar.sync 0;",
            "$wait:",
            "mbarrier.try_wait.parity.shared::cta.b64 %p4, [%s+128], 0;",
            "@!%p4 bra $wait;",
            "and.b32 %r6, %t, 31;",
            "shl.b32 %r6, %r6, 2;",
            "add.u32 %r6, %r6, %s;",
            "ld.shared.b32 %r7, [%r6];",
            "st.global.b32 [%out], %r7;",
        ],
        smem_bytes=144,
        fields=(Field("x", "f16", 16), Field("out", "f16", 2, "out")),
        maps=(FieldMap("x", (16, 128), (16, 1), 32),),
        meaning=meaning,
    )


GOOD = held("32 columns of tensor memory")
COPY = copied("tcgen05.cp: 128 rows of 16 bytes")
SHIFT = shifted("tcgen05.shift: one lane down")
GATHER = gathered("four rows by one copy")
SIXES, FOURS = ".b8x16.b6x16_p32", ".b8x16.b4x16_p64"
# Every shape, as it is and from elements of 6 and of 4 bits.
COPIES = tuple(spread(shape, form) for shape in COPY_SHAPES for form in ("", SIXES, FOURS))
_RELINQUISH = "\ntcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
ALLOCATION_TWINS = (
    Twin(
        "an allocation is a power of two of at least 32 columns", "assembler", GOOD,
        held("48 columns", 48), "expected to be multiple of 32",
    ),
    Twin(
        "what was allocated is freed before the CTA ends", "emulator", GOOD, held("columns are kept", free=""),
        "the CTA exits with 32 columns of tensor memory allocated",
    ),
    Twin(
        "what is freed is what was allocated", "emulator", GOOD,
        held("twice as many freed", free="tcgen05.dealloc.cta_group::1.sync.aligned.b32 {0}, 64;"),
        "give back what was allocated",
    ),
    Twin(
        "who gave up the right allocates no more", "emulator", GOOD,
        held("allocates again", again=_RELINQUISH + ALLOCATE.format(12, 32)),
        "after the CTA executed tcgen05.relinquish_alloc_permit",
    ),
)  # fmt: skip
STORE_TWINS = (
    Twin(
        "tcgen05.wait::st stands before what was stored is read", "emulator", GOOD, held("not waited for", wait=""),
        "wait::st",
    ),
)  # fmt: skip
COPY_TWINS = (
    Twin(
        "the descriptor says where eight rows go on", "emulator", COPY, copied("half as far", 0x00004004), WRONG_VALUES,
    ),
    Twin(
        "a commit is waited for before the cells are read", "emulator", COPY, copied("not waited for", commit=""),
        "tcgen05.commit",
    ),
    Twin(
        "who wrote the rows by st.shared fences them for the asynchronous proxy", "emulator", COPY,
        copied("no proxy fence", proxy=False), "fence.proxy.async",
    ),
    Twin(
        "lanes of both halves are those that the form says", "emulator", spread("64x128b.warpx2::02_13"),
        spread("64x128b.warpx2::02_13", spelled="64x128b.warpx2::01_23"), WRONG_VALUES,
    ),
    Twin(
        "64 rows go to two halves of the lanes, and which ones is said", "assembler", spread("64x128b.warpx2::01_23"),
        spread("64x128b.warpx2::01_23", spelled="64x128b"), "64x128b",
    ),
    Twin(
        "rows of 32 bytes fill eight columns", "emulator", spread("128x256b"),
        spread("128x256b", spelled="128x128b"), WRONG_VALUES,
    ),
    Twin(
        "four rows go to the first lane of each quarter", "emulator", spread("4x256b"),
        spread("4x256b", spelled="128x256b"), "never initialised",
    ),
    Twin(
        "elements of 6 bits become bytes where the form says so", "emulator", spread("128x128b", SIXES),
        spread("128x128b", SIXES, "128x128b"), WRONG_VALUES,
    ),
    Twin(
        "elements of 4 bits have a form of their own", "emulator", spread("128x128b", FOURS),
        spread("128x128b", FOURS, f"128x128b{SIXES}"), WRONG_VALUES,
    ),
)  # fmt: skip
SHIFT_TWINS = (
    Twin(
        "the lane is a multiple of 32", "emulator", SHIFT, shifted("from lane 16", 16),
        "the lane must be 0, 32, 64 or 96",
    ),
)  # fmt: skip
GATHER_TWINS = (
    Twin(
        "five coordinates: a column and four rows", "assembler", GATHER, GATHER.respelled(", %r2, %r3}", ", %r2}"),
        "vector size mismatch",
    ),
    Twin(
        "the mbarrier expects the bytes of four rows", "emulator", GATHER, gathered("two rows", count=64), "deadlock",
    ),
)  # fmt: skip
