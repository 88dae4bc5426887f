"""Evidence for the rules of mma.sync: spellings, twins, pictures and the cards."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tinygpu.constraints.condition import evaluator
from tinygpu.dtypes import dtype
from tinygpu.layouts.draw import holder_picture
from tinygpu.layouts.layout import Layout
from tinygpu.ptx.cards.specimen import (
    TARGETS,
    WRONG_VALUES,
    Card,
    Field,
    Guarantee,
    Specimen,
    Twin,
    Variant,
    compute_capability,
    markdown_table,
    version,
)
from tinygpu.ptx.isa.mma import SHAPES, MmaSync, Shape, holders

_TYPES = ("f16", "bf16", "tf32", "f64", "s8", "u8", "e4m3", "e5m2")
_SUMS = ("f32", "f16", "bf16", "s32", "f64")


def variants() -> Iterator[Variant]:
    """Every shape by every pair of operand types by every accumulator, those that do not exist included."""
    for target, _ in TARGETS:
        for m, k, a, b, c in itertools.product((16, 8), (4, 8, 16, 32, 64), _TYPES, _TYPES, _SUMS):
            text = _line(m, 8, k, a, b, c)
            if text:
                legal = offered(m, 8, k, a, b, c, compute_capability(target))
                yield Variant(text, target, legal, "" if legal else _left_out(m, k, a, b, c, target))


def offered(m: int, n: int, k: int, a: str, b: str, c: str, cc: int) -> bool:
    """Whether an MmaSync is this combination, on a device of this compute capability."""
    for instruction in (MmaSync(), MmaSync(short=True)):
        try:
            shape = instruction.variant(dtype(a), dtype(b))
        except TypeError:
            return False
        rule = instruction.type_rules(dtype(a), dtype(b))[0].condition
        if (shape.m, shape.n, shape.k, shape.accumulator) == (m, n, k, c) and evaluator(rule.sympy)({"device.cc": cc}):
            return True
    return False


def _left_out(m: int, k: int, a: str, b: str, c: str, target: str) -> str:
    """Why a combination that exists is no MmaSync (the exact sets: the table in the PTX ISA, mma.sync)."""
    cc, eight = compute_capability(target), ("e4m3", "e5m2")
    if a == b == "f16" == c and (m, k) in ((16, 8), (16, 16)):
        return "sums in f16 lose bits that sums in f32 keep"
    if a in eight and b in eight and c == "f16" and m == 16 and k in (16, 32) and cc >= 89:
        return "sums in f16 lose bits that sums in f32 keep"
    if a == b == c == "f64" and ((m, k) == (8, 4) or (m == 16 and k in (4, 8, 16) and cc >= 90)):
        return "no machine multiplies f64 on tensor cores yet"
    if a in ("s8", "u8") and b in ("s8", "u8") and c == "s32" and (m, k) == (8, 16):
        return "m8n8k16 does the work of half an m16n8k16"
    return ""


def _line(m: int, n: int, k: int, a: str, b: str, c: str) -> str:
    """The statement with as many registers as the extents ask for; "" where they fill none."""
    counts = (m * n * dtype(c).bits / 1024, m * k * dtype(a).bits / 1024, k * n * dtype(b).bits / 1024)
    if any(x != int(x) or not 1 <= x <= 32 for x in counts):
        return ""
    first, groups = 0, []
    for kind, words in zip((c, a, b), counts, strict=True):
        wide = dtype(kind).bits == 64
        number = int(words) // 2 if wide else int(words)
        groups.append("{" + ", ".join(f"%{'d' if wide else 'r'}{first + i}" for i in range(number)) + "}")
        first += number
    return f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{c}.{a}.{b}.{c} {groups[0]}, {groups[1]}, {groups[2]}, {groups[0]};"


def picture(fragment: Layout) -> str:
    """The fragment as shape:stride, and who holds each element."""
    rows, columns = (fragment.along(axis).cosize for axis in (0, 1))
    return str(holder_picture(fragment, (rows, columns)))


def gather(matrix: Any, fragment: Layout) -> Any:
    """(32, values): what each lane holds of a matrix."""
    held = holders(fragment)
    out = np.zeros((32, len(held) // 32), dtype=np.asarray(matrix).dtype)
    for at, (lane, value) in held.items():
        out[lane, value] = matrix[at]
    return out


def scatter(values: Any, fragment: Layout) -> Any:
    """The matrix of which each lane holds these values; the inverse of `gather`."""
    held = holders(fragment)
    out = np.zeros((1 + max(r for r, _ in held), 1 + max(c for _, c in held)), dtype=np.float64)
    for at, (lane, value) in held.items():
        out[at] = values[lane, value]
    return out


def specimen(shape: Shape, title: str = "", swapped: bool = False, guard: str = "") -> Specimen:
    """A warp multiplies one pair of fragments, which it finds in GMEM lane by lane, and adds a third.

    swapped  hands the first two registers of a over in the wrong order
    """
    kind = shape.types[0]
    counts = shape.registers
    names = [[f"%r{8 * j + i}" for i in range(count)] for j, count in enumerate(counts)]
    lines = []
    for name, registers in zip("abc", names, strict=True):
        vector = f".v{len(registers)}" if len(registers) > 1 else ""
        lines.append(f"ld.global{vector}.b32 {_braced(registers)}, [%{name}];")
    a = [names[0][1], names[0][0], *names[0][2:]] if swapped else names[0]
    lists = ["{" + ", ".join(r) + "}" for r in (names[2], a, names[1], names[2])]
    lines += [guard] if guard else []
    types = f"{shape.accumulator}.{kind}.{kind}.{shape.accumulator}"
    lines.append(f"mma.sync.aligned.{shape.text}.row.col.{types} {', '.join(lists)};")
    lines += ["$together:"] if guard else []
    lines.append(f"st.global.v4.b32 [%out], {_braced(names[2])};")

    def meaning(a: Any, b: Any, c: Any) -> Any:
        da, db, dc = shape.fragments
        product = scatter(a.astype(np.float64), da) @ scatter(b.astype(np.float64), db)
        return gather(scatter(c.astype(np.float64), dc) + product, dc)

    per = 32 // shape.bits
    fields = (
        Field("a", kind, counts[0] * per),
        Field("b", kind, counts[1] * per),
        Field("c", shape.accumulator, 4),
        Field("out", shape.accumulator, 4, "out"),
    )
    target = max(shape.target, 80)
    return Specimen(title or f"mma.sync {shape.text} on {kind}", "\n".join(lines), fields, meaning, target, shape.isa)


def _braced(registers: list[str]) -> str:
    return registers[0] if len(registers) == 1 else "{" + ", ".join(registers) + "}"


def _of_target(s: Specimen, target: int, isa: tuple[int, int]) -> Specimen:
    return Specimen(s.title, s.body, s.fields, s.meaning, target, isa)


def _retyped(s: Specimen, old: str, new: str) -> Specimen:
    return Specimen(s.title, s.body.replace(old, new), s.fields, s.meaning, s.target, s.isa)


def cards() -> Iterator[Card]:
    """The card of mma.sync."""
    instruction = MmaSync()
    f16, fp8 = SHAPES[0], SHAPES[8]
    rules = (
        *instruction.type_rules(dtype("f16"), dtype("f16")),
        *instruction.type_rules(dtype("e4m3"), dtype("e4m3")),
    )
    exists = Guarantee(
        "mma.sync shape and types", "shape, operand types and accumulator are one of the table below", "assembler"
    )
    fragments = Guarantee(
        "mma.sync fragments", "the registers hold the fragments pictured below, in their order", "emulator"
    )
    together = Guarantee("mma.sync convergence", "all lanes of the warp execute it together", "emulator")
    good = specimen(f16)
    twins = (
        Twin(rules[0].name, "assembler", good, _of_target(good, 75, (7, 0)), "requires .target sm_80 or higher"),
        Twin(
            rules[1].name,
            "assembler",
            specimen(fp8),
            _of_target(specimen(fp8), 80, fp8.isa),
            "requires .target sm_89 or higher",
        ),
        Twin(exists.name, "assembler", good, _retyped(good, "f32.f16.f16.f32", "f32.f16.bf16.f32"), "mma"),
        Twin(
            fragments.name,
            "emulator",
            good,
            specimen(f16, "mma.sync: two registers of a exchanged", swapped=True),
            WRONG_VALUES,
        ),
        Twin(
            together.name,
            "emulator",
            good,
            specimen(f16, "mma.sync: half a warp", guard="setp.ge.u32 %p0, %t, 16;\n@%p0 bra $together;"),
            "must execute it together",
        ),
    )
    yield Card(
        name="mma.sync",
        instruction=instruction,
        operands=tuple(
            (f"{name} ({' x '.join(map(str, extents))})", "RMEM", f"{count} registers per lane", kind)
            for name, extents, count, kind in zip(
                "abc",
                (("m", "k"), ("k", "n"), ("m", "n")),
                ("m k bits / 1024", "k n bits / 1024", "4"),
                ("see the table", "the same", "f32 or s32"),
                strict=True,
            )
        ),
        rules=rules,
        guarantees=(exists, fragments, together),
        meaning="c += a.astype(accumulator) @ b.astype(accumulator)",
        cost="2 m n k operations of the tensor cores per warp (`tensor_flops`)",
        example=good,
        twins=twins,
        variants=variants,
        pictures=_pictures,
    )


def _pictures() -> tuple[tuple[str, str], ...]:
    """The table of shapes, and who holds what in the fragments of each element width at its longer k."""
    columns = ("shape", "a and b", "accumulator", "registers per lane of a, b, c", "from target", "from .version")
    rows = []
    for s in SHAPES:
        registers = ", ".join(map(str, s.registers))
        rows.append((s.text, ", ".join(s.types), s.accumulator, registers, f"sm_{max(s.target, 80)}", version(s.isa)))
    out = [("Shapes and types; types on one line may be mixed", markdown_table(columns, rows))]
    for s in SHAPES:
        deep = s.k * s.bits == 256
        if not deep or s.types[0] in ("bf16", "e4m3"):
            continue
        a, b, c = s.fragments
        kinds = {16: "f16 and bf16", 32: "tf32", 8: "8-bit types"}[s.bits]
        out.append((f"a of {s.text} ({kinds}): lane and value (T0:V1), row m by column k", picture(a)))
        out.append((f"b of {s.text} ({kinds}): lane and value, row k by column n", picture(b)))
        if s.bits == 16:
            out.append(("c of every shape: lane and value, row m by column n", picture(c)))
    return tuple(out)
