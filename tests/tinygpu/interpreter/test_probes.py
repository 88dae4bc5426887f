"""A probed kernel does what the kernel does and records every tile; program and kernel agree at every statement."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_relayout_text as relayouts
from faulty_instructions import TEXTS
from test_three_voices import OF_ONE_PROBLEM, OF_USERS, SHIPPED, candidates
from typer.testing import CliRunner

from tinygpu.cli.app import app
from tinygpu.devices import device
from tinygpu.language import Machine
from tinygpu.language.memories import RMEM
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx.emulator import prepare
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.lower import lower, probed
from tinygpu.ptx.lowering.probe import spots
from tinygpu.ptx.verification.located import follow, with_probes
from tinygpu.ptx.verification.lockstep import Lockstep
from tinygpu.ptx.verification.trial import draw
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.testing.statements import recorded_words

# What a probed kernel has more: comments, stores to its log, reads of slots, and the arithmetic of addresses.
WORDS_OF_PROBES = 20_000


def followed(machine: type[Machine], seed: int, count: int, *inputs: Any) -> list[tuple[Program, Lockstep]]:
    out = []
    for program, problem, point in candidates(machine, seed, count):
        if recorded_words(program) > WORDS_OF_PROBES:
            continue
        built = build(program, problem, point, SolverCache())
        for kind in inputs:
            trial = draw(machine, problem, kind, seed)
            made = with_probes(
                program, built.layouts.swizzles, built.kernel, trial, 2 * math.prod(built.kernel.clusters)
            )
            out.append((program, follow(made, machine, trial, seed=seed)))
    return out


def leaving_tiles(program: Program) -> set[str]:
    """Statements that leave a tile in registers, or in a buffer that is consumed."""
    leaves = [s for s in walk(program.body) if not s.children]
    return {s.headline(frozenset()) for s in leaves if any(t.memory is RMEM or t.buffer for t in s.writes)}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("machine", [*SHIPPED[1:], *OF_USERS, *OF_ONE_PROBLEM])
def test_program_and_kernel_agree_at_every_statement(machine: type[Machine]) -> None:
    for program, steps in followed(machine, 1, 1, "integers"):
        assert not steps.partings, "\n".join(map(str, steps.partings))
        assert {s.headline(frozenset()) for s in steps.judged.values()} >= leaving_tiles(program)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [*SHIPPED, *OF_USERS, *OF_ONE_PROBLEM])
def test_they_agree_on_many_problems(machine: type[Machine]) -> None:
    for seed in (40, 41):
        for _, steps in followed(machine, seed, 1, "integers", "random", "specials"):
            assert not steps.partings, "\n".join(map(str, steps.partings))


@pytest.mark.parametrize(("seed", "count"), [(0, 3), pytest.param(1, 60, marks=pytest.mark.slow)])
def test_tiles_of_every_type_are_put_together_whoever_holds_them(seed: int, count: int) -> None:
    """Random partitions, with copies of values and idle threads, in registers that hold one, two or four elements."""
    rng = random.Random(seed)
    for case in range(count):
        shape, threads = rng.choice([(16, 16), (32, 16), (24, 32), (8, 64), (48, 20)]), rng.choice([32, 64, 128])
        chain = [relayouts.partition(rng, shape, threads) for _ in range(3)]
        kind = relayouts.KINDS[case % len(relayouts.KINDS)]
        machine = relayouts.moved(kind, shape, threads, chain, ["memory", "memory"])
        problem = machine.problem(m=shape[0] + 5, k=shape[1] + 3)
        space = build_space(machine, problem, device("a100"))
        (point,) = space.sample(1)
        program = space.program(point)
        built = build(program, problem, point, SolverCache())
        for inputs in ("integers", "specials"):
            trial = draw(machine, problem, inputs, case)  # type: ignore[arg-type]
            steps = follow(with_probes(program, built.layouts.swizzles, built.kernel, trial), machine, trial)
            assert not steps.fault
            assert not steps.partings, "\n".join(map(str, steps.partings))


def test_a_record_that_a_fault_cuts_off_is_none() -> None:
    """The kernel ends in the midst of its first record: what is not in the log yet is not taken for what it made."""
    chain = [relayouts.partition(random.Random(0), (16, 16), 32)] * 2
    machine = relayouts.moved("f32", (16, 16), 32, chain, ["memory"])
    problem = machine.problem(m=21, k=19)
    space = build_space(machine, problem, device("a100"))
    (point,) = space.sample(1)
    program = space.program(point)
    built = build(program, problem, point, SolverCache())
    trial = draw(machine, problem, "integers", 0)
    made = with_probes(program, built.layouts.swizzles, built.kernel, trial)
    assert not follow(made, machine, trial).partings
    lines = made.kernel.ptx.splitlines()
    first = next(at for at, line in enumerate(lines) if "// record 1:" in line)
    last = next(at for at in range(first, len(lines)) if "add.s64" in lines[at])
    for at in range(first + 1, last):
        cut = "\n".join([*lines[:at], "  ld.global.u32 %r0, [0];", *lines[at:]])
        steps = follow(replace(made, code=prepare(cut)), machine, trial)
        assert steps.fault
        assert not steps.partings


@pytest.mark.end_to_end
@pytest.mark.parametrize("machine", [SHIPPED[3], SHIPPED[5]])
def test_a_kernel_without_probes_is_the_probed_one_less_its_records(machine: type[Machine]) -> None:
    """Lowering with probes leaves nothing behind: the text before and after is the same, and the waits are in both."""
    (program, problem, point), *_ = candidates(machine, 2, 1)
    swizzles = build(program, problem, point, SolverCache()).layouts.swizzles
    before = lower(program, problem, point, swizzles).ptx
    variant = probed(program, problem, point, swizzles, 1 << 16).ptx
    assert lower(program, problem, point, swizzles).ptx == before
    assert "probes" not in before
    assert variant.count("// record ") >= len(spots(program))
    for waits in ("bar.sync", "mbarrier.try_wait", "wgmma.wait_group", "cp.async.wait_group", "mma", "cp.async.bulk"):
        assert variant.count(waits) == before.count(waits), waits
    kept = [line for line in variant.splitlines() if re.match(r"\s*st\.global", line) and "%" in line]
    assert len(kept) > len([line for line in before.splitlines() if re.match(r"\s*st\.global", line)])


@pytest.mark.end_to_end
def test_what_verify_says_of_a_wrong_kernel_names_statement_tile_round_and_element(tmp_path: Path) -> None:
    faulty = TEXTS["a product with exchanged halves"]
    (tmp_path / "wrong.py").write_text(
        "import sys\n"
        f"sys.path += {[str(Path(__file__).parent), *_folders()]!r}\n"
        "from faulty_instructions import TEXTS\n"
        "Wrong = TEXTS['a product with exchanged halves'].machine()\n"
    )
    words = [f"{name}={value}" for name, value in faulty.values.items()]
    asked = ",".join(f"{name}={size}" for name, size in faulty.asked.items())
    result = CliRunner().invoke(
        app, ["verify", f"{tmp_path}/wrong.py:Wrong", "--shape", asked, "--device", "a100", *words]
    )
    assert result.exit_code == 1
    last = result.stdout.strip().splitlines()[-1]
    assert re.fullmatch(
        r"the program is right, and its kernel parts from it after `%v\d+ \+= mma %v\d+, %v\d+` "
        r"\(machines/matmul_ampere\.py:\d+\), tile \(0, 0\), round "
        r"i\d+ = 0, u\d+ = 0, element \(\d+, \d+\): -?\d+ in the program, -?\d+ emulated; [\d,]+ of [\d,]+ elements "
        r"differ, on .*",
        last,
    ), last


def _folders() -> list[str]:
    tests = Path(__file__).parents[2]
    return [str(tests / "tinygpu" / "testing"), str(tests / "ptx" / "lowering")]


def test_a_program_that_is_itself_wrong_is_told_from_its_kernel() -> None:
    from right_machines import Saxpy

    from tinygpu.ptx.verification.voices import who_is_wrong

    class Backwards(Saxpy):
        """y = a * x + y, and its reference is another"""

        @staticmethod
        def reference(a: Any, x: Any, y: Any) -> Any:
            return a * x - y

    (program, problem, point), *_ = candidates(Backwards, 1, 1)
    built = build(program, problem, point, SolverCache())
    said = who_is_wrong(program, {}, built.kernel, Backwards, problem)
    assert said.startswith("the program itself is wrong, run as it is written on n="), said
    assert re.search(r": y\[\d+\] is \S+, wanted \S+ \(bound 0\)$", said), said


def test_a_tile_that_a_loop_was_to_carry_on_is_told() -> None:
    from tinygpu.language import Dim, Input, Output, blocked, where
    from tinygpu.program.carried import never_carried
    from tinygpu.ptx import isa
    from tinygpu.ptx.verification.voices import who_is_wrong

    class Prefix(Machine):
        """y[i] = the sum of x[k] over k <= i, if rounds went on with what they have"""

        m, n = Dim(), Dim()
        x, y = Input("f32", m, n), Output("f32", m, n)
        ld, st, arithmetic = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("f32")

        def program(self, p: Any) -> None:
            who = blocked((1, 32), threads=32)
            with p.grid((self.n, 32)) as (j,), p.role("all", warps=1):
                total, one = p.full(who, "f32"), p.full(who, "f32", 1)
                with p.loop(self.m) as i:
                    x = p.load(self.ld, self.x.tile(i, j, shape=(1, 32)), who)
                    total = self.go_on(p, total, x) * 1.0
                    p.store(self.st, self.y.tile(i, j, shape=(1, 32)), where(x > 9.0, one, total))

        def go_on(self, p: Any, total: Any, x: Any) -> Any:
            return total + x

        @staticmethod
        def reference(x: Any) -> Any:
            return x.cumsum(axis=0)

    class Carried(Prefix):
        def go_on(self, p: Any, total: Any, x: Any) -> Any:
            total += x
            return total

    problem, point = Prefix.problem(m=7, n=40), dict[str, int]()
    program = build_space(Prefix, problem, device("a100")).program(point)
    built = build(program, problem, point, SolverCache())
    said = who_is_wrong(program, {}, built.kernel, Prefix, problem).splitlines()[-1]
    assert re.fullmatch(
        r"%v1, which begins as 0\.0 \(.*test_probes\.py:\d+\), is read in every round of a loop, and nothing writes "
        "into it: `x = x \\+ y` makes another tile in each round, and `x \\+= y` or into= goes on with it",
        said,
    ), said
    assert not list(never_carried(build_space(Carried, problem, device("a100")).program(point)))


@pytest.mark.end_to_end
def test_a_statement_of_a_new_class_is_recorded_by_what_it_writes() -> None:
    (program, *_), *_ = candidates(SHIPPED[3], 2, 1)
    known = spots(program)
    written = {t.name for s in walk(program.body) if not s.children for t in s.writes if t.partition is not None}
    assert {name for _, name in known} >= written
    assert len({spot.number for spot in known.values()}) == len(known)
    assert all(isinstance(spot.statement, n.Statement) and spot.words % 4 == 0 for spot in known.values())
    assert np.all(np.diff([spot.number for spot in known.values()]) > 0)
