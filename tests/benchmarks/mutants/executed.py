"""Which quick tests of a room execute which of its lines, and how much processor time each of them takes.

python executed.py FOLDER_OF_MODULES FOLDER_OF_TESTS FILE writes it as JSON: in a process of its own, because coverage
sees only what is imported after it has started.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class Executed:
    """lines  file -> line -> the tests that execute it
    imported  file -> lines that are executed when it is imported
    seconds   test -> processor time; only tests that pass
    """

    lines: dict[str, dict[int, list[str]]]
    imported: dict[str, list[int]]
    seconds: dict[str, float]

    def tests(self, path: str, *lines: int) -> list[str]:
        """The tests that execute one of the lines, fastest first; all of the file's if it is executed on import."""
        of_file = self.lines.get(path, {})
        found = {test for line in lines for test in of_file.get(line, [])}
        if not found and set(lines) & set(self.imported.get(path, [])):
            found = {test for tests in of_file.values() for test in tests}
        return sorted(found & set(self.seconds), key=lambda test: (self.seconds[test], test))


def read(file: Path) -> Executed:
    data = json.loads(file.read_text())
    lines = {path: {int(line): tests for line, tests in of.items()} for path, of in data["lines"].items()}
    return Executed(lines, data["imported"], data["seconds"])


def record(root: Path, modules: str, tests: str, file: Path) -> Executed:
    """Runs the tests once, under coverage; keeps what they executed in a file."""
    command = [sys.executable, __file__, modules, tests, str(file)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if not file.exists():
        raise RuntimeError(f"the tests of {tests} did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return read(file)


class _Watch:
    """A plugin of pytest: tells coverage which test runs, and keeps the time of those that pass."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        begun = time.process_time()
        yield
        self.seconds[item.nodeid] = time.process_time() - begun
        self.coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)


def _main(modules: str, tests: str, file: str) -> None:
    from coverage import Coverage

    root = Path.cwd()
    coverage = Coverage(data_file=None, source=[str(root / modules)], branch=False)
    coverage.start()
    watch = _Watch(coverage)
    pytest.main([tests, "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--tb=line"], plugins=[watch])
    coverage.stop()
    data = coverage.get_data()
    lines, imported = {}, {}
    for name in data.measured_files():
        contexts = data.contexts_by_lineno(name)
        path = str(Path(name).relative_to(root))
        lines[path] = {line: sorted(filter(None, tests)) for line, tests in contexts.items()}
        imported[path] = sorted(line for line, tests in contexts.items() if "" in tests)
    seconds = {test: spent for test, spent in watch.seconds.items() if test not in watch.failed}
    Path(file).write_text(json.dumps({"lines": lines, "imported": imported, "seconds": seconds}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
