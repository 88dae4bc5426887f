"""The text of kernels: the smallest one per feature, nothing in loops that does not belong there, nothing unused."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import test_turns as turns
from golden_kernels import CASES, GOLDEN, kernel

from tinygpu.devices import device
from tinygpu.language import Machine
from tinygpu.machines.elementwise import BiasRelu
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_simt import MatmulSimt
from tinygpu.ptx.assembling.assembler import AssemblerError, assemble
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.lower import VERSIONS
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_the_smallest_kernel_of_a_feature(case: Any) -> None:
    made = kernel(*case)
    wanted = (GOLDEN / f"{made.name}.ptx").read_text()
    difference = "\n".join(
        difflib.unified_diff(wanted.split("\n"), made.ptx.split("\n"), "golden", "lowered", lineterm="")
    )
    assert not difference, f"{difference}\nto accept it: python tests/ptx/lowering/golden_kernels.py"
    assemble(made.ptx, "sm_80")
    assert verify(made, case[0], case[0].problem(**case[1])).passed


# --- for which targets -------------------------------------------------------------------------------------------

PTX = ((6, 5), *((7, minor) for minor in range(9)), *((8, minor) for minor in range(9)))


def with_version(ptx: str, version: tuple[int, int]) -> str:
    return re.sub(r"^\.version .*$", f".version {version[0]}.{version[1]}", ptx, count=1, flags=re.MULTILINE)


@pytest.mark.parametrize("target", sorted(VERSIONS))
def test_a_target_has_the_lowest_version_that_the_assembler_takes(target: int) -> None:
    assert sorted(VERSIONS) == [80, 86, 87, 89, 90, 100, 120]
    version = VERSIONS[target]
    empty = f".version 0.0\n.target sm_{target}\n.address_size 64\n.visible .entry k()\n{{\n  ret;\n}}\n"
    assemble(with_version(empty, version), f"sm_{target}")
    before = PTX[PTX.index(version) - 1]
    refusal = rf"version {before[0]}\.{before[1]} does not support \.target sm_{target}"
    with pytest.raises(AssemblerError, match=refusal):
        assemble(with_version(empty, before), f"sm_{target}")


def test_roles_have_the_lowest_version_that_has_their_barriers() -> None:
    made = turns.kernel_of((1, 1), 50)[2]
    (version,) = [v for v in PTX if f".version {v[0]}.{v[1]}\n" in made.ptx]
    assemble(made.ptx, made.architecture)
    with pytest.raises(AssemblerError, match=r"requires PTX ISA \.version 8\.0 or later"):
        assemble(with_version(made.ptx, PTX[PTX.index(version) - 1]), made.architecture)


# --- what stands where --------------------------------------------------------------------------------------------

REGISTER = re.compile(r"%[a-z]+\d+")
STATEMENT = re.compile(r"(?:@!?(%\w+)\s+)?([\w.]+)(?:\s+(.*))?;")
# Instructions that do more than compute a value from operands.
EFFECTS = ("ld.", "st.", "cp.async", "ldmatrix", "mma", "bar.", "bra", "shfl", "ret")


def statements(lines: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    """(guard, opcode, operands) of every statement."""
    for line in lines:
        found = STATEMENT.fullmatch(line.split("//")[0].strip())
        if found and not found[2].startswith("."):
            yield found[1] or "", found[2], re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", found[3] or "")


def loops(ptx: str) -> list[list[str]]:
    """The lines of every loop, its closing branch included."""
    lines = ptx.split("\n")
    out = []
    for start, line in enumerate(lines):
        if found := re.match(r"(\$loop\d+):", line):
            end = max(i for i, other in enumerate(lines) if other.strip().endswith(f"bra {found[1]};"))
            out.append(lines[start + 1 : end + 1])
    return out


def results(opcode: str, operands: list[str]) -> list[str]:
    return [] if opcode.startswith(("st.", "cp.async", "bra", "bar", "ret")) else REGISTER.findall(operands[0])


def invariant(body: list[str]) -> list[str]:
    """Values that a loop computes again and again from operands that do not change in it."""
    made: dict[str, int] = {}
    for _, opcode, operands in statements(body):
        for register in results(opcode, operands):
            made[register] = made.get(register, 0) + 1
    out = []
    for guard, opcode, operands in statements(body):
        read = {r for operand in operands[1:] for r in REGISTER.findall(operand)} | ({guard} if guard else set())
        once = all(made[r] == 1 for r in results(opcode, operands))
        if not opcode.startswith(EFFECTS) and once and not read & set(made):
            out.append(f"{opcode} {', '.join(operands)}")
    return out


PROBLEMS: list[tuple[type[Machine], dict[str, Any]]] = [
    (MatmulAmpere, {"m": 512, "n": 512, "k": 512}),
    (MatmulAmpere, {"m": 77, "n": 93, "k": 51}),
    (MatmulAmpere, {"m": 512, "n": 512, "k": 512, "majors": {"a": "col", "b": "col"}}),
    (MatmulSimt, {"m": 512, "n": 512, "k": 512}),
    (MatmulSimt, {"m": 77, "n": 93, "k": 51}),
]


COUNT = 3


@cache
def kernels(machine: type[Machine], asked: str) -> tuple[str, ...]:
    """The texts of some candidates for a problem, as JSON."""
    problem = machine.problem(**json.loads(asked))
    space = build_space(machine, problem, device("a100"))
    cache = SolverCache()
    points = space.space.sample(COUNT, np.random.default_rng(4))
    return tuple(build(space.program(point), problem, point, cache).kernel.ptx for point in points)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("machine", "asked"), PROBLEMS, ids=lambda v: "" if isinstance(v, dict) else v.__name__)
@pytest.mark.end_to_end
def test_a_loop_computes_nothing_that_stays_the_same(machine: type[Machine], asked: dict[str, Any]) -> None:
    seen = 0
    for ptx in kernels(machine, json.dumps(asked)):
        for body in loops(ptx):
            seen += 1
            assert invariant(body) == []
    assert seen >= COUNT


def test_the_check_sees_what_stays_the_same() -> None:
    ptx = kernels(MatmulAmpere, json.dumps(PROBLEMS[0][1]))[0]
    (body,) = loops(ptx)
    outside = next(r for r in REGISTER.findall(ptx) if r not in "\n".join(body))
    assert invariant([f"    add.u32 %r9999, {outside}, 4;", *body]) == [f"add.u32 %r9999, {outside}, 4"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("machine", "asked"),
    [*PROBLEMS, (BiasRelu, {"m": 100, "n": 96})],
    ids=lambda v: "" if isinstance(v, dict) else v.__name__,
)
def test_every_value_that_is_computed_is_used(machine: type[Machine], asked: dict[str, Any]) -> None:
    """Of the two halves of a register that is taken apart, one is enough."""
    for ptx in kernels(machine, json.dumps(asked)):
        made: list[list[str]] = []
        read: set[str] = set()
        for guard, opcode, operands in statements(ptx.split("{", 1)[1].split("\n")):
            if opcode.startswith(("ld.param", "cvta")):
                continue
            mine = results(opcode, operands)
            if mine and not opcode.startswith(EFFECTS):
                made.append(mine)
            read |= {r for o in (operands[1:] if mine else operands) for r in REGISTER.findall(o)} | {guard}
        assert made
        assert [m for m in made if not read & set(m)] == []
