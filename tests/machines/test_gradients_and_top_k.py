"""Gradients of rows and their k largest elements: random candidates over odd sizes, all types, options and devices."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.machines.cross_entropy import CrossEntropy
from tinygpu.machines.gradients import CrossEntropyBackward, LayerNormBackward, RmsNormBackward, SoftmaxBackward
from tinygpu.machines.norm import LayerNorm, RmsNorm
from tinygpu.machines.softmax import Softmax
from tinygpu.machines.top_k import TopK
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

Array = NDArray[Any]
MACHINES: tuple[Any, ...] = (SoftmaxBackward, CrossEntropyBackward, RmsNormBackward, LayerNormBackward, TopK)
SIZES = ((1, 1), (3, 7), (17, 129), (5, 1000), (2, 4097), (9, 64), (70, 33))


@pytest.mark.parametrize("seed", range(28))
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.sampled(60)
def test_random_candidates_are_right(machine: Any, seed: int, draw_candidate: Any) -> None:
    m, n = SIZES[seed % len(SIZES)]
    rng, first = random.Random(seed), machine.tensor_declarations()[0].name
    more = {"k": rng.randint(1, min(n, 9))} if machine is TopK else {}
    options = {"logarithm": seed % 2 == 0} if machine is SoftmaxBackward else {}
    problem = machine.problem(m=m, n=n, **more, dtypes={first: ("f32", "f16", "bf16")[seed // 7 % 3]}, options=options)
    space = build_space(machine, problem, device(("a100", "h100", "rtx5090")[seed % 3]))
    point = draw_candidate(space, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("random",), thorough=True)
    assert found.passed, f"{problem} {point}\n{found}"


def slope(f: Callable[[Array], Array], at: Array, dy: Array) -> Array:
    """The gradient of sum(dy * f(at)), by differences."""
    out = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        step = np.zeros_like(at)
        step[place] = 1e-3
        out[place] = (dy * (f(at + step) - f(at - step))).sum() / 2e-3
    return out


class Exact(np.ndarray):  # type: ignore[type-arg]
    """Double precision that stays so where a reference asks for single."""

    def astype(self, *_: Any, **__: Any) -> Any:
        return self.copy()


def test_references_are_the_slopes_of_what_goes_forward() -> None:
    rng = np.random.default_rng(0)
    x, dy, w, shift = (rng.standard_normal(shape).view(Exact) for shape in ((3, 5), (3, 5), 5, 5))
    for logarithm in (False, True):
        y = Softmax.reference(x, logarithm)
        wanted = slope(lambda x, of=logarithm: Softmax.reference(x, of), x, dy)
        assert np.allclose(SoftmaxBackward.reference(y, dy, logarithm), wanted, atol=1e-5)
    target, dloss = np.array([4, 0, 2]), np.array([1.0, -2.0, 0.5]).view(Exact)
    forward = CrossEntropy.reference(x, target)
    wanted = slope(lambda x: CrossEntropy.reference(x, target)["loss"], x, dloss)
    assert np.allclose(CrossEntropyBackward.reference(x, target, forward["logsum"], dloss), wanted, atol=1e-5)
    zero = np.zeros(5)
    found = RmsNormBackward.reference(x, dy, w, 1e-5, zero)
    for name, at, of in (
        ("dx", x, lambda x: RmsNorm.reference(x, 1e-5, False, True, w=w)["y"]),
        ("dw", w, lambda w: RmsNorm.reference(x, 1e-5, False, True, w=w)["y"]),
    ):
        assert np.allclose(found[name], slope(of, at, dy), atol=1e-5), name
    found = LayerNormBackward.reference(x, dy, w, 1e-5, zero, zero)
    for name, at, of in (
        ("dx", x, lambda x: LayerNorm.reference(x, 1e-5, False, True, w=w, shift=shift)["y"]),
        ("dw", w, lambda w: LayerNorm.reference(x, 1e-5, False, True, w=w, shift=shift)["y"]),
        ("dshift", shift, lambda shift: LayerNorm.reference(x, 1e-5, False, True, w=w, shift=shift)["y"]),
    ):
        assert np.allclose(found[name], slope(of, at, dy), atol=1e-5), name


@pytest.mark.end_to_end
def test_of_equals_the_first_comes_first() -> None:
    x = np.array([[3, 7, 7, -1, 3, 7], [0, 0, 0, 0, 0, 0]], np.float32)
    space = tg.space(TopK, m=2, n=6, k=5, device="a100")
    for seed in range(4):
        y, places = tg.emulate(tg.emit(space, **space.sample(1, seed)[0]), x)
        assert y.tolist() == [[7, 7, 7, 3, 3], [0] * 5]
        assert places.tolist() == [[1, 2, 5, 0, 4], [0, 1, 2, 3, 4]]
