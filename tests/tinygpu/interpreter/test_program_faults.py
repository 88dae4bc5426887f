"""What keeps a program from its end is said in one sentence: waits without end, values that nobody wrote, arrays."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.expressions import expr
from tinygpu.interpreter.fault import ProgramFault
from tinygpu.language import Dim, Elementwise, Input, Machine, Output, Param, blocked
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.ptx import isa
from tinygpu.spaces.build import build_space
from tinygpu.users_code import UsersCodeError, place_of


def line_of(fault: BaseException) -> str:
    """The line of the user's that a fault is told with, as they wrote it."""
    file, line = place_of(fault).rsplit(":", 1)
    return linecache.getline(file, int(line)).strip()


SIZES = {"m": 70, "n": 40, "k": 136}


def program_of(machine: type[Machine], problem: Any, name: str = "h100", **values: int | str) -> Program:
    space = build_space(machine, problem, device(name))
    return space.program(space.space.restrict(values).sample(1, np.random.default_rng(0))[0])


def edited(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value with every part of it changed, the inner ones first; None leaves a statement out."""
    if isinstance(value, tuple):
        return tuple(new for new in (edited(v, change) for v in value) if new is not None)
    if is_dataclass(value) and not isinstance(value, type) and hasattr(value, "__slots__"):
        parts = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        new = {name: edited(v, change) for name, v in parts.items() if isinstance(v, tuple)}
        return change(replace(value, **new) if new else value)
    return change(value)


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {name: rng.integers(-3, 4, shape).astype(np.float16) for name, shape in (("a", (70, 136)), ("b", (136, 40)))}


def hopper(**values: int | str) -> Program:
    return program_of(MatmulHopper, MatmulHopper.problem(**SIZES), **values)


def test_roles_that_wait_for_each_other_for_ever_are_named() -> None:
    program = hopper(schedule="single", split_k=1, stream_k=0, cluster_m=1, cluster_n=1, store="direct")

    def one_round_less(s: Any) -> Any:
        produces = isinstance(s, n.Loop) and any(isinstance(inner, n.Produce) for inner in s.body)
        return replace(s, trips=s.trips - 1) if produces else s

    with pytest.raises(ProgramFault) as fault:
        replace(program, body=edited(program.body, one_round_less)).run(arrays())
    assert str(fault.value) == "MatmulHopper waits for ever in CTA 0: role consumer waits for a full slot of ring"
    assert "ring.consume()" in line_of(fault.value)


def test_a_slot_that_is_not_released_stops_its_producer() -> None:
    alone = {"split_k": 1, "stream_k": 0, "cluster_m": 1, "cluster_n": 1}
    program = hopper(schedule="single", store="direct", stages=2, bk=32, **alone)

    def less(s: Any) -> Any:
        consumes = isinstance(s, n.Loop) and any(isinstance(inner, n.Consume) for inner in s.body)
        return replace(s, trips=expr(1)) if consumes else s

    with pytest.raises(ProgramFault) as fault:
        replace(program, body=edited(program.body, less)).run(arrays(), ctas=1)
    assert str(fault.value) == "MatmulHopper waits for ever in CTA 0: role producer waits for an empty slot of ring"
    assert line_of(fault.value) == "with ("  # its items stand below each other


def test_turns_that_are_passed_on_too_seldom_stop_the_other_role() -> None:
    program = hopper(schedule="pingpong", split_k=1, stream_k=0, cluster_m=1, cluster_n=1, store="direct", bm=64, bn=16)

    def never(s: Any) -> Any:
        return n.Loop("none", expr(0), False, (s,)) if isinstance(s, n.Consume) and s.pipeline == "math" else s

    def without_ping(s: Any) -> Any:
        return edited(s, never) if isinstance(s, n.InRole) and s.role == "ping" else s

    with pytest.raises(ProgramFault) as fault:
        replace(program, body=edited(program.body, without_ping)).run(arrays(), ctas=1)
    assert str(fault.value) == (
        "MatmulHopper waits for ever in CTA 0: role producer waits for an empty slot of ring; role pong waits for its "
        "turn in math"
    )


def test_what_nobody_wrote_is_not_read() -> None:
    program = hopper(schedule="single", split_k=1, stream_k=0, cluster_m=1, cluster_n=1, store="direct")

    def without_b(s: Any) -> Any:
        return None if isinstance(s, n.Copy) and s.target.name == "ring.b" else s

    with pytest.raises(ProgramFault) as fault:
        replace(program, body=edited(program.body, without_b)).run(arrays())
    assert str(fault.value) == "ring.b[0, 0] is read, and nobody has written it"
    assert "p.multiply(" in line_of(fault.value)


def test_an_element_that_is_left_out_is_named() -> None:
    program = hopper(schedule="single", split_k=1, stream_k=0, cluster_m=1, cluster_n=1, store="direct", bm=64, bn=32)

    def upwards(s: Any) -> Any:
        return replace(s, size=expr(64)) if isinstance(s, n.Axis) and s.index == "tile0" else s

    with pytest.raises(ProgramFault) as fault:
        replace(program, grid=edited(program.grid, upwards)).run(arrays())
    assert str(fault.value) == "MatmulHopper: c[64, 0] is never written"
    assert "p.store(" in line_of(fault.value)


class Sign(Elementwise):
    """d = the sign of a"""

    operands, result = ("f32",), "f32"
    template = "copysign.f32 {d}, {a}, 0f3F800000;"


class WrongShape(Sign):
    """A meaning of another shape"""

    def meaning(self, *values: Any) -> Any:
        return np.zeros(3)


class Raises(Sign):
    """A meaning that fails"""

    def meaning(self, *values: Any) -> Any:
        return values[1]


def signs(instruction: Elementwise) -> type[Machine]:
    class Signs(Machine):
        """y = sign(x)"""

        n = Dim()
        x, y = Input("f32", n), Output("f32", n)
        warps = Param(1, 2)
        ld, st, sign = isa.LdGlobal(1), isa.StGlobal(1), instruction

        def program(self, p: Any) -> None:
            shape = (self.warps * 32,)
            who = blocked(shape, threads=self.warps * 32)
            with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
                x = p.load(self.ld, self.x.tile(i, shape=shape), who)
                p.store(self.st, self.y.tile(i, shape=shape), p.apply(self.sign, x))

        @staticmethod
        def reference(x: Any) -> Any:
            return np.sign(x)

    return Signs


def ran(instruction: Elementwise, **given: Any) -> Any:
    machine = signs(instruction)
    program = program_of(machine, machine.problem(n=50), warps=1)
    return program.run(given or {"x": np.ones(50, np.float32)})


def test_an_instruction_without_a_meaning_is_named() -> None:
    with pytest.raises(ProgramFault) as fault:
        ran(Sign())
    assert str(fault.value) == (
        "sign (copysign.f32) does not say what it means: give its class a `meaning` in NumPy"
    )


def test_a_meaning_of_another_shape_is_named() -> None:
    with pytest.raises(ProgramFault) as fault:
        ran(WrongShape())
    assert str(fault.value) == "the meaning of sign (copysign.f32) makes 3 values of v2, which has 32"


def test_a_meaning_that_raises_is_named_with_the_line_of_its_author() -> None:
    with pytest.raises(UsersCodeError) as fault:
        ran(Raises())
    assert str(fault.value).startswith("the meaning of sign (copysign.f32): tests/tinygpu/interpreter/test_program_fa")
    assert str(fault.value).endswith("in meaning (return values[1]): IndexError: tuple index out of range")


class Ones(Sign):
    """A meaning that is right of ones"""

    def meaning(self, *values: Any) -> Any:
        return np.sign(values[0])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"z": np.ones(5, np.float32)}, "Signs: no array that was given has the dim n; say how large it is"),
        ({"x": np.ones((5, 2), np.float32)}, "x has the dims n, and the array has the shape [5, 2]"),
        ({"x": np.ones(5, np.float16)}, "x is of f32 in this program, and float16 was given"),
        ({"x": np.ones(5, np.float32), "z": np.ones(5)}, "Signs reads no 'z'; give arrays for x"),
        ({"y": np.ones(5, np.float32)}, "Signs reads no 'y'; give arrays for x"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ProgramFault) as fault:
        ran(Ones(), **given)
    assert str(fault.value) == said


def test_numbers_are_given_by_name_and_dims_agree() -> None:
    machine = signs(Ones())
    program = program_of(machine, machine.problem(n=50), warps=1)
    ones = np.ones(50, np.float32)
    with pytest.raises(ProgramFault, match=r"^Signs takes no numbers by name; a was given$"):
        program.run({"x": ones}, {"a": 2.0})
    with pytest.raises(ProgramFault, match=r"^Signs: the dim n is 60 in what was said and 50 in x$"):
        program.run({"x": ones}, sizes={"n": 60})
    with pytest.raises(ProgramFault, match=r"^MatmulHopper: the dim k is 136 in a and 135 in b$"):
        hopper().run({**arrays(), "b": np.ones((135, 40), np.float16)})


def test_a_program_that_is_not_filled_in_says_so() -> None:
    machine = signs(Ones())
    traced = build_space(machine, machine.problem(n=50), device("h100")).traces[0].program
    with pytest.raises(ProgramFault) as fault:
        traced.run({"x": np.ones(50, np.float32)})
    assert str(fault.value) == "the program of Signs is run for a candidate: fill in a number for warps"


def test_what_is_given_stays_as_it_is_and_results_are_new() -> None:
    given = arrays()
    before = {name: a.copy() for name, a in given.items()}
    result = hopper().run(given)["c"]
    assert result.shape == (70, 40)
    assert result.dtype == np.float16
    for name, array in given.items():
        assert np.array_equal(array, before[name])
    assert np.array_equal(result, (before["a"].astype(np.float64) @ before["b"].astype(np.float64)).astype(np.float16))
