"""Evidence for the rules of shuffles and barriers: spellings, twins, pictures and the cards."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tinygpu.ptx.cards.specimen import (
    TARGETS,
    WRONG_VALUES,
    Card,
    Field,
    Guarantee,
    Specimen,
    Twin,
    Variant,
    target_twin,
)
from tinygpu.ptx.isa.warp import BarSync, ShflBfly, ShflIdx


def shuffle_variants() -> Iterator[Variant]:
    """Every mode and type of shfl.sync."""
    registers = {"b16": "h", "b32": "r", "b64": "d", "f32": "r", "s32": "r", "u32": "r"}
    for target, _ in TARGETS:
        for mode in ("bfly", "idx", "up", "down"):
            for kind, r in registers.items():
                legal = f"shfl.sync.{mode}.{kind}" == ShflBfly.opcode
                reason = "reductions need the butterfly alone" if kind == "b32" and not legal else ""
                yield Variant(f"shfl.sync.{mode}.{kind} %{r}0, %{r}1, 1, 31, -1;", target, legal, reason)


def lane_read_variants() -> Iterator[Variant]:
    """Ways of naming the lane: a number or a register, beside the butterfly."""
    instruction = ShflIdx()
    for target, _ in TARGETS:
        for lane in ("0", "31", "%r2"):
            yield Variant(instruction.read("%r0", "%r1", lane), target, True)
        yield Variant(instruction.read("%r0", "%r1", "%d0"), target, False)
        yield Variant(instruction.read("%d0", "%d1", "0"), target, False)
        yield Variant(instruction.statement("%r0", "%r1", 16), target, True)


def barrier_variants() -> Iterator[Variant]:
    """Barrier ids and counts of threads."""
    for target, _ in TARGETS:
        for barrier in range(20):
            yield Variant(f"bar.sync {barrier};", target, BarSync.exists(barrier, 0))
            for threads in (1, 16, 31, 32, 33, 48, 64, 96, 100, 128, 1024):
                yield Variant(f"bar.sync {barrier}, {threads};", target, BarSync.exists(barrier, threads))


def _shuffle(title: str, mask: int, kind: str = "b32", guard: str = "", threads: int = 32) -> Specimen:
    wide = {"b32": "%r1, %r0", "b64": "%d1, %d0"}[kind]
    lines = [
        "ld.global.b32 %r0, [%x];",
        *([guard] if guard else []),
        *(["cvt.u64.u32 %d0, %r0;"] if kind == "b64" else []),
        f"shfl.sync.bfly.{kind} {wide}, {mask}, 31, -1;",
        *(["cvt.u32.u64 %r1, %d1;"] if kind == "b64" else []),
        *(["$past:"] if guard else []),
        "st.global.b32 [%out], %r1;",
    ]
    fields = (Field("x", "f32", 1), Field("out", "f32", 1, "out"))
    return Specimen(title, "\n".join(lines), fields, lambda x: x[np.arange(threads) ^ mask], threads=threads)


def shuffle_card() -> Card:
    """The card of shfl.sync."""
    instruction = ShflBfly()
    width = Guarantee("shfl.sync type", "values are 32 bits wide; others are converted first", "assembler")
    within = Guarantee(
        "shfl.sync within a warp", "lanes that exchange lie in one warp: the mask is below 32", "emulator"
    )
    together = Guarantee(
        "shfl.sync convergence", "all lanes that the member mask names execute it together", "emulator"
    )
    good = _shuffle("shfl.sync: with the lane 16 away", 16)
    twins = (
        target_twin(instruction, good),
        Twin(width.name, "assembler", good, _shuffle("shfl.sync: 64 bits", 16, "b64"), "Unexpected instruction types"),
        Twin(
            within.name,
            "emulator",
            _shuffle("shfl.sync: two warps, each in itself", 16, threads=64),
            _shuffle("shfl.sync: with the other warp", 32, threads=64),
            WRONG_VALUES,
        ),
        Twin(
            together.name,
            "emulator",
            good,
            _shuffle("shfl.sync: half a warp", 16, guard="setp.ge.u32 %p0, %t, 16;\n@%p0 bra $past;"),
            "shfl",
        ),
    )
    return Card(
        name="shfl.sync",
        instruction=instruction,
        operands=(("value", "RMEM", "one per lane", "any of 32 bits"), ("result", "RMEM", "one per lane", "the same")),
        rules=(instruction.target_rule(),),
        guarantees=(width, within, together),
        meaning="result = value[lane ^ mask]",
        cost="one request per warp",
        example=good,
        twins=twins,
        variants=shuffle_variants,
    )


def _lane_read(title: str, lane: str, guard: str = "", threads: int = 32) -> Specimen:
    """Each lane reads the lane behind it; `lane` computes its number into %r2."""
    lines = [
        "ld.global.b32 %r0, [%x];",
        lane,
        *([guard] if guard else []),
        ShflIdx().read("%r1", "%r0", "%r2"),
        *(["$past:"] if guard else []),
        "st.global.b32 [%out], %r1;",
    ]
    fields = (Field("x", "f32", 1), Field("out", "f32", 1, "out"))
    at = np.arange(threads)
    return Specimen(title, "\n".join(lines), fields, lambda x: x[at // 32 * 32 + (at + 1) % 32], threads=threads)


def lane_read_card() -> Card:
    """The card of shfl.sync.idx."""
    instruction = ShflIdx()
    width = Guarantee("shfl.sync.idx type", "values are 32 bits wide; others go as words or halves", "assembler")
    within = Guarantee("shfl.sync.idx within a warp", "a lane reads lanes of its own warp", "emulator")
    together = Guarantee(
        "shfl.sync.idx convergence", "all lanes that the member mask names execute it together", "emulator"
    )
    behind = "add.u32 %r2, %t, 1;"
    good = _lane_read("shfl.sync.idx: the lane behind", behind)
    wide = Specimen(
        "shfl.sync.idx: 64 bits",
        good.body.replace("shfl.sync.idx.b32 %r1, %r0", "shfl.sync.idx.b64 %d1, %d0"),
        good.fields,
        good.meaning,
    )
    twins = (
        target_twin(instruction, good),
        Twin(width.name, "assembler", good, wide, "Unexpected instruction types"),
        Twin(
            within.name,
            "emulator",
            _lane_read("shfl.sync.idx: two warps, each in itself", behind, threads=64),
            _lane_read("shfl.sync.idx: a lane of the other warp", "add.u32 %r2, %t, 32;", threads=64),
            WRONG_VALUES,
        ),
        Twin(
            together.name,
            "emulator",
            good,
            _lane_read("shfl.sync.idx: half a warp", behind, guard="setp.ge.u32 %p0, %t, 16;\n@%p0 bra $past;"),
            "shfl",
        ),
    )
    return Card(
        name="shfl.sync.idx",
        instruction=instruction,
        operands=(
            ("value", "RMEM", "one per lane", "any of 32 bits"),
            ("lane", "RMEM", "one per lane", "a number of a lane"),
            ("result", "RMEM", "one per lane", "as the value"),
        ),
        rules=(instruction.target_rule(),),
        guarantees=(width, within, together),
        meaning="result = value[lane]",
        cost="one request per warp",
        example=good,
        twins=twins,
        variants=lane_read_variants,
    )


def _exchange(title: str, barrier: str) -> Specimen:
    """Two warps exchange values through SMEM."""
    lines = [
        "ld.global.b32 %r0, [%x];",
        "mad.lo.u32 %r1, %t, 4, %s;",
        "st.shared.b32 [%r1], %r0;",
        *([barrier] if barrier else []),
        "xor.b32 %r2, %t, 32;",
        "mad.lo.u32 %r2, %r2, 4, %s;",
        "ld.shared.b32 %r0, [%r2];",
        "st.global.b32 [%out], %r0;",
    ]
    fields = (Field("x", "f32", 1), Field("out", "f32", 1, "out"))
    return Specimen(title, "\n".join(lines), fields, lambda x: np.roll(x, 32, axis=0), threads=64, smem_bytes=256)


def barrier_card() -> Card:
    """The card of bar.sync."""
    instruction = BarSync()
    number = Guarantee("bar.sync id", f"ids are 0 to {BarSync.ids - 1}", "assembler")
    whole = Guarantee("bar.sync threads", "a count of threads is a multiple of 32", "assembler")
    order = Guarantee(
        "bar.sync order", "between a write to SMEM and a read by another warp stands a barrier", "emulator"
    )
    all_meet = Guarantee("bar.sync participation", "every thread of the CTA reaches it", "emulator")
    good = _exchange("bar.sync", "bar.sync 0;")
    apart = "setp.ge.u32 %p0, %t, 32;\n@!%p0 bar.sync 0;\n@%p0 bar.sync 1;"
    twins = (
        target_twin(instruction, good),
        Twin(
            number.name,
            "assembler",
            good,
            _exchange("bar.sync: a 17th barrier", "bar.sync 16;"),
            "Barrier number '16' out of range",
        ),
        Twin(
            whole.name,
            "assembler",
            _exchange("bar.sync: 64 threads", "bar.sync 0, 64;"),
            _exchange("bar.sync: 48 threads", "bar.sync 0, 48;"),
            "multiple of warp size",
        ),
        Twin(order.name, "emulator", good, _exchange("bar.sync: left out", ""), "no barrier orders the two"),
        Twin(all_meet.name, "emulator", good, _exchange("bar.sync: each warp waits at another one", apart), "barrier"),
    )
    return Card(
        name="bar.sync",
        instruction=instruction,
        operands=(("barrier", "CTA", "id 0; all threads", "none"),),
        rules=(instruction.target_rule(),),
        guarantees=(number, whole, order, all_meet),
        meaning="everything before happens before everything after, for all threads of the CTA",
        cost="waits for the slowest warp",
        example=good,
        twins=twins,
        variants=barrier_variants,
    )


def cards() -> Iterator[Card]:
    yield shuffle_card()
    yield lane_read_card()
    yield barrier_card()
