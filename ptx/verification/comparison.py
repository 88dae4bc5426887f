"""Compares a kernel's outputs with the machine's reference: every element against what rounding may make of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.language.problem import Operand
from tinygpu.ptx.bounds.answers import Answer
from tinygpu.ptx.bounds.stored import ends, unjudged
from tinygpu.ptx.emulator import Order
from tinygpu.ptx.runtime.elements import element
from tinygpu.ptx.verification.inputs import WHOLE, Inputs
from tinygpu.ptx.verification.operands import HostTensor
from tinygpu.ptx.verification.trial import Trial


@dataclass(frozen=True, slots=True)
class Worst:
    """The element that is farthest beyond its bound.

    ratio  error in units of the bound; infinite where nothing is rounded, and where a number is none
    """

    output: str
    index: tuple[int, ...]
    got: float
    wanted: float
    bound: float
    ratio: float

    def __str__(self) -> str:
        place = f"{self.output}[{', '.join(map(str, self.index))}]"
        times = f", {self.ratio:.3g} times the bound" if np.isfinite(self.ratio) else ""
        return f"{place} is {self.got:.9g}, wanted {self.wanted:.9g} (bound {self.bound:.3g}{times})"


@dataclass(frozen=True, slots=True)
class Check:
    """One run.

    inputs      "integers" (bit for bit where nothing is rounded), "random", or "specials": random ones with a few
                infinities, NaNs, largest and smallest numbers among them
    order       when asynchronous work lands
    error       |result - reference| where it is largest beside its bound
    bound       largest error that rounding explains there; 0 where it explains none
    wrong       elements beyond the bound
    unjudged    elements of which nothing can be said: what overflows on the way, or infinity times what may be zero
    special     elements that are these, or infinite, or no number
    fault       the emulator's sentence, or ""
    where       which CTAs of the real problem were run; "" for the whole derived problem
    worst       the element farthest beyond its bound, where one is wrong
    estimated   why bounds are estimated instead of followed through the reference; "" where they are not
    executed    lines of the PTX, from 1, that a warp came to; none where the run ended before its time
    """

    inputs: Inputs
    order: Order
    error: float
    bound: float
    wrong: int
    elements: int
    fault: str = ""
    where: str = ""
    unjudged: int = 0
    special: int = 0
    worst: Worst | None = None
    estimated: str = ""
    executed: frozenset[int] = frozenset()

    @property
    def passed(self) -> bool:
        return not self.fault and not self.wrong

    @property
    def judged(self) -> bool:
        """Whether something can be said of an element."""
        return not self.elements or self.unjudged < self.elements

    def to_dict(self) -> dict[str, Any]:
        """The fields that JSON has: errors that are no numbers are None, and what was executed is left out."""
        told = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "executed"}
        told["worst"] = None if self.worst is None else asdict(self.worst)
        return {name: _finite(value) for name, value in told.items()}

    def __str__(self) -> str:
        name = f"{self.inputs}, {self.order}{', ' + self.where if self.where else ''}"
        if self.fault:
            return f"{name}: FAULT {self.fault}"
        judged = "bit for bit" if self.inputs in WHOLE and self.bound == 0 else f"bound {self.bound:.3g}"
        if self.estimated:
            judged += f", estimated: the reference {self.estimated}"
        verdict = "ok" if self.passed else f"WRONG in {self.wrong:,} of {self.elements:,} elements"
        more = f"; {self.unjudged:,} of {self.elements:,} elements may be anything" if self.unjudged else ""
        worst = f"; {self.worst}" if self.worst else ""
        return f"{name}: {verdict}, worst error {self.error:.3g} ({judged}){more}{worst}"


def _finite(value: Any) -> Any:
    """A value of JSON, which has neither NaN nor infinities."""
    if isinstance(value, dict):
        return {name: _finite(v) for name, v in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True, slots=True)
class Difference:
    """One output against its reference; the fields are those of `Check`."""

    error: float
    bound: float
    wrong: int
    elements: int
    unjudged: int = 0
    special: int = 0
    worst: Worst | None = None


def compare(trial: Trial, operands: Mapping[str, HostTensor], order: Order) -> Check:
    """The outputs of a run against the trial's answers."""
    got = {o.name: operands[o.name].array for o in trial.problem.operands if o.access != "in"}
    check = compare_arrays(trial, got, order)
    for o in trial.problem.operands:
        if o.access != "in" and not operands[o.name].gaps_intact():
            sentence = f"{o.name}: bytes between its rows were written"
            return Check(trial.inputs, order, check.error, check.bound, check.wrong, check.elements, sentence)
    return check


def compare_arrays(trial: Trial, got: Mapping[str, NDArray[Any]], order: Order, where: str = "") -> Check:
    """Outputs against the trial's answers; the arrays may be a window of the problem's tensors."""
    found = [difference(trial.problem.operand(n), result, trial.answers[n]) for n, result in got.items()]
    largest = max(found, key=lambda d: d.error / d.bound if d.bound else d.error and np.inf)
    bad = [d.worst for d in found if d.worst is not None]
    return Check(
        trial.inputs,
        order,
        largest.error,
        largest.bound,
        sum(d.wrong for d in found),
        sum(d.elements for d in found),
        where=where,
        unjudged=sum(d.unjudged for d in found),
        special=sum(d.special for d in found),
        worst=max(bad, key=lambda w: w.ratio) if bad else None,
        estimated=next((a.followed for a in trial.answers.values() if a.followed), ""),
    )


def difference(output: Operand, got: NDArray[Any], answer: Answer) -> Difference:
    """One output array against what it may be."""
    kind = element(output.dtype.name)
    bits = np.ascontiguousarray(got).view(kind.storage)
    low, high = ends(kind, answer, got.shape)
    keys, least, greatest = kind.keys(bits), kind.keys(low), kind.keys(high)
    anything = np.broadcast_to(unjudged(answer), got.shape)
    with np.errstate(all="ignore"):
        values, want = (a.astype(np.float64) for a in (got, np.broadcast_to(answer.value, got.shape)))
        # any NaN is as good as another, whatever its sign and payload
        missing = np.isnan(kind.decode(low)) & ~anything if kind.is_float else np.zeros(got.shape, dtype=bool)
        wrong = ~((least <= keys) & (keys <= greatest) | anything | (missing & np.isnan(values)))
        bottom, top = (kind.decode(e).astype(np.float64) for e in (low, high))
        single = least == greatest
        target = np.where(single | (bottom == top), bottom, want)
        bound = np.where(bottom == top, 0.0, np.fmax(np.abs(top - target), np.abs(target - bottom)))
        error = np.where((values == target) | (np.isnan(values) & missing), 0.0, np.abs(values - target))
        error = np.where(np.isnan(error), np.inf, error)
        judged = np.where(anything | missing & ~wrong, 0.0, error)
        ratio = np.where(judged > 0, judged / bound, 0.0)
        # what is wrong comes first, an infinity or a NaN in the wrong place before all
        ratio = np.where(wrong & ~np.isfinite(ratio), np.inf, np.where(wrong, np.maximum(ratio, 1.0), ratio))
        at = np.unravel_index(int(np.argmax(np.nan_to_num(ratio, posinf=np.inf))), got.shape)
        worst = None
        if wrong.any():
            worst = Worst(
                output.name, tuple(int(i) for i in at), float(values[at]), float(target[at]) + 0.0,
                0.0 if np.isnan(bound[at]) else float(bound[at]), float(ratio[at]),
            )  # fmt: skip
    special = anything | ~np.isfinite(want)
    counts = int(wrong.sum()), wrong.size, int(anything.sum()), int(special.sum())
    return Difference(float(judged[at]), float(bound[at]), *counts, worst)
