"""Reductions of random machines, emulated with the checks of races and barriers, beside NumPy."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent))
from drawn_reductions import STYLES, draw

import tinygpu as tg
from tinygpu.cost.combining import reduced
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk
from tinygpu.ptx import isa


def emulated_as_meant(seed: int, style: str = "") -> None:
    drawn = draw(seed, style)
    rng = np.random.default_rng(seed)
    m, n = drawn.sizes(rng)
    space = tg.space(drawn.machine, m=m, n=n, device=["a100", "h100", "b200"][max(seed % 3, int(drawn.ctas > 1))])
    kernel = tg.emit(space)
    arrays = drawn.arrays(rng, m, n)
    wanted = drawn.wanted(arrays)
    for what, found in (("emulated", tg.emulate(kernel, *arrays)), ("run", tg.run(kernel, *arrays))):
        got = found if isinstance(found, tuple) else (found,)
        for have, want in zip(got, wanted, strict=True):
            assert np.array_equal(have, want), f"{what}: {drawn.text}, m={m}, n={n}"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("seed", "style"), [*enumerate(STYLES, 20)])
def test_a_drawn_reduction_is_what_numpy_makes(seed: int, style: str) -> None:
    emulated_as_meant(seed, style)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_many_drawn_reductions_are_what_numpy_makes(seed: int) -> None:
    emulated_as_meant(seed)


@pytest.mark.parametrize("seed", range(0, 60, 15))
def test_what_a_reduction_costs_is_what_its_kernel_does(seed: int) -> None:
    drawn = draw(seed, style="once")
    rows, columns = drawn.sizes(np.random.default_rng(seed))
    kernel = tg.emit(tg.space(drawn.machine, m=rows, n=columns, device="a100"))
    (s,) = [s for s in walk(kernel.built.program.body) if isinstance(s, n.Reduce)]
    said, ptx = reduced(s), kernel.ptx
    text = ptx[ptx.index(s.headline(frozenset())) :]
    assert text.count("shfl.sync") == int(said.shuffles)
    assert text.count("redux.sync") == int(said.at_once)
    assert text.count("st.shared") == int(said.stores)
    assert text.count("ld.shared") == int(said.loads)
    assert text.count("bar.sync") == int(said.barriers)
    combined = s.merge.steps[0].instruction.text().split(" ")[0]
    chosen = sum(isinstance(step.instruction, isa.Select) for step in s.merge.steps)
    assert text.count("selp.") == int(said.selects) + chosen * int(said.merges)
    if drawn.kind.startswith("f"):  # addresses are integers, and added too
        assert text.count(f"{combined} ") == int(said.merges)
