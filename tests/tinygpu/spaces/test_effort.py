"""How elimination goes about spaces of many kinds, step by step, and what it calls nearest, as effort.txt lists it.

What a space holds is shown against plain enumeration elsewhere; an edit that makes the way there longer, and changes no
answer, is noticed here: the estimates and the order of axes, edges before and after reduction, which conditions are
judged for how many cells, what the funnel says, how many rows are numbered; the order of axes in large groups; which
point of an empty space is near, in which order of axes that is found, and what would let it in. A
change of the way changes the list, and is looked at: `python tests/tinygpu/spaces/test_effort.py` writes it anew.
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
from tinygpu.spaces import Axis, Part, Space, elimination, solution
from tinygpu.spaces import nearest as nearest_point
from tinygpu.spaces.elimination import number_rows
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
    merged: list[int] = []

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

    def numbered(columns: Any, rows: int) -> Any:
        merged.append(rows)
        return number_rows(columns, rows)

    with pytest.MonkeyPatch.context() as patch:
        for way in ("mask", "exact_mask"):
            patch.setattr(Condition, way, counting(getattr(Condition, way), way))
        patch.setattr(solution, "plan_order", planned)
        patch.setattr(elimination, "number_rows", numbered)
        space = SPACES[name]()
        solved = space.solutions
        judged = ",".join(f"{way}:{count}" for way, count in sorted(cells.items()))
        removed = ",".join(f"{row.name}-{row.removed}" for row in space.funnel).replace("rule ", "r")
        after = ",".join(f"{way}:{count}" for way, count in sorted(cells.items()))
    groups = [group for part in solved for group in part.groups]
    edges = ";".join(",".join(str(len(layer.choice)) for layer in g.elimination.layers) for g in groups)
    fewer = ";".join(",".join(str(len(layer.choice)) for layer in g.diagram.layers) for g in groups)
    return f"{space.size}|{' / '.join(plans)}|{edges}|{fewer}|{judged}|{removed}|{after}|{sum(merged)}"


def planned(number: int) -> str:
    """The order of 7 to 12 axes, some of which most rules read."""
    rng = np.random.default_rng(number)
    names = [f"x{i}" for i in range(int(rng.integers(7, 13)))]
    widths = {name: int(rng.integers(2, 40)) for name in names}
    often = rng.permutation(len(names)) ** 2 + 1.0
    rules = []
    for _ in range(int(rng.integers(6, 16))):
        axes = rng.choice(names, int(rng.integers(2, 4)), replace=False, p=often / often.sum())
        rules.append(Estimate(frozenset(map(str, axes)), float(rng.choice([0.01, 0.1, 0.5, 0.9]))))
    return ",".join(plan_order(widths, rules))


def nearest(number: int) -> str:
    """The point that is nearest where dims or limits leave none, and what would open the space."""
    rng = np.random.default_rng(number)
    axes = [
        Axis(name, tuple(sorted({int(v) for v in rng.integers(1, 9, 3) * 4 ** number.bit_count()}))) for name in "abc"
    ]
    a, b, c, m, limit = (symbol(name) for name in ("a", "b", "c", "m", "device.limit"))
    forms = (
        a * b <= limit, a + b + c <= limit, m % a == 0, m % (b + 1) == 0, c >= a + m, maximum(a, b) == c,
        a % b == 1, m - a <= c, where(a > b, a, m) <= c, all_of([m >= 2 * a, c * b < m]), any_of([a > m, b > m]),
    )  # fmt: skip
    orders: list[str] = []

    def ordered(widths: Mapping[str, int], rules: list[Estimate]) -> tuple[str, ...]:
        orders.append(",".join(plan_order(widths, rules)))
        return plan_order(widths, rules)

    rules = []
    while True:
        rules.append(Constraint(f"rule {len(rules)}", forms[int(rng.integers(len(forms)))], "it must hold"))
        environment = {"m": int(rng.integers(5, 90)), "device.limit": int(rng.integers(4, 40))}
        space = Space("empty", (Part({}, tuple(axes), tuple(rules), environment),))
        if not space.size:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(nearest_point, "plan_order", ordered)
                found = str(space.nearest()).replace("it must hold; ", "")
            return f"{found}|{' '.join(orders)}"


LISTED: dict[str, Callable[[], str]] = {
    **{name: partial(effort, name) for name in SPACES},
    **{f"plan{number}": partial(planned, number) for number in range(40)},
    **{f"near{number}": partial(nearest, number) for number in range(24)},
}


@pytest.fixture(scope="module")
def kept() -> dict[str, str]:
    return dict(line.split("=", 1) for line in FILE.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("name", LISTED)
def test_elimination_takes_the_way_that_it_took(name: str, kept: dict[str, str]) -> None:
    assert LISTED[name]() == kept[name], "to accept it: python tests/tinygpu/spaces/test_effort.py"


if __name__ == "__main__":
    FILE.write_text("".join(f"{name}={said()}\n" for name, said in LISTED.items()), encoding="utf-8")
