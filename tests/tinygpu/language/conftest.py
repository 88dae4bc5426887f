"""The tests of this folder share machines and `carried_out`; the small machines are those of the lowering's tests.

Tests are imported by path, so the folders are named here.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[2] / "ptx" / "lowering"))
