"""A machine's file imports what lies beside it, as a script of Python's does, and hides nothing that is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tinygpu.api.machines import family

BASE = """
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa

class Copied(Machine):
    n = Dim()
    x, y = Input("f32", n), Output("f32", n)
    ld, st, warps = isa.LdGlobal(1), isa.StGlobal(1), Param(1, 2)
    def program(self, p):
        who = blocked((32 * self.warps,), threads=32 * self.warps)
        with p.grid((self.n, who.shape[0])) as (i,), p.role("all", warps=self.warps):
            p.store(self.st, self.y.tile(i, shape=who.shape), p.load(self.ld, self.x.tile(i, shape=who.shape), who))
    @staticmethod
    def reference(x):
        return x
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "base_of_mine.py").write_text(BASE)
    (tmp_path / "numpy.py").write_text("raise SystemExit('it hides NumPy')")
    (tmp_path / "mine.py").write_text("import numpy\nfrom base_of_mine import Copied\nclass Mine(Copied):\n    pass\n")
    return tmp_path


def test_a_file_imports_what_lies_beside_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (str(folder / "mine.py"), "mine.py"):
        monkeypatch.chdir(folder)
        (machine,) = family(f"{name}:Mine").machines
        assert machine.__mro__[1].__module__ == "base_of_mine"
        assert sys.modules[machine.__module__].numpy is np
    sys.modules.pop("base_of_mine")
