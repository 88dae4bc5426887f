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
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal

from tinygpu.search.evaluation import Evaluation, Failure, Trial
from tinygpu.search.replay import ReplaySpace
from tinygpu.search.replay_figure import TIME, Figure, chosen_figure, finite
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


class NotMeasurements(ValueError):
    """A file that holds no measured space; the message says why."""


def load_replay(path: str | Path, objective: str | None = None) -> ReplaySpace:
    """The space that a cache file or a T4 file holds; it may be compressed (.xz, .gz).

    objective  which of the measured figures is the value; by default the one that the file names, else "time". Where
               more of it is better, the value is the inverse of a rate ("GFLOP/s"), and the negative of another figure;
               of a file that names nothing but rates, the time is taken if it was measured

    Raises NotMeasurements.
    """
    file = Path(path)
    text = _read(file)
    try:
        data = json.loads(text)
    except ValueError:
        data = _closed(file, text)
    if isinstance(data, dict) and isinstance(data.get("results"), list):
        return _from_t4(file, data, objective)
    if isinstance(data, dict) and isinstance(data.get("cache"), dict):
        return _from_cache(file, data, objective)
    raise NotMeasurements(f"{file} is neither a cache file of Kernel Tuner (a 'cache') nor T4 (a list 'results')")


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


def _read(file: Path) -> str:
    try:
        with _open(file, file.suffix, "rt") as opened:
            return opened.read()
    except (OSError, UnicodeDecodeError, lzma.LZMAError, EOFError) as error:
        raise NotMeasurements(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _open(file: Path, suffix: str, mode: Literal["rt", "wt"]) -> IO[str]:
    """Compressed or not, by the suffix of the file's name."""
    if suffix == ".xz":
        return lzma.open(file, mode, encoding="utf-8")
    if suffix == ".gz":
        return gzip.open(file, mode, encoding="utf-8")
    return open(file, mode, encoding="utf-8")


def _closed(file: Path, text: str) -> Any:
    """A cache file to which entries were still being appended."""
    try:
        return json.loads(text.rstrip().rstrip(",") + "}}")
    except ValueError as error:
        raise NotMeasurements(f"{file} is not JSON: {error}") from None


def _from_cache(file: Path, data: Mapping[str, Any], objective: str | None) -> ReplaySpace:
    named = data.get("objective")
    measured = {name for entry in data["cache"].values() if isinstance(entry, dict) for name in entry}
    figure = chosen_figure(objective, named, measured)
    entries = {key: entry if isinstance(entry, dict) else {figure.name: entry} for key, entry in data["cache"].items()}
    offered = data.get("tune_params") or {}
    names = data.get("tune_params_keys") or list(offered)
    if not names:
        raise NotMeasurements(f"{file} does not say what its parameters are ('tune_params_keys')")
    texts = {name: {str(value): value for value in values} for name, values in offered.items()}
    trials: dict[tuple[Value, ...], Trial] = {}
    for key, entry in entries.items():
        parts = key.split(",")
        point = {}
        for number, name in enumerate(names):
            if name in entry:
                point[name] = _value(entry[name])
            elif len(parts) == len(names):
                text = parts[number]
                point[name] = _value(texts.get(name, {}).get(text, _number_or_text(text)))
            else:
                raise NotMeasurements(f"{file}: the entry {key!r} has no value for {name}")
        trials.setdefault(tuple(point.values()), Trial(point, _cache_evaluation(entry, figure)))
    return _space(
        file,
        list(trials.values()),
        {name: [_value(v) for v in offered[name]] for name in names} if set(names) <= set(offered) else None,
        kernel=str(data.get("kernel_name", "")),
        device=str(data.get("device_name", "")),
        problem=_sizes(data.get("problem_size")),
        objective=figure.objective,
        unit="ms" if figure.name.startswith("time") else "",
    )


def _from_t4(file: Path, data: Mapping[str, Any], objective: str | None) -> ReplaySpace:
    metadata = data.get("metadata") or {}
    trials: dict[frozenset[tuple[str, Value]], Trial] = {}
    figure, unit = _t4_figure(data["results"], objective), ""
    for number, result in enumerate(data["results"]):
        try:
            point = {name: _value(value) for name, value in result["configuration"].items()}
            invalidity = str(result["invalidity"])
        except (KeyError, TypeError, AttributeError):
            raise NotMeasurements(f"{file}: result {number} has no 'configuration' or no 'invalidity'") from None
        evaluation = Evaluation(failure=_failure(invalidity))
        if invalidity == "correct":
            measured = {m.get("name"): m for m in result.get("measurements") or ()}
            value = figure.value(measured.get(figure.name, {}).get("value"))
            unit = unit or str(measured.get(figure.name, {}).get("unit") or "")
            runtimes = (result.get("times") or {}).get("runtimes") or []
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


def _t4_figure(results: Sequence[Any], objective: str | None) -> Figure:
    """What the results are searched for; the first one that names objectives speaks for all."""
    told = [result for result in results if isinstance(result, dict)]
    named = next((result["objectives"] for result in told if result.get("objectives")), None)
    measured = {m.get("name") for result in told for m in result.get("measurements") or ()}
    if any((result.get("times") or {}).get("runtimes") for result in told):
        measured.add(TIME)
    return chosen_figure(objective, named, measured)


def _space(
    file: Path, trials: list[Trial], parameters: Mapping[str, Sequence[Value]] | None, **facts: Any
) -> ReplaySpace:
    if not trials:
        raise NotMeasurements(f"{file} holds no measurement")
    try:
        return ReplaySpace(trials, parameters=parameters, **facts)
    except ValueError as refused:
        raise NotMeasurements(f"{file}: {refused}") from None


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


def _value(value: Any) -> Value:
    return value if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)) else str(value)


def _number_or_text(text: str) -> Value:
    try:
        return int(text)
    except ValueError:
        return text


def _sizes(problem: Any) -> list[int]:
    if isinstance(problem, int):
        return [problem]
    return [int(size) for size in problem] if isinstance(problem, list) and all(map(_is_size, problem)) else []


def _is_size(value: Any) -> bool:
    return isinstance(value, int)


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
    """The file is there whole or not at all."""
    draft = target.with_name(target.name + f".{os.getpid()}.draft")
    with _open(draft, target.suffix, "wt") as opened:
        opened.write(text)
    draft.replace(target)
