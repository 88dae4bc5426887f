"""Every mistake in the declaration of a plan is told when the class is made, in a sentence."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from tinygpu.language import (
    Choice,
    DeclarationError,
    Dim,
    InOut,
    Input,
    Machine,
    Option,
    Output,
    Param,
    Plan,
    Require,
    Scalar,
    Step,
    Workspace,
    blocked,
    symbol,
)
from tinygpu.ptx import isa


class Doubled(Machine):
    """y = x + x"""

    m, n = Dim(), Dim()
    x = Input(("f32", "f16"), m, n)
    y = Output({"f32": ("f32",), "f16": ("f16",)}, m, n, follows=x)
    warps, vector = Param(1, 2), Param(1, 2, 4)
    ld, st = isa.LdGlobal(vector), isa.StGlobal(vector)
    exact = False

    def program(self, p: Any) -> None:
        shape = (self.warps, 32 * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=32)
        add = isa.Add(self.x.dtype.name)
        with p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            p.store(self.st, self.y.tile(i, j, shape=shape), p.apply(add, x, x))

    @staticmethod
    def reference(x: Any) -> Any:
        return x + x


class Scaled(Doubled):
    """y = a * x"""

    a, kind = Scalar("f32"), Option("plain", "relu")
    way = Choice("one", "two")
    x, y = Input("f32", Doubled.m, Doubled.n), Output("f32", Doubled.m, Doubled.n)

    def program(self, p: Any) -> None:
        shape = (self.warps, 32 * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=32)
        with p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            p.store(self.st, self.y.tile(i, j, shape=shape), p.apply(isa.Mul("f32"), x, self.a))

    @staticmethod
    def reference(a: Any, x: Any, kind: str) -> Any:
        return a * x


class Base:
    """Names that the attributes of a plan are made from, new ones for every plan."""

    def __init__(self) -> None:
        self.m, self.n = Dim(), Dim()
        self.x, self.y = Input("f32", self.m, self.n), Output("f32", self.m, self.n)
        self.w = Workspace("f32", self.m, self.n)
        self.a, self.kind, self.q = Scalar("f32"), Option("plain", "relu"), Param(1, 2)


def plan(**attributes: Callable[[Base], Any]) -> type[Plan]:
    """A plan of two steps, with attributes changed or added; None takes one away."""
    base = Base()
    usual: dict[str, Callable[[Base], Any] | None] = {
        "m": lambda b: b.m,
        "n": lambda b: b.n,
        "x": lambda b: b.x,
        "y": lambda b: b.y,
        "w": lambda b: b.w,
        "first": lambda b: Step(Doubled, x=b.x, y=b.w),
        "second": lambda b: Step(Doubled, x=b.w, y=b.y),
        "reference": lambda b: staticmethod(lambda x: 4 * x),
    }
    order = list(usual)
    usual |= attributes
    order += [name for name in attributes if name not in order]
    def body(namespace: dict[str, Any]) -> None:
        for name in order:
            made = usual[name]
            if made is not None:
                namespace[name] = made(base)

    return types.new_class("Twice", (Plan,), {}, body)


def test_the_plan_without_a_mistake_is_declared() -> None:
    steps = plan().bound_steps({})
    assert [s.name for s in steps] == ["first", "second"]
    assert {k: str(v) for k, v in steps[1].params.items()} == {"warps": "second.warps", "vector": "second.vector"}


MISTAKES: list[tuple[dict[str, Any], str]] = [
    # steps
    ({"first": lambda b: Step(Base)}, "Twice.first: a step is a Machine with what its names stand for, not Base"),
    ({"first": lambda b: Step(Machine)}, "Twice.first: Machine has no program; a step is a machine that can run"),
    (
        {"first": lambda b: Step(Doubled, x=b.x, z=b.w)},
        "Twice.first: Doubled has no 'z'; it has x, y, m, n, warps, vector",
    ),
    (
        {"first": lambda b: Step(Doubled, x=b.x)},
        "Twice.first: Doubled writes y, and nothing is given for it; give y=..., a tensor or a workspace of the plan",
    ),
    (
        {"first": lambda b: Step(Doubled, x=b.x, y=b.n)},
        "Twice.first: y of Doubled is given n, a Dim; it takes a tensor or a workspace that the plan declares",
    ),
    (
        {"first": lambda b: Step(Doubled, x=b.x, y=Workspace("f32", 4, 4))},
        "Twice.first: y of Doubled is given a Workspace; it takes a tensor or a workspace that the plan declares",
    ),
    # types, dims and orders
    ({"w": lambda b: Workspace("f32")}, "Twice.w: a workspace needs at least one dim"),
    (
        {"w": lambda b: Workspace("f32", b.m, 0)},
        "Twice.w: a workspace's dims are dims, parameters and expressions of them, not 0",
    ),
    (
        {"w": lambda b: Workspace("f32", b.m, b.n, major="up")},
        "Twice.w: a workspace is 'row'- or 'col'-major, not 'up'",
    ),
    (
        {"w": lambda b: Workspace("f32", b.m, major="col")},
        "Twice.w: only a workspace with two dims can be column-major, not one with 1",
    ),
]


def changed(**made: Callable[[Base], Any]) -> dict[str, Any]:
    """A workspace of another kind, which the steps are given."""
    out: dict[str, Any] = {}

    def workspace(b: Base) -> Any:
        b.w = made["w"](b)
        return b.w

    out["w"] = workspace
    return out | {k: v for k, v in made.items() if k != "w"}


MISTAKES += [
    (
        changed(w=lambda b: Workspace("f16", b.m, b.n)),
        "Twice: y of its step first (Doubled) can be f32 here, and w is f16",
    ),
    (
        changed(w=lambda b: Workspace("s32", b.m, b.n)),
        "Twice.first: y of Doubled is f32 or f16, and w is s32",
    ),
    (
        changed(w=lambda b: Workspace("f32", b.m)),
        "Twice.first: y of Doubled has 2 dims (m, n), and w has 1 dim (m)",
    ),
    (
        changed(w=lambda b: Workspace("f32", b.n, b.m)),
        "Twice.first: the dim m of Doubled is m (of x) and n (of w); it is one number",
    ),
    (
        changed(w=lambda b: Workspace("f32", b.m, b.n, major="col")),
        "Twice.first: y of Doubled is row-major, and w is col-major",
    ),
    (
        changed(w=lambda b: Workspace("f32", b.m, b.n + symbol("k"))),
        "Twice.w: the plan declares no 'k'",
    ),
    # parameters
    (
        {"first": lambda b: Step(Doubled, x=b.x, y=b.w, vector=3)},
        "Twice.first: vector of Doubled is 1, 2, 4, not 3",
    ),
    (
        {"first": lambda b: Step(Doubled, x=b.x, y=b.w, vector="wide")},
        "Twice.first: vector of Doubled is given 'wide'; it takes parameters of the plan",
    ),
    (
        {"a": lambda b: b.a, "reference": lambda b: staticmethod(lambda x, a: x)},
        "Twice.a: no step takes this number",
    ),
    ({"q": lambda b: b.q}, "Twice.q: no step and no workspace uses this parameter"),
    # wiring
    (
        {"second": lambda b: Step(Doubled, x=b.x, y=b.y)},
        "Twice.w: no step reads what step first writes into this workspace",
    ),
    (
        {"first": lambda b: Step(Doubled, x=b.w, y=b.y), "second": lambda b: Step(Doubled, x=b.x, y=b.w)},
        "Twice.first: it reads w as x before anything was written there; step second, which comes later, writes it",
    ),
    (
        {"first": lambda b: Step(Doubled, x=b.w, y=b.y), "second": None},
        "Twice.first: it reads w as x before anything was written there; no step writes it",
    ),
    (
        {"first": lambda b: Step(Doubled, x=b.x, y=b.y), "second": None},
        "Twice.w: no step writes this workspace",
    ),
    (
        {"second": lambda b: Step(Doubled, x=b.w, y=b.w)},
        "Twice.second: y and x of Doubled are both w, and it writes y: its CTAs would race; write another workspace",
    ),
    (
        {"second": lambda b: Step(Doubled, x=b.w, y=b.x)},
        "Twice.second: it writes x as y, and x is an Input of the plan; declare it InOut, or write a workspace",
    ),
    (
        {"second": lambda b: Step(Doubled, x=b.x, y=b.w)},
        "Twice.second: it writes w as y, and what step first wrote there was never read",
    ),
    (
        {"second": lambda b: Step(Doubled, x=b.w, y=b.y), "z": lambda b: Output("f32", b.n)},
        "Twice.z: no step writes this Output",
    ),
    ({"z": lambda b: Input("f32", b.n), "reference": lambda b: staticmethod(lambda x, z: x)},
     "Twice.z: no step reads this Input"),
    ({"z": lambda b: InOut("f32", b.n), "reference": lambda b: staticmethod(lambda x, z: x)},
     "Twice.z: no step writes this InOut"),
    # the class
    ({"reference": None}, "Twice.reference: a plan says what it computes, as a static method in NumPy"),
    (
        {"reference": lambda b: staticmethod(lambda z: z)},
        "Twice.reference: it is called with x, by name, and takes z",
    ),
    ({"first": None, "second": None}, "Twice: a plan has at least one Step"),
    (
        {"ld": lambda b: isa.LdGlobal(1)},
        "Twice.ld: an instruction belongs to a machine; the steps of a plan are machines that have such",
    ),
    (
        {"way": lambda b: Choice("a", "b")},
        "Twice.way: a plan has Params, and the choices of its steps, which are theirs; the steps of a plan are "
        "machines that have such",
    ),
    (
        {"small": lambda b: Require(symbol("k") <= 4, "k is small")},
        "Twice.small: the constraint names 'k', which is not declared",
    ),
    ({"bound_steps": lambda b: Param(1, 2)}, "Twice.bound_steps: this name belongs to Plan; choose another one"),
    # scalars, options, choices
    (
        {"first": lambda b: Step(Scaled, x=b.x, y=b.w)},
        "Twice.first: the number a of Scaled is given nothing; it takes a Scalar that the plan declares",
    ),
    (
        {"first": lambda b: Step(Scaled, x=b.x, y=b.w, kind="gelu")},
        "Twice.first: kind of Scaled is plain, relu, not 'gelu'",
    ),
    (
        {"first": lambda b: Step(Scaled, x=b.x, y=b.w, kind=b.kind)},
        "Twice.first: kind is given an Option that the plan does not declare",
    ),
]


@pytest.mark.parametrize(("attributes", "sentence"), MISTAKES)
def test_a_mistake_is_told_when_the_class_is_made(attributes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        plan(**attributes)
    assert str(refused.value) == sentence


def test_shared_values_that_no_step_takes_are_refused() -> None:
    with pytest.raises(DeclarationError) as refused:

        class Wide(Plan):
            m, n = Dim(), Dim()
            x, y = Input("f32", m, n), Output("f32", m, n)
            vector = Param(3, 5)
            only = Step(Doubled, x=x, y=y, vector=vector)

            @staticmethod
            def reference(x: Any) -> Any:
                return x + x

    assert str(refused.value) == "Wide.only: vector of Doubled is 1, 2, 4, and vector is 3, 5: no value is both"


def test_a_step_that_is_given_anew_keeps_its_place() -> None:
    usual = plan()
    base: Any = usual

    def body(space: dict[str, Any]) -> None:
        space["first"] = Step(Doubled, x=base.x, y=base.w, vector=2)

    derived = types.new_class("Other", (usual,), {}, body)
    steps = derived.bound_steps({})
    assert [s.name for s in steps] == ["first", "second"]
    assert str(steps[0].params["vector"]) == "2"


def test_a_name_is_declared_once() -> None:
    with pytest.raises(DeclarationError) as refused:

        class Again(Plan):
            m, n = Dim(), Dim()
            x, y = Input("f32", m, n), Output("f32", m, n)
            w = Workspace("f32", m, n)
            first = Step(Doubled, x=x, y=w)
            first = Step(Doubled, x=w, y=y)  # noqa: PIE794

    assert str(refused.value) == "Again.first: declared twice; every declaration has a name of its own"
    step = Step(Doubled)
    step.bind_name("first")
    with pytest.raises(DeclarationError) as named:
        step.bind_name("second")
    assert str(named.value) == "second: this declaration already belongs to 'first'; declare another one"


def test_types_that_steps_do_not_take_are_refused_with_the_problem() -> None:
    from tinygpu.language import ProblemError

    class Mixed(Plan):
        m, n = Dim(), Dim()
        x, y = Input(("f32", "bf16"), m, n), Output("f32", m, n)
        w = Workspace("f32", m, n)
        first = Step(Doubled, x=x, y=w)
        second = Step(Doubled, x=w, y=y)

        @staticmethod
        def reference(x: Any) -> Any:
            return 4 * x

    assert Mixed.problem(m=3, n=4).operand("x").dtype.name == "f32"
    with pytest.raises(ProblemError) as refused:
        Mixed.problem(m=3, n=4, dtypes={"x": "bf16"})
    assert str(refused.value) == "Mixed: x of its step first (Doubled) can be f32, f16 here, and x is bf16"
