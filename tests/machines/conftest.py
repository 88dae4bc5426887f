"""The tests of this folder share machines; tests are imported by path, so the folder is named here."""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

# Candidates of which the quick suite takes the lightest.
TRIED = 8


@pytest.fixture
def draw_candidate(request: pytest.FixtureRequest) -> Callable[[Any, int], dict[str, Any]]:
    """(space, seed) -> a random candidate; in the quick suite the lightest of eight.

    What is ten times as large takes the emulator ten times as long, and goes the same ways. The long run takes
    whatever comes.
    """
    count = 1 if request.node.get_closest_marker("slow") else TRIED
    return lambda space, seed: min(space.sample(count, seed), key=_numbers)


def _numbers(point: dict[str, Any]) -> int:
    """The product of a candidate's numbers: what its tiles and their copies grow with."""
    return math.prod(value for value in point.values() if isinstance(value, int) and value > 0)
