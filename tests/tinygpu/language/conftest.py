"""The tests of this folder share machines; the small ones are those of the tests of lowering.

Tests are imported by path, so the folders are named here.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[2] / "ptx" / "lowering"))
