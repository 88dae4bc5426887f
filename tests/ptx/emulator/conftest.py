"""Makes the modules beside the tests importable (the suite imports tests by path)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
