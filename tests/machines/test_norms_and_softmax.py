"""Rows in registers of one warp or many, or passed over: random candidates, sizes that nothing divides, every type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.language import DeclarationError, Require
from tinygpu.machines.norm import LayerNorm, RmsNorm
from tinygpu.machines.softmax import Softmax
from tinygpu.machines.top_k import TopK
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

SIZES = ((1, 1), (3, 7), (17, 129), (5, 1000), (2, 4097), (9, 64))
OPTIONS: dict[type[Any], tuple[dict[str, Any], ...]] = {
    Softmax: ({}, {"logarithm": True}),
    RmsNorm: ({}, {"residual": True}, {"residual": True, "affine": False}),
    LayerNorm: ({}, {"residual": True}, {"affine": False}),
}


@pytest.mark.parametrize("seed", range(36))
@pytest.mark.parametrize("machine", OPTIONS)
@pytest.mark.sampled(54)
def test_random_candidates_are_right(machine: Any, seed: int, draw_candidate: Any) -> None:
    m, n = SIZES[seed % len(SIZES)]
    options = OPTIONS[machine][seed % len(OPTIONS[machine])]
    kind = ("f32", "f16", "bf16")[seed // 6 % 3]
    problem = machine.problem(m=m, n=n, dtypes={"x": kind}, options=options)
    space = build_space(machine, problem, device(("a100", "h100", "rtx5090")[seed % 3]))
    point = draw_candidate(space, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("random",))
    assert found.passed, f"{problem} {point}\n{found}"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("machine", [RmsNorm, LayerNorm])
@pytest.mark.parametrize(("n", "options"), [(1, {}), (777, {"residual": True}), (4097, {"affine": False})])
def test_rows_that_are_read_again_are_right(machine: Any, n: int, options: dict[str, Any]) -> None:
    problem = machine.problem(m=3, n=n, dtypes={"x": "f16" if n == 777 else "f32"}, options=options)
    space = build_space(machine, problem, device("a100"))
    point = space.space.restrict({"reads": "again", "step": 2}).sample(1, np.random.default_rng(n))[0]
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("random",))
    assert found.passed, f"{problem} {point}\n{found}"


def test_norms_of_long_rows_read_them_again() -> None:
    space = tg.space(LayerNorm, m=4, n=1_000_003, device="h100")
    assert {p["reads"] for p in space.sample(20, 0)} == {"again"}


def test_rows_of_a_million_elements_are_passed_over() -> None:
    space = tg.space(Softmax, m=4, n=1_000_003, device="h100")
    assert {p["reads"] for p in space.sample(20, 0)} == {"three times"}
    said = tg.explain(space, reads="once")
    assert any("all n elements along axis 1 are held" in sentence for sentence in said.sentences)


WHOLE_CTAS = ((2, 64, 1, 4), (4, 128, 2, 1), (1, 32, 4, 2))  # warps, across, vector, step


@pytest.mark.sampled(6)
@pytest.mark.parametrize("ctas", [2, 4, 8])
@pytest.mark.parametrize("reads", ["once", "three times"])
@pytest.mark.parametrize("logarithm", [False, True])
def test_the_ctas_of_a_cluster_share_a_row(ctas: int, reads: str, logarithm: bool) -> None:
    """Rows that fill all tiles but a part of the last one, that leave CTAs without any element, and several rounds."""
    warps, across, vector, step = WHOLE_CTAS[ctas // 3]
    tile = across * vector * step
    for n in {tile * ctas, tile * (ctas - 1) + vector, vector, tile * ctas * (1 if reads == "once" else 3) - vector}:
        problem = Softmax.problem(m=3, n=n, options={"logarithm": logarithm})
        space = build_space(Softmax, problem, device("h100"))
        point = {"warps": warps, "across": across, "vector": vector, "step": step, "ctas": ctas, "reads": reads}
        point |= {"exchange": "shuffles"}
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        assert kernel.cluster == (ctas, 1, 1)
        assert verify(kernel, Softmax, problem, orders=("late", "random")).passed


@pytest.mark.parametrize(("reads", "n"), [("once", 700), ("again", 2500)])
@pytest.mark.parametrize("machine", [RmsNorm, LayerNorm])
def test_the_ctas_of_a_cluster_share_a_row_that_is_normalised(machine: Any, reads: str, n: int) -> None:
    problem = machine.problem(m=3, n=n, options={"residual": True}, dtypes={"x": "f16"})
    space = build_space(machine, problem, device("h100"))
    point = {"warps": 2, "across": 64, "vector": 4, "step": 1, "rows": 1, "ctas": 4, "exchange": "pairs"}
    point["reads"] = reads
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("late", "random"))
    assert found.passed
    assert "where they lie" not in str(found)  # of a row that one cluster has, windows show where its elements lie


@pytest.mark.parametrize("machine", [Softmax, RmsNorm, LayerNorm])
def test_devices_without_clusters_refuse_them(machine: Any) -> None:
    space = tg.space(machine, m=128, n=16384, device="a100")
    found = tg.explain(space, ctas=2)
    sentence = "cluster size (device): the CTAs of a cluster fit into the clusters that every such device has; "
    assert sentence + "ctas = 2 > 1 (device.max_cluster_size_portable)" in found.sentences
    assert {p["ctas"] for p in space.sample(20, 0)} == {1}


@pytest.mark.end_to_end
def test_few_long_rows_are_shared_by_ctas_where_there_are_clusters() -> None:
    space = tg.space(Softmax, m=128, n=131_072, device="h100")
    at = {"warps": 16, "across": 512, "vector": 4, "exchange": "pairs"}
    shared = tg.predict(space, **at, step=8, reads="once", ctas=8)
    alone = tg.predict(space, **at, step=8, reads="three times", ctas=1)
    assert 1.8 * shared.seconds < alone.seconds  # clusters of eight find 120 of 132 SMs


def test_a_constraint_of_one_option_leaves_the_others_alone() -> None:
    space = tg.space(TopK, m=64, n=4096, k=8, device="a100")
    width = {"across": 4, "vector": 1, "step": 1, "warps": 1, "exchange": "shuffles"}
    assert {**width, "reads": "in every round"} in space
    assert "whole" in str(tg.explain(space, **width, reads="once"))
    assert "whole" not in str(tg.explain(space, **width, reads="in every round"))


@pytest.mark.parametrize(
    ("only", "sentence"),
    [
        ("once", "Odd.narrow: only= is a Choice and one of its options, not 'once'"),
        (("x", "once"), "Odd.narrow: only= is a Choice and one of its options, not ('x', 'once')"),
        (
            (Softmax.reads, "twice"),
            "Odd.narrow: only= names the option 'twice', and the Choice has once, three times",
        ),
    ],
)
def test_an_option_that_is_none_is_told(only: Any, sentence: str) -> None:
    with pytest.raises(DeclarationError) as refused:

        class Odd(Softmax):
            """y = softmax of rows"""

            narrow = Require(Softmax.n <= 10, "rows are narrow", only=only)

    assert str(refused.value).splitlines()[0] == sentence


def test_programs_mean_what_references_say() -> None:
    rng = np.random.default_rng(0)
    x, r, w, shift = (rng.standard_normal(shape).astype(np.float32) for shape in ((5, 70), (5, 70), 70, 70))
    space = tg.space(LayerNorm, m=5, n=70, device="a100", options={"residual": True})
    program = space.program(space.sample(1, 1)[0])
    found = program.run({"x": x, "r": r, "w": w, "shift": shift}, {"eps": np.float32(1e-5)})
    wanted = LayerNorm.reference(x, 1e-5, True, True, r, w, shift)
    for name in ("y", "s"):
        assert np.abs(found[name] - wanted[name]).max() < 1e-5
