"""The runner of mutants: every edit changes its place alone, and a mutant is killed by a test that notices it."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are run from the root

from tests.benchmarks.code_mutants import drawn  # noqa: E402
from tests.benchmarks.mutants import live  # noqa: E402
from tests.benchmarks.mutants.edits import KINDS, edits, edits_of_file  # noqa: E402
from tests.benchmarks.mutants.equivalents import EQUIVALENTS  # noqa: E402
from tests.benchmarks.mutants.executed import Executed  # noqa: E402
from tests.benchmarks.mutants.journal import Key, key_of, note, read  # noqa: E402
from tests.benchmarks.mutants.rooms import OTHERS, ROOMS, Room, module_name  # noqa: E402

SOURCE = '''
"""1 + 1 in a docstring"""
def clamp(value: "1 < 2", low=0):
    if value < low and not low:
        raise ValueError("too small: %d" % 3)
    seen.append(value)
    return max(value, low) + take(value, low) if value != 7 else -value  # é
'''


def test_the_edits_of_a_function() -> None:
    found = [(e.kind, e.line, SOURCE[e.start : e.end], e.text) for e in edits("clamp.py", SOURCE)]
    assert found == [
        ("constant", 3, "0", "(-1)"),
        ("constant", 3, "0", "1"),
        ("comparison", 4, "value < low", "(value <= low)"),
        ("comparison", 4, "value < low", "(value >= low)"),
        ("boolean", 4, "value < low and not low", "(value < low or not low)"),
        ("condition", 4, "value < low and not low", "(not (value < low and (not low)))"),
        ("boolean", 4, "not low", "(low)"),
        ("dropped statement", 5, 'raise ValueError("too small: %d" % 3)', "pass"),
        ("dropped statement", 6, "seen.append(value)", "pass"),
        ("arithmetic", 7, "max(value, low) + take(value, low)", "(max(value, low) - take(value, low))"),
        (
            "condition",
            7,
            "max(value, low) + take(value, low) if value != 7 else -value",
            "(max(value, low) + take(value, low) if not value != 7 else -value)",
        ),
        ("swapped arguments", 7, "take(value, low)", "(take(low, value))"),
        ("comparison", 7, "value != 7", "(value == 7)"),
        ("constant", 7, "7", "(6)"),
        ("constant", 7, "7", "8"),
        ("arithmetic", 7, "-value", "(value)"),
    ]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("room", [*ROOMS, *OTHERS], ids=lambda room: room.name)
@pytest.mark.end_to_end
def test_every_edit_of_a_room_is_another_program(room: Room) -> None:
    every = [edit for path in room.paths() for edit in edits_of_file(ROOT, path)]
    assert {edit.kind for edit in every} == set(KINDS)
    for edit in every[:: len(every) // 8]:
        source = (ROOT / edit.path).read_text(encoding="utf-8")
        assert ast.dump(ast.parse(edit.of(source))) != ast.dump(ast.parse(source)), edit
        assert edit.before(source) != edit.after(source)
    names = [module_name(path) for path in room.paths()]
    assert all(name.startswith("tinygpu.") and not name.endswith("__init__") for name in names)


@pytest.mark.end_to_end
def test_listed_equivalents_are_edits_of_the_code_as_it_is() -> None:
    for listed in EQUIVALENTS:
        source = (ROOT / listed.path).read_text(encoding="utf-8")
        found = {(e.before(source), e.after(source)) for e in edits_of_file(ROOT, listed.path)}
        assert (listed.before, listed.after) in found, listed
        assert listed.why


def test_a_new_draw_leaves_out_what_earlier_ones_have_tried(tmp_path: Path) -> None:
    """Each draw is of as many as are asked for while there are some, in turn of every kind; together they are all."""
    room = next(room for room in ROOMS if room.name == "constraints")
    known, file = Executed({}, {}, {}), tmp_path / "constraints-tried.json"
    path = "tinygpu/constraints/constraint.py"
    keys = {key_of(e, (ROOT / path).read_text(encoding="utf-8")) for e in edits_of_file(ROOT, path)}
    tried: set[Key] = set()
    for seed in range(99):
        mutants = drawn(room, known, 9, seed, path, read(file))
        assert tried.isdisjoint(mutant.key for mutant in mutants)
        if not mutants:
            break
        note(file, (mutant.key for mutant in mutants))
        tried |= {mutant.key for mutant in mutants}
        assert read(file) == tried
    assert tried == keys
    assert len({m.key for m in drawn(room, known, 9, 1, path)}) == min(9, len(keys))


CLAMP = """
def clamp(value, low):
    if value < low:
        value = low
    return value
"""
TESTS = """
from clamps import clamp

def test_clamp():
    assert clamp(-2, 3) == 3

def test_nothing():
    assert clamp(3, 3) == 3

def test_wrong():
    assert clamp(3, 3) == 4
"""
PROGRAM = """
import sys
from pathlib import Path
from tests.benchmarks.mutants import live  # noqa: E402
from tests.benchmarks.mutants.edits import edits_of_file
from tests.benchmarks.mutants.executed import Executed
from tests.benchmarks.mutants.order import Learned
from tests.benchmarks.mutants.trial import Trial, Tries

root, on_import = Path(sys.argv[1]), sys.argv[2] == "imported"
source = (root / "clamps.py").read_text()
sys.path.insert(0, str(root))
def named(names):
    return tuple(f"test_clamps.py::test_{name}" for name in names.split(",") if name)
cases = [
    (edit.text, named(names.partition("+")[0]), named(names.partition("+")[2]), edit.of(source))
    for edit in edits_of_file(root, "clamps.py")
    for names in sys.argv[3:]
]
trials = [Trial("clamps", "clamps.py", edited, tests, on_import, others) for _, tests, others, edited in cases]
known = Executed({}, {}, {test: 0.0 for _, tests, others, _ in cases for test in tests + others})
found = {}
Tries(root, "test_clamps.py", Learned(known)).run(trials, lambda n, outcome: found.update({n: outcome}))
for n, (text, tests, _, _) in enumerate(cases):
    by = found[n].by.rpartition("_")[2]
    print(text, ",".join(t.rpartition("_")[2] for t in tests), found[n].result, *([by] if by else []))
"""


def trials(folder: Path, how: str, clamp: str, *tests: str) -> list[str]:
    """What becomes of every edit of a module that is tried in a folder, and by which test."""
    (folder / "clamps.py").write_text(clamp)
    (folder / "test_clamps.py").write_text(TESTS)
    command = [sys.executable, "-c", PROGRAM, str(folder), how, *tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (folder / "clamps.py").read_text() == clamp
    return done.stdout.splitlines() or [done.stderr]


@pytest.mark.end_to_end
@pytest.mark.parametrize("how", ["live", pytest.param("imported", marks=pytest.mark.slow)])
def test_a_mutant_is_killed_by_a_test_that_notices_it(tmp_path: Path, how: str) -> None:
    assert trials(tmp_path, how, CLAMP, "nothing,clamp,wrong") == [
        "(value <= low) nothing,clamp,wrong survived",  # nobody can notice that one; test_wrong fails without it
        "(value >= low) nothing,clamp,wrong killed clamp",
        "(not value < low) nothing,clamp,wrong killed clamp",
    ]


@pytest.mark.slow
def test_what_runs_on_import_is_noticed_by_tests_that_do_not_execute_it(tmp_path: Path) -> None:
    assert trials(tmp_path, "imported", CLAMP, "nothing+clamp") == [
        "(value <= low) nothing survived",
        "(value >= low) nothing killed clamp",
        "(not value < low) nothing killed clamp",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["live", "imported"])
def test_a_mutant_that_never_ends_is_ended(tmp_path: Path, how: str) -> None:
    endless = "def clamp(value, low):\n    while value < low:\n        value += 1\n    return value\n"
    assert trials(tmp_path, how, endless, "nothing", "clamp") == [
        "(value <= low) nothing killed nothing",
        "(value <= low) clamp killed clamp",
        "(value >= low) nothing time nothing",
        "(value >= low) clamp killed clamp",
        "(not value < low) nothing time nothing",
        "(not value < low) clamp killed clamp",
        "value -= 1 nothing survived",
        "value -= 1 clamp time clamp",
        "pass nothing survived",
        "pass clamp time clamp",
        "(0) nothing survived",
        "(0) clamp time clamp",
        "2 nothing survived",
        "2 clamp killed clamp",
    ]


LIVE = """
from functools import lru_cache
LIMIT = 3
def plain(x, least=1):
    return [v for v in range(x) if v > least]
class Box:
    SIZE = 4
    def __init__(self):
        self.seen = 0
    @property
    def half(self):
        return self.SIZE // 2
    @lru_cache
    def walk(self, n):
        def inner(m):
            return m + n
        return inner(1)
def maker(n):
    def made(x):
        return x * n
    return made
MADE = maker(7)
"""
VALUES = "(plain(5), Box().half, Box().walk(3), MADE(2), maker(5)(2), Box().seen)"


@pytest.mark.end_to_end
def test_an_edit_of_functions_that_are_alive_does_what_the_edited_module_does(tmp_path: Path) -> None:
    """Methods, properties, closures that were made before, functions inside others: all or, on import, none.

    They are found where the garbage collector has been told to pass over them, too.
    """
    every = edits("lived.py", LIVE)
    paths = [str(tmp_path / f"lived{number}.py") for number in range(len(every))]
    modules: list[dict[str, Any]] = [{} for _ in every]
    for path, module in zip(paths, modules, strict=True):
        exec(compile(LIVE, path, "exec", dont_inherit=True), module)
    gc.freeze()
    alive, on_import = live.functions(), []
    gc.freeze()
    for edit, path, module in zip(every, paths, modules, strict=True):
        changes = live.exchanges(alive, path, LIVE, edit.of(LIVE))
        if changes is None:
            on_import.append((edit.line, edit.text))
            continue
        for function, code in changes:
            function.__code__ = code
        after: dict[str, Any] = {}
        exec(compile(edit.of(LIVE), path, "exec", dont_inherit=True), after)
        outcomes = []
        for tried in (module, after):
            try:
                outcomes.append(eval(VALUES, tried))
            except Exception as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1], edit
        assert outcomes[0] != ([2, 3, 4], 2, 4, 14, 10, 0), edit
    assert on_import == [(3, "(2)"), (3, "4"), (4, "(0)"), (4, "2"), (7, "(3)"), (7, "5"), (22, "(6)"), (22, "8")]
    assert len(every) == 21


@pytest.mark.slow
def test_the_runner_draws_and_tries_mutants_of_a_room(tmp_path: Path) -> None:
    pytest.importorskip("coverage")
    command = [sys.executable, "-m", "tests.benchmarks.code_mutants", "--rooms", "constraints", "--files", "intervals"]
    done = subprocess.run(
        [*command, "--mutants", "4", "--keep", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.stdout.splitlines()[1].split()[:2] == ["constraints", "4"], done.stderr
    assert len(list(tmp_path.glob("constraints-*.json"))) == 1
