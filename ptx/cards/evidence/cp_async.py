"""Evidence for the rules of cp.async: spellings, twins, pictures and the cards."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tinygpu.constraints.condition import evaluator
from tinygpu.dtypes import dtype
from tinygpu.expressions import symbol
from tinygpu.ptx.cards.specimen import (
    TARGETS,
    WRONG_VALUES,
    Card,
    Field,
    Guarantee,
    Specimen,
    Twin,
    Variant,
    gmem_operand,
    held_partition,
    smem_operand,
    target_twin,
)
from tinygpu.ptx.isa.cp_async import CpAsync


def variants() -> Iterator[Variant]:
    """Every width up to 33 bytes, with either cache operator and with or without a count of existing bytes."""
    instruction = CpAsync(symbol("vector"))
    rule = next(c for c in instruction.legality(gmem_operand(dtype("u8")), held_partition()) if " width of " in c.name)
    admits = evaluator(rule.condition.sympy)
    for target, _ in TARGETS:
        for width in range(1, 34):
            for cache in ("ca", "cg"):
                legal = bool(admits({"vector": width})) and cache == CpAsync.cache(width)
                reason = (
                    "16-byte copies bypass L1, whose space they would take from shared memory"
                    if (cache, width) == ("ca", 16)
                    else ""
                )
                for existing in ("", ", %r0"):
                    yield Variant(
                        f"cp.async.{cache}.shared.global [%s], [%x], {width}{existing};", target, legal, reason
                    )


def _specimen(
    title: str, copy: str, row_bytes: int = 16, wait: str = "cp.async.wait_group 0;", shared: str = "%r4"
) -> Specimen:
    """Every thread copies four elements into a row of its own and reads the row that `shared` points at."""
    lines = [
        f"mad.lo.u32 %r4, %t, {row_bytes}, %s;",
        copy,
        "cp.async.commit_group;",
        wait,
        f"ld.shared.v4.b32 {{%r0, %r1, %r2, %r3}}, [{shared}];",
        "st.global.v4.b32 [%out], {%r0, %r1, %r2, %r3};",
    ]
    fields = (Field("x", "f32", 8), Field("out", "f32", 4, "out"))
    body = "\n".join(line for line in lines if line)
    return Specimen(title, body, fields, lambda x: x[:, 4:], smem_bytes=32 * 32)


def _apart(copies: str) -> Specimen:
    lines = [
        "mad.lo.u32 %r4, %t, 8, %s;",
        copies,
        "cp.async.commit_group;",
        "cp.async.wait_group 0;",
        "ld.shared.v2.b32 {%r0, %r1}, [%r4];",
        "st.global.v2.b32 [%out], {%r0, %r1};",
    ]
    fields = (Field("x", "f32", 4), Field("out", "f32", 2, "out"))
    return Specimen(
        "cp.async: elements 0 and 2 of four", "\n".join(lines), fields, lambda x: x[:, [0, 2]], smem_bytes=256
    )


def _neighbour(title: str, barrier: str) -> Specimen:
    """Every thread reads the row that the thread beside it copied."""
    lines = [
        "mad.lo.u32 %r4, %t, 16, %s;",
        "cp.async.cg.shared.global [%r4], [%x], 16;",
        "cp.async.commit_group;",
        "cp.async.wait_group 0;",
        *([barrier] if barrier else []),
        "xor.b32 %r5, %t, 32;",
        "mad.lo.u32 %r5, %r5, 16, %s;",
        "ld.shared.v4.b32 {%r0, %r1, %r2, %r3}, [%r5];",
        "st.global.v4.b32 [%out], {%r0, %r1, %r2, %r3};",
    ]
    fields = (Field("x", "f32", 4), Field("out", "f32", 4, "out"))
    return Specimen(title, "\n".join(lines), fields, lambda x: np.roll(x, 32, axis=0), threads=64, smem_bytes=64 * 16)


def cards() -> Iterator[Card]:
    """The card of cp.async."""
    instruction = CpAsync(symbol("vector"))
    kind = dtype("f32")
    from_gmem = instruction.legality(gmem_operand(kind), held_partition())
    to_smem = tuple(r for r in instruction.legality(smem_operand(kind), held_partition()) if "alignment of" in r.name)
    rules = (instruction.target_rule(), *from_gmem, *to_smem)
    waits = Guarantee(
        "cp.async completion", "a group is waited for before the bytes that it brings are read", "emulator"
    )
    meets = Guarantee(
        "cp.async visibility",
        "other threads read after a barrier that follows the wait: a wait counts for its own thread",
        "emulator",
    )
    copy = "cp.async.cg.shared.global [%r4], [%x+16], 16;"
    good = _specimen("cp.async: 16 bytes", copy)
    width, alignment, vector, smem = from_gmem[0], from_gmem[1], from_gmem[2], to_smem[0]
    two = "cp.async.ca.shared.global [%r4], [%x], {};\ncp.async.ca.shared.global [%r4+4], [%x+8], 4;"
    twins = (
        target_twin(instruction, good, "requires .target sm_80 or higher"),
        Twin(
            width.name,
            "assembler",
            good,
            _specimen("cp.async: 12 bytes", copy.replace(", 16;", ", 12;")),
            "unexpected value '12'",
        ),
        Twin(
            alignment.name,
            "emulator",
            good,
            _specimen("cp.async: 4 bytes too far", copy.replace("+16", "+20")),
            "it must be a multiple of 16, but the remainder is 4",
        ),
        Twin(
            smem.name,
            "emulator",
            _specimen("cp.async: rows of 32 bytes", copy, 32),
            _specimen("cp.async: rows of 20 bytes", copy, 20),
            "it must be a multiple of 16, but the remainder is 4",
        ),
        Twin(
            vector.name,
            "emulator",
            _apart(two.format(4)),
            _apart("cp.async.ca.shared.global [%r4], [%x], 8;"),
            WRONG_VALUES,
        ),
        Twin(
            waits.name,
            "emulator",
            good,
            _specimen("cp.async: read without a wait", copy, wait=""),
            "may still be copying",
        ),
        Twin(
            meets.name,
            "emulator",
            _neighbour("cp.async: the neighbour's row", "bar.sync 0;"),
            _neighbour("cp.async: without a barrier", ""),
            "no barrier orders the two",
        ),
    )
    yield Card(
        name="cp.async",
        instruction=instruction,
        operands=(
            ("source", "GMEM", "vector neighbours along the contiguous axis", "any, 4, 8 or 16 bytes in all"),
            ("target", "SMEM", "the same", "the same"),
        ),
        rules=rules,
        guarantees=(waits, meets),
        meaning="smem[j : j + vector] = where(exists, gmem[i : i + vector], 0)",
        cost="one request per warp; distinct 32-byte sectors in GMEM, wavefronts in SMEM; no registers",
        example=good,
        twins=twins,
        variants=variants,
    )
