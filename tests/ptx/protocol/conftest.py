"""Modules beside the tests are imported by name, and so are the machines of other rooms' tests."""

import sys
from pathlib import Path

for folder in (Path(__file__).parent, *(Path(__file__).parents[2] / name for name in ("ptx/lowering", "machines"))):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
