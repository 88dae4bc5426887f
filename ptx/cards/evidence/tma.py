"""Evidence for the rules of TMA: the spellings that were tried, illegal twins, pictures and the cards."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import dtype
from tinygpu.expressions import symbol
from tinygpu.language.instruction.bulk import MOST_AXES
from tinygpu.ptx.cards.evidence.tma_kernels import load, load_again, multicast, padded, store, store_again
from tinygpu.ptx.cards.specimen import (
    TARGETS,
    WRONG_VALUES,
    Card,
    Guarantee,
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
                legal = exists_on(instruction, target) and axes == given and 1 <= axes <= MOST_AXES
                yield Variant(text, target, legal)
        if not exists_on(instruction, target):
            continue
        for axes, place, mode in itertools.product(range(7), _PLACES, (".tile", "", ".im2col")):
            for form, mask in itertools.product(("", ".multicast::cluster"), ("", ", %h0")):
                opcode = f"{instruction.label}.{axes}d.{place}.global{mode}.mbarrier::complete_tx::bytes{form}"
                fits = 1 <= axes <= MOST_AXES and bool(form) == bool(mask)
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
            legal = exists and axes == given and 1 <= axes <= MOST_AXES
            yield Variant(f"{instruction.text(axes)} [%x, {_coordinates(given)}], [%s];", target, legal)
        for axes, place, mode, end in itertools.product(range(7), _PLACES, (".tile", ""), (".bulk_group", "")):
            opcode = f"{instruction.label}.{axes}d.global.{place}{mode}{end}"
            fits = exists and 1 <= axes <= MOST_AXES and place == "shared::cta" and end
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


def _padded_rules(instruction: TmaLoad) -> tuple[Constraint, Constraint, Constraint]:
    """What it asks beside, of elements of 4 bits that it pads: of the swizzle, of rows, of where windows begin."""
    kind = dtype("e2m1")
    window, stage = gmem_operand(kind), swizzled_operand(kind, padded=True)
    if window.tensor is None:
        raise ValueError("a window of no tensor")
    swizzle = next(rule for rule in instruction.legality(window, stage) if "swizzle" in rule.name)
    rows, begins = instruction.narrow_rules(window.tensor, symbol("n"), (symbol("first"),), padded=True)
    return swizzle, rows, begins


def _load_card() -> Card:
    instruction = TmaLoad()
    window, stage = gmem_operand(dtype("f16")), swizzled_operand(dtype("f16"))
    axes, strides, box = instruction.legality(window, stage)
    narrow, rows, begins = _padded_rules(instruction)
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
    gap = Guarantee(
        f"{label} padding", "of the 16 bytes for each 16 elements, those that these do not fill are left as they were",
        "emulator",
    )  # fmt: skip
    fours = padded("TMA: eight rows of e2m1")
    good = load("TMA: rows 8 to 71 of 64; the last eight are zero")
    both = "TMA: each of two CTAs brings {} of {} rows to both"
    twins = (
        target_twin(instruction, good, "requires .target sm_90 or higher"),
        Twin(axes.name, "assembler", good, load("TMA: six axes", axes=6), "syntax error"),
        Twin(
            strides.name,
            "launch",
            good,
            load("TMA: rows of 36 bytes", pitch_bytes=36),
            "a stride must be a multiple of 16 bytes for a tensor map",
        ),
        Twin(
            strides.name,
            "launch",
            padded("TMA: rows of e2m1 96 bytes apart", pitch_bytes=96),
            padded("TMA: rows of e2m1 80 bytes apart", pitch_bytes=80),
            "a stride must be a multiple of 32 bytes for elements of type",
        ),
        Twin(
            narrow.name, "launch", fours, padded("TMA: e2m1 under 64 bytes", swizzle_bytes=64),
            "allow swizzle none, 128B, 128B_ATOM_32B and 128B_ATOM_64B, not 64B",
        ),
        Twin(
            rows.name, "launch", fours, padded("TMA: rows of 192 e2m1", elements=192),
            "dims[0] is 192, but it must be a multiple of 128",
        ),
        Twin(
            begins.name, "emulator", padded("TMA: e2m1 from column 128 on", elements=256, column=128),
            padded("TMA: e2m1 from column 64 on", elements=256, column=64),
            "coordinate 0 is 64, but for elements of type 16u4_align16b it must be a multiple of 128",
        ),
        Twin(
            gap.name, "emulator", fours, padded("TMA: the last 8 of 16 bytes", read="v4.b32 {%r2, %r3, %r0, %r1}"),
            "never initialised",
        ),
        Twin(
            size.name, "emulator", fours, padded("TMA: padding counted as well", size_bytes=1024), "deadlock",
        ),
        Twin(
            box.name,
            "launch",
            load("TMA: boxes of 256 rows", box_rows=256, size_bytes=8192),
            load("TMA: boxes of 257 rows", box_rows=257, size_bytes=8192),
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
            load("TMA: a box 256 bytes into shared memory", at=256),
            load("TMA: a box 128 bytes into shared memory", at=128),
            WRONG_VALUES,
        ),
        Twin(arrival.name, "emulator", good, load("TMA: read without a wait", wait=()), "may still be writing"),
        Twin(
            size.name,
            "emulator",
            good,
            load("TMA: half of the bytes expected", size_bytes=1024),
            "has 1024 transaction bytes more than were expected",
        ),
        Twin(once.name, "emulator", good, load("TMA: every thread issues it", guard=""), "arrivals at an mbarrier"),
        Twin(
            made.name,
            "emulator",
            good,
            load("TMA: without a barrier behind the initialisation", ready=""),
            "and nothing orders the two",
        ),
        Twin(
            slot.name,
            "emulator",
            load_again("TMA: another box when all have read", "bar.sync 0;"),
            load_again("TMA: another box at once", ""),
            "every warp must pass bar.sync after its last read before anyone writes there",
        ),
    )
    return Card(
        name="cp.async.bulk.tensor.load",
        instruction=instruction,
        operands=(
            ("source", "GMEM", "a window of a tensor of 1 to 5 axes, described by a tensor map", "any"),
            ("target", "SMEM", "the same, its rows cut to a swizzle of 32, 64 or 128 bytes", "the same, or padded"),
        ),
        rules=(instruction.target_rule(), axes, strides, box, parts, narrow, rows, begins),
        guarantees=(placement, arrival, size, once, made, slot, gap),
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
    good = store("TMA: rows 0 to 55 become rows 8 to 63; the rest is left out")
    twins = (
        target_twin(instruction, good, "requires .target sm_90 or higher"),
        Twin(axes.name, "assembler", good, store("TMA: six axes", axes=6), "syntax error"),
        Twin(
            strides.name,
            "launch",
            good,
            store("TMA: rows of 36 bytes", pitch_bytes=36),
            "a stride must be a multiple of 16 bytes for a tensor map",
        ),
        Twin(
            box.name,
            "launch",
            store("TMA: boxes of 256 rows", box_rows=256),
            store("TMA: boxes of 257 rows", box_rows=257),
            "box[1] is 257, but a box dimension has 1 to 256 elements",
        ),
        Twin(
            placement.name,
            "emulator",
            store("TMA: a box 256 bytes into shared memory", at=256),
            store("TMA: a box 128 bytes into shared memory", at=128),
            WRONG_VALUES,
        ),
        Twin(
            proxy.name,
            "emulator",
            good,
            store("TMA: stored without a proxy fence", fence=""),
            "without fence.proxy.async between the two",
        ),
        Twin(
            written.name,
            "emulator",
            good,
            store("TMA: stored without a barrier", ready=""),
            "no barrier orders the two",
        ),
        Twin(
            read.name,
            "emulator",
            store_again("TMA: overwritten when it has been read", "cp.async.bulk.wait_group.read 0;"),
            store_again("TMA: overwritten at once", ""),
            "may still be reading",
        ),
        Twin(
            done.name,
            "emulator",
            good,
            store("TMA: not waited for", wait=""),
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
