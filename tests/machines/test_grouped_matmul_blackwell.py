"""Rows that are multiplied group by group in tensor memory: groups of any length, every type, rings, broken kernels."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from proving import right_and_proved
from test_grouped_matmul import LENGTHS, multiplied

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.machines.grouped_matmul_blackwell import KINDS, GroupedMatmulBlackwell
from tinygpu.machines.operands import RESULTS
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.testing import Case
from tinygpu.testing.statements import wrong_statements
from tinygpu.testing.workbench import Workbench

POINT: dict[str, Any] = {
    "bm": 128, "bn": 32, "bk": 32, "stages": 2, "tiles": 2, "launch_control": 0, "looked_at": 1, "raster": 4,
    "piece": 16, "swizzle": 64,
}  # fmt: skip
# Beside the lengths for smaller tiles: a whole tile of 128 rows, one row more, one less, and several of one group.
LONG = {"around a tile": (128, 129, 127, 0, 1), "several tiles of one group": (0, 397, 2)}


@pytest.mark.parametrize("lengths", [*LENGTHS.values(), *LONG.values()], ids=[*LENGTHS, *LONG])
@pytest.mark.parametrize("bm", [128, 64])
@pytest.mark.sampled(8)
def test_groups_of_any_length_are_right(lengths: tuple[int, ...], bm: int) -> None:
    multiplied(GroupedMatmulBlackwell, "b200", lengths, **POINT | {"bm": bm}, vy=8)


@pytest.mark.parametrize("lengths", [*LENGTHS.values(), *LONG.values()], ids=[*LENGTHS, *LONG])
@pytest.mark.sampled(8)
def test_groups_of_any_length_are_right_where_ctas_take_each_other_over(lengths: tuple[int, ...]) -> None:
    multiplied(GroupedMatmulBlackwell, "b200", lengths, **POINT | {"launch_control": 1}, vy=8)


@pytest.mark.parametrize("launch_control", [0, 1])
@pytest.mark.end_to_end
def test_statements_mean_what_they_do_where_tiles_without_rows_follow_others(launch_control: int) -> None:
    """Columns of tiles without rounds hold the sums of earlier ones, of which the program knows nothing."""
    problem = GroupedMatmulBlackwell.problem(
        m=160, n=3, k=61, experts=61, dtypes={"x": "bf16"}, lds={"x": 64, "w": 8, "y": 8}
    )
    point = {
        "bm": 128, "bn": 128, "bk": 128, "stages": 3, "tiles": 2, "launch_control": launch_control, "looked_at": 1,
        "raster": 16, "piece": 32, "swizzle": 128, "vy": 8,
    }  # fmt: skip
    case = Case(GroupedMatmulBlackwell, problem, device("b200"), point)
    assert case.space(Workbench()).space.restrict(point).size == 1
    wrong, tried = wrong_statements(case, Workbench())
    assert wrong == {}
    assert len(tried) == 10


def posed(seed: int) -> Any:
    """Every type in turn, in the orders that it has; integers and 8-bit floats in results of each width."""
    rng = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    result = RESULTS[kind][seed // len(KINDS) % len(RESULTS[kind])]
    dims = {"m": rng.choice((1, 97, 129, 300)), "n": 16 * rng.randint(1, 5), "k": 16 * rng.randint(1, 7)}
    return GroupedMatmulBlackwell.problem(
        **dims, experts=rng.choice((1, 2, 5, 40)), dtypes={"x": kind, "y": result},
        majors={"w": rng.choice(("row", "experts.n.k"))},
    )


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sampled(20)
@pytest.mark.end_to_end
def test_random_candidates_are_right_and_their_rings_proved(seed: int, draw_candidate: Any) -> None:
    problem = posed(seed)
    space = build_space(GroupedMatmulBlackwell, problem, device("b200"))
    right_and_proved(space, draw_candidate(space, seed), ("random",))


# What a kernel of it must have; each is broken everywhere, by (what is looked for, what is put there).
BROKEN = {
    "nobody waits for sums in registers": (r"tcgen05\.wait::ld\.sync\.aligned;", ""),
    "products do not arrive": (r"tcgen05\.commit[^;]*;", ""),
    "bytes are not expected": (r"(mbarrier\.arrive)\.expect_tx(\.shared::cta\.b64 _, \[[^]]*\]), \d+;", r"\1\2;"),
    "columns are never given back": (r"tcgen05\.dealloc[^;]*;", ""),
    "sums of another slot of columns": (r"(tcgen05\.ld[^;]*\[[^;]*)\];", r"\1+16];"),
    "a tile begins with old sums": (r"(setp)\.ne(\.u32 %p\d+, 0, 0;)", r"\1.eq\2"),
    "lanes do not add up what they count": (r"(shfl\.sync\.bfly\.b32 [^;]*), 16, ", r"\1, 0, "),
    "another group's matrix": (r"(cp\.async\.bulk\.tensor\.3d[^;]*\{[^;]*), (%r\d+)\}", r"\1, 0}"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernels_are_refused(name: str) -> None:
    problem = GroupedMatmulBlackwell.problem(m=160, n=64, k=200, experts=3)
    space = build_space(GroupedMatmulBlackwell, problem, device("b200"))
    (point,) = space.space.restrict(POINT | {"vy": 8, "looked_at": 1}).sample(1, np.random.default_rng(0))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    assert verify(kernel, GroupedMatmulBlackwell, problem, orders=("late",)).passed
    pattern, by = BROKEN[name]
    ptx = re.sub(pattern, by, kernel.ptx)
    assert ptx != kernel.ptx
    assert not verify(replace(kernel, ptx=ptx), GroupedMatmulBlackwell, problem, orders=("late",)).passed


def test_integers_are_multiplied_on_b200_and_refused_on_b300_in_a_sentence() -> None:
    problem = GroupedMatmulBlackwell.problem(m=128, n=64, k=64, experts=2, dtypes={"x": "s8"})
    assert build_space(GroupedMatmulBlackwell, problem, device("b200")).sample(1, 0)
    said = str(tg.explain(tg.space(GroupedMatmulBlackwell, problem, device="b300")))
    assert "kind::i8 exists on sm_100 only" in said


def test_predictions_take_what_is_declared_of_the_groups() -> None:
    found = {}
    for m, experts in ((4096, 8), (4096, 64), (4, 512)):
        problem = GroupedMatmulBlackwell.problem(m=m, n=256, k=512, experts=experts)
        space = build_space(GroupedMatmulBlackwell, problem, device("b200"))
        found[m, experts] = space.counts(0).demand(
            {**space.environment, **problem.environment(), **POINT, "vy": 8}, space.device
        )
    # every group has half a tile that is empty; rows that are fewer than groups have one each
    assert {key: int(d.ctas) for key, d in found.items()} == {(4096, 8): 288, (4096, 64): 512, (4, 512): 32}
    assert {int(d.iterations) for d in found.values()} == {512 // POINT["bk"]}
    x, y, w = (2 * rows * columns for rows, columns in ((4096, 512), (4096, 256), (512, 256)))
    assert int(found[4096, 8].compulsory_dram_bytes) == x + y + 8 * w + 4 * 9
    assert int(found[4, 512].compulsory_dram_bytes) == (x + y) // 1024 + 4 * w + 4 * 513
