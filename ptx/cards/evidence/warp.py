"""Evidence for the rules of shuffles and barriers: spellings, twins, pictures and the cards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from tinygpu.ptx.isa.warp import BarSync, Redux, ShflBfly, ShflIdx, ShflUp


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


def lane_shift_variants() -> Iterator[Variant]:
    """Distances, and the other modes that it is written with."""
    instruction = ShflUp()
    for target, _ in TARGETS:
        for distance in (0, 1, 16, 31):
            yield Variant(instruction.up("%r0", "%r1", distance), target, True)
        yield Variant(instruction.up("%d0", "%d1", 1), target, False)
        yield Variant(instruction.read("%r0", "%r1", "%r2"), target, True)
        yield Variant(instruction.statement("%r0", "%r1", 16), target, True)


def _lane_shift(title: str, distance: int, guard: str = "", threads: int = 32, kind: str = "b32") -> Specimen:
    """Each lane gets what a lane below it has; the first ones keep their own."""
    wide = {"b32": "r", "b64": "d"}[kind]
    lines = [
        "ld.global.b32 %r0, [%x];",
        *([guard] if guard else []),
        ShflUp().up(f"%{wide}1", f"%{wide}0", distance).replace("b32", kind),
        *(["$past:"] if guard else []),
        "st.global.b32 [%out], %r1;",
    ]
    fields = (Field("x", "f32", 1), Field("out", "f32", 1, "out"))
    at = np.arange(threads)
    lane = np.where(at % 32 >= distance % 32, at - distance % 32, at)
    below = lane if distance < 32 else at - distance
    return Specimen(title, "\n".join(lines), fields, lambda x: x[below], threads=threads)


def lane_shift_card() -> Card:
    """The card of shfl.sync.up."""
    instruction = ShflUp()
    width = Guarantee("shfl.sync.up type", "values are 32 bits wide; others go as words or halves", "assembler")
    within = Guarantee("shfl.sync.up within a warp", "a lane gets what a lane of its own warp has", "emulator")
    together = Guarantee(
        "shfl.sync.up convergence", "all lanes that the member mask names execute it together", "emulator"
    )
    good = _lane_shift("shfl.sync.up: the lane 4 below", 4)
    twins = (
        target_twin(instruction, good),
        Twin(width.name, "assembler", good, _lane_shift("shfl.sync.up: 64 bits", 4, kind="b64"),
             "Unexpected instruction types"),
        Twin(
            within.name,
            "emulator",
            _lane_shift("shfl.sync.up: two warps, each in itself", 4, threads=64),
            _lane_shift("shfl.sync.up: a lane of the other warp", 32, threads=64),
            WRONG_VALUES,
        ),
        Twin(
            together.name,
            "emulator",
            good,
            _lane_shift("shfl.sync.up: half a warp", 4, guard="setp.ge.u32 %p0, %t, 16;\n@%p0 bra $past;"),
            "shfl",
        ),
    )  # fmt: skip
    return Card(
        name="shfl.sync.up",
        instruction=instruction,
        operands=(("value", "RMEM", "one per lane", "any of 32 bits"), ("result", "RMEM", "one per lane", "the same")),
        rules=(instruction.target_rule(),),
        guarantees=(width, within, together),
        meaning="result = value[lane - distance]; the lanes below `distance` keep their own",
        cost="one request per warp",
        example=good,
        twins=twins,
        variants=lane_shift_variants,
    )


REDUCED = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
           "xor": np.bitwise_xor}  # fmt: skip


def redux_variants() -> Iterator[Variant]:
    """Every operation with every type; of floats a younger form that is not used."""
    made = set(Redux.operations.values())
    for target, _ in TARGETS:
        for name in REDUCED:
            for kind in ("s32", "u32", "b32", "s64"):
                opcode = f"redux.sync.{name}.{kind}"
                yield Variant(f"{opcode} %r0, %r1, -1;", target, opcode in made)


def _redux(title: str, opcode: str, guard: str = "", threads: int = 32) -> Specimen:
    """All lanes get what all of them have together."""
    name, kind = opcode.split(".")[2:]
    held = "s32" if kind == "s32" else "u32"
    lines = [
        "ld.global.b32 %r0, [%x];",
        *([guard] if guard else []),
        f"{opcode} %r1, %r0, -1;",
        *(["$past:"] if guard else []),
        "st.global.b32 [%out], %r1;",
    ]
    fields = (Field("x", held, 1), Field("out", held, 1, "out"))

    def meaning(x: NDArray[Any]) -> NDArray[Any]:
        warps = x.reshape(-1, 32)
        return np.repeat(REDUCED[name].reduce(warps, axis=1), 32).astype(x.dtype).reshape(x.shape)

    return Specimen(title, "\n".join(lines), fields, meaning, threads=threads)


def redux_card() -> Card:
    """The card of redux.sync."""
    instruction = Redux()
    kinds = Guarantee(
        "redux.sync type", "sums, least and largest of s32 and u32; bits together of 32 of them", "assembler"
    )
    within = Guarantee("redux.sync within a warp", "lanes get what the lanes of their own warp have", "emulator")
    together = Guarantee(
        "redux.sync convergence", "all lanes that the member mask names execute it together", "emulator"
    )
    good = _redux("redux.sync: the sum of a warp", "redux.sync.add.s32")
    floats = replace(good, title="redux.sync: a sum of f32", body=good.body.replace("add.s32", "add.f32"))
    both = replace(
        _redux("redux.sync: the sum of both warps", "redux.sync.add.s32", threads=64),
        meaning=lambda x: np.full(x.shape, x.sum(), x.dtype),
    )
    twins = (
        target_twin(instruction, good),
        Twin(kinds.name, "assembler", good, floats, "redux"),
        Twin(
            within.name,
            "emulator",
            _redux("redux.sync: two warps, each in itself", "redux.sync.add.s32", threads=64),
            both,
            WRONG_VALUES,
        ),
        Twin(
            together.name,
            "emulator",
            good,
            _redux("redux.sync: half a warp", "redux.sync.add.s32", guard="setp.ge.u32 %p0, %t, 16;\n@%p0 bra $past;"),
            "redux",
        ),
    )
    return Card(
        name="redux.sync",
        instruction=instruction,
        operands=(("value", "RMEM", "one per lane", "32 bits"), ("result", "RMEM", "one per lane", "the same")),
        rules=(instruction.target_rule(),),
        guarantees=(kinds, within, together),
        meaning="result = what all lanes have, combined; the same in all of them",
        cost="as long as 4 operations of each lane",
        example=good,
        twins=twins,
        variants=redux_variants,
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
    yield lane_shift_card()
    yield redux_card()
    yield barrier_card()
