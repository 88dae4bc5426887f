"""`tinygpu run`: a candidate's program on inputs that are drawn or given, beside its reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

from tinygpu.cli.app import app

ASKED = ["axpby", "--shape", "n=70", "--device", "a100", "warps=2", "vector=2", "rows=2"]
POINT = "candidate across=1 warps=2 vector=2 rows=2\n"
WRONG = """
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa


class Twice(Machine):
    \"\"\"y = 2 x\"\"\"

    n = Dim()
    x, y = Input("bf16", n), Output("bf16", n)
    warps = Param(1)
    ld, st, add = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("bf16")

    def program(self, p):
        shape = (32 * self.warps,)
        who = blocked(shape, threads=shape[0])
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=shape), who)
            p.store(self.st, self.y.tile(i, shape=shape), p.apply(self.add, x, 1.0))

    @staticmethod
    def reference(x):
        return x + x
"""


def ran(*words: str) -> Any:
    return CliRunner().invoke(app, ["run", *words])


@pytest.mark.parametrize(
    ("inputs", "verdict"),
    [("integers", "bit for bit"), ("random", "within rounding: error"), ("specials", "within rounding: error")],
)
def test_inputs_are_drawn_as_verification_draws_them(inputs: str, verdict: str) -> None:
    result = ran(*ASKED, "--inputs", inputs, "--seed", "3")
    assert result.exit_code == 0
    head = f"{POINT}its program, run in NumPy by what its instructions mean, on {inputs}, seed 3, a="
    assert result.stdout.startswith(head)
    assert f":\n  y: f32[70] is what the reference makes, {verdict}" in result.stdout


def test_what_was_drawn_is_written_and_gives_the_same_again(tmp_path: Path) -> None:
    files = [word for name in "xzy" for word in ("--save", f"{name}={tmp_path}/{name}.npy")]
    data = json.loads(ran(*ASKED, "--inputs", "random", *files, "--json").stdout)
    assert set(data["scalars"]) == {"a", "b"}
    given = [f"--input={name}={tmp_path}/{name}.npy" for name in "xz"]
    numbers = [word for name, value in data["scalars"].items() for word in ("--scalar", f"{name}={value}")]
    assert ran(*ASKED, *given, *numbers, "--save", f"y={tmp_path}/again.npy").exit_code == 0
    assert np.array_equal(np.load(tmp_path / "y.npy"), np.load(tmp_path / "again.npy"))


def test_arrays_come_from_files_and_results_go_to_files(tmp_path: Path) -> None:
    x, z = np.arange(70, dtype=np.float32), np.ones(70, np.float32)
    for name, array in (("x", x), ("z", z)):
        np.save(tmp_path / f"{name}.npy", array)
    given = [f"--input={name}={tmp_path}/{name}.npy" for name in "xz"]
    out = tmp_path / "out.npy"
    result = ran(*ASKED, *given, "--scalar", "a=2", "--scalar", "b=3", "--save", f"y={out}")
    assert result.stdout == (
        f"{POINT}its program, run in NumPy by what its instructions mean, on the arrays that were given, "
        "a=2.0, b=3.0:\n"
        f"  y: f32[70] is what the reference makes, bit for bit\nwrote {out}\n"
    )
    assert np.array_equal(np.load(out), 2 * x + 3)
    data = json.loads(ran(*ASKED, *given, "--scalar", "a=2", "--scalar", "b=3", "--json").stdout)
    assert data["passed"] is True
    assert data["outputs"] == [
        {"name": "y", "dtype": "f32", "shape": [70], "wrong": 0, "elements": 70, "error": 0.0, "bound": 0.0}
    ]


def test_a_program_that_is_wrong_says_where_and_files_of_narrow_floats_are_read(tmp_path: Path) -> None:
    machine = tmp_path / "twice.py"
    machine.write_text(WRONG)
    asked = [f"{machine}:Twice", "--shape", "n=5", "--device", "a100"]
    np.save(tmp_path / "x.npy", np.array([1, 1, 1, 5, 1], ml_dtypes.bfloat16))
    result = ran(*asked, "--input", f"x={tmp_path}/x.npy")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == (
        "  y: bf16[5] is WRONG in 1 of 5 elements; y[3] is 6, wanted 10 (bound 0)"
    )


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--input", "x=gone.npy"], 1, "there is no file gone.npy"),
        (["--input", "x"], 1, "--input takes name=FILE.npy, not 'x'"),
        (["--input", "x=FILE"], 1, "Axpby reads z, and no array was given for it; it takes arrays for x, z"),
        (["--input", "x=FILE", "--input", "q=FILE"], 1, "Axpby reads no 'q'; it takes arrays for x, z"),
        (["--input", "x=FILE", "--input", "z=FILE"], 1, "Axpby takes the numbers a, b by name; none was given"),
        (["--scalar", "a=2"], 1, "--scalar goes with --input: what is drawn has numbers of its own"),
        (["--save", "q=out.npy"], 1, "--save: Axpby has no tensor 'q'; it has x, z, y"),
        (["--inputs", "zeros"], 1, "--inputs is integers, random or specials, not 'zeros'"),
        (["--seed", "-1"], 1, "a seed is a whole number from 0 on, not -1"),
        (["--scalar", "a"], 2, "--scalar takes name=number, not 'a'"),
        (["--scalar", "a=two"], 2, "--scalar takes name=number, not 'a=two'"),
        (["--scalar", "a=1", "--scalar", "a=2"], 2, "--scalar gives a twice"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(words: list[str], code: int, said: str, tmp_path: Path) -> None:
    np.save(tmp_path / "file.npy", np.ones(70, np.float32))
    result = ran(*ASKED, *[w.replace("FILE", f"{tmp_path}/file.npy") if w[1:2] == "=" else w for w in words])
    if code == 1:
        assert str(result.exception) == said
    else:
        assert result.exit_code == 2
        assert said in result.stderr.replace("│", "").replace("\n", "")
