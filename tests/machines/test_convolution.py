"""Convolutions of any stride, dilation and padding: random candidates, images that no tile divides, every type."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.machines.convolution import Convolution, DepthwiseConvolution
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

DEVICES = ("a100", "h100", "rtx5090", "rtx4090")
TYPES: dict[type[Any], tuple[tuple[str, str], ...]] = {
    Convolution: (("f16", "f16"), ("bf16", "bf16"), ("f16", "f32"), ("bf16", "f32")),
    DepthwiseConvolution: (("f32", "f32"), ("f16", "f16"), ("bf16", "bf16"), ("f16", "f32")),
}


def drawn(machine: Any, seed: int) -> Any:
    """A problem in which a filter fits into its padded images at least once."""
    rng = random.Random(seed)
    options = {"stride": rng.randint(1, 4), "dilation": rng.randint(1, 4), "pad": rng.randint(0, 8)}
    r, s = rng.choice((1, 2, 3, 5)), rng.choice((1, 3, 4))
    least = [max(1, options["dilation"] * (taps - 1) + 1 - 2 * options["pad"]) for taps in (r, s)]
    h, w = (at + rng.randint(0, 13) for at in least)
    dims = {"n": rng.randint(1, 3), "h": h, "w": w, "r": r, "s": s, "c": rng.choice((1, 3, 8, 20, 33, 64))}
    dims |= {"k": rng.choice((1, 7, 16, 40))} if machine is Convolution else {}
    x, y = TYPES[machine][seed % 4]
    return machine.problem(**dims, options=options, dtypes={"x": x, "y": y})


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("machine", TYPES)
@pytest.mark.sampled(40)
@pytest.mark.end_to_end
def test_random_candidates_are_right(machine: Any, seed: int, draw_candidate: Any) -> None:
    problem = drawn(machine, seed)
    space = build_space(machine, problem, device(DEVICES[seed // 4 % 4]))
    point = draw_candidate(space, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("random",))
    assert found.passed, f"{problem} {point}\n{found}"


@pytest.mark.parametrize("seed", range(12))
def test_references_are_what_a_convolution_is(seed: int) -> None:
    """Pixel by pixel and tap by tap, as the definition says it."""
    rng = np.random.default_rng(seed)
    problem = drawn(Convolution, seed)
    options, dims = dict(problem.options), dict(problem.dims)
    stride, dilation, pad = (int(options[name]) for name in ("stride", "dilation", "pad"))
    n, h, w, c, r, s, k = (dims[name] for name in "nhwcrsk")
    x, f = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((n, h, w, c), (r, s, c, k)))
    y = Convolution.reference(x, f, stride, dilation, pad)
    own = DepthwiseConvolution.reference(x, f[..., 0], stride, dilation, pad)
    assert y.shape == (n, dims["p"], dims["q"], k)
    for i, j in np.ndindex(y.shape[1:3]):
        total, alone = np.zeros((n, k)), np.zeros((n, c))
        for a, b in np.ndindex(r, s):
            row, column = i * stride + a * dilation - pad, j * stride + b * dilation - pad
            if 0 <= row < h and 0 <= column < w:
                total += x[:, row, column] @ f[a, b]
                alone += x[:, row, column] * f[a, b, :, 0]
        assert np.array_equal(y[:, i, j], total)
        assert np.array_equal(own[:, i, j], alone)


def test_programs_mean_what_references_say() -> None:
    rng = np.random.default_rng(0)
    x, f = rng.standard_normal((2, 9, 7, 5)).astype(np.float32), rng.standard_normal((3, 2, 5)).astype(np.float32)
    options = {"stride": 2, "dilation": 3, "pad": 4}
    space = tg.space(DepthwiseConvolution, n=2, h=9, w=7, c=5, r=3, s=2, device="a100", options=options)
    found = space.program(space.sample(1, 1)[0]).run({"x": x, "f": f}, sizes={"p": 6, "q": 6})["y"]
    assert np.abs(found - DepthwiseConvolution.reference(x, f, **options)).max() < 1e-5
