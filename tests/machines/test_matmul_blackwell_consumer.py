"""Matmul of RTX cards: random candidates of every type, order, schedule and epilogue; rings, place, limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from proving import right_and_proved

import tinygpu as tg
from tinygpu.api.machines import FAMILIES
from tinygpu.devices import device
from tinygpu.machines.matmul_blackwell_consumer import MatmulBlackwellConsumer
from tinygpu.machines.operands import KINDS, RESULTS
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.lowering.build import build
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.testing.bench import open_bench

ORDERS = ("row", "col")
# One more than a tile, primes, rounds fewer than stages, several tiles along each axis, one row or column.
SIZES = ((1, 1, 1), (129, 33, 65), (13, 97, 31), (257, 130, 65), (130, 257, 300), (1, 65, 130), (67, 1, 200))
OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"with_bias": True, "activation": "gelu"}, {"scaling": "columns", "with_residual": True}, {},
)  # fmt: skip
SHARING = ({"split_k": 1, "stream_k": 0}, {"split_k": 1, "stream_k": 1}, {"split_k": 2})
WIDTH = {"tf32": 32, "f32": 32, "s32": 32, "f16": 16, "bf16": 16}


def padded(n: int, kind: str) -> int:
    """Rows of whole 16 bytes, as TMA needs them."""
    per = 128 // WIDTH.get(kind, 8)
    return -(-n // per) * per


def posed(seed: int) -> Any:
    """Every type in turn, in every order of both operands."""
    m, n, k = SIZES[seed % len(SIZES)]
    kind = KINDS[seed // 4 % len(KINDS)]
    result = RESULTS[kind][seed // 5 % len(RESULTS[kind])]
    a, b = ORDERS[seed % 2], ORDERS[seed // 2 % 2]
    options = {} if result == "s32" else OPTIONS[seed // 3 % len(OPTIONS)]
    lds = {"a": padded(k if a == "row" else m, kind), "b": padded(n if b == "row" else k, kind)}
    lds["c"] = padded(n, result) if seed % 3 else n
    return MatmulBlackwellConsumer.problem(
        m=m, n=n, k=k, majors={"a": a, "b": b}, dtypes={"a": kind, "c": result}, lds=lds, options=options
    )


@pytest.mark.parametrize("seed", range(168))
@pytest.mark.sampled(28)
@pytest.mark.end_to_end
def test_random_candidates_are_right_and_their_rings_proved(seed: int) -> None:
    problem = posed(seed)
    space = build_space(MatmulBlackwellConsumer, problem, device("rtx-5090" if seed % 2 else "rtx-pro-6000"))
    wanted = SHARING[seed % len(SHARING)]
    few = space.space.restrict(wanted)
    if not few.size:  # of so short a k nothing can be shared
        few = space.space.restrict(SHARING[0])
    (point,) = few.sample(1, np.random.default_rng(seed))
    right_and_proved(space, point)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.end_to_end
def test_every_type_assembles_for_rtx_cards_without_spills(kind: str) -> None:
    problem = MatmulBlackwellConsumer.problem(m=1024, n=1024, k=1024, dtypes={"a": kind})
    space = build_space(MatmulBlackwellConsumer, problem, device("rtx-5090"))
    (point,) = space.space.restrict({"bm": 128, "bn": 128, "warps_m": 2, "warps_n": 4}).sample(
        1, np.random.default_rng(0)
    )
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    assert not assemble(kernel.ptx, "sm_120").spills


def test_two_stages_and_a_staged_result_are_all_that_99_kib_hold() -> None:
    """128 x 128 results of 16 bits beside two stages of 32 KiB fit; beside three they do not, and the rule says so."""
    space = tg.space(MatmulBlackwellConsumer, m=1024, n=1024, k=1024, device="rtx-5090")
    point = {
        "fragment_a": "ldmatrix", "fragment_b": "ldmatrix", "schedule": "cooperative", "store": "stmatrix", "bm": 128,
        "bn": 128, "bk": 64, "warps_m": 2, "warps_n": 4, "stages": 2, "raster": 4, "split_k": 1, "stream_k": 0,
        "swizzle": 128, "swizzle_c": 128, "vr": 1,
    }  # fmt: skip
    assert point in space
    said = str(tg.explain(space, **(point | {"stages": 3})))
    assert "smem capacity" in said


def test_where_there_is_wgmma_or_tensor_memory_the_rule_leaves_products_to_them() -> None:
    for name, there in (("h100", False), ("b200", False), ("rtx-pro-6000", True), ("rtx-5090", True)):
        assert bool(tg.space(MatmulBlackwellConsumer, m=256, n=256, k=256, device=name).size) is there
    said = str(tg.explain(tg.space(MatmulBlackwellConsumer, m=256, n=256, k=256, device="h100")))
    assert "the GPU has neither wgmma nor tensor memory" in said


def test_older_gpus_have_no_tma() -> None:
    said = str(tg.explain(tg.space(MatmulBlackwellConsumer, m=256, n=256, k=256, device="rtx-4090")))
    assert "cp.async.bulk.tensor exists from sm_90 on" in said


@pytest.mark.slow
def test_it_is_a_machine_of_the_family_and_its_best_is_as_fast_as_with_cp_async() -> None:
    assert "matmul_blackwell_consumer" in FAMILIES["matmul"]
    sizes = {"m": 4096, "n": 4096, "k": 4096}
    names = ("matmul_blackwell_consumer", "matmul_ampere")
    with_it, without = (tg.predict(tg.space(name, device="rtx-5090", dtypes="bf16", **sizes)) for name in names)
    assert with_it.seconds < without.seconds


def test_it_is_checked_on_devices_that_it_is_searched_for() -> None:
    on = (device("h100"), device("rtx5090"))
    bench = open_bench(MatmulBlackwellConsumer, 1, on, 1, 0, lambda _: None)
    assert [d.name for d in bench.devices] == ["RTX-5090"]
    assert "the GPU has neither wgmma nor tensor memory" in bench.elsewhere["H100-SXM5"]
    assert len(bench.posings) == 1
