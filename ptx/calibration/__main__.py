"""Calibrates with NumPy and cuda-bindings alone: python -m tinygpu.ptx.calibration [WORD ...] [-o FILE].

The same as `tinygpu calibrate`, which has more options, and tables.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tinygpu.ptx.calibration.benchmark import Microbenchmark
from tinygpu.ptx.calibration.measuring import Outcome
from tinygpu.ptx.calibration.run import Settings, calibrate_to_file


def told(benchmark: Microbenchmark, outcome: Outcome) -> None:
    """A line for each figure, as it comes."""
    if outcome.failure is not None:
        print(f"{benchmark.name}: {outcome.failure.sentence}", flush=True)
    for f in outcome.figures:
        note = f"; not used: {f.doubt}" if f.doubt else f" -> {f.field}" if f.field else ""
        print(f"{f.benchmark}: {f.name} {f.value:.4g} {f.unit} (+- {50 * f.spread:.1f} %){note}", flush=True)


def main(arguments: Sequence[str] | None = None, settings: Settings | None = None) -> int:
    """0 where a profile was written and nothing failed, else 1.

    settings  what the arguments do not say
    """
    parser = argparse.ArgumentParser(prog="python -m tinygpu.ptx.calibration", description="Measure this GPU.")
    parser.add_argument("words", nargs="*", metavar="WORD", help="microbenchmarks, groups or figures (all)")
    parser.add_argument("-o", "--out", type=Path, help="file of the profile (runs/NAME-measured.json)")
    parser.add_argument("--device", help="the GPU that it is like (by its name)")
    parser.add_argument("--device-index", type=int, default=0, help="number of the GPU in this machine")
    parser.add_argument("--seconds", type=float, help="no further microbenchmark is begun after so long")
    options = parser.parse_args(arguments)
    command = f"{parser.prog} {shlex.join(sys.argv[1:] if arguments is None else arguments)}".rstrip()
    settings = replace(settings or Settings(), ordinal=options.device_index, seconds=options.seconds)
    try:
        done = calibrate_to_file(
            options.words, settings=settings, like=options.device, out=options.out, command=command, tell=told
        )
    except (ValueError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    if done.stand_in:
        print(done.stand_in)
    if done.path or done.base is not None:
        print(f"wrote {done.path}" if done.path else "no figure could be used, so that no profile was written")
    return int(done.path is None or bool(done.calibration.failed))


if __name__ == "__main__":
    sys.exit(main())
