"""Saved programs: what is loaded prints, saves and lowers as what was saved."""

import functools
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.dtypes import DTYPES
from tinygpu.files import FileError
from tinygpu.language import Dim, Elementwise, Input, Machine, Output, Param, Problem, blocked
from tinygpu.language.declared import Structure
from tinygpu.language.memories import MEMORIES, Memory
from tinygpu.language.trace import trace
from tinygpu.machines.elementwise import Axpby, BiasRelu
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_simt import MatmulSimt
from tinygpu.program import nodes as n
from tinygpu.program.fill import filler
from tinygpu.program.program import Program
from tinygpu.program.saved import SaveError, load_program, save_program
from tinygpu.program.tree import walk
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.lower import lower
from tinygpu.schedulers.sliced import OneTile
from tinygpu.spaces.build import build_space

PROBLEMS: dict[type[Machine], tuple[Problem, ...]] = {
    Axpby: (Axpby.problem(n=1000),),
    BiasRelu: (BiasRelu.problem(m=100, n=96),),
    MatmulSimt: (MatmulSimt.problem(m=100, n=96, k=48, options={"with_bias": True, "activation": "gelu"}),),
    MatmulAmpere: (
        MatmulAmpere.problem(m=100, n=96, k=48),
        MatmulAmpere.problem(m=64, n=64, k=64, dtypes={"a": "s8"}, majors={"b": "col"}, options={"with_bias": True}),
    ),
}
STRUCTURES = [(m, p, s) for m, problems in PROBLEMS.items() for p in problems for s in m.structures()]


def again(program: Program) -> Program:
    """Through text, as a file would hold it."""
    return load_program(json.loads(json.dumps(save_program(program), allow_nan=False)))


@pytest.mark.sampled(16)
@pytest.mark.parametrize("number", range(len(STRUCTURES)))
def test_every_shipped_structure_comes_back(number: int) -> None:
    machine, problem, structure = STRUCTURES[number]
    program = trace(machine, problem, structure).program
    loaded = again(program)
    assert str(loaded) == str(program)
    assert save_program(loaded) == save_program(program)
    assert loaded.threads.same(program.threads)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("drawn", [3, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("machine", PROBLEMS, ids=lambda m: m.__name__)
def test_what_was_loaded_lowers_to_the_same_bytes(machine: type[Machine], drawn: int) -> None:
    """Saved before its numbers are in, and after: both give the kernel of the program that was never saved."""
    for problem in PROBLEMS[machine]:
        space = build_space(machine, problem, device("a100"))
        seen: set[Structure] = set()
        for point in space.space.sample(drawn, np.random.default_rng(0)):
            index = space.structure_index(point)
            if space.structures[index] in seen:
                continue
            seen.add(space.structures[index])
            values = {a: int(point[a]) for a in space.traces[index].axes}
            filled = space.program(point)
            open_again = filler(again(space.traces[index].program), frozenset(values)).fill(values)
            expected = lower(filled, problem, point)
            assert lower(again(filled), problem, point) == expected
            assert lower(open_again, problem, point) == expected
        assert seen


@dataclass(frozen=True, eq=False)
class Halve(Elementwise):
    """d = a / 2: an instruction of one's own, at the top of a module."""

    times: int = 1
    operands: ClassVar[tuple[str, ...]] = ("f32",)
    result: ClassVar[str] = "f32"
    template: ClassVar[str] = "mul.rn.f32 {d}, {a}, 0f3F000000;"

    def meaning(self, *values: Any) -> Any:
        return values[0] / 2


@dataclass(frozen=True, eq=False)
class Foreseen(Halve):
    """One whose fields have types that cannot be looked up."""

    when: "NeverDefined" = 0  # type: ignore[name-defined]  # noqa: F821


@dataclass(frozen=True, eq=False)
class Listed(Halve):
    """One with a field that is made anew."""

    seen: tuple[int, ...] = field(default_factory=tuple)


@dataclass(frozen=True, eq=False)
class Told(Elementwise):
    """One that is told what it means."""

    meaning: Any = None
    operands: ClassVar[tuple[str, ...]] = ("f32",)
    result: ClassVar[str] = "f32"
    template: ClassVar[str] = "mov.b32 {d}, {a};"


@dataclass(frozen=True)
class Foreign:
    """A value, but none of the language."""

    size: int = 1


def one_step(instruction: Elementwise, fill: float = 0.0) -> Program:
    class Step(Machine):
        """y = step(x)"""

        n = Dim()
        x = Input("f32", n)
        y = Output("f32", n)
        warps = Param(1, 2)
        ld, st, step = isa.LdGlobal(1), isa.StGlobal(1), instruction

        def program(self, p: Any) -> None:
            shape = (self.warps * 32,)
            who = blocked(shape, threads=self.warps * 32)
            with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
                x = p.load(self.ld, self.x.tile(i, shape=shape), who, fill=fill)
                p.store(self.st, self.y.tile(i, shape=shape), p.apply(self.step, x))

        @staticmethod
        def reference(x: Any) -> Any:
            return x

    return trace(Step, Step.problem(n=64), ()).program


@pytest.mark.parametrize("fill", [float("-inf"), float("inf"), 1.5, 0.0])
def test_numbers_that_json_lacks_come_back(fill: float) -> None:
    program = one_step(isa.Neg("f32"), fill)
    (load,) = [s for s in walk(again(program).body) if isinstance(s, n.Load)]
    assert load.fill == fill


def test_a_users_instruction_comes_back_as_its_own_class() -> None:
    program = one_step(Halve(3))
    (apply,) = [s for s in walk(again(program).body) if isinstance(s, n.Apply)]
    assert type(apply.instruction) is Halve
    assert apply.instruction.times == 3


def test_fields_that_have_defaults_may_be_left_out() -> None:
    """As by a version that did not have them yet: of nodes and of instructions, made once or anew for each."""
    saved = json.loads(json.dumps(save_program(one_step(Halve(3)))))
    saved.pop("checksum")
    grid = saved["program"]["grid"]
    (halve,) = [entry for entry in saved["shared"] if entry["is"].endswith(":Halve")]
    assert (grid.pop("scheduler"), halve.pop("times")) == ({"is": "OneTile", "slices": {"expr": "1"}}, 3)
    halve["is"] = halve["is"].replace("Halve", "Listed")
    loaded = load_program(saved)
    (apply,) = [s for s in walk(loaded.body) if isinstance(s, n.Apply)]
    assert isinstance(apply.instruction, Listed)
    assert (apply.instruction.times, apply.instruction.seen) == (1, ())
    assert type(loaded.grid.scheduler) is OneTile
    assert loaded.grid.scheduler.slices.same(1)


def test_fields_of_unknown_types_come_back() -> None:
    (apply,) = [s for s in walk(again(one_step(Foreseen(2, 5))).body) if isinstance(s, n.Apply)]
    assert type(apply.instruction) is Foreseen
    assert (apply.instruction.times, apply.instruction.when) == (2, 5)


def test_what_could_not_be_imported_is_refused_when_it_is_saved() -> None:
    class Local(Halve):
        pass

    sentence = (
        "Step, Program.body, InRole.body, Apply.instruction uses the instruction "
        f"{Local.__qualname__}, which cannot be imported from {__name__}; define it at the top of a module"
    )
    with pytest.raises(SaveError, match=f"^{re.escape(sentence)}$"):
        save_program(one_step(Local()))


@pytest.mark.parametrize("value", [Foreign(), replace(DTYPES[0], name="f99")])
def test_a_value_that_the_language_does_not_have_is_refused(value: Any) -> None:
    program = replace(one_step(Halve()), structure=(("how", value),))
    with pytest.raises(SaveError) as refused:
        save_program(program)
    kind = type(value).__name__
    assert str(refused.value) == (
        f"Step, Program.structure holds a {kind}, which is neither a value of the language nor an Instruction"
    )


def test_a_memory_that_no_kernel_can_have_is_refused_on_both_ways() -> None:
    lies = "lies in state space 'global', written by 'threads'"
    why = f"{lies}; a memory of one's own holds tensors in state space 'const', written by the 'host'"
    with pytest.raises(SaveError) as refused:
        save_program(replace(one_step(Halve()), structure=(("how", replace(MEMORIES[0], name="L3")),)))  # type: ignore[arg-type]
    assert str(refused.value) == f"Step, Program.structure holds the memory L3, which {why}"
    table = Memory("TABLE", "grid", 4096, 4, space="const", writer="host")
    program = one_step(Halve())
    tensors = (replace(program.tensors[0], memory=table), *program.tensors[1:])
    saved = json.loads(json.dumps(save_program(replace(program, tensors=tensors))))
    del saved["checksum"]
    assert load_program(saved).tensors[0] == tensors[0]
    (held,) = (s["memory"] for s in saved["shared"] if s["is"] == "Tensor" and s["memory"].get("name") == "TABLE")
    held |= {"space": "global", "writer": "threads"}
    with pytest.raises(FileError) as damaged:
        load_program(saved)
    assert str(damaged.value) == f"the saved program holds a Memory that cannot be: TABLE {why}"


def test_a_function_inside_an_instruction_is_refused() -> None:
    def twice(x: Any) -> Any:
        return 2 * x

    program = one_step(Told(twice))
    sentence = (
        f"Step, Program.body, InRole.body, Apply.instruction, Told.meaning holds {twice!r}, which cannot be saved: "
        "it is no number, text, expression or value of the language"
    )
    with pytest.raises(SaveError, match=f"^{re.escape(sentence)}$"):
        save_program(program)


@cache
def halved() -> Mapping[str, Any]:
    return save_program(one_step(Halve()))


def broken(**changes: Any) -> dict[str, Any]:
    """A saved program with other entries, and the checksum only if one is given."""
    return {k: v for k, v in halved().items() if k != "checksum"} | changes


NESTED = functools.reduce(lambda inside, _: [inside], range(3000), 0)
FIT = "the saved program holds a Produce that does not fit this version: it "
NO_VALUE = "the saved program holds {}, which is no value of this schema"
NOT_THERE = (
    "the saved program uses '{}' of '{}', which is not there: import what defines it before, if you "
    "trust it"
)


@pytest.mark.parametrize(
    ("entry", "value", "sentence"),
    [
        ("schema", 9, "this version reads saved programs of schema 10, not 9"),
        ("shared", 7, "the entry shared of a saved program is a list, not 7"),
        ("program", 3, "the entry program holds a int, not a Program"),
        ("checksum", "1234", "the saved program was changed after it was saved: its checksum does not fit"),
        ("program", {1, 2}, "the saved program holds what JSON has no word for"),
        ("program", float("nan"), "the saved program holds what JSON has no word for"),
        ("shared", [float("inf")], "the saved program holds what JSON has no word for"),
        ("program", NESTED, "the saved program is nested too deeply to be read"),
        ("program", {"is": "Loops"}, "the saved program holds a 'Loops', which is no value of the language"),
        ("program", {"nothing": "1" * 99}, NO_VALUE.format(f'{{"nothing": "{"1" * 67}')),
        ("program", {"shared": 99}, NO_VALUE.format('{"shared": 99}')),
        ("program", {"shared": -1}, NO_VALUE.format('{"shared": -1}')),
        ("program", {"shared": 0, "of": 1}, NO_VALUE.format('{"shared": 0, "of": 1}')),
        ("shared", [3, {"shared": 1}], NO_VALUE.format('{"shared": 1}')),
        ("program", {"dtype": "f1"}, NO_VALUE.format('{"dtype": "f1"}')),
        ("program", {"dtype": "f32", "of": 1}, NO_VALUE.format('{"dtype": "f32", "of": 1}')),
        ("program", {"memory": "disk"}, NO_VALUE.format('{"memory": "disk"}')),
        ("program", {"memory": "SMEM", "of": 1}, NO_VALUE.format('{"memory": "SMEM", "of": 1}')),
        ("program", {"float": "1"}, NO_VALUE.format('{"float": "1"}')),
        ("program", {"float": "inf", "of": 1}, NO_VALUE.format('{"float": "inf", "of": 1}')),
        ("program", {"expr": "a", "of": 1}, NO_VALUE.format('{"expr": "a", "of": 1}')),
        ("program", {"is": "Produce", "pipeline": "ring"}, f"{FIT}lacks its body"),
        ("program", {"is": "Produce", "pipeline": "ring", "body": [], "speed": 1, "wit": 2}, f"{FIT}has no speed"),
        (
            "program",
            {"is": "ScalarArgument", "name": 5, "dtype": {"dtype": "f32"}},
            "the saved program holds a ScalarArgument whose name is a int, which it cannot be",
        ),
        (
            "program",
            {"expr": "1 +"},
            "the saved program holds an expression that cannot be read: '1 +' is not an expression in Python's syntax",
        ),
        (
            "program",
            {"is": "tinygpu.ptx.isa.alu:Neg", "kind": "f3"},
            f"the saved program holds a Neg that cannot be: Neg exists for {', '.join(isa.Neg.spelling)}, not for 'f3'",
        ),
        ("program", {"is": "tinygpu.nowhere:Thing"}, NOT_THERE.format("Thing", "tinygpu.nowhere")),
        ("program", {"is": "os:system"}, NOT_THERE.format("system", "os")),
    ],
)
def test_other_data_is_refused(entry: str, value: Any, sentence: str) -> None:
    with pytest.raises(FileError) as refused:
        load_program(broken(**{entry: value}))
    assert str(refused.value) == sentence


def test_what_lacks_an_entry_is_no_saved_program() -> None:
    for data in ([], 7, *({k: v for k, v in broken().items() if k != entry} for entry in broken())):
        with pytest.raises(FileError) as refused:
            load_program(data)
        assert str(refused.value) == "a saved program has the entries schema, shared, program and checksum"


def test_loading_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a module of the user nor one of the standard library, whatever is asked of it."""
    (tmp_path / "trap_of_a_file.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    for path in ("trap_of_a_file:Thing", "antigravity:x", "os.path:join", "tinygpu.ptx.isa:LdGlobal.x", ":", "a:b:c"):
        before = set(sys.modules)
        with pytest.raises(FileError, match="which is not there"):
            load_program(broken(program={"is": path}))
        assert set(sys.modules) == before


def test_shared_values_are_written_once() -> None:
    program = trace(MatmulAmpere, PROBLEMS[MatmulAmpere][0], next(iter(MatmulAmpere.structures()))).program
    saved = save_program(program)
    texts = [json.dumps(entry) for entry in saved["shared"]]
    assert len(set(texts)) == len(texts)
    assert sum(entry["is"] == "Tensor" for entry in saved["shared"]) == len(program.tensors)


def test_a_change_of_the_program_changes_what_is_saved() -> None:
    program = one_step(Halve())
    assert save_program(replace(program, machine="Other")) != save_program(program)
