"""Commands multiply with one thread of NumPy's BLAS, unless the user says how many."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# How many threads the process has once a product was large enough for several.
COUNTED = """
import sys, tinygpu.cli
assert "numpy" not in sys.modules
import os, numpy as np
np.ones((600, 600)) @ np.ones((600, 600))
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")
@pytest.mark.parametrize("asked", ["", "2"])
def test_commands_multiply_with_one_thread_unless_told_otherwise(asked: str) -> None:
    kept = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    given = kept | ({"OPENBLAS_NUM_THREADS": asked} if asked else {})
    done = subprocess.run([sys.executable, "-c", COUNTED], env=given, capture_output=True, text=True, check=True)
    assert int(done.stdout) == min(int(asked or 1), len(os.sched_getaffinity(0)))
