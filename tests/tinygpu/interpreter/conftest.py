"""The machines are those of the tests of lowering and of `tinygpu check`, and of this folder: they are named here."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]
HERE = Path(__file__).parent
sys.path += [str(HERE), *(str(TESTS / room) for room in ("ptx/lowering", "tinygpu/testing", "tinygpu/language"))]
