"""tinyGPU: small machines for one operation, searched under constraints and lowered to PTX.

What is listed in `__all__` is the front door (`tinygpu.api.front`, `tinygpu.api.kernels`): `import tinygpu as tg`, then
`space = tg.space(M, n=1000, device="a100")`, `tg.tune(space)`, `tg.explain(space, vector=4)`, and so on. Machines are
written with `tinygpu.language` and the instructions of `tinygpu.ptx.isa`.

Importing this package is cheap: sympy, z3 and CUDA are loaded by what uses them, when it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinygpu.api.compile import compile as compile
    from tinygpu.api.front import emit, explain, predict, space
    from tinygpu.api.kernels import check, emulate, launch, run, tune, verify

__version__ = "0.1.0"

__all__ = ["check", "compile", "emit", "emulate", "explain", "launch", "predict", "run", "space", "tune", "verify"]

_IN_FRONT = frozenset({"emit", "explain", "predict", "space"})


def __getattr__(name: str) -> Any:
    """A call of the front door, loaded when it is asked for, with no more than it needs."""
    if name not in __all__:
        raise AttributeError(f"module 'tinygpu' has no attribute {name!r}")
    home = "front" if name in _IN_FRONT else "compile" if name == "compile" else "kernels"
    return getattr(import_module(f"tinygpu.api.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
