"""The tiles, groups and clusters in the kernel lists of vendor libraries for sm_100: each is a point of a machine.

Sources, read for their numbers: CUTLASS 4 (`python/cutlass_library/sm100_shapes.py`: instruction shapes and clusters of
one and of two SMs), DeepGEMM (`csrc/jit_kernels/heuristics/sm100.hpp`), Triton (blocks of 64 or 128 rows, 32 to 256
columns, of one CTA or of two). A tile has one instruction's columns and rows, and 128 bytes of k, as theirs do;
clusters are (CTAs along m, along n). What hardware has no instruction for is refused by the instruction's rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.dtypes import dtype
from tinygpu.language import Machine
from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.machines.matmul_blackwell_scaled import MatmulBlackwellMx, MatmulBlackwellNvfp4
from tinygpu.spaces.build import build_space

KINDS = ("bf16", "f16", "tf32", "e4m3", "s8")
ONE = ((1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (2, 4), (4, 2), (1, 8), (8, 1), (4, 4))
TWO = ((2, 1), (2, 2), (4, 1), (2, 4), (4, 2), (8, 1), (4, 4))


@dataclass(frozen=True)
class Listed:
    """Rows in each CTA, CTAs that multiply together, the columns that there are, and the clusters."""

    rows: int
    ctas: str
    columns: tuple[int, ...]
    clusters: tuple[tuple[int, int], ...]


DENSE = (
    Listed(64, "one", tuple(range(8, 257, 8)), ONE),
    Listed(128, "one", tuple(range(16, 257, 16)), ONE),
    Listed(64, "pairs", tuple(range(32, 257, 32)), TWO),
    Listed(128, "pairs", tuple(range(32, 257, 32)), TWO),
)


@cache
def space_of(kind: str, b: str = "col") -> Any:
    problem = MatmulBlackwell.problem(m=8192, n=8192, k=8192, dtypes={"a": kind}, majors={"b": b})
    return build_space(MatmulBlackwell, problem, device("b200"))


def chosen(kind: str, listed: Listed, columns: int, cluster: tuple[int, int]) -> dict[str, Any]:
    """A point's tile and cluster, with the sums of two tiles at a time, as theirs, where they fit."""
    return {
        "bm": listed.rows, "ctas": listed.ctas, "bn": columns, "cluster_m": cluster[0], "cluster_n": cluster[1],
        "bk": 1024 // dtype(kind).bits, "swizzle": 128, "tiles": 2, "stages": 3,
    }  # fmt: skip


def each_once() -> Iterator[tuple[Listed, int, tuple[int, int]]]:
    """All columns with the smallest cluster, and all clusters with 128 columns."""
    for listed in DENSE:
        yield from ((listed, columns, listed.clusters[0]) for columns in listed.columns)
        yield from ((listed, 128, cluster) for cluster in listed.clusters[1:])


# PTX ISA, table 39: kind::i8 has 8 and 24 columns besides multiples of 16 by one CTA, and multiples of 32 by two.
def exists(kind: str, listed: Listed, columns: int) -> bool:
    return kind != "s8" or columns % 16 == 0 or columns in (8, 24)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled(5)
def test_every_tile_and_every_cluster_is_a_point(kind: str) -> None:
    space = space_of(kind).space
    missing = [
        (listed.rows, listed.ctas, columns, cluster)
        for listed, columns, cluster in each_once()
        if bool(space.restrict(chosen(kind, listed, columns, cluster)).size) is not exists(kind, listed, columns)
    ]
    assert not missing


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_every_tile_with_every_cluster_is_a_point(kind: str) -> None:
    space = space_of(kind).space
    for listed in DENSE:
        for columns in listed.columns:
            for cluster in listed.clusters:
                found = space.restrict(chosen(kind, listed, columns, cluster)).size
                assert bool(found) is exists(kind, listed, columns), (listed, columns, cluster)


SCALED = (Listed(128, "one", (64, 128, 192, 256), ONE), Listed(128, "pairs", (64, 128, 192, 256), TWO))


@pytest.mark.parametrize("machine", [MatmulBlackwellMx, MatmulBlackwellNvfp4])
def test_every_tile_and_every_cluster_of_scaled_factors_is_a_point(machine: type[Machine]) -> None:
    space = build_space(machine, machine.problem(m=8192, n=8192, k=8192), device("b200")).space
    deep = 128 if machine is MatmulBlackwellMx else 256
    missing = [
        (listed.ctas, columns, cluster)
        for listed in SCALED
        for columns, cluster in zip((*listed.columns, *[128] * len(listed.clusters)), listed.clusters * 2, strict=False)
        if not space.restrict(
            {"ctas": listed.ctas, "bn": columns, "bk": deep, "cluster_m": cluster[0], "cluster_n": cluster[1]}
        ).size
    ]
    assert not missing


def test_what_the_hardware_lacks_is_refused_by_the_rule_of_the_instruction() -> None:
    said = tg.explain(
        tg.space(MatmulBlackwell, m=8192, n=8192, k=8192, dtypes={"a": "s8"}, majors={"b": "col"}, device="b200"),
        **chosen("s8", DENSE[0], 40, (1, 1)), store="direct", piece=8, vc=4, raster=1, split_k=1, stream_k=0,
    )  # fmt: skip
    sentence = "an instruction of kind::i8 has 16 to 256 columns, in steps of 16, or 8 or 24"
    assert sentence in " ".join(str(said).split())


@pytest.mark.parametrize("kind", ["bf16", "e4m3"])
def test_tiles_of_b_along_n_are_points_where_rows_are_whole_swizzles(kind: str) -> None:
    """A box of TMA is as wide as the swizzle: of rows along n, the columns of a CTA are whole widths of it."""
    space, bits = space_of(kind, "row").space, dtype(kind).bits
    for listed in DENSE:
        for columns in listed.columns:
            own = columns // (2 if listed.ctas == "pairs" else 1)
            widest = next((w for w in (128, 64, 32) if own * bits // 8 % w == 0), 0)
            point = chosen(kind, listed, columns, listed.clusters[0]) | {"swizzle": widest or 32}
            legal = bool(widest) and (bits > 8 or columns % (32 if listed.ctas == "pairs" else 16) == 0)
            assert bool(space.restrict(point).size) is legal, (listed, columns)
