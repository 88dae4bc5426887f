"""The tests of this folder share `digits`, and the random expressions of the constraints' tests.

Tests are imported by path, so the folders are named here.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent.parent / "constraints"))
