"""Tiles of tensor memory that CTAs share: random candidates of both kinds, their rings, kernels that are wrong."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from proving import right_and_proved
from test_matmul_blackwell import SIZES, posed

from tinygpu.devices import device
from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

B200 = device("b200")
SHARED: tuple[dict[str, Any], ...] = (
    {"split_k": 2}, {"split_k": 3}, {"stream_k": 1}, {"stream_k": 1, "ctas": "pairs"}, {"split_k": 2, "ctas": "pairs"},
)  # fmt: skip
SMALL: dict[str, Any] = {
    "bm": 128, "bn": 64, "bk": 32, "stages": 2, "tiles": 2, "cluster_m": 2, "cluster_n": 1, "raster": 1, "swizzle": 64,
    "piece": 16,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(96))
@pytest.mark.sampled(20)
@pytest.mark.end_to_end
def test_random_candidates_are_right_and_their_rings_proved(seed: int) -> None:
    """Of a product of one round, stream-K alone shares the tiles: by rounds, of which a CTA has all or none."""
    problem, k = posed(seed), SIZES[seed % len(SIZES)][2]
    fits = [shared for shared in SHARED if 32 * shared.get("split_k", 0) <= k]
    space = build_space(MatmulBlackwell, problem, B200)
    (point,) = space.space.restrict(fits[seed // len(SIZES) % len(fits)]).sample(1, np.random.default_rng(seed))
    assert len(right_and_proved(space, point).workspaces) == 2


@cache
def small(ctas: str, store: str, split_k: int) -> tuple[Any, Kernel]:
    """Tiles of two CTAs that share the 12 rounds, rows and columns beyond the last; 1 part: stream-K."""
    problem = MatmulBlackwell.problem(m=300, n=200, k=360)
    space = build_space(MatmulBlackwell, problem, B200)
    chosen = SMALL | {"ctas": ctas, "store": store, "split_k": split_k, "stream_k": int(split_k == 1)}
    (point,) = space.space.restrict(chosen).sample(1, np.random.default_rng(0))
    return problem, build(space.program(point), problem, point, SolverCache()).kernel


@pytest.mark.end_to_end
@pytest.mark.parametrize("split_k", [1, 3])
@pytest.mark.parametrize("ctas", ["one", "pairs"])
def test_they_are_right_in_every_order_and_assemble_without_spills(ctas: str, split_k: int) -> None:
    problem, kernel = small(ctas, "staged", split_k)
    assert verify(kernel, MatmulBlackwell, problem).passed
    assembly = assemble(kernel.ptx, kernel.assembled_for("sm_100"))
    assert (assembly.spill_store_bytes, assembly.stack_bytes) == (0, 0)


def test_pieces_are_left_side_by_side_and_counted_once() -> None:
    """Four pieces of 16 columns: one count, and one place of a tile for each part."""
    problem, kernel = small("one", "direct", 3)
    assert kernel.ptx.count("atom.acq_rel.gpu.global.inc") == 1
    tiles = 4 * 4  # of 128 x 64, in clusters of two
    assert kernel.workspace_bytes(problem, 48) == {"partials": tiles * 3 * 128 * 64 * 4, "counters": tiles * 4}


@pytest.mark.parametrize(
    ("old", "new", "times"),
    [
        # the values and the count are in no order, or the CTAs do not see each other's count
        (r"atom\.acq_rel\.gpu\.global\.inc", "atom.relaxed.gpu.global.inc", 0),
        (r"atom\.acq_rel\.gpu\.global\.inc", "atom.acq_rel.cta.global.inc", 0),
        # nobody waits for the values of the other threads before the count
        (r"bar\.sync \d, 128;\n(?=(?:(?!bar\.).*\n)*?.*atom\.acq_rel)", "", 0),
        # everybody is the last CTA, or nobody
        (r"@!%p\d+ (bra \$gathered)", r"@!%p0 \1", 0),
        # a piece lies where another does
        (r"(add\.s64 %d\d+, %d\d+), 8192;", r"\1, 0;", 1),
    ],
)
@pytest.mark.parametrize("split_k", [1, 3])
def test_wrong_kernels_are_refused(old: str, new: str, times: int, split_k: int) -> None:
    problem, kernel = small("one", "direct", split_k)
    text, count = re.subn(old, new, kernel.ptx, count=times)
    assert count, old
    assert not verify(replace(kernel, ptx=text), MatmulBlackwell, problem, orders=("late",)).passed


USUAL = [  # rows of a tile over one CTA or two, columns, CTAs of a cluster: the lists of vendor libraries
    (rows, bn, cluster)
    for rows, clusters in ((128, ((1, 1), (2, 1), (2, 2), (4, 1))), (256, ((2, 1), (2, 2), (4, 1), (4, 2))))
    for bn in (64, 128, 192, 256)
    for cluster in clusters
]  # fmt: skip


@cache
def large() -> Any:
    problem = MatmulBlackwell.problem(m=8192, n=8192, k=8192, dtypes={"a": "bf16"}, majors={"b": "col"})
    return build_space(MatmulBlackwell, problem, B200).space


@pytest.mark.parametrize("sharing", [{"split_k": 1, "stream_k": 0}, {"split_k": 1, "stream_k": 1}])
def test_usual_kernels_of_vendor_libraries_are_points(sharing: dict[str, int]) -> None:
    """Steps of 64 along k, whole swizzles of 128 bytes, sums of two tiles where they fit, stored by TMA."""
    for rows, bn, (cluster_m, cluster_n) in USUAL:
        chosen = {
            "ctas": "pairs" if rows == 256 else "one", "bn": bn, "bk": 64, "stages": 4, "tiles": 2, "swizzle": 128,
            "cluster_m": cluster_m, "cluster_n": cluster_n, "store": "staged", **sharing,
        }  # fmt: skip
        assert large().restrict(chosen).size, (rows, bn, cluster_m, cluster_n)


def test_split_k_is_offered_where_tiles_are_few() -> None:
    few = build_space(MatmulBlackwell, MatmulBlackwell.problem(m=512, n=512, k=8192), B200).space
    for split_k in (2, 3, 4, 6, 8):
        assert few.restrict({"ctas": "pairs", "bn": 256, "bk": 64, "split_k": split_k}).size
        assert not large().restrict({"split_k": split_k}).size
