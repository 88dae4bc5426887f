"""Operators and functions of tiles: a machine computes what Python makes of the same expression of arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from negation import Later, around, refused, thing

import tinygpu as tg
from tinygpu.language import (
    DeclarationError,
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Scalar,
    blocked,
    cos,
    equal,
    exp,
    exp2,
    floor,
    gelu,
    log,
    log2,
    maximum,
    reciprocal,
    relu,
    rsqrt,
    sigmoid,
    silu,
    sin,
    sqrt,
    tanh,
    where,
)
from tinygpu.machines.elementwise import elementwise
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.program.tree import walk
from tinygpu.ptx import isa

# --- what stands for an operator ----------------------------------------------------------------------------------

Inner = Callable[[Any, Any, Any], Any]


def machine(inner: Inner, **attributes: Any) -> type[Machine]:
    """y = what `inner` makes of the machine, the tracer and the tile of x."""

    @around
    def program(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        p.store(self.st, y, inner(self, p, p.load(self.ld, x, who)))

    return thing(program, leave_out=("neg",), **attributes)


def listing(made: type[Machine]) -> list[str]:
    """What the program says, without what it loads and stores."""
    space = tg.space(made, n=64, device="a100")
    lines = [s.headline(frozenset()) for s in walk(space.program(space.sample(1)[0]).body)]
    return [line for line in lines if line.startswith("%") and " ld " not in line]


ALL = isa.arithmetic("f32")


def test_an_operator_is_the_declared_instruction_whatever_its_class() -> None:
    class Triple(isa.Mul):
        """d = a * b, spelled by its author"""

    assert listing(machine(lambda self, p, x: x * 3, triple=Triple("f32"))) == ["%v2 = triple %v1, 3"]
    # what a class declares by itself comes before what its groups have
    assert listing(machine(lambda self, p, x: x * 3 + 1, every=ALL, triple=Triple("f32"))) == [
        "%v2 = triple %v1, 3", "%v3 = add.rn.f32 %v2, 1",
    ]  # fmt: skip


def test_functions_are_made_of_others_where_nothing_means_them() -> None:
    ex2, mul, div, sqrt = isa.Ex2("f32"), isa.Mul("f32"), isa.Div("f32"), isa.Sqrt("f32")
    assert listing(machine(lambda self, p, x: exp(x), ex2=ex2, mul=mul)) == [
        "%v2 = mul %v1, 1.4427", "%v3 = ex2 %v2",
    ]  # fmt: skip
    assert listing(machine(lambda self, p, x: rsqrt(x), div=div, sqrt=sqrt)) == ["%v2 = sqrt %v1", "%v3 = div 1, %v2"]
    assert listing(machine(lambda self, p, x: 1 / x, rcp=isa.Rcp("f32"))) == ["%v2 = rcp %v1"]
    assert listing(machine(lambda self, p, x: 1 / x, rcp=isa.Rcp("f32"), div=div)) == ["%v2 = div 1, %v1"]
    assert listing(machine(lambda self, p, x: reciprocal(x), rcp=isa.Rcp("f32"), div=div)) == ["%v2 = rcp %v1"]


def test_a_number_that_is_written_as_a_float_is_no_integer() -> None:
    both = {"every": ALL, "whole": isa.arithmetic("s32")}
    assert "selp.f32" in listing(machine(lambda self, p, x: where(x > 0.0, 1.0, 0.0), **both))[-1]
    with pytest.raises(DeclarationError, match=r"may be selp\.f32 and selp\.s32, which both mean it"):
        machine(lambda self, p, x: where(x > 0.0, 1, 0), **both)


def test_a_product_becomes_part_of_a_sum_only_where_the_machine_says_so() -> None:
    def total(self: Any, p: Any, x: Any) -> Any:
        return x * 3 + 1

    assert listing(machine(total, every=ALL)) == ["%v2 = mul.rn.f32 %v1, 3", "%v3 = add.rn.f32 %v2, 1"]
    assert listing(machine(total, every=ALL, contract=True)) == ["%v3 = fma.rn.f32 %v1, 3, 1"]
    without = {"mul": isa.Mul("f32"), "add": isa.Add("f32")}
    assert listing(machine(total, **without, contract=True)) == ["%v2 = mul %v1, 3", "%v3 = add %v2, 1"]


def test_a_product_that_is_used_again_is_made_as_well() -> None:
    def total(self: Any, p: Any, x: Any) -> Any:
        product = x * 3
        return (1 + product) - product

    assert listing(machine(total, every=ALL, contract=True)) == [
        "%v2 = mul.rn.f32 %v1, 3", "%v3 = fma.rn.f32 %v1, 3, 1", "%v4 = sub.rn.f32 %v3, %v2",
    ]  # fmt: skip


def test_a_product_of_what_is_written_since_stays_a_product() -> None:
    def total(self: Any, p: Any, x: Any) -> Any:
        product = x * 3
        x += 1
        return product + x

    assert listing(machine(total, every=ALL, contract=True)) == [
        "%v2 = mul.rn.f32 %v1, 3", "%v1 = add.rn.f32 %v1, 1", "%v3 = add.rn.f32 %v2, %v1",
    ]  # fmt: skip


def test_augmented_operators_write_in_place_as_those_of_arrays() -> None:
    def total(self: Any, p: Any, x: Any) -> Any:
        sum_of = p.full(x.partition, "f32")
        with p.loop(self.n, step=32):
            sum_of += x * 2
        return sum_of

    made = machine(total, every=ALL, contract=True, exact=False, reference=staticmethod(lambda x: 0 * x))
    assert "%v2 = fma.rn.f32 %v1, 2, %v2" in listing(made)


def test_narrow_operands_are_converted_once_and_results_where_they_are_stored() -> None:
    def half(inner: Inner, **attributes: Any) -> type[Machine]:
        declared = {"x": Later(lambda n: Input("f16", n)), "y": Later(lambda n: Output("f16", n))}
        return machine(inner, **declared, **attributes)

    made = half(lambda self, p, x: x * x + 1, every=ALL, compute="f32")
    assert listing(made) == [
        "%v2 = cvt.f32.f16 %v1", "%v3 = mul.rn.f32 %v2, %v2", "%v4 = add.rn.f32 %v3, 1", "%v5 = cvt.rn.f16.f32 %v4",
    ]  # fmt: skip

    def summed(self: Any, p: Any, x: Any) -> Any:
        y = x * 2
        x += y
        return x * y  # of the x that was written

    assert listing(half(summed, every=ALL, compute="f32")) == [
        "%v2 = cvt.f32.f16 %v1", "%v3 = mul.rn.f32 %v2, 2", "%v4 = add.rn.f32 %v2, %v3", "%v1 = cvt.rn.f16.f32 %v4",
        "%v5 = cvt.f32.f16 %v1", "%v6 = mul.rn.f32 %v5, %v3", "%v7 = cvt.rn.f16.f32 %v6",
    ]  # fmt: skip
    # without a rule nothing is converted
    own = half(lambda self, p, x: x * x, mul=isa.Mul("f16"))
    assert listing(own) == ["%v2 = mul %v1, %v1"]
    refused(
        lambda: half(lambda self, p, x: x * x, mul=isa.Mul("f32")),
        "Thing.program: %v1 * %v1 is of f16, and the machine declares no instruction whose sign is '*' for that; "
        'declare one, as isa.Mul("f16"), or all usual ones, as isa.arithmetic("f16")',
    )
    refused(
        lambda: half(lambda self, p, x: x * x, mul=isa.Mul("f32"), compute="f32"),
        "Thing.program: %v1 is f16, and the machine declares no conversion to f32; declare one, as "
        'isa.Cvt("f16", "f32"), or all usual ones, as isa.arithmetic("f32")',
    )
    refused(
        lambda: half(lambda self, p, x: x + p.full(x.partition, "f32"), every=ALL),
        "Thing.program: %v1 + %v2 is of f16 and f32; convert one of them, with p.cast, or say in the class in which "
        'type the machine computes, as compute = "f32"',
    )


@pytest.mark.end_to_end
def test_what_a_block_or_a_verb_wrote_is_no_factor_and_no_operand_any_more() -> None:
    """Products that became part of a sum, and conversions that were made before."""

    def looped(self: Any, p: Any, x: Any) -> Any:
        product = x * 3
        with p.loop(self.n, step=32):
            x += 1
        return product + x

    rounds = staticmethod(lambda x: 3 * x + x + -(-len(x) // 32))
    made = machine(looped, every=ALL, contract=True, reference=rounds)
    assert tg.verify(tg.emit(tg.space(made, n=100, device="a100"))).passed

    def applied(self: Any, p: Any, x: Any) -> Any:
        wide = x * 1
        p.apply(self.own, x, x, into=x)
        return x + wide

    declared = {"x": Later(lambda n: Input("f16", n)), "y": Later(lambda n: Output("f16", n))}
    made = machine(
        applied, every=ALL, own=isa.Add("f16"), compute="f32", exact=False, approximation=2.0**-10,
        reference=staticmethod(lambda x: 2 * x + x), **declared,
    )  # fmt: skip
    kernel = tg.emit(tg.space(made, n=100, device="a100"))
    x = np.arange(100).astype(np.float16)
    assert np.array_equal(tg.emulate(kernel, x), 3 * x)


def test_a_transpose_is_another_operand() -> None:
    """Of what was converted, and of a product that may become part of a sum."""

    class Symmetric(Machine):
        """y = 3 x.T + x, of f16, summed in f32"""

        n = Dim()
        x, y = Input("f16", n, n), Output("f16", n, n)
        warps = Param(1)
        ld, st, every = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("f32")
        compute, contract, exact = "f32", True, False

        def program(self, p: Any) -> None:
            who = blocked((8, 8), threads=32, across=8)
            with p.grid((self.n, 8), (self.n, 8)) as (i, j), p.role("all", warps=self.warps):
                x = p.load(self.ld, self.x.tile(i, j, shape=(8, 8)), who)
                turned = p.load(self.ld, self.x.tile(j, i, shape=(8, 8)), who.T)
                p.store(self.st, self.y.tile(i, j, shape=(8, 8)), (turned * 3).T + x + (turned.T - turned.T))

        @staticmethod
        def reference(x: Any) -> Any:
            return 3 * x.T + x + (x.T - x.T)

    assert tg.verify(tg.emit(tg.space(Symmetric, n=40, device="a100"))).passed


def test_a_loop_converts_anew_what_it_writes() -> None:
    def grown(self: Any, p: Any, x: Any) -> Any:
        y = x * 1
        with p.loop(self.n, step=32):
            x += x
        return x + y

    declared = {"x": Later(lambda n: Input("f16", n)), "y": Later(lambda n: Output("f16", n))}
    doubled = staticmethod(lambda x: x * 2.0 ** (-(-len(x) // 32)) + x)
    made = machine(grown, every=ALL, compute="f32", exact=False, reference=doubled, **declared)
    assert tg.verify(tg.emit(tg.space(made, n=100, device="a100"))).passed


REFUSED: list[tuple[Inner, dict[str, Any], str]] = [
    (
        lambda self, p, x: x / 3,
        {},
        "%v1 / 3 is of f32, and the machine declares no instruction whose sign is '/' for that; declare one, as "
        'isa.Div("f32"), or all usual ones, as isa.arithmetic("f32")',
    ),
    (
        lambda self, p, x: where(x >= 0, x, 1),
        {},
        "%v1 >= 0 is of f32, and the machine declares no instruction whose sign is '>=' for that; declare one, as "
        'isa.Compare("f32", ">="), or all usual ones, as isa.arithmetic("f32")',
    ),
    (
        lambda self, p, x: maximum(x, self.a),
        {},
        "maximum(%v1, a) is of f32, and the machine declares no instruction whose sign is 'maximum' for that; declare "
        'one, as isa.Max("f32"), or all usual ones, as isa.arithmetic("f32")',
    ),
    (
        lambda self, p, x: x / 3,
        {"quick": isa.DivFull("f32"), "rounded": isa.Div("f32")},
        "%v1 / 3 may be quick and rounded, which both mean it; say which is meant, with p.apply",
    ),
    (
        lambda self, p, x: self.x.tile(0, shape=(32,)) + x,
        {"every": ALL},
        "x[0:+32] + %v1: x lies in GMEM, and operators are of values in registers; load it first",
    ),
    (
        lambda self, p, x: x + "a",
        {"every": ALL},
        "%v1 + a: operands are tiles, scalars, dims and numbers, not 'a'",
    ),
    (
        lambda self, p, x: max(x, x + 1),
        {"every": ALL},
        "the elements of a tile are not known while a program is traced; write where(x > y, x, y) to choose, and "
        "&, | and ~ for and, or and not",
    ),
    (
        lambda self, p, x: x if 2 * self.a > 0 else -x,
        {"every": ALL},
        "((2 * a) > 0) is not known while a program is traced; write where((2 * a) > 0, x, y)",
    ),
    (
        lambda self, p, x: max(x, self.a),
        {"every": ALL},
        "the elements of a tile are not known while a program is traced; write where(x > y, x, y) to choose, and "
        "&, | and ~ for and, or and not",
    ),
    (
        lambda self, p, x: x * (1 - self.a),
        {"mul": isa.Mul("f32")},
        "1 - %v2 is of f32, and the machine declares no instruction whose sign is '-' for that; declare one, as "
        'isa.Sub("f32"), or all usual ones, as isa.arithmetic("f32")',
    ),
    (
        lambda self, p, x: p.full(x.partition, "s32", 1 - self.a),
        {"every": ALL},
        "the constant is s32, and (1 - a) is f32",
    ),
    (
        lambda self, p, x: p.full(x.partition, "s32", self.a),
        {"every": ALL},
        "the constant is s32, and the scalar a is f32",
    ),
    (
        lambda self, p, x: p.full(x.partition, "f16", self.n),
        {"every": ALL},
        "the constant is f16; the number n can be f32, s32 or u32",
    ),
    (
        lambda self, p, x: p.apply(self.mul, 1 - self.a, 2.0),
        {"mul": isa.Mul("f32")},
        "mul takes tiles, scalars, dims and numbers, not the number (1 - a) of the launch",
    ),
    (
        lambda self, p, x: x * (1 / self.n),
        {"every": ALL},
        "1 / n: sizes are whole numbers; write // for a whole quotient, or divide a tile, as x / n",
    ),
    (
        lambda self, p, x: x**5,
        {"every": ALL},
        "%v1 ** 5: a tile has the powers 2 to 4; others are sqrt(x), rsqrt(x) or exp2(log2(x) * y)",
    ),
    (
        lambda self, p, x: equal(x, True),
        {"every": ALL},
        "%v1 == True: operands are tiles, scalars, dims and numbers, not True",
    ),
]


@pytest.mark.parametrize(("inner", "attributes", "sentence"), REFUSED, ids=[s[:30] for *_, s in REFUSED])
def test_what_no_instruction_means_is_told(inner: Inner, attributes: dict[str, Any], sentence: str) -> None:
    scaled = {"a": Scalar("f32"), "reference": staticmethod(lambda x, a: x)}
    refused(lambda: machine(inner, **scaled, **attributes), f"Thing.program: {sentence}")


def test_a_rule_for_types_names_a_type_that_numbers_are_computed_in() -> None:
    refused(
        lambda: machine(lambda self, p, x: x * x, every=ALL, compute="s8"),
        "Thing.compute: the type in which operators compute is f64, f32, f16 or bf16, not 's8'",
    )
    refused(
        lambda: machine(lambda self, p, x: x * x, every=ALL, contract="yes"),
        "Thing.contract: it is True or False, whether x * y + z may be rounded once, not 'yes'",
    )


def test_a_group_is_one_kind_of_instruction() -> None:
    def long(self: Any, p: Any, x: Any) -> Any:
        found = x
        for function in (exp2, log2, sqrt, rsqrt, tanh, sin, cos, floor, abs, reciprocal):
            found = function(found)
        return found * 2

    others = {f"i{number}": made for number, made in enumerate((
        isa.LdShared(1), isa.StShared(1), isa.CpAsync(1), isa.TmaLoad(), isa.TmaStore(), isa.LdMatrix(), isa.StMatrix(),
        isa.MmaSync(), isa.Wgmma(8), isa.ShflBfly(),
    ))}  # fmt: skip
    beside = {"add": isa.Add("f32"), "exp": isa.Ex2("f32")}
    assert len(ALL.members) > 40
    assert machine(long, every=ALL, **beside, **dict(list(others.items())[:9])).dim_names()
    refused(
        lambda: machine(long, every=ALL, **others),
        "Thing: a small machine has about ten instructions at most, not 13",
    )


@pytest.mark.end_to_end
def test_a_chain_has_several_outputs_by_name() -> None:
    both = elementwise(
        "Both", lambda x, z: {"y": x * z, "top": maximum(x, z)},
        inputs={"x": ("f16", ("m", "n")), "z": ("f32", ("n",))},
        output={"y": ("bf16", ("m", "n")), "top": ("f32", ("m", "n"))},
    )  # fmt: skip
    assert both.summary() == "y, top = Both(x, z), element by element"
    assert tg.verify(tg.emit(tg.space(both, m=5, n=70, device="a100"))).passed
    with pytest.raises(DeclarationError) as error:
        elementwise("Odd", relu, inputs={"x": ("f32", ("n",))}, output={"y": ("f32", ("n",)), "z": ("f32", ("m",))})
    assert str(error.value) == "Odd: z has the dims m, and the first output n; all have the same"


class Gated(MatmulAmpere):
    """c = x * sigmoid(x) + x / 3, of x = a @ b: an epilogue of one's own"""

    arithmetic = isa.arithmetic("f32")

    def finish(self, p: Any, product: Any, i: Any, j: Any) -> Any:
        return p.cast(silu(product) + product / 3, self.c.dtype)

    @classmethod
    def uses_scalar(cls, name: str, options: dict[str, Any]) -> bool:
        return False

    @staticmethod
    def reference(a: Any, b: Any, **options: Any) -> Any:
        x = a @ b
        return silu(x) + x / 3


@pytest.mark.end_to_end
def test_an_expression_is_the_epilogue_of_a_matmul() -> None:
    point = {"bm": 64, "bn": 32, "bk": 32}
    assert tg.verify(tg.emit(tg.space(Gated, m=64, n=40, k=64, device="a100"), point)).passed


def test_there_is_arithmetic_of_six_types() -> None:
    with pytest.raises(ValueError, match=r"^there is arithmetic for f32, f64, f16, bf16, s32, u32, and not for 's8'$"):
        isa.arithmetic("s8")
    assert str(isa.arithmetic("f32", approximate=True)) == 'arithmetic("f32", approximate=True)'


def test_functions_of_arrays_are_numpys() -> None:
    x = np.linspace(-3, 3, 13)
    np.testing.assert_allclose(sigmoid(x), 1 / (1 + np.exp(-x)))
    np.testing.assert_allclose(silu(x), x / (1 + np.exp(-x)))
    np.testing.assert_array_equal(log(abs(x) + 1), np.log(abs(x) + 1))
    np.testing.assert_array_equal(maximum(x, 0.0, 1.0), np.maximum(np.maximum(x, 0.0), 1.0))
    np.testing.assert_allclose(gelu(x), 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3))))


def test_the_page_says_how_far_functions_are_from_exact_values() -> None:
    page = (Path(__file__).parents[3] / "docs" / "language.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `") and line.count(" | ") >= 3]
    for group in (isa.arithmetic("f32"), isa.arithmetic("f32", approximate=True)):
        for member in group:
            accuracy = member.error() if hasattr(member, "error") else None
            if accuracy is None or member.elements()[1] != "f32":
                continue
            (row,) = [r for r in rows if f"`{type(member).__name__}`" in r]
            for amount, word in ((accuracy.relative, "relative"), (accuracy.absolute, "absolute")):
                if amount > 2.0**-100:
                    assert f"2^{np.log2(amount):g} {word}" in row, row
            if not accuracy.relative and not accuracy.absolute:
                assert "rounded once" in row or "exact" in row, row


def test_what_two_groups_have_is_meant_once() -> None:
    def masked(self: Any, p: Any, x: Any) -> Any:
        return where((x > 0) & (x < 9), x, 0.0)

    assert machine(masked, every=ALL, whole=isa.arithmetic("s32")).dim_names()
