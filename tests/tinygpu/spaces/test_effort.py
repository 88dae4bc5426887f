"""How much work elimination does for spaces of many kinds, step by step, as effort.txt lists it.

What a space holds is shown against plain enumeration elsewhere; an edit that makes the way there longer, and changes no
answer, is noticed here: the estimates and the order of axes, edges before and after reduction, which conditions are
judged for how many cells, what the funnel says. A change of the way changes the list, and is looked at: `python
tests/tinygpu/spaces/test_effort.py` writes it anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial, reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from space_construction import GEMM, declare, large_space

from tinygpu.constraints import Constraint
from tinygpu.constraints.condition import Condition
from tinygpu.expressions import Expr, all_of, any_of, ceil_div, maximum, symbol, where
from tinygpu.spaces import Axis, Part, Space, solution
from tinygpu.spaces.order import Estimate, plan_order

FILE = Path(__file__).parent / "effort.txt"


def drawn(number: int) -> Space:
    """A space of one to three parts, their axes in groups or alone, under conditions of every form."""
    rng = np.random.default_rng(number)
    names = [f"x{i}" for i in range(int(rng.integers(4, 8)))]
    # Beyond 64 bits in every fifth: judged in Python's own integers.
    scale = 1 << 31 if number % 5 == 4 else 1
    axes = tuple(Axis(n, tuple(scale * v for v in range(1, int(rng.integers(2, 9))))) for n in names)

    def condition() -> Expr:
        x, y, z = (symbol(str(n)) for n in rng.choice(names, 3))
        limit = scale * int(rng.integers(2, 12))
        forms = (
            x + y <= limit, x * y + z <= limit * scale, maximum(x, y, z) >= limit // 2, x % y == 0, x <= limit,
            ceil_div(x, y) <= 3, where(x > y, x, z) != limit, any_of([x < y, y < z]), all_of([x <= y, z + x > scale]),
            symbol("kind") + x <= 6 * scale,
        )  # fmt: skip
        return forms[int(rng.integers(len(forms)))]

    conditions = [condition() for _ in range(int(rng.integers(3, 8)))]
    rules = tuple(Constraint(f"rule {i}", c, f"rule {i} must hold") for i, c in enumerate(conditions))
    parts = []
    for kind in range(1 + number % 3):
        last = {names[-1]: axes[-1].values[0]} if kind % 2 else {}  # no axis of the odd parts
        parts.append(Part({"kind": kind} | last, axes[: len(axes) - len(last)], rules))
    return Space(f"drawn {number}", tuple(parts))


def chain() -> Space:
    links = [Constraint(f"link {a}", symbol(f"x{a}") + symbol(f"x{b}") <= 9, "") for a, b in pairwise(range(12))]
    return Space("chain", (Part({}, tuple(Axis(f"x{i}", tuple(range(10))) for i in range(12)), tuple(links)),))


def sums() -> Space:
    total = reduce(lambda a, b: a + b, [symbol(f"x{i}") * (1 + i % 3) for i in range(10)])
    rules = (Constraint("total", total == 31, ""), Constraint("least", maximum(symbol("x0"), symbol("x9")) >= 4, ""))
    return Space("sum", (Part({}, tuple(Axis(f"x{i}", tuple(range(8))) for i in range(10)), rules),))


SPACES: dict[str, Callable[[], Space]] = {
    **{f"drawn{number}": partial(drawn, number) for number in range(24)},
    "gemm": lambda: declare(GEMM),
    "tiles": large_space,
    "chain": chain,
    "sum": sums,
}


def effort(name: str) -> str:
    """The order of axes and the estimates, edges by layer, cells judged by condition, the funnel."""
    cells: dict[str, int] = {}
    plans: list[str] = []

    def counting(kept: Callable[..., Any], way: str) -> Callable[..., Any]:
        def mask(self: Condition, *values: Any, **strict: Any) -> Any:
            found = kept(self, *values, **strict)
            cells[way] = cells.get(way, 0) + 1
            cells[f"{way} cells"] = cells.get(f"{way} cells", 0) + int(np.size(found))
            return found

        return mask

    def planned(widths: Mapping[str, int], rules: list[Estimate]) -> tuple[str, ...]:
        order = plan_order(widths, rules)
        plans.append(f"{','.join(order)} by {' '.join(f'{rule.share:.5f}' for rule in rules)}")
        return order

    with pytest.MonkeyPatch.context() as patch:
        for way in ("mask", "exact_mask"):
            patch.setattr(Condition, way, counting(getattr(Condition, way), way))
        patch.setattr(solution, "plan_order", planned)
        space = SPACES[name]()
        solved = space.solutions
        judged = ",".join(f"{way}:{count}" for way, count in sorted(cells.items()))
        removed = ",".join(f"{row.name}-{row.removed}" for row in space.funnel).replace("rule ", "r")
        after = ",".join(f"{way}:{count}" for way, count in sorted(cells.items()))
    groups = [group for part in solved for group in part.groups]
    edges = ";".join(",".join(str(len(layer.choice)) for layer in g.elimination.layers) for g in groups)
    fewer = ";".join(",".join(str(len(layer.choice)) for layer in g.diagram.layers) for g in groups)
    return f"{space.size}|{' / '.join(plans)}|{edges}|{fewer}|{judged}|{removed}|{after}"


@pytest.mark.parametrize("name", SPACES)
def test_elimination_takes_the_way_that_it_took(name: str) -> None:
    kept = dict(line.split("=", 1) for line in FILE.read_text(encoding="utf-8").splitlines())
    assert effort(name) == kept[name], "to accept it: python tests/tinygpu/spaces/test_effort.py"


if __name__ == "__main__":
    FILE.write_text("".join(f"{name}={effort(name)}\n" for name in SPACES), encoding="utf-8")
