"""Scans of random machines, emulated with the checks of races and barriers, beside NumPy."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent))
from drawn_scans import OVER_A_CLUSTER, OVER_THE_GRID, STYLES, draw

import tinygpu as tg
from tinygpu.cost.combining import preceding, scanned
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk
from tinygpu.ptx import isa


def emulated_as_meant(seed: int, style: str = "") -> None:
    drawn = draw(seed, style)
    rng = np.random.default_rng(seed)
    rows, columns = drawn.sizes(rng)
    device = ["a100", "h100", "b200"][max(seed % 3, int(drawn.ctas > 1))]
    kernel = tg.emit(tg.space(drawn.machine, m=rows, n=columns, device=device), exchange="shuffles")
    x = drawn.array(rng, rows, columns)
    given = [x, x[0]] if drawn.style.endswith("beside a role") else [x]
    for what, found in (("emulated", tg.emulate(kernel, *given)), ("run", tg.run(kernel, *given))):
        made = found[0] if isinstance(found, tuple) else found
        assert np.array_equal(made, drawn.wanted(x)), f"{what}: {drawn.text}, m={rows}, n={columns}"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("seed", "style"), [*enumerate((*STYLES, *OVER_THE_GRID, *OVER_A_CLUSTER), 20)])
def test_a_drawn_scan_is_what_numpy_makes(seed: int, style: str) -> None:
    emulated_as_meant(seed, style)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_many_drawn_scans_are_what_numpy_makes(seed: int) -> None:
    emulated_as_meant(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2000, 2400))
def test_many_drawn_scans_over_the_grid_are_what_numpy_makes(seed: int) -> None:
    emulated_as_meant(seed, OVER_THE_GRID[seed % len(OVER_THE_GRID)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3000, 3400))
def test_many_drawn_scans_over_clusters_are_what_numpy_makes(seed: int) -> None:
    emulated_as_meant(seed, OVER_A_CLUSTER[seed % len(OVER_A_CLUSTER)])


@pytest.mark.parametrize("seed", range(0, 60, 12))
def test_what_ctas_tell_each_other_costs_what_its_kernel_does(seed: int) -> None:
    drawn = draw(seed, OVER_A_CLUSTER[seed // 12 % 2])
    rows, columns = drawn.sizes(np.random.default_rng(seed))
    space = tg.space(drawn.machine, m=rows, n=columns, device="h100")
    kernel = tg.emit(space, exchange="shuffles")
    (s,) = [s for s in walk(kernel.built.program.body) if isinstance(s, n.PrecedingInCluster)]
    said, ptx = preceding(s), kernel.ptx
    text = ptx[ptx.index(s.headline(frozenset())) :].split("  // ")[0]
    assert text.count("st.shared") == int(said.stores)
    assert text.count("ld.shared::cluster") == int(said.loads)
    assert text.count("barrier.cluster.arrive") == int(said.barriers)
    chosen = sum(isinstance(step.instruction, isa.Select) for step in s.merge.steps)
    assert text.count("selp.") == int(said.selects) + chosen * int(said.merges)


@pytest.mark.parametrize("seed", range(0, 40, 12))
def test_what_a_scan_costs_is_what_its_kernel_does(seed: int) -> None:
    drawn = draw(seed, style="once")
    rows, columns = drawn.sizes(np.random.default_rng(seed))
    kernel = tg.emit(tg.space(drawn.machine, m=rows, n=columns, device="a100"), exchange="shuffles")
    (s,) = [s for s in walk(kernel.built.program.body) if isinstance(s, n.Scan)]
    said, ptx = scanned(s), kernel.ptx
    text = ptx[ptx.index(s.headline(frozenset())) :]
    assert text.count("shfl.sync") == int(said.shuffles)
    assert text.count("st.shared") == int(said.stores)
    assert text.count("ld.shared") == int(said.loads)
    assert text.count("bar.sync") == int(said.barriers)
    chosen = sum(isinstance(step.instruction, isa.Select) for step in s.merge.steps)
    assert text.count("selp.") == int(said.selects) + chosen * int(said.merges)
