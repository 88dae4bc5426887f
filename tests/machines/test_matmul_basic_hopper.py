"""The one schedule that is read first: random candidates over odd sizes, both orders and types; a part of the full one.

The full machine's single schedule that stores from registers does the same: its kernels agree bit for bit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.api.machines import FAMILIES
from tinygpu.devices import device
from tinygpu.machines import matmul_basic_hopper
from tinygpu.machines.matmul_basic_hopper import MatmulBasicHopper
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

ORDERS = ("row", "col")
# One more than a tile, primes, rounds fewer than stages, several tiles along each axis.
SIZES = ((1, 1, 1), (65, 33, 129), (13, 97, 31), (129, 130, 65), (257, 40, 300), (64, 32, 32))


def padded(n: int) -> int:
    """Rows of whole 16 bytes, as TMA needs them."""
    return -(-n // 8) * 8


def posed(m: int, n: int, k: int, order_a: str, order_b: str, kinds: dict[str, str]) -> Any:
    ld = {"a": padded(k if order_a == "row" else m), "b": padded(n if order_b == "row" else k)}
    return MatmulBasicHopper.problem(
        m=m, n=n, k=k, majors={"a": order_a, "b": order_b}, dtypes=kinds, lds=ld
    )


@pytest.mark.parametrize("seed", range(48))
@pytest.mark.sampled(24)
@pytest.mark.end_to_end
def test_random_candidates_are_right(seed: int, draw_candidate: Any) -> None:
    m, n, k = SIZES[seed % len(SIZES)]
    kind = ("f16", "bf16")[seed // 2 % 2]
    kinds = {"a": kind, "b": kind, "c": (kind, "f32")[seed // 3 % 2]}
    problem = posed(m, n, k, ORDERS[seed % 2], ORDERS[seed // 6 % 2], kinds)
    space = build_space(MatmulBasicHopper, problem, device("h100"))
    point = draw_candidate(space, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, MatmulBasicHopper, problem, orders=("late",))
    assert found.passed, f"{problem} {point}\n{found}"


@pytest.mark.end_to_end
def test_it_is_a_schedule_of_the_full_machine() -> None:
    """The same tile, ring and swizzle in both machines give the same product, bit for bit."""
    sizes = {"m": 128, "n": 64, "k": 192}
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((128, 192), (192, 64)))
    same = {"bm": 64, "bn": 32, "bk": 64, "stages": 2, "raster": 1, "swizzle": 64}
    basic = tg.emit(tg.space("matmul_basic_hopper", device="h100", **sizes), **same, vc=2)
    alone = {"schedule": "single", "store": "direct", "cluster_m": 1, "cluster_n": 1, "split_k": 1, "stream_k": 0}
    full = tg.emit(tg.space("matmul_hopper", device="h100", **sizes), **same, **alone)
    assert np.array_equal(tg.emulate(basic, a, b), tg.emulate(full, a, b))


def test_it_is_read_at_a_glance_and_leaves_the_family_to_the_full_machine() -> None:
    lines = Path(matmul_basic_hopper.__file__).read_text(encoding="utf-8").splitlines()
    declared = lines[next(i for i, line in enumerate(lines) if line.startswith("class")) :]
    assert len([line for line in declared if line.strip()]) <= 40
    assert "matmul_basic_hopper" not in FAMILIES["matmul"]
