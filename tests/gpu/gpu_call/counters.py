"""Step: what the emulator counted, beside the hardware's counters as Nsight Compute reads them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from gpu_call import ncu_output
from gpu_call.kit import Job, unpacked_kit
from gpu_call.step import Call, Skip, find_tool, python, run_program, run_step
from tinygpu.ptx.measuring.bundle import read_bundle

# Metrics that the profiler does not know are left out, and it is asked again; so often at most.
_ATTEMPTS = 12


def counters(call: Call) -> Mapping[str, Any]:
    program = find_tool("ncu")
    if program is None:
        raise Skip("ncu is not installed here")
    jobs = unpacked_kit(call.kit).of("counted")
    found: dict[str, Any] = {}
    unknown: list[str] = []
    for job in jobs:
        if call.left() < 5:
            found[job.name] = {"failed": "the time was up"}
            continue
        found[job.name] = one(call, program, job, unknown)
        call.tell({"cases": found, "unknown_metrics": unknown})
        if "failed" in found[job.name] and len(found) == 1:
            # what hinders the first (no permission, no driver for it) hinders all
            raise Skip(f"ncu gives no counters here: {found[job.name]['failed']}")
    return {"cases": found, "unknown_metrics": unknown}


def one(call: Call, program: str, job: Job, unknown: list[str]) -> dict[str, Any]:
    """One kernel, profiled; metrics that turn out to be unknown are added to `unknown`."""
    bundle = call.kit / job.file
    entry = read_bundle(bundle).entries[0]
    wanted = list(dict.fromkeys(m for c in job.counters for m in c["metrics"]))
    words = python("gpu_call.one_kernel", bundle, entry.name, "--driver", call.driver)
    output = ""
    for attempt in range(_ATTEMPTS):
        asked = [m for m in wanted if m not in unknown]
        command = ncu_output.command(program, entry.launch.kernel, asked, words)
        ended = run_program(command, call.left() - 2, cwd=call.work, log=call.work / f"{job.name}-{attempt}.log")
        output = ended.output
        launches = ncu_output.read(output)
        if launches and launches[0]:
            compared = ncu_output.compare(job.counters, launches[0])
            return {
                "kernel": entry.launch.kernel, "machine": entry.machine, "point": dict(entry.point),
                "counters": [c.to_json() for c in compared],
                "equal": sum(c.verdict == "equal" for c in compared if c.relation == "same"),
                "comparable": sum(c.measured is not None for c in compared if c.relation == "same"),
            }  # fmt: skip
        told = ncu_output.unknown_metrics(output, asked)
        unknown.extend(told)
        if not told:
            break
    complaints = [line for line in output.splitlines() if line.startswith("==ERROR==")]
    last = complaints or output.strip().splitlines()[-1:] or ["it printed nothing"]
    return {"failed": last[0]}


if __name__ == "__main__":
    sys.exit(run_step(counters))
