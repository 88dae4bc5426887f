"""A specimen of every format that is read, as the product itself writes it, and how it is read."""

import gzip
import io
import json
import lzma
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tinygpu.api.arguments import load_array
from tinygpu.api.report import load_run
from tinygpu.devices import device, load_device
from tinygpu.files.folder import MANIFEST, write_folder
from tinygpu.files.json_text import parse
from tinygpu.language.trace import trace
from tinygpu.language.values import one_of, uniform
from tinygpu.machines.elementwise import BiasRelu
from tinygpu.program.saved import load_program, save_program
from tinygpu.ptx.bounds.arithmetic import Rounding
from tinygpu.ptx.calibration import Calibration, Gpu, Measured, load_calibration, save_profile
from tinygpu.ptx.measuring.bundle import Entry, read_bundle, write_bundle
from tinygpu.ptx.measuring.bundle import Question as Asked
from tinygpu.ptx.measuring.reference import record
from tinygpu.ptx.measuring.results import Results, failed, measured
from tinygpu.ptx.measuring.statistics import ratio, spread
from tinygpu.ptx.runtime.launch import Argument, Launch, Map, Tensor, Workspace
from tinygpu.report import Run, page
from tinygpu.report.run import Access, Candidate, Placed, Roof, Sample, Searched, Step, Stretch, Timed, Timeline
from tinygpu.search.cache import Cache, Circumstances
from tinygpu.search.evaluation import Evaluation, Failure, Trial
from tinygpu.search.history import HistoryBuilder
from tinygpu.search.journal import Journal
from tinygpu.search.measured import load_results
from tinygpu.search.replay.files import load_replay, save_cache, save_t4
from tinygpu.search.replay.space import ReplaySpace
from tinygpu.search.result import Result
from tinygpu.search.rl.network import Adam, initial
from tinygpu.search.rl.policy import INPUTS, SHIPPED, Policy
from tinygpu.search.rl.train import _resume, _Run, _save
from tinygpu.search.worker_time import WorkerTime


@dataclass(frozen=True)
class Specimen:
    """One format.

    write   writes the specimen to a path, as the product does
    read    reads it to a value that can be compared
    modules that read it, as they are imported
    kind    "json", "lines", "zip" or "bytes": which changes make sense
    sealed  whether a changed byte is always found; what people write by hand has no checksum
    keeps   whether a file that was cut gives the entries before the cut: journals
    """

    name: str
    write: Callable[[Path], object]
    read: Callable[[Path], Any]
    modules: tuple[str, ...]
    kind: str
    sealed: bool = True
    keeps: bool = False
    suffix: str = ""


POINT = {"bm": 16, "load": "direct"}
HEADER = {
    "bundle": "abc", "title": "sums", "device": "H200-SXM", "date": "2026-03-01T10:00:00+00:00",
    "gpu": {"name": "NVIDIA H200", "driver": "13.0"}, "problems": [{"dims": {"n": 8}}],
}  # fmt: skip
HERE = Circumstances("predicted seconds", "m", "c", "{}", "d")


def write_program(path: Path) -> None:
    program = trace(BiasRelu, BiasRelu.problem(m=100, n=96), next(iter(BiasRelu.structures()))).program
    path.write_text(json.dumps(save_program(program)))


def read_program(path: Path) -> Any:
    return save_program(load_program(parse(path.read_bytes(), str(path))))


def a_run() -> Run:
    placed = Placed("ring", "8 rows", 8, 64, 64, [[1, 16]], "no conflicts", "ideal", [Access("ld", 4, 4, 2)])
    candidate = Candidate(
        POINT, 1e-5, 0.8, 40, 41, 0, 4, "DRAM", {"DRAM": 9e-6, "launch": 1e-6}, 1e9, 2e6, "tensor", [placed]
    )  # fmt: skip
    sample = Sample({"bm": [16, 32], "load": ["direct", None]}, [1e-5, 2e-5])
    part = Searched(
        "M", "sum", '{"n": 8}', 100, 2, 20, [Step("width", "legality", "ld", 3)], "", "random", 1, 0.5, "evaluations",
        5, {"timeout": 1}, [(1, 2e-5), (4, 1e-5)], sample, [candidate],
    )  # fmt: skip
    return Run(
        "M n = 8", "m", "A100", "2026-03-01T12:00:00+00:00", "0.1.0", 8e-6, 2e12, [Roof("tensor", 3e14)], [part],
        {"N": "no"}, (0, 0), True, "right", "measured on G, driver 1, 2026",
        [Timed("M", POINT, 1e-5, 2e-5, 1e-5, 3e-5, "")],
        Timeline(1e-5, "so", [Stretch("tensor", "mma", "work", 0.0, 1e-6)]),
    )  # fmt: skip


def write_run(path: Path) -> None:
    path.write_text(a_run().to_text())


def read_run(path: Path) -> Any:
    found = load_run(path)
    page(found)
    return found


def a_result() -> Result:
    builder = HistoryBuilder()
    builder.add(POINT, Evaluation(0.1 + 0.2))
    builder.add({"bm": 32}, Evaluation(failure=Failure("timeout", "slow\u2028")))
    builder.add({"bm": 64, "load": "é"}, Evaluation(1e-9))
    return Result("s", "random", 3, 30, builder.history(), 1.5, "evaluations")


def write_journal(path: Path) -> None:
    with Journal(path, {"seed": 1, "subject": "é"}) as journal:
        for number, (_, trial) in enumerate(zip(range(3), a_result().history, strict=True)):
            journal.record(trial.point, trial.evaluation, number / 4)


def read_journal(path: Path) -> Any:
    with Journal(path, {"seed": 1, "subject": "é"}) as journal:
        return list(journal)


def write_results(path: Path) -> None:
    results = Results(path, HEADER)
    results.record_noise(0.004, ratio([1.0] * 8, [1.0] * 8))
    for name, seconds in (("k0", 2e-6), ("k1", None), ("k2", 1e-6)):
        results.begin(name)
        details = {"machine": "Add", "point": POINT, "question": 0, "digest": name, "predicted_s": 1e-6}
        if seconds is None:
            results.record(failed(name, "hang", "it did not end", details))
        else:
            pair = ratio([seconds] * 8, [2e-6] * 8)
            times = spread([seconds] * 8)
            results.record(measured(name, times, times, "k0", pair, pair.verdict(0.01), pair.median, details))
    results.record_final({"kernel": "k0", "against": "k2", "verdict": "slower"})
    results.end(2.5)
    results.close()


def read_results(path: Path) -> Any:
    return list(load_results(path).measurements)


def continue_results(path: Path) -> Any:
    results = Results(path, HEADER)
    results.close()
    return list(results.done.items())


def write_cache(path: Path) -> None:
    with Cache(path) as cache:
        for trial in a_result().history:
            cache.keep(HERE, trial.point, trial.evaluation)
        for number in range(60):
            cache.keep(HERE, {"bm": number}, Evaluation(float(number)))


def read_cache(path: Path) -> Any:
    points = [t.point for t in a_result().history] + [{"bm": number} for number in range(60)]
    with Cache(path) as cache:
        found = cache.known(HERE, points)
        len(cache)
        cache.keep(HERE, {"bm": 1000}, Evaluation(1.0))
    return found


def a_space() -> ReplaySpace:
    trials = [
        Trial({"bx": 8, "mode": "fast"}, Evaluation(1.5)),
        Trial({"bx": 16, "mode": "slow"}, Evaluation(failure=Failure("compile", "it did not compile"))),
        Trial({"bx": 8, "mode": "slow"}, Evaluation(0.5)),
    ]
    return ReplaySpace(trials, kernel="gemm", device="A100", problem=(64, 64))


def read_space(path: Path) -> Any:
    space = load_replay(path)
    list(space.columns_by_part())
    repr(space)
    return space.trials


def compressed(write: Callable[[Path], object], pack: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def packed(path: Path) -> None:
        plain = path.with_suffix(".plain")
        write(plain)
        path.write_bytes(pack(plain.read_bytes()))
        plain.unlink()

    return packed


def write_a_bundle(path: Path) -> None:
    tensors = (Tensor("x", "f32", (64, 8), (8, 1), 16, "in"), Tensor("y", "f32", (64, 8), (8, 1), 16, "out"))
    graph = record(lambda x, a: {"y": np.maximum(a * x, -np.inf)[0:4].sum(axis=0)}, ["x", "a"], {}, ["y"], "M")
    values = {"x": uniform(-1, 1).at({}), "a": one_of(1, 2, weights=(1, 3)).at({})}
    question = Asked("M n=8", {"dims": {"n": 8}}, tensors, (("a", "f32"),), graph, Rounding(False), values)
    arguments = (
        Argument("address", "x"), Argument("map", "m", map=0), Argument("address", "w"), Argument("scalar", "a", "f32"),
        Argument("number", "n", "u32", 8),
    )  # fmt: skip
    maps, spaces = (Map("x", "f32", (8, 64), (32,), (8, 8), 32),), (Workspace("w", 128, True, 4),)
    launch = Launch("k", "sm_90a", 4, 128, 1, 1024, arguments, tensors, maps, spaces, True)
    later = replace(launch, kernel="l", maps=(), arguments=arguments[:1])
    entries = [
        Entry(f"k{n:04}", 0, "M", POINT, replace(launch, then=(later,) * n), 1e-6, 32, 0, "d", n == 0) for n in range(2)
    ]
    kernels = [
        (e, [(b".version 8.0\n" * 50, b"\x7fELF" if e.cubin else None)] * (1 + len(e.launch.then))) for e in entries
    ]
    write_bundle(path, title="t", device="H200-SXM", made="2026, tinygpu", questions=[question], kernels=kernels)


def read_a_bundle(path: Path) -> Any:
    found = read_bundle(path)
    return [found.questions, found.entries, [found.texts(e) for e in found.entries]]


def write_profile(path: Path) -> None:
    gpu = Gpu("NVIDIA H200", "13.0", 90, 132, 2**26)
    figures = (Measured("fma", "latency", "lat_sfu", 20.0, "cycles", 0.01, "time / count", 64.0, ""),)
    save_profile(path, device("h200"), Calibration(gpu, "2026-11-21", "tinygpu calibrate", "H200-SXM", figures, ()))


def trained() -> tuple[_Run, dict[str, Any]]:
    rng = np.random.default_rng(3)
    adam = Adam(initial(INPUTS, rng))
    return _Run(adam, {n: w.copy() for n, w in adam.weights.items()}, rng), {"seed": 3, "settings": {}, "lessons": "x"}


def write_checkpoint(path: Path) -> None:
    run, header = trained()
    _save(path, header, run, 5, 1.5)


def read_checkpoint(path: Path) -> Any:
    run, header = trained()
    return _resume(path, header, run), {name: array.tobytes() for name, array in run.arrays().items()}


def read_policy(path: Path) -> Any:
    found = Policy.load(path)
    return found.provenance, {name: array.tobytes() for name, array in found.weights.items()}


def read_array(path: Path) -> Any:
    found = load_array(path)
    return found.dtype.str, found.shape, found.tobytes()


def write_anchor(path: Path) -> None:
    worker = WorkerTime(lambda points, bundle: [], path.parent / f"{path.name}.folder")
    worker._keep_anchor(POINT, Evaluation(2.5e-6))
    path.write_bytes((path.parent / f"{path.name}.folder" / "anchor.json").read_bytes())


def read_anchor(path: Path) -> Any:
    folder = path.parent / f"{path.name}.folder"
    folder.mkdir(exist_ok=True)
    (folder / "anchor.json").write_bytes(path.read_bytes())
    return WorkerTime(lambda points, bundle: [], folder)._anchor


def write_manifest(path: Path) -> None:
    folder = path.parent / f"{path.name}.folder"
    write_folder(folder, {"kernel.ptx": "1", "launch.json": "2"})
    path.write_bytes((folder / MANIFEST).read_bytes())


def read_manifest(path: Path) -> Any:
    """A damaged manifest never makes other files ours."""
    folder = path.parent / f"{path.name}.again"
    folder.mkdir(exist_ok=True)
    for name in ("kernel.ptx", "launch.json", "notes.txt"):
        (folder / name).write_text("1")
    (folder / MANIFEST).write_bytes(path.read_bytes())
    (path.parent / "x").write_text("outside")
    write_folder(folder, {"new.txt": "3"})
    assert (path.parent / "x").read_text() == "outside"
    assert (folder / "notes.txt").exists()
    return sorted(p.name for p in folder.iterdir())


def np_saved(path: Path) -> None:
    held = io.BytesIO()
    np.save(held, np.arange(24, dtype=np.float32).reshape(4, 6))
    path.write_bytes(held.getvalue())


SPECIMENS: tuple[Specimen, ...] = (
    Specimen("saved program", write_program, read_program, (), "json"),
    Specimen("run", write_run, read_run, ("tinygpu.api.report",), "json"),
    Specimen("search result", lambda p: a_result().save(p), Result.load, ("tinygpu.search.result",), "json"),
    Specimen("search result in a report", lambda p: a_result().save(p), lambda p: load_run(p).searched, (), "json"),
    Specimen("journal", write_journal, read_journal, ("tinygpu.search.journal",), "lines", keeps=True),
    Specimen("results", write_results, read_results, ("tinygpu.search.measured",), "lines", keeps=True),
    Specimen(
        "results of a run that goes on", write_results, continue_results, ("tinygpu.ptx.measuring.results",), "lines",
        keeps=True,
    ),
    Specimen("cache", write_cache, read_cache, ("tinygpu.search.cache",), "bytes"),
    Specimen(
        "kernel tuner", lambda p: save_cache(a_space(), p), read_space, ("tinygpu.search.replay.files",), "json", False,
        keeps=True,
    ),
    Specimen("kernel tuner, gz", compressed(lambda p: save_cache(a_space(), p), gzip.compress), read_space, (), "bytes",
             suffix=".gz"),
    Specimen("kernel tuner, xz", compressed(lambda p: save_cache(a_space(), p), lzma.compress), read_space, (), "bytes",
             suffix=".xz"),
    Specimen("t4", lambda p: save_t4(a_space(), p), read_space, (), "json", False),
    Specimen("bundle", write_a_bundle, read_a_bundle, ("tinygpu.ptx.measuring.bundle",), "zip"),
    Specimen("device", lambda p: device("a100").save(p), load_device, (load_device.__module__,), "json", False),
    Specimen("measured profile", write_profile, load_calibration, ("tinygpu.ptx.calibration.profile",), "json", False),
    Specimen("measured profile as a device", write_profile, load_device, (), "json", False),
    Specimen("policy", lambda p: Policy.load(SHIPPED).save(p), read_policy, ("tinygpu.search.rl.policy",), "zip"),
    Specimen("checkpoint", write_checkpoint, read_checkpoint, ("tinygpu.search.rl.train",), "zip"),
    Specimen("array", np_saved, read_array, ("tinygpu.api.arguments",), "bytes", False),
    Specimen("first candidate", write_anchor, read_anchor, ("tinygpu.search.worker_time",), "json"),
    Specimen("manifest", write_manifest, read_manifest, ("tinygpu.files.folder",), "json", False),
)  # fmt: skip
