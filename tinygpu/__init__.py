"""tinyGPU: small machines for one operation, searched under constraints and lowered to PTX.

Importing this package is cheap: sympy, z3 and CUDA are loaded by the modules that use them.
"""

__version__ = "0.1.0"
