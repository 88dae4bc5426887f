"""Which quick tests of a room execute which of its lines, and how much processor time each of them takes.

Each test runs in a fork of the process that has collected them, as mutants are tried: what a test before it left in a
cache neither hides lines nor saves time. python executed.py FOLDER_OF_MODULES FOLDER_OF_TESTS FILE writes it as JSON:
in a process of its own, because coverage sees only what is imported after it has started.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol


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

    def others(self, tests: list[str]) -> list[str]:
        """All tests but these, fastest first: they may notice an edit of what runs when modules are imported."""
        return sorted(set(self.seconds) - set(tests), key=lambda test: (self.seconds[test], test))


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
    """A plugin of pytest: runs every test in a fork, and keeps the lines and the time of those that pass."""

    def __init__(self, coverage: Any, root: Path) -> None:
        self.coverage, self.root = coverage, root
        self.lines: dict[str, dict[int, list[str]]] = {}
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        reading, writing = os.pipe()
        if not (child := os.fork()):
            os.close(reading)
            with os.fdopen(writing, "w") as out:
                out.write(json.dumps(self._run(item)))
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as said:
            text = said.read()
        os.waitpid(child, 0)
        if text and (seen := json.loads(text)):
            self.seconds[item.nodeid], executed = seen
            for path, lines in executed.items():
                of_file = self.lines.setdefault(path, {})
                for line in lines:
                    of_file.setdefault(line, []).append(item.nodeid)
        return True

    def _run(self, item: pytest.Item) -> tuple[float, dict[str, list[int]]] | None:
        """(processor time, file -> lines) of a test that passes."""
        self.coverage.switch_context(item.nodeid)
        begun = time.process_time()
        reports = runtestprotocol(item, log=False, nextitem=None)
        spent = time.process_time() - begun
        self.coverage.stop()
        if not all(report.passed for report in reports):
            return None
        contexts = self.contexts().items()
        return spent, {path: [line for line, of in tests.items() if item.nodeid in of] for path, tests in contexts}

    def contexts(self) -> dict[str, dict[int, list[str]]]:
        """file -> line -> tests, "" for what is executed on import."""
        data = self.coverage.get_data()
        return {str(Path(name).relative_to(self.root)): data.contexts_by_lineno(name) for name in data.measured_files()}


def _main(modules: str, tests: str, file: str) -> None:
    from coverage import Coverage

    root = Path.cwd()
    coverage = Coverage(data_file=None, source=[str(root / modules)], branch=False)
    coverage.start()
    watch = _Watch(coverage, root)
    pytest.main([tests, "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--tb=line"], plugins=[watch])
    coverage.stop()
    imported = {path: sorted(tests) for path, tests in watch.contexts().items()}
    Path(file).write_text(json.dumps({"lines": watch.lines, "imported": imported, "seconds": watch.seconds}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
