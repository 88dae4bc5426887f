"""Problems as they are asked for: what is left out is filled in, and what cannot be is refused in a sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tinygpu.dtypes import dtype
from tinygpu.language import Dim, Input, Option, Output, Param, Problem, ProblemError, Scalar
from tinygpu.language.declared import Declared
from tinygpu.language.problem import MOST_BYTES, Operand, tensors

KNOWN = "known: f64, f32, tf32, f16, bf16, e4m3, e5m2, e2m3, e3m2, e2m1, ue8m0, s32, u32, s8, u8, s4, u4"


class Asked(Declared):
    """y = x + how, where there is a bias

    A second line.
    """

    m, n = Dim(), Dim()
    x = Input(("f16", "f32", "s8"), m, n, majors=("row", "col"))
    bias = Input("f32", n)
    y = Output({"f16": ("f16", "f32"), "f32": ("f32",), "s8": ("s32",)}, m, n, follows=x, majors=("col",))
    a, b = Scalar("f32"), Scalar("s32")
    how = Option("none", "some", "all")
    wide = Option(False, True)

    @classmethod
    def uses_tensor(cls, name: str, options: dict[str, Any]) -> bool:
        return name != "bias" or bool(options["how"] != "none")

    @classmethod
    def uses_scalar(cls, name: str, options: dict[str, Any]) -> bool:
        return name != "b" or bool(options["wide"])

    @classmethod
    def refuses(cls, problem: Problem) -> str:
        options = dict(problem.options)
        return "all of it is not wide" if options["how"] == "all" and options["wide"] else ""


class Bare(Declared):
    n = Dim()
    x = Input("f32", n)
    q = Param(1, 2)


def test_what_is_left_out_is_filled_in() -> None:
    made = Asked.problem(m=3, n=5)
    assert made.dims == (("m", 3), ("n", 5))
    assert made.operands == (
        Operand("x", dtype("f16"), (3, 5), "row", 5, 16, "in"),
        Operand("y", dtype("f16"), (3, 5), "col", 3, 16, "out"),
    )
    assert made.options == (("how", "none"), ("wide", False))
    assert str(made) == "m=3,n=5 x:f16 y:f16:col how=none wide=False"
    assert made.signature == ((("x", "f16", "row"), ("y", "f16", "col")), made.options)
    assert made.environment() == {"m": 3, "n": 5, "x.ld": 5, "x.align": 16, "y.ld": 3, "y.align": 16}
    asked = {"dtypes": {"x": "s8"}, "majors": {"x": "col"}, "lds": {"x": 4}, "aligns": {"bias": 8}}
    more = Asked.problem(m=3, n=5, **asked, options={"how": "some"})
    assert more.operands == (
        Operand("x", dtype("s8"), (3, 5), "col", 4, 16, "in"),
        Operand("bias", dtype("f32"), (5,), "row", 5, 8, "in"),
        Operand("y", dtype("s32"), (3, 5), "col", 3, 16, "out"),
    )
    for one in (made, more):
        assert Problem.from_json(json.loads(json.dumps(one.to_json()))) == one
    found = tensors(more, Asked.tensor_declarations())
    assert [(t.name, t.dims, t.access, t.major, t.rank) for t in found] == [
        ("x", ("m", "n"), "in", "col", 2),
        ("bias", ("n",), "in", "row", 1),
        ("y", ("m", "n"), "out", "col", 2),
    ]
    assert [t.contiguous_axis for t in found] == [0, 0, 0]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"n": 1, "k": 2}, "Asked has no dim 'k'; it has m, n"),
        ({"n": 1}, "Asked needs the dim m: give m=...,n=..."),
        *(
            ({"m": 1, "n": n}, f"Asked: the dim n is a whole number from 1 to 2147483647, not {n!r}")
            for n in (0, -1, 2**31, True, 1.5, "7")
        ),
        ({"dtypes": {"z": "f16"}}, "Asked has no tensor (its dtype was given) 'z'; it has x, bias, y"),
        ({"majors": {"z": "row"}}, "Asked has no tensor (its major was given) 'z'; it has x, bias, y"),
        ({"lds": {"z": 7}}, "Asked has no tensor (its leading dimension was given) 'z'; it has x, bias, y"),
        ({"aligns": {"z": 7}}, "Asked has no tensor (its alignment was given) 'z'; it has x, bias, y"),
        ({"options": {"z": 7}}, "Asked has no option 'z'; it has how, wide"),
        ({"options": {"how": "any"}}, "Asked: how is none or some or all, not 'any'"),
        ({"options": {"how": "all", "wide": True}}, "Asked: all of it is not wide"),
        ({"majors": {"x": "up"}}, "Asked: x is row or col-major, not 'up'"),
        ({"majors": {"y": "row"}}, "Asked: y is col-major, not 'row'"),
        ({"dtypes": {"x": "f33"}}, f"Asked: x: unknown dtype 'f33'; {KNOWN}"),
        ({"dtypes": {"x": "f64"}}, "Asked: x can be f16, f32, s8 here, not f64"),
        ({"dtypes": {"x": "s8", "y": "f16"}}, "Asked: y can be s32 here, not f16"),
        ({"lds": {"x": 4}}, "Asked: the leading dimension of x is 4, less than its 5 contiguous elements"),
        (
            {"lds": {"x": 6.5}},
            "Asked: the leading dimension of x is a whole number of elements up to 2147483647, not 6.5",
        ),
        (
            {"aligns": {"x": 1}},
            "Asked: the alignment of x is a power of two of at least one f16 element, in bytes, not 1",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused(asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ProblemError) as refused:
        Asked.problem(**({"m": 3, "n": 5} | asked if {"n", "m"}.isdisjoint(asked) else asked))
    assert str(refused.value) == sentence


def test_a_machine_without_options_says_so() -> None:
    with pytest.raises(ProblemError) as refused:
        Bare.problem(n=1, options={"how": 1})
    assert str(refused.value) == "Bare has no option 'how'; it has none"


def test_an_operand_ends_where_kernels_stop_counting() -> None:
    """The last of two rows of 8-byte elements begins at ld x 8 bytes; a third of as many would be too far."""
    rows = 2**32 + 2
    pitch = MOST_BYTES // 8 // (rows - 1)
    Operand("x", dtype("f64"), (rows, 1), "row", pitch, 16, "in")
    with pytest.raises(ProblemError) as refused:
        Operand("x", dtype("f64"), (rows, 1), "row", pitch + 1, 16, "in")
    size = (1 + (rows - 1) * (pitch + 1)) * 8
    assert str(refused.value) == (
        f"x reaches over {size:,} bytes from its first element to its last, and kernels count up to {MOST_BYTES:,}"
    )
    # elements of 4 bits count as a byte each
    with pytest.raises(ProblemError):
        Operand("x", dtype("e2m1"), (2**33, 1), "row", 2**31 - 1, 16, "in")


def test_what_a_machine_says_of_itself() -> None:
    assert (Asked.summary(), Bare.summary()) == ("y = x + how, where there is a bias", "")
    assert [s.name for s in Asked.scalars({"how": "none", "wide": False})] == ["a"]
    assert [s.name for s in Asked.scalars({"how": "none", "wide": True})] == ["a", "b"]
    assert [s.name for s in Bare.scalar_declarations()] == []
    assert (Asked.dim_names(), [p.name for p in Bare.params()]) == (("m", "n"), ["q"])
    assert Asked.precision({}) == (True, 0.0)
    assert (Bare.uses_tensor("x", {}), Bare.uses_scalar("x", {})) == (True, True)
    assert list(Bare.structures()) == [()]
    assert Asked.how.default == "none"


def test_a_later_class_declares_anew() -> None:
    class More(Bare):
        q = Param(4, 8)
        z = Dim()

    class Less(More):
        q = None  # type: ignore[assignment]

    assert [(p.name, p.values) for p in More.params()] == [("q", (4, 8))]
    assert More.dim_names() == ("n", "z")
    assert Less.params() == ()


@pytest.mark.parametrize("name", ["dtype", "contiguous", "tile", "at", "row", "column"])
def test_a_tensor_has_types_and_windows_inside_a_program_only(name: str) -> None:
    from tinygpu.language import DeclarationError

    asked = {"tile": lambda: Asked.x.tile(0, 0, shape=(1, 1)), "at": lambda: Asked.x.at(1)}
    asked |= {"row": lambda: Asked.x.row(0, 1), "column": lambda: Asked.x.column(0, 1)}
    with pytest.raises(DeclarationError) as refused:
        asked.get(name, lambda: getattr(Asked.x, name))()
    assert str(refused.value) == f"x.{name} exists inside `program`, where types and layouts are decided"
    with pytest.raises(DeclarationError) as refused:
        Asked.x[3]
    assert str(refused.value) == "x[3] exists inside `program`, where it is loaded"
    with pytest.raises(TypeError):
        list(Asked.x)


@pytest.mark.parametrize(
    "values",
    [("no", "yes"), (False, True), ("true", "false"), ("none", "NONE"), (1, 2, 16), ("1", "2"), (-1, 0), ("f16", "16")],
)
def test_every_value_of_an_option_is_said_as_it_is_written(values: tuple[Any, ...]) -> None:
    class Said(Declared):
        n = Dim()
        x, how = Input("f32", n), Option(*values)

    for value in values:
        found = dict(Said.problem(n=1, options={"how": str(value)}).options)["how"]
        assert found == value
        assert type(found) is type(value)
    for word, value in {"true": True, "yes": True, "TRUE": True, "no": False, "false": False}.items():
        if values == (False, True):
            assert dict(Said.problem(n=1, options={"how": word}).options)["how"] is value
    with pytest.raises(ProblemError) as refused:
        Said.problem(n=1, options={"how": "maybe"})
    assert str(refused.value) == f"Said: how is {' or '.join(map(str, values))}, not 'maybe'"
