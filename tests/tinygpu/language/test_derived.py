"""What follows from a declaration: the traced program and its rules, as derived.txt lists them.

What changes is looked at there: `python tests/tinygpu/language/test_derived.py` writes the file anew.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "ptx" / "lowering")]

import pytest  # noqa: E402
import row_machines as rows  # noqa: E402
import tile_machines as tiles  # noqa: E402
from asynchronous_machines import MatmulPingpong, MatmulTwoCta  # noqa: E402
from sharing_machines import TurnedCopies, WeighedRows  # noqa: E402

from tinygpu.constraints.explanation import describe  # noqa: E402
from tinygpu.language import Machine  # noqa: E402
from tinygpu.language.live_registers import registers_estimate  # noqa: E402
from tinygpu.language.trace import preferences, trace  # noqa: E402
from tinygpu.machines.matmul_hopper import MatmulHopper  # noqa: E402
from tinygpu.machines.matmul_skinny import MatmulSkinny  # noqa: E402

SQUARE = {"m": 256, "n": 256, "k": 256}
# The last number is that of the structure.
CASES: dict[str, tuple[type[Machine], dict[str, Any], int]] = {
    "transpose": (tiles.Transpose, {"m": 64, "n": 64, "dtypes": {"x": "f16"}}, 0),
    "transpose by columns": (tiles.TransposeColumns, {"m": 64, "n": 64}, 0),
    "batched add": (tiles.BatchedAdd, {"b": 2, "m": 64, "n": 64}, 0),
    "batched matmul": (tiles.BatchedMatmul, {"b": 2, "m": 64, "n": 64, "k": 64}, 1),
    "panel matmul": (tiles.PanelMatmul, {"m": 64, "n": 64, "k": 64}, 0),
    "vector sum": (rows.VectorSum, {"m": 5, "n": 100}, 0),
    "layer norm": (rows.NormOfRows, {"m": 5, "n": 100}, 0),
    "softmax": (rows.OnlineSoftmax, {"m": 5, "n": 100}, 0),
    "matrix times vector": (rows.Gemv, {"m": 5, "k": 100}, 0),
    "weighed rows": (WeighedRows, {"m": 64, "k": 64}, 0),
    "weighed rows, column-major": (WeighedRows, {"m": 64, "k": 64, "majors": {"x": "col"}}, 0),
    "turned copies by an engine": (TurnedCopies, {"m": 64, "n": 64}, 1),
    "hopper": (MatmulHopper, SQUARE, 0),
    "hopper, column-major": (MatmulHopper, {**SQUARE, "majors": {"a": "col", "b": "col"}}, 0),
    "skinny": (MatmulSkinny, {**SQUARE, "m": 16}, 0),
    "ping-pong": (MatmulPingpong, SQUARE, 0),
    "two CTAs": (MatmulTwoCta, SQUARE, 0),
}
# Programs and rules of thumb of these machines are their own, and change with them.
SHIPPED = (MatmulHopper, MatmulSkinny)


def rules(name: str) -> list[str]:
    machine, asked, number = CASES[name]
    problem, structure = machine.problem(**asked), tuple(machine.structures())[number]
    traced = trace(machine, problem, structure)
    shipped = machine in SHIPPED
    listed = [
        f"{c.name} [{c.kind}, {c.source}, {c.judge}]: {describe(c.condition)}"
        for c in (*traced.constraints, *(() if shipped else preferences(machine, problem, structure)))
        if c.kind == "legality" or not shipped
    ]
    if shipped:
        return listed
    expected = f"registers that are expected: {describe(registers_estimate(traced.program))}"
    return [*str(traced.program).splitlines(), *listed, expected, f"parameters: {', '.join(traced.axes)}"]


def listed() -> dict[str, list[str]]:
    parts = (HERE / "derived.txt").read_text(encoding="utf-8").split("\n\n")
    return {head: lines for head, *lines in (part.rstrip().split("\n") for part in parts)}


@pytest.mark.parametrize("name", CASES)
def test_what_is_traced_and_its_rules_are_those_that_are_listed(name: str) -> None:
    assert rules(name) == listed()[name]


if __name__ == "__main__":
    text = "\n\n".join("\n".join([name, *rules(name)]) for name in CASES)
    (HERE / "derived.txt").write_text(text + "\n", encoding="utf-8")
