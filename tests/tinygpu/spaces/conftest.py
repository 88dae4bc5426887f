"""The tests of this folder share `random_spaces` and the benchmark's spaces; tests are imported by path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
