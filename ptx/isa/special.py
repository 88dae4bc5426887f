"""What the special function unit computes: powers, roots, reciprocals, trigonometry; approximations say how good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from tinygpu.language.instruction import Unit
from tinygpu.ptx.isa.elementwise import Accuracy, Arithmetic, narrowed

# The smallest normal f32: what .ftz replaces by zero lies below it.
_TINY = 2.0**-126


class Special(Arithmetic):
    """A function of one value that the special function unit approximates or begins."""

    arity: ClassVar[int] = 1
    unit: ClassVar[Unit] = "sfu"
    function: ClassVar[Callable[..., Any]]

    def meaning(self, *values: Any) -> Any:
        wide = [np.asarray(v, dtype=np.float64) for v in values]
        with np.errstate(all="ignore"):
            return narrowed(type(self).function(*wide), self.kind)


class Ex2(Special):
    """d = 2 ** a, in f32 within 2 ulp (PTX ISA, ex2.approx)."""

    sign: ClassVar[str] = "exp2"
    spelling: ClassVar[dict[str, str]] = {
        "f32": "ex2.approx.ftz.f32",
        "f16": "ex2.approx.f16",
        "bf16": "ex2.approx.ftz.bf16",
    }
    pairs: ClassVar[dict[str, str]] = {"f16": "ex2.approx.f16x2", "bf16": "ex2.approx.ftz.bf16x2"}
    needs: ClassVar[dict[str, tuple[int, tuple[int, int]]]] = {"bf16": (90, (7, 8))}
    accuracy: ClassVar[dict[str, Accuracy]] = {
        "f32": Accuracy(2.0**-22, _TINY),
        "f16": Accuracy(2.0**-9.9, 2.0**-24),
        "bf16": Accuracy(2.0**-7, _TINY),
    }
    function: ClassVar[Callable[..., Any]] = staticmethod(np.exp2)


class Lg2(Special):
    """d = log2(a), within 2**-22 absolute between 0.5 and 2 and relative elsewhere (PTX ISA, lg2.approx)."""

    sign: ClassVar[str] = "log2"
    spelling: ClassVar[dict[str, str]] = {"f32": "lg2.approx.f32"}
    accuracy: ClassVar[dict[str, Accuracy]] = {"f32": Accuracy(2.0**-22, 2.0**-22)}
    function: ClassVar[Callable[..., Any]] = staticmethod(np.log2)


class Rcp(Special):
    """d = 1 / a, correctly rounded."""

    sign: ClassVar[str] = "reciprocal"
    spelling: ClassVar[dict[str, str]] = {"f32": "rcp.rn.f32", "f64": "rcp.rn.f64"}
    function: ClassVar[Callable[..., Any]] = staticmethod(np.reciprocal)


class RcpApprox(Special):
    """d = 1 / a, within 1 ulp; what is smaller than normal counts as zero (PTX ISA, rcp.approx.ftz)."""

    sign: ClassVar[str] = "reciprocal"
    spelling: ClassVar[dict[str, str]] = {"f32": "rcp.approx.ftz.f32"}
    accuracy: ClassVar[dict[str, Accuracy]] = {"f32": Accuracy(2.0**-23, _TINY)}
    function: ClassVar[Callable[..., Any]] = staticmethod(np.reciprocal)


class Sqrt(Special):
    """d = the square root of a, correctly rounded."""

    sign: ClassVar[str] = "sqrt"
    spelling: ClassVar[dict[str, str]] = {"f32": "sqrt.rn.f32", "f64": "sqrt.rn.f64"}
    function: ClassVar[Callable[..., Any]] = staticmethod(np.sqrt)


class SqrtApprox(Special):
    """d = the square root of a, within 2**-23 relative (PTX ISA, sqrt.approx)."""

    sign: ClassVar[str] = "sqrt"
    spelling: ClassVar[dict[str, str]] = {"f32": "sqrt.approx.f32"}
    accuracy: ClassVar[dict[str, Accuracy]] = {"f32": Accuracy(2.0**-23, _TINY)}
    function: ClassVar[Callable[..., Any]] = staticmethod(np.sqrt)


class Rsqrt(Special):
    """d = 1 / sqrt(a), within 2**-22.4 relative (PTX ISA, rsqrt.approx)."""

    sign: ClassVar[str] = "rsqrt"
    spelling: ClassVar[dict[str, str]] = {"f32": "rsqrt.approx.f32"}
    accuracy: ClassVar[dict[str, Accuracy]] = {"f32": Accuracy(2.0**-22.4)}
    function: ClassVar[Callable[..., Any]] = staticmethod(lambda x: 1 / np.sqrt(x))


class Tanh(Special):
    """d = tanh(a), in f32 within 2**-11 relative (PTX ISA, tanh.approx)."""

    sign: ClassVar[str] = "tanh"
    spelling: ClassVar[dict[str, str]] = {
        "f32": "tanh.approx.f32",
        "f16": "tanh.approx.f16",
        "bf16": "tanh.approx.bf16",
    }
    pairs: ClassVar[dict[str, str]] = {"f16": "tanh.approx.f16x2", "bf16": "tanh.approx.bf16x2"}
    needs: ClassVar[dict[str, tuple[int, tuple[int, int]]]] = {"bf16": (90, (7, 8))}
    accuracy: ClassVar[dict[str, Accuracy]] = {
        "f32": Accuracy(2.0**-11),
        "f16": Accuracy(0.0, 2.0**-10.987),
        "bf16": Accuracy(0.0, 2.0**-8),
    }
    function: ClassVar[Callable[..., Any]] = staticmethod(np.tanh)


class Sin(Special):
    """d = sin(a), within 2**-20.5 absolute on [-pi, pi] (PTX ISA, sin.approx)."""

    sign: ClassVar[str] = "sin"
    spelling: ClassVar[dict[str, str]] = {"f32": "sin.approx.f32"}
    accuracy: ClassVar[dict[str, Accuracy]] = {"f32": Accuracy(0.0, 2.0**-20.5, -np.pi, np.pi)}
    function: ClassVar[Callable[..., Any]] = staticmethod(np.sin)


class Cos(Special):
    """d = cos(a), within 2**-20.5 absolute on [-pi, pi] (PTX ISA, cos.approx)."""

    sign: ClassVar[str] = "cos"
    spelling: ClassVar[dict[str, str]] = {"f32": "cos.approx.f32"}
    accuracy: ClassVar[dict[str, Accuracy]] = {"f32": Accuracy(0.0, 2.0**-20.5, -np.pi, np.pi)}
    function: ClassVar[Callable[..., Any]] = staticmethod(np.cos)


class DivFull(Special):
    """d = a / b, within 2 ulp (PTX ISA, div.full)."""

    sign: ClassVar[str] = "/"
    arity: ClassVar[int] = 2
    spelling: ClassVar[dict[str, str]] = {"f32": "div.full.f32"}
    accuracy: ClassVar[dict[str, Accuracy]] = {"f32": Accuracy(2.0**-22, _TINY)}
    function: ClassVar[Callable[..., Any]] = staticmethod(np.true_divide)
