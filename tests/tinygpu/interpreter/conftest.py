"""The machines are those of the tests of lowering and of `tinygpu check`, whose folders are named here."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]
sys.path += [str(TESTS / "ptx" / "lowering"), str(TESTS / "tinygpu" / "testing")]
