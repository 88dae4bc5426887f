"""Every mistake in a machine's file is told with the file and the line, whichever part of ours finds it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tinygpu.api.machines import family
from tinygpu.devices import device
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.reference import reference_of
from tinygpu.spaces.build import build_space
from tinygpu.users_code import place_of, with_place

RIGHT = '''\
from tinygpu.language import Dim, Input, Machine, Output, Param, Require, blocked
from tinygpu.ptx import isa


class Thing(Machine):
    """y = x * x + x"""

    n = Dim()
    x = Input("f32", n)
    y = Output("f32", n)

    warps = Param(1, 2, 4, 8)
    vector = Param(1, 2, 4)
    ld, st, fma = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Fma("f32")
    few = Require(warps <= 8, "at most eight warps")
    get, put = isa.LdShared(1), isa.StShared(1)

    def program(self, p):
        shape = (self.warps * 32 * self.vector,)
        who = blocked(shape, threads=self.warps * 32, vector=self.vector)
        stage = p.smem("f32", shape)
        with p.grid((self.n, shape[0])) as (i,), p.pipeline("ring", 1, t=stage) as ring, p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, shape=shape), who)
            with ring.produce() as slot:
                p.store(self.put, slot.t, x)
            with ring.consume() as slot:
                z = p.load(self.get, slot.t, who)
            p.store(self.st, self.y.tile(i, shape=shape), p.apply(self.fma, z, z, z))

    @staticmethod
    def reference(x):
        return x * x + x
'''
CLASS, PROGRAM, REFERENCE = "class Thing", "    def program", "    def reference"
LOST = "p.load(self.ld, self.x.tile(i, shape=shape), who)"
INTO_X = "p.store(self.st, self.x.tile(i, shape=shape), z)"
FILLED = "            with ring.produce() as slot:\n                p.store(self.put, slot.t, x)\n"
# what stands there, what is written instead, and the beginning of the line that is told ("": the one that is changed)
PLANTED = [
    ("Param(1, 2, 4, 8)", "Param()", ""),
    ("Param(1, 2, 4, 8)", "Param(1, -2)", ""),
    ("Param(1, 2, 4, 8)", "Param(2, 2)", ""),
    ("    vector = Param", "    problem = Param(1, 2)\n    vector = Param", "    problem"),
    ("    vector = Param", "    warps = Param(1, 2)\n    vector = Param", "    warps = Param(1, 2)\n"),
    ('x = Input("f32", n)', 'x = Input("f33", n)', ""),
    ('x = Input("f32", n)', 'x = Input("f32")', ""),
    ('y = Output("f32", n)', 'y = Output({"f32": ("f32",)}, n)', ""),
    ('    y = Output("f32", n)\n', "", CLASS),
    ("    x = Input", "    m = n\n    x = Input", "    m = n"),
    ('isa.Fma("f32")', 'isa.Fma("f16x3")', ""),
    ('Require(warps <= 8, "at most eight warps")', 'Require(True, "x")', ""),
    ('Require(warps <= 8, "at most eight warps")', 'Require(warps <= 8, "x", kind="odd")', ""),
    ('Require(warps <= 8, "at most eight warps")', 'Require(warps <= 8, "x", kind="dominance")', ""),
    ("isa.LdGlobal(vector)", 'isa.LdGlobal("a")', "            x = p.load"),
    ("p.load(self.ld", "p.load(self.st", ""),
    ("p.load(self.ld", "p.laod(self.ld", ""),
    ("z, z, z", "z, z", ""),
    ("self.x.tile(i,", "self.x.tile(i, i,", ""),
    ("self.x.tile(i,", "self.xx.tile(i,", ""),
    ("self.x.tile(i,", "self.x.tiel(i,", ""),
    ("            with ring.pro", f"            {LOST}\n            with ring.pro", f"            {LOST}"),
    ("p.store(self.st, self.y.tile(i, shape=shape), p.apply(self.fma, z, z, z))", "p.apply(self.fma, z, z, z)", ""),
    (FILLED, "", "        with p.grid"),
    ("with ring.produce()", "with p.loop(3), ring.produce()", "        with p.grid"),
    ("with p.grid((self.n, shape[0])) as (i,),", "with p.grid() as (i,),", ""),
    (", p.role(\"all\", warps=1)", "", "            x = p.load"),
    ("            p.store(self.st,", f"            {INTO_X}\n            p.store(self.st,", f"            {INTO_X}"),
    ("self.warps * 32 * self.vector,)", "self.warps * 32.5,)", ""),
    ("self.warps * 32 * self.vector,)", "32 // 0,)", ""),
    ("        who = ", "        if self.warps > 2:\n            pass\n        who = ", "        if self.warps"),
    ("def program(self, p)", "def program(self)", PROGRAM),
    ("def reference(x)", "def reference(z)", REFERENCE),
    ("    @staticmethod\n    def reference(x):\n        return x * x + x\n", "", CLASS),
    ("warps <= 8,", "8 % (warps - 1) == 0,", PROGRAM),
    ("return x * x + x", "return x * q", ""),
    ("return x * x + x", "return 3", REFERENCE),
    ("return x * x + x", "return {'z': x}", REFERENCE),
    ("return x * x + x", "return x * * x", ""),
]  # fmt: skip


def told(path: Path) -> str:
    """The sentence of what is wrong, as the command line tells it."""
    try:
        (machine,) = family(f"{path}:Thing").machines
        problem = machine.problem(n=40)
        assert build_space(machine, problem, device("a100")).space.solutions
        reference_of(machine, {"y": (40,)})(x=np.zeros(40))
    except (DeclarationError, ValueError) as error:
        return with_place(error)
    return "right"


@pytest.mark.parametrize(("there", "instead", "line"), PLANTED)
def test_a_mistake_is_told_with_its_line(there: str, instead: str, line: str, tmp_path: Path) -> None:
    assert RIGHT.count(there) >= 1
    text = RIGHT.replace(there, instead, 1)
    path = tmp_path / "thing.py"
    path.write_text(text)
    at = text.index(line) if line else text.index(instead)
    number = text[:at].count("\n") + 1 + (line == "" and instead.startswith("\n"))
    sentence = told(path)
    assert f"{path}:{number}" in sentence, sentence
    # once, and of no other file
    assert re.findall(r"[\w./-]+\.py:\d+", sentence) == [f"{path}:{number}"], sentence


def test_what_is_right_is_right(tmp_path: Path) -> None:
    path = tmp_path / "thing.py"
    path.write_text(RIGHT)
    assert told(path) == "right"


def test_python_shows_the_place_where_no_line_of_the_user_s_was_running() -> None:
    """A note of the exception, which tracebacks and notebooks print."""
    from tinygpu.language import Dim, Machine, Output

    with pytest.raises(DeclarationError) as refused:

        class Thing(Machine):
            n = Dim()
            y = Output("f32", n)

            def program(self) -> None: ...  # type: ignore[override]

            @staticmethod
            def reference() -> None: ...

    assert place_of(refused.value).startswith("tests/tinygpu/language/test_places.py:")
    assert refused.value.__notes__ == [f"at {place_of(refused.value)}"]
