"""Axes in any order: random candidates of random orders, sizes that nothing divides, every type."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.machines.permute import KINDS, Permute
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


@pytest.mark.parametrize("seed", range(48))
@pytest.mark.sampled(8)
def test_random_candidates_are_right(seed: int, draw_candidate: Any) -> None:
    rng = random.Random(seed)
    order = rng.sample("abcde", 5)
    sizes = {name: rng.choice((1, 2, 3, 7)) for name in order}
    sizes |= {order[-1]: rng.randint(1, 90), "e": rng.randint(1, 90)}
    problem = Permute.problem(**sizes, dtypes={"x": KINDS[seed % 6]}, majors={"x": ".".join(order)})
    space = build_space(Permute, problem, device(("a100", "h100", "rtx5090")[seed % 3]))
    point = draw_candidate(space, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, Permute, problem, orders=("random",), thorough=True)
    assert found.passed, f"{problem} {point}\n{found}"


@pytest.mark.end_to_end
def test_an_array_of_another_order_is_taken_as_it_lies() -> None:
    lies = np.arange(3 * 2 * 33 * 5 * 4, dtype=np.float32).reshape(3, 2, 33, 5, 4)  # as e, b, a, d, c
    x = lies.transpose(2, 1, 4, 3, 0)
    sizes = dict(zip("abcde", x.shape, strict=True))
    space = tg.space(Permute, **sizes, device="a100", majors={"x": "e.b.a.d.c"})
    y = tg.emulate(tg.emit(space, **space.sample(1, 0)[0]), x)
    assert y.flags.c_contiguous
    assert np.array_equal(y, x)
