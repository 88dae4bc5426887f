"""Step: a few kernels under compute-sanitizer: accesses out of bounds (memcheck), races in SMEM (racecheck)."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from gpu_call.kit import unpacked_kit
from gpu_call.step import Call, Skip, find_tool, last_json_line, python, run_program, run_step
from tinygpu.ptx.measuring.bundle import read_bundle

TOOLS = ("memcheck", "racecheck")
_SUMMARY = re.compile(
    r"========= (?:ERROR SUMMARY: (?P<errors>\d+) error|RACECHECK SUMMARY: (?P<hazards>\d+) hazard)", re.IGNORECASE
)


def findings(text: str) -> int | None:
    """How many errors or hazards the last summary of an output counts; None where there is none."""
    found = list(_SUMMARY.finditer(text))
    return int(found[-1]["errors"] or found[-1]["hazards"] or 0) if found else None


def complaints(text: str, most: int = 6) -> list[str]:
    """The first lines that say what was found."""
    said = [line.removeprefix("=========").strip() for line in text.splitlines() if line.startswith("=========")]
    return [line for line in said if line and "COMPUTE-SANITIZER" not in line and "SUMMARY" not in line.upper()][:most]


def sanitizer(call: Call) -> Mapping[str, Any]:
    program = find_tool("compute-sanitizer")
    if program is None:
        raise Skip("compute-sanitizer is not installed here")
    found: dict[str, Any] = {}
    for job in unpacked_kit(call.kit).of("counted"):
        entry = read_bundle(call.kit / job.file).entries[0]
        words = python("gpu_call.one_kernel", call.kit / job.file, entry.name, "--driver", call.driver)
        for tool in TOOLS:
            name = f"{job.name}: {tool}"
            if call.left() < 4:
                found[name] = {"failed": "the time was up"}
                continue
            ended = run_program(
                [program, "--tool", tool, *words], call.left() - 1, cwd=call.work,
                log=call.work / f"{job.name}-{tool}.log",
            )  # fmt: skip
            count = findings(ended.output)
            told: dict[str, Any] = {"machine": entry.machine, "found": count, "ran": last_json_line(ended.output)}
            if count is None:
                told["failed"] = (complaints(ended.output, 1) or ["it printed no summary"])[0]
            elif count:
                told["first"] = complaints(ended.output)
            found[name] = told
            call.tell({"runs": found})
    return {"runs": found}


if __name__ == "__main__":
    sys.exit(run_step(sanitizer))
