"""The worker: times the kernels of a bundle on the GPU of this machine, and writes a results file.

    python -m tinygpu.ptx.measuring BUNDLE

Needs NumPy and cuda-bindings, nothing else of what tinyGPU needs. Every kernel is verified and then timed in turns
with the best one so far, by a process of its own with a time limit: a kernel that faults, hangs or brings that process
down is recorded as such, and the next one gets a new process. A worker that is killed and called again goes on where it
was.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tinygpu.files import FileError
from tinygpu.processes.ending import CannotEnd, Ended, Late
from tinygpu.processes.worker import Worker, started
from tinygpu.ptx.measuring.bundle import Bundle, Entry, read_bundle
from tinygpu.ptx.measuring.results import MOST_BEGINNINGS, Results, failed, measured
from tinygpu.ptx.measuring.statistics import LEAST_NOISE, Ratio, Spread, Verdict, noise_of
from tinygpu.ptx.measuring.subject import DISTRIBUTION
from tinygpu.ptx.measuring.timing import Protocol
from tinygpu.ptx.runtime.calls import BINDINGS
from tinygpu.ptx.runtime.errors import GpuUnavailable


@dataclass(frozen=True, slots=True)
class Settings:
    """How a bundle is measured.

    limit_s    seconds that one kernel may take, from loading to the last sample
    prepare_s  seconds for working out the right answers, and for starting a process
    finals     kernels that are timed once more, against the best, at the end
    seconds    after which no further kernel is begun, and those that are left wait for the next call; None: no end
    """

    protocol: Protocol = field(default_factory=Protocol)
    limit_s: float = 60.0
    prepare_s: float = 900.0
    finals: int = 5
    seconds: float | None = None
    seed: int = 0
    gpu: int = 0
    driver: str = BINDINGS


class WorkerError(ValueError):
    """Measuring cannot go on, whichever kernel comes next."""


class _Child:
    """A process that touches the GPU; it is started with the first job, and again after each end."""

    def __init__(self, bundle: Path, folder: Path, settings: Settings) -> None:
        self.settings = settings
        self.bundle = bundle
        self.folder = folder
        self.gpu: dict[str, Any] = {}
        self.jobs = 0  # since the process was started
        self._worker: Worker | None = None
        self._prepared: set[int] = set()

    def start(self) -> None:
        """Starts the process, and learns which GPU there is. Raises GpuUnavailable and WorkerError."""
        self._worker = started("tinygpu.ptx.measuring.child:serve", quiet=False)
        self._prepared = set()
        self.jobs = 0
        settings = {
            "bundle": str(self.bundle),
            "folder": str(self.folder),
            "driver": self.settings.driver,
            "gpu": self.settings.gpu,
            "seed": self.settings.seed,
            "protocol": self.settings.protocol.to_json(),
        }
        found = self._ask(settings, self.settings.prepare_s)
        if "unavailable" in found:
            raise GpuUnavailable(found["unavailable"])
        if "gpu" not in found:
            raise WorkerError(f"the GPU does not come back: {found['failure']['sentence']}")
        self.gpu = found["gpu"]

    def do(self, entry: Entry, rival: Entry | None, job: Mapping[str, Any]) -> dict[str, Any]:
        """What comes of a job on a kernel; a failure where the process does not live to say."""
        if self._worker is None:
            self.start()
        for question in {entry.question, entry.question if rival is None else rival.question}:
            if question not in self._prepared:
                found = self._ask({"do": "prepare", "question": question}, self.settings.prepare_s)
                if "prepared" not in found:
                    raise WorkerError(f"the problem cannot be set up: {found['failure']['sentence']}")
                self._prepared.add(question)
        self.jobs += 1
        return self._ask({"do": "measure", **job}, self.settings.limit_s)

    def _ask(self, job: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        if self._worker is None:
            raise WorkerError("a job was given to no process")
        try:
            found: dict[str, Any] = self._worker.ask(job, limit_s)
        except (Late, Ended) as error:
            self._worker = None
            kind = "hang" if isinstance(error, Late) else "crash"
            return {"failure": {"kind": kind, "sentence": str(error)}}
        except CannotEnd as error:
            self._worker = None
            raise WorkerError(f"a kernel hangs, and {error}") from None
        if "broken" in found:
            self.close()
            raise WorkerError(f"measuring itself failed, please report this:\n{found['broken']}")
        if found.get("lost"):
            self.close()
        return found

    def close(self) -> None:
        """Ends the process, also one that hangs."""
        worker, self._worker = self._worker, None
        if worker is not None:
            try:
                worker.end()
            except CannotEnd as error:
                raise WorkerError(f"a kernel hangs, and {error}") from None


def measure(bundle: Bundle, path: Path, settings: Settings, say: Callable[[str], None] = print) -> Results:
    """Measures every kernel of a bundle that the results file does not hold yet.

    path  the results file, made or continued
    say   told what goes on, a line at a time

    Raises GpuUnavailable, FileError, and WorkerError where measuring cannot go on.
    """
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tinygpu-answers-") as folder:
        child = _Child(bundle.path, Path(folder), settings)
        try:
            child.start()
            results = Results(path, _header(bundle, child.gpu, settings))
            try:
                if _Run(bundle, results, child, settings, say).all(begun):
                    results.end(time.monotonic() - begun)
            finally:
                results.close()
        finally:
            child.close()
    return results


def _header(bundle: Bundle, gpu: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    return {
        "bundle": bundle.digest,
        "title": bundle.title,
        "device": bundle.device,
        "made": bundle.made,
        "gpu": dict(gpu),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "protocol": settings.protocol.to_json(),
        "seed": settings.seed,
        "inputs": _inputs(bundle),
        "problems": [dict(q.problem) for q in bundle.questions],
    }


def _inputs(bundle: Bundle) -> str:
    """What inputs are drawn from, in words."""
    declared = ", ".join(dict.fromkeys(name for q in bundle.questions for name in q.values))
    return f"{DISTRIBUTION}; as their machine declares them: {declared}" if declared else DISTRIBUTION


class _Run:
    """One run over a bundle: who is the best so far, and what the next is compared with."""

    def __init__(
        self, bundle: Bundle, results: Results, child: _Child, settings: Settings, say: Callable[[str], None]
    ) -> None:
        self.bundle = bundle
        self.results = results
        self.child = child
        self.settings = settings
        self.say = say
        self.entries = {e.name: e for e in bundle.entries}
        self.best: Entry | None = None
        self.relative: dict[str, float] = {}
        for line in results.done.values():
            if line["status"] == "measured" and line["kernel"] in self.entries:
                self._take(line)

    def all(self, begun: float) -> bool:
        """Measures what is left; False where the time was up before.

        begun  when the run began, as `time.monotonic` says
        """
        for number, entry in enumerate(self.bundle.entries, start=1):
            if entry.name not in self.results.done:
                if self.settings.seconds is not None and time.monotonic() - begun > self.settings.seconds:
                    self.say(f"the time is up after {number - 1:,} kernels; call again for the others")
                    return False
                line = self._one(entry)
                self.results.record(line)
                if line["status"] == "measured":
                    self._take(line)
                self.say(f"[{number}/{len(self.bundle.entries)}] {_sentence(line)}")
        self._finals()
        return True

    def _one(self, entry: Entry) -> dict[str, Any]:
        details = {
            "machine": entry.machine,
            "point": dict(entry.point),
            "question": entry.question,
            "digest": entry.digest,
            "predicted_s": entry.predicted_seconds,
        }
        if self.results.begun.get(entry.name, 0) >= MOST_BEGINNINGS:
            times = self.results.begun[entry.name]
            return failed(entry.name, "crash", f"the worker itself ended {times} times while it ran", details)
        self.results.begin(entry.name)
        rival = self.best
        used = self.child.jobs > 0
        found = self._measure(entry, rival, {})
        if used and found.get("failure", {}).get("kind") == "wrong":
            # a kernel before it may have written over what it was judged by
            found = self._measure(entry, rival, {})
        if "failure" in found:
            return failed(entry.name, found["failure"]["kind"], found["failure"]["sentence"], details)
        pair: Ratio | None = _ratio(found["ratio"])
        verdict: Verdict | None = None
        relative = 1.0
        if rival is None or pair is None:
            self._learn_noise(entry, found["ratio"])
            pair = None
        else:
            verdict, relative = pair.verdict(self.noise), pair.median * self.relative[rival.name]
        told = ("registers", "local_bytes", "ctas", "refused_cubin", "mode", "sets", "launches", "clocks")
        details |= {k: found[k] for k in told}
        warm = None if found["warm"] is None else Spread(**found["warm"])
        against = "" if rival is None else rival.name
        return measured(entry.name, Spread(**found["cold"]), warm, against, pair, verdict, relative, details)

    @property
    def noise(self) -> float:
        return LEAST_NOISE if self.results.noise is None else self.results.noise

    def _take(self, line: Mapping[str, Any]) -> None:
        """A measured kernel: the best so far, if it is faster than that."""
        name = line["kernel"]
        self.relative[name] = line["relative"]
        if self.best is None or line["verdict"] == "faster":
            self.best = self.entries[name]

    def _learn_noise(self, entry: Entry, same: Mapping[str, Any]) -> None:
        """The first kernel took turns with itself: what differs there is noise."""
        if self.results.noise is None:
            noise = noise_of(_ratio(same))
            self.results.record_noise(noise, _ratio(same))
            self.say(f"{entry.name} timed in turns with itself differs by up to {100 * noise:.2f} %: less is a tie")

    def _finals(self) -> None:
        """The best ones once more, against the best, with three times the samples."""
        ranked = sorted(self.relative, key=lambda name: self.relative[name])[: self.settings.finals]
        best = self.best
        if best is None or len(ranked) < 2:
            return
        more = 3 * self.settings.protocol.samples
        for name in ranked:
            if name == best.name or name in self.results.finals:
                continue
            found = self._measure(self.entries[name], best, {"samples": more})
            line: dict[str, Any] = {"kernel": name, "against": best.name}
            if "failure" in found:
                line["failure"] = found["failure"]
            else:
                pair = _ratio(found["ratio"])
                line |= {"cold": found["cold"], "ratio": pair.to_json(), "verdict": pair.verdict(self.noise)}
            self.results.record_final(line)
            self.say(f"final: {name} against {best.name}: {line.get('verdict', 'failed')}")

    def _measure(self, entry: Entry, rival: Entry | None, protocol: Mapping[str, Any]) -> dict[str, Any]:
        job = {"kernel": entry.name, "against": "" if rival is None else rival.name, "protocol": dict(protocol)}
        return self.child.do(entry, rival, job)


def _ratio(data: Mapping[str, Any]) -> Ratio:
    high = float("inf") if data["high"] is None else data["high"]
    return Ratio(data["median"], data["low"], high, data["pairs"])


def _sentence(line: Mapping[str, Any]) -> str:
    if line["status"] == "failed":
        return f"{line['kernel']}: {line['failure']['kind']}: {line['failure']['sentence']}"
    cold = f"{line['cold']['median'] * 1e6:,.2f} us cold"
    warm = f", {line['warm']['median'] * 1e6:,.2f} us warm" if line["warm"] else ""
    compared = f"; {line['verdict']} ({line['ratio']['median']:.3f} x {line['against']})" if line["ratio"] else ""
    return f"{line['kernel']}: {cold}{warm}{compared}"


def main(words: list[str] | None = None) -> int:
    """The command. Ends with 0 where kernels were measured, 1 where nothing could be, 2 where the input is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tinygpu.ptx.measuring", description=__doc__.split("\n\n")[0])
    parser.add_argument("bundle", type=Path, help="a file from `tinygpu bundle`")
    parser.add_argument("-o", "--out", type=Path, help="results file (BUNDLE.results.jsonl), continued if it is there")
    parser.add_argument("--samples", type=int, default=Protocol().samples, help="pairs of cold samples per kernel")
    parser.add_argument("--seconds", type=float, default=Protocol().seconds, help="timing one kernel, at most about")
    limit = Settings().limit_s
    parser.add_argument("--limit", type=float, default=limit, help="seconds after which a kernel counts as hanging")
    parser.add_argument("--budget", type=float, help="seconds for all of it: the others wait for the next call")
    parser.add_argument("--finals", type=int, default=Settings().finals, help="kernels that are timed once more")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs and of the order of samples")
    parser.add_argument("--gpu", type=int, default=0, help="number of the GPU")
    parser.add_argument("--driver", default=BINDINGS, help="module with the driver's functions")
    given = parser.parse_args(words)
    out = given.out or given.bundle.with_name(f"{given.bundle.name}.results.jsonl")
    try:
        protocol = Protocol(samples=given.samples, seconds=given.seconds)
        settings = Settings(
            protocol, limit_s=given.limit, finals=given.finals, seconds=given.budget, seed=given.seed, gpu=given.gpu,
            driver=given.driver,
        )  # fmt: skip
        bundle = read_bundle(given.bundle)
    except ValueError as error:
        print(f"worker: {error}", file=sys.stderr)
        return 2
    try:
        results = measure(bundle, out, settings, lambda line: print(line, flush=True))
    except (GpuUnavailable, FileError, WorkerError) as error:
        print(f"worker: {error}", file=sys.stderr)
        return 1
    count = sum(line["status"] == "measured" for line in results.done.values())
    print(f"wrote {out}: {count} of {len(bundle.entries)} kernels measured")
    return 0 if count else 1

