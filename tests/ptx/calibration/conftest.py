"""What the tests of calibration share: a GPU with made-up times, and a driver made of the emulator."""

import sys
from pathlib import Path

for folder in (Path(__file__).parent, Path(__file__).parents[1] / "fake"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
