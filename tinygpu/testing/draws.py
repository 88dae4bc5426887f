"""Draws problems of any machine, the simple ones first.

What is drawn is written once, over a *draw*: a function that picks one of some options, of which the earlier are the
simpler. `SeededDraw` picks at random; hypothesis (see `strategies`) picks so that it can shrink towards the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tinygpu.devices import Device, device
from tinygpu.dtypes import DType
from tinygpu.language.declared import Declared
from tinygpu.language.posing import problem
from tinygpu.language.problem import Problem
from tinygpu.language.tensors import TensorDeclaration

Draw: TypeAlias = Callable[[Sequence[Any]], Any]

# One, primes, powers of two and their neighbours, and multiples of tiles: sizes at which edges differ.
SIZES: tuple[int, ...] = (1, 2, 3, 5, 7, 8, 13, 16, 31, 32, 33, 37, 48, 61, 64, 65, 67, 96, 100, 127, 128, 129, 160)
# Elements between the rows of a tensor beyond its contiguous elements; -1: whole 64-byte pieces.
GAPS: tuple[int, ...] = (0, -1, 1, 3, 8)
ALIGNMENTS_BYTES: tuple[int, ...] = (16, 256, 32, 8, 4, 2, 1)
# Half of the problems have rows and pointers like these, because one odd operand already forbids wide vectors.
PLAIN_GAPS: tuple[int, ...] = (0, -1)
PLAIN_ALIGNMENTS_BYTES: tuple[int, ...] = (16, 256)
# One device per generation that machines are emitted for: sm_80, sm_86, sm_89, sm_90, sm_120, sm_100.
DEVICES: tuple[str, ...] = ("a100", "a10", "rtx-4090", "h100-sxm5", "rtx-5090", "b200")


@dataclass(frozen=True, slots=True)
class SeededDraw:
    """Picks uniformly, repeatably by the generator's seed."""

    rng: np.random.Generator

    def __call__(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]


def draw_problem(
    machine: type[Declared],
    draw: Draw,
    sizes: Sequence[int] = SIZES,
    *,
    plain: bool = False,
    like: Problem | None = None,
) -> Problem:
    """A problem: any dims, every dtype, order and option on offer, odd pitches and strides, low alignments.

    sizes  what a dim can be, the simplest first
    plain  with the machine's default types, orders and options
    like   a problem whose types, orders and options this one has too

    Raises ProblemError for a combination that the machine refuses.
    """
    follow = {d.name for d in machine.following_dims()}
    dims = {name: int(draw(values or sizes)) for name, values in machine.dim_values().items() if name not in follow}
    copied = machine.problem(**dims) if plain else like
    options = dict(copied.options) if copied else {o.name: draw(o.values) for o in machine.option_declarations()}
    known = {o.name: o for o in copied.operands} if copied else {}
    kinds: dict[str, DType] = {}
    majors: dict[str, str] = {}
    lds: dict[str, int] = {}
    strides: dict[str, dict[int, int]] = {}
    aligns: dict[str, int] = {}
    gaps, alignments = draw([(PLAIN_GAPS, PLAIN_ALIGNMENTS_BYTES), (GAPS, ALIGNMENTS_BYTES)])
    every = machine.problem(**dims, options=options).dim
    for t in machine.tensor_declarations():
        kind = kinds[t.name] = known[t.name].dtype if t.name in known else draw(dtypes_on_offer(t, kinds))
        majors[t.name] = known[t.name].major if t.name in known else draw(t.majors)
        shape, order = t.shape(every, options), t.order(majors[t.name])
        contiguous = shape[order[0]]
        if len(shape) == 2:
            lds[t.name] = contiguous + gap_elems(draw(gaps), contiguous, kind)
        if len(shape) > 2:
            strides[t.name] = _strides(draw, gaps, shape, order, kind)
        aligns[t.name] = draw([a for a in alignments if a * 8 >= kind.bits])
    present = {t.name for t in machine.tensor_declarations() if machine.uses_tensor(t.name, options)}
    return problem(
        machine,
        dims,
        dtypes={k: v.name for k, v in kinds.items()},
        majors={k: v for k, v in majors.items() if k in present},
        lds={k: v for k, v in lds.items() if k in present},
        strides={k: v for k, v in strides.items() if k in present},
        aligns={k: v for k, v in aligns.items() if k in present},
        options=options,
    )


def _strides(
    draw: Draw, gaps: Sequence[int], shape: Sequence[int], order: Sequence[int], kind: DType
) -> dict[int, int]:
    """Strides of all axes but the contiguous one: these in the order of memory or the other way round, with gaps."""
    inwards, *further = order
    turned = draw([further, further[::-1]])
    out, step = dict[int, int](), shape[inwards] + gap_elems(draw(gaps), shape[inwards], kind)
    for axis in turned:
        out[axis] = step
        step = step * shape[axis] + max(draw(gaps), 0)
    return out


def gap_elems(gap: int, contiguous: int, kind: DType) -> int:
    """Elements between the rows of a tensor; -1 asks for rows that begin at multiples of 64 bytes."""
    if gap >= 0:
        return gap
    return -contiguous % max(1, 64 * 8 // kind.bits)


def dtypes_on_offer(declared: TensorDeclaration, chosen: dict[str, DType]) -> tuple[DType, ...]:
    """The dtypes that a tensor can have, given those of the tensors declared before it."""
    if declared.follows is None:
        return declared.dtypes
    return declared.dtypes_for(chosen[declared.follows.name])


def draw_device(draw: Draw, names: Sequence[str] = DEVICES) -> Device:
    """One of the devices, the oldest first."""
    return device(draw(names))
