"""Lowering knows families, and no instruction: a clone of an instruction gives the PTX that the instruction gives."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_drawn_kernels as drawn
from cloned_instructions import CLONES, clone, pair

import tinygpu.ptx.lowering
from tinygpu.api.machines import SHIPPED
from tinygpu.devices import device
from tinygpu.language.instruction import Instruction
from tinygpu.language.machine import Machine
from tinygpu.language.posing import ProblemError
from tinygpu.language.problem import Problem
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.testing.draws import SeededDraw, draw_problem

COMMENT = re.compile(r"[ \t]*//[^\n]*")
TARGETS = ("a100", "h100", "rtx5090")
ONLY = {
    "matmul_hopper": ("h100",), "matmul_basic_hopper": ("h100",), "matmul_skinny": ("h100", "rtx5090"),
    "grouped_matmul_hopper": ("h100",), "batched_matmul_hopper": ("h100",),
    "matmul_basic_blackwell": ("b200",), "matmul_blackwell": ("b200",), "matmul_skinny_blackwell": ("b200",),
    "matmul_blackwell_mx": ("b200",), "matmul_blackwell_nvfp4": ("b200",),
    "attention_blackwell": ("b200",), "grouped_matmul_blackwell": ("b200",),
    "matmul_blackwell_consumer": ("rtx5090",), "matmul_mx": ("rtx5090",), "matmul_nvfp4": ("rtx5090",),
}  # fmt: skip
SIZES = (64, 128, 192, 256, 512, 1000)
# Machines whose programs have what the shipped machines' have not, in the quick suite.
CHOSEN = ("Fragments", "Quantised", "RmsOfRows", "GroupedBatch")
KERNELS = [line.split("|") for line in drawn.lines() if not line.split("|")[3].startswith("refused")]


def filled(machine: type[Machine], problem: Problem, point: dict[str, Any]) -> Program:
    fill, axes = drawn.traced(machine, problem, tuple((c.name, point[c.name]) for c in machine.choices()))
    return fill.fill({axis: int(point[axis]) for axis in axes})


def text(program: Program, problem: Problem, point: dict[str, Any]) -> str:
    return COMMENT.sub("", build(program, problem, point, SolverCache()).kernel.ptx)


def renamed(machine: type[Machine], copied: type[Machine], point: dict[str, Any]) -> dict[str, Any]:
    """The point with the names that its options have in the copy: they are called after their instructions' labels."""
    choices = zip(machine.choices(), copied.choices(), strict=True)
    return point | {c.name: o.labels[c.labels.index(point[c.name])] for c, o in choices}


def instructions(program: Program) -> Iterator[Instruction]:
    for s in walk(program.body):
        yield from s.instructions


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.sampled(9)
def test_copies_of_machines_on_clones_give_the_same_ptx(name: str) -> None:
    machine, copied = pair(name)
    for _, number, drawn_point, _ in [k for k in KERNELS if drawn.MACHINES[k[0]] is machine][:2]:
        point, problem = json.loads(drawn_point), drawn.posed(machine, int(number))
        asked = Problem.from_json(problem.to_json())
        again = filled(copied, asked, renamed(machine, copied, point))
        assert not [i for i in instructions(again) if type(i).__module__.startswith("tinygpu.")]
        assert text(again, asked, point) == text(filled(machine, problem, point), problem, point)


def cloned(value: Any) -> Any:
    """A program, or a part of it, with clones in the place of its instructions."""
    if isinstance(value, Instruction) and type(value).__module__.startswith("tinygpu."):
        return clone(type(value))(**{f.name: getattr(value, f.name) for f in fields(value)})
    if isinstance(value, tuple):
        return tuple(map(cloned, value))
    if is_dataclass(value) and type(value).__module__.startswith(("tinygpu.program", "tinygpu.language.route")):
        return replace(value, **{f.name: cloned(getattr(value, f.name)) for f in fields(value)})  # type: ignore[type-var]
    return value


@pytest.mark.parametrize(
    "name", [name if name in CHOSEN else pytest.param(name, marks=pytest.mark.slow) for name in drawn.MACHINES]
)
def test_programs_with_clones_give_the_same_ptx(name: str) -> None:
    machine = drawn.MACHINES[name]
    for _, number, drawn_point, _ in [k for k in KERNELS if k[0] == name]:
        point, problem = json.loads(drawn_point), drawn.posed(machine, int(number))
        program = filled(machine, problem, point)
        assert text(cloned(program), problem, point) == text(program, problem, point)


def test_the_programs_that_are_compared_use_every_kind_of_instruction() -> None:
    seen: set[str] = set()
    for name in ("MatmulAmpere", "MatmulHopper", "MatmulSimt", "MatmulSkinny", *CHOSEN):
        machine = drawn.MACHINES[name]
        for _, number, point, _ in [k for k in KERNELS if k[0] == name]:
            program = filled(machine, drawn.posed(machine, int(number)), json.loads(point))
            seen |= {type(i).__name__ for i in instructions(program)}
    assert {
        "LdMatrix", "StMatrix", "MmaSync", "CpAsync", "LdGlobal", "StGlobal", "LdShared", "StShared", "Wgmma",
        "WgmmaRegisters", "TmaLoad", "TmaStore", "ShflBfly", "Cvt", "Fma",
    } <= seen  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "target"), [(name, target) for name in SHIPPED for target in ONLY.get(name, TARGETS)])
def test_spaces_of_copies_have_the_same_candidates_and_ptx(name: str, target: str) -> None:
    machine, copied = pair(name)
    rng = np.random.default_rng([5, *name.encode(), *target.encode()])
    left = 10
    for _ in range(200):
        try:
            problem = draw_problem(machine, SeededDraw(rng), SIZES, plain=bool(rng.integers(3) == 0))
            space = build_space(machine, problem, device(target))
        except ProblemError:
            continue
        if not (left and space.space.size):
            continue
        asked = Problem.from_json(problem.to_json())
        again = build_space(copied, asked, device(target))
        assert again.space.size == space.space.size
        for point in map(dict, space.space.sample(min(left, 5), rng)):
            other = renamed(machine, copied, point)
            assert other in again.space
            made = text(again.program(other), asked, other)
            assert made == text(space.program(point), problem, point), f"{problem} {point}"
            left -= 1
    assert not left


def test_a_clone_is_derived_from_its_family_alone() -> None:
    kinds = [k for k in vars(isa).values() if isinstance(k, type) and issubclass(k, Instruction)]
    assert {"MmaSync", "LdMatrix", "StMatrix", "Wgmma", "CpAsync", "TmaLoad", "TmaStore"} <= {k.__name__ for k in kinds}
    for kind in kinds:
        own, (base,) = clone(kind), clone(kind).__bases__
        assert base.__module__.startswith("tinygpu.language.instruction.")
        assert not issubclass(own, kind)
        assert own.__name__ != kind.__name__
    assert CLONES.Fma("f32").label == "own fma.rn.f32"


@pytest.mark.parametrize("kind", isa.Add.spelling)
def test_what_arithmetic_prints_does_not_hang_on_its_label(kind: str) -> None:
    for one in {*isa.arithmetic(kind), *isa.arithmetic(kind, approximate=True)}:
        own = CLONES.alike(one)
        assert own.label != one.label
        assert own.text() == one.text()


def test_lowering_imports_no_instruction() -> None:
    folder = Path(tinygpu.ptx.lowering.__file__ or "").parent
    found = []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            module = getattr(node, "module", None) or ""
            found += [f"{path.name}: {module} {name}" for name in names if "isa" in f"{module}.{name}".split(".")]
    assert found == []
