"""Step: many candidates of one problem through the worker: python -m gpu_call.dense_0, and dense_1."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpu_call.kit import unpacked_kit
from gpu_call.records import read_lines
from gpu_call.step import Call, Skip
from tinygpu.ptx.measuring.bundle import read_bundle
from tinygpu.ptx.measuring.timing import Protocol
from tinygpu.ptx.measuring.worker import Settings, WorkerError, measure

# As little per candidate as decides anything: eight pairs, cold alone.
PROTOCOL = Protocol(samples=8, warm_samples=0, warm_up_s=8e-3, sample_s=1e-3, race_pairs=8, seconds=1.5)
_LIMIT_S = 15.0


def dense(call: Call, number: int) -> Mapping[str, Any]:
    """Measures the kit's dense sample with a number; the results file lies in the step's folder."""
    jobs = unpacked_kit(call.kit).of("dense")
    if number >= len(jobs):
        raise Skip(f"the kit has {len(jobs)} dense samples")
    job = jobs[number]
    bundle = read_bundle(call.kit / job.file)
    out = call.work / "results.jsonl"
    settings = Settings(
        PROTOCOL, limit_s=call.limit(_LIMIT_S), prepare_s=call.seconds, finals=4, seconds=max(call.left() - 8, 0),
        driver=call.driver,
    )  # fmt: skip

    def say(line: str) -> None:
        print(line, flush=True)
        if line.startswith("["):
            told = int(line[1:].split("/")[0])
            if told % 32 == 0:
                call.tell(summary(job.name, job.kernels, out))

    try:
        measure(bundle, out, settings, say)
    except WorkerError as error:
        return {**summary(job.name, job.kernels, out), "ended": str(error)}
    return summary(job.name, job.kernels, out)


def summary(case: str, kernels: int, path: Path) -> dict[str, Any]:
    """What a results file says of a sample: the best, what failed, and how well the prediction ranks."""
    lines = read_lines(path)
    ends = [line for line in lines if "status" in line]
    good = [e for e in ends if e["status"] == "measured"]
    kinds: dict[str, int] = {}
    for e in ends:
        if e["status"] == "failed":
            kinds[e["failure"]["kind"]] = kinds.get(e["failure"]["kind"], 0) + 1
    told: dict[str, Any] = {
        "case": case, "kernels": kernels, "tried": len(ends), "measured": len(good), "failures": kinds,
        "first_failures": [
            {"kernel": e["kernel"], "point": e["point"], **e["failure"]} for e in ends if e["status"] == "failed"
        ][:8],
        "noise": next((line["noise"] for line in lines if "noise" in line), None),
        "problem": lines[0]["problems"][0] if lines else None,
    }  # fmt: skip
    if not good:
        return told
    seconds = np.array([e["cold"]["median"] for e in good])
    predicted = np.array([e["predicted_s"] for e in good])
    order = np.argsort(seconds, kind="stable")
    best, guess = good[int(order[0])], int(np.argmin(predicted))
    told |= {
        "best": {k: best[k] for k in ("kernel", "machine", "point", "cold", "predicted_s", "registers", "digest")},
        "deciles_s": [float(v) for v in np.percentile(seconds, range(0, 101, 10))],
        "rank_correlation": rank_correlation(predicted, seconds),
        "best_predicted": {
            "kernel": good[guess]["kernel"], "seconds": float(seconds[guess]),
            "rank": int(np.flatnonzero(order == guess)[0]) + 1, "over_best": float(seconds[guess] / seconds.min()),
        },
        "top": [
            {k: good[i][k] for k in ("kernel", "point", "cold", "predicted_s")} for i in order[:10].tolist()
        ],
    }  # fmt: skip
    return told


def rank_correlation(first: Any, second: Any) -> float | None:
    """Spearman's: 1 where both order alike; equal values share their rank. None for fewer than three.

    >>> rank_correlation([1, 2, 3], [10, 20, 30])
    1.0
    """
    if len(first) < 3:
        return None
    ranks = []
    for values in (first, second):
        _, where, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
        ends = np.cumsum(counts)
        ranks.append(((ends - counts + ends - 1) / 2)[where])
    if any(np.ptp(r) == 0 for r in ranks):
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
