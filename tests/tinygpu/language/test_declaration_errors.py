"""Every mistake in a declaration is told when the class is made, in a sentence that names class and attribute."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from negation import UNKNOWN, Later, around, refused, right, thing

from tinygpu.expressions import symbol
from tinygpu.language import (
    AccessPattern,
    Choice,
    DeclarationError,
    Dim,
    Input,
    Machine,
    Option,
    Output,
    Param,
    Require,
    Route,
    Scalar,
    UnknownLayout,
    blocked,
)
from tinygpu.ptx import isa


def test_the_machine_without_a_mistake_is_declared() -> None:
    assert thing().dim_names() == ("n",)


# --- attributes ---------------------------------------------------------------------------------------------------

FOURTEEN: dict[str, Any] = {
    f"i{kind.__name__}": kind("f32")
    for kind in (isa.Add, isa.Sub, isa.Mul, isa.Fma, isa.Max, isa.Min, isa.Abs, isa.Ex2, isa.Lg2, isa.Sqrt, isa.Rcp)
}


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"q": lambda: Param()}, "Thing.q: a Param needs at least one value"),
        (
            {"q": lambda: Param(-1, 2)},
            "Thing.q: a Param takes non-negative integers, not -1; other choices are a Choice",
        ),
        (
            {"q": lambda: Param(1.5)},
            "Thing.q: a Param takes non-negative integers, not 1.5; other choices are a Choice",
        ),
        (
            {"q": lambda: Param(True)},
            "Thing.q: a Param takes non-negative integers, not True; other choices are a Choice",
        ),
        (
            {"q": lambda: AccessPattern(-4)},
            "Thing.q: a Param takes non-negative integers, not -4; other choices are a Choice",
        ),
        ({"q": lambda: Param(1, 1)}, "Thing.q: a Param lists each value once, not (1, 1)"),
        ({"c": lambda: Choice("a")}, "Thing.c: a Choice needs at least two options, not 1"),
        (
            {"c": lambda: Choice("a", "a")},
            "Thing.c: two options of the Choice are called 'a'; each has a name of its own",
        ),
        (
            {"c": lambda: Choice(isa.LdGlobal(1), isa.LdGlobal(2))},
            "Thing.c: two options of the Choice are called 'ld.global'; each has a name of its own",
        ),
        ({"e": lambda: isa.Exchange("tree")}, "Thing.e: an Exchange is by shuffles, pairs or redux, not by 'tree'"),
        ({"o": lambda: Option()}, "Thing.o: an Option needs at least one value"),
        ({"a": lambda: Scalar("f16")}, "Thing.a: a Scalar is f32, s32 or u32, not 'f16'"),
        ({"x": lambda: Later(lambda n: Input("f33", n))}, f"Thing.x: {UNKNOWN}"),
        ({"x": lambda: Input("f32")}, "Thing.x: a tensor needs at least one dim"),
        (
            {"x": lambda: Input("f32", 2.5)},
            "Thing.x: a tensor's dims are Dims of the machine, numbers or Options, not 2.5",
        ),
        ({"x": lambda: Input("f32", 0)}, "Thing.x: a dim has 1 element or more, not 0"),
        ({"x": lambda: Input("f32", 1, 2, 3, 4, 5, 6)}, "Thing.x: a tensor has 5 dims at most, not 6"),
        (
            {"x": lambda: Input("f32", Option(8, True))},
            "Thing.x: an Option that is a dim has whole numbers from 1 on, not True",
        ),
        ({"n": lambda: Dim(0)}, "Thing.n: a Dim is a whole number from 1 to 2147483647, not 0"),
        ({"n": lambda: Dim(64, 64)}, "Thing.n: a Dim lists each of its values once, not (64, 64)"),
        (
            {"x": lambda: Later(lambda n: Input("f32", n, 3, majors=("row", (n,))))},
            "Thing.x: an order among majors has each of the 2 dims once, the slowest first",
        ),
        (
            {"x": lambda: Later(lambda n: Input("f32", n, n, majors=((n, n),)))},
            "Thing.x: majors tell dims apart by name, and a dim occurs twice; leave the orders out",
        ),
        (
            {"x": lambda: Later(lambda n: Input("f32", n, majors=("row", "col")))},
            "Thing.x: only a tensor with two dims can be column-major, not one with 1",
        ),
        (
            {"x": lambda: Later(lambda n: Input("f32", n, majors=("up",)))},
            "Thing.x: majors are 'row', 'col' or tuples of the dims, not ('up',)",
        ),
        (
            {"x": lambda: Later(lambda n: Input({"f16": ("f16",)}, n))},
            "Thing.x: a tensor that follows another gives its dtypes per dtype of that one, as a dict",
        ),
        ({"rule": lambda: Require(True, "more")}, "Thing.rule: a Require takes a condition on parameters, not True"),
        (
            {"rule": lambda: Require(symbol("warps") > 1, "more", kind="dominance")},
            "Thing.rule: a dominance constraint says why what it removes is never the best; give why=...",
        ),
        (
            {"rule": lambda: Require(symbol("wraps") > 1, "more")},
            "Thing.rule: the constraint names 'wraps', which is not declared",
        ),
        (
            {"rule": lambda: Require(symbol("z.ld") > 1, "more")},
            "Thing.rule: the constraint names 'z.ld', which is not declared",
        ),
        (
            {"heuristics": lambda: ("speed",)},
            "Thing.heuristics: unknown heuristic 'speed'; "
            "known: coalescing, bank conflicts, occupancy, locality, L1, and instances of a Heuristic of your own",
        ),
        ({"params": lambda: Param(1, 2)}, "Thing.params: this name belongs to Machine; choose another one"),
        ({"problem": lambda: isa.Add("f32")}, "Thing.problem: this name belongs to Machine; choose another one"),
        (
            {"tile0": lambda: Param(1, 2)},
            "Thing.tile0: this name is used for tiles, loops and devices in expressions; choose another one",
        ),
        (
            {"i12": lambda: Param(1, 2)},
            "Thing.i12: this name is used for tiles, loops and devices in expressions; choose another one",
        ),
        (
            {"device": lambda: Param(1, 2)},
            "Thing.device: this name is used for tiles, loops and devices in expressions; choose another one",
        ),
        ({"smem": lambda: Scalar("f32")}, "Thing.smem: this name belongs to the kernel; choose another one"),
        ({"é": lambda: Scalar("f32")}, "Thing.é: an argument of a kernel has an ASCII name that begins with a letter"),
        (
            {"_a": lambda: Scalar("f32")},
            "Thing._a: an argument of a kernel has an ASCII name that begins with a letter",
        ),
        (
            {"x_ptr": lambda: Scalar("f32")},
            "Thing.x_ptr: the pointer of x has this name in a kernel; choose another one",
        ),
        (
            {"y_ld": lambda: Scalar("f32")},
            "Thing.y_ld: the leading dimension of y has this name in a kernel; choose another one",
        ),
        (
            {"a": lambda: Scalar("f32")},
            "Thing.reference: it is called with x, a, by name, and takes x",
        ),
        (
            {"reference": lambda: staticmethod(lambda: 0)},
            "Thing.reference: it is called with x, by name, and takes nothing",
        ),
        (
            {"reference": lambda: staticmethod(lambda x, z: x)},
            "Thing.reference: it is called with x, by name, and takes x, z",
        ),
        (
            {"ld": lambda: isa.LdGlobal(Param(1, 2))},
            "Thing.program: a Param is used before it has a name; assign it to an attribute first",
        ),
    ],
)
def test_a_wrong_attribute_is_named(attributes: dict[str, Callable[[], Any]], sentence: str) -> None:
    refused(lambda: thing(**{name: make() for name, make in attributes.items()}), sentence)


@pytest.mark.parametrize(
    ("leave_out", "sentence"),
    [
        (("n", "x", "y"), "Thing: a machine declares at least one Dim"),
        (("y",), "Thing: a machine declares at least one Output or InOut"),
        (("reference",), "Thing.reference: a machine says what it computes, as a static method in NumPy"),
    ],
)
def test_what_is_missing_is_named(leave_out: tuple[str, ...], sentence: str) -> None:
    refused(lambda: thing(leave_out=leave_out), sentence)


def test_too_many_instructions() -> None:
    """Twelve with the three that it uses, counted by kind: two of one kind are one."""
    names = list(FOURTEEN)
    again = {"again": isa.Add("f16"), "alike": isa.LdGlobal(1)}
    assert thing(**{name: FOURTEEN[name] for name in names[:9]}, **again).dim_names() == ("n",)
    for count in (13, 14):
        sentence = f"Thing: a small machine has about ten instructions at most, not {count}"
        refused(lambda count=count: thing(**{name: FOURTEEN[name] for name in names[: count - 3]}), sentence)


def test_one_name_for_two_declarations() -> None:
    def twice() -> None:
        class Thing(Machine):
            n = Dim()
            n = Param(1, 2)  # type: ignore[assignment]  # noqa: PIE794

    refused(twice, "Thing.n: declared twice; every declaration has a name of its own")


def test_two_names_for_one_declaration() -> None:
    def shared() -> None:
        class Thing(Machine):
            n = Dim()
            m = n

    refused(shared, "Thing.m: this declaration already belongs to 'n'; declare another one")


def test_a_kernel_cannot_be_called_like_its_memory() -> None:
    """The assembler takes the process down when an entry and a variable share their name."""

    def make() -> None:
        class Smem(Machine):
            n = Dim()
            y = Output("f32", n)
            reference = staticmethod(lambda: 0)
            program = right

    refused(make, "Smem: a kernel is called like its machine, and cannot be called 'smem'; choose another name")


def test_dtypes_that_follow_are_given_for_every_dtype_of_the_other() -> None:
    def make() -> None:
        class Thing(Machine):
            n = Dim()
            x = Input(("f16", "f32"), n)
            y = Output({"f16": ("f16",)}, n, follows=x)

    refused(make, "Thing.y: the dtypes are given for f16, and x can be f16, f32")


# --- the program: values ------------------------------------------------------------------------------------------


def load(self: Any, p: Any, x: Any, y: Any, who: Any) -> Any:
    return p.load(self.ld, x, who)


@pytest.mark.parametrize(
    ("inner", "sentence"),
    [
        (load, "the ld of x (%v1) is never used; store it, or leave it out"),
        (
            lambda self, p, x, y, who: p.apply(self.neg, p.load(self.ld, x, who)),
            "the result of neg (%v2) is never used; store it, or leave it out",
        ),
        (lambda self, p, x, y, who: None, "nothing is stored into y, which is declared out"),
        (
            lambda self, p, x, y, who: p.store(self.st, x, p.load(self.ld, x, who)),
            "st writes x, which is declared Input; declare it Output or InOut",
        ),
        (
            lambda self, p, x, y, who: p.load(self.ld, x, blocked((64,), threads=64)),
            "ld moves x as 32*warps, but its partition is for 64",
        ),
        (
            lambda self, p, x, y, who: p.load(self.st, x, who),
            "st (st.global) reads RMEM, but the operand lies in GMEM: no instruction brings it from GMEM to RMEM",
        ),
        (
            lambda self, p, x, y, who: p.store(self.ld, y, p.load(self.ld, x, who)),
            "ld (ld.global) reads GMEM, but the operand lies in RMEM: no instruction brings it from RMEM to GMEM",
        ),
        (
            lambda self, p, x, y, who: p.load("ld", x, who),
            "p.load takes a Transfer, MatrixLoad or CellLoad, not 'ld'; the machine's body declares it "
            "(ld = isa.LdGlobal(4)), and the program names it self.ld",
        ),
        (lambda self, p, x, y, who: p.apply(self.neg, load(self, p, x, y, who), 1.0), "neg takes 1 operand, not 2"),
        (lambda self, p, x, y, who: p.apply(self.neg, 1.0), "neg has no tile among its operands"),
        (
            lambda self, p, x, y, who: p.apply(isa.Add("f32"), load(self, p, x, y, who), "1"),
            "add.rn.f32 takes tiles, scalars, dims and numbers, not '1'",
        ),
        (
            lambda self, p, x, y, who: p.apply(isa.Add("f16"), load(self, p, x, y, who), 1.0),
            "add.rn.f16 takes f16 here, and v1 is f32; convert it first",
        ),
        (
            lambda self, p, x, y, who: p.store(self.st, y, p.apply(isa.Cvt("f32", "f16"), load(self, p, x, y, who))),
            "st stores f16 values into y, which is f32; convert first",
        ),
        (
            lambda self, p, x, y, who: p.apply(
                isa.Add("f32"), load(self, p, x, y, who), p.full(blocked((64,), threads=self.warps * 32), "f32")
            ),
            "add.rn.f32 mixes extents 64 and 32*warps along axis 0",
        ),
        (
            lambda self, p, x, y, who: p.reduce(isa.Add("f32"), load(self, p, x, y, who), axis=3, by=isa.ShflBfly()),
            "add.rn.f32 reduces along axis 3, and %v1 has axis 0 only",
        ),
        (
            lambda self, p, x, y, who: p.reduce(isa.Neg("f32"), load(self, p, x, y, who), axis=0, by=isa.ShflBfly()),
            "neg.f32 cannot reduce f32: it takes f32 and gives f32",
        ),
        (
            lambda self, p, x, y, who: self.x.tile(0, 0, shape=(1, 1)),
            "x has 1 dim; the window gives 2 offsets and 2 extents",
        ),
        (lambda self, p, x, y, who: x.window((0, 0), (1, 1)), "x has 1 axes; the window gives 2 and 2"),
        (
            lambda self, p, x, y, who: x.T,
            "x has no transpose: a tile with two axes has one, in GMEM or in registers; "
            "a buffer is read under a partition of its own shape, as t.b.T, and what is loaded has a .T; or it is "
            "filled with the .T of a tile of a tensor, its other axis contiguous",
        ),
        (
            lambda self, p, x, y, who: p.clear(x),
            "p.clear is for accumulators in TMEM, and x lies in GMEM; begin with p.full",
        ),
        (
            lambda self, p, x, y, who: p.copy(self.ld, x, y),
            "ld ends in RMEM, but y lies in GMEM",
        ),
        (
            lambda self, p, x, y, who: self.wraps,
            "the machine declares no 'wraps'; it declares ld, n, neg, reference, st, warps, x, y",
        ),
        (lambda self, p, x, y, who: p.laod(self.ld, x, who), "there is no verb p.laod"),
    ],
)
def test_a_wrong_statement_is_explained(inner: Callable[..., Any], sentence: str) -> None:
    refused(lambda: thing(around(inner)), f"Thing.program: {sentence}")


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        (
            {"ld": isa.LdShared(1)},
            "ld (ld.shared) reads SMEM, but the operand lies in GMEM: no instruction brings it from GMEM to SMEM",
        ),
        (
            {"st": isa.StShared(1)},
            "st (st.shared) writes SMEM, but the result belongs in GMEM: an instruction from RMEM to GMEM is missing",
        ),
        ({"y": Later(lambda n: Output("f16", n))}, "st stores f32 values into y, which is f16; convert first"),
        ({"x": Later(lambda n: Input("f16", n))}, "neg takes f32 here, and v1 is f16; convert it first"),
    ],
)
def test_a_missing_hop_or_conversion_is_named(attributes: dict[str, Any], sentence: str) -> None:
    refused(lambda: thing(**attributes), f"Thing.program: {sentence}")


def test_a_scalar_of_another_type() -> None:
    def inner(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        p.apply(isa.Add("f32"), p.load(self.ld, x, who), self.a)

    make = lambda: thing(around(inner), a=Scalar("s32"), reference=staticmethod(lambda x, a: x))  # noqa: E731
    refused(make, "Thing.program: add.rn.f32 takes f32 here, and the scalar a is s32")


# --- outside a program --------------------------------------------------------------------------------------------


def test_a_parameter_has_no_value_before_it_has_a_name() -> None:
    sentence = "a Param is used before it has a name; assign it to an attribute first"
    with pytest.raises(DeclarationError, match=f"^{re.escape(sentence)}$"):
        Param(1, 2) * 2


def test_choices_between_routes_have_names() -> None:
    choice = Choice(isa.CpAsync(4), Route(isa.LdGlobal(4), isa.StShared(4)))
    assert choice.labels == ("cp.async", "ld.global+st.shared")
    assert not choice.mistake
    assert repr(UnknownLayout()) == "UnknownLayout()"
