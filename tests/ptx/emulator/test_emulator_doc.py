"""docs/emulator.md: its code runs, and its table is the one that the code gives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tinygpu.ptx.emulator.coverage import coverage_table

DOC = Path(__file__).parents[3] / "docs" / "emulator.md"


def test_code_blocks_run_in_order() -> None:
    scope: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", DOC.read_text(), re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        exec(compile(block, str(DOC), "exec"), scope)


def test_the_coverage_table_is_generated() -> None:
    (table,) = re.findall(r"<!-- coverage -->\n(.*?)\n<!-- /coverage -->", DOC.read_text(), re.DOTALL)
    assert table == coverage_table()
