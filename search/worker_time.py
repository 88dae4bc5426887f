"""The objective of a search on a GPU that is here: candidates go to a worker process in bundles, times come back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tinygpu.search.evaluation import Evaluation, Failure
from tinygpu.search.measured import MeasuredResults, load_results
from tinygpu.search.searchable import Point

WORKER = (sys.executable, "-m", "tinygpu.ptx.worker")
# What writes a bundle of candidates: for each its kernel's name there, or why it has none.
WriteBundle = Callable[[Sequence[Point], Path], Sequence[str | Failure]]


class WorkerFailed(RuntimeError):
    """The worker measured nothing; its own sentence says why."""


class WorkerTime:
    """Measured seconds of candidates, a bundle for each batch.

    The first candidate that was measured goes with every batch, and times are taken relative to it, so that clocks that
    differ between batches do not order candidates.
    """

    def __init__(self, write: WriteBundle, folder: Path, command: Sequence[str] = WORKER) -> None:
        """
        folder   where bundles and results are left
        command  the worker; the bundle's path is added
        """
        self._write = write
        self._folder = folder
        self._command = tuple(command)
        self._batches = 0
        self._anchor: tuple[Point, float] | None = None

    def __call__(self, points: Sequence[Point], /) -> list[Evaluation]:
        anchored = [self._anchor[0], *points] if self._anchor is not None else list(points)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"batch{self._batches:05}.bundle"
        self._batches += 1
        names = self._write(anchored, path)
        if all(isinstance(name, Failure) for name in names):
            return [Evaluation(failure=name) for name in names[-len(points) :] if isinstance(name, Failure)]
        results = self._run(path)
        found = {m.kernel: m for m in results.measurements}
        scale = self._scale(results, names[0])
        out = []
        for point, name in zip(anchored, names, strict=True):
            if isinstance(name, Failure):
                out.append(Evaluation(failure=name))
                continue
            measured = found.get(name)
            if measured is None:
                out.append(Evaluation(failure=Failure("unmeasured", "the worker ended before this candidate")))
            elif measured.relative is None or scale is None:
                out.append(measured.evaluation())
            else:
                out.append(Evaluation(value=measured.relative * scale))
                if self._anchor is None:
                    self._anchor = (point, measured.relative * scale)
        return out[len(anchored) - len(points) :]

    def _scale(self, results: MeasuredResults, first: str | Failure) -> float | None:
        """Seconds of what times of this batch are relative to."""
        for m in results.measurements:
            if m.relative is not None and m.seconds is not None:
                if self._anchor is not None and m.kernel == first:
                    return self._anchor[1] / m.relative
                return m.seconds / m.relative
        return None

    def _run(self, path: Path) -> MeasuredResults:
        out = path.with_suffix(".results.jsonl")
        command = [*self._command, str(path), "-o", str(out), "--finals", "0"]
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if run.returncode and not out.exists():
            raise WorkerFailed((run.stderr.strip().splitlines() or ["the worker ended without a word"])[-1])
        return load_results(out)
