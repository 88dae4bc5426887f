"""The code blocks of docs/solver.md run, as one session, and print what the page says."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "solver.md"


def test_the_code_of_the_solver_page_runs_and_prints_what_it_says() -> None:
    source = PAGE.read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    report: list[str] = []
    shown = 0
    for found in re.finditer(r"^```python\n(.*?)^```$", source, re.MULTILINE | re.DOTALL):
        line = source.count("\n", 0, found.start()) + 1
        test = doctest.DocTestParser().get_doctest(found[1], names, PAGE.name, str(PAGE), line)
        doctest.DocTestRunner(verbose=False).run(test, out=report.append, clear_globs=False)
        names.update(test.globs)
        shown += len(test.examples)
    assert not report, "\n".join(report)
    assert shown > 40
