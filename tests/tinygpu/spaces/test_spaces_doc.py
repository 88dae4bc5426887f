"""docs/spaces.md: what it shows is what happens."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "spaces.md"


def test_the_page_shows_what_happens():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried > 40
    assert failed == 0
