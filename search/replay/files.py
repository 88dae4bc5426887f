"""Files of measured spaces: the cache files of Kernel Tuner, and the T4 results format of the autotuning community.

Sources: Kernel Tuner's documentation, "Caching" (a cache file is a JSON object whose last member is the cache; the
closing brackets may be missing, because entries are appended), and the JSON schema of T4, version 1.0.0.

Points have integers and words. Another value of a parameter (a fraction, a truth value) becomes the word that it is
written as.
"""

from __future__ import annotations

import gzip
import json
import lzma
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tinygpu.files import FileError
from tinygpu.files.error import excerpt
from tinygpu.files.reading import TABLE_BYTES, expanded, read_file
from tinygpu.files.schema import decoded_as, versions
from tinygpu.files.writing import write_file
from tinygpu.search.evaluation import Evaluation, Failure, Trial
from tinygpu.search.replay.figure import TIME, Figure, chosen_figure, finite
from tinygpu.search.replay.space import ReplaySpace
from tinygpu.search.searchable import Value

# Kernel Tuner's name of a failure -> ours, which is T4's.
_CACHE_FAILURES = {
    "CompilationFailedConfig": "compile",
    "RuntimeFailedConfig": "runtime",
    "InvalidConfig": "constraints",
    "ErrorConfig": "runtime",
}
# T4's names of what is wrong with a configuration -> a sentence.
_SENTENCES = {
    "timeout": "it took too long",
    "compile": "it did not compile",
    "runtime": "it failed when it ran",
    "correctness": "its result was wrong",
    "constraints": "it breaks a constraint of its kernel",
}
_T4_VERSION = "1.0.0"
# Names of units in files, some as they are often misspelled -> ours.
_UNITS = {"milliseconds": "ms", "miliseconds": "ms", "seconds": "s", "microseconds": "us"}


def load_replay(path: str | Path, objective: str | None = None) -> ReplaySpace:
    """The space that a cache file or a T4 file holds; it may be compressed (.xz, .gz).

    objective  which of the measured figures is the value; by default the one that the file names, else "time". Where
               more of it is better, the value is the inverse of a rate ("GFLOP/s"), and the negative of another figure;
               of a file that names nothing but rates, the time is taken if it was measured

    Raises FileError.
    """
    file = Path(path)
    where = str(file)
    data = _finite_only(expanded(read_file(file, TABLE_BYTES), file.suffix, where))
    kinds = versions(data, ("cache", "results"), raw=True)
    if not kinds:
        # a cache file to which entries were still being appended
        closed = data.rstrip().rstrip(b",") + b"}}"
        kinds = versions(closed, ("cache", "results"), raw=True)
        data = closed if kinds else data
    if bytes(kinds.get("results", b""))[:1] == b"[":
        return _from_t4(file, decoded_as(_T4File, data, where, beside=None), objective)
    if bytes(kinds.get("cache", b""))[:1] == b"{":
        return _from_cache(file, decoded_as(_CacheFile, data, where, beside=None), objective)
    if data.lstrip()[:1] != b"{":
        raise FileError(f"{file} is no JSON object, as a cache file of Kernel Tuner and a T4 file are")
    decoded_as(_Nothing, data, where, beside=None)
    raise FileError(f"{file} is neither a cache file of Kernel Tuner (a 'cache') nor T4 (a list 'results')")


def save_cache(space: ReplaySpace, path: str | Path) -> None:
    """Write a space as a cache file that Kernel Tuner reads, in simulation mode too."""
    cache = {}
    for trial in space.trials:
        key = ",".join(str(trial.point[name]) for name in space.names)
        cache[key] = dict(trial.point) | _cache_value(trial, space.objective)
    data = {
        "device_name": space.device,
        "kernel_name": space.kernel,
        "problem_size": list(space.problem),
        "tune_params_keys": list(space.names),
        "tune_params": {name: list(values) for name, values in space.parameters.items()},
        "objective": space.objective,
        "cache": cache,
    }
    # without indentation but with line breaks: that is how Kernel Tuner sees that the file is closed
    _write(Path(path), json.dumps(data, indent=""))


def save_t4(space: ReplaySpace, path: str | Path) -> None:
    """Write a space as T4 results."""
    results = []
    for trial in space.trials:
        results.append(
            {
                "configuration": dict(trial.point),
                "times": {"runtimes": [] if trial.value is None or space.objective != "time" else [trial.value]},
                "invalidity": "correct" if trial.failure is None else _invalidity(trial.failure),
                "correctness": 0 if trial.failure is not None and trial.failure.kind == "correctness" else 1,
                "measurements": []
                if trial.value is None
                else [{"name": space.objective, "value": trial.value, "unit": space.unit}],
                "objectives": [space.objective],
            }
        )
    units = {"ms": "milliseconds", "s": "seconds", "us": "microseconds"}
    metadata = {"kernel": space.kernel, "device": space.device, "problem_size": list(space.problem)}
    if space.unit in units:
        metadata["timeunit"] = units[space.unit]
    _write(Path(path), json.dumps({"results": results, "schema_version": _T4_VERSION, "metadata": metadata}))


# -- reading --------------------------------------------------------------------------------------------------------

# Entries are decoded one at a time, and twice: a large space takes many times its bytes as Python objects.
_NOT_FINITE = re.compile(rb'"(?:[^"\\]|\\.)*"|NaN|-?Infinity', re.S)
_Measured = float | int | str | bool | None | list[Any] | dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Nothing:
    """Takes any JSON object, and nothing of it."""


@dataclass(frozen=True, slots=True)
class _CacheFile:
    """What is taken of a cache file of Kernel Tuner; an entry may be an object or the measured figure alone."""

    cache: dict[str, msgspec.Raw]
    tune_params: dict[str, list[Any]] | None = None
    tune_params_keys: list[str] | None = None
    objective: str | list[str] | None = None
    kernel_name: str | None = None
    device_name: str | None = None
    problem_size: Any = None


@dataclass(frozen=True, slots=True)
class _T4File:
    """What is taken of a T4 file."""

    results: list[msgspec.Raw]
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _T4Measurement:
    name: str | None = None
    value: _Measured = None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class _T4Times:
    runtimes: list[float] | None = None


@dataclass(frozen=True, slots=True)
class _T4Result:
    """One configuration with what was measured of it."""

    configuration: dict[str, Any]
    invalidity: str
    measurements: list[_T4Measurement] | None = None
    times: _T4Times | None = None
    objectives: list[str] | None = None


def _finite_only(data: bytes) -> bytes:
    """NaN and infinities, which Kernel Tuner writes and JSON has no word for, as null: nothing was measured."""
    if b"NaN" not in data and b"Infinity" not in data:
        return data
    return _NOT_FINITE.sub(lambda found: found[0] if found[0].startswith(b'"') else b"null", data)


def _entries(file: Path, data: _CacheFile) -> Iterator[tuple[str, Any]]:
    for key, raw in data.cache.items():
        yield key, decoded_as(_Measured, bytes(raw), f"{file}, the entry {excerpt(key)}")  # type: ignore[arg-type]


def _from_cache(file: Path, data: _CacheFile, objective: str | None) -> ReplaySpace:
    measured = {name for _, entry in _entries(file, data) if isinstance(entry, dict) for name in entry}
    figure = chosen_figure(objective, data.objective, measured)
    offered = data.tune_params or {}
    names = data.tune_params_keys or list(offered)
    if not names:
        raise FileError(f"{file} does not say what its parameters are ('tune_params_keys')")
    if len({*names}) != len(names):
        raise FileError(f"{file} names a parameter twice in its 'tune_params_keys'")
    texts = {name: {str(value): value for value in values} for name, values in offered.items()}
    trials: dict[tuple[Value, ...], Trial] = {}
    for key, found in _entries(file, data):
        entry = found if isinstance(found, dict) else {figure.name: found}
        parts = key.split(",")
        point = {}
        for number, name in enumerate(names):
            if name in entry:
                point[name] = _value(file, entry[name])
            elif len(parts) == len(names):
                text = parts[number]
                point[name] = _value(file, texts.get(name, {}).get(text, _number_or_text(text)))
            else:
                raise FileError(f"{file}: the entry {excerpt(key)} has no value for {name}")
        trials.setdefault(tuple(point.values()), Trial(point, _cache_evaluation(entry, figure)))
    return _space(
        file,
        list(trials.values()),
        {name: [_value(file, v) for v in offered[name]] for name in names} if set(names) <= set(offered) else None,
        kernel=data.kernel_name or "",
        device=data.device_name or "",
        problem=_sizes(data.problem_size),
        objective=figure.objective,
        unit="ms" if figure.name.startswith("time") else "",
    )


def _results(file: Path, data: _T4File) -> Iterator[_T4Result]:
    for number, raw in enumerate(data.results):
        where = f"{file}, result {number}"
        members = versions(bytes(raw), ("configuration", "invalidity"), raw=True)
        if len(members) < 2:
            raise FileError(f"{file}: result {number} has no 'configuration' or no 'invalidity'")
        yield decoded_as(_T4Result, bytes(raw), where, beside=None)


def _from_t4(file: Path, data: _T4File, objective: str | None) -> ReplaySpace:
    metadata = data.metadata or {}
    trials: dict[frozenset[tuple[str, Value]], Trial] = {}
    figure, unit = _t4_figure(_results(file, data), objective), ""
    for result in _results(file, data):
        point = {name: _value(file, value) for name, value in result.configuration.items()}
        evaluation = Evaluation(failure=_failure(result.invalidity))
        if result.invalidity == "correct":
            measured = {m.name: m for m in result.measurements or ()}
            found = measured.get(figure.name, _T4Measurement())
            value = figure.value(found.value)
            unit = unit or found.unit or ""
            runtimes = (result.times.runtimes if result.times is not None else None) or []
            if value is None and figure.name == TIME and runtimes:
                value = figure.value(sum(runtimes) / len(runtimes))
            if value is None:
                sentence = f"its {figure.name} was not measured"
                evaluation = Evaluation(failure=Failure("runtime", sentence))
            else:
                evaluation = Evaluation(value)
        trials.setdefault(frozenset(point.items()), Trial(point, evaluation))
    if figure.name == TIME:
        unit = unit or str(metadata.get("timeunit") or "")
    return _space(
        file,
        list(trials.values()),
        None,
        kernel=str(metadata.get("kernel", "")),
        device=str(metadata.get("device", "")),
        problem=_sizes(metadata.get("problem_size")),
        objective=figure.objective,
        unit=_UNITS.get(unit, unit) if figure.less_is_better else "",
    )


def _t4_figure(results: Iterable[_T4Result], objective: str | None) -> Figure:
    """What the results are searched for; the first one that names objectives speaks for all."""
    named: list[str] | None = None
    measured: set[str] = set()
    for result in results:
        named = named or result.objectives
        measured |= {m.name for m in result.measurements or () if m.name is not None}
        if result.times is not None and result.times.runtimes:
            measured.add(TIME)
    return chosen_figure(objective, named, measured)


def _space(
    file: Path, trials: list[Trial], parameters: Mapping[str, Sequence[Value]] | None, **facts: Any
) -> ReplaySpace:
    if not trials:
        raise FileError(f"{file} holds no measurement")
    try:
        return ReplaySpace(trials, parameters=parameters, **facts)
    except ValueError as refused:
        raise FileError(f"{file}: {refused}") from None


def _cache_evaluation(entry: Mapping[str, Any], figure: Figure) -> Evaluation:
    # a configuration that failed has the failure's name in the place of what it was tuned for
    for name in (entry.get("__error__"), entry.get(figure.name), entry.get(TIME)):
        if isinstance(name, str) and finite(name) is None:
            return Evaluation(failure=_failure(_CACHE_FAILURES.get(name, name)))
    value = figure.value(entry.get(figure.name))
    if value is None:
        return Evaluation(failure=Failure("runtime", f"its {figure.name} was not measured"))
    return Evaluation(value)


def _failure(kind: str) -> Failure:
    return Failure(kind or "runtime", _SENTENCES.get(kind, f"it failed: {kind}"))


def _value(file: Path, value: Any) -> Value:
    if isinstance(value, int) and not isinstance(value, bool):
        if not -(2**63) <= value < 2**63:
            raise FileError(f"{file}: a parameter has the value {excerpt(value)}, which takes more than 64 bits")
        return value
    return value if isinstance(value, str) else str(value)


def _number_or_text(text: str) -> Value:
    try:
        return int(text)
    except ValueError:
        return text


def _sizes(problem: Any) -> list[int]:
    if isinstance(problem, int):
        return [problem]
    return list(problem) if isinstance(problem, list) and all(isinstance(size, int) for size in problem) else []


# -- writing --------------------------------------------------------------------------------------------------------


def _cache_value(trial: Trial, objective: str) -> dict[str, Any]:
    if trial.failure is None:
        return {objective: trial.value}
    names = {kind: name for name, kind in reversed(_CACHE_FAILURES.items())}
    name = names.get(trial.failure.kind, "RuntimeFailedConfig")
    return {objective: name, "__error__": name}


def _invalidity(failure: Failure) -> str:
    return failure.kind if failure.kind in _SENTENCES else "runtime"


def _write(target: Path, text: str) -> None:
    """The file is there whole or not at all, and replaces nothing but a measured space."""
    data = text.encode()
    if target.suffix in (".xz", ".gz"):
        data = lzma.compress(data) if target.suffix == ".xz" else gzip.compress(data)
    begins = {".xz": b"\xfd7zXZ\0", ".gz": b"\x1f\x8b"}.get(target.suffix, b"{")
    write_file(target, data, (begins,), "a measured space")
