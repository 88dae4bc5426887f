"""Few rows in tensor memory: random candidates of every type and order, parts of k, broken kernels, its place."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from proving import right_and_proved
from test_matmul_blackwell import OPTIONS, factors
from test_matmul_skinny import best

from tinygpu.api.machines import FAMILIES
from tinygpu.cost.predictor import Prediction
from tinygpu.devices import device
from tinygpu.language import Machine, Problem
from tinygpu.machines.matmul_skinny import MatmulSkinny
from tinygpu.machines.matmul_skinny_blackwell import MatmulSkinnyBlackwell
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

# One row, primes, whole tiles and one more than these along each axis, rounds fewer than stages.
SIZES = ((1, 1, 1), (13, 97, 31), (16, 128, 64), (17, 129, 65), (64, 300, 416), (63, 257, 300), (33, 40, 700))


def posed(seed: int) -> Problem:
    """Few rows of every type, in orders that there are."""
    of = factors(seed, *SIZES[seed % len(SIZES)])
    options = {} if of["dtypes"]["c"] == "s32" else OPTIONS[seed // 7 % len(OPTIONS)]
    of["dtypes"] |= {"bias": "f32"} if "with_bias" in options else {}
    return MatmulSkinnyBlackwell.problem(**of, options=options)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.sampled(30)
def test_random_candidates_are_right_and_their_rings_proved(seed: int) -> None:
    problem = posed(seed)
    space = build_space(MatmulSkinnyBlackwell, problem, device("b200"))
    (point,) = space.sample(1, seed)
    right_and_proved(space, point, (("late", "early", "random")[seed % 3],))


def made(split_k: int) -> tuple[Problem, Kernel]:
    problem = MatmulSkinnyBlackwell.problem(m=13, n=304, k=416)
    space = build_space(MatmulSkinnyBlackwell, problem, device("b200"))
    fixed: dict[str, Any] = {"bm": 16, "bk": 32, "stages": 3, "tiles": 1, "split_k": split_k}
    (point,) = space.space.restrict(fixed).sample(1, np.random.default_rng(0))
    return problem, build(space.program(point), problem, point, SolverCache()).kernel


# What its kernels must have; each is broken everywhere, by (what is looked for, what is put there).
BROKEN = {
    "nobody waits for sums in registers": (r"tcgen05\.wait::ld\.sync\.aligned;", ""),
    "products do not arrive": (r"tcgen05\.commit[^;]*;", ""),
    "columns are never given back": (r"tcgen05\.dealloc[^;]*;", ""),
    "nothing is ordered before slots go back": (r"tcgen05\.fence::before_thread_sync;", ""),
    "a tile begins with old sums": (r"(setp)\.ne(\.u32 %p\d+, 0, 0;)", r"\1.eq\2"),
    "all warps read the first lanes": (r"((?:mul\.lo\.u32|shl\.b32) %r\d+, %r\d+, )(?:2097152|21)\b", r"\g<1>0"),
}


@pytest.mark.parametrize("split_k", [1, 3])
@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.sampled(2)
def test_broken_kernels_are_refused(name: str, split_k: int) -> None:
    problem, kernel = made(split_k)
    pattern, by = BROKEN[name]
    ptx = re.sub(pattern, by, kernel.ptx)
    assert ptx != kernel.ptx
    assert not verify(replace(kernel, ptx=ptx), MatmulSkinnyBlackwell, problem, orders=("late",)).passed


def test_a_cta_that_shares_a_tile_and_does_not_fix_it_up_is_noticed() -> None:
    problem, kernel = made(3)
    assert verify(kernel, MatmulSkinnyBlackwell, problem, orders=("late",)).passed
    ptx = re.sub(r"(atom[^;]*\.inc[^;]*, )\d+;|(atom[^;]*add[^;]*, )1;", lambda m: f"{m[1] or m[2]}0;", kernel.ptx)
    assert ptx != kernel.ptx
    assert not verify(replace(kernel, ptx=ptx), MatmulSkinnyBlackwell, problem, orders=("late",)).passed


def predicted(machine: type[Machine], m: int, n: int, k: int) -> Prediction:
    types, majors = dict.fromkeys("abc", "bf16"), {"b": "col"}
    return best(machine, machine.problem(m=m, n=n, k=k, dtypes=types, majors=majors), "b200")


@pytest.mark.parametrize("m", [1, 16, 64])
def test_large_weights_take_the_time_in_which_they_are_read(m: int) -> None:
    assert float(predicted(MatmulSkinnyBlackwell, m, 16384, 16384).share_of_roofline) >= 0.95


def test_of_64_rows_the_products_take_less_time_than_without_tensor_memory() -> None:
    with_it, without = (predicted(machine, 64, 16384, 16384) for machine in (MatmulSkinnyBlackwell, MatmulSkinny))
    assert 1.2 * float(with_it.seconds) < float(without.seconds)


def test_it_is_of_the_family_and_more_rows_are_refused_in_a_sentence() -> None:
    assert "matmul_skinny_blackwell" in FAMILIES["matmul"]
    space = build_space(MatmulSkinnyBlackwell, MatmulSkinnyBlackwell.problem(m=65, n=256, k=256), device("b200"))
    (conflict,) = space.space.conflict()
    assert conflict.sentences == ("rows (MatmulSkinnyBlackwell): a has at most 64 rows; 65 (m) <= 64",)


@pytest.mark.parametrize(("n", "left"), [(4096, True), (65536, False)])
def test_rows_are_in_several_tiles_only_where_columns_leave_sms_without_work(n: int, left: bool) -> None:
    space = build_space(MatmulSkinnyBlackwell, MatmulSkinnyBlackwell.problem(m=64, n=n, k=320), device("b200")).space
    assert bool(space.restrict({"bm": 32}).size) is left
    assert space.restrict({"bm": 64}).size
