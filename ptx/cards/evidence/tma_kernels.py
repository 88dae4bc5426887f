"""Kernels that move one box by TMA, as specimens for its cards."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.ptx.cards.specimen import (
    Field,
    FieldMap,
    Specimen,
)
from tinygpu.ptx.isa.tma import TmaLoad, TmaStore

# Where thread t's row of 32 bytes lies in a box with a swizzle of 32 bytes: its first piece; the second one
# is at the address with bit 4 exchanged.
_ROW = (
    "shl.b32 %r8, %t, 5;",
    "shr.u32 %r9, %r8, 3;",
    "and.b32 %r9, %r9, 16;",
    "add.u32 %r8, %r8, %r9;",
    "add.u32 %r8, %r8, %s;",
    "xor.b32 %r9, %r8, 16;",
)
_ROWS = 64
_BARRIER = "[%s+8192]"
_SMEM_BYTES = 8200
_FIELDS = (Field("x", "f16", 16), Field("out", "f16", 16, "out"))
_INIT = ("setp.ne.u32 %p0, %t, 0;", "@%p0 bra $made;", f"mbarrier.init.shared.b64 {_BARRIER}, 1;", "$made:")


def _wait(parity: int) -> tuple[str, ...]:
    label = f"$wait{parity}"
    wait = f"mbarrier.try_wait.parity.shared::cta.b64 %p1, {_BARRIER}, {parity};"
    return f"{label}:", wait, f"@!%p1 bra {label};"


def _read(at: int = 0) -> tuple[str, ...]:
    """Every thread reads its row of the box that begins at `at`."""
    near = f"+{at}" if at else ""
    return (
        *_ROW,
        f"ld.shared.v4.b32 {{%r0, %r1, %r2, %r3}}, [%r8{near}];",
        f"ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r9{near}];",
        "st.global.v4.b32 [%out], {%r0, %r1, %r2, %r3};",
        "st.global.v4.b32 [%out+16], {%r4, %r5, %r6, %r7};",
    )


def _moved(x: Any, rows: int) -> Any:
    """The rows of x, `rows` further up; zeros where there are none."""
    out = np.zeros_like(x)
    out[max(0, -rows) : len(x) - max(0, rows)] = x[max(0, rows) : len(x) - max(0, -rows)]
    return out


def load(
    title: str,
    axes: int = 2,
    at: int = 0,
    size_bytes: int = 2048,
    box_rows: int = _ROWS,
    pitch_bytes: int = 0,
    ready: str = "bar.sync 0;",
    guard: str = "@%p0 bra $issued;",
    wait: tuple[str, ...] = _wait(0),
    again: tuple[str, ...] = (),
) -> Specimen:
    """Thread 0 loads 64 rows of a matrix of 64, from the ninth on, and every thread reads one of them.

    at     where in shared memory the box begins
    again  what comes behind the reads
    """
    near, issue = f"+{at}" if at else "", TmaLoad().text(axes, False)
    lines = (
        *_INIT,
        ready,
        guard,
        f"mbarrier.arrive.expect_tx.shared::cta.b64 _, {_BARRIER}, {size_bytes};",
        f"{issue} [%s{near}], [%x_map, {{0, 8}}], {_BARRIER};",
        "$issued:",
        *wait,
        *_read(at),
        *again,
    )
    maps = (FieldMap("x", (16, _ROWS), (16, box_rows), 32, pitch_bytes),)
    body = "\n".join(line for line in lines if line)
    return Specimen(title, body, _FIELDS, lambda x: _moved(x, 8), 90, (8, 0), _ROWS, _SMEM_BYTES, maps, 1024)


def padded(
    title: str,
    *,
    elements: int = 128,
    pitch_bytes: int = 0,
    swizzle_bytes: int = 128,
    column: int = 0,
    size_bytes: int = 512,
    read: str = "v2.b32 {%r0, %r1}",
) -> Specimen:
    """Thread 0 loads eight rows of 128 elements of 4 bits, and every thread reads the 16 of a place of 16 bytes.

    elements  of a row of the tensor
    column    at which the box begins
    read      what a thread reads of its 16 bytes
    """
    lines = (
        *_INIT,
        "bar.sync 0;",
        "@%p0 bra $issued;",
        f"mbarrier.arrive.expect_tx.shared::cta.b64 _, {_BARRIER}, {size_bytes};",
        f"{TmaLoad().text(2, False)} [%s], [%x_map, {{{column}, 0}}], {_BARRIER};",
        "$issued:",
        *_wait(0),
        "shl.b32 %r8, %t, 4;",
        "shr.u32 %r9, %r8, 3;",
        "and.b32 %r9, %r9, 112;",
        "xor.b32 %r8, %r8, %r9;",
        "add.u32 %r8, %r8, %s;",
        f"ld.shared.{read}, [%r8];",
        "st.global.v2.b32 [%out], {%r0, %r1};",
    )
    fields = (Field("x", "u8", 16), Field("out", "u8", 8, "out"))
    maps = (FieldMap("x", (elements, 8), (128, 8), swizzle_bytes, pitch_bytes, "e2m1"),)

    def meaning(x: Any) -> Any:
        pitch = pitch_bytes or elements // 2
        return x.reshape(-1)[: 8 * pitch].reshape(8, pitch)[:, column // 2 :][:, :64].reshape(_ROWS, 8)

    return Specimen(title, "\n".join(lines), fields, meaning, 100, (8, 6), _ROWS, _SMEM_BYTES, maps, 1024)


def load_again(title: str, ready: str) -> Specimen:
    """The same, and the box is brought once more when it has been read."""
    again = (
        ready,
        "@%p0 bra $issued_again;",
        f"mbarrier.arrive.expect_tx.shared::cta.b64 _, {_BARRIER}, 2048;",
        f"{TmaLoad().text(2, False)} [%s], [%x_map, {{0, 0}}], {_BARRIER};",
        "$issued_again:",
        *_wait(1),
    )
    return load(title, again=tuple(line for line in again if line))


def multicast(title: str, rows: int, swizzle_bytes: int = 32) -> Specimen:
    """Two CTAs bring half a box each to both; every thread reads 16 bytes of the first piece of a row."""
    half, size_bytes = rows // 2, rows * swizzle_bytes
    lines = (
        *_INIT[:3],
        "fence.mbarrier_init.release.cluster;",
        "$made:",
        "barrier.cluster.arrive.aligned;",
        "barrier.cluster.wait.aligned;",
        "@%p0 bra $issued;",
        f"mbarrier.arrive.expect_tx.shared::cta.b64 _, {_BARRIER}, {size_bytes};",
        "mov.u32 %r0, %cluster_ctarank;",
        f"mul.lo.u32 %r0, %r0, {half};",
        f"mad.lo.u32 %r1, %r0, {swizzle_bytes}, %s;",
        "mov.b16 %h0, 3;",
        f"{TmaLoad().text(2, True)} [%r1], [%x_map, {{0, %r0}}], {_BARRIER}, %h0;",
        "$issued:",
        *_wait(0),
        f"mul.lo.u32 %r8, %t, {swizzle_bytes};",
        "shr.u32 %r9, %r8, 3;",
        f"and.b32 %r9, %r9, {swizzle_bytes - 16};",
        "add.u32 %r8, %r8, %r9;",
        "add.u32 %r8, %r8, %s;",
        "ld.shared.v4.b32 {%r0, %r1, %r2, %r3}, [%r8];",
        "st.global.v4.b32 [%out], {%r0, %r1, %r2, %r3};",
    )
    fields = (Field("x", "f16", swizzle_bytes // 2), Field("out", "f16", 8, "out"))
    maps = (FieldMap("x", (swizzle_bytes // 2, 2 * rows), (swizzle_bytes // 2, half), swizzle_bytes),)
    return Specimen(
        title, "\n".join(lines), fields, lambda x: np.tile(x[:rows, :8], (2, 1)), 90, (8, 0), rows, _SMEM_BYTES, maps,
        1024, 2,
    )  # fmt: skip


def store(
    title: str,
    axes: int = 2,
    at: int = 0,
    box_rows: int = _ROWS,
    pitch_bytes: int = 0,
    fence: str = "fence.proxy.async.shared::cta;",
    ready: str = "bar.sync 0;",
    wait: str = "cp.async.bulk.wait_group 0;",
    last: tuple[str, ...] = (),
) -> Specimen:
    """Every thread writes a row of a box, and thread 0 stores it into a matrix of 64 rows, from the ninth on."""
    near = f"+{at}" if at else ""
    lines = (
        *_ROW,
        "ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%x];",
        "ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%x+16];",
        f"st.shared.v4.b32 [%r8{near}], {{%r0, %r1, %r2, %r3}};",
        f"st.shared.v4.b32 [%r9{near}], {{%r4, %r5, %r6, %r7}};",
        fence,
        ready,
        "setp.ne.u32 %p0, %t, 0;",
        "@%p0 bra $stored;",
        f"{TmaStore().text(axes)} [%out_map, {{0, 8}}], [%s{near}];",
        "cp.async.bulk.commit_group;",
        wait,
        "$stored:",
        *last,
    )
    maps = (FieldMap("out", (16, _ROWS), (16, box_rows), 32, pitch_bytes),)
    body = "\n".join(line for line in lines if line)
    return Specimen(title, body, _FIELDS, lambda x: _moved(x, -8), 90, (8, 0), _ROWS, _SMEM_BYTES, maps, 1024)


def store_again(title: str, wait: str) -> Specimen:
    """The same, and the rows in shared memory are overwritten when the box has been stored."""
    last = ("bar.sync 0;", "st.shared.v4.b32 [%r8], {%r4, %r5, %r6, %r7};", "cp.async.bulk.wait_group 0;")
    return store(title, wait=wait, last=last)
