"""Lets the tests of this folder share `specimens.py` and `damage.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
