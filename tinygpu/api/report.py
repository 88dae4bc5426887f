"""Report: what a tuning run found, as data that is saved with it and as one page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tinygpu import __version__
from tinygpu.api.choosing import Chosen, Finalist
from tinygpu.api.problems import Refusal
from tinygpu.api.tune import Interrupted, Searched, Tuned
from tinygpu.cost.demand import Demand
from tinygpu.devices import Device
from tinygpu.files import FileError
from tinygpu.files.error import cause
from tinygpu.files.reading import TABLE_BYTES, read_file
from tinygpu.files.schema import versions
from tinygpu.report import Run, page
from tinygpu.report.run import Access, Candidate, Placed, Roof, Sample, Step, Stretch, Timed, Timeline
from tinygpu.report.run import Searched as Part
from tinygpu.search.history import History
from tinygpu.search.measured import KEY as RESULTS
from tinygpu.search.measured import MeasuredResults, Measurement, load_results
from tinygpu.search.result import KEY as RESULT
from tinygpu.search.result import Result
from tinygpu.simulator.simulator import Simulator
from tinygpu.solver.solution import Solution

# Candidates that a run keeps for parallel coordinates: so many of the best, and so many others.
BEST_KEPT, OTHERS_KEPT = 60, 220
# Points of the curve of a search, and stretches of a timeline.
IMPROVEMENTS_KEPT, STRETCHES_KEPT = 400, 700
RUN_FILE = "run.json"


def report(run: Run) -> str:
    """The page of a run: HTML that asks no network for anything."""
    return page(run)


def run_of(tuned: Tuned | Interrupted) -> Run:
    """All that a report shows of a tuning run, an interrupted one included."""
    parts = [_part(s) for s in tuned.searched]
    winner: tuple[int, int] | None = None
    verified, said, timeline = None, "", None
    if isinstance(tuned, Tuned):
        winner = next(
            (number, place)
            for number, s in enumerate(tuned.searched)
            for place, f in enumerate(_kept(s))
            if f is tuned.winner
        )
        verified, said = tuned.verification.passed, str(tuned.verification)
        timeline = _timeline(max(tuned.winner.parts, key=lambda part: float(part.prediction.seconds)))
    finalists = [f for s in tuned.searched for f in s.finalists]
    floors = [float(f.prediction.roofline_s) for f in finalists]
    return Run(
        title=_title(tuned.family, tuned.searched),
        family=tuned.family,
        device=tuned.device.name,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        floor=min(floors) if floors else min((s.floor for s in tuned.searched if s.floor is not None), default=None),
        dram_bytes_s=tuned.device.dram_bytes_per_s,
        roofs=_roofs(tuned.device, tuned.searched),
        searched=parts,
        refused={r.machine: r.sentence for r in tuned.refused},
        winner=winner,
        verified=verified,
        verification=said,
        timeline=timeline,
    )


def load_run(path: str | Path) -> Run:
    """The run of a file, or of the folder that holds it: what `tinygpu tune` writes, a saved search result, or a
    results file of the worker. Raises FileError for anything else."""
    file = Path(path)
    if file.is_dir():
        file = file / RUN_FILE
    data = read_file(file, TABLE_BYTES, hint="`tinygpu tune` writes runs")
    if data.startswith(f'{{"{RESULTS}"'.encode()):
        results = load_results(file)
        return with_results(_empty(results), results)
    if RESULT in versions(data, (RESULT,)):
        try:
            return _run_of_result(Result.from_text(data, str(file)), _modified(file))
        except FileError:
            raise
        except ValueError as error:  # numbers that no report can show
            raise FileError(f"{file} is damaged: {cause(error)}") from None
    return Run.from_text(data, str(file))


def with_results(run: Run, results: MeasuredResults) -> Run:
    """The run with measured times beside its predictions: those of its problems, or of all if it has none.

    Raises FileError where the results are of another device, or hold nothing of its problems.
    """
    if run.device and results.device != run.device:
        raise FileError(f"{results.path} holds kernels made for {results.device}, and this run is for {run.device}")
    problems = {part.problem for part in run.searched}
    found = [m for m in results.measurements if not problems or _problem_text(m) in problems]
    if not found:
        raise FileError(f"{results.path} holds results of {results.title}, and nothing of this run's problem")
    return replace(run, measured=results.said, timed=[_timed(m) for m in found])


def _part(s: Searched) -> Part:
    r = s.result
    space = s.space.space
    part = Part(
        machine=s.space.machine.__name__,
        summary=s.space.machine.summary(),
        problem=_key(s.space.problem.to_json()),
        raw=space.raw_size,
        structures=len(space.parts),
        size=space.size,
        steps=[Step(row.name, row.kind, row.source, row.removed) for row in space.funnel],
        sentence=s.sentence,
        candidates=[_candidate(f) for f in _kept(s)],
    )
    return part if r is None else replace(part, **_search(r))


def _kept(s: Searched) -> list[Chosen]:
    """Those that do not spill; where all do, all."""
    return [f for f in s.finalists if not f.spills] or list(s.finalists)


def _search(r: Result) -> dict[str, Any]:
    return {
        "strategy": r.strategy,
        "seed": r.seed,
        "seconds": r.seconds,
        "ended": r.ended,
        "tried": len(r.history),
        "failures": r.failures(),
        "improvements": _improvements(r.history),
        "sample": _sample(r.history, r.seed),
    }


def _improvements(history: History) -> list[tuple[int, float]]:
    best = history.best_so_far()
    better = np.flatnonzero(np.diff(best, prepend=np.inf) < 0)
    if len(better) > IMPROVEMENTS_KEPT:  # the first and the last, and others evenly
        better = better[np.unique(np.linspace(0, len(better) - 1, IMPROVEMENTS_KEPT).astype(int))]
    return [(int(number) + 1, float(best[number])) for number in better]


def _sample(history: History, seed: int) -> Sample | None:
    order = np.argsort(history.values, kind="stable")
    order = order[: np.count_nonzero(np.isfinite(history.values))]
    if not len(order):
        return None
    others = order[BEST_KEPT:]
    drawn = np.random.default_rng(seed).choice(others, min(OTHERS_KEPT, len(others)), replace=False)
    rows = np.concatenate([order[:BEST_KEPT], np.sort(drawn)])
    columns = {name: np.asarray(column)[rows].tolist() for name, column in history.columns.items()}
    return Sample(columns, history.values[rows].tolist())


def _candidate(f: Chosen) -> Candidate:
    """A candidate as the report shows it; of several kernels what all of them do, and most of what one may have."""
    demands = [part.refined.demand(part.space) for part in f.parts]
    longest = max(range(len(f.parts)), key=lambda n: float(f.parts[n].prediction.seconds))
    times = [part.prediction.breakdown() for part in f.parts]
    prefixes = [f"{stage.name}." if stage.name else "" for stage in f.kernels.stages]
    return Candidate(
        point=dict(f.point),
        seconds=float(f.prediction.seconds),
        roofline=float(f.prediction.share_of_roofline),
        registers=max(part.assembly.registers for part in f.parts),
        estimate=max(part.refined.registers for part in f.parts),
        spill_bytes=sum(part.assembly.spill_store_bytes + part.assembly.spill_load_bytes for part in f.parts),
        ctas_per_sm=min(int(part.prediction.occupancy.ctas_per_sm) for part in f.parts),
        sentence=f.prediction.sentence(),
        breakdown={cause: sum(each[cause] for each in times) for cause in times[0]},
        flops=sum(_flops(demand) for demand in demands),
        dram_bytes=sum(float(np.add(d.dram_bytes_read, d.dram_bytes_written)) for d in demands),
        roof=_roof(demands[longest]),
        layouts=[
            _placed(prefix + name, s)
            for prefix, part in zip(prefixes, f.parts, strict=True)
            for name, s in part.refined.layouts.solutions.items()
        ],
    )


def _flops(demand: Demand) -> float:
    """Useful FLOP of the launch: of the tensor cores, where they have any."""
    tensor = float(np.multiply(demand.ctas, demand.total.tensor_flops))
    if not tensor:
        return float(np.multiply(demand.ctas, demand.total.fma_flops))
    useful = demand.useful_tensor_flops
    return tensor if useful is None else float(useful)


def _roof(demand: Demand) -> str:
    if float(demand.total.tensor_flops):
        return f"{demand.operand} tensor cores"
    return "FMA lanes"


def _roofs(device: Device, searched: Sequence[Searched]) -> list[Roof]:
    found: dict[str, float] = {}
    for part in (part for s in searched for f in s.finalists for part in f.parts):
        demand = part.refined.demand(part.space)
        if float(demand.total.tensor_flops):
            rate = device.tensor_flops_per_clk_sm(demand.operand, demand.accumulator) * device.tensor_clock_hz
        else:
            rate = 2 * device.number("fp32_fma_per_clk_sm") * device.boost_clock_hz
        found[_roof(demand)] = rate * device.sm_count
    return [Roof(name, rate) for name, rate in found.items()]


def _placed(name: str, s: Solution) -> Placed:
    accesses = [Access(a.name, a.wavefronts, a.ideal, a.instances) for a in s.accesses]
    at = s.layout
    xor = [(bit, mask) for bit, mask in at.xor]
    return Placed(name, str(at), at.rows, at.row_bytes, at.pitch_bytes, xor, s.sentence, s.proof, accesses)


def _timeline(f: Finalist) -> Timeline:
    simulation = Simulator(f.space).simulate(
        f.refined.point, extra_wavefronts=f.refined.extra, registers=f.assembly.registers, keep=STRETCHES_KEPT
    )
    stretches = [Stretch(s.row, s.label, s.kind, s.start_s, s.stop_s) for s in simulation.spans]
    return Timeline(simulation.seconds, simulation.sentence(), stretches)


def _title(family: str, searched: Sequence[Searched]) -> str:
    name = family.rpartition(":")[2]
    if not searched:
        return name
    problem = searched[0].space.problem
    # no line ends between a dim and its value
    dims = ", ".join(f"{k}\u00a0=\u00a0{v:,}" for k, v in problem.dims)
    return f"{name} {dims} · {problem.operands[0].dtype.name}"


def _run_of_result(r: Result, date: str) -> Run:
    """A search's result alone: no space, no kernels."""
    part = replace(Part(r.subject or "search", "", "", 0, 0, r.space_size, [], ""), **_search(r))
    return Run(r.subject or "a search", "search", "", date, __version__, None, 0.0, [], [part], {}, None, None, "")


def _empty(results: MeasuredResults) -> Run:
    return Run(
        results.title, "measured", results.device, results.date, __version__, None, 0.0, [], [], {}, None, None, ""
    )


def _timed(m: Measurement) -> Timed:
    failure = m.failure.kind if m.failure is not None else ""
    return Timed(m.machine, dict(m.point), m.predicted_s, m.seconds, m.low, m.high, failure)


def _problem_text(m: Measurement) -> str:
    return _key(m.problem)


def _key(problem: Mapping[str, Any]) -> str:
    return json.dumps(problem, sort_keys=True)


def _modified(file: Path) -> str:
    return datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat(timespec="seconds")


__all__ = ["RUN_FILE", "Refusal", "load_run", "report", "run_of", "with_results"]
