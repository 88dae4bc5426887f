"""What the predictor says of demands of every kind, number by number, as predictions.txt lists it.

A change of the model changes the numbers, and they are looked at: `python tests/tinygpu/cost/test_replay.py` writes the
file anew.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinygpu.cost.demand import Chain, Demand, Phase, Work
from tinygpu.cost.predictor import UNITS, Prediction, predict
from tinygpu.devices import device

FILE = Path(__file__).parent / "predictions.txt"
DRAWN = 192
CHIPS = ("a100", "h100", "rtx4090", "rtx3090", "b200", "l40s")
PARTS = ("seconds", "latency_s", "tail_s", "power_s", "launch_s", "reads_s", "roofline_s", "waves")
# The unit that has most to do, by turns: what is left over of the others shows in the sums alone.
BUSY = {"tensor_flops": 1 << 24, "fma_flops": 1 << 20, "sectors_read": 1 << 13, "smem_load_wavefronts": 1 << 14}


def bare(number: int) -> Demand:
    """A demand with little of anything, so that what it has decides: a unit or two, a wait or none, a byte of DRAM."""
    rng = np.random.default_rng(number)

    def phase() -> Phase:
        amounts = {str(name): int(rng.integers(1, 1 << 14)) for name in rng.choice([f.name for f in fields(Work)], 2)}
        links = {str(name): int(rng.integers(1, 4)) for name in rng.choice([f.name for f in fields(Chain)], number % 3)}
        return Phase(Work(**amounts), Chain(**links))

    return Demand(
        ctas=(1, 2, 133, 1000)[number % 4],
        threads_per_cta=(32, 96, 1024)[number % 3],
        registers_per_thread=(0, 40)[number % 2],
        smem_bytes_per_cta=(0, 1000, 48_000)[number // 2 % 3],
        iterations=(1, 2, 30)[number % 3],
        iteration=phase(),
        prologue=phase() if number // 2 % 2 else Phase(),
        epilogue=phase() if number // 4 % 2 else Phase(),
        prefetch_iterations=(0, 0, 1, 3)[number // 3 % 4],
        held=number // 5 % 2,
        persistent=number // 4 % 2,
        turns=1 + number // 8 % 2,
        even=number // 3 % 2,
        bytes_in_flight_per_cta=(1, 1 << 14)[number // 2 % 2],
        dram_bytes_read=(0, 1, 2, 1 << 22)[number % 4],
        dram_bytes_written=(0, 1, 1 << 20)[number // 2 % 3],
    )


def drawn(number: int) -> Demand:
    """A demand of the kind that its number says: one CTA per SM or several, turns, persistent, with or without data."""
    if number >= 96:
        return bare(number)
    rng = np.random.default_rng(number)

    def phase(scale: float) -> Phase:
        amounts = {f.name: int(rng.integers(0, 1 + int(scale * 4096))) for f in fields(Work)}
        most = list(BUSY)[number % len(BUSY)]
        amounts[most] += int(scale * BUSY[most] * rng.uniform(0.3, 1))
        links = {f.name: int(rng.integers(0, 6)) for f in fields(Chain)}
        return Phase(Work(**amounts), Chain(**links))

    path: Any = {1: "wgmma", 4: "tcgen05"}.get(number % len(CHIPS), "mma.sync")
    return Demand(
        ctas=int(rng.integers(1, 4000)) if number % 5 else 7,
        threads_per_cta=(64, 128, 256, 512)[number % 4],
        registers_per_thread=(32, 128, 64)[number % 3],
        smem_bytes_per_cta=(0, 20_000, 60_000, 90_000)[number % 4],
        iterations=int(rng.integers(1, 40)),
        iteration=phase(1.0),
        prologue=phase(0.1),
        epilogue=phase(0.3),
        prefetch_iterations=number % 3,
        held=number // 2 % 2,
        persistent=number // 3 % 2,
        turns=1 + number // 3 % 2 * (number % 2),
        even=number // 6 % 2,
        bytes_in_flight_per_cta=int(rng.integers(1, 1 << 16)),
        dram_bytes_read=int(rng.integers(0, 1 << 28)),
        dram_bytes_written=int(rng.integers(0, 1 << 26)),
        compulsory_dram_bytes=int(rng.integers(0, 1 << 27)) if number % 2 else None,
        useful_tensor_flops=1 << 30 if number % 3 == 1 else None,
        tensor_path=path,
        operand=("f16", "s8", "f16", "bf16")[number % 4],
        accumulator=("f32", "s32", "f16", "f32")[number % 4],
    )


def predicted(number: int) -> Prediction:
    return predict(device(CHIPS[number % len(CHIPS)]), drawn(number), launch="graph" if number % 7 == 3 else "stream")


def said(number: int) -> str:
    found = predicted(number)
    values = [float(getattr(found, part)) for part in PARTS] + [float(found.busy_s[unit]) for unit in UNITS]
    return " ".join(f"{value:.9g}" for value in values)


@pytest.mark.end_to_end
def test_the_predictor_says_what_it_said() -> None:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    assert lines[0] == " ".join([*PARTS, *UNITS])
    for number, line in enumerate(lines[1:]):
        expected, found = (np.array(text.split(), dtype=np.float64) for text in (line, said(number)))
        assert np.allclose(found, expected, rtol=1e-6, atol=1e-14), (number, said(number))
    assert len(lines) == 1 + DRAWN


if __name__ == "__main__":
    text = [" ".join([*PARTS, *UNITS]), *(said(number) for number in range(DRAWN))]
    FILE.write_text("\n".join(text) + "\n", encoding="utf-8")
