"""The objective of a search on a GPU that is here: candidates go to a worker process in bundles, times come back."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tinygpu.files import FileError
from tinygpu.files.json_text import sealed
from tinygpu.files.reading import read_file
from tinygpu.files.schema import decoded_as
from tinygpu.files.writing import write_file
from tinygpu.processes.command import tied
from tinygpu.search.evaluation import Evaluation, Failure
from tinygpu.search.measured import MeasuredResults, Measurement, load_results
from tinygpu.search.searchable import Point

WORKER = (sys.executable, "-m", "tinygpu.ptx.measuring")
# What writes a bundle of candidates: for each its kernel's name there, or why it has none.
WriteBundle = Callable[[Sequence[Point], Path], Sequence[str | Failure]]
# How often a worker that ended early goes on with the same bundle.
_TRIES = 3
# Seconds between two looks at what a worker has written.
_LOOK_SECONDS = 0.2
_ANCHOR_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class _Anchor:
    """The first candidate that was measured, as it is kept."""

    point: dict[str, int | str]
    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError(f"a time is above 0, not {self.seconds}")


class WorkerFailed(RuntimeError):
    """The worker did not measure what it was given; its own sentence says why."""


class WorkerTime:
    """Measured seconds of candidates, a bundle for each batch.

    The first candidate that was measured goes with every batch, and times are taken relative to it, so that clocks that
    differ between batches do not order candidates. It is kept in the folder: a search that is continued measures on the
    same scale. Each candidate is handed over as soon as the worker has written its line.
    """

    def __init__(self, write: WriteBundle, folder: Path, command: Sequence[str] = WORKER) -> None:
        """
        folder   where bundles, results and the first candidate are left
        command  the worker; the bundle's path is added
        """
        self._write = write
        self._folder = folder
        self._command = tuple(command)
        self._kept = folder / "anchor.json"
        self._anchor: tuple[Point, float] | None = None
        if self._kept.exists():
            anchor = decoded_as(_Anchor, read_file(self._kept, _ANCHOR_BYTES), str(self._kept))
            self._anchor = (anchor.point, anchor.seconds)

    def __call__(self, points: Sequence[Point], /) -> list[Evaluation]:
        found = dict(self.stream(points))
        return [found[number] for number in range(len(points))]

    def stream(self, points: Sequence[Point], /) -> Iterator[tuple[int, Evaluation]]:
        """Each point's number with its evaluation, in the order in which they are measured.

        Raises WorkerFailed where the worker ends, again and again, before it has a word on every candidate.
        """
        anchored = [self._anchor[0], *points] if self._anchor is not None else list(points)
        first = len(anchored) - len(points)
        path = self._fresh_bundle()
        names = self._write(anchored, path)
        waiting: dict[str, list[int]] = {}
        for place, name in enumerate(names):
            if not isinstance(name, Failure):
                waiting.setdefault(name, []).append(place)
            elif place >= first:
                yield place - first, Evaluation(failure=name)
        if not any(place >= first for places in waiting.values() for place in places):
            return
        scale: float | None = None
        for results in self._results(path, waiting):
            scale = scale or self._scale(results, names[0])
            for m in results.measurements:
                for place in waiting.pop(m.kernel, ()):
                    evaluation = _evaluation(m, scale)
                    self._keep_anchor(anchored[place], evaluation)
                    if place >= first:
                        yield place - first, evaluation

    def _fresh_bundle(self) -> Path:
        """A path that no earlier batch has: its results would be taken for this one's."""
        self._folder.mkdir(parents=True, exist_ok=True)
        numbers = [int(p.name[5:10]) for p in self._folder.glob("batch[0-9][0-9][0-9][0-9][0-9].*")]
        return self._folder / f"batch{max(numbers, default=-1) + 1:05}.bundle"

    def _keep_anchor(self, point: Point, evaluation: Evaluation) -> None:
        if self._anchor is None and evaluation.value is not None:
            self._anchor = (point, evaluation.value)
            text = sealed({"point": dict(point), "seconds": evaluation.value})
            write_file(self._kept, text, (b'{"point"',), "the first candidate of a search")

    def _scale(self, results: MeasuredResults, first: str | Failure) -> float | None:
        """Seconds of what times of this batch are relative to."""
        for m in results.measurements:
            if m.relative is not None and m.seconds is not None:
                if self._anchor is not None and m.kernel == first:
                    return self._anchor[1] / m.relative
                return m.seconds / m.relative
        return None

    def _results(self, path: Path, waiting: dict[str, list[int]]) -> Iterator[MeasuredResults]:
        """The results file as it grows, until nothing is waited for."""
        out, log = path.with_suffix(".results.jsonl"), path.with_suffix(".log")
        command = [*self._command, str(path), "-o", str(out), "--finals", "0"]
        for _ in range(_TRIES):
            # the worker of a search that was killed must not disturb the next one's times
            process = tied(command, log)
            try:
                seen, works = 0, True
                while works:
                    works = not process.says(_LOOK_SECONDS)
                    size = out.stat().st_size if out.exists() else 0
                    if size > seen:
                        seen = size
                        with contextlib.suppress(FileError):  # its first line is not yet whole
                            yield load_results(out)
            finally:
                process.end()
            if not out.exists():
                raise WorkerFailed(_last_line(log))
            yield load_results(out)
            if not waiting:
                return
        raise WorkerFailed(f"the worker ended {_TRIES} times before it was done with {path}: {_last_line(log)}")


def _evaluation(measured: Measurement, scale: float | None) -> Evaluation:
    if measured.relative is None or scale is None:
        return measured.evaluation()
    return Evaluation(value=measured.relative * scale)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "the worker ended without a word"
