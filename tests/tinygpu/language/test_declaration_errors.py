"""Every mistake in a declaration is told when the class is made, in a sentence that names class and attribute."""

from __future__ import annotations

import re
import types
from collections.abc import Callable
from typing import Any

import pytest

from tinygpu.expressions import symbol
from tinygpu.language import (
    GMEM,
    TMEM,
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
from tinygpu.language.verb import NUMBER
from tinygpu.ptx import isa

Program = Callable[[Any, Any], None]


def negate(x: Any) -> Any:
    return -x


def thing(program: Program | None = None, leave_out: tuple[str, ...] = (), **attributes: Any) -> type[Machine]:
    """A machine that is right, but for what is given: y = -x, one element per thread."""

    def body(ns: dict[str, Any]) -> None:
        n = Dim()
        made: dict[str, Any] = {"n": n, "x": Input("f32", n), "y": Output("f32", n)}
        made |= {"warps": Param(1, 2, 4), "ld": isa.LdGlobal(1), "st": isa.StGlobal(1), "neg": isa.Neg("f32")}
        made |= {"reference": staticmethod(negate), "program": program or right}
        for name, value in (made | attributes).items():
            if name not in leave_out:
                ns[name] = value(n) if isinstance(value, Later) else value

    return types.new_class("Thing", (Machine,), {}, body)


class Later:
    """A declaration that needs the machine's dim."""

    def __init__(self, make: Callable[[Dim], Any]) -> None:
        self.make = make

    def __call__(self, n: Dim) -> Any:
        return self.make(n)


def around(inner: Callable[..., Any]) -> Program:
    """A program with a grid and a role around `inner(self, p, x, y, who)`."""

    def program(self: Any, p: Any) -> None:
        shape = (self.warps * 32,)
        who = blocked(shape, threads=self.warps * 32)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            inner(self, p, self.x.tile(i, shape=shape), self.y.tile(i, shape=shape), who)

    return program


@around
def right(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
    p.store(self.st, y, p.apply(self.neg, p.load(self.ld, x, who)))


def refused(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(DeclarationError) as error:
        make()
    assert str(error.value) == sentence


def test_the_machine_without_a_mistake_is_declared() -> None:
    assert thing().dim_names() == ("n",)


# --- attributes ---------------------------------------------------------------------------------------------------

UNKNOWN = "unknown dtype 'f33'; known: f64, f32, tf32, f16, bf16, e4m3, e5m2, e2m3, e3m2, e2m1, ue8m0, s32, u32, s8, u8"
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
        ({"o": lambda: Option()}, "Thing.o: an Option needs at least one value"),
        ({"a": lambda: Scalar("f16")}, "Thing.a: a Scalar is f32, s32 or u32, not 'f16'"),
        ({"x": lambda: Later(lambda n: Input("f33", n))}, f"Thing.x: {UNKNOWN}"),
        ({"x": lambda: Input("f32")}, "Thing.x: a tensor needs at least one dim"),
        ({"x": lambda: Input("f32", 32)}, "Thing.x: a tensor's dims are Dims of the machine, not 32"),
        (
            {"x": lambda: Later(lambda n: Input("f32", n, majors=("row", "col")))},
            "Thing.x: only a tensor with two dims can be column-major, not one with 1",
        ),
        (
            {"x": lambda: Later(lambda n: Input("f32", n, majors=("up",)))},
            "Thing.x: majors are 'row' or 'col', not ('up',)",
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
            "known: coalescing, bank conflicts, occupancy, locality",
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
    sentence = "Thing: a small machine has about ten instructions at most, not 14"
    refused(lambda: thing(**FOURTEEN), sentence)


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
        (lambda self, p, x, y, who: p.load("ld", x, who), "p.load takes a Transfer or MatrixLoad, not 'ld'"),
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
            lambda self, p, x, y, who: p.reduce(isa.Add("f32"), isa.ShflBfly(), load(self, p, x, y, who), 3),
            "add.rn.f32 reduces along axis 3, and %v1 has axis 0 only",
        ),
        (
            lambda self, p, x, y, who: p.reduce(isa.Neg("f32"), isa.ShflBfly(), load(self, p, x, y, who), 0),
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
            "a buffer is read under a partition of its own shape",
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


# --- the program: control -----------------------------------------------------------------------------------------


def branch(self: Any, p: Any) -> None:
    if self.warps == 2:
        p.grid((self.n, 32))


def branch_more(self: Any, p: Any) -> None:
    if self.warps > 2 and self.n > 3:
        p.grid((self.n, 32))


def count_param(self: Any, p: Any) -> None:
    for _ in range(self.warps):
        p.grid((self.n, 32))


def count_dim(self: Any, p: Any) -> None:
    for _ in range(self.n):
        p.grid((self.n, 32))


def two_grids(self: Any, p: Any) -> None:
    with p.grid((self.n, 32)):
        pass
    with p.grid((self.n, 32)):
        pass


def outside(self: Any, p: Any) -> None:
    with p.role("all", warps=1):
        pass


def inside(self: Any, p: Any) -> None:
    with p.grid((self.n, 32)), p.role("a", warps=1), p.role("b", warps=1):
        pass


def no_role(self: Any, p: Any) -> None:
    with p.grid((self.n, 32)):
        pass


def bare(self: Any, p: Any) -> None:
    with p.grid((self.n, 32)) as (i,):
        p.load(self.ld, self.x.tile(i, shape=(32,)), blocked((32,), threads=32))


def unroll_dim(self: Any, p: Any) -> None:
    with p.grid((self.n, 32)), p.role("all", warps=1), p.unroll(self.n):
        pass


def loop_by_nothing(self: Any, p: Any) -> None:
    with p.grid((self.n, 32)), p.role("all", warps=1), p.loop(self.n, step=0):
        pass


def loop_by_half(self: Any, p: Any) -> None:
    with p.grid((self.n, 32)), p.role("all", warps=1), p.loop(self.n, step=0.5):
        pass


def role_twice(self: Any, p: Any) -> None:
    with p.grid((self.n, 32)):
        with p.role("a", warps=1):
            pass
        with p.role("a", warps=2):
            pass


def grid_of_nothing(self: Any, p: Any) -> None:
    with p.grid():
        pass


def cluster_of_three_axes(self: Any, p: Any) -> None:
    with p.grid((self.n, 32), cluster=(1, 1, 1)):
        pass


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (
            branch,
            "the condition Eq(warps, 2) has no value while a machine is declared: "
            "branch on a structural parameter, or write where(condition, a, b)",
        ),
        (
            branch_more,
            "the condition warps > 2 has no value while a machine is declared: "
            "branch on a structural parameter, or write where(condition, a, b)",
        ),
        (count_param, "warps has no value while a machine is declared; loops over it are written with loop(...)"),
        (count_dim, "n has no value while a machine is declared; loops over it are written with loop(...)"),
        (lambda self, p: None, "the program opens no grid; begin with `with p.grid(...)`"),
        (two_grids, "a program has one grid, and this opens a second; bring all roles into the first"),
        (grid_of_nothing, "a grid has at least one axis: (dim, extent of a tile)"),
        (cluster_of_three_axes, "the cluster has 3 extents, and the grid has 1 axes"),
        (outside, "role 'all' stands outside the grid; open `with p.grid(...)` first"),
        (inside, "role 'b' stands inside role 'a'; roles stand side by side"),
        (role_twice, "role 'a' is declared twice with different warps"),
        (no_role, "no warps do anything; open `with p.role(...)` inside the grid"),
        (bare, "x is touched outside a role; say which warps do it with `with p.role(...)`"),
        (unroll_dim, "unroll over n, which is known at launch only; write p.loop"),
        (loop_by_nothing, "a loop goes on by 1 element or more each round, not by 0"),
        (loop_by_half, f"p.loop: step must be {NUMBER}, not 0.5"),
        (lambda self, p: p.smem("f33", (1,)), UNKNOWN),
        (lambda self, p: p.buffer(GMEM, "f32", (32,)), "a buffer lies in SMEM or TMEM, not in GMEM"),
        (lambda self, p: p.buffer(TMEM, "f32", (256, 32)), "a buffer in TMEM has at most 128 lanes, not 256"),
        (lambda self, p: p.buffer(TMEM, "f32", (32,)), "a buffer in TMEM has two axes, lanes and columns, not 1"),
    ],
)
def test_wrong_control_is_explained(program: Program, sentence: str) -> None:
    refused(lambda: thing(program), f"Thing.program: {sentence}")



def test_what_can_never_work_is_refused() -> None:
    def odd_steps(self: Any, p: Any) -> None:
        with p.grid((self.n, 32)) as (i,), p.role("all", warps=1):
            who = blocked((32,), threads=32)
            with p.unroll(8, step=3):
                p.store(self.st, self.y.tile(i, shape=(32,)), p.load(self.ld, self.x.tile(i, shape=(32,)), who))

    sentence = "it can never work, whatever the parameters: 8 is a whole number of steps of 3"
    refused(lambda: thing(odd_steps), f"Thing.program: {sentence}")


# --- the program: pipelines ---------------------------------------------------------------------------------------

SHARED = {"put": isa.StShared(1), "get": isa.LdShared(1), "add": isa.Add("f32"), "ahead": isa.CpAsync(1)}


class Stage:
    """Inside a grid and a pipeline `ring` with one buffer t: what a role may do with it."""

    def __init__(self, machine: Any, p: Any, i: Any, ring: Any) -> None:
        self.machine, self.p, self.ring = machine, p, ring
        self.shape = (32,)
        self.x, self.y = machine.x.tile(i, shape=self.shape), machine.y.tile(i, shape=self.shape)
        self.who = blocked(self.shape, threads=32)

    def load(self) -> Any:
        return self.p.load(self.machine.ld, self.x, self.who)

    def fill(self) -> None:
        with self.ring.fill() as s:
            self.p.store(self.machine.put, s.t, self.load())

    def drain(self) -> None:
        with self.ring.drain() as s:
            self.p.store(self.machine.st, self.y, self.p.load(self.machine.get, s.t, self.who))

    def role(self, name: str = "all", first: int = 0, **more: Any) -> Any:
        return self.p.role(name, warps=1, first=first, **more)


def pipelined(inner: Callable[[Stage], None], persistent: bool = False) -> Program:
    def program(self: Any, p: Any) -> None:
        with (
            p.grid((self.n, 32), persistent=persistent) as (i,),
            p.pipeline("ring", 2, t=p.smem("f32", (32,))) as ring,
        ):
            inner(Stage(self, p, i, ring))

    return program


def well(s: Stage) -> None:
    with s.role():
        s.fill()
        s.drain()


def well_in_loops(s: Stage) -> None:
    with s.role(), s.p.loop(s.machine.n, step=32):
        s.fill()
    with s.role(), s.p.loop(s.machine.n, step=32):
        s.drain()


def well_apart(s: Stage) -> None:
    with s.role("a"), s.p.loop(s.machine.n, step=32):
        s.fill()
    with s.role("b", first=1), s.p.loop(s.machine.n, step=32):
        s.drain()


@pytest.mark.parametrize("inner", [well, well_in_loops, well_apart])
def test_slots_that_are_filled_and_drained_are_declared(inner: Callable[[Stage], None]) -> None:
    thing(pipelined(inner), **SHARED)


def never_drained(s: Stage) -> None:
    with s.role():
        s.fill()


def never_filled(s: Stage) -> None:
    with s.role():
        s.drain()


def unequal_loops(s: Stage) -> None:
    with s.role(), s.p.loop(s.machine.n, step=32):
        s.fill()
    with s.role(), s.p.loop(s.machine.n, step=64):
        s.drain()


def unequal_roles(s: Stage) -> None:
    with s.role("a"), s.p.loop(s.machine.n, step=32):
        s.fill()
    with s.role("b", first=1):
        s.drain()


def one_of_two_drains(s: Stage) -> None:
    with s.role("a"), s.p.loop(s.machine.n, step=32):
        s.fill()
    with s.role("b", first=1, share=(1, 2)), s.p.loop(s.machine.n, step=32):
        s.drain()


def beside_the_drain(s: Stage) -> None:
    with s.role(), s.p.loop(s.machine.n, step=32):
        s.fill()
    with s.role(), s.p.loop(s.machine.n, step=32):
        zero = s.p.full(s.who, "f32")
        with s.ring.drain() as slot:
            s.p.store(s.machine.st, s.y, s.p.apply(s.machine.add, zero, s.p.load(s.machine.get, slot.t, s.who)))


def beside_both(s: Stage) -> None:
    with s.role(), s.p.loop(s.machine.n, step=32):
        s.p.store(s.machine.st, s.y, s.load())
        s.fill()
        s.drain()


def after_the_fill(s: Stage) -> None:
    with s.role():
        with s.ring.fill() as slot:
            s.p.store(s.machine.put, slot.t, s.load())
        s.p.store(s.machine.put, slot.t, s.load())
        s.drain()


def read_in_the_fill(s: Stage) -> None:
    with s.role(), s.ring.fill() as slot:
        s.p.store(s.machine.put, slot.t, s.p.load(s.machine.get, slot.t, s.who))


def written_in_the_drain(s: Stage) -> None:
    with s.role():
        s.fill()
        with s.ring.drain() as slot:
            s.p.store(s.machine.put, slot.t, s.p.load(s.machine.get, slot.t, s.who))


def drained_in_the_fill(s: Stage) -> None:
    with s.role(), s.ring.fill(), s.ring.drain():
        pass


def filled_by_nobody(s: Stage) -> None:
    s.fill()


def a_turn_of_buffers(s: Stage) -> None:
    with s.role(), s.ring.turn():
        pass


def wrong_buffer(s: Stage) -> None:
    with s.role(), s.ring.fill() as slot:
        s.p.store(s.machine.put, slot.z, s.load())


def by_threads_of_nobody(s: Stage) -> None:
    with s.role(), s.ring.fill() as slot:
        s.p.copy(s.machine.ahead, s.x, slot.t)


def value_of_another_role(s: Stage) -> None:
    with s.role("a"):
        value = s.load()
    with s.role("b", first=1):
        s.p.store(s.machine.st, s.y, value)


def two_pipelines(s: Stage) -> None:
    with s.p.pipeline("ring", 1, t=s.p.smem("f32", (32,))):
        pass


@pytest.mark.parametrize(
    ("inner", "sentence"),
    [
        (never_drained, "pipeline 'ring' is never drained: its buffers are handed to nobody"),
        (never_filled, "pipeline 'ring' is never filled: its buffers are handed to nobody"),
        (
            unequal_loops,
            "pipeline 'ring' is filled FloorDiv(n + 31, 32) times a tile by all, "
            "and drained FloorDiv(n + 63, 64) times by all",
        ),
        (unequal_roles, "pipeline 'ring' is filled FloorDiv(n + 31, 32) times a tile by a, and drained once by b"),
        (
            beside_the_drain,
            "the loop that drains 'ring' does nothing beside; move the other statements into the drain",
        ),
        (
            beside_both,
            "a loop that fills and drains 'ring' does nothing beside; move the other statements into one of the two",
        ),
        (after_the_fill, "put touches ring.t after its slot was handed on; do it inside the fill or drain"),
        (read_in_the_fill, "get reads ring.t where 'ring' is filled; do it where it is drained"),
        (written_in_the_drain, "put writes ring.t where 'ring' is drained; do it where it is filled"),
        (drained_in_the_fill, "pipeline 'ring' is drained inside its own fill"),
        (filled_by_nobody, "pipeline 'ring' is filled outside a role; say which warps do it with `with p.role(...)`"),
        (a_turn_of_buffers, "pipeline 'ring' hands over ring.t: write fill() and drain() instead of turn()"),
        (wrong_buffer, "the pipeline hands over t; there is no 'z'"),
        (by_threads_of_nobody, "ahead moves thread by thread: say who moves what, with a partition"),
        (
            value_of_another_role,
            "%v1 lies in the registers of role 'a', and role 'b' uses it; hand it over through a pipeline",
        ),
        (two_pipelines, "two pipelines are called 'ring'"),
    ],
)
def test_a_wrong_handover_is_explained(inner: Callable[[Stage], None], sentence: str) -> None:
    refused(lambda: thing(pipelined(inner), **SHARED), f"Thing.program: {sentence}")


def test_a_share_of_tiles_leaves_none_out() -> None:
    sentence = "Thing.program: pipeline 'ring' is drained by no role for tile 0 of every 2"
    refused(lambda: thing(pipelined(one_of_two_drains, persistent=True), **SHARED), sentence)


def overlapping(s: Stage) -> None:
    with s.role("a"), s.p.loop(s.machine.n, step=32):
        s.fill()
    with s.role("b"), s.p.loop(s.machine.n, step=32):
        s.drain()


def test_roles_that_share_warps_can_never_work() -> None:
    sentence = "Thing.program: it can never work, whatever the parameters: the roles a and b have different warps"
    refused(lambda: thing(pipelined(overlapping), **SHARED), sentence)


@pytest.mark.parametrize(
    ("role", "sentence"),
    [
        ({"share": (0, 2)}, "role 'a' takes a share of one tile per CTA; make the grid persistent"),
        ({"share": (2, 2)}, "role 'a' takes the share (2, 2); (r, n) has 0 <= r < n"),
        ({"registers": 41}, "role 'a' has a budget of 41 registers; it is a multiple of 8 from 24 to 256"),
        ({"registers": 264}, "role 'a' has a budget of 264 registers; it is a multiple of 8 from 24 to 256"),
        ({"registers": 40}, "role 'a' has 1 warps, and a register budget takes whole warpgroups of 4 warps"),
    ],
)
def test_a_wrong_role_is_explained(role: dict[str, Any], sentence: str) -> None:
    def program(self: Any, p: Any) -> None:
        with p.grid((self.n, 32)), p.role("a", warps=1, **role):
            pass

    refused(lambda: thing(program), f"Thing.program: {sentence}")


@pytest.mark.parametrize(
    ("takers", "sentence"),
    [
        ((), "pipeline 'order' has no buffers and nobody takes a turn in it"),
        (("a",), "only role a takes turns in 'order'; turns are for two roles or more"),
        (("a", "b", "b"), "role a takes its turn once a tile in 'order', and role b 2 times"),
    ],
)
def test_wrong_turns_are_explained(takers: tuple[str, ...], sentence: str) -> None:
    def program(self: Any, p: Any) -> None:
        with p.grid((self.n, 32)), p.pipeline("order", 1) as order:
            for name in takers:
                with p.role(name, warps=1, first="ab".index(name)), order.turn():
                    pass

    refused(lambda: thing(program), f"Thing.program: {sentence}")


def test_a_pipeline_without_buffers_is_not_filled() -> None:
    def program(self: Any, p: Any) -> None:
        with p.grid((self.n, 32)), p.pipeline("order", 1) as order, p.role("a", warps=1), order.fill():
            pass

    sentence = "Thing.program: pipeline 'order' hands over no buffers: write turn() instead of fill()"
    refused(lambda: thing(program), sentence)


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
