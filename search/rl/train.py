"""Training: steps of policy optimisation over a forest, with checkpoints from which an interrupted run goes on."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tinygpu.files import FileError
from tinygpu.files.shape import picked
from tinygpu.search.rl.forest import Forest
from tinygpu.search.rl.network import Adam, Array, initial
from tinygpu.search.rl.policy import INPUTS, Policy, read_archive, write_archive
from tinygpu.search.rl.ppo import Learned, Settings, improve

_CHECKPOINT = "tinygpu training 1"
_SECONDS_BETWEEN_CHECKPOINTS = 30.0


@dataclass(frozen=True, slots=True)
class Training:
    """Where a training stands.

    step, steps  done, and how many there will be at most; None where only time ends it
    seconds      so far, earlier runs included
    learned      figures of the last step
    resumed      the step from which this run went on
    """

    step: int
    steps: int | None
    seconds: float
    learned: Learned
    resumed: int


def check_budget(steps: int | None, seconds: float | None) -> None:
    """Raises ValueError where a training would have no end, or none of its steps."""
    if steps is None and seconds is None:
        raise ValueError("training needs a budget: steps=... or seconds=...")
    if (steps is not None and steps < 1) or (seconds is not None and not seconds > 0):
        given = {"steps": steps, "seconds": seconds}
        told = " and ".join(f"{value:g} {name}" for name, value in given.items() if value is not None)
        raise ValueError(f"training needs at least 1 step and more than 0 seconds, not {told}")


def train(
    forest: Forest,
    *,
    seed: int = 0,
    steps: int | None = None,
    seconds: float | None = None,
    settings: Settings | None = None,
    checkpoint: str | Path | None = None,
    facts: Mapping[str, Any] | None = None,
    on_step: Callable[[Training], None] = lambda training: None,
    clock: Callable[[], float] = time.monotonic,
) -> Policy:
    """A policy for the lessons of `forest`.

    seed        of the first weights and of every draw: the same seed, lessons and number of steps give the same weights
    steps       how many steps are taken; the first steps of a longer training are those of a shorter one
    seconds     time after which no further step is begun; earlier runs count
    checkpoint  a file that is written every half minute and at the end; a training that was cut and is called again
                goes on from there, with the weights of one that was never cut
    facts       what the policy's provenance says beside seed, steps, settings and lessons

    Raises ValueError without a budget, and for the checkpoint of another training.
    """
    check_budget(steps, seconds)
    how = settings or Settings()
    rng = np.random.default_rng(seed)
    adam = Adam(initial(INPUTS, rng))
    header = {"seed": seed, "settings": asdict(how), "lessons": _digest(forest)}
    mean = {name: weight.copy() for name, weight in adam.weights.items()}
    run = _Run(adam, mean, rng)
    step, before = 0, 0.0
    if checkpoint is not None and Path(checkpoint).exists():
        step, before = _resume(Path(checkpoint), header, run)
    resumed, begun = step, clock()
    saved = begun

    def elapsed() -> float:
        return before + clock() - begun

    whole = True
    try:
        while (steps is None or step < steps) and (seconds is None or elapsed() < seconds):
            whole = False
            learned = improve(forest, adam, how, step, rng)
            step += 1
            kept = min(how.memory, step / (step + 4))
            for name, weight in adam.weights.items():
                mean[name] += np.float32(1 - kept) * (weight - mean[name])
            whole = True
            if checkpoint is not None and clock() - saved > _SECONDS_BETWEEN_CHECKPOINTS:
                _save(Path(checkpoint), header, run, step, elapsed())
                saved = clock()
            on_step(Training(step, steps, elapsed(), learned, resumed))
    finally:
        # a step that was interrupted half way is not kept: the checkpoint before it is
        if checkpoint is not None and step > resumed and whole:
            _save(Path(checkpoint), header, run, step, elapsed())
    return Policy(mean, {**header, "steps": step, "lessons learned": len(forest), **(facts or {})})


def _digest(forest: Forest) -> str:
    """A short name of the lessons, by machine, problem and device, and of their rewards."""
    made = hashlib.sha256(json.dumps(forest.names).encode())
    made.update(forest.rewards.tobytes())
    return made.hexdigest()[:16]


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """All that changes from step to step; `mean` is the running mean of the weights."""

    adam: Adam
    mean: dict[str, Array]
    rng: np.random.Generator

    def arrays(self) -> dict[str, Array]:
        adam = self.adam
        kinds = {"weights": adam.weights, "mean": adam.mean, "square": adam.square, "policy": self.mean}
        return {f"{kind}/{name}": array for kind, arrays in kinds.items() for name, array in arrays.items()}


@dataclass(frozen=True, slots=True)
class _State:
    """Where a training stood, as its checkpoint says."""

    step: int
    adam_steps: int
    seconds: float
    random: Mapping[str, Any]

    def __post_init__(self) -> None:
        if min(self.step, self.adam_steps, self.seconds) < 0:
            raise ValueError("steps and seconds are not negative")


def _save(path: Path, header: Mapping[str, Any], run: _Run, step: int, seconds: float) -> None:
    state = {"step": step, "adam steps": run.adam.steps, "seconds": seconds, "random": run.rng.bit_generator.state}
    write_archive(path, run.arrays(), _CHECKPOINT, {**header, **state})


def _resume(path: Path, header: Mapping[str, Any], run: _Run) -> tuple[int, float]:
    arrays, facts = read_archive(path, _CHECKPOINT)
    for name, wanted in header.items():
        if facts.get(name) != wanted:
            raise FileError(
                f"{path}: this checkpoint belongs to another training: its {name} is {facts.get(name)!r}, not "
                f"{wanted!r}; give another file, or delete it"
            )
    wanted = run.arrays()
    if {n: (a.shape, a.dtype) for n, a in arrays.items()} != {n: (a.shape, a.dtype) for n, a in wanted.items()}:
        raise FileError(f"{path} is damaged: its arrays are not those of a training; delete it, or give another file")
    state = picked(_State, {name.replace(" ", "_"): value for name, value in facts.items()}, str(path))
    try:
        run.rng.bit_generator.state = state.random
    except (KeyError, TypeError, ValueError, OverflowError):
        raise FileError(f"{path} is damaged: its random state is none; delete it, or give another file") from None
    for name, array in wanted.items():
        array[...] = arrays[name]
    run.adam.steps = state.adam_steps
    return state.step, state.seconds
