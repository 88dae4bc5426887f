"""The machines are those of the tests of lowering and of `tinygpu check`, and of this folder: they are named here."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]
sys.path += [str(Path(__file__).parent), str(TESTS / "ptx" / "lowering"), str(TESTS / "tinygpu" / "testing")]
