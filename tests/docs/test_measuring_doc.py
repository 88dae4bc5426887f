"""docs/runtime.md and docs/measuring.md: what they show happens, on a GPU whose kernels run in the emulator."""

import doctest
from pathlib import Path

import pytest
from fake_cuda import FakeCuda

from tinygpu.api import compile as door
from tinygpu.ptx.measuring.statistics import CONFIDENCE, LEAST_NOISE
from tinygpu.ptx.measuring.timing import L2_FACTOR, MOST_SETS, Protocol
from tinygpu.ptx.measuring.worker import Settings
from tinygpu.ptx.runtime.calls import Driver
from tinygpu.ptx.runtime.context import open_context

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.end_to_end
@pytest.mark.parametrize(("name", "examples"), [("runtime.md", 15), ("measuring.md", 10)])
def test_the_blocks_of_the_pages_print_what_they_say(
    name: str, examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = open_context(Driver(FakeCuda()))
    monkeypatch.setattr(door, "_default_context", lambda: context)
    page = DOCS / name
    report: list[str] = []
    test = doctest.DocTestParser().get_doctest(page.read_text(), {}, page.name, str(page), 0)
    doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert report == []
    assert len(test.examples) >= examples


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    text = (DOCS / "measuring.md").read_text()
    p, s = Protocol(), Settings()
    assert f"{p.samples} pairs cold, {p.warm_samples} warm" in text
    assert f"{p.race_factor:g} times as long in each of the first {p.race_pairs} pairs" in text
    assert f"`--limit` seconds ({s.limit_s:g})" in text
    assert s.finals == 5
    assert "the five best once more" in text
    assert f"in {100 * CONFIDENCE:g} of 100 cases" in text
    assert f"never less than {100 * LEAST_NOISE:g} %" in text
    assert L2_FACTOR == 2
    assert f"more than {MOST_SETS} sets" in text
