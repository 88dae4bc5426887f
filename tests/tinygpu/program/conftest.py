"""Random expressions are those of the constraints' tests; tests are imported by path, so their folder is named here."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "constraints"))
