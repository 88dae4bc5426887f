"""Evidence for the rules of TMA: the spellings that were tried, kernels that move a box, and their illegal twins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tinygpu.dtypes import dtype
from tinygpu.expressions import symbol
from tinygpu.ptx.cards.specimen import (
    TARGETS,
    WRONG_VALUES,
    Card,
    Field,
    FieldMap,
    Guarantee,
    Specimen,
    Twin,
    Variant,
    exists_on,
    gmem_operand,
    swizzled_operand,
    target_twin,
)
from tinygpu.ptx.isa.tma import TmaLoad, TmaStore

_PLACES = ("shared::cluster", "shared::cta", "shared")
_LATER = "names the CTA's own shared memory, which .version 8.0 does not"
_SHORT = "is the same instruction with less said"


def _coordinates(count: int) -> str:
    return "{" + ", ".join(f"%r{i}" for i in range(count)) + "}"


def load_variants() -> Iterator[Variant]:
    """Zero to six axes in every form, with and without the mask of a multicast; zero to six coordinates for each."""
    instruction = TmaLoad()
    for target, _ in TARGETS:
        for axes, (form, mask) in itertools.product(range(7), (("", ""), (".multicast::cluster", ", %h0"))):
            for given in range(7):
                text = _load_line(instruction.text(axes, bool(form)), given, mask)
                legal = exists_on(instruction, target) and axes == given and instruction.has_axes(axes)
                yield Variant(text, target, legal)
        if not exists_on(instruction, target):
            continue
        for axes, place, mode in itertools.product(range(7), _PLACES, (".tile", "", ".im2col")):
            for form, mask in itertools.product(("", ".multicast::cluster"), ("", ", %h0")):
                opcode = f"{instruction.label}.{axes}d.{place}.global{mode}.mbarrier::complete_tx::bytes{form}"
                fits = instruction.has_axes(axes) and bool(form) == bool(mask)
                if opcode == instruction.text(axes, bool(form)) and bool(form) == bool(mask):
                    continue
                reason = ""
                if fits and mode != ".im2col" and place == "shared::cluster":
                    reason = _SHORT
                elif fits and mode != ".im2col" and place == "shared::cta" and not form:
                    reason = _LATER
                yield Variant(_load_line(opcode, axes, mask), target, False, reason)


def _load_line(opcode: str, given: int, mask: str) -> str:
    return f"{opcode} [%s], [%x, {_coordinates(given)}], [%s+8]{mask};"


def store_variants() -> Iterator[Variant]:
    """Zero to six axes in every form; zero to six coordinates for each."""
    instruction = TmaStore()
    for target, _ in TARGETS:
        exists = exists_on(instruction, target)
        for axes, given in itertools.product(range(7), range(7)):
            legal = exists and axes == given and instruction.has_axes(axes)
            yield Variant(f"{instruction.text(axes)} [%x, {_coordinates(given)}], [%s];", target, legal)
        for axes, place, mode, end in itertools.product(range(7), _PLACES, (".tile", ""), (".bulk_group", "")):
            opcode = f"{instruction.label}.{axes}d.global.{place}{mode}{end}"
            fits = exists and instruction.has_axes(axes) and place == "shared::cta" and end
            if opcode != instruction.text(axes):
                text = f"{opcode} [%x, {_coordinates(axes)}], [%s];"
                yield Variant(text, target, False, _SHORT if fits else "")


def picture(swizzle_bytes: int) -> str:
    """Which 16-byte piece of its row lies at every place of eight rows of a swizzle (PTX ISA, swizzling modes)."""
    pieces = swizzle_bytes // 16
    lines = ["     " + " ".join(f"{p:>3}" for p in range(pieces))]
    for row in range(8):
        # Bits 4 and up of an address are exchanged by as many bits from bit 7 on.
        placed = {piece ^ (row * swizzle_bytes >> 7 & pieces - 1): piece for piece in range(pieces)}
        lines.append(f"{row:>4} " + " ".join(f"{placed[p]:>3}" for p in range(pieces)))
    return "\n".join(lines)


def _pictures() -> tuple[tuple[str, str], ...]:
    title = "A swizzle of {} bytes in shared memory: the 16-byte piece of its row that lies at each place"
    return tuple((title.format(width), picture(width)) for width in (32, 64, 128))


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


def _load(
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


def _load_again(title: str, ready: str) -> Specimen:
    """The same, and the box is brought once more when it has been read."""
    again = (
        ready,
        "@%p0 bra $issued_again;",
        f"mbarrier.arrive.expect_tx.shared::cta.b64 _, {_BARRIER}, 2048;",
        f"{TmaLoad().text(2, False)} [%s], [%x_map, {{0, 0}}], {_BARRIER};",
        "$issued_again:",
        *_wait(1),
    )
    return _load(title, again=tuple(line for line in again if line))


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


def _store(
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


def _store_again(title: str, wait: str) -> Specimen:
    """The same, and the rows in shared memory are overwritten when the box has been stored."""
    last = ("bar.sync 0;", "st.shared.v4.b32 [%r8], {%r4, %r5, %r6, %r7};", "cp.async.bulk.wait_group 0;")
    return _store(title, wait=wait, last=last)


def _placement() -> Guarantee:
    return Guarantee(
        "cp.async.bulk.tensor placement",
        "a buffer begins at an atom of its swizzle: at a multiple of 8 rows of its width, as the readers count",
        "emulator",
    )


def cards() -> Iterator[Card]:
    """The cards of both directions."""
    yield _load_card()
    yield _store_card()


def _load_card() -> Card:
    instruction = TmaLoad()
    window, stage = gmem_operand(dtype("f16")), swizzled_operand(dtype("f16"))
    axes, strides, box = instruction.legality(window, stage)
    (parts,) = instruction.multicast_rules(window, stage, symbol("cluster"))
    placement = _placement()
    label = instruction.label
    arrival = Guarantee(f"{label} arrival", "the mbarrier is waited for before the box is read", "emulator")
    size = Guarantee(
        f"{label} bytes",
        "the mbarrier expects the bytes of all boxes that complete on it, what lies outside the tensor included",
        "emulator",
    )
    once = Guarantee(f"{label} issue", "one thread issues it: every thread that does moves the box again", "emulator")
    made = Guarantee(
        f"{label} mbarrier", "who waits knows by a barrier that the mbarrier has been initialised", "emulator"
    )
    slot = Guarantee(f"{label} slot", "a box is brought when all who read the one before have said so", "emulator")
    good = _load("TMA: rows 8 to 71 of 64; the last eight are zero")
    both = "TMA: each of two CTAs brings {} of {} rows to both"
    twins = (
        target_twin(instruction, good, "requires .target sm_90 or higher"),
        Twin(axes.name, "assembler", good, _load("TMA: six axes", axes=6), "syntax error"),
        Twin(
            strides.name,
            "launch",
            good,
            _load("TMA: rows of 36 bytes", pitch_bytes=36),
            "a stride must be a multiple of 16 bytes for a tensor map",
        ),
        Twin(
            box.name,
            "launch",
            _load("TMA: boxes of 256 rows", box_rows=256, size_bytes=8192),
            _load("TMA: boxes of 257 rows", box_rows=257, size_bytes=8192),
            "box[1] is 257, but a box dimension has 1 to 256 elements",
        ),
        Twin(
            parts.name,
            "emulator",
            multicast(both.format(8, 16), 16),
            multicast(both.format(6, 12), 12),
            "it must be a multiple of 128, but the remainder is 64",
        ),
        Twin(
            placement.name,
            "emulator",
            _load("TMA: a box 256 bytes into shared memory", at=256),
            _load("TMA: a box 128 bytes into shared memory", at=128),
            WRONG_VALUES,
        ),
        Twin(arrival.name, "emulator", good, _load("TMA: read without a wait", wait=()), "may still be writing"),
        Twin(
            size.name,
            "emulator",
            good,
            _load("TMA: half of the bytes expected", size_bytes=1024),
            "has 1024 transaction bytes more than were expected",
        ),
        Twin(once.name, "emulator", good, _load("TMA: every thread issues it", guard=""), "arrivals at an mbarrier"),
        Twin(
            made.name,
            "emulator",
            good,
            _load("TMA: without a barrier behind the initialisation", ready=""),
            "and nothing orders the two",
        ),
        Twin(
            slot.name,
            "emulator",
            _load_again("TMA: another box when all have read", "bar.sync 0;"),
            _load_again("TMA: another box at once", ""),
            "every warp must pass bar.sync after its last read before anyone writes there",
        ),
    )
    return Card(
        name="cp.async.bulk.tensor.load",
        instruction=instruction,
        operands=(
            ("source", "GMEM", "a window of a tensor of 1 to 5 axes, described by a tensor map", "any"),
            ("target", "SMEM", "the same, its rows cut to a swizzle of 32, 64 or 128 bytes", "the same"),
        ),
        rules=(instruction.target_rule(), axes, strides, box, parts),
        guarantees=(placement, arrival, size, once, made, slot),
        meaning="smem[j] = where(exists, gmem[i + j], 0) for j in box",
        cost="bytes of GMEM; one instruction of one thread per box, no registers, no conflicts in SMEM",
        example=good,
        twins=twins,
        variants=load_variants,
        pictures=_pictures,
    )


def _store_card() -> Card:
    instruction = TmaStore()
    window, stage = gmem_operand(dtype("f16"), "y"), swizzled_operand(dtype("f16"))
    axes, strides, box = instruction.legality(stage, window)
    placement = _placement()
    label = instruction.label
    proxy = Guarantee(f"{label} proxy", "who wrote the box fences its writes for the asynchronous proxy", "emulator")
    written = Guarantee(f"{label} written", "a barrier orders the writes and their fences before the store", "emulator")
    read = Guarantee(f"{label} slot", "the box has been read before it is overwritten", "emulator")
    done = Guarantee(f"{label} completion", "the box has been read before the CTA ends", "emulator")
    good = _store("TMA: rows 0 to 55 become rows 8 to 63; the rest is left out")
    twins = (
        target_twin(instruction, good, "requires .target sm_90 or higher"),
        Twin(axes.name, "assembler", good, _store("TMA: six axes", axes=6), "syntax error"),
        Twin(
            strides.name,
            "launch",
            good,
            _store("TMA: rows of 36 bytes", pitch_bytes=36),
            "a stride must be a multiple of 16 bytes for a tensor map",
        ),
        Twin(
            box.name,
            "launch",
            _store("TMA: boxes of 256 rows", box_rows=256),
            _store("TMA: boxes of 257 rows", box_rows=257),
            "box[1] is 257, but a box dimension has 1 to 256 elements",
        ),
        Twin(
            placement.name,
            "emulator",
            _store("TMA: a box 256 bytes into shared memory", at=256),
            _store("TMA: a box 128 bytes into shared memory", at=128),
            WRONG_VALUES,
        ),
        Twin(
            proxy.name,
            "emulator",
            good,
            _store("TMA: stored without a proxy fence", fence=""),
            "without fence.proxy.async between the two",
        ),
        Twin(
            written.name,
            "emulator",
            good,
            _store("TMA: stored without a barrier", ready=""),
            "no barrier orders the two",
        ),
        Twin(
            read.name,
            "emulator",
            _store_again("TMA: overwritten when it has been read", "cp.async.bulk.wait_group.read 0;"),
            _store_again("TMA: overwritten at once", ""),
            "may still be reading",
        ),
        Twin(
            done.name,
            "emulator",
            good,
            _store("TMA: not waited for", wait=""),
            "this CTA exits, but the copy of line",
        ),
    )
    return Card(
        name="cp.async.bulk.tensor.store",
        instruction=instruction,
        operands=(
            ("source", "SMEM", "rows cut to a swizzle of 32, 64 or 128 bytes", "any"),
            ("target", "GMEM", "a window of a tensor of 1 to 5 axes, described by a tensor map", "the same"),
        ),
        rules=(instruction.target_rule(), axes, strides, box),
        guarantees=(placement, proxy, written, read, done),
        meaning="gmem[i + j] = smem[j] for j in box if exists",
        cost="bytes of GMEM; one instruction of one thread per box, no registers, no conflicts in SMEM",
        example=good,
        twins=twins,
        variants=store_variants,
        pictures=_pictures,
    )
