"""A text that faults is told with the statement of the program that printed it, where the user wrote it."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sparse_products import SparseProduct

from tinygpu.api.choosing import choose
from tinygpu.api.on_arrays import emulate_on
from tinygpu.devices import device
from tinygpu.language import Instruction, Machine, Route
from tinygpu.language.memories import RMEM
from tinygpu.language.parameters import Choice
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.machines.matmul_simt import MatmulSimt
from tinygpu.machines.matmul_skinny import MatmulSkinny
from tinygpu.program import nodes as n
from tinygpu.program.tree import leaves, walk
from tinygpu.ptx import isa
from tinygpu.ptx.emulator import EmulationFault, Fault, Order
from tinygpu.ptx.lowering.build import Built, build
from tinygpu.ptx.verification.line_info import LineInfo
from tinygpu.ptx.verification.verify import RefusedText, verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space
from tinygpu.testing.case import Case
from tinygpu.testing.judges import judge
from tinygpu.testing.workbench import Workbench

sys.path.append(str(Path(__file__).parents[2] / "tinygpu" / "testing"))
import right_machines as right


@dataclass(frozen=True)
class On:
    """A machine with a problem that it takes, and values of a candidate that is small."""

    machine: type[Machine]
    dims: dict[str, int]
    device: str
    values: dict[str, int | str]


SMALL: dict[str, int | str] = {"bm": 32, "bn": 32, "bk": 32, "stages": 3}
HOPPER: dict[str, int | str] = {"bm": 64, "bn": 32, "bk": 32, "stages": 3}
MACHINES = {
    "ampere": On(MatmulAmpere, {"m": 64, "n": 64, "k": 160}, "a100", SMALL),
    "simt": On(MatmulSimt, {"m": 64, "n": 64, "k": 96}, "a100", {"bm": 32, "bn": 32, "bk": 8}),
    "hopper": On(MatmulHopper, {"m": 128, "n": 64, "k": 160}, "h100", HOPPER),
    "skinny": On(MatmulSkinny, {"m": 16, "n": 64, "k": 512}, "h100", {"warps": 4}),
    "saxpy": On(right.Saxpy, {"n": 300}, "a100", {}),
    "rows": On(right.RowSum, {"m": 9, "n": 70}, "a100", {}),
    "transpose": On(right.Transpose, {"m": 70, "n": 40}, "a100", {}),
    "sparse": On(SparseProduct, {"m": 5, "n": 9, "nnz": 40, "d": 32}, "a100", {"warps": 2}),
}
# Behind, or in place of, what an instruction's own text says.
BREAKS: dict[str, tuple[Callable[[str], str], str]] = {
    "traps": (lambda text: f"{text} trap;", "the kernel stopped itself"),
    "waits for ever": (lambda text: f"{text} barrier.sync 9, 1024;", "barrier 9 has "),
    "is beside its operand": (lambda text: re.sub(r"\[([^],]+)\]", r"[\1+16777216]", text), "is out of bounds"),
    "is a byte off": (lambda text: re.sub(r"\[([^],]+)\]", r"[\1+1]", text), "is misaligned"),
    "is of another language": (lambda text: f"{text} no.such.op %r0;", "the emulator has no semantics for"),
}


def planted(one: Instruction, change: Callable[[str], str]) -> Instruction:
    """The same instruction with another text."""

    kind, printed = type(one), []
    ways = ("copy", "statement", "text") if RMEM not in _memories(one) else ("statement", "text")
    name = next(name for name in ways if hasattr(kind, name))  # the others are parts of it, or not asked for

    def changed(self: Any, *given: Any, **named: Any) -> str:
        printed.append(name)
        return change(getattr(kind, name)(self, *given, **named))

    own = type(f"Planted{kind.__name__}", (kind,), {"__doc__": "planted", name: changed, "printed": printed})
    made: Instruction = own(**{f.name: getattr(one, f.name) for f in fields(kind) if f.init})
    return made


def _memories(one: Instruction) -> set[Any]:
    return {getattr(one, "reads", RMEM), getattr(one, "writes", RMEM)}


def attributes(machine: type[Machine]) -> Iterator[tuple[str, Instruction]]:
    """Every instruction that a machine names; of a choice each that is one."""
    for kind in reversed(machine.__mro__):
        for name, value in vars(kind).items():
            options = value.options if isinstance(value, Choice) else (value,)
            yield from ((name, one) for one in options if isinstance(one, Instruction) and not isinstance(one, Route))


def broken(on: On, name: str, own: Instruction) -> tuple[MachineSpace, Built] | None:
    """A candidate whose program uses the planted instruction; None where a few have no use for it."""
    body = {"__doc__": on.machine.__doc__, "__module__": on.machine.__module__, name: own}
    machine = type(f"Broken{on.machine.__name__}", (on.machine,), body)
    space = build_space(machine, machine.problem(**on.dims), device(on.device))
    for point in space.space.restrict(on.values).sample(12, np.random.default_rng(0)):
        program = space.program(point)
        if any(type(i) is type(own) for s in walk(program.body) for i in s.instructions):
            built = build(program, space.problem, point, SolverCache())
            if type(own).printed:  # type: ignore[attr-defined]
                return space, built
    return None


def told(space: MachineSpace, built: Built, order: Order = "late") -> str:
    """What verification says of the first run."""
    lines = LineInfo.of(built, space.problem)
    try:
        found = verify(
            built.kernel, space.machine, space.problem, orders=(order,), random_inputs=False, thorough=True,
            to_first_failure=True, lines=lines,
        )  # fmt: skip
    except RefusedText as refused:
        return str(refused)
    return found.checks[-1].fault


def kinds(one: Instruction) -> list[str]:
    """The breaks of its text that there are: operands in memory can be somewhere else."""
    return [how for how in BREAKS if _memories(one) != {RMEM} or how not in ("is beside its operand", "is a byte off")]


NAMED = [(where, *one) for where, on in MACHINES.items() for one in enumerate(attributes(on.machine))]
# Of every instruction one break, the kinds in turn.
CASES = [
    (where, name, number, kinds(one)[i % len(kinds(one))]) for i, (where, number, (name, one)) in enumerate(NAMED)
]


@pytest.mark.slow
@pytest.mark.parametrize(("where", "name", "number", "how"), CASES)
def test_every_text_that_faults_is_told_with_its_statement(where: str, name: str, number: int, how: str) -> None:
    check_told(where, name, number, how)


CHEAP = [
    ("saxpy", "ld", "is beside its operand"),
    ("saxpy", "fma", "waits for ever"),
    ("rows", "shuffle", "traps"),
    ("transpose", "get", "is a byte off"),
    ("transpose", "put", "is of another language"),
]


@pytest.mark.parametrize(("where", "name", "how"), CHEAP)
def test_a_text_that_faults_is_told_with_its_statement(where: str, name: str, how: str) -> None:
    (number,) = (i for i, (own, _) in enumerate(attributes(MACHINES[where].machine)) if own == name)
    assert check_told(where, name, number, how)


def check_told(where: str, name: str, number: int, how: str) -> bool:
    on, (change, kind) = MACHINES[where], BREAKS[how]
    own = planted(list(attributes(on.machine))[number][1], change)
    found = broken(on, name, own)
    if found is None:
        return False
    space, built = found
    said = told(space, built)
    file, line, headline = re.match(r"(\S+\.py):(\d+), in `([^`]+)`", said).groups()  # type: ignore[union-attr]
    assert kind in said
    told_lines = [int(line) for line in re.findall(r"\bline (\d+)", said)]
    printed = LineInfo.of(built, space.problem).lines
    first = next(printed[line].statement for line in told_lines if line in printed)
    assert headline == first.headline(frozenset()), said
    # Of roles that wait for each other, the one that stopped first may stand behind.
    about = told_lines if "deadlock" in said else told_lines[:1]
    statements = [printed[line].statement for line in about if line in printed]
    guilty = [s for s in statements if any(type(i) is type(own) for i in s.instructions)]
    assert guilty, said
    assert f"in `{guilty[0].headline(frozenset())}`" in said
    assert linecache.getline(file, int(line)).strip(), said
    file, line = guilty[0].place.rsplit(":", 1)
    assert "p." in linecache.getline(file, int(line)), guilty[0].place
    return True


def trap_at(one: isa.Fma | isa.Add) -> Instruction:
    """The same instruction, which stops at 77."""
    stops = "{{{{ .reg .pred q; setp.eq.f32 q, {{a}}, 0f429A0000; @q trap; }}}}\n{text}"
    return planted(one, lambda text: stops.format(text=text))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(8))
def test_the_tile_and_the_rounds_are_those_of_the_fault(seed: int) -> None:
    """One element is what the text stops at: warps that go on together, and roles whose warps lie apart."""
    rng = np.random.default_rng(seed)
    by_roles = bool(seed % 2)
    on = On(right.Handed, {"m": 40, "n": 160}, "h100", {}) if by_roles else MACHINES["simt"]
    name = "add" if by_roles else "fma"
    found = broken(on, name, trap_at(dict(attributes(on.machine))[name]))
    assert found is not None
    space, built = found
    shapes = {o.name: o.shape for o in space.problem.operands if o.access != "out"}
    arrays = [np.zeros(shape, np.float32) for shape in shapes.values()]
    row, column = (int(rng.integers(extent)) for extent in arrays[0].shape)
    arrays[0][row, column] = 77
    finalist = choose(space, dict(built.kernel.point))
    with pytest.raises(EmulationFault) as caught:
        emulate_on(finalist, arrays, {}, "random", seed)
    values = dict(built.kernel.point)
    if by_roles:
        tile, rounds = rf"\({row // int(values['rows'])},\)", [column // 32]
    else:
        depth = int(values["bk"])
        tile, rounds = rf"\({row // int(values['bm'])}, \d+\)", [column // depth, column % depth]
    said = re.search(f", tile {tile}, round ([^:]*):", str(caught.value))
    assert said is not None, caught.value
    assert [int(pair.split(" = ")[1]) for pair in said[1].split(", ")] == rounds


def test_statements_of_other_lines_that_a_fault_speaks_of_are_told_too() -> None:
    on = MACHINES["transpose"]
    found = broken(on, "get", planted(dict(attributes(on.machine))["get"], str))
    assert found is not None
    space, built = found
    lines = LineInfo.of(built, space.problem)
    by_name = {str(getattr(of.statement, "name", "")): line for line, of in lines.lines.items()}
    reads, writes = by_name["get"], by_name["put"]
    fault = Fault(
        "race", "k", reads, "ld", (0, 0, 0), None, "shared", 0, f"reads what warp 1 wrote on line {writes}: put bar"
    )
    said = lines.fault(EmulationFault(fault))
    assert said == f"{lines.where(reads)}: {fault}; line {writes} is {lines.where(writes)}"
    assert re.match(r"\S+right_machines\.py:\d+, in `%v\d+ = get ", said)


def test_what_data_say_is_told_beside_the_tile() -> None:
    """A stop in the second row names that row, and where it begins and ends."""
    on = MACHINES["sparse"]
    found = broken(on, "add", trap_at(dict(attributes(on.machine))["add"]))
    assert found is not None
    space, built = found
    first, column = np.array([0, 3, 7, 7, 20, 40], np.int32), np.zeros(40, np.int32)
    value, b, c = np.zeros(40, np.float16), np.ones((9, 32), np.float16), np.zeros((5, 32), np.float32)
    value[3:7] = 77
    finalist = choose(space, dict(built.kernel.point))
    with pytest.raises(EmulationFault) as caught:
        emulate_on(finalist, [first, column, value, b, c], {"alpha": 1.0, "beta": 1.0}, "late", 0)
    assert ", tile (1, 0), where first.at1 = 3, first.at2 = 7: " in str(caught.value), caught.value


@pytest.mark.sampled(3)
@pytest.mark.parametrize("where", MACHINES)
def test_marks_change_nothing_of_a_text_and_name_every_line_of_a_statement(where: str) -> None:
    on = MACHINES[where]
    space = build_space(on.machine, on.machine.problem(**on.dims), device(on.device))
    for point in space.space.sample(2, np.random.default_rng(1)):
        built = build(space.program(point), space.problem, point, SolverCache())
        lines = LineInfo.of(built, space.problem).lines
        named = {of.statement for of in lines.values()}
        assert named >= {s for s in leaves(built.program.body) if not isinstance(s, n.Relayout | n.Constant)}
        assert all(of.statement.place for of in lines.values())


def test_a_check_and_an_emulation_of_ones_own_arrays_say_the_same() -> None:
    on = MACHINES["saxpy"]
    found = broken(on, "ld", planted(dict(attributes(on.machine))["ld"], BREAKS["is beside its operand"][0]))
    assert found is not None
    space, built = found
    case = Case(space.machine, space.problem, device(on.device), dict(built.kernel.point))
    judged = judge(case, Workbench(), orders=("late",))
    assert judged.stage == "fault"
    arrays = [np.zeros(o.shape, np.float32) for o in space.problem.operands]
    with pytest.raises(EmulationFault) as caught:
        emulate_on(choose(space, dict(built.kernel.point)), arrays, {"a": 1.0}, "late", 0)
    wanted = r"right_machines\.py:\d+, in `%v\d+ = ld x\[.*\]`, tile \(0,\): brokensaxpy, PTX line \d+ `"
    for said in (judged.sentence, str(caught.value)):
        assert re.search(wanted, said), said
