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

from tinygpu.search.rl.forest import Forest
from tinygpu.search.rl.network import Adam, initial
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
    if steps is None and seconds is None:
        raise ValueError("training needs a budget: steps=... or seconds=...")
    if (steps is not None and steps < 1) or (seconds is not None and not seconds > 0):
        raise ValueError(f"training needs at least 1 step and more than 0 seconds, not {steps} and {seconds}")
    how = settings or Settings()
    rng = np.random.default_rng(seed)
    adam = Adam(initial(INPUTS, rng))
    header = {"seed": seed, "settings": asdict(how), "lessons": _digest(forest)}
    step, before = 0, 0.0
    if checkpoint is not None and Path(checkpoint).exists():
        step, before = _resume(Path(checkpoint), header, adam, rng)
    resumed, begun = step, clock()
    saved = begun

    def elapsed() -> float:
        return before + clock() - begun

    whole = True
    try:
        while (steps is None or step < steps) and (seconds is None or elapsed() < seconds):
            whole = False
            learned = improve(forest, adam, how, step, rng)
            step, whole = step + 1, True
            if checkpoint is not None and clock() - saved > _SECONDS_BETWEEN_CHECKPOINTS:
                _save(Path(checkpoint), header, adam, rng, step, elapsed())
                saved = clock()
            on_step(Training(step, steps, elapsed(), learned, resumed))
    finally:
        # a step that was interrupted half way is not kept: the checkpoint before it is
        if checkpoint is not None and step > resumed and whole:
            _save(Path(checkpoint), header, adam, rng, step, elapsed())
    return Policy(adam.weights, {**header, "steps": step, "triples": len(forest), **(facts or {})})


def _digest(forest: Forest) -> str:
    """A short name of the lessons, by machine, problem and device, and of their rewards."""
    made = hashlib.sha256(json.dumps(forest.names).encode())
    made.update(forest.rewards.tobytes())
    return made.hexdigest()[:16]


def _save(
    path: Path, header: Mapping[str, Any], adam: Adam, rng: np.random.Generator, step: int, seconds: float
) -> None:
    arrays = {f"weights/{k}": v for k, v in adam.weights.items()}
    arrays |= {f"mean/{k}": v for k, v in adam.mean.items()}
    arrays |= {f"square/{k}": v for k, v in adam.square.items()}
    state = {"step": step, "adam steps": adam.steps, "seconds": seconds, "random": rng.bit_generator.state}
    write_archive(path, arrays, _CHECKPOINT, {**header, **state})


def _resume(path: Path, header: Mapping[str, Any], adam: Adam, rng: np.random.Generator) -> tuple[int, float]:
    arrays, facts = read_archive(path, _CHECKPOINT)
    for name, wanted in header.items():
        if facts.get(name) != wanted:
            raise ValueError(
                f"[{path}] this checkpoint belongs to another training: its {name} is {facts.get(name)!r}, not "
                f"{wanted!r}; give another file, or delete it"
            )
    for name, array in arrays.items():
        kind, _, key = name.partition("/")
        {"weights": adam.weights, "mean": adam.mean, "square": adam.square}[kind][key][...] = array
    adam.steps = int(facts["adam steps"])
    rng.bit_generator.state = facts["random"]
    return int(facts["step"]), float(facts["seconds"])
