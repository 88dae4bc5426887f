"""The code blocks of docs/math.md run and print what the page says; its closed forms hold on random maps."""

import doctest
import re
from functools import cache
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.layouts import LinearLayout

PAGE = Path(__file__).parents[3] / "docs" / "math.md"


@cache
def session():
    """What the page's blocks define, run in order as one session; how many lines were compared; what differed."""
    source = PAGE.read_text(encoding="utf-8")
    names, shown, report = {}, 0, []
    for found in re.finditer(r"^```python\n(.*?)^```$", source, re.MULTILINE | re.DOTALL):
        code, line = found[1], source.count("\n", 0, found.start()) + 1
        if ">>>" not in code:
            exec(compile("\n" * line + code, str(PAGE), "exec"), names)
            continue
        test = doctest.DocTestParser().get_doctest(code, names, PAGE.name, str(PAGE), line)
        doctest.DocTestRunner(verbose=False).run(test, out=report.append, clear_globs=False)
        names.update(test.globs)
        shown += len(test.examples)
    return names, shown, report


def test_the_code_of_the_mathematics_page_runs():
    _, shown, report = session()
    assert not report, "\n".join(report)
    assert shown > 40


@settings(max_examples=150)
@given(st.sampled_from([4, 8, 16]), st.lists(st.integers(0, 255), min_size=5, max_size=5), st.integers(0, 255))
def test_the_closed_form_of_wavefronts_equals_the_count(lane_bytes, steps, constant):
    names, _, _ = session()
    lanes = LinearLayout(tuple(step * lane_bytes for step in steps), 12)
    addresses = [a ^ constant * lane_bytes for a in lanes.offsets().tolist()]
    assert names["wavefronts"](lanes, lane_bytes) == names["counted"](addresses, lane_bytes)


@given(st.sampled_from([1, 2, 4, 8, 16, 32]), st.lists(st.integers(0, 127), min_size=5, max_size=5))
def test_the_closed_form_of_sectors_equals_the_count(lane_bytes, steps):
    lanes = LinearLayout(tuple(step * lane_bytes for step in steps), 12)
    touched = {byte // 32 for a in lanes.offsets().tolist() for byte in range(a, a + lane_bytes)}
    assert 2 ** lanes.project(range(5, 12)).rank == len(touched)
