"""Step: every shipped machine on the GPU, in every structure, against its reference; the worker verifies."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

from gpu_call.kit import Job, unpacked_kit
from gpu_call.records import read_lines
from gpu_call.step import Call, python, run_program, run_step

# Nothing is timed here for its own sake, so several bundles may share the GPU.
_AT_ONCE = 4
_COMPILERS = 4
_LIMIT_S = 15


def correctness(call: Call) -> Mapping[str, Any]:
    kit = unpacked_kit(call.kit)
    found: dict[str, dict[str, Any]] = {}

    def one(job: Job) -> tuple[Job, dict[str, Any]]:
        out = call.work / f"{job.file}.jsonl"
        command = python(
            "tinygpu.ptx.measuring", call.kit / job.file, "-o", out, "--samples", 1, "--finals", 0, "--limit",
            call.limit(_LIMIT_S), "--budget", max(call.left() - 5, 0), "--driver", call.driver,
        )  # fmt: skip
        ended = run_program(command, call.left(), cwd=call.work, log=call.work / f"{job.file}.log")
        return job, summary(job, read_lines(out), ended.code, ended.output)

    def warm(part: int) -> None:
        """The table's Triton kernels are compiled meanwhile; what becomes of that, the table says."""
        log = call.work / f"triton-{part}.log"
        run_program(python("gpu_call.triton_warm", part, _COMPILERS), call.left(), cwd=call.work, log=log)

    with ThreadPoolExecutor(_AT_ONCE) as pool, ThreadPoolExecutor(_COMPILERS) as compilers:
        if find_spec("triton") is not None and not call.rehearsal:
            compilers.map(warm, range(_COMPILERS))
        for job, told in pool.map(one, kit.of("correct")):
            found[job.name] = told
            call.tell(totals(found))
    return judged(totals(found))


def summary(job: Job, lines: list[dict[str, Any]], code: int | None, output: str) -> dict[str, Any]:
    """What a results file says of a bundle's kernels: how many are right, and what befell the others."""
    ends = [line for line in lines if "status" in line]
    failures = [
        {"kernel": e["kernel"], "machine": e["machine"], "point": e["point"], **e["failure"]}
        for e in ends if e["status"] == "failed"
    ]  # fmt: skip
    machines = sorted({e["machine"] for e in ends})
    told = {
        "machine": job.machine, "machines": machines, "kernels": job.kernels, "tried": len(ends),
        "right": sum(e["status"] == "measured" for e in ends), "failures": failures,
        "refused_cubins": sorted({e["refused_cubin"] for e in ends if e.get("refused_cubin")}),
    }  # fmt: skip
    if code not in (0, 1) or not ends:
        last = output.strip().splitlines()
        told["ended"] = "it took too long" if code is None else (last[-1] if last else f"code {code}")
    return told


def judged(found: dict[str, Any]) -> dict[str, Any]:
    """The totals; where not one kernel is right, with why nothing further is measured."""
    if found["right"]:
        return found
    said = [f["sentence"] for c in found["cases"].values() for f in c["failures"]]
    said += [c["ended"] for c in found["cases"].values() if "ended" in c]
    why = f"; the first one: {said[0]}" if said else ""
    return {**found, "stop": f"not one of {found['kernels']} kernels is right here{why}"}


def totals(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "kernels": sum(f["kernels"] for f in found.values()), "tried": sum(f["tried"] for f in found.values()),
        "right": sum(f["right"] for f in found.values()), "cases": dict(found),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(run_step(correctness))
