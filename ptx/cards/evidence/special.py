"""Evidence for the rules of special functions: spellings, twins, pictures and the cards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tinygpu.ptx.cards.evidence.elementwise import Tried, card
from tinygpu.ptx.cards.specimen import Card
from tinygpu.ptx.isa.elementwise import Arithmetic
from tinygpu.ptx.isa.ex2_fma import Ex2Fma
from tinygpu.ptx.isa.special import Cos, DivFull, Ex2, Lg2, Rcp, RcpApprox, Rsqrt, Sin, Special, Sqrt, SqrtApprox, Tanh

# What would have to exist for the kinds that are not listed.
TRIED: Mapping[type[Arithmetic], Tried] = {
    Ex2: Tried(
        (
            "ex2.approx.{t}",
            "ex2.approx.ftz.{t}",
        )
    ),
    Lg2: Tried(("lg2.approx.{t}",)),
    Rcp: Tried(("rcp.rn.{t}",)),
    RcpApprox: Tried(("rcp.approx.ftz.{t}",), {"f64": "it gives 20 bits of the 53; Rcp gives all of them"}),
    Sqrt: Tried(("sqrt.rn.{t}",)),
    SqrtApprox: Tried(("sqrt.approx.{t}",)),
    Rsqrt: Tried(
        ("rsqrt.approx.{t}",), {"f64": "an approximation of unstated accuracy; Sqrt and Rcp are correctly rounded"}
    ),
    Tanh: Tried(("tanh.approx.{t}",)),
    Sin: Tried(("sin.approx.{t}",)),
    Cos: Tried(("cos.approx.{t}",)),
    DivFull: Tried(("div.full.{t}",)),
}


def cards() -> Iterator[Card]:
    """The cards of the special functions."""
    listed: tuple[tuple[type[Special], str, str, str], ...] = (
        (Ex2, "ex2", "d = numpy.exp2(a)", "f64"),
        (Lg2, "lg2", "d = numpy.log2(a)", "f16"),
        (Rcp, "rcp", "d = 1 / a", "f16"),
        (RcpApprox, "rcp.approx", "d = 1 / a", "f16"),
        (Sqrt, "sqrt", "d = numpy.sqrt(a)", "f16"),
        (SqrtApprox, "sqrt.approx", "d = numpy.sqrt(a)", "f16"),
        (Rsqrt, "rsqrt", "d = 1 / numpy.sqrt(a)", "f16"),
        (Tanh, "tanh", "d = numpy.tanh(a)", "f64"),
        (Sin, "sin", "d = numpy.sin(a)", "f16"),
        (Cos, "cos", "d = numpy.cos(a)", "f16"),
        (DivFull, "div.full", "d = a / b", "f64"),
    )
    for operation, name, meaning, illegal in listed:
        yield card(operation, name, meaning, illegal, "Unexpected instruction types specified for", TRIED[operation])
    narrow = "ex2 makes two of 16 bits at once, which a polynomial does not come near"
    tried = Tried(("ex2.approx.{t}", "ex2.approx.ftz.{t}"), dict.fromkeys(("f16", "bf16"), narrow))
    made = card(Ex2Fma, "ex2.fma", "d = numpy.exp2(a)", "f64", "Unexpected instruction types specified for", tried)
    cost = "degree + 4 slots of the FMA lanes and 2 of the integer lanes per element"
    yield replace(made, cost=cost)
