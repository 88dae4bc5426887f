"""Evidence for the rules of ld and st: spellings, twins, pictures and the cards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tinygpu.constraints.condition import evaluator
from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType, dtype
from tinygpu.expressions import symbol
from tinygpu.language.instruction import Transfer
from tinygpu.language.memories import GMEM, RMEM, SMEM, Memory
from tinygpu.ptx.cards.specimen import (
    TARGETS,
    WRONG_VALUES,
    Card,
    Field,
    Specimen,
    Twin,
    Variant,
    compute_capability,
    gmem_operand,
    held_partition,
    smem_operand,
    target_twin,
)
from tinygpu.ptx.isa.memory import LdGlobal, LdGlobalReadOnly, LdShared, StGlobal, StShared

Places = tuple[Memory, Memory]


def spelling(opcode: str, bits: int, vector: int, address: str) -> str:
    """`vector` elements of `bits` each: whole 32-bit registers where they fill some, elements otherwise."""
    pieces, width = (vector * bits // 32, 32) if bits < 32 and vector * bits % 32 == 0 else (vector, bits)
    kind = {8: "r", 16: "h", 32: "r", 64: "d"}[width]
    listed = ", ".join(f"%{kind}{i}" for i in range(pieces))
    registers, count = (listed, "") if pieces == 1 else ("{" + listed + "}", f".v{pieces}")
    operands = f"[{address}], {registers}" if opcode.startswith("st") else f"{registers}, [{address}]"
    return f"{opcode}{count}.b{width} {operands};"


def width_rule(instruction: Transfer, kind: DType, gmem: bool) -> Constraint:
    """The rule on the bytes that one thread moves at once."""
    side = gmem_operand(kind) if gmem else smem_operand(kind)
    return next(c for c in instruction.legality(side, held_partition()) if " width of " in c.name)


def variants(kind: type[Transfer]) -> Iterator[Variant]:
    """Every element width by every vector length up to 33 elements."""
    instruction = kind(symbol("vector"))
    gmem = GMEM in (kind.reads, kind.writes)
    address = "%x" if gmem else "%s"
    widths = {8: "s8", 16: "f16", 32: "f32", 64: "f64"}
    for bits, name in widths.items():
        admits = evaluator(width_rule(instruction, dtype(name), gmem).condition.sympy)
        for vector in range(1, 34):
            text = spelling(kind.opcode, bits, vector, address)
            legal = bool(admits({"vector": vector}))
            for target, _ in TARGETS:
                wide = gmem and vector * bits == 256 and bits >= 8 and compute_capability(target) >= 100
                reason = "32 bytes per thread exist from sm_100 on; machines move at most 16" if wide else ""
                yield Variant(text, target, legal, reason)


def _picked(*places: int) -> Any:
    return lambda x: x[:, list(places)]


def _load_example(
    opcode: str, body: str, title: str = "", meaning: Any = None, held: int = 4, given: int = 4
) -> Specimen:
    fields = (Field("x", "f32", given), Field("out", "f32", held, "out"))
    smem = 32 * 64 if "shared" in opcode else 0
    return Specimen(title or opcode, body, fields, meaning or (lambda x: x), smem_bytes=smem)


def _gmem_load(opcode: str) -> tuple[Specimen, list[tuple[str, Specimen, Specimen, str]]]:
    store2, store4 = "st.global.v2.b32 [%out], {%r0, %r1};", "st.global.v4.b32 [%out], {%r0, %r1, %r2, %r3};"

    def four(offset: str) -> str:
        return f"{opcode}.v4.b32 {{%r0, %r1, %r2, %r3}}, [%x{offset}];\n{store4}"

    def far(offset: str) -> Specimen:
        title = f"{opcode}: the second four of eight elements"
        return _load_example(opcode, four(offset), title, _picked(4, 5, 6, 7), given=8)

    def apart(body: str) -> Specimen:
        return _load_example(opcode, f"{body}\n{store2}", f"{opcode}: elements 0 and 2 of four", _picked(0, 2), held=2)

    twins = [
        (
            "width",
            _load_example(
                opcode, f"{opcode}.v2.b32 {{%r0, %r1}}, [%x];\n{store2}", f"{opcode}: two elements", held=2, given=2
            ),
            _load_example(
                opcode,
                f"{opcode}.v3.b32 {{%r0, %r1, %r2}}, [%x];\n{store2}",
                f"{opcode}: three elements",
                held=2,
                given=2,
            ),
            "Illegal vector size: 3",
        ),
        ("alignment", far("+16"), far("+4"), "it must be a multiple of 16, but the remainder is 4"),
        (
            "vector",
            apart(f"{opcode}.b32 %r0, [%x];\n{opcode}.b32 %r1, [%x+8];"),
            apart(f"{opcode}.v2.b32 {{%r0, %r1}}, [%x];"),
            WRONG_VALUES,
        ),
    ]
    return _load_example(opcode, four("")), twins


def _gmem_store() -> tuple[Specimen, list[tuple[str, Specimen, Specimen, str]]]:
    load4 = "ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%x];\n"

    def second(x: Any) -> Any:
        return np.concatenate([np.zeros_like(x), x], axis=1)

    def apart_meaning(x: Any) -> Any:
        return np.stack([x[:, 0], 0 * x[:, 0], x[:, 1], 0 * x[:, 0]], axis=1)

    def far(offset: str) -> Specimen:
        body = f"{load4}st.global.v4.b32 [%out{offset}], {{%r0, %r1, %r2, %r3}};"
        return _load_example("st.global", body, "st.global: the second four of eight elements", second, held=8)

    def apart(body: str) -> Specimen:
        zeros = "mov.b32 %r2, 0;\nst.global.v4.b32 [%out], {%r2, %r2, %r2, %r2};\n"
        title = "st.global: to elements 0 and 2 of four"
        return _load_example(
            "st.global", f"ld.global.v2.b32 {{%r0, %r1}}, [%x];\n{zeros}{body}", title, apart_meaning, given=2
        )

    def wide(count: int) -> Specimen:
        registers = ", ".join(f"%r{i}" for i in range(count))
        body = f"{load4}st.global.v{count}.b32 [%out], {{{registers}}};"
        return _load_example("st.global", body, f"st.global: {count} elements", lambda x: x[:, :count], held=count)

    twins = [
        ("width", wide(2), wide(3), "Illegal vector size: 3"),
        ("alignment", far("+16"), far("+4"), "it must be a multiple of 16, but the remainder is 4"),
        (
            "vector",
            apart("st.global.b32 [%out], %r0;\nst.global.b32 [%out+8], %r1;"),
            apart("st.global.v2.b32 [%out], {%r0, %r1};"),
            WRONG_VALUES,
        ),
    ]
    return _load_example("st.global", f"{load4}st.global.v4.b32 [%out], {{%r0, %r1, %r2, %r3}};"), twins


def _smem(opcode: str) -> tuple[Specimen, list[tuple[str, Specimen, Specimen, str]]]:
    loads = opcode.startswith("ld")

    def through(row_bytes: int, count: int = 4, title: str = "") -> Specimen:
        """Each thread's row goes to SMEM and comes back; the instruction in question moves `count` at once."""
        all_of = ", ".join(f"%r{i}" for i in range(count))
        one_by_one = [f"st.shared.b32 [%r8+{4 * i}], %r{i};" for i in range(4)]
        back = [f"ld.shared.b32 %r{i}, [%r8+{4 * i}];" for i in range(4)]
        if loads:
            back = [f"ld.shared.v{count}.b32 {{{all_of}}}, [%r8];", *back[count:]]
        else:
            one_by_one = [f"st.shared.v{count}.b32 [%r8], {{{all_of}}};", *one_by_one[count:]]
        lines = [
            "ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%x];",
            f"mad.lo.u32 %r8, %t, {row_bytes}, %s;",
            *one_by_one,
            *back,
            "st.global.v4.b32 [%out], {%r0, %r1, %r2, %r3};",
        ]
        return _load_example(opcode, "\n".join(lines), title or f"{opcode}: rows of {row_bytes} bytes")

    def apart(vector: bool) -> Specimen:
        st = (
            ["st.shared.v2.b32 [%r8], {%r0, %r2};"]
            if vector and not loads
            else ["st.shared.b32 [%r8], %r0;", "st.shared.b32 [%r8+8], %r2;"]
        )
        ld = (
            ["ld.shared.v2.b32 {%r0, %r2}, [%r8];"]
            if vector and loads
            else ["ld.shared.b32 %r0, [%r8];", "ld.shared.b32 %r2, [%r8+8];"]
        )
        lines = [
            "ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%x];",
            "mad.lo.u32 %r8, %t, 16, %s;",
            "st.shared.v4.b32 [%r8], {%r1, %r1, %r1, %r1};",
            *st,
            *ld,
            "st.global.v2.b32 [%out], {%r0, %r2};",
        ]
        return _load_example(opcode, "\n".join(lines), f"{opcode}: elements 0 and 2 of a row", _picked(0, 2), held=2)

    twins = [
        (
            "width",
            through(16, 2, f"{opcode}: two elements"),
            through(16, 3, f"{opcode}: three elements"),
            "Illegal vector size: 3",
        ),
        ("alignment", through(32), through(20), "it must be a multiple of 16, but the remainder is 4"),
        ("vector", apart(False), apart(True), WRONG_VALUES),
    ]
    return through(16, title=opcode), twins


def card(kind: type[Transfer]) -> Card:
    """The card of one load or store."""
    instruction = kind(symbol("vector"))
    gmem = GMEM in (kind.reads, kind.writes)
    side = gmem_operand(dtype("f32"), "y" if kind.writes is GMEM else "x") if gmem else smem_operand(dtype("f32"))
    rules = (instruction.target_rule(), *instruction.legality(side, held_partition()))
    if not gmem:
        example, found = _smem(kind.opcode)
    elif kind.writes is GMEM:
        example, found = _gmem_store()
    else:
        example, found = _gmem_load(kind.opcode)
    twins = [target_twin(instruction, example)]
    for word, legal, illegal, refusal in found:
        rule = next(r for r in rules if f" {word} " in r.name)
        twins.append(Twin(rule.name, rule.judge, legal, illegal, refusal))
    place = f"{'tensor' if gmem else 'buffer'} in {GMEM if gmem else SMEM}"
    registers = ("registers", "RMEM", "vector", "the same")
    memory = (place, str(GMEM if gmem else SMEM), "vector neighbours along the contiguous axis", "any of 8 to 64 bits")
    return Card(
        name=kind.opcode,
        instruction=instruction,
        operands=(registers, memory) if kind.reads is not RMEM else (memory, registers),
        rules=rules,
        guarantees=(),
        meaning="registers[:] = memory[i : i + vector]"
        if kind.writes is RMEM
        else "memory[i : i + vector] = registers",
        cost=(
            "one request per warp; distinct 32-byte sectors that its lanes touch"
            if gmem
            else "one request per warp; wavefronts: rounds until every bank has served its distinct words"
        ),
        example=example,
        twins=tuple(twins),
        variants=lambda: variants(kind),
    )


def cards() -> Iterator[Card]:
    for kind in (LdGlobal, LdGlobalReadOnly, StGlobal, LdShared, StShared):
        yield card(kind)
