"""The front door: `import tinygpu as tg`, and what each call gives, takes and refuses."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields
from html import unescape
from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.api.kernels import Tuning
from tinygpu.api.machines import MachineNotFound
from tinygpu.api.tune import NothingFound, Tuned
from tinygpu.dtypes import dtype
from tinygpu.language import Dim, Input, Machine, Output, Param, Scalar, blocked
from tinygpu.language.problem import ProblemError
from tinygpu.machines.elementwise import Axpby, elementwise
from tinygpu.ptx import isa
from tinygpu.ptx.runtime.errors import GpuUnavailable, WrongArray
from tinygpu.spaces.part import SpaceError

SPACE = tg.space(Axpby, n=1000, device="a100")


class SumAndDifference(Machine):
    """s = x + y and d = x - y"""

    n = Dim()
    x, y = Input("f32", n), Input("f32", n)
    s, d = Output("f32", n), Output("f32", n)
    warps = Param(1, 2)
    ld, st, add, sub = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32"), isa.Sub("f32")

    def program(self, p: Any) -> None:
        shape = (32 * self.warps,)
        who = blocked(shape, threads=shape[0])
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=shape), who)
            y = p.load(self.ld, self.y.tile(i, shape=shape), who)
            p.store(self.st, self.s.tile(i, shape=shape), p.apply(self.add, x, y))
            p.store(self.st, self.d.tile(i, shape=shape), p.apply(self.sub, x, y))

    @staticmethod
    def reference(x: Any, y: Any) -> Any:
        return x + y, x - y


# --- what is offered ----------------------------------------------------------------------------------------------


def test_every_call_is_documented_typed_and_listed() -> None:
    assert set(tg.__all__) <= set(dir(tg))
    for name in tg.__all__:
        call = getattr(tg, name)
        assert inspect.getdoc(call), name
        hints = inspect.signature(call)
        assert hints.return_annotation is not inspect.Signature.empty, name
        assert all(p.annotation is not inspect.Parameter.empty for p in hints.parameters.values()), name
    with pytest.raises(AttributeError, match=r"^module 'tinygpu' has no attribute 'tyne'$"):
        tg.tyne  # noqa: B018


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", tg.__all__)
def test_every_call_loads_what_it_needs_by_itself(name: str) -> None:
    program = f"import tinygpu; print(callable(tinygpu.{name}))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert (run.stdout, run.stderr) == (b"True\n", b"")


# --- spaces -------------------------------------------------------------------------------------------------------


def test_a_machine_is_given_in_three_ways_and_a_problem_in_three() -> None:
    ways = [
        tg.space("axpby", n=1000, device="a100"),
        tg.space("machines/elementwise.py:Axpby", n=1000, device="a100"),
        tg.space(Axpby, {"n": 1000}, device="a100"),
        tg.space(Axpby, SPACE.problem, device=SPACE.device),
    ]
    assert [list(w) for w in ways] == [list(SPACE)] * 4
    assert {str(w) for w in ways} == {str(SPACE)}


@pytest.mark.end_to_end
def test_a_problem_is_what_was_said() -> None:
    said = tg.space(
        "matmul_ampere", m=32, n=64, k=48, device="a100", dtypes={"a": "bf16"}, majors={"a": "col"}, lds={"a": 40},
        aligns={"a": 32}, options={"activation": "relu"},
    ).problem  # fmt: skip
    a = said.operand("a")
    assert (a.dtype.name, a.major, a.ld, a.align_bytes, a.shape) == ("bf16", "col", 40, 32, (32, 48))
    assert dict(said.options)["activation"] == "relu"
    every = tg.space("matmul_ampere", m=8, n=8, k=8, dtypes="bf16", device="a100").problem
    assert (every.operand("a").dtype.name, every.operand("b").dtype.name) == ("bf16", "bf16")


def test_a_space_answers_for_its_points() -> None:
    points = list(SPACE)
    assert (len(points), SPACE.size) == (SPACE.space.size, SPACE.space.size)
    assert all(p in SPACE for p in points)
    assert {**points[0], "warps": 3} not in SPACE
    assert SPACE.sample(5, seed=2) == SPACE.sample(5, seed=2)
    assert all(p in points for p in SPACE.sample(5))
    for name, values in SPACE.parameters.items():
        assert set(values) == {p[name] for p in points}
    some = SPACE.restrict({"warps": (1, 2), "vector": 1})
    kept = [p for p in points if p["warps"] in (1, 2) and p["vector"] == 1]
    assert sorted(map(str, some)) == sorted(map(str, kept))
    name = f"{SPACE.space.name} with warps=[1, 2], vector=1"
    assert str(some).startswith(f"{name}: {len(kept)} of {some.space.raw_size} points are left")
    with pytest.raises(SpaceError) as refused:
        SPACE.restrict({"wraps": 1})
    assert str(refused.value).startswith(f"[{SPACE.space.name}] there is no parameter 'wraps'; there are ")
    with pytest.raises(ValueError, match=r"^a seed is a whole number from 0 on, not -1$"):
        SPACE.sample(1, seed=-1)


def test_a_space_says_what_each_constraint_removed() -> None:
    space = tg.space(Axpby, n=1001, device="a100", aligns={"x": 4, "y": 4})
    removed = space.removed()
    assert sum(removed.values()) == space.space.raw_size - space.size > 0
    assert all(name in str(space) and name in space._repr_html_() for name, *_ in removed)
    assert f"{space.size:,} of {space.space.raw_size:,} points are left" in space._repr_html_()


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            {"machine": "matmul", "m": 8, "n": 8, "k": 8},
            "matmul is a family of machines (MatmulHopper, MatmulBlackwell, MatmulBlackwellConsumer, "
            "MatmulSkinnyBlackwell, MatmulSkinny, MatmulAmpere, MatmulSimt), each with a space of its own; name one",
        ),
        (
            {"machine": Axpby, "problem": {"n": 8}, "n": 8},
            "Axpby takes dims by name or as one mapping; both were given",
        ),
        ({"machine": 42}, "a machine is a class, a name, or path/to/file.py:ClassName, not 42"),
        ({"machine": Axpby, "problem": [8]}, "Axpby takes dims by name, a mapping of them or a Problem, not [8]"),
        (
            {"machine": Axpby, "problem": SPACE.problem, "dtypes": "f16"},
            "Axpby takes a whole problem, or dims and types; both were given",
        ),
    ],
)
def test_what_is_no_space_is_refused(asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises((MachineNotFound, ProblemError)) as refused:
        tg.space(**asked, device="a100")
    assert str(refused.value) == sentence


def test_a_point_is_explained() -> None:
    inside = tg.explain(SPACE, SPACE.sample(1)[0])
    assert (bool(inside), str(inside)) == (False, f"{SPACE.space.name}: in")
    narrow = tg.space(Axpby, n=1000, device="a100", aligns={"x": 8})
    out = tg.explain(narrow, vector=4)
    assert out
    assert out == tg.explain(narrow, {"vector": 4})
    assert str(out).startswith(f"{SPACE.space.name}: out\n  ld.global.nc alignment of x")


# --- kernels ------------------------------------------------------------------------------------------------------


@pytest.mark.end_to_end
def test_what_is_tuned_is_of_the_space_and_prints() -> None:
    some = SPACE.restrict({"vector": 1})
    best = tg.tune(some, seed=3)
    assert best.point in some
    assert ".visible .entry" in best.ptx
    assert {f.name for f in fields(best)} == {f.name for f in fields(Tuned)}
    text = str(best)
    assert "predicted   " in text
    assert "emulated    " in text
    assert unescape(best._repr_html_()).count(best.page()) == 1
    assert isinstance(tg.tune("axpby", n=1000, device="a100", evaluations=3, strategy="random"), Tuning)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"machine": SPACE, "n": 8}, "a space has its problem and its device; tune(space) takes no others"),
        ({"machine": SPACE, "device": "a100"}, "a space has its problem and its device; tune(space) takes no others"),
        (
            {"machine": Axpby, "n": 8},
            'tuning is for a device: give device="a100", or another name from `tinygpu devices`',
        ),
    ],
)
def test_what_cannot_be_tuned_is_refused(asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ProblemError) as refused:
        tg.tune(**asked)
    assert str(refused.value) == sentence


def test_a_part_of_a_space_that_is_empty_has_no_kernel() -> None:
    empty = SPACE.restrict({"warps": 3})
    with pytest.raises(NothingFound) as refused:
        tg.tune(empty)
    assert str(refused.value) == f"Axpby has no candidate: {SPACE.space.name} with warps=3 is empty"


@pytest.mark.parametrize("call", ["explain", "predict", "emit"])
def test_what_is_asked_of_no_space_is_refused(call: str) -> None:
    with pytest.raises(TypeError) as refused:
        getattr(tg, call)(3)
    assert str(refused.value) == (
        f'{call} is asked of a space, as tg.space(M, n=1000, device="a100") gives one, not of 3'
    )


@pytest.mark.parametrize("call", ["verify", "emulate"])
def test_what_is_no_kernel_is_refused(call: str) -> None:
    with pytest.raises(TypeError) as refused:
        getattr(tg, call)(3)
    assert str(refused.value) == f"{call} takes a kernel, as tg.emit(space) and tg.tune(space) give one, not 3"


def test_a_launch_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match=r'^launches are queued in a "graph" or in a "stream", not \'x\'$'):
        tg.predict(SPACE, launch="x")  # type: ignore[arg-type]


@pytest.mark.end_to_end
def test_a_prediction_prints_and_is_that_of_its_candidate() -> None:
    found = tg.predict(SPACE, warps=2, vector=1)
    assert (found.point["warps"], found.point["vector"]) == (2, 1)
    assert found.seconds == float(found.simulation.prediction.seconds)
    assert f"{found.seconds * 1e6:,.2f} us in closed form" in str(found)
    assert tg.predict(SPACE, {"warps": 2}, vector=1, launch="stream").seconds > found.seconds


def test_a_kernel_of_choice_is_right_and_prints() -> None:
    kernel = tg.emit(SPACE, warps=2, vector=1)
    assert kernel.point["warps"] == 2
    assert "candidate   " in str(kernel)
    assert tg.verify(kernel).passed


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("kind", "n", "gap"), [("f32", 100, 0), ("f16", 33, 3), ("bf16", 1, 8)])
@pytest.mark.end_to_end
def test_a_kernel_computes_what_the_reference_says_of_any_arrays(kind: str, n: int, gap: int) -> None:
    twice = elementwise("Twice", lambda x, a: a * x + x, inputs={"x": (kind, ("m", "n"))}, output=(kind, ("m", "n")),
                        scalars=("a",))  # fmt: skip
    kernel = tg.emit(tg.space(twice, m=7, n=n, device="a100", lds={"x": n + gap, "y": n + gap}))
    x = np.random.default_rng(n).integers(-9, 10, (7, n)).astype(dtype(kind).numpy)
    before = x.copy()
    found = tg.emulate(kernel, x, a=2.0)
    assert isinstance(found, np.ndarray)
    assert (found.dtype, found.shape) == (x.dtype, x.shape)
    assert np.array_equal(found.astype(np.float32), 3 * x.astype(np.float32))
    assert np.array_equal(x, before)


def test_several_results_come_in_the_machines_order() -> None:
    kernel = tg.emit(tg.space(SumAndDifference, n=50, device="a100"))
    x, y = np.random.default_rng(0).normal(size=(2, 50)).astype(np.float32)
    s, d = tg.emulate(kernel, x, y.astype(np.float64), order="random", seed=1)
    assert np.array_equal(s, x + y)
    assert np.array_equal(d, x - y)


@pytest.mark.parametrize(
    ("arrays", "scalars", "sentence"),
    [
        ((np.zeros(50, np.float32),), {}, "SumAndDifference takes 2 arrays (x, y); 1 was given"),
        (
            (),
            {"x": np.zeros(50, np.float32), "y": np.zeros(50, np.float32)},
            "SumAndDifference takes 2 arrays (x, y); 0 were given: they come one after another, in this order, and "
            "x, y came by name",
        ),
        (
            (np.zeros(50, np.float32), np.zeros(51, np.float32)),
            {},
            "y has the shape (50,) in this kernel's problem, not (51,)",
        ),
        (
            (np.zeros(50, np.float32), np.zeros(50, np.int32)),
            {},
            "y is of f32 in this kernel's problem, and int32 was given",
        ),
        ((np.zeros(50, np.float32),) * 2, {"a": 1.0}, "SumAndDifference takes no numbers by name; a was given"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arrays: Any, scalars: dict[str, float], sentence: str) -> None:
    kernel = tg.emit(tg.space(SumAndDifference, n=50, device="a100"))
    with pytest.raises(WrongArray) as refused:
        tg.emulate(kernel, *arrays, **scalars)
    assert str(refused.value) == sentence


def test_a_number_that_is_missing_is_named() -> None:
    class Scaled(Machine):
        """y = a x + b x"""

        n = Dim()
        a, b = Scalar("f32"), Scalar("f32")
        x, y = Input("f32", n), Output("f32", n)
        warps = Param(1)
        ld, st, fma, mul = isa.LdGlobal(1), isa.StGlobal(1), isa.Fma("f32"), isa.Mul("f32")

        def program(self, p: Any) -> None:
            who = blocked((32,), threads=32)
            with p.grid((self.n, 32)) as (i,), p.role("all", warps=self.warps):
                x = p.load(self.ld, self.x.tile(i, shape=(32,)), who)
                total = p.apply(self.fma, x, self.a, p.apply(self.mul, x, self.b))
                p.store(self.st, self.y.tile(i, shape=(32,)), total)

        @staticmethod
        def reference(a: Any, b: Any, x: Any) -> Any:
            return a * x + b * x

    kernel = tg.emit(tg.space(Scaled, n=5, device="a100"))
    x = np.arange(5, dtype=np.float32)
    assert np.array_equal(tg.emulate(kernel, x, a=2.0, b=1), 3 * x)
    with pytest.raises(WrongArray, match=r"^Scaled takes the numbers a, b by name; a was given$"):
        tg.emulate(kernel, x, a=2.0)
    with pytest.raises(WrongArray, match=r"^Scaled takes the numbers a, b by name; none was given$"):
        tg.emulate(kernel, x)


def test_a_program_is_run_on_arrays_as_it_is_emulated() -> None:
    kernel = tg.emit(tg.space(SumAndDifference, n=70, device="a100"))
    x, y = np.random.default_rng(0).integers(-9, 9, (2, 70)).astype(np.float32)
    s, d = tg.run(kernel, x, y)
    assert np.array_equal(s, x + y)
    assert np.array_equal(d, x - y)
    with pytest.raises(WrongArray, match=r"^SumAndDifference takes 2 arrays \(x, y\); 1 was given$"):
        tg.run(kernel, x)
    said = r"^run takes a kernel, as tg.emit\(space\) and tg.tune\(space\) give one, not 3$"
    with pytest.raises(TypeError, match=said):
        tg.run(3)  # type: ignore[arg-type]


def test_a_launch_needs_a_gpu_and_says_so() -> None:
    from tinygpu.ptx.runtime.driver import available

    x = np.ones(8, np.float32)
    if available().present:
        pytest.skip("there is a GPU here")
    with pytest.raises(GpuUnavailable) as refused:
        tg.launch("axpby", x, x)
    assert str(refused.value).startswith("no kernel can be run here: ")
    assert "device=" not in str(refused.value)


def test_a_check_is_that_of_the_command() -> None:
    report = tg.check(Axpby, problems=1, candidates=1, tiers=(1, 2))
    assert report.ok, str(report)
    with pytest.raises(MachineNotFound, match=r"^matmul is a family of machines; one is checked at a time$"):
        tg.check("matmul")


@pytest.mark.parametrize("call", ["explain", "predict", "emit"])
def test_what_is_large_is_not_shown_whole(call: str) -> None:
    with pytest.raises(TypeError) as refused:
        getattr(tg, call)(tg.emit(SPACE))
    said = f"{call} is asked of a space, as tg.space(M, n=1000, device=\"a100\") gives one, not of Finalist(space="
    assert str(refused.value).startswith(said)
    assert len(str(refused.value)) < 160
