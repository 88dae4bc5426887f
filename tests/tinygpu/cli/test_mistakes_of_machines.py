"""Whatever a user's class does wrong, whichever command meets it: a sentence with their file and line, exit code 1."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tinygpu.cli.app import app, expected
from tinygpu.users_code import with_place

RIGHT = '''\
import numpy as np
from tinygpu.language import Dim, Elementwise, Input, Machine, Output, Param, Require, Scalar, blocked, symbol
from tinygpu.language.heuristic import HEURISTICS, Heuristic
from tinygpu.ptx import isa


class Twice(Elementwise):
    """d = 2 a"""

    unit = "fma"

    def types(self):
        return ("f32",), "f32"

    def text(self):
        return "add.rn.f32 {d}, {a}, {a};"

    def meaning(self, a):
        return a + a


class Read(isa.LdGlobal):
    """A load of my own"""

    def statement(self, kind, piece, registers, address):
        return super().statement(kind, piece, registers, address)

    def meaning(self, values):
        return values

    def legality(self, memory_side, partition):
        return super().legality(memory_side, partition)


class Dear(Heuristic):
    name = "dear loads"

    def costs(self, s, warps):
        return {"warp_instructions": warps} if s.reads else {}


class Mine(Machine):
    """y = 2 a x"""

    n = Dim()
    a = Scalar("f32")
    x = Input("f32", n)
    y = Output("f32", n)

    warps = Param(1, 2)
    vector = Param(1, 2)
    ld, st, mul, twice = Read(vector), isa.StGlobal(vector), isa.Mul("f32"), Twice()
    few = Require(warps <= 8, "at most eight warps")
    heuristics = (*HEURISTICS, Dear())

    def program(self, p):
        shape = (self.warps * 32 * self.vector,)
        who = blocked(shape, threads=self.warps * 32, vector=self.vector)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=shape), who)
            z = p.apply(self.twice, x)
            p.store(self.st, self.y.tile(i, shape=shape), p.apply(self.mul, z, self.a))

    @staticmethod
    def reference(a, x):
        return a * (x + x)

    @classmethod
    def precision(cls, options):
        return True, 0.0

    @classmethod
    def refuses(cls, problem):
        return ""
'''
# what is wrong: what stands there, and what is written instead
PLANTED = {
    "types raises": ('return ("f32",), "f32"', "return 1 / 0"),
    "types none": ('return ("f32",), "f32"', "return None"),
    "types odd": ('return ("f32",), "f32"', 'return ("f33",), "f32"'),
    "text raises": ('return "add.rn.f32 {d}, {a}, {a};"', "return 1 / 0"),
    "text none": ('return "add.rn.f32 {d}, {a}, {a};"', "return None"),
    "text unknown operand": ('{a}, {a};"', '{a}, {q};"'),
    "text brace": ('return "add.rn.f32 {d}, {a}, {a};"', 'return "{ add.rn.f32 {d}, {a}, {a}; }"'),
    "text no ptx": ('"add.rn.f32 {d}, {a}, {a};"', '"add.rn.f33 {d}, {a}, {a};"'),
    "text syntax": ('"add.rn.f32 {d}, {a}, {a};"', '"add rn f32 {d} {a}, {a};"'),
    "meaning raises": ("return a + a", "return a / undefined"),
    "meaning none": ("return a + a", "return None"),
    "meaning shape": ("return a + a", "return np.concatenate([a, a])"),
    "meaning str": ("return a + a", "return 'x'"),
    "meaning args": ("def meaning(self, a):", "def meaning(self, a, b):"),
    "stmt raises": ("return super().statement(kind, piece, registers, address)", "return registers[9]"),
    "stmt none": ("return super().statement(kind, piece, registers, address)", "return None"),
    "stmt int": ("return super().statement(kind, piece, registers, address)", "return 3"),
    "stmt wrong reg": (
        "return super().statement(kind, piece, registers, address)",
        "return f'ld.global.b32 %nosuch, {address};'",
    ),
    "load meaning raises": ("return values", "return values / None"),
    "load meaning none": ("return values", "return None"),
    "legality raises": ("return super().legality(memory_side, partition)", "return memory_side.nosuch"),
    "legality none": ("return super().legality(memory_side, partition)", "return None"),
    "legality int": ("return super().legality(memory_side, partition)", "return (1,)"),
    "costs raises": ('return {"warp_instructions": warps} if s.reads else {}', "return {1: 1 / 0}"),
    "costs nan": ('{"warp_instructions": warps} if s.reads else {}', '{"warp_instructions": float("nan")}'),
    "costs none": ('return {"warp_instructions": warps} if s.reads else {}', "return None"),
    "costs str": ('{"warp_instructions": warps} if s.reads else {}', '{"warp_instructions": "many"}'),
    "costs unknown": ('{"warp_instructions": warps} if s.reads else {}', '{"money": 1}'),
    "costs negative": ('{"warp_instructions": warps} if s.reads else {}', '{"warp_instructions": -5000000}'),
    "costs symbol": ('{"warp_instructions": warps} if s.reads else {}', '{"warp_instructions": symbol("nosuch")}'),
    "heuristic class": ("Dear())", "Dear)"),
    "heuristic str": ("Dear())", '"cheap")'),
    "require none": ("warps <= 8,", "warps > 8,"),
    "require symbol": ("warps <= 8,", 'warps <= symbol("nosuch"),'),
    "require device": ("warps <= 8,", 'warps <= symbol("device.nosuch"),'),
    "reference raises": ("return a * (x + x)", "return a * (x + x) / None"),
    "reference shape": ("return a * (x + x)", "return (2 * a * x)[1:]"),
    "reference args": ("def reference(a, x):", "def reference(x):"),
    "reference exits": ("return a * (x + x)", "raise SystemExit(3)"),
    "precision raises": ("return True, 0.0", "return 1 / 0"),
    "precision none": ("return True, 0.0", "return None"),
    "precision bool": ("return True, 0.0", "return True"),
    "refuses raises": ('return ""', "return problem.nosuch"),
    "refuses int": ('return ""', "return 3"),
    "program index": ("z = p.apply(self.twice, x)", "z = p.apply(self.twice, x)[0]"),
    "dims": ('Input("f32", n)', 'Input("f32", n, n)'),
    "no device": ("warps = Param(1, 2)", "warps = Param(64, 128)"),
}
ASKED = ("--shape", "n=1000", "-d", "a100")
COMMANDS = {
    "space": ("space", *ASKED),
    "explain": ("explain", *ASKED, "warps=1", "vector=1"),
    "show": ("show",),
    "predict": ("predict", *ASKED),
    "emit": ("emit", *ASKED),
    "verify": ("verify", *ASKED),
    "run": ("run", *ASKED),
    "tune": ("tune", *ASKED, "--seconds", "1"),
    "check": ("check",),
}
# Commands in which everything of a machine is asked for that they show.
THOROUGH = ("verify", "run", "tune", "check")


def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, command: str) -> tuple[int, str]:
    """(exit code, what a user reads) of a command for a machine with this text."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(text)
    name, *options = COMMANDS[command]
    ended = CliRunner().invoke(app, [name, "mine.py:Mine", *options])
    if ended.exception is None or isinstance(ended.exception, SystemExit):
        return ended.exit_code, ended.output
    assert isinstance(ended.exception, Exception)
    assert expected(ended.exception), f"{command} ends in a traceback: {ended.exception!r}"
    return 1, with_place(ended.exception)


def check_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, command: str) -> int:
    there, instead = PLANTED[what]
    assert RIGHT.count(there) == 1, there
    code, text = said(tmp_path, monkeypatch, RIGHT.replace(there, instead), command)
    assert code in (0, 1), text
    if code:
        assert re.search(r"\bmine\.py:\d+", re.sub(r"mine\.py:Mine", "", text)), f"{command}: {text}"
    return code


def cases(seed: int) -> list[tuple[str, str]]:
    """Every mistake with a command."""
    rng = np.random.default_rng(seed)
    return [(what, str(rng.choice(list(COMMANDS)))) for what in PLANTED]


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("what", "command"), cases(0))
def test_a_mistake_is_told_with_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, command: str
) -> None:
    check_said(tmp_path, monkeypatch, what, command)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", PLANTED)
def test_every_mistake_is_told_by_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, command: str
) -> None:
    check_said(tmp_path, monkeypatch, what, command)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("what", PLANTED)
def test_some_command_refuses_every_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    assert any(check_said(tmp_path, monkeypatch, what, command) for command in THOROUGH)


@pytest.mark.parametrize("command", ["explain", "verify"])
def test_without_a_mistake_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    code, text = said(tmp_path, monkeypatch, RIGHT, command)
    assert code == 0, text


SENTENCES = {
    ("stmt none", "emit"): (
        "mine.py:25: Read.statement gives None: it must give the text of a PTX statement"
    ),
    ("stmt raises", "predict"): (
        "Read.statement: mine.py:26, in statement (return registers[9]): IndexError: list index out of "
        "range"
    ),
    ("costs nan", "predict"): (
        "mine.py:38: Dear.costs gives {'warp_instructions': nan}: it must give amounts by name, {} for "
        "none"
    ),
    ("costs symbol", "predict"): (
        "mine.py:38: [Mine n=1000 x:f32 y:f32 on A100-SXM4-80GB] a cost of dear loads reads 'nosuch', "
        "which is not a parameter, a dim, a tensor fact or a device figure here"
    ),
    ("types none", "space"): (
        'mine.py:12: Mine.program: Twice.types gives None: it must give ("f32", "f32"), "f32": the types '
        "of the operands, and of the result"
    ),
    ("legality none", "space"): (
        "mine.py:31: Mine.program: Read.legality gives None: it must give a tuple of constraints, as "
        "self.rule(...) makes them"
    ),
    ("refuses int", "space"): (
        'mine.py:72: Mine.refuses gives 3: it must give a sentence, and "" for a problem that it takes'
    ),
    ("precision bool", "run"): (
        "mine.py:68: Mine.precision gives True: it must give (whether sums of whole numbers are exact, "
        "the relative error of approximate instructions)"
    ),
    ("meaning shape", "run"): (
        "mine.py:18: the meaning of twice (add.rn.f32) makes 64 values of v2, which has 32"
    ),
    ("meaning none", "run"): (
        "mine.py:18: the meaning of twice (add.rn.f32) makes None of v2, which has numbers"
    ),
    ("require none", "emit"): (
        "mine.py:53: Mine does not admit this point: this cannot hold "
        "for warps in {1, 2}: few (Mine): at most eight warps; warps > 8"
    ),
    ("require device", "space"): (
        "mine.py:53: [space] the constraint 'few' reads 'device.nosuch', which is not a parameter, a dim,"
        " a tensor fact or a device figure here"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("what", "command"), SENTENCES)
def test_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, command: str) -> None:
    code, text = said(tmp_path, monkeypatch, RIGHT.replace(*PLANTED[what]), command)
    assert (code, text) == (1, SENTENCES[what, command])
