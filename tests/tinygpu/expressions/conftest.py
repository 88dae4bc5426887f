"""The tests of this folder share the random expressions of the constraints' tests.

Tests are imported by path, so the folder is named here.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "constraints"))
