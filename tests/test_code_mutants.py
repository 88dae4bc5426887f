"""The runner of mutants: every edit changes its place alone, and a mutant is killed by a test that notices it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are run from the root

from tests.benchmarks.mutants.edits import KINDS, edits, edits_of_file  # noqa: E402
from tests.benchmarks.mutants.equivalents import EQUIVALENTS  # noqa: E402
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


@pytest.mark.parametrize("room", [*ROOMS, *OTHERS], ids=lambda room: room.name)
def test_every_edit_of_a_room_is_another_program(room: Room) -> None:
    every = [edit for path in room.paths() for edit in edits_of_file(ROOT, path)]
    assert {edit.kind for edit in every} == set(KINDS)
    for edit in every[:: len(every) // 8]:
        source = (ROOT / edit.path).read_text(encoding="utf-8")
        assert ast.dump(ast.parse(edit.of(source))) != ast.dump(ast.parse(source)), edit
        assert edit.before(source) != edit.after(source)
    names = [module_name(path) for path in room.paths()]
    assert all(name.startswith("tinygpu.") and not name.endswith("__init__") for name in names)


def test_listed_equivalents_are_edits_of_the_code_as_it_is() -> None:
    for listed in EQUIVALENTS:
        source = (ROOT / listed.path).read_text(encoding="utf-8")
        found = {(e.before(source), e.after(source)) for e in edits_of_file(ROOT, listed.path)}
        assert (listed.before, listed.after) in found, listed
        assert listed.why


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
"""
PROGRAM = """
import sys, time
from pathlib import Path
from tests.benchmarks.mutants import trial
from tests.benchmarks.mutants.edits import edits_of_file

root = Path(sys.argv[1])
source = (root / "clamps.py").read_text()
sys.path.insert(0, str(root))
for edit in edits_of_file(root, "clamps.py"):
    for names in sys.argv[2:]:
        tests = [f"test_clamps.py::test_{name}" for name in names.split(",")]
        pid, begun = trial.start(root, "clamps", "clamps.py", edit.of(source), tests, 1.0, 0), time.monotonic()
        while (result := trial.ended(pid, begun, 100.0)) is None:
            time.sleep(0.01)
        print(edit.text, names, result)
"""


def trials(folder: Path, clamp: str, *tests: str) -> list[str]:
    """What becomes of every edit of a module that is tried in a folder."""
    (folder / "clamps.py").write_text(clamp)
    (folder / "test_clamps.py").write_text(TESTS)
    command = [sys.executable, "-c", PROGRAM, str(folder), *tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (folder / "clamps.py").read_text() == clamp
    return done.stdout.splitlines() or [done.stderr]


def test_a_mutant_is_killed_by_a_test_that_notices_it(tmp_path: Path) -> None:
    assert trials(tmp_path, CLAMP, "nothing,clamp") == [
        "(value <= low) nothing,clamp survived",  # nobody can notice that one
        "(value >= low) nothing,clamp killed",
        "(not value < low) nothing,clamp killed",
    ]


@pytest.mark.slow
def test_a_mutant_that_never_ends_is_ended(tmp_path: Path) -> None:
    endless = "def clamp(value, low):\n    while value < low:\n        value += 1\n    return value\n"
    assert trials(tmp_path, endless, "nothing", "clamp") == [
        "(value <= low) nothing killed",
        "(value <= low) clamp killed",
        "(value >= low) nothing time",
        "(value >= low) clamp killed",
        "(not value < low) nothing time",
        "(not value < low) clamp killed",
        "pass nothing survived",
        "pass clamp time",
        "value -= 1 nothing survived",
        "value -= 1 clamp time",
        "(0) nothing survived",
        "(0) clamp time",
        "2 nothing survived",
        "2 clamp killed",
    ]


@pytest.mark.slow
def test_the_runner_draws_and_tries_mutants_of_a_room(tmp_path: Path) -> None:
    pytest.importorskip("coverage")
    command = [sys.executable, "-m", "tests.benchmarks.code_mutants", "--rooms", "constraints", "--files", "intervals"]
    done = subprocess.run(
        [*command, "--mutants", "4", "--keep", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.stdout.splitlines()[1].split()[:2] == ["constraints", "4"], done.stderr
    assert len(list(tmp_path.glob("constraints-*.json"))) == 1
