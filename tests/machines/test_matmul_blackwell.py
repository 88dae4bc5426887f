"""Matmul in tensor memory: random candidates of every type over odd sizes, orders, epilogues; its rings; its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from proving import right_and_proved

import tinygpu as tg
from tinygpu.api.machines import FAMILIES
from tinygpu.devices import device
from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.machines.operands import MORE_FACTORS, MORE_KINDS, NARROW, RESULTS
from tinygpu.spaces.build import build_space
from tinygpu.spaces.part import SpaceError

ORDERS = ("row", "col")
# One more than a tile, primes, rounds fewer than stages, several tiles along each axis, clusters beyond the last tile.
SIZES = ((1, 1, 1), (129, 33, 65), (13, 97, 31), (257, 130, 65), (130, 257, 300), (385, 96, 64))
OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"with_bias": True, "activation": "relu"}, {"scaling": "columns", "with_residual": True}, {},
)  # fmt: skip


def padded(n: int, bits: int) -> int:
    """Rows of whole 16 bytes, as TMA needs them."""
    per = 128 // bits
    return -(-n // per) * per


def factors(seed: int, m: int, n: int, k: int) -> dict[str, Any]:
    """Sizes, and every type in turn, by others of its kind, in orders that there are: narrow elements lie along k."""
    kind = MORE_KINDS[seed // 2 % len(MORE_KINDS)]
    other = MORE_FACTORS[kind][seed // 4 % len(MORE_FACTORS[kind])]
    result = RESULTS[kind][seed // 5 % len(RESULTS[kind])]
    bits = {"tf32": 32, "f16": 16, "bf16": 16}.get(kind, 8)
    a = "row" if kind in NARROW else ORDERS[seed % 2]
    b = "col" if other in NARROW else ORDERS[seed // 3 % 2]
    if kind in NARROW or other in NARROW:
        k = 128 * -(-k // 100)  # rows of whole boxes
    return {
        "m": m, "n": n, "k": k, "dtypes": {"a": kind, "b": other, "c": result}, "majors": {"a": a, "b": b},
        "lds": {"a": padded(k if a == "row" else m, bits), "b": padded(n if b == "row" else k, bits)},
    }  # fmt: skip


def posed(seed: int) -> Any:
    """Products of every type, with bias and residual, whose results have padded rows or not."""
    of = factors(seed, *SIZES[seed % len(SIZES)])
    result = of["dtypes"]["c"]
    options = {} if result == "s32" else OPTIONS[seed // 7 % len(OPTIONS)]
    of["lds"]["c"] = padded(of["n"], {"f16": 16, "bf16": 16}.get(result, 32)) if seed % 3 else of["n"]
    of["dtypes"] |= {"bias": "f32"} if options.get("with_bias") else {}
    return MatmulBlackwell.problem(**of, options=options)


@pytest.mark.parametrize("seed", range(96))
@pytest.mark.sampled(48)
@pytest.mark.end_to_end
def test_random_candidates_are_right_and_their_rings_proved(seed: int) -> None:
    problem = posed(seed)
    space = build_space(MatmulBlackwell, problem, device("b200"))
    (point,) = space.sample(1, seed)
    right_and_proved(space, point)


@pytest.mark.parametrize("seed", range(96))
@pytest.mark.sampled(48)
@pytest.mark.end_to_end
def test_candidates_that_take_each_other_over_are_right_and_their_answers_proved(seed: int) -> None:
    """On a GPU of one SM, where some begin late: alone and in pairs, in clusters, with slices, at edges."""
    problem = posed(seed)
    one = replace(device("b200").figure("sm_count"), value=1)
    space = build_space(MatmulBlackwell, problem, device("b200").with_figures({"sm_count": one}))
    try:
        part = space.space.restrict({"launch_control": 1, "ctas": ("one", "pairs")[seed % 2]})
        (point,) = part.sample(1, np.random.default_rng(seed))
    except SpaceError:
        assert problem.dim["m"] <= 128  # one tile begins at once
        return
    assert right_and_proved(space, point).scheduler.takes_over


def test_rows_of_narrow_elements_across_k_are_refused_by_the_rule_of_the_products() -> None:
    problem = MatmulBlackwell.problem(m=128, n=128, k=128, dtypes={"a": "e2m1", "b": "e2m3"})
    space = build_space(MatmulBlackwell, problem, device("b200"))
    with pytest.raises(SpaceError):
        space.sample(1, 0)
    said = " ".join(str(tg.explain(tg.space(MatmulBlackwell, problem, device="b200"))).split())
    assert "operand b is contiguous along k, unless its elements have 8, 16 or 32 bits (they have 6)" in said


@pytest.mark.parametrize(
    ("k", "aligns", "said"),
    [
        (192, {}, "rows of a are whole boxes of 128 elements, which it pads: k is a multiple of 128; 192 mod 128 = 64"),
        (256, {"a": 16}, "the pointer and the rows of a are multiples of 32 bytes; 16 mod 32 = 16"),
    ],
)
def test_narrow_elements_are_padded_in_whole_boxes(k: int, aligns: dict[str, int], said: str) -> None:
    problem = MatmulBlackwell.problem(
        m=128, n=128, k=k, dtypes={"a": "e3m2", "b": "e4m3"}, majors={"b": "col"}, aligns=aligns
    )
    space = build_space(MatmulBlackwell, problem, device("b200"))
    with pytest.raises(SpaceError):
        space.sample(1, 0)
    assert said in " ".join(str(tg.explain(tg.space(MatmulBlackwell, problem, device="b200"))).split())


@pytest.mark.slow
def test_it_is_a_machine_of_the_family_and_its_best_is_twice_as_fast_as_without_tensor_memory() -> None:
    assert "matmul_blackwell" in FAMILIES["matmul"]
    sizes = {"m": 4096, "n": 4096, "k": 4096}
    spaces = (tg.space(name, device="b200", dtypes="bf16", **sizes) for name in ("matmul_blackwell", "matmul_ampere"))
    with_it, without = map(tg.predict, spaces)
    assert 2 * with_it.seconds < without.seconds
