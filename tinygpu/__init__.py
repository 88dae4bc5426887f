"""tinyGPU: small machines for one operation, searched under constraints and lowered to PTX.

Importing this package is cheap: sympy, z3 and CUDA are loaded by the modules that use them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinygpu.api.compile import compile as compile

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`tinygpu.compile`, loaded when it is asked for."""
    if name == "compile":
        from tinygpu.api.compile import compile as found

        return found
    raise AttributeError(f"module 'tinygpu' has no attribute {name!r}")
