"""The command line; `main` is its entry point."""

import os

# The matrices of references and of emulated instructions are small: several threads of NumPy's BLAS wait for each other
# most of the time, and each wait costs a core. NumPy reads this when it is loaded, which is later; a user's own stays.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tinygpu.cli.app import main

__all__ = ["main"]
