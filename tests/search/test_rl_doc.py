"""What docs/rl.md shows is what happens."""

import doctest
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "rl.md"


@pytest.mark.end_to_end
def test_the_blocks_of_the_page_print_what_it_says() -> None:
    pytest.importorskip("gymnasium", reason="the extra rl (gymnasium) is not installed")
    report: list[str] = []
    test = doctest.DocTestParser().get_doctest(PAGE.read_text(), {}, PAGE.name, str(PAGE), 0)
    doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert report == []
    assert len(test.examples) > 12
