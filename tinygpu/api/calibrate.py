"""Measure a GPU with our microbenchmarks, or prove these in the emulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinygpu.ptx.calibration import Calibrated, Microbenchmark, chosen
from tinygpu.ptx.calibration import calibrate_to_file as calibrate
from tinygpu.ptx.calibration.emulated import Proof, prove

__all__ = ["Calibrated", "calibrate", "prove_microbenchmarks"]


def prove_microbenchmarks(
    words: Sequence[str] = (), tell: Callable[[Microbenchmark, Proof], None] | None = None
) -> tuple[Proof, ...]:
    """Runs microbenchmarks in the emulator: their data, and every count that their figures divide by.

    words  names, groups, or figures of a device; all where empty
    tell   is told of each proof as it ends

    Raises ValueError for a word that is none of these.
    """
    out = []
    for benchmark in chosen(words):
        proof = prove(benchmark)
        out.append(proof)
        if tell is not None:
            tell(benchmark, proof)
    return tuple(out)
