"""What code of the user's raises is a sentence with their file and line; what it returns is checked."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tinygpu.api.machines import family
from tinygpu.cli.app import app
from tinygpu.language import bound_tensor
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.tracing import Tracer
from tinygpu.language.verb import KINDS
from tinygpu.users_code import UsersCodeError

SAXPY = """from tinygpu.language import Dim, InOut, Input, Machine, Param, Scalar, blocked
from tinygpu.ptx import isa


class Saxpy(Machine):
    n = Dim()
    a = Scalar("f32")
    x = Input("f32", n)
    y = InOut("f32", n)
    warps = Param(1, 2)
    ld, st, fma = isa.LdGlobal(1), isa.StGlobal(1), isa.Fma("f32")

    def program(self, p):
        shape = (32 * self.warps,)
        who = blocked(shape, threads=32 * self.warps)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=shape), who)
            y = p.load(self.ld, self.y.tile(i, shape=shape), who)
            p.store(self.st, self.y.tile(i, shape=shape), p.apply(self.fma, x, self.a, y))

    @staticmethod
    def reference(a, x, y):
        return a * x + y
"""
TOP = "import isa\n"
TILE = "a tile (a window of a tensor, a buffer of a slot, or a value in registers)"
NUMBER = "a whole number, a parameter, a dim, or an expression of them"
PARTITION = "a partition, as blocked(...) and p.tiled(...) give them"
TAKES = "it takes instruction, source, partition, fill="
OFFERED = "at, column, contiguous, dtype, leading, name, rank, row, rows, segment, tensor, tile"
WINDOW = "self.x.tile(i, shape=shape)"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(folder: Path, was: str, becomes: str) -> str:
    """Saxpy with one piece replaced, as a file in the current folder; the name of the machine."""
    assert SAXPY.count(was) >= 1
    (folder / "mine.py").write_text(SAXPY.replace(was, becomes, 1), encoding="utf-8")
    return "mine.py:Saxpy"


def line_of(was: str) -> int:
    return 1 + next(n for n, line in enumerate(SAXPY.splitlines()) if was in line)


@pytest.mark.parametrize(
    ("was", "becomes", "sentence"),
    [
        (f"{WINDOW}, who", "None, who", f"p.load: source must be {TILE}, not None"),
        (f"{WINDOW}, who", "self.x, who", f"p.load: source must be {TILE}, not the tensor x"),
        (f"{WINDOW}, who", "[0] * 99, who", f"p.load: source must be {TILE}, not ({'0, ' * 98}0)"),
        (f"{WINDOW}, who", "dict.fromkeys(range(99)), who",
         f"p.load: source must be {TILE}, not an object of the class dict"),
        (f"{WINDOW}, who", f"{WINDOW}", f"p.load: missing a required argument: 'partition'; {TAKES}"),
        (f"{WINDOW}, who", f"{WINDOW}, who, fil=3", f"p.load: got an unexpected keyword argument 'fil'; {TAKES}"),
        (f"{WINDOW}, who", f"{WINDOW}, who, fill='a'", "p.load: fill must be a number, not 'a'"),
        (f"{WINDOW}, who", f"{WINDOW}, 5", f"p.load: partition must be {PARTITION}, not 5"),
        ("tile(i, shape=shape)", "tile(1.5, shape=shape)", f"x.tile: offset must be {NUMBER}, not 1.5"),
        ("tile(i, shape=shape)", "tile(i, shape=5)", "x.tile: shape must be a tuple of numbers, parameters, dims or "
         "expressions of them, one per axis, not 5"),
        ("as (i,)", "as i", f"x.tile: offset must be {NUMBER}, not (32*tile0*warps,); p.grid gives a tuple, of one "
         "axis too: `with p.grid(...) as (i,)` takes the number out of it"),
        ("(self.n, shape[0])", "self.n", "p.grid: axes must be a pair (dim, extent of a tile), or (dim, "
         "extent, groups), not n"),
        ("threads=32 * self.warps", "threads=None", f"blocked: threads must be {NUMBER}, not None"),
        ('warps=self.warps)', 'warps="4")', f"p.role: warps must be {NUMBER}, not '4'"),
        ('"all"', "5", "p.role: name must be a name, as a string, not 5"),
        ("self.x.tile", "self.x.tyle", "the tensor x has no .tyle; did you mean .tile?"),
        ("self.x.tile", "self.x.zzz", f"the tensor x has no .zzz; it has {OFFERED}"),
        ("x, self.a, y", "x, 'a', y", "fma takes tiles, scalars, dims and numbers, not 'a'"),
    ],
)  # fmt: skip
def test_what_a_verb_cannot_take_is_said_in_the_authors_words(
    here: Path, was: str, becomes: str, sentence: str
) -> None:
    with pytest.raises(DeclarationError) as error:
        family(written(here, was, becomes))
    assert str(error.value) == f"Saxpy.program: {sentence}"


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ("shape[0]))", "shape[1]))", "IndexError: tuple index out of range"),
        ("x = p.load(", "x, z = p.load(", "TypeError: cannot unpack non-iterable Tile object"),
        ("as (i,)", "as (i, j)", "ValueError: not enough values to unpack (expected 2, got 1)"),
        (
            "p.apply(self.fma, x, self.a, y)",
            "x @ y",
            "TypeError: unsupported operand type(s) for @: 'Tile' and 'Tile'; products of matrices are p.multiply, by "
            "a matrix instruction",
        ),
        ("shape = (32", 'shape = {}["k"] or (32', "KeyError: 'k'"),
    ],
)
def test_what_python_raises_in_a_program_names_the_authors_line(here: Path, was: str, becomes: str, said: str) -> None:
    name = written(here, was, becomes)
    with pytest.raises(DeclarationError) as error:
        family(name)
    number = line_of(was)
    line = (here / "mine.py").read_text(encoding="utf-8").splitlines()[number - 1].strip()
    assert str(error.value) == f"Saxpy.program: mine.py:{number}, in program ({line}): {said}"


@pytest.mark.parametrize(
    ("was", "becomes", "sentence"),
    [
        ("def program(self, p):", "def program(self, p:", "mine.py:13: '(' was never closed: def program(self, p:"),
        (TOP, f"{TOP}import nosuch\n", "mine.py:3 (import nosuch): ModuleNotFoundError: No module named 'nosuch'"),
        (TOP, f"{TOP}1 / 0\n", "mine.py:3 (1 / 0): ZeroDivisionError: division by zero"),
        (TOP, f"{TOP}raise SystemExit(3)\n", "mine.py:3 (raise SystemExit(3)): it ends the process, with status 3"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_imported_names_its_line(here: Path, was: str, becomes: str, sentence: str) -> None:
    name = written(here, was, becomes)
    with pytest.raises(UsersCodeError) as error:
        family(name)
    assert str(error.value) == f"mine.py cannot be imported: {sentence}"


LAST = "return a * x + y"


@pytest.mark.parametrize(
    ("becomes", "sentence"),
    [
        ("return None", "returns None: it must return an array of shape (40,) for y"),
        ("return (a * x + y)[:-1]", "returns an array of shape (39,): it must return an array of shape (40,) for y"),
        ("return float(a)", "returns an array of shape (): it must return an array of shape (40,) for y"),
        ('return "hello"', "returns a str: it must return an array of shape (40,) for y"),
        ("return {'z': x}", "returns 'z', and there is no 'y' in it: it must return an array of shape (40,) for y"),
        ("return 1 / 0", ": mine.py:23, in reference (return 1 / 0): ZeroDivisionError: division by zero"),
        ("return zz", ": mine.py:23, in reference (return zz): NameError: name 'zz' is not defined"),
    ],
)
def test_a_reference_that_cannot_judge_is_an_answer_and_nothing_is_written(
    here: Path, becomes: str, sentence: str
) -> None:
    name = written(here, LAST, becomes)
    ended = CliRunner().invoke(app, ["verify", name, "--shape", "n=1000", "-d", "a100", "warps=1"])
    assert isinstance(ended.exception, UsersCodeError), ended.output
    assert str(ended.exception) == f"Saxpy.reference{'' if sentence[0] == ':' else ' '}{sentence}"
    assert [p.name for p in here.iterdir() if p.name != "__pycache__"] == ["mine.py"]


def test_every_kind_that_a_verb_names_is_checked_by_the_verb_or_here() -> None:
    """A verb with an argument of a new kind needs a row, or its own check, which this list then names."""
    own = {
        "Instruction", "Instruction | Route", "Transfer", "Transfer | MatrixStore | CellStore", "MatrixMultiply",
        "Elementwise", "Shuffle", "Tile | n.ScalarArgument | Expr | float", "UnknownLayout | None", "BufferSpec",
        "Memory", "Expr", "tuple[int, int]", "TileScheduler | None", "LaneRead | Route | None", "Choosable",
        "Elementwise | Combine", "Tile | tuple[Tile, ...]", "Tile | tuple[Tile, ...] | None", "By", "Values",
        "n.ScalarArgument | Expr | float", "tuple[Tile, Tile] | None", "Layout | None",
    }  # fmt: skip
    verbs = [
        function
        for owner in (Tracer, bound_tensor.BoundTensor)
        for name, function in inspect.getmembers(owner, inspect.isfunction)
        if not name.startswith("_") and hasattr(function, "__wrapped__") and name not in {"nested", "deeper"}
    ]
    assert len(verbs) > 15
    kinds = {str(p.annotation) for v in verbs for p in inspect.signature(v).parameters.values() if p.name != "self"}
    assert kinds <= own | set(KINDS), kinds - own - set(KINDS)


@pytest.mark.parametrize("command", ["tune", "verify", "check", "bundle", "train", "emulate"])
def test_a_negative_seed_is_refused_by_every_command(here: Path, command: str) -> None:
    name = written(here, LAST, LAST)
    problem = ["--shape", "n=1000", "-d", "a100"]
    (here / "k.ptx").write_text(
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n    ret;\n}\n", encoding="utf-8"
    )
    words = {
        "tune": [name, *problem],
        "verify": [name, *problem, "warps=1"],
        "check": [name],
        "bundle": [name, *problem, "-o", "b.bundle"],
        "train": ["--out", "p.npz"],
        "emulate": ["k.ptx", "--grid", "1", "--block", "32", "--order", "random"],
    }[command]
    ended = CliRunner().invoke(app, [command, *words, "--seed", "-1"])
    said = ended.output.strip() or str(ended.exception)  # `emulate` prints by itself, beside a fault's other exit code
    assert ended.exit_code
    assert said.removeprefix("tinygpu: ") == "a seed is a whole number from 0 on, not -1"
    assert not {"runs", "b.bundle", "p.npz"} & set(os.listdir(here))


def test_tuning_keeps_at_least_one(here: Path) -> None:
    name = written(here, LAST, LAST)
    ended = CliRunner().invoke(app, ["tune", name, "--shape", "n=1000", "-d", "a100", "--keep", "0"])
    assert str(ended.exception) == "tuning keeps 1 of the best candidates or more to choose from, not 0"


def test_a_machine_without_options_says_so(here: Path) -> None:
    name = written(here, LAST, LAST)
    ended = CliRunner().invoke(app, ["space", name, "--shape", "n=1000", "-d", "a100", "--option", "foo=1"])
    assert re.fullmatch(r"Saxpy has no option 'foo'; it has none", str(ended.exception))


@pytest.mark.parametrize("made", ['(Input("f32", n) for _ in range(2))', '[Input("f32", n) for _ in range(2)]'])
def test_a_generator_in_a_class_that_does_not_see_its_names_is_told(here: Path, made: str) -> None:
    body = f"class Pair(Machine):\n    n = Dim()\n    x, y = {made}\n"
    (here / "pair.py").write_text(f"from tinygpu.language import Dim, Input, Machine\n\n\n{body}")
    with pytest.raises(UsersCodeError) as told:
        family("pair.py:Pair")
    assert str(told.value).endswith(
        "NameError: name 'n' is not defined; a generator or a comprehension does not see n of the class around it: "
        "write out what it makes"
    )
