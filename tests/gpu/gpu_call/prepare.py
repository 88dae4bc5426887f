"""Prepares the kit, on a machine without a GPU: candidates, layouts, kernels, machine code, the emulator's counts."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from gpu_call.assembling import OLDEST, Assembler, assembler_for
from gpu_call.cases import FULL, SMALL, Case, Plan
from gpu_call.chains import family_of, without_comparison
from gpu_call.kit import MOST_BYTES, ROLES, Job, Kit, write_kit
from gpu_call.records import read_json, write_json
from tinygpu import __version__
from tinygpu.api.bundle import Assembling, bundle_points
from tinygpu.api.choosing import NotAdmitted, choose
from tinygpu.api.problems import Asked, problems
from tinygpu.devices import Device, device
from tinygpu.ptx.assembling.assembler import AssemblerUnavailable
from tinygpu.ptx.emulator import emulate
from tinygpu.ptx.emulator.hardware_counters import HARDWARE_COUNTERS
from tinygpu.ptx.measuring.bundle import Entry, read_bundle, write_bundle
from tinygpu.ptx.verification.inputs import make_inputs
from tinygpu.ptx.verification.memory import arguments, workspaces
from tinygpu.search.minimize import minimize
from tinygpu.search.predicted import PredictedTime
from tinygpu.search.preference import ranked
from tinygpu.spaces.build import MachineSpace, build_space

ROOT = Path(__file__).resolve().parents[3]
KIT = ROOT / "runs" / "gpu-kit.zip"
# Points that are drawn for each that is taken, so that every structure is among them.
_DRAWN = 24
_SEARCH_S = 8.0
# Predictions that differ by less are taken for equal; machines whose best is predicted to take so many times as long as
# the best of all are left out.
_NEAR = 0.03
_RIVALS = 1.5

Point = dict[str, int | str]


def asked(case: Case) -> Asked:
    return Asked(case.dims, case.dtypes, case.majors, case.lds, {}, case.options)


def near_best(space: MachineSpace, count: int, seed: int) -> tuple[float, list[Point]]:
    """(seconds predicted for the best candidate, the first choice and others whose prediction is about as good).

    The prediction says the same of many candidates; the others are drawn among all of them.
    """
    objective = PredictedTime(space)
    result = minimize(space.space, objective, seconds=_SEARCH_S)
    groups = ranked(objective, result, 1, 1)
    if not groups:
        raise ValueError(f"no candidate of {space.machine.__name__} can be launched for {space.problem}")
    tried, first = result.history, dict(groups[0][0].point)
    best = float(np.nanmin(tried.values))
    near = np.random.default_rng(seed).permutation(np.flatnonzero(tried.values <= (1 + _NEAR) * best))[:count]
    others = [point for n in near if (point := dict(tried[int(n)].point)) != first]
    return best, [first, *others[: count - 1]]


def spread_points(space: MachineSpace, count: int, seed: int) -> list[Point]:
    """Random candidates of every structure in turn, and of those with CTAs that share tiles where there are some."""
    drawn = space.space.sample(_DRAWN * count, np.random.default_rng(seed))
    groups: dict[tuple[int, bool, int], list[Point]] = {}
    for point in drawn:
        key = (space.structure_index(point), int(point.get("split_k", 1)) > 1, int(point.get("stream_k", 0)))
        groups.setdefault(key, []).append(dict(point))
    taken: list[Point] = []
    while len(taken) < count and any(groups.values()):
        for group in groups.values():
            if group and len(taken) < count:
                point = group.pop()
                if point not in taken:
                    taken.append(point)
    return taken


class Preparation:
    """Makes one job after the other in a folder; those that are there already may be kept."""

    def __init__(
        self, folder: Path, target: Device, assembling: Assembling, keep: bool, say: Callable[[str], None]
    ) -> None:
        self.folder = folder
        self.target = target
        self.assembling = assembling
        self.keep = keep
        self.say = say
        self.jobs: list[Job] = []
        self.missing: list[tuple[str, str]] = []

    def add(self, role: str, number: int, case: Case) -> None:
        begun = time.monotonic()
        stem = f"{role}-{number:02}"
        note = self.folder / f"{stem}.json"
        kept = read_json(note) if self.keep else {}
        if kept and kept["name"] == case.name and (self.folder / kept["file"]).exists():
            self.jobs.append(Job(**kept))
            return
        make = {"correct": self._correct, "counted": self._counted, "dense": self._dense}.get(role, self._best)
        try:
            count, counters = make(case, self.folder / f"{stem}.bundle")
        except Exception as error:  # one problem costs itself alone, and the kit says which
            # what the package says of a problem that it does not take is a sentence; anything else is a fault of ours
            sentence = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            self.missing.append((f"{role}: {case.name}", sentence))
            self.say(f"{role}: {case.name}: {sentence}")
            return
        job = Job(role, case.name, f"{stem}.bundle", case.machine, count, dict(case.facts), counters)
        self.jobs.append(job)
        write_json(note, asdict(job))
        self.say(f"{role}: {case.name}: {count} kernels in {time.monotonic() - begun:.0f} s")

    def _spaces(self, case: Case) -> list[MachineSpace]:
        """The space of every machine that takes the problem and has candidates for it."""
        accepted, _ = problems(family_of(case.machine), asked(case))
        made = [build_space(machine, posed, self.target) for machine, posed in accepted]
        found = [space for space in made if space.space.size]
        if not found:
            raise ValueError(f"no machine of {case.machine} has a candidate for {case.name}")
        return found

    def _best(self, case: Case, path: Path) -> tuple[int, Sequence[Any]]:
        """Candidates near the best predicted one of every machine that comes near the best of all."""
        found = [(space, *near_best(space, case.kernels, number)) for number, space in enumerate(self._spaces(case))]
        least = min(seconds for _, seconds, _ in found)
        likely = [(space, points) for space, seconds, points in found if seconds <= _RIVALS * least]
        share = -(-case.kernels // len(likely))
        chosen = [(space, points[:share]) for space, points in likely]
        if case.points:
            chosen[0][1].extend(self._completed(case, likely[0][0]))
        return self._written(case, chosen, path), ()

    def _completed(self, case: Case, space: MachineSpace) -> list[Point]:
        """The case's own points, completed by the predictor."""
        whole = []
        for part in case.points:
            try:
                whole.append(dict(choose(space, part).refined.point))
            except NotAdmitted as refused:
                said = " ".join(f"{k}={v}" for k, v in part.items())
                self.missing.append((f"{case.name}: {said}", str(refused)))
        return whole

    def _written(self, case: Case, chosen: Sequence[tuple[MachineSpace, Sequence[Point]]], path: Path) -> int:
        """One bundle of points of one or more spaces; the number of kernels."""
        parts = []
        for number, (space, points) in enumerate(chosen):
            part = path.with_name(f"{path.name}.{number}")
            for failed in bundle_points(space, points, part, assembling=self.assembling):
                if not isinstance(failed, str):
                    self.missing.append((f"{case.name}, {space.machine.__name__}", failed.sentence))
            if part.exists():
                parts.append(part)
        if not parts:
            raise ValueError(f"no candidate of {case.machine} for {case.name} becomes a kernel")
        try:
            return join(parts, path)
        finally:
            for part in parts:
                part.unlink()

    def _dense(self, case: Case, path: Path) -> tuple[int, Sequence[Any]]:
        """Half near the best predicted one, half anywhere in the space, in random order behind the best."""
        (space,) = self._spaces(case)
        _, near = near_best(space, case.kernels // 2, 0)
        anywhere = [dict(p) for p in space.space.sample(case.kernels - len(near), np.random.default_rng(1))]
        first, others = near[0], [*near[1:], *anywhere]
        order = np.random.default_rng(2).permutation(len(others)).tolist()
        return self._written(case, [(space, [first, *(others[n] for n in order)])], path), ()

    def _correct(self, case: Case, path: Path) -> tuple[int, Sequence[Any]]:
        """Candidates of every structure of every machine of the family."""
        spaces = self._spaces(case)
        share = -(-case.kernels // len(spaces))
        return self._written(case, [(s, spread_points(s, share, n)) for n, s in enumerate(spaces)], path), ()

    def _counted(self, case: Case, path: Path) -> tuple[int, Sequence[Any]]:
        """The best predicted kernel with the case's point, and what the emulator counts of it on the whole problem."""
        ((machine, posed),) = problems(family_of(case.machine), asked(case))[0]
        space = build_space(machine, posed, self.target)
        kernel = choose(space, case.points[0] if case.points else {}).built.kernel
        for failed in bundle_points(space, [dict(kernel.point)], path, assembling=self.assembling):
            if not isinstance(failed, str):
                raise ValueError(failed.sentence)
        operands, scalars = make_inputs(machine, posed, "random", 0)
        grid = kernel.grid(posed, self.target.sm_count)
        report = emulate(
            kernel.ptx, grid=grid, block=(kernel.threads, 1, 1), cluster=kernel.cluster,
            args=arguments(kernel, posed, operands, scalars, workspaces(kernel, posed, grid[0])),
            dynamic_smem=kernel.smem_bytes,
        )  # fmt: skip
        counters = []
        for entry in HARDWARE_COUNTERS:
            value = entry.value(report)
            if value is not None:
                counters.append({
                    "counter": entry.counter, "value": value, "metrics": list(entry.metrics),
                    "relation": entry.relation, "note": entry.note,
                })  # fmt: skip
        return 1, counters


def join(parts: Sequence[Path], path: Path) -> int:
    """One bundle of the kernels of several, renamed, each once; their number."""
    opened = [read_bundle(p) for p in parts]
    questions = [q for b in opened for q in b.questions]
    first = 0
    kernels: list[tuple[Entry, Sequence[tuple[bytes, bytes | None]]]] = []
    seen: set[tuple[str, str]] = set()
    for b in opened:
        for entry in b.entries:
            # one text serves many problems: it is there once for each
            key = (json.dumps(b.questions[entry.question].problem), entry.digest)
            if key in seen:
                continue
            seen.add(key)
            named = replace(entry, name=f"k{len(kernels):04}", question=first + entry.question)
            kernels.append((named, b.texts(entry)))
        first += len(b.questions)
    title = " and ".join(dict.fromkeys(b.title for b in opened))
    write_bundle(path, title=title, device=opened[0].device, made=opened[0].made, questions=questions, kernels=kernels)
    return len(kernels)


def commit_of(root: Path) -> str:
    """The commit of a checkout, with a + where files differ from it; "unknown" outside of one."""
    told = [
        subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
        for words in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
    ]
    if told[0].returncode:
        return "unknown"
    return told[0].stdout.strip() + ("+" if told[1].stdout.strip() else "")


def prepare(
    plan: Plan, target: Device, path: Path, folder: Path, *, assembler: Assembler, keep: bool,
    say: Callable[[str], None],
) -> Kit:  # fmt: skip
    """Makes every bundle of a plan in a folder, and the kit of them."""
    folder.mkdir(parents=True, exist_ok=True)
    work = Preparation(folder, target, assembler.many, keep, say)
    for role in ROLES:
        for number, case in enumerate(getattr(plan, role)):
            work.add(role, number, case)
    timed = {c.machine for c in (*plan.matmuls, *plan.streams)}
    absent = [(name, "ships, and is timed beside nothing: give it a case") for name in without_comparison(timed)]
    made = f"{datetime.now(UTC).date().isoformat()}, tinygpu {__version__}, commit {commit_of(ROOT)}"
    kit = Kit(made, target.name, assembler.name, tuple(work.jobs), (*work.missing, *absent))
    size = write_kit(path, kit, folder)
    say(f"wrote {path}: {sum(j.kernels for j in kit.jobs):,} kernels, {size:,} of {MOST_BYTES:,} bytes")
    for name, sentence in kit.missing:
        say(f"not in it: {name}: {sentence}")
    return kit


def main(words: Sequence[str] | None = None) -> int:
    """The command. 0 where a kit was written, 1 where none could be, 2 for wrong input."""
    parser = argparse.ArgumentParser(prog="tests/gpu/prepare.py", description=__doc__)
    parser.add_argument("--device", required=True, help="the GPU that the kernels are made for: h100, h200, ...")
    parser.add_argument("-o", "--out", type=Path, default=KIT, help="the kit (runs/gpu-kit.zip)")
    parser.add_argument("--cuda", default=OLDEST, help=f"the oldest driver that takes the machine code ({OLDEST})")
    parser.add_argument("--ptxas", type=Path, help="the assembler (by default that of the wheel nvidia-cuda-nvcc)")
    parser.add_argument("--small", action="store_true", help="a kit for a rehearsal without a GPU")
    parser.add_argument("--keep", action="store_true", help="keep bundles that are there: only where no source changed")
    given = parser.parse_args(words)
    folder = given.out.with_name(f"{given.out.stem}-bundles")
    try:
        target = device(given.device)
        assembler = assembler_for(given.cuda, given.ptxas, folder.with_name("gpu-kit-assembled"))
    except (AssemblerUnavailable, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    plan = SMALL if given.small else FULL
    try:
        prepare(
            plan, target, given.out, folder, assembler=assembler, keep=given.keep,
            say=lambda line: print(line, flush=True),
        )  # fmt: skip
    except (OSError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
