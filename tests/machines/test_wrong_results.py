"""Results that are wrong as kernels are, for every shipped machine and type: all refused, right ones not.

Kernels are played by NumPy in single precision; tests/machines/test_wrong_kernels.py edits PTX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tinygpu.api.machines import SHIPPED, family
from tinygpu.language import Machine, Problem
from tinygpu.ptx.bounds.stored import stored
from tinygpu.ptx.runtime.elements import element
from tinygpu.ptx.verification.comparison import compare_arrays
from tinygpu.ptx.verification.inputs import Inputs
from tinygpu.ptx.verification.trial import Trial, draw

Array = NDArray[Any]
# Packed weights and scales of blocks make other products, which their machines' own tests break.
OTHER = ("matmul_w4", "matmul_mx", "matmul_nvfp4", "matmul_blackwell_mx", "matmul_blackwell_nvfp4")
MATMULS = [name for name in SHIPPED if name.startswith("matmul") and name not in OTHER]
CHAINS = ["axpby", "bias_relu", "transpose"]
OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"activation": "relu", "with_bias": True}, {"activation": "gelu"},
    {"activation": "silu", "scaling": "columns", "with_residual": True}, {"scaling": "number", "with_bias": True},
)  # fmt: skip


class Operand(np.ndarray):
    """The left operand of a product that is worked out as `multiply` says."""

    multiply: Callable[[Array, Array], Array]

    def __matmul__(self, other: Any) -> Any:
        return self.multiply(np.asarray(self), np.asarray(other))


def added_up_in(kind: Any) -> Callable[[Array, Array], Array]:
    """A product of which every step of 16 is added to an accumulator of one type."""

    def multiply(a: Array, b: Array) -> Array:
        out = np.zeros((a.shape[0], b.shape[1]), dtype=a.dtype)
        for k in range(0, a.shape[1], 16):
            out = (out + a[:, k : k + 16] @ b[k : k + 16]).astype(kind).astype(a.dtype)
        return out

    return multiply


def without_a_step(a: Array, b: Array) -> Array:
    return a[:, :-16] @ b[:-16]


def swapped(a: Array, b: Array) -> Array:
    return b @ a


def with_a_stale_value(a: Array, b: Array) -> Array:
    """One value of a is that of the row before, one that differs, and where no row has an infinity or a NaN."""
    plain = np.isfinite(a).all(axis=1)
    differs = np.abs(np.diff(np.where(np.isfinite(a), a, 0), axis=0)) * (plain[1:] & plain[:-1])[:, None]
    row, column = np.unravel_index(np.argmax(np.where(differs < 100, differs, 0)), differs.shape)
    stale = a.copy()
    stale[row + 1, column] = a[row, column]
    return stale @ b


def kept_nan_out(a: Array, b: Array) -> Array:
    return np.nan_to_num(a @ b, nan=0.0, posinf=np.inf, neginf=-np.inf)


def result(trial: Trial, machine: type[Machine], multiply: Any, after: Callable[[Array], Array] | None) -> Array:
    """What a kernel in single precision stores."""
    given: dict[str, Any] = {}
    for name, array in trial.arrays.items():
        floating = trial.problem.operand(name).dtype.is_float
        given[name] = array.astype(np.float32 if floating else np.int64)
    if "a" in given and multiply is not None:
        given["a"] = given["a"].view(Operand)
        given["a"].multiply = multiply
    given |= {name: np.float32(v) if isinstance(v, np.floating) else v for name, v in trial.scalars.items()}
    with np.errstate(all="ignore"):
        out = np.asarray(machine.reference(**given, **dict(trial.problem.options)))
        (to,) = (o for o in trial.problem.operands if o.access != "in")
        if after is not None:
            out = after(out)
    if out.dtype == to.dtype.numpy:
        return out
    return stored(element(to.dtype.name), out).view(to.dtype.numpy)


def cut_off(bits: int) -> Callable[[Array], Array]:
    """Single precision towards zero, to so many bits of mantissa."""
    mask = np.uint32(0xFFFFFFFF << (23 - bits) & 0xFFFFFFFF)
    return lambda out: np.where(np.isfinite(out), (out.astype(np.float32).view(np.uint32) & mask).view(np.float32), out)


def one_lane_stale(out: Array) -> Array:
    """One value is its neighbour's, where they differ."""
    made = out.copy()
    wide = np.nan_to_num(out.astype(np.float64).ravel(), posinf=0.0, neginf=0.0)
    place = int(np.argmax(np.minimum(np.abs(np.diff(wide)), 2.0)))
    made.flat[place + 1] = made.flat[place]
    return made


def passes(trials: Mapping[Inputs, Trial], machine: type[Machine], multiply: Any, after: Any = None) -> bool:
    for trial in trials.values():
        got = result(trial, machine, multiply, after)
        (name,) = (o.name for o in trial.problem.operands if o.access != "in")
        if not compare_arrays(trial, {name: got}, "late").passed:
            return False
    return True


def trials_of(machine: type[Machine], problem: Problem, seed: int) -> dict[Inputs, Trial]:
    return {inputs: draw(machine, problem, inputs, seed) for inputs in ("integers", "specials")}


def wrong_products(problem: Problem) -> Iterator[tuple[str, Any, Callable[[Array], Array] | None]]:
    floating = problem.operand("a").dtype.is_float
    to = problem.operand("c").dtype
    yield "added constant", np.matmul, lambda out: out + 1
    yield "swapped operands", swapped, None
    yield "a step missing", without_a_step, None
    yield "a stale operand", with_a_stale_value, None
    yield "a stale lane", np.matmul, one_lane_stale
    if floating:
        kind = problem.operand("a").dtype
        if kind.bits > 4:  # sums of a few products of 4 bits are exact in f16
            yield "f16 accumulator", added_up_in(np.float16), None
        yield "bf16 accumulator", added_up_in(ml_dtypes.bfloat16), None
        if np.isnan(np.array(np.nan, np.float32).astype(kind.numpy).astype(np.float32)):  # else it has none
            yield "NaN kept out", kept_nan_out, None
        yield "small constant", np.matmul, lambda out: out + np.float32(0.02)
    if to.name in ("f16", "bf16"):
        yield "cut off at the end", np.matmul, cut_off(to.mantissa)


def types_of(machine: type[Machine]) -> list[tuple[str, str]]:
    """(type of a, type of c) that a matmul takes."""
    by_name = {t.name: t for t in machine.tensor_declarations()}
    return [(a.name, c.name) for a in by_name["a"].dtypes for c in by_name["c"].dtypes_for(a)] if hasattr(
        by_name["c"], "follows") and by_name["c"].follows is not None else [
        (a.name, by_name["c"].dtypes[0].name) for a in by_name["a"].dtypes
    ]  # fmt: skip


def cases() -> list[tuple[str, str, str, dict[str, Any]]]:
    found = []
    for name in MATMULS:
        (machine,) = family(name).machines
        for a, c in types_of(machine):
            for options in OPTIONS:
                if not options.keys() <= {o.name for o in machine.option_declarations()}:
                    continue
                if c == "s32" and (options.get("activation", "none") not in ("none", "relu") or "scaling" in options):
                    continue
                found.append((name, a, c, options))
    return found


@pytest.mark.sampled(18)
@pytest.mark.parametrize("case", cases(), ids=lambda c: "-".join([*c[:3], *map(str, c[3].values())]))
def test_wrong_products_are_refused_and_right_ones_are_not(case: tuple[str, str, str, dict[str, Any]]) -> None:
    name, a, c, options = case
    (machine,) = family(name).machines
    sizes = dict.fromkeys(machine.dim_names(), 96)
    types = {"a": a, "c": c}
    if options.get("with_bias") and c in ("f32", "f16", "bf16"):
        types["bias"] = "f32"
    problem = machine.problem(**sizes, dtypes=types, options=options)
    trials = trials_of(machine, problem, sum(map(ord, f"{case}")))
    for kind in (np.matmul, added_up_in(np.float32)):
        assert passes(trials, machine, kind), "a right result"
    missed = [what for what, multiply, after in wrong_products(problem) if passes(trials, machine, multiply, after)]
    assert not missed


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("seed", range(3))
def test_wrong_chains_are_refused_and_right_ones_are_not(name: str, seed: int) -> None:
    (machine,) = family(name).machines
    problem = machine.problem(**dict.fromkeys(machine.dim_names(), 64 + seed))
    trials = trials_of(machine, problem, seed)
    assert passes(trials, machine, None), "a right result"
    (to,) = (o.dtype for o in problem.operands if o.access != "in")
    wrong: list[tuple[str, Callable[[Array], Array]]] = [
        ("added constant", lambda out: out + 1), ("small constant", lambda out: out + np.float32(1e-3)),
        ("a stale lane", one_lane_stale), ("f16 on the way", lambda out: out.astype(np.float16).astype(np.float32) * 1),
        ("NaN kept out", lambda out: np.nan_to_num(out, nan=0.0, posinf=np.inf, neginf=-np.inf)),
    ]  # fmt: skip
    if to.name == "f16":
        wrong[3] = ("cut off at the end", cut_off(to.mantissa))
    assert not [what for what, after in wrong if passes(trials, machine, None, after)]
