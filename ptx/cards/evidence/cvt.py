"""Evidence for the rules of conversions and rounding: spellings, twins, pictures and the cards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tinygpu.dtypes import DTYPES, dtype
from tinygpu.ptx.cards.evidence.elementwise import Tried, card, register, specimen, statement
from tinygpu.ptx.cards.specimen import (
    TARGETS,
    Card,
    Field,
    Guarantee,
    Specimen,
    Twin,
    Variant,
    compute_capability,
    markdown_table,
    target_twin,
    version,
)
from tinygpu.ptx.isa.cvt import CONVERSIONS, Ceil, Cvt, Floor, Round, Trunc
from tinygpu.ptx.isa.elementwise import Arithmetic

_SAME = "a conversion to the same type does nothing"
_NAN = "what a NaN becomes is not documented for 8-bit integers; it goes through s32"

# What would have to exist for the kinds that are not listed.
TRIED: Mapping[type[Arithmetic], Tried] = {
    Round: Tried(("cvt.rni.{t}.{t}",)),
    Floor: Tried(("cvt.rmi.{t}.{t}",)),
    Ceil: Tried(("cvt.rpi.{t}.{t}",)),
    Trunc: Tried(("cvt.rzi.{t}.{t}",)),
}


def variants() -> Iterator[Variant]:
    """Every ordered pair of element types: those on offer as they are spelled, the others in every rounding mode."""
    kinds = [t.name for t in DTYPES if t.bits >= 8]
    for target, _ in TARGETS:
        cc = compute_capability(target)
        for origin in kinds:
            for to in kinds:
                if (origin, to) in CONVERSIONS:
                    made = Cvt(origin, to)
                    yield Variant(statement(made), target, cc >= made.target)
                    continue
                for mode in ("", "rn.", "rna.", "rni.", "rni.sat.", "sat.", "rn.satfinite."):
                    text = f"cvt.{mode}{to}.{origin} {register(to, 0)}, {register(origin, 1)};"
                    yield Variant(text, target, False, _left_out(origin, to, mode, cc))


def _left_out(origin: str, to: str, mode: str, cc: int) -> str:
    """Why a conversion that exists is not on offer."""
    a = dtype(origin)
    if origin == to:
        exists = {
            "": True,
            "sat.": a.name != "bf16" and a.is_float,
            "rni.": a.is_float,
            "rni.sat.": a.name != "bf16" and a.is_float,
        }.get(mode, False)
        known = a.name in ("f64", "f32", "f16", "bf16", "s32", "u32", "s8", "u8")
        return _SAME if exists and known and (a.name != "bf16" or cc >= 90) else ""
    return _NAN if origin == "f64" and to in ("s8", "u8") and mode in ("rni.", "rni.sat.") else ""


def _table() -> str:
    rows = []
    for origin, to in CONVERSIONS:
        made = Cvt(origin, to)
        text = made.text().format(d="d", a="a")
        rows.append((origin, to, f"`{text}`", f"sm_{max(made.target, 80)}", version(made.isa)))
    return markdown_table(("from", "to", "PTX", "from target", "from .version"), rows)


def cards() -> Iterator[Card]:
    """The cards of conversions and roundings."""
    instruction = Cvt("f32", "f16")
    example = specimen(instruction)
    pairs = Guarantee("cvt pairs", "the pair of types is one of the table below", "assembler")
    young = Guarantee(
        "cvt target", "8-bit floats exist from sm_89 on, direct conversions of bf16 from sm_90 on", "assembler"
    )
    bad = Specimen(
        "cvt: f32 to e4m3 alone", "cvt.rn.satfinite.e4m3.f32 %r0, %r1;", (Field("out", "f32", 1, "out"),), lambda: None
    )
    fp8 = specimen(Cvt("f32", "e4m3"))
    old = Specimen(fp8.title, fp8.body, fp8.fields, fp8.meaning, 87, fp8.isa)
    twins = (
        target_twin(instruction, example),
        Twin(pairs.name, "assembler", fp8, bad, "cvt"),
        Twin(young.name, "assembler", fp8, old, "requires .target sm_89 or higher"),
    )
    yield Card(
        name="cvt",
        instruction=instruction,
        operands=(("a", "RMEM", "one per element", "from"), ("result", "RMEM", "one per element", "to")),
        rules=(instruction.target_rule(),),
        guarantees=(pairs, young),
        meaning="d = a.astype(to): floats to nearest even, tf32 ties away; integers, 8-bit floats saturate; NaN to 0",
        cost=f"one slot of the {instruction.unit} unit per element",
        example=example,
        twins=twins,
        variants=variants,
        pictures=lambda: (("Pairs", _table()),),
    )
    for operation, name, meaning in (
        (Round, "round", "d = numpy.rint(a)"),
        (Floor, "floor", "d = numpy.floor(a)"),
        (Ceil, "ceil", "d = numpy.ceil(a)"),
        (Trunc, "trunc", "d = numpy.trunc(a)"),
    ):
        yield card(operation, name, meaning, "s8", "cvt", TRIED[operation])
