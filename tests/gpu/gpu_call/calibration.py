"""Step: the microbenchmarks of tinygpu calibrate, and the measured profile of this GPU."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from gpu_call.step import Call, run_step
from tinygpu.ptx.calibration import Rounds, Settings, calibrate_to_file, chosen
from tinygpu.ptx.calibration.benchmark import Microbenchmark
from tinygpu.ptx.calibration.measuring import Outcome

# A few of them, with few trips: enough for a rehearsal.
_REHEARSED = {"clock": (2, 4), "fma-latency": (2, 4), "barrier-512": (2, 4)}


def calibration(call: Call) -> Mapping[str, Any]:
    figures: list[dict[str, Any]] = []
    failures: list[dict[str, Any]] = []
    found: dict[str, Any] = {"figures": figures, "failures": failures, "profile": None}

    def tell(benchmark: Microbenchmark, outcome: Outcome) -> None:
        figures.extend(asdict(f) for f in outcome.figures)
        if outcome.failure is not None:
            failures.append(asdict(outcome.failure))
            print(f"{benchmark.name}: {outcome.failure.sentence}", flush=True)
        call.tell(found)

    settings = Settings(driver=call.driver, limit_s=20.0, start_s=60.0, seconds=max(call.left() - 12, 0))
    words: list[str] = []
    if call.rehearsal:
        words = list(_REHEARSED)
        settings = replace(settings, trips=_REHEARSED, rounds=Rounds(2, 0.0))
    path = call.work / "profile.json"
    done = calibrate_to_file(words, settings=settings, out=path, command="tests/gpu/run.sh", tell=tell)
    base = done.base
    found["known"] = {} if base is None else {
        f.field: base.number(f.field) for f in done.calibration.used if base.figure(f.field).value is not None
    }  # fmt: skip
    found |= {
        "gpu": asdict(done.calibration.gpu), "base": done.calibration.base, "stand_in": done.stand_in,
        "microbenchmarks": len(chosen(words)),
        "profile": None if done.path is None else done.path.name,
        "clocks": {"before": done.calibration.before, "after": done.calibration.after},
    }  # fmt: skip
    return found


if __name__ == "__main__":
    sys.exit(run_step(calibration))
