"""The tests of this folder share `counted_launches`; tests are imported by path, so the folder is named here."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
