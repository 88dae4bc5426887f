"""Every door chooses in the same way: tune, emit, verify, predict, compile and bundle mean one kernel by "the best"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scaled_fp8 import ScaledFp8

import tinygpu as tg
import tinygpu.api.choosing as choosing
import tinygpu.api.finalist as finalist
import tinygpu.api.tune as tuning
from tinygpu import compile
from tinygpu.api.bundle import bundle
from tinygpu.api.choosing import Finalist, NotAdmitted, choose, choose_among, spaces
from tinygpu.api.machines import Family, family
from tinygpu.api.predict import predict_point
from tinygpu.api.problems import Asked
from tinygpu.api.report import run_of
from tinygpu.devices import device
from tinygpu.language import Param, exp
from tinygpu.machines.elementwise import Axpby, elementwise
from tinygpu.ptx import isa
from tinygpu.ptx.launching.kernels import Kernels
from tinygpu.ptx.verification.verify import Verification
from tinygpu.ptx.verification.whole import verify_kernels
from tinygpu.search.predicted import PredictedTime

DEVICES = ("a100", "rtx4090", "rtx5090", "h100", "b200", "l40s")


def drawn(seed: int) -> tuple[str, Asked, str]:
    """A machine or family, a problem, and a device."""
    rng = np.random.default_rng(seed)
    gpu = str(rng.choice(DEVICES))
    if seed % 3 == 0:
        return str(rng.choice(("axpby", "bias_relu"))), Asked({"m": 512, "n": 1024}), gpu
    dims = {name: int(rng.choice((96, 128, 192, 256))) for name in ("m", "n", "k")}
    machine = str(rng.choice(("matmul", "matmul_ampere", "matmul_simt")))
    kind = "f32" if machine == "matmul_simt" else str(rng.choice(("f16", "e4m3" if gpu in ("h100", "b200") else "s8")))
    return machine, Asked(dims, {"*": kind}), gpu


def brief(kernels: Kernels, **_: Any) -> Verification:
    """One run instead of all: this test asks which kernel is chosen."""
    return verify_kernels(kernels, orders=("late",), random_inputs=False)


@pytest.mark.end_to_end
@pytest.mark.sampled(48)
@pytest.mark.parametrize("seed", range(24))
def test_every_door_chooses_the_same_kernel(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, asked, gpu = drawn(seed)
    if name == "axpby":
        asked = Asked({"n": 100_000})
    chosen = family(name)
    monkeypatch.setattr(tuning, "verify_kernels", brief)
    # fewer candidates are refined, by every door: that they agree does not hang on how many
    monkeypatch.setattr(finalist, "REFINED", 6)
    monkeypatch.setattr(finalist, "WAYS", 1)
    tuned = tuning.tune(chosen, asked, device(gpu))
    winner: Finalist = tuned.winner
    point, ptx = dict(winner.refined.point), winner.built.kernel.ptx
    best = choose_among(chosen, asked, device(gpu), {})
    assert (dict(best.refined.point), best.built.kernel.ptx) == (point, ptx)
    run = run_of(tuned)
    assert run.winner is not None
    machine, number = run.winner
    assert dict(run.searched[machine].candidates[number].point) == point
    found = predict_point(chosen, asked, device(gpu), {})
    assert dict(found.refined.point) == point
    assert found.registers == winner.assembly.registers
    assert float(found.simulation.prediction.seconds) == float(winner.prediction.seconds)
    assert compile(chosen, asked, device=gpu, seconds=1000.0).ptx == ptx
    made = bundle(chosen, asked, device(gpu), tmp_path / "one.bundle", count=1, choose="best", cubins=False).bundle
    assert made.ptx(made.entries[0]).decode() == ptx
    # what the winner has is all that it takes to get it
    assert dict(choose(winner.space, point).refined.point) == point
    some = {n: point[n] for n in list(point)[::2] if n in winner.space.space.names}
    assert dict(choose(winner.space, some).refined.point) == point


SQUARE = {"m": 4096, "n": 4096, "k": 4096}
BULKS: tuple[tuple[str, str, dict[str, int], int], ...] = (
    ("axpby", "a100", {"n": 1 << 24}, 1),
    ("bias_relu", "l40s", {"m": 4096, "n": 4096}, 1),
    ("matmul_skinny", "b200", {"m": 16, "n": 4096, "k": 4096}, 20_000),
    ("matmul_skinny", "h100", {"m": 64, "n": 4096, "k": 14336}, 20_000),
    ("matmul_simt", "rtx4090", SQUARE, 200_000),
    ("matmul_ampere", "a100", SQUARE, 50_000),
    ("matmul_ampere", "orin", {"m": 1000, "n": 1000, "k": 1000}, 50_000),
    ("matmul_hopper", "h20", {"m": 512, "n": 4096, "k": 4096}, 200_000),
    ("matmul_hopper", "h100", SQUARE, 200_000),
)


@pytest.mark.end_to_end
@pytest.mark.sampled(8)
@pytest.mark.parametrize("number", range(len(BULKS)))
def test_doors_predict_in_bulk_however_large_the_space_is(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No door has a budget of its own, and points are asked for by themselves only where they cannot be launched."""
    name, gpu, dims, least_size = BULKS[number]
    (space,) = spaces(family(name), Asked(dims), device(gpu))
    assert space.space.size >= least_size
    searched: list[Any] = []
    minimize = choosing.minimize

    def noting(*args: Any, **options: Any) -> Any:
        searched.append((options, minimize(*args, **options)))
        return searched[-1][1]

    one_by_one = PredictedTime.__call__

    def why_not(self: PredictedTime, points: Any) -> Any:
        found = one_by_one(self, points)
        assert all(evaluation.failure for evaluation in found), "points are predicted one by one"
        return found

    monkeypatch.setattr(choosing, "minimize", noting)
    monkeypatch.setattr(PredictedTime, "__call__", why_not)
    best = choosing.best_refined(space, {})
    ((options, result),) = searched
    assert options == {}
    assert (result.strategy, result.ended, len(result.history)) == ("exhaustive", "every point", space.space.size)
    least = min(objective_least(space))
    assert best[0][0].prediction.seconds <= least * (1 + STRAINED)


# What strain may add to the least of all times: its shares for busy units, idle SMs and clusters.
STRAINED = 0.02


def objective_least(space: Any) -> list[float]:
    objective = PredictedTime(space)
    scores = [objective.score_columns(columns) for _, columns in space.space.columns_by_part()]
    return [float(np.fmin.reduce(values, initial=np.inf)) for values in scores]


# The same tensors as Axpby's, and more work for each element.
More = elementwise(
    "More",
    lambda x, z: exp(exp(exp(exp(x)))) + exp(exp(exp(exp(z)))),
    inputs=dict.fromkeys("xz", ("f32", ("n",))),
    output=("f32", ("n",)),
    exact=False,
)


@pytest.mark.end_to_end
def test_of_a_family_the_best_machine_that_has_the_values_is_taken() -> None:
    """Not the first machine that admits them."""
    asked, gpu = Asked({"n": 1_000_000}), device("rtx5090")
    machines = (More, Axpby)
    each = [choose_among(Family("one", (m,)), asked, gpu, {}) for m in machines]
    least = min(f.score for f in each)
    for order in (machines, machines[::-1]):
        best = choose_among(Family("both", order), asked, gpu, {})
        assert best.score == least < max(f.score for f in each)


def test_values_that_no_candidate_has_are_refused_by_every_machine_with_its_reason() -> None:
    asked = Asked({"m": 256, "n": 256, "k": 256}, {"*": "f32"})
    with pytest.raises(NotAdmitted) as error:
        choose_among(family("matmul_simt"), asked, device("a100"), {"bm": 63})
    assert str(error.value) == (
        "MatmulSimt does not admit this point: bm: 63 is not on offer; choose from 32, 64, 96, 128"
    )
    with pytest.raises(NotAdmitted) as error:
        choose_among(family("matmul_simt"), asked, device("a100"), {"bq": 64})
    begun = "MatmulSimt does not admit this point: MatmulSimt has no parameter 'bq'; it has "
    assert str(error.value).startswith(begun)


class WideTiles(ScaledFp8):
    """the same, by tiles of more columns"""

    bn = Param(128)
    wgmma = isa.Wgmma(bn)


def test_a_candidate_that_needs_too_many_registers_for_its_threads_is_told_so() -> None:
    """What its tiles alone take, which a constraint knows, would be few enough."""
    space, point = tg.space(WideTiles, m=256, n=256, k=256, device="h100"), {"groups": 2, "bn": 128, "stages": 2}
    assert {**point, "vector": 2} in space
    with pytest.raises(NotAdmitted) as refused:
        choose(space, {**point, "vector": 2})
    assert str(refused.value) == (
        "no candidate with these values can be launched: with groups=2 stages=2 vector=2 bn=128 a thread needs about "
        "185 registers, and 288 threads of a CTA have at most 168 each on H100-SXM5; take smaller tiles, or fewer warps"
    )


def test_what_the_device_lacks_is_all_that_is_told_of_a_machine() -> None:
    """Strides of 13 bytes are wrong, too, and nobody can use that."""
    asked = Asked({"m": 7, "n": 11, "k": 13}, {"*": "e4m3"})
    with pytest.raises(NotAdmitted) as error:
        choose_among(family("matmul"), asked, device("a100"), {})
    told = str(error.value)
    assert told.endswith(
        "MatmulAmpere does not admit this point: mma.sync target for e4m3 (mma.sync): mma.sync on e4m3 exists from "
        "sm_89 on; device.cc = 80 < 89"
    )
    assert "wgmma exists on sm_90 only; device.cc = 80 != 90" in told
    assert "13 mod 16" not in told
    with pytest.raises(NotAdmitted) as error:
        choose_among(family("matmul_hopper"), asked, device("h100"), {})
    assert "13 mod 16 = 13 != 0" in str(error.value)
