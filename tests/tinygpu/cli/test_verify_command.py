"""`tinygpu verify`: what it prints as JSON, and what it calls a kernel of whose results nothing can be said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tinygpu.cli.app import app

MACHINE = """
from tinygpu.language import Dim, Input, Machine, Output, blocked, uniform
from tinygpu.ptx import isa


class Thing(Machine):
    \"\"\"y = f(x)\"\"\"

    n = Dim()
    x, y = Input("f32", n, values=uniform({ends})), Output("f32", n)
    ld, st, arithmetic = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("f32")

    def program(self, p):
        with p.grid((self.n, 32)) as (i,), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, shape=(32,)), blocked((32,), threads=32))
            p.store(self.st, self.y.tile(i, shape=(32,)), {program})

    @staticmethod
    def reference(x):
        return {reference}
"""
RIGHT = {"ends": "-2, 2", "program": "x * 2.0", "reference": "x * 2.0"}
WRONG = {"ends": "-2, 2", "program": "x / 0.0", "reference": "x * 2.0"}
# Infinity times zero, throughout.
UNSAID = {"ends": "1e30, 3e30", "program": "x * x * 0.0", "reference": "x * x * 0.0"}


def verified(folder: Path, machine: dict[str, str], *words: str) -> Any:
    (folder / "thing.py").write_text(MACHINE.format(**machine))
    asked = ["verify", f"{folder}/thing.py:Thing", "--shape", "n=70", "--device", "a100", *words]
    return CliRunner().invoke(app, asked)


def strict(text: str) -> Any:
    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("machine", [RIGHT, WRONG])
def test_json_has_the_verdict_and_every_run(tmp_path: Path, machine: dict[str, str]) -> None:
    ended = verified(tmp_path, machine, "--json")
    said = strict(ended.stdout)
    assert ended.exit_code == (machine is WRONG)
    assert said["passed"] == (machine is RIGHT)
    assert said["verdict"] == ("emulated, right" if machine is RIGHT else "WRONG")
    assert (said["kernel"], said["problem"], said["left_out"], said["notes"]) == ("thing", "n=38 x:f32 y:f32", [], [])
    first = said["checks"][0]
    assert (first["inputs"], first["order"], first["elements"], first["fault"]) == ("integers", "late", 38, "")
    if machine is WRONG:
        assert first["error"] is None  # infinite
        assert first["worst"]["output"] == "y"


def test_a_kernel_of_which_nothing_can_be_said_is_not_called_right(tmp_path: Path) -> None:
    ended = verified(tmp_path, UNSAID)
    assert ended.exit_code == 0
    assert "\nthing on n=38 x:f32 y:f32: emulated, nothing judged\n" in ended.stdout
    assert strict(verified(tmp_path, UNSAID, "--json").stdout)["verdict"] == "emulated, nothing judged"
