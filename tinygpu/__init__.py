"""tinyGPU: small machines for one operation, searched under constraints and lowered to PTX.

What is listed in `__all__` is the front door (`tinygpu.api.front`): `import tinygpu as tg`, then
`space = tg.space(M, n=1000, device="a100")`, `tg.tune(space)`, `tg.explain(space, vector=4)`, and so on. Machines are
written with `tinygpu.language` and the instructions of `tinygpu.ptx.isa`.

Importing this package is cheap: sympy, z3 and CUDA are loaded by what uses them, when it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinygpu.api.compile import compile as compile
    from tinygpu.api.front import check, emit, emulate, explain, launch, predict, run, space, tune, verify

__version__ = "0.1.0"

__all__ = ["check", "compile", "emit", "emulate", "explain", "launch", "predict", "run", "space", "tune", "verify"]


def __getattr__(name: str) -> Any:
    """A call of the front door, loaded when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'tinygpu' has no attribute {name!r}")
    return getattr(import_module("tinygpu.api.compile" if name == "compile" else "tinygpu.api.front"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
