"""What follows from a declaration, rule by rule: names, who judges them, their conditions, as derived.txt lists them.

A rule that changes is looked at there: `python tests/tinygpu/language/test_derived.py` writes the file anew.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "ptx" / "lowering")]

import pytest  # noqa: E402
import tile_machines as tiles  # noqa: E402
from asynchronous_machines import MatmulPingpong, MatmulTwoCta  # noqa: E402
from row_machines import VectorSum  # noqa: E402

from tinygpu.constraints.explanation import describe  # noqa: E402
from tinygpu.language import Machine  # noqa: E402
from tinygpu.language.trace import trace  # noqa: E402
from tinygpu.machines.matmul_hopper import MatmulHopper  # noqa: E402
from tinygpu.machines.matmul_skinny import MatmulSkinny  # noqa: E402

SQUARE = {"m": 256, "n": 256, "k": 256}
CASES: dict[str, tuple[type[Machine], dict[str, Any], int]] = {
    "transpose": (tiles.Transpose, {"m": 64, "n": 64, "dtypes": {"x": "f16"}}, 0),
    "batched matmul": (tiles.BatchedMatmul, {"b": 2, "m": 64, "n": 64, "k": 64}, 1),
    "vector sum": (VectorSum, {"m": 5, "n": 100}, 0),
    "hopper": (MatmulHopper, SQUARE, 0),
    "hopper, column-major": (MatmulHopper, {**SQUARE, "majors": {"a": "col", "b": "col"}}, 0),
    "skinny": (MatmulSkinny, {**SQUARE, "m": 16}, 0),
    "ping-pong": (MatmulPingpong, SQUARE, 0),
    "two CTAs": (MatmulTwoCta, SQUARE, 0),
}
# Rules of thumb of these machines are their own, and change with them.
SHIPPED = (MatmulHopper, MatmulSkinny)


def rules(name: str) -> list[str]:
    machine, asked, number = CASES[name]
    traced = trace(machine, machine.problem(**asked), tuple(machine.structures())[number])
    return [
        f"{c.name} [{c.kind}, {c.source}, {c.judge}]: {describe(c.condition)}"
        for c in traced.constraints
        if c.kind == "legality" or (machine not in SHIPPED and c.source != machine.__name__)
    ]


def listed() -> dict[str, list[str]]:
    parts = (HERE / "derived.txt").read_text(encoding="utf-8").split("\n\n")
    return {head: lines for head, *lines in (part.strip().split("\n") for part in parts)}


@pytest.mark.parametrize("name", CASES)
def test_the_rules_of_a_machine_are_those_that_are_listed(name: str) -> None:
    assert rules(name) == listed()[name]


if __name__ == "__main__":
    text = "\n\n".join("\n".join([name, *rules(name)]) for name in CASES)
    (HERE / "derived.txt").write_text(text + "\n", encoding="utf-8")
