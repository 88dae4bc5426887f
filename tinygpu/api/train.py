"""Train: the policy of the strategy "rl", over many machines, problems and devices."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from tinygpu.api.machines import family, machines_of
from tinygpu.devices import Device, devices
from tinygpu.files.writing import check_replaceable
from tinygpu.language.problem import ProblemError
from tinygpu.search.rl.forest import Forest, Lesson
from tinygpu.search.rl.lesson import NothingToLearn, lessons_of
from tinygpu.search.rl.policy import BEGINS, Policy
from tinygpu.search.rl.train import Training, check_budget, train
from tinygpu.seeds import check_seed
from tinygpu.spaces.build import MachineSpace, build_space

# Devices that the shipped policy never saw: one of each generation, and one of each kind of odd balance.
HELD_OUT_DEVICES: tuple[str, ...] = (
    "A100-SXM4-80GB",
    "RTX-3090",
    "L40S",
    "H100-PCIe",
    "H20-96GB",
    "RTX-PRO-6000-Blackwell",
)
# How often each machine comes in training.
SHARES: Mapping[str, float] = {
    "matmul_ampere": 0.38,
    "matmul_hopper": 0.24,
    "matmul_skinny": 0.08,
    "matmul_simt": 0.20,
    "bias_relu": 0.06,
    "axpby": 0.04,
}
_DTYPES: Mapping[str, tuple[str, ...]] = {
    "matmul_ampere": ("f16", "bf16", "f16", "bf16", "tf32", "s8"),
    "matmul_hopper": ("f16", "bf16", "f16", "bf16", "tf32", "e4m3", "s8"),
    "matmul_skinny": ("f16", "bf16", "f16", "bf16", "tf32", "e4m3", "s8"),
    "matmul_simt": ("f32",),
}
# Compute capabilities whose devices have a machine's instructions, where that is not all of them.
_CAPABLE: Mapping[str, range] = {"matmul_hopper": range(90, 91), "matmul_skinny": range(90, 1000)}


@dataclass(frozen=True, slots=True)
class Triple:
    """A machine, a problem and a device, by name."""

    machine: str
    dims: Mapping[str, int]
    device: str
    dtypes: Mapping[str, str] = field(default_factory=dict)
    majors: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        words = [*(f"{k}={v}" for k, v in self.dims.items()), *self.dtypes.values()]
        words += [f"{k}:{v}" for k, v in self.majors.items()]
        return f"{self.machine} {','.join(words)} on {self.device}"

    def space(self) -> MachineSpace:
        """Raises ProblemError where the machine cannot take the problem."""
        (machine,) = machines_of(*family(self.machine).machines)
        problem = machine.problem(dtypes=dict(self.dtypes), majors=dict(self.majors), **self.dims)
        return build_space(machine, problem, _named(self.device))


def _named(name: str) -> Device:
    return next(d for d in devices() if d.name == name)


def draw_triples(seed: int, *, held_out: bool = False, shares: Mapping[str, float] = SHARES) -> Iterator[Triple]:
    """Random triples without end, each with a space that is not empty.

    held_out  on the held-out devices alone; else on all others. The sizes come from different draws.
    """
    rng = np.random.default_rng([seed, int(held_out)])
    there = [d for d in devices() if d.cc >= 80 and (d.name in HELD_OUT_DEVICES) == held_out]
    names, weights = list(shares), np.array(list(shares.values()))
    while True:
        machine = names[int(rng.choice(len(names), p=weights / weights.sum()))]
        able = [d for d in there if d.cc in _CAPABLE.get(machine, range(80, 1000))]
        device = able[int(rng.integers(len(able)))]
        kinds = _DTYPES.get(machine, ())
        dtypes = {"a": kinds[int(rng.integers(len(kinds)))]} if len(kinds) > 1 else {}
        majors = {}
        if machine.startswith("matmul"):
            majors = {name: str(rng.choice(["row", "col"], p=[0.7, 0.3])) for name in ("a", "b")}
        triple = Triple(machine, _sizes(machine, rng), device.name, dtypes, majors)
        try:
            usable = triple.space().space.size > 0
        except ProblemError:
            continue
        if usable:
            yield triple


def _sizes(machine: str, rng: np.random.Generator) -> dict[str, int]:
    """Sizes as they occur: spread evenly over a logarithmic scale, most of them multiples of 8 or more."""

    def size(low: int, high: int) -> int:
        raw = float(np.exp(rng.uniform(np.log(low), np.log(high))))
        step = int(rng.choice([8, 16, 64, 128, 256], p=[0.1, 0.15, 0.25, 0.3, 0.2]))
        return max(step, round(raw / step) * step)

    if machine == "axpby":
        return {"n": size(1 << 16, 1 << 27)}
    if machine == "bias_relu":
        return {"m": size(128, 16_384), "n": size(128, 16_384)}
    most = 4_096 if machine == "matmul_simt" else 16_384
    if machine == "matmul_skinny":
        return {"m": int(rng.choice([1, 2, 4, 8, 16, 32, 48, 64])), "n": size(128, most), "k": size(128, most)}
    return {"m": size(128, most), "n": size(128, most), "k": size(128, most)}


@dataclass(frozen=True, slots=True)
class Curriculum:
    """What a policy is trained on.

    seed      of the triples, of the points that are seen, and of imagined devices
    triples   how many machines, problems and devices
    imagined  lessons over the points of each triple on devices with other rates, beside the real one
    points    that are seen of each space at most
    shares    how often each machine comes
    """

    seed: int = 0
    triples: int = 400
    imagined: int = 1
    points: int = 4_096
    shares: Mapping[str, float] = field(default_factory=lambda: dict(SHARES))

    def __post_init__(self) -> None:
        check_seed(self.seed)


def lessons(curriculum: Curriculum, on_lesson: Callable[[str], None] = lambda name: None) -> list[Lesson]:
    """The lessons of a curriculum; a few seconds for each triple. `on_lesson` is told the name of each triple."""
    rng = np.random.default_rng(curriculum.seed)
    found: list[Lesson] = []
    for triple in itertools.islice(draw_triples(curriculum.seed, shares=curriculum.shares), curriculum.triples):
        on_lesson(str(triple))
        # A triple of which no candidate can be launched teaches nothing.
        with suppress(NothingToLearn):
            found += lessons_of(triple.space(), rng, curriculum.points, curriculum.imagined)
    return found


# With these the policy that ships was trained.
SHIPPED_STEPS = 450


def train_policy(
    out: Path,
    curriculum: Curriculum,
    *,
    steps: int | None = SHIPPED_STEPS,
    seconds: float | None = None,
    checkpoint: Path | None = None,
    on_lesson: Callable[[str], None] = lambda name: None,
    on_step: Callable[[Training], None] = lambda training: None,
) -> Policy:
    """Trains a policy on a curriculum and saves it as `out`, with its provenance inside.

    The same curriculum and number of steps give the same file. A training that was cut goes on from `checkpoint`; its
    lessons are made again.

    Raises ValueError before any lesson is made where the budget is none, or `out` has no folder.
    """
    check_budget(steps, seconds)
    for file in (out, checkpoint or out):
        if not file.parent.is_dir():
            raise ValueError(f"{file.parent} is not a folder, and {file.name} would be written there in the end")
    check_replaceable(out, BEGINS, "a policy")
    if checkpoint is not None:
        check_replaceable(checkpoint, BEGINS, "a checkpoint of a training")
    forest = Forest(lessons(curriculum, on_lesson))
    facts = {
        "curriculum": asdict(curriculum),
        "machines": list(curriculum.shares),
        "devices held out": list(HELD_OUT_DEVICES),
        "names": sorted(set(forest.names)),
    }
    policy = train(
        forest,
        seed=curriculum.seed,
        steps=steps,
        seconds=seconds,
        checkpoint=checkpoint,
        facts=facts,
        on_step=on_step,
    )
    policy.save(out)
    return policy
