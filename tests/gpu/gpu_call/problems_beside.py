"""Problems for the table, on PyTorch's tensors: operands, the right answer, PyTorch's own way, what is near enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from gpu_call.torch_stage import TYPES, normal, outside, poisoned
from tinygpu.ptx.runtime.launch import Launch

# Half a unit in the last place of a result is 2^-(bits+1) of it; both roundings, of the sum and of the result, fit.
RESULT = {"bf16": 2.0**-8, "f16": 2.0**-10, "f32": 2.0**-22}
# Sums of f32: per term, of the sum of absolute values.
TERM = 2.0**-24
# What epilogues and CTAs that share a result add up beside it.
_MORE_TERMS = 64
SCALARS = {"a": 1.25, "b": -0.75}

Set = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Function:
    """What a machine computes, in PyTorch.

    kernels   that PyTorch launches for it
    write     the result, into the set's output, as PyTorch's users would
    right     (the result in double precision, the sum of absolute values of its terms)
    sum       dimension along which a result's terms lie; "" where they are few
    relative  error of approximate functions, beside rounding
    """

    kernels: int
    write: Callable[[Set], Any]
    right: Callable[[Set], tuple[Any, Any]]
    sum: str = ""
    relative: float = 0.0

    def terms(self, dims: Mapping[str, int]) -> int:
        """How many roundings a result of so many terms may have, partial sums of parts that share it included."""
        return (dims[self.sum] if self.sum else 1) + _MORE_TERMS


def _matmul_right(s: Set) -> tuple[Any, Any]:
    a, b = s["a"].double(), s["b"].double()
    return a @ b, a.abs() @ b.abs()


def _axpby_right(s: Set) -> tuple[Any, Any]:
    x, z = s["x"].double() * SCALARS["a"], s["z"].double() * SCALARS["b"]
    return x + z, x.abs() + z.abs()


def _bias_relu_right(s: Set) -> tuple[Any, Any]:
    x, bias = s["x"].double(), s["bias"].double()
    return (x + bias).clamp_min(0), x.abs() + bias.abs()


def _gelu_right(s: Set) -> tuple[Any, Any]:
    x = s["x"].double()
    return torch.nn.functional.gelu(x, approximate="tanh"), x.abs()


def _add_right(s: Set) -> tuple[Any, Any]:
    x, z = s["x"].double(), s["z"].double()
    return x + z, x.abs() + z.abs()


FUNCTIONS: dict[str, Function] = {
    "matmul": Function(1, lambda s: torch.matmul(s["a"], s["b"], out=s["c"]), _matmul_right, "k"),
    "axpby": Function(
        2, lambda s: torch.mul(s["x"], SCALARS["a"], out=s["y"]).add_(s["z"], alpha=SCALARS["b"]), _axpby_right
    ),
    "bias_relu": Function(2, lambda s: torch.add(s["x"], s["bias"], out=s["y"]).relu_(), _bias_relu_right),
    "gelu": Function(
        1, lambda s: torch.ops.aten.gelu.out(s["x"], approximate="tanh", out=s["y"]), _gelu_right, relative=2.0**-9
    ),
    "add": Function(1, lambda s: torch.add(s["x"], s["z"], out=s["y"]), _add_right),
}


def function_of(machine: str) -> Function:
    """The function of a machine or a family."""
    return FUNCTIONS["matmul" if machine.startswith("matmul") else machine]


def operands(launch: Launch, generator: Any) -> dict[str, Any]:
    """One set: tensors of the launch's shapes and strides, inputs drawn, outputs poisoned."""
    made = {}
    for t in launch.tensors:
        storage = poisoned((t.extent_elems,), t.type)
        view = torch.as_strided(storage, t.shape, t.strides)
        if t.access != "out":
            view.copy_(normal(t.shape, t.type, generator))
        made[t.name] = view
    return made


def output(launch: Launch) -> str:
    return next(t.name for t in launch.tensors if t.access == "out")


def judge(launch: Launch, found: Set, function: Function, right: tuple[Any, Any], terms: int) -> tuple[bool, float]:
    """(whether the output is right, its largest error over what it may be)."""
    name = output(launch)
    relative = RESULT[launch.tensor(name).type] + function.relative
    wrong, worst = outside(found[name], *right, relative, terms * TERM + function.relative)
    return wrong == 0, worst


def poison(launch: Launch, found: Set) -> None:
    found[output(launch)].fill_(float("nan"))


__all__ = ["FUNCTIONS", "SCALARS", "TYPES", "Function", "function_of", "judge", "operands", "output", "poison"]
