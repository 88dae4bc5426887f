"""The process that touches the GPU: answers jobs until whoever asks is gone, or the GPU is lost to it.

Whatever a kernel does to it (a fault, a crash, a hang) costs this process and that kernel; the worker starts another.
"""

from __future__ import annotations

import dataclasses
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinygpu.processes.serving import Line
from tinygpu.ptx.measuring.bundle import Bundle, Entry, read_bundle
from tinygpu.ptx.measuring.clocks import Clocks
from tinygpu.ptx.measuring.statistics import ratio, spread
from tinygpu.ptx.measuring.subject import Subject
from tinygpu.ptx.measuring.timing import Protocol, Stopwatch, take_turns
from tinygpu.ptx.runtime.calls import load_driver
from tinygpu.ptx.runtime.context import Context, open_context
from tinygpu.ptx.runtime.errors import CudaError, GpuUnavailable, LaunchRefused, OutOfDeviceMemory, WrongArchitecture
from tinygpu.ptx.runtime.sequence import LoadedSequence, load

_REFUSED = (LaunchRefused, WrongArchitecture, OutOfDeviceMemory)


class Bench:
    """A bundle on one GPU."""

    def __init__(self, bundle: Bundle, context: Context, folder: Path, seed: int, protocol: Protocol) -> None:
        self.bundle = bundle
        self.context = context
        self.folder = folder
        self.seed = seed
        self.protocol = protocol
        self.clocks = Clocks(context.limits.bus)
        self._entries = {e.name: e for e in bundle.entries}
        self._subjects: dict[int, Subject] = {}
        self._watches: dict[int, Stopwatch] = {}
        self._right: set[str] = set()
        self._kept: tuple[str, LoadedSequence] | None = None

    def prepare(self, question: int) -> None:
        """Inputs and answers of a question."""
        if question not in self._subjects:
            folder = self.folder / str(question)
            folder.mkdir(exist_ok=True)
            asked = self.bundle.questions[question]
            self._subjects[question] = Subject(self.context, asked, self.seed, folder)

    def measure(self, name: str, against: str, protocol: Protocol) -> dict[str, Any]:
        """Verifies a kernel, and times it in turns with another one; with itself where `against` is ""."""
        begun = time.monotonic()
        entry = self._entries[name]
        kernel = self._load(entry)
        other: LoadedSequence | None = None
        kept = self._kept is not None and self._kept[0] == against
        try:
            details = {
                "registers": kernel.registers, "local_bytes": kernel.local_bytes, "ctas": kernel.grid,
                "refused_cubin": kernel.refused_cubin,
            }  # fmt: skip
            if name not in self._right:
                sentence = self._subjects[entry.question].verify(kernel)
                if sentence:
                    # what else it may have written over, nobody knows: the next kernel gets a new process
                    return {"failure": {"kind": "wrong", "sentence": sentence}, "lost": True, **details}
                self._right.add(name)
            rival = self._entries[against or name]
            # a module of its own, also where both are one kernel: it is timed as if they were two
            other = self._kept[1] if kept and self._kept is not None else self._load(rival)
            before = self.clocks.read()
            pair = (self._watch(entry.question), kernel), (self._watch(rival.question), other)
            samples = take_turns(*pair, protocol, self.seed, time.monotonic)
            after = self.clocks.read()
            cold, warm = samples.cold, samples.warm
            found = ratio(*cold)
            return {
                "cold": spread(cold[0]).to_json(),
                "warm": spread(warm[0]).to_json() if warm[0] else None,
                "ratio": found.to_json(),
                "mode": samples.mode,
                "sets": samples.sets,
                "launches": samples.launches,
                "clocks": {"before": before, "after": after},
                "wall_s": round(time.monotonic() - begun, 3),
                **details,
            }
        finally:
            self._unload(kernel, other, rival=against or name, kept=kept)

    def _unload(self, kernel: LoadedSequence, other: LoadedSequence | None, *, rival: str, kept: bool) -> None:
        """The rival stays loaded: it is most likely the next one's too."""
        kernel.unload()
        if other is not None and not kept:
            if self._kept is not None:
                self._kept[1].unload()
            self._kept = (rival, other)

    def _load(self, entry: Entry) -> LoadedSequence:
        return load(self.context, entry.launch, self.bundle.texts(entry))

    def _watch(self, question: int) -> Stopwatch:
        self.prepare(question)
        if question not in self._watches:
            self._watches[question] = Stopwatch(self._subjects[question], self.protocol)
        return self._watches[question]


def answer(bench: Bench, job: Mapping[str, Any]) -> dict[str, Any]:
    """What comes of one job; `lost` where this process can do no more."""
    try:
        if job["do"] == "prepare":
            bench.prepare(job["question"])
            return {"prepared": job["question"]}
        protocol = dataclasses.replace(bench.protocol, **job["protocol"])
        return bench.measure(job["kernel"], job["against"], protocol)
    except CudaError as error:
        kind = "fault" if error.context_lost else "launch"
        return {"failure": {"kind": kind, "sentence": str(error)}, "lost": error.context_lost}
    except _REFUSED as error:
        return {"failure": {"kind": "launch", "sentence": str(error)}}


def serve(line: Line) -> None:
    """Says what GPU there is, by the settings that come first, and answers the jobs that follow."""
    settings = line.receive()
    try:
        context = open_context(load_driver(settings["driver"]), settings["gpu"])
    except (GpuUnavailable, CudaError) as error:
        line.send({"unavailable": str(error)})
        return
    bundle = read_bundle(Path(settings["bundle"]))
    bench = Bench(bundle, context, Path(settings["folder"]), settings["seed"], Protocol(**settings["protocol"]))
    line.send({"gpu": dataclasses.asdict(context.limits)})
    for job in line:
        try:
            found = answer(bench, job)
        except Exception:
            # a fault of ours, not of the kernel: told in full, and the worker stops
            found = {"broken": traceback.format_exc(), "lost": True}
        line.send(found)
        if found.get("lost"):
            return
